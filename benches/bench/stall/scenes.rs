//! The scenes, at the default limits: a million holds and waiters on many keys, ten thousand on one.

mod awaits;
mod deadlocks;
mod fair;
mod keys;
mod permits;
mod queues;
mod readers;

use std::time::Duration;

use super::{Meter, Scene};
use crate::{
    names::{key, owner},
    support::{Reply as _, Server},
    wire::{Batch, Wire},
};

pub(super) const SCENES: [Scene; 40] = [
    scene("1,000,000 QUEUE entries are made", keys::queue_entries),
    compared("FLUSHALL ASYNC of 1,000,000 holds", keys::flush, keys::plain_flush),
    scene("INFO dlock, 1,000,000 queues", keys::info),
    scene("1,000,000 wait, the server becomes a replica", keys::demote),
    scene("SWAPDB, 1,000,000 queues", keys::swap),
    scene("1,000,000 wait, the quarantine ends", keys::quarantine),
    scene("a connection with 999,000 places is heard again", keys::heard_again),
    compared(
        "2,000 connections with 50 bound holds each go",
        keys::disconnects,
        keys::plain_disconnects,
    ),
    scene("the connection of 200,000 bound holds goes", keys::bound_holds_go),
    excepted("UNLINK of 100,000 held locks", keys::unlink, keys::plain_unlink),
    compared("100,000 keys of held locks expire", keys::expire, keys::plain_expire),
    scene("the connection of a MACQUIRE over 4,096 keys goes", keys::wide_call_goes),
    excepted(
        "a MACQUIRE over 4,096 keys is granted after waiting",
        keys::wide_call_granted,
        keys::plain_wide_call,
    ),
    compared("9,000 blocked connections are killed", keys::kill_blocked, keys::plain_kill_blocked),
    scene("50,000 owners wait in a chain", deadlocks::chain),
    scene("20 owners wait for 2,000 locks, then their holders", deadlocks::crossed),
    scene("60,000 POSITION while writes are refused", queues::silent),
    scene("ACQUIRE behind 10,000 skipped waiters", queues::skipped),
    scene("SET over a DLOCK lock, 10,000 wait", queues::set_over),
    scene("DEL of a lock, 10,000 wait, one for two", queues::delete_with_call_for_two),
    scene("POSITION of the last of 10,000 who wait", queues::position),
    scene("INFO of a key for which 10,000 wait, while a wait is due", queues::info_while_due),
    scene("RENAME of a DFAIR lock, 10,000 wait", fair::rename),
    scene("10,000 wait for a DFAIR lock, the server is promoted", fair::promote),
    excepted("RESTORE of a DFAIR lock, 10,000 wait", fair::restore, permits::plain_restore),
    scene("DEL of a DFAIR lock, 9,000 blocked and 1,000 queued", fair::delete_with_calls),
    scene("a writer's lease ends, 10,000 readers wait", readers::after_expiry),
    scene("DEL of a lock, 10,000 readers wait", readers::delete),
    scene("BREAK of a lock that 10,000 read", readers::break_holds),
    scene("a writer queues while 10,000 read", readers::writer_behind),
    scene("RENAME of a lock that 10,000 read to an awaited name", readers::rename),
    scene("10,000 read a lock, the server is promoted", readers::promote),
    scene("the connection of 10,000 bound read holds of one lock goes", readers::bound_go),
    scene("RESIZE, 10,000 wait", permits::resize),
    scene("a command meets 10,000 lapsed permits", permits::lapsed),
    scene("ACQUIRE and RELEASE by the owner of 10,000 permits", permits::of_one_owner),
    excepted("RESTORE of 10,000 permits", permits::restore, permits::plain_restore),
    scene("DEL of a semaphore with 10,000 permits", permits::delete),
    compared("a latch opens, 9,000 wait", awaits::open_latch, awaits::plain_wide_wake),
    compared("a hold ends, 9,000 observe it", awaits::end_observed, awaits::plain_wide_wake),
];

const fn scene(name: &'static str, run: fn(&Server, &Meter)) -> Scene {
    Scene { name, run, plain: None, is_excepted: false }
}

/// The plain server does the same work, but the goal is 10 ms.
const fn compared(
    name: &'static str,
    run: fn(&Server, &Meter),
    plain: fn(&Server, &Meter),
) -> Scene {
    Scene { name, run, plain: Some(plain), is_excepted: false }
}

/// The call itself names or carries as much: the goal is relative to the plain server.
const fn excepted(
    name: &'static str,
    run: fn(&Server, &Meter),
    plain: fn(&Server, &Meter),
) -> Scene {
    Scene { name, run, plain: Some(plain), is_excepted: true }
}

/// Holds, permits or waiters of one key.
const ON_ONE: usize = 10_000;

/// No lease and no wait ends during a scene.
const LONG_MS: &str = "3600000";

/// Ids that a hold remembers.
const IDS: usize = 8;

/// Time for the event loop to finish the work that a command has left.
const REST: Duration = Duration::from_millis(1_500);

/// Commands in one write.
const AT_ONCE: usize = 200;

type Words = Vec<String>;

fn words(words: &[&str]) -> Words {
    words.iter().map(|word| (*word).to_owned()).collect()
}

/// A call for a hold or a permit with everything that one can have. `bind` is what the loss of its connection leaves of
/// the lease.
fn whole(call: &[&str], bind: &str, id: usize) -> Words {
    let mut call = words(call);
    call.extend(words(&["PX", LONG_MS, "BIND", bind, "NOTIFY", "c", "REQID"]));
    call.push(id.to_string());
    call
}

/// A call for a place with everything that one can have.
fn place(call: &[&str]) -> Words {
    let mut call = whole(call, LONG_MS, 0);
    call.extend(words(&["QUEUE", LONG_MS]));
    call
}

/// Runs a command for each number; the reply is any single line.
fn each<W: AsRef<[u8]>, C: AsRef<[W]>>(
    wire: &mut Wire,
    count: usize,
    answer: &'static [u8],
    command: impl Fn(usize) -> C,
) {
    let mut batch = Batch::default();
    for first in (0..count).step_by(AT_ONCE) {
        batch.clear();
        for n in first..count.min(first + AT_ONCE) {
            batch.push(command(n).as_ref(), answer);
        }
        wire.run(&batch);
    }
}

/// As [`each`], with one command per write, so that the server can serve others in between.
fn each_alone(wire: &mut Wire, count: usize, command: impl Fn(usize) -> Words) {
    (0..count).for_each(|n| wire.run(&Batch::of(&command(n), b"")));
}

fn once(wire: &mut Wire, command: &[&str], answer: &'static [u8]) {
    wire.run(&Batch::of(command, answer));
}

/// Takes a hold for each number, each with all ids that it remembers.
fn hold_each(
    wire: &mut Wire,
    count: usize,
    bind: &str,
    call: impl Fn(usize) -> (&'static str, String, String),
) {
    for id in 0..IDS {
        each(wire, count, b":", |n| {
            let (what, key, owner) = call(n);
            let mut call: Vec<&str> = vec![what, &key, &owner];
            call.extend((what == "DRW.ACQUIRE").then_some("READ"));
            whole(&call, bind, id)
        });
    }
}

/// Takes the locks with these numbers, 1,000 per call, each with all ids that it remembers.
fn hold_all(wire: &mut Wire, count: usize) {
    for id in 0..IDS {
        for first in (0..count).step_by(1_000) {
            let keys: Words = (first..first + 1_000).map(key).collect();
            let mut call = vec!["DLOCK.MACQUIRE", "1000"];
            call.extend(keys.iter().map(String::as_str));
            call.push("holder");
            let mut batch = Batch::of(&whole(&call, LONG_MS, id), b"*1000");
            (0..1_000).for_each(|_| batch.push_line(b":"));
            wire.run(&batch);
        }
    }
}

/// Queues `count` waiters for one key.
fn wait_all(wire: &mut Wire, count: usize, what: &str, name: &str, more: &[&str]) {
    each(wire, count, b"$-1", |n| place(&[&[what, name, &owner(n)], more].concat()));
}

/// Connections that a server accepts with the default of `maxclients`, with room for a few others.
const BLOCKED: usize = 9_000;

/// Connections with a blocked call.
fn blocked(server: &Server, call: impl Fn(usize) -> Batch) -> Vec<Wire> {
    let mut wires = Vec::new();
    for n in 0..BLOCKED {
        let mut wire = Wire::connect(server);
        wire.send(&call(n));
        wires.push(wire);
    }
    server.wait_blocked(BLOCKED);
    wires
}

/// Restores the key from its own dump.
fn restore_again(server: &Server, meter: &Meter, name: &str) {
    let payload = server.cmd(&["DUMP", name]).bytes();
    server.cmd(&["DEL", name]).int();
    std::thread::sleep(REST);
    meter.watch(server, Duration::from_millis(300), || {
        let call: [&[u8]; 4] = [b"RESTORE", name.as_bytes(), b"0", &payload];
        server.cmd(&call).ok();
    });
}
