//! What a client asks the machine to do, by family.

use crate::kind::Kind;
use crate::machine::Machine;
use crate::time::Millis;
use crate::turn::Turn;
use dlock_wire::permit::PermitId;
use dlock_wire::request::{
    Acquire, MAcquire, MRelease, MRenew, Release, Renew, Request, ResizeTo, RwAcquire, RwRelease,
    RwRenew, SemAcquire, SemRenew, Take,
};
use dlock_wire::table::CommandId;

/// An operation: a command that may change keys or wait.
#[derive(Debug, Clone, Copy)]
pub enum Op<'a> {
    /// Of a lock for one holder: [`Kind::Lock`] or [`Kind::Fair`].
    Lock(Kind, LockOp<'a>),
    /// Of a read-write lock.
    Rw(RwOp<'a>),
    /// Of a semaphore.
    Semaphore(SemaphoreOp<'a>),
    /// Of a latch.
    Latch(LatchOp<'a>),
    /// Of several locks at once.
    Multi(MultiOp<'a>),
    /// CANCEL in any family that has owners.
    Cancel(Kind, Cancel<'a>),
    /// DLOCK.UNBLOCK of a connection.
    Unblock {
        /// The connection.
        client: u64,
        /// Its call gets an error instead of Null.
        with_error: bool,
    },
}

/// An operation of DLOCK and DFAIR.
#[derive(Debug, Clone, Copy)]
#[allow(missing_docs)] // the names and fields are those of the commands
pub enum LockOp<'a> {
    Acquire(&'a Acquire<'a>),
    Release(&'a Release<'a>),
    Renew(&'a Renew<'a>),
    Fence { key: &'a [u8], owner: &'a [u8], token: u64 },
    Break { key: &'a [u8] },
}

/// An operation of DRW.
#[derive(Debug, Clone, Copy)]
#[allow(missing_docs)]
pub enum RwOp<'a> {
    Acquire(&'a RwAcquire<'a>),
    Release(&'a RwRelease<'a>),
    Renew(&'a RwRenew<'a>),
    Break { key: &'a [u8], owner: Option<&'a [u8]> },
}

/// An operation of DSEM.
#[derive(Debug, Clone, Copy)]
#[allow(missing_docs)]
pub enum SemaphoreOp<'a> {
    Init {
        key: &'a [u8],
        permits: u32,
    },
    Resize {
        key: &'a [u8],
        to: ResizeTo,
        reqid: Option<&'a [u8]>,
    },
    /// With the id that the permits get.
    Acquire(&'a SemAcquire<'a>, PermitId),
    Release {
        key: &'a [u8],
        permit: PermitId,
    },
    Renew(&'a SemRenew<'a>),
    Take(&'a Take<'a>),
    Give {
        key: &'a [u8],
        n: u32,
        reqid: Option<&'a [u8]>,
    },
    Drain {
        key: &'a [u8],
        reqid: Option<&'a [u8]>,
    },
    Break {
        key: &'a [u8],
        permit: PermitId,
    },
}

/// An operation of DLATCH.
#[derive(Debug, Clone, Copy)]
#[allow(missing_docs)]
pub enum LatchOp<'a> {
    Init { key: &'a [u8], count: u32, lease_ms: Option<Millis> },
    CountDown { key: &'a [u8], n: u32, reqid: Option<&'a [u8]> },
    Await { key: &'a [u8], block_ms: Option<Millis> },
}

/// An operation on several keys of DLOCK.
#[derive(Debug, Clone, Copy)]
#[allow(missing_docs)]
pub enum MultiOp<'a> {
    AcquireAll(&'a MAcquire<'a>),
    AcquireAny(&'a MAcquire<'a>),
    Release(&'a MRelease<'a>),
    Renew(&'a MRenew<'a>),
}

/// CANCEL: the owner leaves the queue, or returns an unclaimed grant.
#[derive(Debug, Clone, Copy)]
#[allow(missing_docs)]
pub struct Cancel<'a> {
    pub key: &'a [u8],
    pub owner: &'a [u8],
    /// Id of the request to cancel.
    pub reqid: Option<&'a [u8]>,
}

impl<'a> Op<'a> {
    /// The operation of a request; `None` for requests that only read, and for records. `permit` is a fresh id for
    /// DSEM.ACQUIRE.
    pub fn of(id: CommandId, request: &'a Request<'a>, permit: PermitId) -> Option<Self> {
        let family = family_of(id);
        Some(match *request {
            Request::Acquire(ref call) => Self::Lock(family?, LockOp::Acquire(call)),
            Request::Release(ref call) => Self::Lock(family?, LockOp::Release(call)),
            Request::Renew(ref call) => Self::Lock(family?, LockOp::Renew(call)),
            Request::Fence { key, owner, token } => {
                Self::Lock(family?, LockOp::Fence { key, owner, token })
            }
            Request::Break { key } => Self::Lock(family?, LockOp::Break { key }),
            Request::Cancel { key, owner, reqid } => {
                Self::Cancel(family?, Cancel { key, owner, reqid })
            }
            Request::RwAcquire(ref call) => Self::Rw(RwOp::Acquire(call)),
            Request::RwRelease(ref call) => Self::Rw(RwOp::Release(call)),
            Request::RwRenew(ref call) => Self::Rw(RwOp::Renew(call)),
            Request::RwBreak { key, owner } => Self::Rw(RwOp::Break { key, owner }),
            Request::SemInit { key, permits } => {
                Self::Semaphore(SemaphoreOp::Init { key, permits })
            }
            Request::Resize { key, to, reqid } => {
                Self::Semaphore(SemaphoreOp::Resize { key, to, reqid })
            }
            Request::SemAcquire(ref call) => Self::Semaphore(SemaphoreOp::Acquire(call, permit)),
            Request::SemRelease { key, permit } => {
                Self::Semaphore(SemaphoreOp::Release { key, permit })
            }
            Request::SemRenew(ref call) => Self::Semaphore(SemaphoreOp::Renew(call)),
            Request::Take(ref call) => Self::Semaphore(SemaphoreOp::Take(call)),
            Request::Give { key, n, reqid } => Self::Semaphore(SemaphoreOp::Give { key, n, reqid }),
            Request::Drain { key, reqid } => Self::Semaphore(SemaphoreOp::Drain { key, reqid }),
            Request::SemBreak { key, permit } => {
                Self::Semaphore(SemaphoreOp::Break { key, permit })
            }
            Request::LatchInit { key, count, lease_ms } => {
                Self::Latch(LatchOp::Init { key, count, lease_ms })
            }
            Request::CountDown { key, n, reqid } => {
                Self::Latch(LatchOp::CountDown { key, n, reqid })
            }
            Request::Await { key, block_ms } => Self::Latch(LatchOp::Await { key, block_ms }),
            Request::MAcquire(ref call) => Self::Multi(MultiOp::AcquireAll(call)),
            Request::AnyAcquire(ref call) => Self::Multi(MultiOp::AcquireAny(call)),
            Request::MRelease(ref call) => Self::Multi(MultiOp::Release(call)),
            Request::MRenew(ref call) => Self::Multi(MultiOp::Renew(call)),
            Request::Unblock { client, error } => Self::Unblock { client, with_error: error },
            Request::Check { .. }
            | Request::Info { .. }
            | Request::Waiters { .. }
            | Request::Position { .. }
            | Request::Permits { .. }
            | Request::Apply { .. } => return None,
        })
    }
}

/// The family whose keys a command is about; `None` for commands of all families.
pub fn family_of(id: CommandId) -> Option<Kind> {
    match id {
        CommandId::Lock(_) | CommandId::Multi(_) => Some(Kind::Lock),
        CommandId::Fair(_) => Some(Kind::Fair),
        CommandId::Rw(_) => Some(Kind::Rw),
        CommandId::Sem(_) => Some(Kind::Semaphore),
        CommandId::Latch(_) => Some(Kind::Latch),
        CommandId::Unblock | CommandId::Apply => None,
    }
}

impl Machine {
    /// Carries out an operation of [`Turn::caller`]. The answer is in [`Turn::fx`], or the waiter of the parked caller.
    pub fn execute(&mut self, turn: &mut Turn<'_>, op: Op<'_>) {
        match op {
            Op::Lock(kind, LockOp::Acquire(call)) => self.acquire(turn, (kind, call)),
            Op::Lock(kind, LockOp::Release(call)) => self.release(turn, (kind, call)),
            Op::Lock(kind, LockOp::Renew(call)) => self.renew(turn, (kind, call)),
            Op::Lock(kind, LockOp::Fence { key, owner, token }) => {
                self.fence(turn, (kind, key, owner, token));
            }
            Op::Lock(kind, LockOp::Break { key }) => self.break_lock(turn, kind, key),
            Op::Cancel(kind, Cancel { key, owner, reqid }) => {
                self.cancel(turn, (kind, key, owner, reqid));
            }
            Op::Rw(RwOp::Acquire(call)) => self.rw_acquire(turn, call),
            Op::Rw(RwOp::Release(call)) => self.rw_release(turn, call),
            Op::Rw(RwOp::Renew(call)) => self.rw_renew(turn, call),
            Op::Rw(RwOp::Break { key, owner }) => self.rw_break(turn, key, owner),
            Op::Semaphore(SemaphoreOp::Init { key, permits }) => {
                self.sem_init(turn, key, permits);
            }
            Op::Semaphore(SemaphoreOp::Resize { key, to, reqid }) => {
                self.resize(turn, (key, to, reqid));
            }
            Op::Semaphore(SemaphoreOp::Acquire(call, permit)) => {
                self.sem_acquire(turn, call, permit);
            }
            Op::Semaphore(SemaphoreOp::Release { key, permit }) => {
                self.sem_release(turn, key, permit);
            }
            Op::Semaphore(SemaphoreOp::Renew(call)) => self.sem_renew(turn, call),
            Op::Semaphore(SemaphoreOp::Take(call)) => self.take(turn, call),
            Op::Semaphore(SemaphoreOp::Give { key, n, reqid }) => self.give(turn, key, n, reqid),
            Op::Semaphore(SemaphoreOp::Drain { key, reqid }) => self.drain(turn, (key, reqid)),
            Op::Semaphore(SemaphoreOp::Break { key, permit }) => {
                self.sem_break(turn, key, permit);
            }
            Op::Latch(LatchOp::Init { key, count, lease_ms }) => {
                self.latch_init(turn, key, count, lease_ms);
            }
            Op::Latch(LatchOp::CountDown { key, n, reqid }) => {
                self.count_down(turn, key, n, reqid);
            }
            Op::Latch(LatchOp::Await { key, block_ms }) => self.await_latch(turn, key, block_ms),
            Op::Multi(MultiOp::AcquireAll(call)) => self.macquire(turn, call),
            Op::Multi(MultiOp::AcquireAny(call)) => self.any_acquire(turn, call),
            Op::Multi(MultiOp::Release(call)) => self.mrelease(turn, call),
            Op::Multi(MultiOp::Renew(call)) => self.mrenew(turn, call),
            Op::Unblock { client, with_error } => self.unblock(turn, (client, with_error)),
        }
    }
}
