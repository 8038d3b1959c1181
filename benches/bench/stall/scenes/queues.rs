//! Long queues of one lock.

use std::time::Duration;

use super::{LONG_MS, Meter, ON_ONE, REST, Wire, each, once, wait_all};
use crate::{
    names::owner,
    support::{Reply as _, Server},
    wire::Batch,
};

/// A connection that did not claim a grant in time.
pub(super) fn unresponsive(server: &Server) -> Wire {
    let (mut wire, mut silent) = (Wire::connect(server), Wire::connect(server));
    once(&mut wire, &["DLOCK.ACQUIRE", "other", "holder", "PX", LONG_MS], b":");
    once(&mut wire, &["DLOCK.ACQUIRE", "lapses", "holder", "PX", LONG_MS], b":");
    once(&mut silent, &["DLOCK.ACQUIRE", "other", "silent", "QUEUE", LONG_MS], b"$-1");
    silent
}

/// Its grant expires.
pub(super) fn fall_silent(server: &Server, silent: &mut Wire) {
    let mut wire = Wire::connect(server);
    once(silent, &["DLOCK.ACQUIRE", "lapses", "silent", "QUEUE", "20"], b"$-1");
    once(&mut wire, &["DLOCK.RELEASE", "lapses", "holder"], b":0");
    std::thread::sleep(Duration::from_millis(100));
}

pub(super) fn silent(server: &Server, meter: &Meter) {
    let mut silent = unresponsive(server);
    fall_silent(server, &mut silent);
    let mut wire = Wire::connect(server);
    once(&mut wire, &["CONFIG", "SET", "min-replicas-to-write", "1"], b"+OK");
    meter.watch(server, Duration::from_millis(300), || {
        each(&mut silent, 60_000, b":1", |_| ["DLOCK.POSITION", "other", "silent"]);
    });
}

pub(super) fn skipped(server: &Server, meter: &Meter) {
    let mut silent = unresponsive(server);
    let mut wire = Wire::connect(server);
    once(&mut wire, &["DLOCK.ACQUIRE", "busy", "holder", "PX", LONG_MS], b":");
    wait_all(&mut silent, ON_ONE, "DLOCK.ACQUIRE", "busy", &[]);
    fall_silent(server, &mut silent);
    meter.watch(server, Duration::from_millis(300), || {
        once(&mut wire, &["DLOCK.RELEASE", "busy", "holder"], b":0");
        for _ in 0..20 {
            once(&mut wire, &["DLOCK.ACQUIRE", "busy", "other"], b":");
            once(&mut wire, &["DLOCK.RELEASE", "busy", "other"], b":0");
        }
    });
}

fn crowd(server: &Server, count: usize) -> Wire {
    let mut wire = Wire::connect(server);
    once(&mut wire, &["DLOCK.ACQUIRE", "busy", "holder", "PX", LONG_MS], b":");
    wait_all(&mut wire, count, "DLOCK.ACQUIRE", "busy", &[]);
    wire
}

pub(super) fn set_over(server: &Server, meter: &Meter) {
    let mut wire = crowd(server, ON_ONE);
    meter.watch(server, REST, || once(&mut wire, &["SET", "busy", "x"], b"+OK"));
}

pub(super) fn delete_with_call_for_two(server: &Server, meter: &Meter) {
    // The call for two is one of them.
    let (mut wire, mut caller) = (crowd(server, ON_ONE - 1), Wire::connect(server));
    caller.send(&Batch::of(&["DLOCK.MACQUIRE", "2", "busy", "m", "wide", "BLOCK", "0"], b""));
    server.wait_blocked(1);
    meter.watch(server, REST, || once(&mut wire, &["DEL", "busy"], b":1"));
}

pub(super) fn position(server: &Server, meter: &Meter) {
    let mut wire = crowd(server, ON_ONE);
    meter.watch(server, Duration::from_millis(100), || {
        for _ in 0..20 {
            once(&mut wire, &["DLOCK.POSITION", "busy", &owner(ON_ONE - 1)], b":10000");
        }
    });
}

pub(super) fn info_while_due(server: &Server, meter: &Meter) {
    // The wait that ends is one of them.
    let _wire = crowd(server, ON_ONE - 1);
    let mut other = Wire::connect(server);
    let mut batch = Batch::default();
    batch.push(&["DLOCK.ACQUIRE", "busy", "last", "BLOCK", "1"], b"");
    meter.watch(server, Duration::from_millis(300), || {
        other.send(&batch);
        for _ in 0..200 {
            server.cmd(&["DLOCK.INFO", "busy"]).ok();
        }
    });
}
