//! WAITERS of every family.

use alloc::vec::Vec;
use core::time::Duration;

use super::shape::map;

map! {
    /// A waiter. The owner is empty for calls without one (`DSEM.TAKE`, `DLATCH.AWAIT`).
    WaiterInfo {
        "owner" => owner: Vec<u8>, "the waiting owner";
        "client-id" => client: Option<u64>, "id of the waiting connection; 0: no connection";
        "waiting-ms" => waiting: Duration, "how long the waiter has waited";
        "remaining-ms" => remaining: Option<Duration>,
            "how long it will still wait; -1: no limit";
        "label" => label: Vec<u8>, "LABEL of the place";
    }
}
