//! Semaphores with many permits or waiters.

use std::time::Duration;

use super::{
    AT_ONCE, LONG_MS, Meter, ON_ONE, REST, Wire, each, once, restore_again, wait_all, whole, words,
};
use crate::{names::owner, support::Server, wire::Batch};

fn semaphore(wire: &mut Wire, permits: &str) {
    once(wire, &["DSEM.INIT", "s", permits], b":1");
}

/// A permit: its id is on a separate line.
fn permit<W: AsRef<[u8]>>(call: &[W]) -> Batch {
    let mut batch = Batch::of(call, b"$36");
    batch.push_line(b"");
    batch
}

/// A semaphore with permits that send messages and have ids.
fn with_permits(server: &Server, count: usize, call: impl Fn(usize) -> Vec<String>) -> Wire {
    let mut wire = Wire::connect(server);
    semaphore(&mut wire, "20000");
    for first in (0..count).step_by(AT_ONCE) {
        let permits = (first..count.min(first + AT_ONCE)).map(|n| permit(&call(n)));
        wire.run(&permits.fold(Batch::default(), |all, one| all.and(&one)));
    }
    wire
}

fn of_many_owners(server: &Server) -> Wire {
    with_permits(server, ON_ONE, |n| whole(&["DSEM.ACQUIRE", "s", &owner(n)], LONG_MS, n))
}

pub(super) fn resize(server: &Server, meter: &Meter) {
    let mut wire = Wire::connect(server);
    semaphore(&mut wire, "1");
    wire.run(&permit(&["DSEM.ACQUIRE", "s", "holder", "PX", LONG_MS]));
    wait_all(&mut wire, ON_ONE, "DSEM.ACQUIRE", "s", &[]);
    meter.watch(server, REST, || once(&mut wire, &["DSEM.RESIZE", "s", "20000"], b":"));
}

/// Their leases end while the server refuses writes, so that a command is the first to find them.
pub(super) fn lapsed(server: &Server, meter: &Meter) {
    let mut wire = with_permits(server, ON_ONE, |n| {
        let mut call = whole(&["DSEM.ACQUIRE", "s", &owner(n)], LONG_MS, n);
        let lease = call.iter().position(|word| word == LONG_MS).expect("a lease");
        "5000".clone_into(&mut call[lease]);
        call
    });
    once(&mut wire, &["CONFIG", "SET", "min-replicas-to-write", "1"], b"+OK");
    std::thread::sleep(Duration::from_millis(5_100));
    meter.watch(server, REST, || {
        let open = Batch::of(&["CONFIG", "SET", "min-replicas-to-write", "0"], b"+OK");
        wire.run(&open.and(&permit(&["DSEM.ACQUIRE", "s", "other"])));
    });
}

pub(super) fn of_one_owner(server: &Server, meter: &Meter) {
    /// Their permits count against the limit of the key.
    const CALLS: usize = 20;
    let take = |n| whole(&["DSEM.ACQUIRE", "s", "one"], LONG_MS, n);
    let mut wire = with_permits(server, ON_ONE - CALLS, take);
    meter.watch(server, Duration::from_millis(100), || {
        for n in 0..CALLS {
            wire.run(&permit(&take(ON_ONE + n)));
        }
        for _ in 0..CALLS {
            once(&mut wire, &["DSEM.RELEASE", "s", "one", "REQID", "none"], b"-UNKNOWN");
        }
    });
}

pub(super) fn restore(server: &Server, meter: &Meter) {
    let _wire = of_many_owners(server);
    restore_again(server, meter, "s");
}

/// A hash with as many fields, of about the bytes of a permit.
pub(super) fn plain_restore(server: &Server, meter: &Meter) {
    let mut wire = Wire::connect(server);
    each(&mut wire, ON_ONE, b":1", |n| {
        words(&["HSET", "h", &owner(n), "0123456789abcdef0123456789abcdef0123"])
    });
    restore_again(server, meter, "h");
}

pub(super) fn delete(server: &Server, meter: &Meter) {
    let mut wire = of_many_owners(server);
    meter.watch(server, REST, || once(&mut wire, &["DEL", "s"], b":1"));
}
