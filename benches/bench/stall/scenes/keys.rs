//! Holds and waiters of many keys.

use std::{net::Shutdown, time::Duration};

use super::queues::{fall_silent, unresponsive};
use super::{
    BLOCKED, LONG_MS, Meter, REST, Wire, Words, blocked, each, hold_all, hold_each, once, place,
    whole, words,
};
use crate::{
    names::{key, owner},
    support::Server,
    wire::Batch,
};

/// As many holds, and as many waiters, as a server has.
const MOST: usize = 1_000_000;

fn wait_for_each(wire: &mut Wire, count: usize) {
    each(wire, count, b"$-1", |n| place(&["DLOCK.ACQUIRE", &key(n), &owner(n)]));
}

/// One waiter for each lock.
fn full(server: &Server) -> Wire {
    let mut wire = Wire::connect(server);
    hold_all(&mut wire, MOST);
    wait_for_each(&mut wire, MOST);
    wire
}

pub(super) fn queue_entries(server: &Server, meter: &Meter) {
    let mut wire = Wire::connect(server);
    hold_all(&mut wire, MOST);
    meter.watch(server, Duration::from_millis(100), || wait_for_each(&mut wire, MOST));
}

pub(super) fn info(server: &Server, meter: &Meter) {
    let _wire = full(server);
    meter.watch(server, Duration::from_millis(100), || {
        for _ in 0..5 {
            server.info("dlock");
        }
    });
}

/// With the allocator of the C library, an allocation of a large block after this waits until a million small blocks
/// are merged.
pub(super) fn flush(server: &Server, meter: &Meter) {
    let mut wire = Wire::connect(server);
    hold_all(&mut wire, MOST);
    meter.watch(server, REST, || once(&mut wire, &["FLUSHALL", "ASYNC"], b"+OK"));
}

/// Plain keys instead of held locks.
fn plain_keys(server: &Server, count: usize) -> Wire {
    let mut wire = Wire::connect(server);
    each(&mut wire, count, b"+OK", |n| words(&["SET", &key(n), "holder"]));
    wire
}

pub(super) fn plain_flush(server: &Server, meter: &Meter) {
    let mut wire = plain_keys(server, MOST);
    meter.watch(server, REST, || once(&mut wire, &["FLUSHALL", "ASYNC"], b"+OK"));
}

pub(super) fn demote(server: &Server, meter: &Meter) {
    let mut wire = full(server);
    meter.watch(server, REST, || once(&mut wire, &["REPLICAOF", "127.0.0.1", "1"], b"+OK"));
}

pub(super) fn swap(server: &Server, meter: &Meter) {
    let mut wire = full(server);
    meter.watch(server, REST, || once(&mut wire, &["SWAPDB", "0", "1"], b"+OK"));
}

pub(super) fn quarantine(server: &Server, meter: &Meter) {
    let mut wire = Wire::connect(server);
    once(&mut wire, &["CONFIG", "SET", "dlock.restart-quarantine-ms", "20000"], b"+OK");
    hold_all(&mut wire, MOST);
    once(&mut wire, &["REPLICAOF", "127.0.0.1", "1"], b"+OK");
    once(&mut wire, &["REPLICAOF", "NO", "ONE"], b"+OK");
    wait_for_each(&mut wire, MOST);
    meter.watch(server, Duration::from_secs(22), || ());
}

pub(super) fn heard_again(server: &Server, meter: &Meter) {
    // Its own two waits count, too.
    const PLACES: usize = MOST - 1_000;
    let mut silent = unresponsive(server);
    let mut wire = Wire::connect(server);
    hold_all(&mut wire, PLACES);
    wait_for_each(&mut silent, PLACES);
    meter.watch(server, REST, || {
        fall_silent(server, &mut silent);
        once(&mut silent, &["DLOCK.POSITION", "other", "silent"], b":1");
    });
}

const CONNECTIONS: usize = 2_000;

pub(super) fn disconnects(server: &Server, meter: &Meter) {
    const HOLDS: usize = 50;
    let mut wires: Vec<Wire> = (0..CONNECTIONS).map(|_| Wire::connect(server)).collect();
    for (n, wire) in wires.iter_mut().enumerate() {
        let name = |m| ("DLOCK.ACQUIRE", key(n * HOLDS + m), "o".to_owned());
        hold_each(wire, HOLDS, "0", name);
    }
    meter.watch(server, REST, || wires.iter().for_each(|wire| wire.close(Shutdown::Both)));
}

pub(super) fn plain_disconnects(server: &Server, meter: &Meter) {
    let wires: Vec<Wire> = (0..CONNECTIONS).map(|_| Wire::connect(server)).collect();
    meter.watch(server, REST, || wires.iter().for_each(|wire| wire.close(Shutdown::Both)));
}

/// Bound holds of one connection.
const BOUND: usize = 200_000;

pub(super) fn bound_holds_go(server: &Server, meter: &Meter) {
    let mut wire = Wire::connect(server);
    hold_each(&mut wire, BOUND, "0", |n| ("DLOCK.ACQUIRE", key(n), "o".to_owned()));
    meter.watch(server, REST, || wire.close(Shutdown::Both));
}

const MANY: usize = 100_000;

pub(super) fn unlink(server: &Server, meter: &Meter) {
    let mut wire = Wire::connect(server);
    hold_all(&mut wire, MANY);
    unlink_all(server, meter);
}

pub(super) fn plain_unlink(server: &Server, meter: &Meter) {
    plain_keys(server, MANY);
    unlink_all(server, meter);
}

fn unlink_all(server: &Server, meter: &Meter) {
    let mut wire = Wire::connect(server);
    let call = Batch::of(&with_keys("UNLINK", MANY), b":100000");
    meter.watch(server, REST, || wire.run(&call));
}

fn with_keys(command: &str, count: usize) -> Words {
    std::iter::once(command.to_owned()).chain((0..count).map(key)).collect()
}

pub(super) fn expire(server: &Server, meter: &Meter) {
    let mut wire = Wire::connect(server);
    hold_all(&mut wire, MANY);
    expire_all(server, meter);
}

pub(super) fn plain_expire(server: &Server, meter: &Meter) {
    plain_keys(server, MANY);
    expire_all(server, meter);
}

fn expire_all(server: &Server, meter: &Meter) {
    let mut wire = Wire::connect(server);
    once(&mut wire, &["DEBUG", "SET-ACTIVE-EXPIRE", "0"], b"+OK");
    each(&mut wire, MANY, b":1", |n| words(&["PEXPIRE", &key(n), "1"]));
    meter.watch(server, Duration::from_secs(4), || {
        once(&mut wire, &["DEBUG", "SET-ACTIVE-EXPIRE", "1"], b"+OK");
    });
}

/// Keys of one call.
const WIDE: usize = 4_096;

/// A blocked call for many keys, one of which is held.
fn wide_call(server: &Server) -> (Wire, Wire) {
    let (mut wire, mut caller) = (Wire::connect(server), Wire::connect(server));
    once(&mut wire, &["DLOCK.ACQUIRE", &key(7), "holder", "PX", LONG_MS], b":");
    let keys: Words = (0..WIDE).map(key).collect();
    let count = WIDE.to_string();
    let mut call = vec!["DLOCK.MACQUIRE", &count];
    call.extend(keys.iter().map(String::as_str));
    call.push("wide");
    let mut call = whole(&call, LONG_MS, 0);
    call.extend(words(&["BLOCK", "0"]));
    caller.send(&Batch::of(&call, b""));
    server.wait_blocked(1);
    (wire, caller)
}

pub(super) fn wide_call_goes(server: &Server, meter: &Meter) {
    let (_wire, caller) = wide_call(server);
    meter.watch(server, REST, || caller.close(Shutdown::Both));
}

pub(super) fn wide_call_granted(server: &Server, meter: &Meter) {
    let (mut wire, _caller) = wide_call(server);
    meter.watch(server, REST, || {
        once(&mut wire, &["DLOCK.RELEASE", &key(7), "holder"], b":0");
    });
}

pub(super) fn plain_wide_call(server: &Server, meter: &Meter) {
    let mut wire = Wire::connect(server);
    let mut call = vec!["MSET".to_owned()];
    call.extend((0..WIDE).flat_map(|n| [key(n), "holder".to_owned()]));
    let call = Batch::of(&call, b"+OK");
    meter.watch(server, REST, || wire.run(&call));
}

pub(super) fn kill_blocked(server: &Server, meter: &Meter) {
    let mut wire = Wire::connect(server);
    hold_each(&mut wire, BLOCKED, LONG_MS, |n| ("DLOCK.ACQUIRE", key(n), "holder".to_owned()));
    let _wires = blocked(server, |n| {
        let mut call = whole(&["DLOCK.ACQUIRE", &key(n), &owner(n)], LONG_MS, 0);
        call.extend(words(&["BLOCK", "0"]));
        Batch::of(&call, b"")
    });
    meter.watch_as_listener(server, REST, || wire.send(&kill()));
}

pub(super) fn plain_kill_blocked(server: &Server, meter: &Meter) {
    let mut wire = Wire::connect(server);
    let _wires = blocked(server, |n| Batch::of(&["BLPOP", &key(n), "0"], b""));
    meter.watch_as_listener(server, REST, || wire.send(&kill()));
}

/// All connections except subscribers.
fn kill() -> Batch {
    Batch::of(&["CLIENT", "KILL", "TYPE", "normal"], b"")
}
