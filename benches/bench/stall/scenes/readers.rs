//! Many readers of one lock, holding or waiting.

use super::{LONG_MS, Meter, ON_ONE, REST, Wire, hold_each, once, wait_all};
use crate::{names::owner, support::Server};

/// They wait for a writer.
fn waiting(server: &Server) -> Wire {
    let mut wire = Wire::connect(server);
    once(&mut wire, &["DRW.ACQUIRE", "rw", "writer", "WRITE", "PX", LONG_MS], b":");
    wait_all(&mut wire, ON_ONE, "DRW.ACQUIRE", "rw", &["READ"]);
    wire
}

pub(super) fn after_expiry(server: &Server, meter: &Meter) {
    let mut wire = waiting(server);
    meter.watch(server, REST, || {
        once(&mut wire, &["DRW.RENEW", "rw", "writer", "WRITE", "PX", "1"], b":");
    });
}

pub(super) fn delete(server: &Server, meter: &Meter) {
    let mut wire = waiting(server);
    meter.watch(server, REST, || once(&mut wire, &["DEL", "rw"], b":1"));
}

/// They hold the lock. `bind` is what the loss of the connection leaves of their leases.
fn holding(server: &Server, bind: &str) -> Wire {
    let mut wire = Wire::connect(server);
    hold_each(&mut wire, ON_ONE, bind, |n| ("DRW.ACQUIRE", "rw".to_owned(), owner(n)));
    wire
}

pub(super) fn break_holds(server: &Server, meter: &Meter) {
    let mut wire = holding(server, LONG_MS);
    meter.watch(server, REST, || once(&mut wire, &["DRW.BREAK", "rw"], b":10000"));
}

pub(super) fn rename(server: &Server, meter: &Meter) {
    let mut wire = holding(server, LONG_MS);
    once(&mut wire, &["DRW.ACQUIRE", "other", "holder", "WRITE", "PX", LONG_MS], b":");
    let call = ["DRW.ACQUIRE", "other", "writer", "WRITE", "PX", LONG_MS, "QUEUE", LONG_MS];
    once(&mut wire, &call, b"$-1");
    meter.watch(server, REST, || once(&mut wire, &["RENAME", "rw", "other"], b"+OK"));
}

pub(super) fn promote(server: &Server, meter: &Meter) {
    let mut wire = holding(server, LONG_MS);
    once(&mut wire, &["REPLICAOF", "127.0.0.1", "1"], b"+OK");
    meter.watch(server, REST, || once(&mut wire, &["REPLICAOF", "NO", "ONE"], b"+OK"));
}

pub(super) fn writer_behind(server: &Server, meter: &Meter) {
    let mut wire = holding(server, LONG_MS);
    meter.watch(server, REST, || {
        for _ in 0..5 {
            let call = ["DRW.ACQUIRE", "rw", "writer", "WRITE", "PX", LONG_MS, "QUEUE", LONG_MS];
            once(&mut wire, &call, b"$-1");
            once(&mut wire, &["DRW.RELEASE", "rw", "writer", "WRITE"], b"$-1");
        }
    });
}

pub(super) fn bound_go(server: &Server, meter: &Meter) {
    let wire = holding(server, "0");
    meter.watch(server, REST, || wire.close(std::net::Shutdown::Both));
}
