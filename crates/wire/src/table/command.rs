//! How a command is described.

use crate::arg::Arg;
use crate::reply::{ErrorCode, Field};
use crate::request::CommandId;

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
    /// Number of arguments including the name, as Redis counts: `-n` is "at least n".
    /// [`COMMANDS`](super::COMMANDS) counts them.
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
    /// It reads or changes a part of this server process that belongs to no key and no connection: its log.
    Server,
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

impl Command {
    /// Whether a call may have this number of arguments after the name.
    #[inline]
    pub(crate) fn takes(&self, args: usize) -> bool {
        let count = i32::try_from(args + 1).unwrap_or(i32::MAX);
        if self.arity < 0 { count >= -self.arity } else { count == self.arity }
    }

    /// This row for another family, with the same arguments, reply and errors.
    pub(super) const fn of_family(
        self,
        name: &'static str,
        id: CommandId,
        group: Group,
        example: &'static str,
    ) -> Self {
        Self { name, id, group, like: Some(self.name), example, ..self }
    }
}
