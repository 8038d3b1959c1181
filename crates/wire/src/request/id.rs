//! Identifiers of commands.

use super::family::{LatchVerb, LockVerb, MultiVerb, RwVerb, SemVerb};

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
    /// `DLOCK.TRUST`, after which a diverged server grants again.
    Trust,
    /// `DLOCK.LOG`, the log of notable events.
    Log,
    /// `DLOCK.APPLY`, the internal command of replication and the append-only file.
    Apply,
}

impl CommandId {
    /// A number of its own, below that of all commands.
    pub(crate) const fn number(self) -> usize {
        const FAIR: usize = LockVerb::COUNT;
        const RW: usize = FAIR + LockVerb::COUNT;
        const SEM: usize = RW + RwVerb::COUNT;
        const LATCH: usize = SEM + SemVerb::COUNT;
        const MULTI: usize = LATCH + LatchVerb::COUNT;
        const UNBLOCK: usize = MULTI + MultiVerb::COUNT;
        match self {
            Self::Lock(verb) => verb as usize,
            Self::Fair(verb) => FAIR + verb as usize,
            Self::Rw(verb) => RW + verb as usize,
            Self::Sem(verb) => SEM + verb as usize,
            Self::Latch(verb) => LATCH + verb as usize,
            Self::Multi(verb) => MULTI + verb as usize,
            Self::Unblock => UNBLOCK,
            Self::Trust => UNBLOCK + 1,
            Self::Log => UNBLOCK + 2,
            Self::Apply => UNBLOCK + 3,
        }
    }
}
