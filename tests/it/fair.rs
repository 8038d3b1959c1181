//! DFAIR where it differs from DLOCK: a separate key type, and places that outlive their connections.

use std::time::{Duration, Instant};

use crate::{
    args,
    queue::queue,
    restart::LATE,
    support::{Blocked, Family, Kind, Reply, SOON, Server, wait_until},
};

/// A server that keeps places of lost connections for this time.
fn start(grace_ms: &str) -> Server {
    Family::Fair.with(&["dlock.fair-grace-ms", grace_ms]).start()
}

/// A grace that no test waits for.
const LONG: &str = "60000";

/// Closes a connection from either end, and returns when the server knows.
#[track_caller]
pub fn lose(server: &Server, blocked: Blocked, by_server: bool) {
    let connected = server.info_number("dlock", "waiters_blocked");
    if by_server {
        server.cmd(&args!["CLIENT", "KILL", "ID", blocked.id()]).ok();
    }
    blocked.hang_up();
    wait_until("the call to be lost", || {
        server.info_number("dlock", "waiters_blocked") == connected - 1
    });
}

/// The `n`th row of WAITERS.
fn place(server: &Server, n: usize) -> redis::Value {
    server.cmd(&["DLOCK.WAITERS", "k"]).items()[n].clone()
}

#[test]
fn each_family_has_a_key_type_of_its_own() {
    let calls = [
        "ACQUIRE k a",
        "ACQUIRE k b BLOCK 0",
        "ACQUIRE k b QUEUE 1000",
        "RELEASE k a",
        "RENEW k a",
        "CHECK k 1",
        "FENCE k a 1",
        "BREAK k",
        "INFO k",
        "WAITERS k",
        "POSITION k a",
    ];
    let server = Server::start();
    let refuses = |family: Family| {
        for call in calls {
            let refusal = server.cmd(&family.call(call)).error();
            assert!(refusal.starts_with("WRONGTYPE "), "{family:?} {call}: {refusal}");
        }
    };
    for (mine, other) in [(Family::Lock, Family::Fair), (Family::Fair, Family::Lock)] {
        server.cmd(&mine.call("ACQUIRE k a")).int();
        let digest = server.digest();
        assert_eq!(server.cmd(&["TYPE", "k"]).text(), mine.key_type());
        refuses(other);
        assert_eq!(server.digest(), digest);
        for (family, found) in [(mine, "[\"k\"]"), (other, "[]")] {
            let scan = server.cmd(&["SCAN", "0", "COUNT", "100", "TYPE", family.key_type()]);
            assert_eq!(scan.items()[1].show(), found);
        }
        assert_eq!(server.cmd(&mine.call("RELEASE k a")).int(), 0);
        server.cmd(&["SET", "k", "v"]).ok();
        refuses(mine);
        server.cmd(&["DEL", "k"]).ok();
    }
    server.left_over_check();
}

#[test]
fn the_queue_counts_as_memory_of_the_key() {
    let server = start(LONG);
    let mut client = server.client();
    client.cmd(&["DLOCK.ACQUIRE", "k", "a"]).int();
    let usage = || server.cmd(&["MEMORY", "USAGE", "k"]).int();
    let without = usage();
    let ask = |n| {
        args!["DLOCK.ACQUIRE", "k", format!("owner{n}"), "QUEUE", 60_000, "LABEL", "x".repeat(100)]
    };
    assert!(client.pipeline(&(0..100).map(ask).collect::<Vec<_>>()).iter().all(Reply::is_null));
    let with = usage();
    // The label alone is a hundred bytes.
    assert!((100 * 100..100 * 1_024).contains(&(with - without)), "{without} {with}");
    for n in 0..100 {
        assert!(client.cmd(&args!["DLOCK.RELEASE", "k", format!("owner{n}")]).is_null());
    }
    assert!(usage() < with / 4, "{without} {with} {}", usage());
    assert_eq!(client.cmd(&["DLOCK.RELEASE", "k", "a"]).int(), 0);
    server.left_over_check();
}

/// There is no holder, and the server skips the only waiter: the type is still that of the queue.
#[test]
fn a_lock_that_is_only_waited_for_has_a_type_too() {
    let server = Server::start();
    for (mine, other) in [(Family::Lock, Family::Fair), (Family::Fair, Family::Lock)] {
        let mut hung = server.client();
        for key in ["first", "k"] {
            server.cmd(&mine.call(&format!("ACQUIRE {key} a"))).int();
            assert!(hung.cmd(&mine.call(&format!("ACQUIRE {key} h QUEUE 30 PX 30"))).is_null());
        }
        server.cmd(&mine.call("RELEASE first a")).int();
        // A read shows the grant as ended shortly before it is removed.
        wait_until("the grant to expire", || server.keys() == 1);
        server.cmd(&mine.call("RELEASE k a")).int();
        let info = server.cmd(&mine.call("INFO k"));
        assert_eq!(info.field("owner").text(), "");
        assert_eq!((info.field("holds").int(), info.field("waiters").int()), (0, 1));
        if mine == Family::Fair {
            // The queue is part of the key.
            assert_eq!(server.cmd(&["TYPE", "k"]).text(), mine.key_type());
        }
        for call in ["ACQUIRE k x", "ACQUIRE k x BLOCK 0", "INFO k", "WAITERS k", "POSITION k h"] {
            let refusal = server.cmd(&other.call(call)).error();
            assert!(refusal.starts_with("WRONGTYPE "), "{other:?} {call}: {refusal}");
        }
        assert!(server.cmd(&mine.call("RELEASE k h")).is_null());
        server.left_over_check_now();
    }
}

/// If an owner without a connection comes first, it holds the lock, unclaimed, for the rest of its grace.
#[test]
fn a_disconnected_owner_costs_the_rest_of_its_grace() {
    const GRACE: Duration = Duration::from_secs(3);
    let server = start("3000");
    for comes_back in [false, true] {
        server.cmd(&["DLOCK.ACQUIRE", "k", "a"]).int();
        let lost = server.block(&["DLOCK.ACQUIRE", "k", "b", "BLOCK", "0", "PX", "90000"]);
        let mut next = server.block(&["DLOCK.ACQUIRE", "k", "c", "BLOCK", "0"]);
        let begun = Instant::now();
        lose(&server, lost, true);
        let known = Instant::now();
        wait_until("some of the grace to pass", || {
            place(&server, 0).field("remaining-ms").int() < 2_900
        });
        server.cmd(&["DLOCK.RELEASE", "k", "a"]).int();
        let info = server.cmd(&["DLOCK.INFO", "k"]);
        assert_eq!(info.field("owner").text(), "b");
        assert!((1..=2_900).contains(&info.field("ttl-ms").int()), "{}", info.show());
        if comes_back {
            // Even without BLOCK or QUEUE.
            let token = server.cmd(&["DLOCK.ACQUIRE", "k", "b"]).int();
            assert_eq!(token, info.field("token").int());
            assert!(server.cmd(&["DLOCK.INFO", "k"]).field("ttl-ms").int() > 3_000);
            next.assert_no_reply();
            assert_eq!(server.cmd(&["DLOCK.RELEASE", "k", "b"]).int(), 0);
            next.expect_reply(SOON).int();
        } else {
            next.expect_reply(SOON).int();
            assert!(begun.elapsed() >= GRACE, "{:?}", begun.elapsed());
            assert!(known.elapsed() < GRACE + LATE, "{:?}", known.elapsed());
            assert!(server.cmd(&["DLOCK.RENEW", "k", "b"]).error().starts_with("NOTHELD "));
            assert_eq!(server.info_number("dlock", "unclaimed"), 1);
        }
        assert_eq!(server.cmd(&["DLOCK.RELEASE", "k", "c"]).int(), 0);
    }
    // An owner whose grace ends before it comes first leaves the queue.
    server.cmd(&["DLOCK.ACQUIRE", "k", "a"]).int();
    let lost = server.block(&["DLOCK.ACQUIRE", "k", "b", "BLOCK", "0"]);
    let begun = Instant::now();
    lose(&server, lost, false);
    wait_until("the place to go", || queue(&server, "k").is_empty());
    assert!(begun.elapsed() >= GRACE, "{:?}", begun.elapsed());
    assert_eq!(server.cmd(&["DLOCK.RELEASE", "k", "a"]).int(), 0);
    server.left_over_check();
}

#[test]
fn an_owner_that_gave_up_is_removed_at_once() {
    let server = start(LONG);
    server.cmd(&["DLOCK.ACQUIRE", "k", "a"]).int();
    let mut next = server.block(&["DLOCK.ACQUIRE", "k", "z", "BLOCK", "0"]);
    let mut calls = vec![vec!["DLOCK.UNBLOCK", "ID"], vec!["DLOCK.UNBLOCK", "ID", "ERROR"]];
    if Kind::of_binary().client_unblock_is_safe() {
        calls.push(vec!["CLIENT", "UNBLOCK", "ID"]);
        calls.push(vec!["CLIENT", "UNBLOCK", "ID", "ERROR"]);
    }
    calls.push(vec!["DLOCK.RELEASE", "k", "b"]);
    for returns in [false, true] {
        // A place that was lost and resumed is the same one.
        if returns {
            let lost = server.block(&["DLOCK.ACQUIRE", "k", "b", "BLOCK", "0"]);
            lose(&server, lost, true);
        }
        let mut hasty = server.post(&["DLOCK.ACQUIRE", "k", "b", "BLOCK", "10"]);
        assert!(hasty.expect_reply(SOON).is_null());
        assert_eq!(queue(&server, "k"), ["z"]);
        for call in &calls {
            let mut blocked = server.block(&["DLOCK.ACQUIRE", "k", "b", "BLOCK", "0"]);
            let id = blocked.id().to_string();
            let call: Vec<&str> =
                call.iter().map(|&word| if word == "ID" { &id } else { word }).collect();
            let answer = server.cmd(&call);
            assert!(answer.is_null() || answer.int() == 1, "{call:?}: {}", answer.show());
            let reply = blocked.expect_reply(SOON);
            let code = if call[0].starts_with("DLOCK") { "STOPPED " } else { "UNBLOCKED " };
            assert!(reply.is_null() || reply.error().starts_with(code), "{call:?}");
            assert_eq!(queue(&server, "k"), ["z"], "{call:?}");
            blocked.hang_up();
        }
    }
    server.cmd(&["DLOCK.RELEASE", "k", "a"]).int();
    next.expect_reply(SOON).int();
    assert_eq!(server.cmd(&["DLOCK.RELEASE", "k", "z"]).int(), 0);
    server.left_over_check();
}
