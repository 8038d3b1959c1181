//! Requests for several locks at once.
//!
//! The keys are a slice of the arguments: 1 to 262,144, all different.

use super::arguments::request;
use super::channel::Channel;
use super::lock::Acquire;

request! {
    /// Take all of several locks (MACQUIRE), or any one of them (ANYACQUIRE), or wait.
    MAcquire {
        /// The locks, 1 to 262,144, all different.
        keys: &'a [&'a [u8]] = NUMKEYS KEYS;
        /// The owner that asks, 1 to 256 bytes.
        owner: &'a [u8] = OWNER;
    }
    /// Lease of each lock, 1 ms to 365 days; `None` uses the server's default.
    lease_ms: Option<u64> = NEW_LEASE;
    /// Maximum wait on this connection, up to 365 days; `Some(0)` waits forever.
    block_ms: Option<u64> = BLOCK;
    /// Channel of the messages about these holds, 1 to 256 bytes.
    notify: Option<Channel<'a>> = NOTIFY;
    /// Request id, 1 to 64 bytes.
    reqid: Option<&'a [u8]> = REQID;
    /// Lease after the connection closes, up to 365 days; `Some(0)` ends the hold at once.
    bind_ms: Option<u64> = BIND;
    /// Shown by INFO and WAITERS, 0 to 256 bytes.
    label: Option<&'a [u8]> = LABEL;
}

impl<'a> MAcquire<'a> {
    /// The same call as for one lock, for several. It neither queues without blocking nor refuses re-entries.
    pub const fn of(keys: &'a [&'a [u8]], call: &Acquire<'a>) -> Self {
        Self {
            keys,
            owner: call.owner,
            lease_ms: call.lease_ms,
            block_ms: call.block_ms,
            notify: call.notify,
            reqid: call.reqid,
            bind_ms: call.bind_ms,
            label: call.label,
        }
    }

    /// The same call for only one lock.
    pub const fn for_key(&self, key: &'a [u8]) -> Acquire<'a> {
        Acquire {
            lease_ms: self.lease_ms,
            block_ms: self.block_ms,
            notify: self.notify,
            reqid: self.reqid,
            bind_ms: self.bind_ms,
            label: self.label,
            ..Acquire::new(key, self.owner)
        }
    }
}

request! {
    /// End what an MACQUIRE or ANYACQUIRE has. Without a request id: one hold of each of several locks.
    MRelease {
        /// The locks, 1 to 262,144, all different.
        keys: &'a [&'a [u8]] = NUMKEYS KEYS;
        /// The holder, 1 to 256 bytes.
        owner: &'a [u8] = OWNER;
    }
    /// Id of the MACQUIRE or ANYACQUIRE, 1 to 64 bytes.
    reqid: Option<&'a [u8]> = OF_ACQUIRE;
}

request! {
    /// Extend the leases of several locks.
    MRenew {
        /// The locks, 1 to 262,144, all different.
        keys: &'a [&'a [u8]] = NUMKEYS KEYS;
        /// The holder, 1 to 256 bytes.
        owner: &'a [u8] = OWNER;
    }
    /// Lease from now, 1 ms to 365 days; `None` keeps the length of each hold's lease.
    lease_ms: Option<u64> = HOLD_LEASE;
    /// Bind the holds to this connection, 0 ms to 365 days; `None` ends a binding for good.
    bind_ms: Option<u64> = BIND_AGAIN;
}
