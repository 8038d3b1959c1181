//! Queues that end or begin as a whole.

use super::{
    BLOCKED, LONG_MS, Meter, REST, Wire, blocked, each_alone, once, owned, restore_again, wait_all,
};
use crate::{names::owner, support::Server, wire::Batch};

const QUEUED: usize = 90_000;

fn fair_queue(server: &Server) -> Wire {
    let mut wire = Wire::connect(server);
    once(&mut wire, &["DFAIR.ACQUIRE", "f", "holder", "PX", LONG_MS], b":");
    wait_all(&mut wire, QUEUED, &["DFAIR.ACQUIRE"], "f", &[]);
    wire
}

/// The owners ask again while the server makes waiters of their entries.
pub(super) fn promote(server: &Server, meter: &Meter) {
    let mut wire = fair_queue(server);
    once(&mut wire, &["REPLICAOF", "127.0.0.1", "1"], b"+OK");
    std::thread::sleep(REST);
    meter.watch(server, REST, || {
        once(&mut wire, &["REPLICAOF", "NO", "ONE"], b"+OK");
        each_alone(&mut wire, 500, |n| {
            owned(["DFAIR.ACQUIRE", "f", &owner(QUEUED - 1 - n * 7), "QUEUE", LONG_MS])
        });
    });
}

pub(super) fn restore(server: &Server, meter: &Meter) {
    fair_queue(server);
    restore_again(server, meter, "f");
}

pub(super) fn delete_with_calls(server: &Server, meter: &Meter) {
    let mut wire = fair_queue(server);
    let call = |n| owned(["DFAIR.ACQUIRE", "f", &owner(QUEUED + n), "BLOCK", "0"]);
    let wires = blocked(server, |n| Batch::of(&call(n), b""));
    assert_eq!(wires.len(), BLOCKED);
    meter.watch(server, REST, || once(&mut wire, &["DEL", "f"], b":1"));
}

pub(super) fn delete_with_call_for_two(server: &Server, meter: &Meter) {
    let (mut wire, mut caller) = (Wire::connect(server), Wire::connect(server));
    once(&mut wire, &["DLOCK.ACQUIRE", "l", "holder", "PX", LONG_MS], b":");
    wait_all(&mut wire, 99_000, &["DLOCK.ACQUIRE"], "l", &[]);
    caller.send(&Batch::of(&["DLOCK.MACQUIRE", "2", "l", "m", "wide", "BLOCK", "0"], b""));
    server.wait_blocked(1);
    meter.watch(server, REST, || once(&mut wire, &["DEL", "l"], b":1"));
}
