//! Waiting for states. Nothing in the tests sleeps and hopes.

use std::{
    thread,
    time::{Duration, Instant},
};

/// Maximum duration of an immediate operation on the slowest machine; past this the test fails. Less than the default
/// lease of 30 s, which would end a forgotten hold.
pub const LIMIT: Duration = Duration::from_secs(25);

/// For an immediate reply. Generous, because tests run concurrently; other tests measure delays.
pub const SOON: Duration = Duration::from_secs(20);

/// Polls every millisecond until `condition` holds; fails the test, naming `what`, after [`LIMIT`].
#[track_caller]
pub fn wait_until(what: &str, mut condition: impl FnMut() -> bool) {
    let start = Instant::now();
    while !condition() {
        assert!(start.elapsed() < LIMIT, "waited {LIMIT:?} in vain for: {what}");
        thread::sleep(Duration::from_millis(1));
    }
}

/// Runs the same test for several cases at the same time: they mostly wait.
pub fn each<C: Sync>(cases: &[C], test: impl Fn(&C) + Sync) {
    thread::scope(|scope| {
        for case in cases {
            scope.spawn(|| test(case));
        }
    });
}
