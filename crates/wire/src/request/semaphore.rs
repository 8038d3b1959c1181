//! Requests of the semaphore.

use super::arguments::{Positional, arguments, request};
use super::lock::Acquire;
use super::writer::Writer;
use crate::arg::Arg;
use crate::args::{BY, PERMITS};
use crate::cursor::Cursor;
use crate::fault::Fault;
use crate::permit::PermitId;

/// Take permits with an owner and a lease, or wait for them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SemAcquire<'a> {
    /// The fields shared with a lock. `no_reentry` is false: the command has no such option.
    pub acquire: Acquire<'a>,
    /// Number of permits, 1 to 2^31 - 1.
    pub count: u32,
    /// Capacity to create the semaphore with if it does not exist, 1 to 2^31 - 1.
    pub limit: Option<u32>,
}

impl<'a> SemAcquire<'a> {
    /// The request without options: for one permit.
    pub const fn new(key: &'a [u8], owner: &'a [u8]) -> Self {
        Self { acquire: Acquire::new(key, owner), count: 1, limit: None }
    }
}

arguments! {
    SemAcquire { acquire.key: SEMAPHORE; acquire.owner: OWNER; }
    count: WIDTH;
    limit: LIMIT;
    acquire.lease_ms: NEW_LEASE;
    acquire.block_ms: BLOCK;
    acquire.queue_ms: QUEUE;
    acquire.notify: NOTIFY;
    acquire.reqid: REQID;
    acquire.bind_ms: BIND;
    acquire.label: LABEL;
}

request! {
    /// Extend the lease of a permit.
    SemRenew {
        /// The semaphore.
        key: &'a [u8] = SEMAPHORE;
        /// The permit id.
        permit: PermitId = PERMIT_ID;
    }
    /// Lease from now, 1 ms to 365 days; `None` keeps the length of the permit's lease.
    lease_ms: Option<u64> = PERMIT_LEASE;
    /// Bind the permit to this connection, 0 ms to 365 days; `None` ends a binding for good.
    bind_ms: Option<u64> = BIND_AGAIN;
}

request! {
    /// Take permits without an owner, or wait for them.
    Take {
        /// The semaphore.
        key: &'a [u8] = SEMAPHORE;
        /// Number of permits, 1 to 2^31 - 1.
        n: u32 = N;
    }
    /// Maximum wait on this connection, up to 365 days; `Some(0)` waits forever.
    block_ms: Option<u64> = BLOCK;
    /// Request id, 1 to 64 bytes.
    reqid: Option<&'a [u8]> = REQID;
}

request! {
    /// Create a semaphore.
    SemInit {
        /// The semaphore.
        key: &'a [u8] = SEMAPHORE;
        /// 1 to 2^31 - 1.
        permits: u32 = PERMITS;
    }
}

request! {
    /// Change the number of permits.
    Resize {
        /// The semaphore.
        key: &'a [u8] = SEMAPHORE;
        /// The new capacity.
        to: ResizeTo = SIZE;
    }
    /// Request id, 1 to 64 bytes.
    reqid: Option<&'a [u8]> = REQID;
}

request! {
    /// End what an ACQUIRE has: its permits, its place or its blocked call.
    SemRelease {
        /// The semaphore.
        key: &'a [u8] = SEMAPHORE;
        /// With `reqid` or `all` the owner, 1 to 256 bytes; else the text of a permit id.
        holder: &'a [u8] = HOLDER;
    }
    /// End all permits and the wait of the owner. Excludes `reqid`.
    all: bool = ALL_PERMITS;
    /// Id of the ACQUIRE, 1 to 64 bytes.
    reqid: Option<&'a [u8]> = OF_ACQUIRE;
}

request! {
    /// BREAK of the permits of an ACQUIRE.
    OnePermit {
        /// The semaphore.
        key: &'a [u8] = SEMAPHORE;
        /// The permit id from ACQUIRE.
        permit: PermitId = PERMIT_ID;
    }
}

request! {
    /// Return permits of TAKE and DRAIN.
    Give {
        /// The semaphore.
        key: &'a [u8] = SEMAPHORE;
        /// Number of permits, 1 to 2^31 - 1.
        n: u32 = N;
    }
    /// Request id, 1 to 64 bytes.
    reqid: Option<&'a [u8]> = REQID;
}

request! {
    /// Take all available permits.
    Drain {
        /// The semaphore.
        key: &'a [u8] = SEMAPHORE;
    }
    /// Request id, 1 to 64 bytes.
    reqid: Option<&'a [u8]> = REQID;
}

/// The new capacity that RESIZE asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ResizeTo {
    /// The capacity, 1 to 2^31 - 1.
    Absolute(u32),
    /// A change of the capacity, -(2^31 - 1) to 2^31 - 1.
    By(i64),
}

impl<'a> Positional<'a> for ResizeTo {
    #[inline]
    fn read(at: &mut Cursor<'a>, _: &'static Arg) -> Result<Self, Fault<'a>> {
        Ok(if at.word(&BY) {
            Self::By(at.number(&BY)?)
        } else {
            Self::Absolute(at.number(&PERMITS)?)
        })
    }

    fn write(self, to: &mut Writer<'_>) {
        match self {
            Self::Absolute(permits) => to.number(u64::from(permits)),
            Self::By(delta) => {
                to.word(&BY);
                to.signed(delta);
            }
        }
    }
}
