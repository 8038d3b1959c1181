//! The families, and which command asks what of which.

use std::fmt;

use dlock_wire::names;
use dlock_wire::reply::info;
use dlock_wire::table::{CommandId, LatchVerb, LockVerb, RwVerb, SemVerb};

/// Which family a key belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Kind {
    /// A re-entrant lock (DLOCK).
    Lock,
    /// A lock with a durable queue (DFAIR).
    Fair,
    /// A read-write lock (DRW).
    ReadWrite,
    /// A semaphore (DSEM).
    Semaphore,
    /// A count-down latch (DLATCH).
    Latch,
}

impl Kind {
    /// All families.
    pub const ALL: [Self; 5] =
        [Self::Lock, Self::Fair, Self::ReadWrite, Self::Semaphore, Self::Latch];

    /// What the server calls it: `dlock`, `dfair`, `drw`, `dsem`, `dlatch`.
    ///
    /// ```
    /// assert_eq!(dlock_client::admin::Kind::ReadWrite.name(), "drw");
    /// ```
    pub const fn name(self) -> &'static str {
        match self {
            Self::Lock => info::KIND_LOCK,
            Self::Fair => info::KIND_FAIR,
            Self::ReadWrite => info::KIND_RW,
            Self::Semaphore => info::KIND_SEM,
            Self::Latch => info::KIND_LATCH,
        }
    }

    /// The type of its keys, as `TYPE` and `SCAN … TYPE` name it.
    ///
    /// ```
    /// assert_eq!(dlock_client::admin::Kind::Lock.key_type(), "dlock-mtx");
    /// ```
    pub const fn key_type(self) -> &'static str {
        match self {
            Self::Lock => names::TYPE_LOCK,
            Self::Fair => names::TYPE_FAIR,
            Self::ReadWrite => names::TYPE_RW,
            Self::Semaphore => names::TYPE_SEM,
            Self::Latch => names::TYPE_LATCH,
        }
    }

    pub(super) const fn info(self) -> CommandId {
        match self {
            Self::Lock => CommandId::Lock(LockVerb::Info),
            Self::Fair => CommandId::Fair(LockVerb::Info),
            Self::ReadWrite => CommandId::Rw(RwVerb::Info),
            Self::Semaphore => CommandId::Sem(SemVerb::Info),
            Self::Latch => CommandId::Latch(LatchVerb::Info),
        }
    }

    /// None: the waiters of a latch have no owner.
    pub(super) const fn position(self) -> Option<CommandId> {
        match self {
            Self::Lock => Some(CommandId::Lock(LockVerb::Position)),
            Self::Fair => Some(CommandId::Fair(LockVerb::Position)),
            Self::ReadWrite => Some(CommandId::Rw(RwVerb::Position)),
            Self::Semaphore => Some(CommandId::Sem(SemVerb::Position)),
            Self::Latch => None,
        }
    }

    pub(super) const fn waiters(self) -> CommandId {
        match self {
            Self::Lock => CommandId::Lock(LockVerb::Waiters),
            Self::Fair => CommandId::Fair(LockVerb::Waiters),
            Self::ReadWrite => CommandId::Rw(RwVerb::Waiters),
            Self::Semaphore => CommandId::Sem(SemVerb::Waiters),
            Self::Latch => CommandId::Latch(LatchVerb::Waiters),
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
