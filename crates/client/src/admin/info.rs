//! The state of a key.

use std::time::Duration;

use super::kind::Kind;

/// What the INFO command of a key's family tells.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Info {
    /// A lock of one holder: DLOCK or DFAIR.
    Lock(Lock),
    /// A read-write lock.
    ReadWrite(ReadWrite),
    /// A semaphore.
    Semaphore(Semaphore),
    /// A latch that is still closed.
    Latch(Latch),
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

    /// How many wait for it.
    pub const fn waiters(&self) -> u64 {
        match self {
            Self::Lock(lock) => lock.waiters,
            Self::ReadWrite(lock) => lock.waiters,
            Self::Semaphore(semaphore) => semaphore.waiters,
            Self::Latch(latch) => latch.waiters,
        }
    }

    /// The holds that are in force, the writer's first. Those of a semaphore are its permits: see
    /// [`Admin::permits`](super::Admin::permits).
    pub fn holders(&self) -> impl Iterator<Item = &Holder> {
        let (one, many) = match self {
            Self::Lock(lock) => (lock.holder.as_ref(), &[][..]),
            Self::ReadWrite(lock) => (lock.writer.as_ref(), lock.readers.as_slice()),
            Self::Semaphore(_) | Self::Latch(_) => (None, &[][..]),
        };
        one.into_iter().chain(many)
    }
}

/// A DLOCK or DFAIR key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lock {
    /// [`Kind::Lock`] or [`Kind::Fair`].
    pub kind: Kind,
    /// Its holder; None: it is free, but has a queue or is closed for a while.
    pub holder: Option<Holder>,
    /// While it is free: for how long it stays closed (`dlock.lock-delay-ms`); else zero.
    pub closed_for: Duration,
    /// How many wait.
    pub waiters: u64,
}

/// A DRW key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReadWrite {
    /// How it is held.
    pub mode: RwMode,
    /// The write hold.
    pub writer: Option<Holder>,
    /// The read holds. While there is a writer only it itself can be among them.
    pub readers: Vec<Holder>,
    /// How many wait.
    pub waiters: u64,
}

/// How a read-write lock is held.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum RwMode {
    /// Not at all.
    Free,
    /// By readers only.
    Read,
    /// By a writer.
    Write,
}

impl RwMode {
    /// What the server calls it: `free`, `read`, `write`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Free => dlock_wire::reply::rw_info::MODE_FREE,
            Self::Read => dlock_wire::reply::rw_info::MODE_READ,
            Self::Write => dlock_wire::reply::rw_info::MODE_WRITE,
        }
    }
}

/// A hold of a lock.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Holder {
    /// The owner.
    pub owner: Vec<u8>,
    /// Its fencing token.
    pub token: u64,
    /// How often the owner holds it (in this mode).
    pub holds: u64,
    /// The length of its lease.
    pub lease: Duration,
    /// What was left of the lease when the server answered.
    pub left: Duration,
    /// How long it has been held.
    pub held: Duration,
    /// Its label; may be empty.
    pub label: Vec<u8>,
    /// The connection that it is bound to (BIND).
    pub bound_client: Option<u64>,
}

/// A DSEM key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Semaphore {
    /// How many permits there are; 0 for one that is waited for and has not been made.
    pub capacity: u64,
    /// How many of them can be had; negative while more are out than there are.
    pub available: i64,
    /// How many are out with an owner and a lease.
    pub leased: u64,
    /// How many are out by TAKE and DRAIN.
    pub taken: u64,
    /// How many wait.
    pub waiters: u64,
}

/// Permits that are out with an owner and a lease.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PermitHold {
    /// The permit id.
    pub id: String,
    /// The owner.
    pub owner: Vec<u8>,
    /// How many permits it is.
    pub count: u64,
    /// What was left of the lease when the server answered.
    pub left: Duration,
    /// How long it has been out.
    pub held: Duration,
    /// Its label; may be empty.
    pub label: Vec<u8>,
    /// The connection that it is bound to (BIND).
    pub bound_client: Option<u64>,
}

/// A DLATCH key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Latch {
    /// What remains to be counted down.
    pub count: u64,
    /// What it began with.
    pub initial: u64,
    /// What is left of its time; None: no end is set.
    pub left: Option<Duration>,
    /// How many calls wait for it.
    pub waiters: u64,
}

/// A waiter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Waiter {
    /// The owner; empty for those without one (`DSEM.TAKE`, `DLATCH.AWAIT`).
    pub owner: Vec<u8>,
    /// The connection that waits; None: no connection waits for it now.
    pub client: Option<u64>,
    /// For how long.
    pub waiting: Duration,
    /// How much longer at most; None: forever, or as long as the connection lasts.
    pub remaining: Option<Duration>,
    /// The label of the place; may be empty.
    pub label: Vec<u8>,
}
