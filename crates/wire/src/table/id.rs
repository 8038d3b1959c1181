//! How commands are told apart.

use super::{COMMANDS, Command};

/// Which command a row, a request or an error is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum CommandId {
    /// A command of DLOCK, the re-entrant lock.
    Lock(LockVerb),
    /// A command of DFAIR, the lock with a durable queue. The verbs and requests are DLOCK's.
    Fair(LockVerb),
    /// A command of DRW, the read-write lock.
    Rw(RwVerb),
    /// A command of DSEM, the semaphore.
    Sem(SemVerb),
    /// A command of DLATCH, the count-down latch.
    Latch(LatchVerb),
    /// A command for several DLOCK keys at once.
    Multi(MultiVerb),
    /// `DLOCK.UNBLOCK`, for the blocked calls of every family.
    Unblock,
    /// `DLOCK.APPLY`, the internal command of replication and the append-only file.
    Apply,
}

impl CommandId {
    /// The row of this command.
    pub fn command(self) -> Option<&'static Command> {
        COMMANDS.iter().find(|command| command.id == self)
    }

    /// The name as it is registered and documented, for example `DLOCK.ACQUIRE`.
    pub fn name(self) -> &'static str {
        self.command().map_or("DLOCK", |command| command.name)
    }
}

/// What can be done with a lock of one holder.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum LockVerb {
    /// Take it, or wait for it.
    Acquire,
    /// Give back one hold, or all.
    Release,
    /// Set the end of the lease anew.
    Renew,
    /// Ask whether a token is the current one.
    Check,
    /// Raise the token.
    Fence,
    /// End the hold by force.
    Break,
    /// Show the hold.
    Info,
    /// Show the queue.
    Waiters,
    /// Show where an owner stands.
    Position,
    /// Leave the queue.
    Cancel,
}

/// What can be done with a read-write lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum RwVerb {
    /// Take it, or wait for it.
    Acquire,
    /// Give back one hold of a mode, or all.
    Release,
    /// Set the end of the lease of a mode anew.
    Renew,
    /// End holds by force.
    Break,
    /// Ask whether a token is that of a current hold.
    Check,
    /// Show the holds.
    Info,
    /// Show the queue.
    Waiters,
    /// Show where an owner stands.
    Position,
    /// Leave the queue.
    Cancel,
}

/// What can be done with a semaphore.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum SemVerb {
    /// Make it.
    Init,
    /// Change the number of permits.
    Resize,
    /// Take permits with an owner and a lease, or wait for them.
    Acquire,
    /// Give back what ACQUIRE gave.
    Release,
    /// Set the end of the lease anew.
    Renew,
    /// Take permits that belong to nobody.
    Take,
    /// Give back what TAKE and DRAIN took.
    Give,
    /// Take all that can be had.
    Drain,
    /// End a permit by force.
    Break,
    /// Show the numbers.
    Info,
    /// List what is out with a lease.
    Permits,
    /// Show the queue.
    Waiters,
    /// Show where an owner stands.
    Position,
    /// Leave the queue.
    Cancel,
}

/// What can be done with a latch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum LatchVerb {
    /// Close it.
    Init,
    /// Count it down.
    CountDown,
    /// Wait for it to open.
    Await,
    /// Show the count.
    Info,
    /// Show who waits.
    Waiters,
}

/// What can be done with several locks at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum MultiVerb {
    /// Take all, or wait for them.
    Acquire,
    /// Give back one hold of each.
    Release,
    /// Set the ends of the leases anew.
    Renew,
    /// Take one of them, or wait for the first to become free.
    AnyAcquire,
}
