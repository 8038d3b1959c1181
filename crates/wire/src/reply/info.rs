//! INFO of any family.

use alloc::vec::Vec;

use super::shape::{Shape, Sink, Unreadable, Value};
use super::{HolderInfo, LatchInfo, LockInfo, RwInfo, SemInfo};

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

    /// The name in replies: `dlock`, `dfair`, `drw`, `dsem`, `dlatch`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Lock => "dlock",
            Self::Fair => "dfair",
            Self::ReadWrite => "drw",
            Self::Semaphore => "dsem",
            Self::Latch => "dlatch",
        }
    }

    /// The type of its keys, as `TYPE` and `SCAN … TYPE` name it.
    pub const fn key_type(self) -> &'static str {
        match self {
            Self::Lock => "dlock-mtx",
            Self::Fair => "dlock-fif",
            Self::ReadWrite => "dlock-rwl",
            Self::Semaphore => "dlock-sem",
            Self::Latch => "dlock-cdl",
        }
    }
}

impl core::fmt::Display for Kind {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(self.name())
    }
}

impl Shape for Kind {
    fn write(&self, to: &mut impl Sink) {
        to.bulk(self.name().as_bytes());
    }

    fn read(what: &'static str, from: Value) -> Result<Self, Unreadable> {
        let name = Vec::<u8>::read(what, from)?;
        let found = Self::ALL.into_iter().find(|kind| kind.name().as_bytes() == name);
        found.ok_or(Unreadable::Odd(what, Value::Bytes(name)))
    }
}
