//! The table of commands: one row per command, and each fact about a command only once.
//!
//! Registration, `COMMAND DOCS`, ACL categories, key specs, the reference page and the tests of the parser read these
//! rows. A new family is a new file next to `lock.rs` and a new line in [`COMMANDS`].

mod admin;
mod base;
mod command;
mod errors;
mod fair;
mod latch;
mod lock;
mod multi;
mod rw;
mod semaphore;

pub use crate::arg::{Arg, ArgKind, Bounds};
pub use crate::request::{CommandId, LatchVerb, LockVerb, MultiVerb, RwVerb, SemVerb};
pub use command::{Access, Command, Group, KeyFlag, Keys};

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
    lock::AWAIT,
    fair::ACQUIRE,
    fair::RELEASE,
    fair::RENEW,
    fair::CHECK,
    fair::FENCE,
    fair::BREAK,
    fair::INFO,
    fair::WAITERS,
    fair::POSITION,
    fair::AWAIT,
    rw::ACQUIRE,
    rw::RELEASE,
    rw::RENEW,
    rw::BREAK,
    rw::CHECK,
    rw::INFO,
    rw::WAITERS,
    rw::POSITION,
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
    admin::TRUST,
    admin::LOG,
    admin::APPLY,
]);

/// The rows with their arity: the name and all required arguments.
const fn with_arity<const N: usize>(mut rows: [Command; N]) -> [Command; N] {
    let mut row = 0;
    while row < N {
        let args = rows[row].args;
        let (mut required, mut has_optional, mut at) = (1, false, 0);
        while at < args.len() {
            has_optional |= args[at].optional || args[at].has_block();
            required += if args[at].optional { 0 } else { 1 };
            at += 1;
        }
        rows[row].arity = if has_optional { -required } else { required };
        row += 1;
    }
    rows
}

/// The row of each command, by its number.
static ROWS: [usize; COMMANDS.len()] = {
    let (mut rows, mut row) = ([0; COMMANDS.len()], 0);
    while row < rows.len() {
        rows[COMMANDS[row].id.number()] = row;
        row += 1;
    }
    rows
};

impl CommandId {
    /// The row of this command.
    #[inline]
    pub fn command(self) -> Option<&'static Command> {
        ROWS.get(self.number()).and_then(|&row| COMMANDS.get(row))
    }

    /// The name as it is registered and documented, for example `DLOCK.ACQUIRE`.
    pub fn name(self) -> &'static str {
        self.command().map_or("DLOCK", |command| command.name)
    }
}
