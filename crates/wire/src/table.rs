//! The table of commands: one row per command, and each fact about a command only once.
//!
//! Registration, `COMMAND DOCS`, ACL categories, key specs, the reference page and the tests of the parser read these
//! rows. A new family is a new file next to `lock.rs` and a new line in [`COMMANDS`].

mod admin;
pub(crate) mod args;
mod base;
mod errors;
mod fair;
mod id;
mod latch;
mod lock;
mod multi;
mod rw;
mod semaphore;

pub use crate::request::{LatchVerb, LockVerb, MultiVerb, RwVerb, SemVerb};
pub use id::CommandId;

use crate::reply::{ErrorCode, Field};

/// Every command, in the order of the reference page.
pub static COMMANDS: &[Command] = &with_arity([
    lock::ACQUIRE,
    lock::RELEASE,
    lock::RENEW,
    lock::CHECK,
    lock::FENCE,
    lock::BREAK,
    lock::INFO,
    lock::WAITERS,
    lock::POSITION,
    lock::CANCEL,
    fair::ACQUIRE,
    fair::RELEASE,
    fair::RENEW,
    fair::CHECK,
    fair::FENCE,
    fair::BREAK,
    fair::INFO,
    fair::WAITERS,
    fair::POSITION,
    fair::CANCEL,
    rw::ACQUIRE,
    rw::RELEASE,
    rw::RENEW,
    rw::BREAK,
    rw::CHECK,
    rw::INFO,
    rw::WAITERS,
    rw::POSITION,
    rw::CANCEL,
    semaphore::INIT,
    semaphore::RESIZE,
    semaphore::ACQUIRE,
    semaphore::RELEASE,
    semaphore::RENEW,
    semaphore::TAKE,
    semaphore::GIVE,
    semaphore::DRAIN,
    semaphore::BREAK,
    semaphore::INFO,
    semaphore::PERMITS,
    semaphore::WAITERS,
    semaphore::POSITION,
    semaphore::CANCEL,
    latch::INIT,
    latch::COUNTDOWN,
    latch::AWAIT,
    latch::INFO,
    latch::WAITERS,
    multi::MACQUIRE,
    multi::MRELEASE,
    multi::MRENEW,
    multi::ANYACQUIRE,
    admin::UNBLOCK,
    admin::APPLY,
]);

/// One command.
#[derive(Debug, Clone, Copy)]
pub struct Command {
    /// Name as registered, for example `DLOCK.ACQUIRE`.
    pub name: &'static str,
    /// Identifier of the command.
    pub id: CommandId,
    /// Chapter of the reference page.
    pub group: Group,
    /// What it does, in one line.
    pub summary: &'static str,
    /// Name of the command with the same arguments, reply and errors; the reference page links to it and does not
    /// repeat them.
    pub like: Option<&'static str>,
    /// First version of dlock that has it.
    pub since: &'static str,
    /// Cost, as `COMMAND DOCS` shows it.
    pub complexity: &'static str,
    /// Number of arguments including the name, as Redis counts: `-n` is "at least n". [`COMMANDS`] counts them.
    pub arity: i32,
    /// Whether it changes data.
    pub access: Access,
    /// Flags for `RM_CreateCommand`. Redis 7.0 knows all of them.
    pub flags: &'static str,
    /// ACL categories, without the `@`.
    pub acl: &'static [&'static str],
    /// Position of its keys.
    pub keys: Keys,
    /// Use of its keys; empty if it has none.
    pub key_flags: &'static [KeyFlag],
    /// Arguments after the name, in order.
    pub args: &'static [Arg],
    /// Its reply (Markdown).
    pub reply: &'static str,
    /// The maps of its reply: an introduction, empty for the first, and the fields.
    pub maps: &'static [(&'static str, &'static [Field])],
    /// Errors of dlock that it can return, and when (Markdown).
    pub errors: &'static [(ErrorCode, &'static str)],
    /// Its behaviour, case by case (Markdown).
    pub notes: &'static str,
    /// A session with `redis-cli`; can be empty for internal commands.
    pub example: &'static str,
}

/// Chapter of the reference page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Group {
    /// DLOCK, the re-entrant lock.
    Lock,
    /// DFAIR, the lock with a durable queue.
    Fair,
    /// DRW, the read-write lock.
    Rw,
    /// DSEM, the semaphore.
    Semaphore,
    /// DLATCH, the count-down latch.
    Latch,
    /// Several locks at once.
    Multi,
    /// Commands of operators, for all families.
    Admin,
    /// Commands that servers send each other; the server refuses them from clients.
    Internal,
}

/// Whether a command changes data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// It changes nothing, and works on replicas.
    Read,
    /// It may change keys.
    Write,
    /// It acts on connections, not on keys.
    Connection,
}

/// The position of a command's keys in its arguments.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Keys {
    /// It has none.
    None,
    /// The first argument is its only key.
    First,
    /// The first argument is the number of keys that follow it.
    Counted,
}

/// What a command does to its keys: the flags of Redis' key specs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeyFlag {
    /// Reads the key only.
    Ro,
    /// Reads and writes the key.
    Rw,
    /// Its reply shows a part of the value.
    Access,
    /// Adds to the value without a change of existing data.
    Insert,
    /// Changes the value.
    Update,
    /// Removes a part of the value, or the key.
    Delete,
}

/// One argument, as `COMMAND DOCS` describes it.
#[derive(Debug, Clone, Copy)]
pub struct Arg {
    /// Name, lower case.
    pub name: &'static str,
    /// Type.
    pub kind: ArgKind,
    /// Keyword in front of the value, or the whole argument ([`ArgKind::PureToken`]).
    pub token: Option<&'static str>,
    /// Whether it is optional.
    pub optional: bool,
    /// Whether it can be repeated.
    pub multiple: bool,
    /// The accepted values.
    pub bounds: Bounds,
    /// What it means (one line of Markdown, without the range).
    pub summary: &'static str,
    /// Parts of a [`ArgKind::OneOf`] or a [`ArgKind::Block`].
    pub parts: &'static [Arg],
}

/// Type of an argument, as Redis defines it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ArgKind {
    /// Name of a key.
    Key,
    /// Bytes.
    String,
    /// A decimal integer.
    Integer,
    /// A keyword without a value.
    PureToken,
    /// Exactly one of the parts.
    OneOf,
    /// All parts, in order.
    Block,
}

impl ArgKind {
    /// The name that `COMMAND DOCS` uses.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Key => "key",
            Self::String => "string",
            Self::Integer => "integer",
            Self::PureToken => "pure-token",
            Self::OneOf => "oneof",
            Self::Block => "block",
        }
    }
}

/// The accepted values of an argument; both ends are included.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Bounds {
    /// Anything its type allows, or it has no value.
    Any,
    /// A string with a length in this range, in bytes.
    Bytes {
        /// Shortest.
        min: usize,
        /// Longest.
        max: usize,
    },
    /// A number in this range.
    Number {
        /// Smallest.
        min: i64,
        /// Largest.
        max: i64,
        /// The unit, for example `ms`; empty for plain numbers.
        unit: &'static str,
    },
    /// A UUID in canonical form, in upper or lower case.
    Uuid,
}

impl Bounds {
    const fn bytes(min: usize, max: usize) -> Self {
        Self::Bytes { min, max }
    }

    const fn number(min: u64, max: u64, unit: &'static str) -> Self {
        // All ranges of dlock fit into 63 bits.
        Self::Number { min: min.cast_signed(), max: max.cast_signed(), unit }
    }
}

/// The rows with their arity: the name and all required arguments.
const fn with_arity<const N: usize>(mut rows: [Command; N]) -> [Command; N] {
    let mut row = 0;
    while row < N {
        let args = rows[row].args;
        let (mut required, mut has_optional, mut at) = (1, false, 0);
        while at < args.len() {
            has_optional |= args[at].optional;
            required += if args[at].optional { 0 } else { 1 };
            at += 1;
        }
        rows[row].arity = if has_optional { -required } else { required };
        row += 1;
    }
    rows
}

impl Command {
    /// Whether a call may have this number of arguments after the name.
    #[inline]
    pub(crate) fn takes(&self, args: usize) -> bool {
        let count = i32::try_from(args + 1).unwrap_or(i32::MAX);
        if self.arity < 0 { count >= -self.arity } else { count == self.arity }
    }

    /// This row for another family, with the same arguments, reply and errors.
    const fn of_family(
        self,
        name: &'static str,
        id: CommandId,
        group: Group,
        example: &'static str,
    ) -> Self {
        Self { name, id, group, like: Some(self.name), example, ..self }
    }
}

impl Arg {
    /// Whether its value is a time in seconds.
    #[inline]
    pub(crate) fn is_in_seconds(&self) -> bool {
        matches!(self.bounds, Bounds::Number { unit: "s", .. })
    }

    /// Its name in errors.
    pub(crate) fn label(&self) -> &'static str {
        self.token.unwrap_or(self.name)
    }

    /// Each of the parts of a choice, or only itself.
    #[inline]
    pub(crate) fn alternatives(&'static self) -> &'static [Self] {
        if self.parts.is_empty() { core::slice::from_ref(self) } else { self.parts }
    }

    /// A required argument without a keyword. The other constructors build on it.
    const fn plain(
        name: &'static str,
        kind: ArgKind,
        bounds: Bounds,
        summary: &'static str,
    ) -> Self {
        Self {
            name,
            kind,
            token: None,
            optional: false,
            multiple: false,
            bounds,
            summary,
            parts: &[],
        }
    }

    /// `token value`, one of the parts of a choice.
    const fn part(
        token: &'static str,
        name: &'static str,
        kind: ArgKind,
        bounds: Bounds,
        summary: &'static str,
    ) -> Self {
        Self { token: Some(token), ..Self::plain(name, kind, bounds, summary) }
    }

    /// `[token value]`
    const fn option(
        token: &'static str,
        name: &'static str,
        kind: ArgKind,
        bounds: Bounds,
        summary: &'static str,
    ) -> Self {
        Self { optional: true, ..Self::part(token, name, kind, bounds, summary) }
    }

    /// `[token]`
    const fn flag(token: &'static str, name: &'static str, summary: &'static str) -> Self {
        Self::option(token, name, ArgKind::PureToken, Bounds::Any, summary)
    }

    /// `token`, one of the parts of a choice.
    const fn word(token: &'static str, name: &'static str, summary: &'static str) -> Self {
        Self::part(token, name, ArgKind::PureToken, Bounds::Any, summary)
    }

    /// `[part | part]`
    const fn choice(name: &'static str, summary: &'static str, parts: &'static [Self]) -> Self {
        Self { optional: true, parts, ..Self::plain(name, ArgKind::OneOf, Bounds::Any, summary) }
    }
}
