//! Requests of clients. [`parse()`] reads a request from the wire and [`Request::write`] writes it. `parse(write(x)) ==
//! x` for every valid request.

pub(crate) mod arguments;
mod lock;
mod multi;
mod parse;
mod rw;
mod semaphore;
mod writer;

use alloc::vec::Vec;

pub use crate::fault::{Fault, ParseError};
pub use lock::{Acquire, Release, Renew};
pub use multi::{MAcquire, MRelease, MRenew};
pub use parse::parse;
pub use rw::{Mode, RwAcquire, RwRelease, RwRenew};
pub use semaphore::{ResizeTo, SemAcquire, SemRenew, Take};
use writer::Writer;

use crate::permit::{self, PermitId};
use crate::table::args;

/// One call, checked: all lengths and numbers are in range.
///
/// Families with the same arguments share requests. The [`CommandId`](crate::table::CommandId), not the request, says
/// which family was called.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Request<'a> {
    /// Take the lock, or wait for it.
    Acquire(Acquire<'a>),
    /// Release one hold, or all.
    Release(Release<'a>),
    /// Restart the lease.
    Renew(Renew<'a>),
    /// Check whether `token` is that of the current hold.
    Check {
        /// The lock.
        key: &'a [u8],
        /// 1 to 2^53 - 1.
        token: u64,
    },
    /// Raise the token of the hold to at least `token`.
    Fence {
        /// The lock.
        key: &'a [u8],
        /// The holder.
        owner: &'a [u8],
        /// 1 to 2^53 - 1.
        token: u64,
    },
    /// End the hold by force.
    Break {
        /// The lock.
        key: &'a [u8],
    },
    /// Show the hold.
    Info {
        /// The lock.
        key: &'a [u8],
    },
    /// Show the queue.
    Waiters {
        /// The lock.
        key: &'a [u8],
        /// Most rows to return, 1 or more; all if `None`.
        count: Option<u64>,
    },
    /// Show the position of an owner.
    Position {
        /// The lock.
        key: &'a [u8],
        /// The owner.
        owner: &'a [u8],
    },
    /// Leave the queue, or return an unclaimed grant.
    Cancel {
        /// The lock.
        key: &'a [u8],
        /// The owner that leaves.
        owner: &'a [u8],
        /// Id of the request to cancel, 1 to 64 bytes: no copy of it is executed afterwards.
        reqid: Option<&'a [u8]>,
    },
    /// Take a read-write lock, or wait for it.
    RwAcquire(RwAcquire<'a>),
    /// Release one hold of a read-write lock, or all of that mode.
    RwRelease(RwRelease<'a>),
    /// Restart the lease of a read-write lock.
    RwRenew(RwRenew<'a>),
    /// End holds of a read-write lock by force.
    RwBreak {
        /// The lock.
        key: &'a [u8],
        /// Owner of the holds; all owners if `None`.
        owner: Option<&'a [u8]>,
    },
    /// Create a semaphore.
    SemInit {
        /// The semaphore.
        key: &'a [u8],
        /// 1 to 2^31 - 1.
        permits: u32,
    },
    /// Change the number of permits.
    Resize {
        /// The semaphore.
        key: &'a [u8],
        /// The new capacity.
        to: ResizeTo,
        /// Request id, 1 to 64 bytes.
        reqid: Option<&'a [u8]>,
    },
    /// Take permits with an owner and a lease, or wait for them.
    SemAcquire(SemAcquire<'a>),
    /// Return the permits of an ACQUIRE.
    SemRelease {
        /// The semaphore.
        key: &'a [u8],
        /// The permit id from ACQUIRE.
        permit: PermitId,
    },
    /// Restart the lease of a permit.
    SemRenew(SemRenew<'a>),
    /// Take permits without an owner, or wait for them.
    Take(Take<'a>),
    /// Return permits of TAKE and DRAIN.
    Give {
        /// The semaphore.
        key: &'a [u8],
        /// Number of permits, 1 to 2^31 - 1.
        n: u32,
        /// Request id, 1 to 64 bytes.
        reqid: Option<&'a [u8]>,
    },
    /// Take all available permits.
    Drain {
        /// The semaphore.
        key: &'a [u8],
        /// Request id, 1 to 64 bytes.
        reqid: Option<&'a [u8]>,
    },
    /// End a permit by force.
    SemBreak {
        /// The semaphore.
        key: &'a [u8],
        /// The permit id from ACQUIRE.
        permit: PermitId,
    },
    /// List the permits that are out with a lease.
    Permits {
        /// The semaphore.
        key: &'a [u8],
    },
    /// Close a latch.
    LatchInit {
        /// The latch.
        key: &'a [u8],
        /// 1 to 2^31 - 1.
        count: u32,
        /// Time limit, 1 ms to 365 days; `None`: closed until it is opened or deleted.
        lease_ms: Option<u64>,
    },
    /// Count a latch down.
    CountDown {
        /// The latch.
        key: &'a [u8],
        /// The step, 1 to 2^31 - 1.
        n: u32,
        /// Request id, 1 to 64 bytes.
        reqid: Option<&'a [u8]>,
    },
    /// Wait for a latch to open.
    Await {
        /// The latch.
        key: &'a [u8],
        /// Maximum wait on this connection, up to 365 days; `Some(0)` waits forever.
        block_ms: Option<u64>,
    },
    /// Take all of several locks, or wait for them.
    MAcquire(MAcquire<'a>),
    /// Release one hold of each of several locks.
    MRelease(MRelease<'a>),
    /// Restart the leases of several locks.
    MRenew(MRenew<'a>),
    /// Take one of several locks, or wait for the first to become free.
    AnyAcquire(MAcquire<'a>),
    /// End the blocked call of a connection.
    Unblock {
        /// Client id, 1 or more.
        client: u64,
        /// Answer it with an error instead of Null.
        error: bool,
    },
    /// Replay a record; only servers send this, to servers.
    Apply {
        /// The key that the record is about.
        key: &'a [u8],
        /// The record, opaque to this crate.
        payload: &'a [u8],
    },
}

/// Channel of the messages about a waiter and its hold, 1 to 256 bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Channel<'a> {
    /// `NOTIFY`: published to all nodes of a cluster.
    Plain(&'a [u8]),
    /// `SNOTIFY`: sharded pub/sub, published to the nodes of one shard.
    Sharded(&'a [u8]),
}

impl<'a> Channel<'a> {
    /// Its name.
    pub const fn name(self) -> &'a [u8] {
        match self {
            Self::Plain(name) | Self::Sharded(name) => name,
        }
    }

    /// The option that names it.
    pub const fn option(self) -> &'static str {
        match self {
            Self::Plain(_) => "NOTIFY",
            Self::Sharded(_) => "SNOTIFY",
        }
    }
}

impl<'a> Request<'a> {
    /// The channel that `NOTIFY` or `SNOTIFY` names.
    pub const fn notify(&self) -> Option<Channel<'a>> {
        match self {
            Self::Acquire(call) => call.notify,
            Self::RwAcquire(call) => call.acquire.notify,
            Self::SemAcquire(call) => call.acquire.notify,
            Self::MAcquire(call) | Self::AnyAcquire(call) => call.notify,
            _ => None,
        }
    }

    /// Appends the arguments after the command's name to `out`.
    pub fn write(&self, out: &mut Vec<Vec<u8>>) {
        self.each_arg(|arg| out.push(arg.to_vec()));
    }

    /// Passes the arguments after the command's name to `arg`, one by one and in order, for clients that write them
    /// into their own buffer. Leases are written as `PX`.
    pub fn each_arg(&self, arg: impl FnMut(&[u8])) {
        let mut to = Writer::new(arg);
        match *self {
            Self::Acquire(ref acquire) => acquire.write(&mut to),
            Self::Release(ref release) => release.write(&mut to),
            Self::Renew(ref renew) => renew.write(&mut to),
            Self::RwAcquire(ref call) => call.write(&mut to),
            Self::RwRelease(ref call) => call.write(&mut to),
            Self::RwRenew(ref call) => call.write(&mut to),
            Self::SemAcquire(ref call) => call.write(&mut to),
            Self::SemRenew(ref call) => call.write(&mut to),
            Self::Take(ref call) => call.write(&mut to),
            Self::MAcquire(ref call) | Self::AnyAcquire(ref call) => call.write(&mut to),
            Self::MRelease(ref call) => call.write(&mut to),
            Self::MRenew(ref call) => call.write(&mut to),
            Self::Break { key } | Self::Info { key } | Self::Permits { key } => to.bytes(key),
            Self::Position { key, owner } => to.all([key, owner]),
            Self::Cancel { key, owner, reqid } => {
                to.all([key, owner]);
                to.option(&args::CANCELLED, reqid);
            }
            Self::Apply { key, payload } => to.all([key, payload]),
            Self::Check { key, token } => to.key_number(key, token),
            Self::Fence { key, owner, token } => {
                to.bytes(key);
                to.key_number(owner, token);
            }
            Self::Waiters { key, count } => {
                to.bytes(key);
                to.option(&args::COUNT, count);
            }
            Self::RwBreak { key, owner } => {
                to.bytes(key);
                to.all(owner);
            }
            Self::SemInit { key, permits } => to.key_number(key, u64::from(permits)),
            Self::Resize { key, to: size, reqid } => {
                to.bytes(key);
                size.write(&mut to);
                to.option(&args::REQID, reqid);
            }
            Self::SemRelease { key, permit } | Self::SemBreak { key, permit } => {
                to.all([key, &permit::text(&permit)]);
            }
            Self::Give { key, n, reqid } | Self::CountDown { key, n, reqid } => {
                to.key_number(key, u64::from(n));
                to.option(&args::REQID, reqid);
            }
            Self::Drain { key, reqid } => {
                to.bytes(key);
                to.option(&args::REQID, reqid);
            }
            Self::LatchInit { key, count, lease_ms } => {
                to.key_number(key, u64::from(count));
                to.option(&args::LATCH_LEASE, lease_ms);
            }
            Self::Await { key, block_ms } => {
                to.bytes(key);
                to.option(&args::BLOCK, block_ms);
            }
            Self::Unblock { client, error } => {
                to.number(client);
                to.option(&args::ERROR, error);
            }
        }
    }
}
