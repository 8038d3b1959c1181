//! The families, as replies name them.

use alloc::vec::Vec;

use super::shape::{Shape, Sink, Unreadable, Value};

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
