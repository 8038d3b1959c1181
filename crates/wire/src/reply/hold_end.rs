//! How a hold ended.

use alloc::vec::Vec;
use core::fmt;

use super::shape::{Shape, Sink, Unreadable, Value};

/// How a hold ended: the reply to AWAIT with REASON.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum HoldEnd {
    /// Its owner released it with DONE: the work under it is done.
    Done,
    /// Its owner released it, and did not say DONE.
    Released,
    /// The grant could not be delivered.
    Returned,
    /// Its lease elapsed.
    Expired,
    /// A grant to a place in the queue ended before a request of its owner reached it.
    Unclaimed,
    /// The connection that it was bound to closed.
    Disconnected,
    /// An operator broke it.
    Broken,
    /// Its key was deleted, renamed or overwritten.
    Deleted,
    /// There was no hold when AWAIT was called without TOKEN.
    Free,
    /// The hold with TOKEN is not in force, and the server does not remember its end.
    Unknown,
}

impl HoldEnd {
    /// All of them.
    pub const ALL: [Self; 10] = [
        Self::Done,
        Self::Released,
        Self::Returned,
        Self::Expired,
        Self::Unclaimed,
        Self::Disconnected,
        Self::Broken,
        Self::Deleted,
        Self::Free,
        Self::Unknown,
    ];

    /// The word on the wire.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Done => "done",
            Self::Released => "released",
            Self::Returned => "returned",
            Self::Expired => "expired",
            Self::Unclaimed => "unclaimed",
            Self::Disconnected => "disconnected",
            Self::Broken => "broken",
            Self::Deleted => "deleted",
            Self::Free => "free",
            Self::Unknown => "unknown",
        }
    }
}

impl fmt::Display for HoldEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl Shape for HoldEnd {
    fn write(&self, to: &mut impl Sink) {
        to.bulk(self.as_str().as_bytes());
    }

    fn read(what: &'static str, from: Value) -> Result<Self, Unreadable> {
        let word = Vec::<u8>::read(what, from)?;
        let found = Self::ALL.into_iter().find(|end| end.as_str().as_bytes() == word);
        found.ok_or(Unreadable::Odd(what, Value::Bytes(word)))
    }
}
