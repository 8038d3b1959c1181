//! `DRW.INFO`.

use alloc::vec::Vec;

use super::HolderInfo;
use super::shape::{Shape, Sink, Unreadable, Value, map};

map! {
    /// The state of a DRW key.
    RwInfo("kind" = "drw", "the family: `drw`") {
        "mode" => mode: RwMode,
            "`write` with a write hold, else `read` with read holds, else `free` (there is a queue, \
             or the lock is closed by `dlock.lock-delay-ms`)";
        "writer" => writer: Option<HolderInfo>, "the write hold, a map as below; Null without one";
        "readers" => readers: Vec<HolderInfo>, "the read holds, an array of maps as below";
        "waiters" => waiters: u64, "length of the queue";
    }
}

/// How a read-write lock is held.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub enum RwMode {
    /// Not at all.
    #[default]
    Free,
    /// By readers only.
    Read,
    /// By a writer.
    Write,
}

impl RwMode {
    const ALL: [Self; 3] = [Self::Free, Self::Read, Self::Write];

    /// The name in replies: `free`, `read`, `write`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Free => "free",
            Self::Read => "read",
            Self::Write => "write",
        }
    }
}

impl Shape for RwMode {
    fn write(&self, to: &mut impl Sink) {
        to.bulk(self.name().as_bytes());
    }

    fn read(what: &'static str, from: Value) -> Result<Self, Unreadable> {
        let name = Vec::<u8>::read(what, from)?;
        let found = Self::ALL.into_iter().find(|mode| mode.name().as_bytes() == name);
        found.ok_or(Unreadable::Odd(what, Value::Bytes(name)))
    }
}
