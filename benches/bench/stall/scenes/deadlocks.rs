//! Waits that are searched for cycles.

use std::time::Duration;

use super::{LONG_MS, Meter, Wire, each_alone, hold_each, place};
use crate::{
    names::{key, owner},
    support::Server,
};

/// Each owner holds a lock and requests that of the next, in an order without a pattern.
pub(super) fn chain(server: &Server, meter: &Meter) {
    const OWNERS: usize = 50_000;
    let mut wire = Wire::connect(server);
    hold_each(&mut wire, OWNERS, LONG_MS, |n| ("DLOCK.ACQUIRE", key(n), owner(n)));
    meter.watch(server, Duration::from_millis(100), || {
        // A step that is coprime to the number of owners reaches all of them.
        each_alone(&mut wire, OWNERS, |n| {
            let n = n * 19_997 % OWNERS;
            place(&["DLOCK.ACQUIRE", &key((n + 1) % OWNERS), &owner(n)])
        });
    });
}

pub(super) fn crossed(server: &Server, meter: &Meter) {
    const LOCKS: usize = 2_000;
    const OWNERS: usize = 20;
    let mut wire = Wire::connect(server);
    hold_each(&mut wire, LOCKS, LONG_MS, |n| ("DLOCK.ACQUIRE", key(n), owner(n)));
    meter.watch(server, Duration::from_millis(100), || {
        each_alone(&mut wire, LOCKS * OWNERS, |n| {
            place(&["DLOCK.ACQUIRE", &key(n / OWNERS), &owner(LOCKS + n % OWNERS)])
        });
        each_alone(&mut wire, LOCKS, |n| {
            place(&["DLOCK.ACQUIRE", &key((n * 7 + 1) % LOCKS), &owner(n)])
        });
    });
}
