//! Requests of the locks with one holder, and those that several families share.

use super::arguments::request;
use super::channel::Channel;

request! {
    /// Take the lock, or wait for it.
    Acquire {
        /// The lock.
        key: &'a [u8] = KEY;
        /// The owner that asks, 1 to 256 bytes.
        owner: &'a [u8] = OWNER;
    }
    /// Lease, 1 ms to 365 days; `None` uses the server's default.
    lease_ms: Option<u64> = NEW_LEASE;
    /// Maximum wait on this connection, up to 365 days; `Some(0)` waits forever.
    block_ms: Option<u64> = BLOCK;
    /// Wait without blocking, 1 ms to 1 day.
    queue_ms: Option<u64> = QUEUE;
    /// Channel of the messages about this waiter and its hold.
    notify: Option<Channel<'a>> = NOTIFY;
    /// Request id, 1 to 64 bytes.
    reqid: Option<&'a [u8]> = REQID;
    /// Refuse re-entry.
    no_reentry: bool = NOREENTRY;
    /// Lease after the connection closes, up to 365 days; `Some(0)` ends the hold at once.
    bind_ms: Option<u64> = BIND;
    /// Shown by INFO and WAITERS, 0 to 256 bytes.
    label: Option<&'a [u8]> = LABEL;
}

request! {
    /// End what an ACQUIRE has: its hold, its place or its blocked call. Without a request id: one hold, or all.
    Release {
        /// The lock.
        key: &'a [u8] = KEY;
        /// The holder, 1 to 256 bytes.
        owner: &'a [u8] = OWNER;
    }
    /// End all holds and the wait of the owner, not one. Excludes `reqid`.
    all: bool = ALL;
    /// Only if the hold has this token, 1 to 2^53 - 1.
    token: Option<u64> = IF_TOKEN;
    /// Id of the ACQUIRE, 1 to 64 bytes.
    reqid: Option<&'a [u8]> = OF_ACQUIRE;
    /// Keep the lock closed for this time if it becomes free with this, 1 ms to 365 days.
    delay_ms: Option<u64> = DELAY;
    /// Tell observers that the work under the hold is done.
    done: bool = DONE;
}

request! {
    /// Wait for the end of the hold in force.
    AwaitEnd {
        /// The lock.
        key: &'a [u8] = KEY;
    }
    /// Only if the hold in force has this token, 1 to 2^53 - 1; else the answer comes at once.
    token: Option<u64> = OBSERVED;
    /// Maximum wait on this connection, up to 365 days; `Some(0)` waits forever.
    block_ms: Option<u64> = BLOCK;
    /// Answer with how the hold ended, not with 1.
    reason: bool = REASON;
}

request! {
    /// Extend the lease.
    Renew {
        /// The lock.
        key: &'a [u8] = KEY;
        /// The holder, 1 to 256 bytes.
        owner: &'a [u8] = OWNER;
    }
    /// Lease from now, 1 ms to 365 days; `None` keeps the length of the hold's lease.
    lease_ms: Option<u64> = HOLD_LEASE;
    /// Only if the hold has this token, 1 to 2^53 - 1.
    token: Option<u64> = IF_TOKEN;
    /// Bind the hold to this connection, 0 ms to 365 days; `None` ends a binding for good.
    bind_ms: Option<u64> = BIND_AGAIN;
}

request! {
    /// Raise the token of the hold to at least `token`.
    Fence {
        /// The lock.
        key: &'a [u8] = KEY;
        /// The holder, 1 to 256 bytes.
        owner: &'a [u8] = OWNER;
        /// 1 to 2^53 - 1.
        token: u64 = NEW_TOKEN;
    }
}

request! {
    /// Check whether `token` is that of a current hold.
    Check {
        /// The lock.
        key: &'a [u8] = KEY;
        /// 1 to 2^53 - 1.
        token: u64 = TOKEN;
    }
}

request! {
    /// INFO of any family, PERMITS, or BREAK of a lock: a key and nothing else.
    OneKey {
        /// The key.
        key: &'a [u8] = KEY;
    }
}

request! {
    /// List the waiters of a key of any family.
    ListWaiters {
        /// The key.
        key: &'a [u8] = KEY;
    }
    /// Most rows to return, 1 or more; all if `None`.
    count: Option<u64> = COUNT;
}

request! {
    /// Show the position of an owner in any family that has owners.
    FindPosition {
        /// The lock or semaphore.
        key: &'a [u8] = KEY;
        /// The owner, 1 to 256 bytes.
        owner: &'a [u8] = OWNER;
    }
}
