//! Other commands on the key of a DFAIR lock: its queue is part of it. `keyspace.rs` and `moves.rs` test the
//! behaviour shared with DLOCK.

use std::time::{Duration, Instant};

use crate::{
    args,
    keyspace::REMOVALS,
    queue::{owner, queue},
    restart::LATE,
    scene::{Scene, in_db},
    support::{Blocked, Client, Family, Heard, Reply, SOON, Server, wait_until},
};

/// Lock `k`, held by `h`, with every kind of waiter: `place`, `call` (blocked), `lost` (disconnected), `both`
/// (blocked with QUEUE), `late` (another place).
struct Mixed {
    connection: Client,
    call: Blocked,
    both: Blocked,
}

impl Mixed {
    const ORDER: [&str; 5] = ["place", "call", "lost", "both", "late"];

    #[track_caller]
    fn line_up(server: &Server) -> Mixed {
        let mut connection = server.client();
        connection.cmd(&["DLOCK.ACQUIRE", "k", "h", "PX", "600000", "NOTIFY", "about"]).int();
        let mut place = |owner: &str| {
            let call = ["DLOCK.ACQUIRE", "k", owner, "QUEUE", "60000", "NOTIFY", "about"];
            assert!(connection.cmd(&call).is_null());
        };
        place("place");
        let call = server.block(&["DLOCK.ACQUIRE", "k", "call", "BLOCK", "0"]);
        let lost = server.block(&["DLOCK.ACQUIRE", "k", "lost", "BLOCK", "0"]);
        let both = server.block(&["DLOCK.ACQUIRE", "k", "both", "BLOCK", "0", "QUEUE", "60000"]);
        place("late");
        lost.hang_up();
        wait_until("the connection to be lost", || {
            server.cmd(&["DLOCK.WAITERS", "k"]).items()[2].field("client-id").int() == 0
        });
        assert_eq!(queue(server, "k"), Mixed::ORDER);
        Mixed { connection, call, both }
    }
}

fn start() -> Server {
    Family::Fair.with(&["dlock.fair-grace-ms", "60000"]).start()
}

#[test]
fn places_without_a_blocked_call_end_with_the_key() {
    let server = start();
    for (removal, told) in REMOVALS {
        println!("{removal:?}");
        let mut messages = server.subscribe(&["about", "dlock:notify"]);
        let mut at = Mixed::line_up(&server);
        let before = server.info_number("dlock", "last_token");
        server.cmd(removal).ok();
        assert!(at.call.expect_reply(SOON).int() > before);
        assert_eq!(
            (owner(&server, "k"), queue(&server, "k")),
            ("call".into(), vec!["both".into()])
        );
        // The holder gets a message, the waiters do not.
        assert!(messages.next_text().starts_with(told));
        messages.assert_none();
        for gone in ["place", "lost", "late"] {
            assert!(server.cmd(&["DLOCK.POSITION", "k", gone]).is_null(), "{gone}");
        }
        // A repeated request starts at the end of the queue.
        assert!(at.connection.cmd(&["DLOCK.ACQUIRE", "k", "place", "QUEUE", "60000"]).is_null());
        at.both.assert_no_reply();
        assert_eq!(server.cmd(&["DLOCK.RELEASE", "k", "call"]).int(), 0);
        at.both.expect_reply(SOON).int();
        assert_eq!(server.cmd(&["DLOCK.RELEASE", "k", "both"]).int(), 0);
        assert_eq!(owner(&server, "k"), "place");
        assert_eq!(server.cmd(&["DLOCK.RELEASE", "k", "place"]).int(), 0);
        server.left_over_check();
    }
}

/// No call is blocked: the queue goes with the key. It is so large that the server may free it on another thread.
#[test]
fn a_queue_of_places_alone_is_gone_with_the_key() {
    let server = start();
    for (removal, _) in REMOVALS {
        println!("{removal:?}");
        server.cmd(&["DLOCK.ACQUIRE", "k", "h", "PX", "600000"]).int();
        let mut client = server.client();
        let call = |n| args!["DLOCK.ACQUIRE", "k", format!("p{n}"), "QUEUE", 60_000];
        let calls: Vec<_> = (0..500).map(call).collect();
        assert!(client.pipeline(&calls).iter().all(Reply::is_null));
        server.cmd(removal).ok();
        wait_until("the key to go", || server.keys() == 0);
        assert!(server.cmd(&["DLOCK.INFO", "k"]).is_null());
        assert_eq!(queue(&server, "k"), [""; 0]);
        server.left_over_check_now();
        assert!(client.cmd(&["DLOCK.ACQUIRE", "k", "p99"]).int() > 0);
        assert_eq!(client.cmd(&["DLOCK.RELEASE", "k", "p99"]).int(), 0);
    }
    server.left_over_check();
}

/// The hold moves; all waiters stay with the name that they requested.
#[test]
fn everybody_stays_with_the_name_when_the_hold_moves() {
    let server = start();
    for (by, db, name) in [
        (&["RENAME", "k", "l"][..], 0, "l"),
        (&["RENAMENX", "k", "l"], 0, "l"),
        (&["MOVE", "k", "3"], 3, "k"),
        (&["SWAPDB", "0", "3"], 3, "k"),
    ] {
        println!("{by:?}");
        let mut at = Mixed::line_up(&server);
        let token = server.cmd(&["DLOCK.INFO", "k"]).field("token").int();
        server.cmd(by).ok();
        let mut there = in_db(&server, db);
        assert_eq!(there.cmd(&args!["DLOCK.CHECK", name, token]).int(), 1);
        assert_eq!(there.cmd(&["DLOCK.INFO", name]).field("waiters").int(), 0);
        assert_eq!(there.cmd(&["DLOCK.WAITERS", name]).items().len(), 0);
        assert_eq!(there.cmd(&["DLOCK.RELEASE", name, "h"]).int(), 0);
        assert_eq!(there.cmd(&["EXISTS", name]).int(), 0);
        for waiter in Mixed::ORDER {
            wait_until(waiter, || owner(&server, "k") == waiter);
            assert_eq!(server.cmd(&["DLOCK.BREAK", "k"]).int(), 1);
        }
        at.call.expect_reply(SOON).int();
        at.both.expect_reply(SOON).int();
        server.left_over_check();
    }
}

/// All owners return to `server` in reverse order, and are served in the old order.
#[track_caller]
fn served_in_order(server: &Server, key: &str, order: &[&str], holder: &str) {
    assert_eq!(queue(server, key), order);
    let rows = server.cmd(&["DLOCK.WAITERS", key]).items();
    assert!(rows.iter().all(|row| row.field("client-id").int() == 0), "{rows:?}");
    let mut client = server.client();
    for name in order.iter().rev() {
        assert!(client.cmd(&["DLOCK.ACQUIRE", key, name, "QUEUE", "60000"]).is_null());
    }
    assert_eq!(queue(server, key), order);
    let mut holder = holder;
    for name in order {
        assert_eq!(client.cmd(&["DLOCK.RELEASE", key, holder]).int(), 0);
        assert!(client.cmd(&["DLOCK.ACQUIRE", key, name]).int() > 0);
        holder = name;
    }
    assert_eq!(client.cmd(&["DLOCK.RELEASE", key, holder]).int(), 0);
}

#[test]
fn a_dump_carries_the_queue() {
    let (server, other) = (start(), start());
    let mut at = Mixed::line_up(&server);
    let dump = server.cmd(&["DUMP", "k"]).bytes();
    // Under another name, and on another server.
    server.cmd(&args!["RESTORE", "copy", 0, &dump]).ok();
    served_in_order(&server, "copy", &Mixed::ORDER, "h");
    other.cmd(&args!["RESTORE", "k", 0, &dump]).ok();
    served_in_order(&other, "k", &Mixed::ORDER, "h");
    other.left_over_check();
    // Damage at any byte is detected, or harmless.
    for at in 0..dump.len() {
        let mut damaged = dump.clone();
        damaged[at] ^= 0x41;
        let reply = other.cmd(&args!["RESTORE", "k", 0, &damaged]);
        assert!(!reply.error().is_empty(), "byte {at}");
    }
    other.left_over_check_now();
    // The source is unchanged.
    assert_eq!(queue(&server, "k"), Mixed::ORDER);
    at.call.assert_no_reply();
    for waiter in Mixed::ORDER {
        assert_eq!(server.cmd(&["DLOCK.BREAK", "k"]).int(), 1);
        assert_eq!(owner(&server, "k"), waiter);
    }
    at.both.expect_reply(SOON).int();
    assert_eq!(server.cmd(&["DLOCK.BREAK", "k"]).int(), 1);
    server.left_over_check();
}

/// Restored places have the grace of a new process, no more.
#[test]
fn restored_places_end_without_a_repeated_request() {
    let server = start();
    let _at = Mixed::line_up(&server);
    let dump = server.cmd(&["DUMP", "k"]).bytes();
    let other = Family::Fair.with(&["dlock.fair-grace-ms", "500"]).start();
    let begun = Instant::now();
    other.cmd(&args!["RESTORE", "k", 0, &dump]).ok();
    wait_until("the places that had no QUEUE to go", || {
        queue(&other, "k") == ["place", "both", "late"]
    });
    assert!(begun.elapsed() >= Duration::from_millis(500), "{:?}", begun.elapsed());
    assert!(begun.elapsed() < Duration::from_millis(500) + LATE, "{:?}", begun.elapsed());
    other.cmd(&["DEL", "k"]).int();
    other.left_over_check();
}

/// The key moves to another server with its queue; blocked calls are answered on the source.
#[test]
fn migrate_carries_the_queue() {
    let (server, other) = (start(), start());
    let mut at = Mixed::line_up(&server);
    let port = other.port();
    server.cmd(&args!["MIGRATE", "127.0.0.1", port, "k", 0, 5_000]).ok();
    served_in_order(&other, "k", &Mixed::ORDER, "h");
    other.left_over_check();
    at.call.expect_reply(SOON).int();
    assert_eq!(queue(&server, "k"), ["both"]);
    assert_eq!(server.cmd(&["DLOCK.RELEASE", "k", "call"]).int(), 0);
    at.both.expect_reply(SOON).int();
    assert_eq!(server.cmd(&["DLOCK.RELEASE", "k", "both"]).int(), 0);
    server.left_over_check();
}

/// A lock moves with its slot, and its queue with the lock: an owner that repeats its request there has its old
/// place.
#[test]
fn a_slot_that_moves_takes_queues_along() {
    let grace = ["dlock.fair-grace-ms", "60000"];
    let one = Family::Fair.with(&grace).cluster().start();
    let two = one.join(Family::Fair.with(&grace));
    let mut at = Mixed::line_up(&one);
    let slot = one.slot("k");
    one.begin_slot_move(slot, &two);
    assert_eq!(at.call.client().hear(Duration::from_millis(100)), Heard::Nothing);
    assert_eq!(one.migrate_slot_keys(slot, &two), 1);
    for waiter in [&mut at.call, &mut at.both] {
        let answer = waiter.expect_reply(SOON).error();
        assert!(answer.starts_with("MOVING "), "{answer}");
    }
    one.end_slot_move(slot, &two);
    one.left_over_check();
    served_in_order(&two, "k", &Mixed::ORDER, "h");
    two.left_over_check();
}

#[test]
fn a_time_to_live_stays_while_the_owner_does() {
    let server = start();
    let mut scene = Scene::set(&server, "k");
    server.cmd(&["EXPIRE", "k", "1000"]).ok();
    let ttl = || server.cmd(&["TTL", "k"]).int();
    // Changes of the queue do not affect it.
    let mut more = server.client();
    assert!(more.cmd(&["DLOCK.ACQUIRE", "k", "more", "QUEUE", "60000"]).is_null());
    assert!(ttl() > 900);
    assert!(more.cmd(&["DLOCK.RELEASE", "k", "more"]).is_null());
    assert!(ttl() > 900);
    assert_eq!(scene.holder.cmd(&["DLOCK.RELEASE", "k", "h"]).int(), 0);
    let token = scene.first_is_granted();
    assert_eq!(ttl(), -1);
    scene.play_out(token);
}

/// A lock that is restored over another one: its holder loses the lock, blocked calls continue to wait.
#[test]
fn a_lock_that_is_restored_over_another_keeps_blocked_calls_waiting() {
    let server = start();
    server.cmd(&["DLOCK.ACQUIRE", "source", "newholder", "PX", "600000"]).int();
    let dump = server.cmd(&["DUMP", "source"]).bytes();
    server.cmd(&["DLOCK.RELEASE", "source", "newholder"]).int();
    let mut at = Mixed::line_up(&server);
    server.cmd(&args!["RESTORE", "k", 0, &dump, "REPLACE"]).ok();
    assert_eq!(owner(&server, "k"), "newholder");
    at.call.assert_no_reply();
    at.both.assert_no_reply();
    assert_eq!(queue(&server, "k"), ["call", "both"]);
    for (holder, next) in [("newholder", &mut at.call), ("call", &mut at.both)] {
        assert_eq!(server.cmd(&["DLOCK.RELEASE", "k", holder]).int(), 0);
        next.expect_reply(SOON).int();
    }
    assert_eq!(server.cmd(&["DLOCK.RELEASE", "k", "both"]).int(), 0);
    server.left_over_check();
}
