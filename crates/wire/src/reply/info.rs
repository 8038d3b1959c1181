//! INFO of any family.

use super::shape::{Shape, Sink, Unreadable, Value};
use super::{HolderInfo, Kind, LatchInfo, LockInfo, RwInfo, SemInfo};

/// The state of a key, as the INFO command of its family shows it.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Info {
    /// A lock with one holder: DLOCK or DFAIR.
    Lock(LockInfo),
    /// A read-write lock.
    ReadWrite(RwInfo),
    /// A semaphore.
    Semaphore(SemInfo),
    /// A latch that is still closed.
    Latch(LatchInfo),
}

impl Info {
    /// Which family the key belongs to.
    pub const fn kind(&self) -> Kind {
        match self {
            Self::Lock(lock) => lock.kind,
            Self::ReadWrite(_) => Kind::ReadWrite,
            Self::Semaphore(_) => Kind::Semaphore,
            Self::Latch(_) => Kind::Latch,
        }
    }

    /// Number of waiters.
    pub const fn waiters(&self) -> u64 {
        match self {
            Self::Lock(lock) => lock.waiters,
            Self::ReadWrite(lock) => lock.waiters,
            Self::Semaphore(semaphore) => semaphore.waiters,
            Self::Latch(latch) => latch.waiters,
        }
    }

    /// The holds in force, the writer's first. The holds of a semaphore are its permits: see
    /// [`PermitInfo`](super::PermitInfo).
    pub fn holders(&self) -> impl Iterator<Item = &HolderInfo> {
        let (one, many) = match self {
            Self::Lock(lock) => (lock.holder.as_ref(), &[][..]),
            Self::ReadWrite(lock) => (lock.writer.as_ref(), lock.readers.as_slice()),
            Self::Semaphore(_) | Self::Latch(_) => (None, &[][..]),
        };
        one.into_iter().chain(many)
    }

    /// Writes it.
    pub fn write(&self, to: &mut impl Sink) {
        match self {
            Self::Lock(lock) => lock.write(to),
            Self::ReadWrite(lock) => lock.write(to),
            Self::Semaphore(semaphore) => semaphore.write(to),
            Self::Latch(latch) => latch.write(to),
        }
    }

    /// Reads the reply to the INFO command of the family `kind`; `None` for Null.
    pub fn read(kind: Kind, from: Value) -> Result<Option<Self>, Unreadable> {
        let what = "INFO";
        Ok(match kind {
            Kind::Lock | Kind::Fair => LockInfo::read_or_null(what, from)?.map(Self::Lock),
            Kind::ReadWrite => RwInfo::read_or_null(what, from)?.map(Self::ReadWrite),
            Kind::Semaphore => SemInfo::read_or_null(what, from)?.map(Self::Semaphore),
            Kind::Latch => LatchInfo::read_or_null(what, from)?.map(Self::Latch),
        })
    }
}
