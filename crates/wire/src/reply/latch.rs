//! `DLATCH.INFO`.

use core::time::Duration;

use super::shape::map;

map! {
    /// The state of a DLATCH key: a latch that is still closed.
    #[derive(Copy)]
    LatchInfo {
        "count" => count: u64, "the remaining count";
        "initial" => initial: u64, "the initial count";
        "ttl-ms" => left: Option<Duration>, "the remaining time; -1: no limit";
        "waiters" => waiters: u64, "the number of waiting calls";
    }
}
