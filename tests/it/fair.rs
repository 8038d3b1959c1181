//! DFAIR where it differs from DLOCK: a separate key type, and places that outlive their connections.

use std::time::{Duration, Instant};

use crate::{
    args,
    queue::{owner, queue},
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
fn lose(server: &Server, blocked: Blocked, by_server: bool) {
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
        "CANCEL k a",
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
        assert_eq!(client.cmd(&args!["DLOCK.CANCEL", "k", format!("owner{n}")]).int(), 1);
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
            assert!(hung.cmd(&mine.call(&format!("ACQUIRE {key} h QUEUE 30"))).is_null());
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
        assert_eq!(server.cmd(&mine.call("CANCEL k h")).int(), 1);
        server.left_over_check_now();
    }
}

#[test]
fn a_place_outlives_its_connection_and_waits_for_its_owner() {
    let server = start(LONG);
    // Forms of the repeated request; in the last two the owner stays connected on another connection.
    for (by_server, again) in [
        (false, &["BLOCK", "0"][..]),
        (true, &["BLOCK", "0", "QUEUE", "9000"]),
        (true, &["QUEUE", "9000"]),
    ] {
        server.cmd(&["DLOCK.ACQUIRE", "k", "a"]).int();
        let lost = server.block(&["DLOCK.ACQUIRE", "k", "b", "BLOCK", "0", "LABEL", "why"]);
        let mut next = server.block(&["DLOCK.ACQUIRE", "k", "c", "BLOCK", "0"]);
        lose(&server, lost, by_server);
        assert_eq!(queue(&server, "k"), ["b", "c"]);
        // A read does not bring the place back.
        assert!(server.cmd(&["DLOCK.ACQUIRE", "k", "b"]).is_null());
        let row = place(&server, 0);
        assert_eq!((row.field("client-id").int(), row.field("label").text()), (0, "why".into()));
        assert!((50_000..=60_000).contains(&row.field("remaining-ms").int()), "{}", row.show());

        let mut back = server.client();
        back.send(&[&["DLOCK.ACQUIRE", "k", "b"], again].concat());
        let id = i64::try_from(back.id()).unwrap();
        wait_until("the owner to be back", || place(&server, 0).field("client-id").int() == id);
        assert_eq!(queue(&server, "k"), ["b", "c"]);
        assert_eq!(server.cmd(&["DLOCK.POSITION", "k", "b"]).int(), 1);
        server.cmd(&["DLOCK.RELEASE", "k", "a"]).int();
        assert_eq!(owner(&server, "k"), "b");
        next.assert_no_reply();
        if again[0] == "QUEUE" {
            assert!(back.reply(SOON).is_null());
            back.send(&["DLOCK.ACQUIRE", "k", "b"]);
        }
        back.reply(SOON).int();
        assert_eq!(back.cmd(&["DLOCK.RELEASE", "k", "b"]).int(), 0);
        next.expect_reply(SOON).int();
        assert_eq!(server.cmd(&["DLOCK.RELEASE", "k", "c"]).int(), 0);
    }
    server.left_over_check();
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
fn a_place_with_queue_lasts_as_long_as_that_says() {
    // The grace, the QUEUE of `b`, and the owner that is left when the other is removed.
    for (grace, queue_ms, left) in [("60000", "100", "c"), ("100", "60000", "b")] {
        let server = start(grace);
        server.cmd(&["DLOCK.ACQUIRE", "k", "a"]).int();
        let with = server.block(&["DLOCK.ACQUIRE", "k", "b", "BLOCK", "0", "QUEUE", queue_ms]);
        let without = server.block(&["DLOCK.ACQUIRE", "k", "c", "BLOCK", "0"]);
        lose(&server, with, true);
        lose(&server, without, true);
        wait_until("the short one to go", || queue(&server, "k") == [left]);
        assert!(place(&server, 0).field("remaining-ms").int() > 40_000);
        assert_eq!(server.cmd(&["DLOCK.CANCEL", "k", left]).int(), 1);
        assert_eq!(server.cmd(&["DLOCK.RELEASE", "k", "a"]).int(), 0);
        server.left_over_check();
    }
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
    calls.push(vec!["DLOCK.CANCEL", "k", "b"]);
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
            assert_eq!(server.cmd(&call).int(), 1, "{call:?}");
            let reply = blocked.expect_reply(SOON);
            assert!(reply.is_null() || reply.error().starts_with("UNBLOCKED "), "{call:?}");
            assert_eq!(queue(&server, "k"), ["z"], "{call:?}");
            blocked.hang_up();
        }
    }
    server.cmd(&["DLOCK.RELEASE", "k", "a"]).int();
    next.expect_reply(SOON).int();
    assert_eq!(server.cmd(&["DLOCK.RELEASE", "k", "z"]).int(), 0);
    server.left_over_check();
}

/// `a` releases lock `k` to `b`. The connection of `b` is killed in the same turn of the server's loop, so that the
/// reply cannot be sent.
fn undelivered(server: &Server, options: &[&str]) -> Blocked {
    server.cmd(&["DLOCK.ACQUIRE", "k", "a"]).int();
    let mut lost = server.block(&[&["DLOCK.ACQUIRE", "k", "b", "BLOCK", "0"], options].concat());
    let next = server.block(&["DLOCK.ACQUIRE", "k", "c", "BLOCK", "0"]);
    let release = args!["DLOCK.RELEASE", "k", "a"];
    let kill = args!["CLIENT", "KILL", "ID", lost.id()];
    assert_eq!(server.client().pipeline(&[release, kill])[1].int(), 1);
    lost.expect_closed_without_reply();
    next
}

#[test]
fn a_grant_that_could_not_be_sent_waits_for_its_owner() {
    let server = start(LONG);
    server.cmd(&["CONFIG", "SET", "dlock.claim-ms", LONG]).ok();
    for (options, claim) in [
        (&[][..], &["DLOCK.ACQUIRE", "k", "b", "NOREENTRY", "PX", "90000"][..]),
        (&["REQID", "r"], &["DLOCK.ACQUIRE", "k", "b", "REQID", "r", "PX", "90000"]),
        (&["BIND", "0"], &["DLOCK.RENEW", "k", "b", "PX", "90000"]),
        (&["QUEUE", "50000"], &["DLOCK.ACQUIRE", "k", "b", "QUEUE", "1", "PX", "90000"]),
    ] {
        let mut next = undelivered(&server, &[options, &["PX", "90000"]].concat());
        let info = server.cmd(&["DLOCK.INFO", "k"]);
        assert_eq!(info.field("owner").text(), "b", "{options:?}");
        assert!((40_000..=60_000).contains(&info.field("ttl-ms").int()), "{}", info.show());
        next.assert_no_reply();
        assert_eq!(server.cmd(claim).int(), info.field("token").int(), "{claim:?}");
        let info = server.cmd(&["DLOCK.INFO", "k"]);
        assert_eq!(info.field("holds").int(), 1, "{claim:?}");
        assert!(info.field("ttl-ms").int() > 60_000, "{claim:?}");
        assert_eq!(server.cmd(&["DLOCK.RELEASE", "k", "b"]).int(), 0);
        next.expect_reply(SOON).int();
        assert_eq!(server.cmd(&["DLOCK.RELEASE", "k", "c"]).int(), 0);
    }
    // Or the lock goes to the next waiter.
    server.cmd(&["CONFIG", "SET", "dlock.fair-grace-ms", "300"]).ok();
    let begun = Instant::now();
    undelivered(&server, &[]).expect_reply(SOON).int();
    assert!(begun.elapsed() >= Duration::from_millis(300), "{:?}", begun.elapsed());
    assert_eq!(server.cmd(&["DLOCK.RELEASE", "k", "c"]).int(), 0);
    server.left_over_check();
}

#[test]
fn a_grant_that_could_not_be_sent_is_announced() {
    let server = start("2000");
    let mut listener = server.psubscribe(&["dlock:notify*", "mine"]);
    // Only an owner that requested messages gets them.
    for (options, channel) in [
        (&[][..], None),
        (&["NOTIFY", "mine"], Some("mine")),
        (&["QUEUE", "2000"], Some("dlock:notify:b")),
        (&["QUEUE", "2000", "NOTIFY", "mine"], Some("mine")),
    ] {
        let mut next = undelivered(&server, options);
        let token = server.cmd(&["DLOCK.INFO", "k"]).field("token").int();
        next.expect_reply(SOON).int();
        for event in channel.map_or(&[][..], |_| &["granted", "expired"]) {
            let (on, said) = listener.next();
            assert_eq!(Some(on.as_str()), channel, "{options:?}");
            let said = String::from_utf8_lossy(&said).into_owned();
            assert_eq!(said, format!("{event} 0 {token} 1 b 0  k"), "{options:?}");
        }
        listener.assert_none();
        assert_eq!(server.cmd(&["DLOCK.RELEASE", "k", "c"]).int(), 0);
    }
    server.left_over_check();
}

/// An owner that is granted the lock while disconnected gets a message, as a QUEUE waiter does.
#[test]
fn a_grant_to_a_disconnected_owner_is_announced() {
    let server = start(LONG);
    let mut listener = server.psubscribe(&["dlock:notify*", "mine"]);
    server.cmd(&["DLOCK.ACQUIRE", "k", "a"]).int();
    let lost = server.block(&["DLOCK.ACQUIRE", "k", "b", "BLOCK", "0", "NOTIFY", "mine"]);
    lose(&server, lost, true);
    server.cmd(&["DLOCK.RELEASE", "k", "a"]).int();
    let token = server.cmd(&["DLOCK.INFO", "k"]).field("token").int();
    let (channel, said) = listener.next();
    assert_eq!(channel, "mine");
    assert_eq!(String::from_utf8_lossy(&said), format!("granted 0 {token} 1 b 0  k"));
    // As for any hold with a channel.
    for (end, event) in [("DLOCK.BREAK", "broken"), ("DEL", "deleted")] {
        let token = server.cmd(&["DLOCK.ACQUIRE", "k", "b", "NOTIFY", "mine"]).int();
        server.cmd(&[end, "k"]).int();
        assert_eq!(listener.next_text(), format!("{event} 0 {token} 1 b 0  k"));
    }
    listener.assert_none();
    server.left_over_check();
}
