//! The scenes, at the default limits.

mod awaits;
mod loaded;

use std::{net::Shutdown, time::Duration};

use super::{Meter, Scene};
use crate::{
    names::{key, owner},
    support::{Reply as _, Server},
    wire::{Batch, Wire},
};

pub(super) const SCENES: [Scene; 46] = [
    scene("1,000,000 QUEUE entries are made", queue_entries),
    Scene {
        name: "FLUSHALL ASYNC of 1,000,000 holds",
        run: flush,
        plain: Some(plain_flush),
        is_excepted: false,
    },
    scene("a writer's lease ends, 100,000 readers wait", readers_after_expiry),
    scene("a writer releases, 100,000 readers wait", readers_after_release),
    scene("RESIZE, 100,000 wait", resize),
    scene("50,000 owners wait in a chain", chain),
    scene("20 owners wait for 2,000 locks, then their holders", crossed),
    scene("60,000 POSITION while writes are refused", silent),
    Scene {
        name: "2,000 connections with 50 bound holds each go",
        run: disconnects,
        plain: Some(plain_disconnects),
        is_excepted: false,
    },
    scene("a command meets 100,000 lapsed permits", lapsed),
    scene("ACQUIRE with REQID, 100,000 permits of the owner", reqid),
    scene("RENAME of a DFAIR lock, 90,000 wait", rename),
    scene("DEL of a DFAIR lock, 90,000 wait", delete_fair),
    scene("SET over a DLOCK lock, 90,000 wait", set_over),
    scene("ACQUIRE behind 99,000 skipped waiters", skipped),
    Scene {
        name: "RESTORE of 100,000 permits",
        run: restore,
        plain: Some(plain_restore),
        is_excepted: true,
    },
    scene("the connection of a MACQUIRE over 200,000 keys goes", wide_call_goes),
    scene("DEL of a lock, 100,000 wait", delete),
    scene("DEL of a semaphore with 100,000 permits", delete_permits),
    scene("RENAME of a semaphore with 100,000 permits", rename_permits),
    scene("EXPIRE running out of a semaphore with 100,000 permits", expire_permits),
    Scene {
        // With the allocator of the C library, an allocation of a large block after this waits until a million small
        // blocks are merged. Each new connection makes one.
        name: "FLUSHALL ASYNC of 1,000,000 holds, and connections come",
        run: flush_and_connect,
        plain: Some(plain_flush_and_connect),
        is_excepted: true,
    },
    scene("INFO dlock, 500,000 queues", info),
    scene("BREAK of a lock that 100,000 read", break_readers),
    scene("a writer queues while 100,000 read", writer_behind_readers),
    scene("RENAME of a lock that 100,000 read to an awaited name", rename_readers),
    scene("100,000 read a lock, the server is promoted", promote_readers),
    compared("a latch opens, 9,000 wait", awaits::open_latch, awaits::plain_wide_wake),
    compared("a hold ends, 9,000 observe it", awaits::end_observed, awaits::plain_wide_wake),
    scene("CANCEL by the owner of 100,000 permits", cancel_permits),
    compared("9,000 blocked connections are killed", kill_blocked, plain_kill_blocked),
    Scene {
        name: "UNLINK of 100,000 held locks",
        run: unlink_many,
        plain: Some(plain_unlink_many),
        is_excepted: true,
    },
    compared("100,000 keys of held locks expire", keys_expire, plain_keys_expire),
    scene("500,000 wait, the server becomes a replica", demote),
    scene("SWAPDB, 500,000 queues", swap),
    scene("a connection with 500,000 places is heard again", heard_again),
    scene("the connection of a reader with 100,000 bound holds of one lock goes", bound_readers_go),
    scene("the connection of 200,000 bound holds goes", bound_locks_go),
    Scene {
        name: "a MACQUIRE over 200,000 keys is granted after waiting",
        run: wide_call_granted,
        plain: Some(plain_wide_call),
        is_excepted: true,
    },
    scene("POSITION of the last of 99,000 who wait", position),
    scene("INFO of a key for which 99,000 wait, while a wait is due", info_while_due),
    scene("500,000 wait, the quarantine ends", quarantine),
    scene("90,000 wait for a DFAIR lock, the server is promoted", loaded::promote),
    Scene {
        name: "RESTORE of a DFAIR lock, 90,000 wait",
        run: loaded::restore,
        plain: Some(plain_restore),
        is_excepted: true,
    },
    scene("DEL of a DFAIR lock, 9,000 blocked and 90,000 queued", loaded::delete_with_calls),
    scene("DEL of a lock, 99,000 wait, one for two", loaded::delete_with_call_for_two),
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

const WAITERS: usize = 100_000;

/// No lease and no wait ends during a scene.
const LONG_MS: &str = "3600000";

/// Time for the event loop to finish the work that a command has left.
const REST: Duration = Duration::from_millis(1_500);

/// Commands in one write.
const AT_ONCE: usize = 200;

/// Runs a command for each number; the reply is any single line.
fn each<const N: usize>(
    wire: &mut Wire,
    count: usize,
    answer: &'static [u8],
    command: impl Fn(usize) -> [String; N],
) {
    let mut batch = Batch::default();
    for first in (0..count).step_by(AT_ONCE) {
        batch.clear();
        (first..count.min(first + AT_ONCE)).for_each(|n| batch.push(&command(n), answer));
        wire.run(&batch);
    }
}

/// As [`each`], with one command per write, so that the server can serve others in between.
fn each_alone<const N: usize>(
    wire: &mut Wire,
    count: usize,
    command: impl Fn(usize) -> [String; N],
) {
    (0..count).for_each(|n| wire.run(&Batch::of(&command(n), b"")));
}

fn once(wire: &mut Wire, command: &[&str], answer: &'static [u8]) {
    wire.run(&Batch::of(command, answer));
}

fn owned<const N: usize>(words: [&str; N]) -> [String; N] {
    words.map(str::to_owned)
}

/// Takes the locks with these numbers, 1,000 per call.
fn hold_all(wire: &mut Wire, count: usize) {
    for first in (0..count).step_by(1_000) {
        let mut call = vec!["DLOCK.MACQUIRE".to_owned(), "1000".to_owned()];
        call.extend((first..first + 1_000).map(key));
        call.extend(owned(["holder", "PX", LONG_MS]));
        let mut batch = Batch::of(&call, b"*1000");
        (0..1_000).for_each(|_| batch.push_line(b":"));
        wire.run(&batch);
    }
}

/// Queues `count` waiters.
fn wait_all(wire: &mut Wire, count: usize, what: &[&str], name: &str, more: &[&str]) {
    let mut batch = Batch::default();
    for first in (0..count).step_by(AT_ONCE) {
        batch.clear();
        for n in first..first + AT_ONCE {
            let owner = owner(n);
            let call = [what, &[name, &owner], more, &["PX", LONG_MS, "QUEUE", LONG_MS]].concat();
            batch.push(&call, b"$-1");
        }
        wire.run(&batch);
    }
}

fn queue_entries(server: &Server, meter: &Meter) {
    const ENTRIES: usize = 1_000_000;
    let mut wire = Wire::connect(server);
    hold_all(&mut wire, ENTRIES);
    meter.watch(server, Duration::from_millis(100), || {
        each(&mut wire, ENTRIES, b"$-1", |n| {
            let (key, owner) = (key(n), owner(n));
            owned(["DLOCK.ACQUIRE", &key, &owner, "QUEUE", LONG_MS])
        });
    });
}

fn info(server: &Server, meter: &Meter) {
    const QUEUES: usize = 500_000;
    let mut wire = Wire::connect(server);
    hold_all(&mut wire, QUEUES);
    each(&mut wire, QUEUES, b"$-1", |n| {
        let (key, owner) = (key(n), owner(n));
        owned(["DLOCK.ACQUIRE", &key, &owner, "QUEUE", LONG_MS])
    });
    meter.watch(server, Duration::from_millis(100), || {
        for _ in 0..5 {
            server.info("dlock");
        }
    });
}

fn flush(server: &Server, meter: &Meter) {
    let mut wire = Wire::connect(server);
    hold_all(&mut wire, 1_000_000);
    meter.watch(server, REST, || once(&mut wire, &["FLUSHALL", "ASYNC"], b"+OK"));
}

fn plain_flush(server: &Server, meter: &Meter) {
    let mut wire = Wire::connect(server);
    each(&mut wire, 1_000_000, b"+OK", |n| owned(["SET", &key(n), "holder"]));
    meter.watch(server, REST, || once(&mut wire, &["FLUSHALL", "ASYNC"], b"+OK"));
}

fn readers(server: &Server) -> Wire {
    let mut wire = Wire::connect(server);
    once(&mut wire, &["DRW.ACQUIRE", "rw", "writer", "WRITE", "PX", LONG_MS], b":");
    let mut batch = Batch::default();
    for first in (0..WAITERS).step_by(AT_ONCE) {
        batch.clear();
        for n in first..first + AT_ONCE {
            let owner = owner(n);
            let call = ["DRW.ACQUIRE", "rw", &owner, "READ", "PX", LONG_MS, "QUEUE", LONG_MS];
            batch.push(&call, b"$-1");
        }
        wire.run(&batch);
    }
    wire
}

fn readers_after_expiry(server: &Server, meter: &Meter) {
    let mut wire = readers(server);
    meter.watch(server, REST, || {
        once(&mut wire, &["DRW.RENEW", "rw", "writer", "WRITE", "PX", "1"], b":");
    });
}

fn readers_after_release(server: &Server, meter: &Meter) {
    let mut wire = readers(server);
    meter.watch(server, REST, || {
        once(&mut wire, &["DRW.RELEASE", "rw", "writer", "WRITE"], b":0");
    });
}

/// A semaphore with one owner of all permits.
fn semaphore(wire: &mut Wire, permits: &str) {
    once(wire, &["DSEM.INIT", "s", permits], b":1");
}

/// A permit: its id is on a separate line.
fn permit(call: &[&str]) -> Batch {
    let mut batch = Batch::of(call, b"$36");
    batch.push_line(b"");
    batch
}

fn resize(server: &Server, meter: &Meter) {
    let mut wire = Wire::connect(server);
    semaphore(&mut wire, "1");
    wire.run(&permit(&["DSEM.ACQUIRE", "s", "holder", "PX", LONG_MS]));
    wait_all(&mut wire, WAITERS, &["DSEM.ACQUIRE"], "s", &[]);
    meter.watch(server, REST, || once(&mut wire, &["DSEM.RESIZE", "s", "200000"], b":"));
}

/// Each owner holds a lock and requests that of the next, in an order without a pattern.
fn chain(server: &Server, meter: &Meter) {
    const OWNERS: usize = 50_000;
    let mut wire = Wire::connect(server);
    each(&mut wire, OWNERS, b":", |n| owned(["DLOCK.ACQUIRE", &key(n), &owner(n), "PX", LONG_MS]));
    meter.watch(server, Duration::from_millis(100), || {
        // A step that is coprime to the number of owners reaches all of them.
        each_alone(&mut wire, OWNERS, |n| {
            let n = n * 19_997 % OWNERS;
            owned(["DLOCK.ACQUIRE", &key((n + 1) % OWNERS), &owner(n), "QUEUE", LONG_MS])
        });
    });
}

fn crossed(server: &Server, meter: &Meter) {
    const LOCKS: usize = 2_000;
    const OWNERS: usize = 20;
    let mut wire = Wire::connect(server);
    each(&mut wire, LOCKS, b":", |n| owned(["DLOCK.ACQUIRE", &key(n), &owner(n), "PX", LONG_MS]));
    meter.watch(server, Duration::from_millis(100), || {
        each_alone(&mut wire, LOCKS * OWNERS, |n| {
            let waiter = owner(LOCKS + n % OWNERS);
            owned(["DLOCK.ACQUIRE", &key(n / OWNERS), &waiter, "QUEUE", LONG_MS])
        });
        each_alone(&mut wire, LOCKS, |n| {
            let next = (n * 7 + 1) % LOCKS;
            owned(["DLOCK.ACQUIRE", &key(next), &owner(n), "QUEUE", LONG_MS])
        });
    });
}

/// A connection that did not claim a grant in time.
fn unresponsive(server: &Server) -> Wire {
    let (mut wire, mut silent) = (Wire::connect(server), Wire::connect(server));
    once(&mut wire, &["DLOCK.ACQUIRE", "other", "holder", "PX", LONG_MS], b":");
    once(&mut wire, &["DLOCK.ACQUIRE", "lapses", "holder", "PX", LONG_MS], b":");
    once(&mut silent, &["DLOCK.ACQUIRE", "other", "silent", "QUEUE", LONG_MS], b"$-1");
    silent
}

/// Its grant expires.
fn fall_silent(server: &Server, silent: &mut Wire) {
    let mut wire = Wire::connect(server);
    once(silent, &["DLOCK.ACQUIRE", "lapses", "silent", "QUEUE", "20"], b"$-1");
    once(&mut wire, &["DLOCK.RELEASE", "lapses", "holder"], b":0");
    std::thread::sleep(Duration::from_millis(100));
}

fn silent(server: &Server, meter: &Meter) {
    let mut silent = unresponsive(server);
    fall_silent(server, &mut silent);
    let mut wire = Wire::connect(server);
    once(&mut wire, &["CONFIG", "SET", "min-replicas-to-write", "1"], b"+OK");
    meter.watch(server, Duration::from_millis(300), || {
        each(&mut silent, 60_000, b":1", |_| owned(["DLOCK.POSITION", "other", "silent"]));
    });
}

fn skipped(server: &Server, meter: &Meter) {
    let mut silent = unresponsive(server);
    let mut wire = Wire::connect(server);
    once(&mut wire, &["DLOCK.ACQUIRE", "busy", "holder", "PX", LONG_MS], b":");
    wait_all(&mut silent, 99_000, &["DLOCK.ACQUIRE"], "busy", &[]);
    fall_silent(server, &mut silent);
    meter.watch(server, Duration::from_millis(300), || {
        once(&mut wire, &["DLOCK.RELEASE", "busy", "holder"], b":0");
        for _ in 0..20 {
            once(&mut wire, &["DLOCK.ACQUIRE", "busy", "other"], b":");
            once(&mut wire, &["DLOCK.RELEASE", "busy", "other"], b":0");
        }
    });
}

const CONNECTIONS: usize = 2_000;

fn disconnects(server: &Server, meter: &Meter) {
    const HOLDS: usize = 50;
    let mut wires: Vec<Wire> = (0..CONNECTIONS).map(|_| Wire::connect(server)).collect();
    for (n, wire) in wires.iter_mut().enumerate() {
        each(wire, HOLDS, b":", |m| {
            owned(["DLOCK.ACQUIRE", &key(n * HOLDS + m), "o", "PX", LONG_MS, "BIND", "0"])
        });
    }
    meter.watch(server, REST, || wires.iter().for_each(|wire| wire.close(Shutdown::Both)));
}

fn plain_disconnects(server: &Server, meter: &Meter) {
    let wires: Vec<Wire> = (0..CONNECTIONS).map(|_| Wire::connect(server)).collect();
    meter.watch(server, REST, || wires.iter().for_each(|wire| wire.close(Shutdown::Both)));
}

/// Their leases end while the server refuses writes, so that a command is the first to find them.
fn lapsed(server: &Server, meter: &Meter) {
    let mut wire = Wire::connect(server);
    semaphore(&mut wire, "200000");
    let mut batch = Batch::default();
    for first in (0..WAITERS).step_by(AT_ONCE) {
        batch.clear();
        for n in first..first + AT_ONCE {
            batch.push(&["DSEM.ACQUIRE", "s", &owner(n), "PX", "5000"], b"$36");
            batch.push_line(b"");
        }
        wire.run(&batch);
    }
    once(&mut wire, &["CONFIG", "SET", "min-replicas-to-write", "1"], b"+OK");
    std::thread::sleep(Duration::from_millis(5_100));
    meter.watch(server, REST, || {
        let open = Batch::of(&["CONFIG", "SET", "min-replicas-to-write", "0"], b"+OK");
        wire.run(&open.and(&permit(&["DSEM.ACQUIRE", "s", "other"])));
    });
}

fn reqid(server: &Server, meter: &Meter) {
    let mut wire = Wire::connect(server);
    semaphore(&mut wire, "200000");
    let mut batch = Batch::default();
    for _ in (0..WAITERS).step_by(AT_ONCE) {
        batch.clear();
        for _ in 0..AT_ONCE {
            batch.push(&["DSEM.ACQUIRE", "s", "one", "PX", LONG_MS], b"$36");
            batch.push_line(b"");
        }
        wire.run(&batch);
    }
    meter.watch(server, Duration::from_millis(100), || {
        for n in 0..20 {
            let call = ["DSEM.ACQUIRE", "s", "one", "PX", LONG_MS, "REQID", &n.to_string()];
            wire.run(&permit(&call));
        }
    });
}

fn rename(server: &Server, meter: &Meter) {
    let mut wire = Wire::connect(server);
    once(&mut wire, &["DFAIR.ACQUIRE", "f", "holder", "PX", LONG_MS], b":");
    wait_all(&mut wire, 90_000, &["DFAIR.ACQUIRE"], "f", &[]);
    meter.watch(server, REST, || once(&mut wire, &["RENAME", "f", "g"], b"+OK"));
}

fn restore(server: &Server, meter: &Meter) {
    let mut wire = Wire::connect(server);
    semaphore(&mut wire, "200000");
    let mut batch = Batch::default();
    for first in (0..WAITERS).step_by(AT_ONCE) {
        batch.clear();
        for n in first..first + AT_ONCE {
            batch.push(&["DSEM.ACQUIRE", "s", &owner(n), "PX", LONG_MS], b"$36");
            batch.push_line(b"");
        }
        wire.run(&batch);
    }
    restore_again(server, meter, "s");
}

/// A hash with as many fields, of about the bytes of a permit.
fn plain_restore(server: &Server, meter: &Meter) {
    let mut wire = Wire::connect(server);
    each(&mut wire, WAITERS, b":1", |n| {
        owned(["HSET", "h", &owner(n), "0123456789abcdef0123456789abcdef0123"])
    });
    restore_again(server, meter, "h");
}

fn restore_again(server: &Server, meter: &Meter, name: &str) {
    let payload = server.cmd(&["DUMP", name]).bytes();
    server.cmd(&["DEL", name]).int();
    std::thread::sleep(REST);
    meter.watch(server, Duration::from_millis(300), || {
        let call: [&[u8]; 4] = [b"RESTORE", name.as_bytes(), b"0", &payload];
        server.cmd(&call).ok();
    });
}

fn wide_call_goes(server: &Server, meter: &Meter) {
    const KEYS: usize = 200_000;
    let mut wire = Wire::connect(server);
    let mut caller = Wire::connect(server);
    once(&mut wire, &["DLOCK.ACQUIRE", &key(7), "holder", "PX", LONG_MS], b":");
    let mut call = vec!["DLOCK.MACQUIRE".to_owned(), KEYS.to_string()];
    call.extend((0..KEYS).map(key));
    call.extend(owned(["wide", "BLOCK", "0"]));
    caller.send(&Batch::of(&call, b""));
    server.wait_blocked(1);
    meter.watch(server, REST, || caller.close(Shutdown::Both));
}

fn delete(server: &Server, meter: &Meter) {
    let mut wire = readers(server);
    meter.watch(server, REST, || once(&mut wire, &["DEL", "rw"], b":1"));
}

/// A semaphore with [`WAITERS`] permits that send messages and have ids.
fn told_permits(server: &Server) -> Wire {
    let mut wire = Wire::connect(server);
    semaphore(&mut wire, "200000");
    let mut batch = Batch::default();
    for first in (0..WAITERS).step_by(AT_ONCE) {
        batch.clear();
        for n in first..first + AT_ONCE {
            let number = n.to_string();
            let call =
                ["DSEM.ACQUIRE", "s", &owner(n), "PX", LONG_MS, "NOTIFY", "c", "REQID", &number];
            batch.push(&call, b"$36");
            batch.push_line(b"");
        }
        wire.run(&batch);
    }
    wire
}

fn delete_permits(server: &Server, meter: &Meter) {
    let mut wire = told_permits(server);
    meter.watch(server, REST, || once(&mut wire, &["DEL", "s"], b":1"));
}

fn rename_permits(server: &Server, meter: &Meter) {
    let mut wire = told_permits(server);
    meter.watch(server, REST, || once(&mut wire, &["RENAME", "s", "t"], b"+OK"));
}

fn expire_permits(server: &Server, meter: &Meter) {
    let mut wire = told_permits(server);
    meter.watch(server, REST, || once(&mut wire, &["PEXPIRE", "s", "20"], b":1"));
}

fn delete_fair(server: &Server, meter: &Meter) {
    let mut wire = Wire::connect(server);
    once(&mut wire, &["DFAIR.ACQUIRE", "f", "holder", "PX", LONG_MS], b":");
    wait_all(&mut wire, 90_000, &["DFAIR.ACQUIRE"], "f", &[]);
    meter.watch(server, REST, || once(&mut wire, &["DEL", "f"], b":1"));
}

fn set_over(server: &Server, meter: &Meter) {
    let mut wire = Wire::connect(server);
    once(&mut wire, &["DLOCK.ACQUIRE", "l", "holder", "PX", LONG_MS], b":");
    wait_all(&mut wire, 90_000, &["DLOCK.ACQUIRE"], "l", &[]);
    meter.watch(server, REST, || once(&mut wire, &["SET", "l", "x"], b"+OK"));
}

/// FLUSHALL ASYNC while other clients connect.
fn flush_beside_connections(server: &Server, meter: &Meter, mut wire: Wire) {
    meter.watch(server, REST, || {
        once(&mut wire, &["FLUSHALL", "ASYNC"], b"+OK");
        for _ in 0..200 {
            once(&mut Wire::connect(server), &["PING"], b"+PONG");
            std::thread::sleep(Duration::from_millis(5));
        }
    });
}

fn flush_and_connect(server: &Server, meter: &Meter) {
    let mut wire = Wire::connect(server);
    hold_all(&mut wire, 1_000_000);
    flush_beside_connections(server, meter, wire);
}

fn plain_flush_and_connect(server: &Server, meter: &Meter) {
    let mut wire = Wire::connect(server);
    each(&mut wire, 1_000_000, b"+OK", |n| owned(["SET", &key(n), "holder"]));
    flush_beside_connections(server, meter, wire);
}

fn break_readers(server: &Server, meter: &Meter) {
    let mut wire = read_by_many(server);
    meter.watch(server, REST, || once(&mut wire, &["DRW.BREAK", "rw"], b":100000"));
}

/// A lock with very many readers.
fn read_by_many(server: &Server) -> Wire {
    let mut wire = Wire::connect(server);
    each(&mut wire, WAITERS, b":", |n| {
        owned(["DRW.ACQUIRE", "rw", &owner(n), "READ", "PX", LONG_MS])
    });
    wire
}

fn rename_readers(server: &Server, meter: &Meter) {
    let mut wire = read_by_many(server);
    once(&mut wire, &["DRW.ACQUIRE", "other", "holder", "WRITE", "PX", LONG_MS], b":");
    let call = ["DRW.ACQUIRE", "other", "writer", "WRITE", "PX", LONG_MS, "QUEUE", LONG_MS];
    once(&mut wire, &call, b"$-1");
    meter.watch(server, REST, || once(&mut wire, &["RENAME", "rw", "other"], b"+OK"));
}

fn promote_readers(server: &Server, meter: &Meter) {
    let mut wire = read_by_many(server);
    once(&mut wire, &["REPLICAOF", "127.0.0.1", "1"], b"+OK");
    meter.watch(server, REST, || once(&mut wire, &["REPLICAOF", "NO", "ONE"], b"+OK"));
}

fn writer_behind_readers(server: &Server, meter: &Meter) {
    let mut wire = read_by_many(server);
    meter.watch(server, REST, || {
        for _ in 0..5 {
            let call = ["DRW.ACQUIRE", "rw", "writer", "WRITE", "PX", LONG_MS, "QUEUE", LONG_MS];
            once(&mut wire, &call, b"$-1");
            once(&mut wire, &["DRW.CANCEL", "rw", "writer"], b":1");
        }
    });
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

fn kill_blocked(server: &Server, meter: &Meter) {
    let mut wire = Wire::connect(server);
    each(&mut wire, BLOCKED, b":", |n| owned(["DLOCK.ACQUIRE", &key(n), "holder", "PX", LONG_MS]));
    let _wires = blocked(server, |n| {
        Batch::of(&owned(["DLOCK.ACQUIRE", &key(n), &owner(n), "BLOCK", "0"]), b"")
    });
    meter.watch_as_listener(server, REST, || wire.send(&kill()));
}

fn plain_kill_blocked(server: &Server, meter: &Meter) {
    let mut wire = Wire::connect(server);
    let _wires = blocked(server, |n| Batch::of(&owned(["BLPOP", &key(n), "0"]), b""));
    meter.watch_as_listener(server, REST, || wire.send(&kill()));
}

/// All connections except subscribers.
fn kill() -> Batch {
    Batch::of(&["CLIENT", "KILL", "TYPE", "normal"], b"")
}

fn cancel_permits(server: &Server, meter: &Meter) {
    let mut wire = Wire::connect(server);
    semaphore(&mut wire, "200000");
    let mut batch = Batch::default();
    for _ in (0..WAITERS).step_by(AT_ONCE) {
        batch.clear();
        for _ in 0..AT_ONCE {
            batch.push(&["DSEM.ACQUIRE", "s", "one", "PX", LONG_MS], b"$36");
            batch.push_line(b"");
        }
        wire.run(&batch);
    }
    meter.watch(server, Duration::from_millis(100), || {
        for _ in 0..20 {
            once(&mut wire, &["DSEM.CANCEL", "s", "one"], b":0");
        }
    });
}

const MANY: usize = 100_000;

fn unlink_many(server: &Server, meter: &Meter) {
    hold_all(&mut Wire::connect(server), MANY);
    unlink_all(server, meter);
}

fn plain_unlink_many(server: &Server, meter: &Meter) {
    let mut wire = Wire::connect(server);
    each(&mut wire, MANY, b"+OK", |n| owned(["SET", &key(n), "holder"]));
    unlink_all(server, meter);
}

fn unlink_all(server: &Server, meter: &Meter) {
    let mut wire = Wire::connect(server);
    let mut call = vec!["UNLINK".to_owned()];
    call.extend((0..MANY).map(key));
    let call = Batch::of(&call, b":100000");
    meter.watch(server, REST, || wire.run(&call));
}

fn keys_expire(server: &Server, meter: &Meter) {
    hold_all(&mut Wire::connect(server), MANY);
    expire_all(server, meter);
}

fn plain_keys_expire(server: &Server, meter: &Meter) {
    let mut wire = Wire::connect(server);
    each(&mut wire, MANY, b"+OK", |n| owned(["SET", &key(n), "holder"]));
    expire_all(server, meter);
}

fn expire_all(server: &Server, meter: &Meter) {
    let mut wire = Wire::connect(server);
    once(&mut wire, &["DEBUG", "SET-ACTIVE-EXPIRE", "0"], b"+OK");
    each(&mut wire, MANY, b":1", |n| owned(["PEXPIRE", &key(n), "1"]));
    meter.watch(server, Duration::from_secs(4), || {
        once(&mut wire, &["DEBUG", "SET-ACTIVE-EXPIRE", "1"], b"+OK");
    });
}

const QUEUES: usize = 500_000;

/// One waiter for each of many locks.
fn one_waits_for_each(server: &Server) -> Wire {
    let mut wire = Wire::connect(server);
    hold_all(&mut wire, QUEUES);
    each(&mut wire, QUEUES, b"$-1", |n| {
        owned(["DLOCK.ACQUIRE", &key(n), &owner(n), "QUEUE", LONG_MS])
    });
    wire
}

fn demote(server: &Server, meter: &Meter) {
    let mut wire = one_waits_for_each(server);
    meter.watch(server, REST, || once(&mut wire, &["REPLICAOF", "127.0.0.1", "1"], b"+OK"));
}

fn swap(server: &Server, meter: &Meter) {
    let mut wire = one_waits_for_each(server);
    meter.watch(server, REST, || once(&mut wire, &["SWAPDB", "0", "1"], b"+OK"));
}

fn heard_again(server: &Server, meter: &Meter) {
    let mut silent = unresponsive(server);
    let mut wire = Wire::connect(server);
    hold_all(&mut wire, QUEUES);
    each(&mut silent, QUEUES, b"$-1", |n| {
        owned(["DLOCK.ACQUIRE", &key(n), &owner(n), "QUEUE", LONG_MS])
    });
    meter.watch(server, REST, || {
        fall_silent(server, &mut silent);
        once(&mut silent, &["DLOCK.POSITION", "other", "silent"], b":1");
    });
}

fn bound_readers_go(server: &Server, meter: &Meter) {
    let mut wire = Wire::connect(server);
    each(&mut wire, WAITERS, b":", |n| {
        owned(["DRW.ACQUIRE", "rw", &owner(n), "READ", "PX", LONG_MS, "BIND", "0"])
    });
    meter.watch(server, REST, || wire.close(Shutdown::Both));
}

fn bound_locks_go(server: &Server, meter: &Meter) {
    const KEYS: usize = 200_000;
    let mut wire = Wire::connect(server);
    each(&mut wire, KEYS, b":", |n| {
        owned(["DLOCK.ACQUIRE", &key(n), "o", "PX", LONG_MS, "BIND", "0"])
    });
    meter.watch(server, REST, || wire.close(Shutdown::Both));
}

fn wide_call_granted(server: &Server, meter: &Meter) {
    const KEYS: usize = 200_000;
    let mut wire = Wire::connect(server);
    let mut caller = Wire::connect(server);
    once(&mut wire, &["DLOCK.ACQUIRE", &key(7), "holder", "PX", LONG_MS], b":");
    let mut call = vec!["DLOCK.MACQUIRE".to_owned(), KEYS.to_string()];
    call.extend((0..KEYS).map(key));
    call.extend(owned(["wide", "BLOCK", "0"]));
    caller.send(&Batch::of(&call, b""));
    server.wait_blocked(1);
    meter.watch(server, REST, || {
        once(&mut wire, &["DLOCK.RELEASE", &key(7), "holder"], b":0");
    });
}

fn plain_wide_call(server: &Server, meter: &Meter) {
    const KEYS: usize = 200_000;
    let mut wire = Wire::connect(server);
    let mut call = vec!["MSET".to_owned()];
    call.extend((0..KEYS).flat_map(|n| [key(n), "holder".to_owned()]));
    let call = Batch::of(&call, b"+OK");
    meter.watch(server, REST, || wire.run(&call));
}

fn crowd(server: &Server) -> Wire {
    let mut wire = Wire::connect(server);
    once(&mut wire, &["DLOCK.ACQUIRE", "busy", "holder", "PX", LONG_MS], b":");
    wait_all(&mut wire, 99_000, &["DLOCK.ACQUIRE"], "busy", &[]);
    wire
}

fn position(server: &Server, meter: &Meter) {
    let mut wire = crowd(server);
    meter.watch(server, Duration::from_millis(100), || {
        for _ in 0..20 {
            once(&mut wire, &["DLOCK.POSITION", "busy", &owner(98_999)], b":99000");
        }
    });
}

fn info_while_due(server: &Server, meter: &Meter) {
    let _wire = crowd(server);
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

fn quarantine(server: &Server, meter: &Meter) {
    let mut wire = Wire::connect(server);
    once(&mut wire, &["CONFIG", "SET", "dlock.restart-quarantine-ms", "20000"], b"+OK");
    hold_all(&mut wire, QUEUES);
    once(&mut wire, &["REPLICAOF", "127.0.0.1", "1"], b"+OK");
    once(&mut wire, &["REPLICAOF", "NO", "ONE"], b"+OK");
    each(&mut wire, QUEUES, b"$-1", |n| {
        owned(["DLOCK.ACQUIRE", &key(n), &owner(n), "QUEUE", LONG_MS])
    });
    meter.watch(server, Duration::from_secs(22), || ());
}
