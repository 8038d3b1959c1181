//! The families of primitives.

use dlock_wire::reply;
use dlock_wire::request::{LockFamily, Read};

/// The families. Closed on purpose: they differ in what they admit, and share queueing, expiry, bindings and hand-off.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// A re-entrant lock.
    Lock,
    /// A lock with a durable queue.
    Fair,
    /// A read-write lock.
    Rw,
    /// A semaphore.
    Semaphore,
    /// A count-down latch.
    Latch,
}

impl Kind {
    /// All of them, in the order of the key types.
    pub const ALL: [Self; 5] = [Self::Lock, Self::Fair, Self::Rw, Self::Semaphore, Self::Latch];

    /// Whether the key depends on its waiters: then the machine opens the key when the last of them has left.
    pub(crate) fn has_durable_queue(self) -> bool {
        matches!(self, Self::Fair | Self::Semaphore)
    }
}

impl From<LockFamily> for Kind {
    fn from(family: LockFamily) -> Self {
        match family {
            LockFamily::Lock => Self::Lock,
            LockFamily::Fair => Self::Fair,
        }
    }
}

impl From<&Read<'_>> for Kind {
    fn from(read: &Read<'_>) -> Self {
        match read {
            Read::Lock(family, _) => (*family).into(),
            Read::Rw(_) => Self::Rw,
            Read::Sem(_) => Self::Semaphore,
            Read::Latch(_) => Self::Latch,
        }
    }
}

impl From<Kind> for reply::Kind {
    fn from(kind: Kind) -> Self {
        match kind {
            Kind::Lock => Self::Lock,
            Kind::Fair => Self::Fair,
            Kind::Rw => Self::ReadWrite,
            Kind::Semaphore => Self::Semaphore,
            Kind::Latch => Self::Latch,
        }
    }
}
