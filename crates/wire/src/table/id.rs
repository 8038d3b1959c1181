//! Identifiers of commands.

use super::{COMMANDS, Command};
use crate::reply::Kind;

/// Identifies the command of a row, a request or an error.
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
    #[inline]
    pub fn command(self) -> Option<&'static Command> {
        COMMANDS.get(self.row())
    }

    /// The commands of a family are in the order of its verbs.
    const fn row(self) -> usize {
        const FAIR: usize = LockVerb::Cancel as usize + 1;
        const RW: usize = FAIR + LockVerb::Cancel as usize + 1;
        const SEM: usize = RW + RwVerb::Cancel as usize + 1;
        const LATCH: usize = SEM + SemVerb::Cancel as usize + 1;
        const MULTI: usize = LATCH + LatchVerb::Waiters as usize + 1;
        const UNBLOCK: usize = MULTI + MultiVerb::AnyAcquire as usize + 1;
        match self {
            Self::Lock(verb) => verb as usize,
            Self::Fair(verb) => FAIR + verb as usize,
            Self::Rw(verb) => RW + verb as usize,
            Self::Sem(verb) => SEM + verb as usize,
            Self::Latch(verb) => LATCH + verb as usize,
            Self::Multi(verb) => MULTI + verb as usize,
            Self::Unblock => UNBLOCK,
            Self::Apply => UNBLOCK + 1,
        }
    }

    /// The INFO command of a family.
    pub const fn info(kind: Kind) -> Self {
        match kind {
            Kind::Lock => Self::Lock(LockVerb::Info),
            Kind::Fair => Self::Fair(LockVerb::Info),
            Kind::ReadWrite => Self::Rw(RwVerb::Info),
            Kind::Semaphore => Self::Sem(SemVerb::Info),
            Kind::Latch => Self::Latch(LatchVerb::Info),
        }
    }

    /// The WAITERS command of a family.
    pub const fn waiters(kind: Kind) -> Self {
        match kind {
            Kind::Lock => Self::Lock(LockVerb::Waiters),
            Kind::Fair => Self::Fair(LockVerb::Waiters),
            Kind::ReadWrite => Self::Rw(RwVerb::Waiters),
            Kind::Semaphore => Self::Sem(SemVerb::Waiters),
            Kind::Latch => Self::Latch(LatchVerb::Waiters),
        }
    }

    /// The POSITION command of a family; `None` for latches, whose waiters have no owner.
    pub const fn position(kind: Kind) -> Option<Self> {
        Some(match kind {
            Kind::Lock => Self::Lock(LockVerb::Position),
            Kind::Fair => Self::Fair(LockVerb::Position),
            Kind::ReadWrite => Self::Rw(RwVerb::Position),
            Kind::Semaphore => Self::Sem(SemVerb::Position),
            Kind::Latch => return None,
        })
    }

    /// The name as it is registered and documented, for example `DLOCK.ACQUIRE`.
    pub fn name(self) -> &'static str {
        self.command().map_or("DLOCK", |command| command.name)
    }
}

/// The operations on a lock with one holder.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum LockVerb {
    /// Acquire it, or wait for it.
    Acquire,
    /// Release one hold, or all.
    Release,
    /// Restart the lease.
    Renew,
    /// Check whether a token is the current one.
    Check,
    /// Raise the token.
    Fence,
    /// End the hold by force.
    Break,
    /// Show the hold.
    Info,
    /// List the waiters.
    Waiters,
    /// Show the position of an owner.
    Position,
    /// Leave the queue.
    Cancel,
}

/// The operations on a read-write lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum RwVerb {
    /// Acquire it, or wait for it.
    Acquire,
    /// Release one hold of a mode, or all.
    Release,
    /// Restart the lease of a mode.
    Renew,
    /// End holds by force.
    Break,
    /// Check whether a token is that of a current hold.
    Check,
    /// Show the holds.
    Info,
    /// List the waiters.
    Waiters,
    /// Show the position of an owner.
    Position,
    /// Leave the queue.
    Cancel,
}

/// The operations on a semaphore.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum SemVerb {
    /// Create it.
    Init,
    /// Change the number of permits.
    Resize,
    /// Take permits with an owner and a lease, or wait for them.
    Acquire,
    /// Return the permits of an ACQUIRE.
    Release,
    /// Restart the lease.
    Renew,
    /// Take permits without an owner.
    Take,
    /// Return permits of TAKE and DRAIN.
    Give,
    /// Take all available permits.
    Drain,
    /// End a permit by force.
    Break,
    /// Show the numbers.
    Info,
    /// List the permits that are out with a lease.
    Permits,
    /// List the waiters.
    Waiters,
    /// Show the position of an owner.
    Position,
    /// Leave the queue.
    Cancel,
}

/// The operations on a latch.
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
    /// List the waiters.
    Waiters,
}

/// The operations on several locks at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum MultiVerb {
    /// Acquire all, or wait for them.
    Acquire,
    /// Release one hold of each.
    Release,
    /// Restart the leases.
    Renew,
    /// Acquire one of them, or wait for the first to become free.
    AnyAcquire,
}
