//! Requests of the latch.

use super::arguments::request;

request! {
    /// Close a latch.
    LatchInit {
        /// The latch.
        key: &'a [u8] = LATCH;
        /// Number of steps that open it, 1 to 2^31 - 1.
        count: u32 = LATCH_COUNT;
    }
    /// Time limit, 1 ms to 365 days; `None`: closed until it is opened or deleted.
    lease_ms: Option<u64> = LATCH_LEASE;
}

request! {
    /// Count a latch down.
    CountDown {
        /// The latch.
        key: &'a [u8] = LATCH;
        /// The step, 1 to 2^31 - 1.
        n: u32 = STEPS;
    }
    /// Request id, 1 to 64 bytes.
    reqid: Option<&'a [u8]> = REQID;
}

request! {
    /// Wait for a latch to open.
    Await {
        /// The latch.
        key: &'a [u8] = LATCH;
    }
    /// Maximum wait on this connection, up to 365 days; `Some(0)` waits forever.
    block_ms: Option<u64> = BLOCK;
}
