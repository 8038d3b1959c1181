//! Durable queues that end or begin as a whole.

use super::{
    BLOCKED, LONG_MS, Meter, ON_ONE, REST, Wire, blocked, each_alone, once, place, restore_again,
    wait_all, whole,
};
use crate::{names::owner, support::Server, wire::Batch};

fn queue(server: &Server, count: usize) -> Wire {
    let mut wire = Wire::connect(server);
    once(&mut wire, &["DFAIR.ACQUIRE", "f", "holder", "PX", LONG_MS], b":");
    wait_all(&mut wire, count, "DFAIR.ACQUIRE", "f", &[]);
    wire
}

pub(super) fn rename(server: &Server, meter: &Meter) {
    let mut wire = queue(server, ON_ONE);
    meter.watch(server, REST, || once(&mut wire, &["RENAME", "f", "g"], b"+OK"));
}

/// The owners ask again while the server makes waiters of their entries.
pub(super) fn promote(server: &Server, meter: &Meter) {
    let mut wire = queue(server, ON_ONE);
    once(&mut wire, &["REPLICAOF", "127.0.0.1", "1"], b"+OK");
    std::thread::sleep(REST);
    meter.watch(server, REST, || {
        once(&mut wire, &["REPLICAOF", "NO", "ONE"], b"+OK");
        each_alone(&mut wire, 500, |n| place(&["DFAIR.ACQUIRE", "f", &owner(ON_ONE - 1 - n * 7)]));
    });
}

pub(super) fn restore(server: &Server, meter: &Meter) {
    let _wire = queue(server, ON_ONE);
    restore_again(server, meter, "f");
}

pub(super) fn delete_with_calls(server: &Server, meter: &Meter) {
    let mut wire = queue(server, ON_ONE - BLOCKED);
    let call = |n| {
        let mut call = whole(&["DFAIR.ACQUIRE", "f", &owner(ON_ONE + n)], LONG_MS, 0);
        call.extend(["BLOCK", "0"].map(str::to_owned));
        Batch::of(&call, b"")
    };
    let _wires = blocked(server, call);
    meter.watch(server, REST, || once(&mut wire, &["DEL", "f"], b":1"));
}
