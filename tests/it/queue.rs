//! Waits: blocked calls, QUEUE waiters, claims, and everything that ends a wait.

use std::time::{Duration, Instant};

use dlock_wire::reply::{self, WaiterInfo};
use redis::Value;

use crate::{
    args,
    support::{Family, Kind, Reply, SOON, Server, wait_until},
    test_both_families,
};

test_both_families! {
    a_blocked_call_gets_the_lock_or_times_out
    commands_after_a_blocked_call_are_answered_after_it
    the_queue_is_shown_in_order
    a_grant_to_a_place_must_be_claimed
    an_unclaimed_grant_goes_to_the_next_waiter
    a_place_outlives_its_connection_by_queue
    a_hung_connection_is_passed_over_until_it_is_heard_again
    a_blocked_call_with_queue_leaves_its_place_behind
    one_place_per_owner
    a_place_or_an_unclaimed_grant_is_given_up
    an_operator_ends_a_blocked_call
    one_connection_waits_for_many_locks
}

/// Places of lost connections end at once in DFAIR, as they do in DLOCK.
fn start(family: Family) -> Server {
    family.with(&["dlock.fair-grace-ms", "0"]).start()
}

/// The owners that wait for `key`, in order of service.
pub fn queue(server: &Server, key: &str) -> Vec<String> {
    let rows = server.cmd(&["DLOCK.WAITERS", key]).items();
    rows.iter().map(|row| row.field("owner").text()).collect()
}

/// The owner of `key`; empty if it is free.
pub fn owner(server: &Server, key: &str) -> String {
    let info = server.cmd(&["DLOCK.INFO", key]);
    if info.is_null() { String::new() } else { info.field("owner").text() }
}

fn a_blocked_call_gets_the_lock_or_times_out(family: Family) {
    let server = start(family);
    let token = server.cmd(&["DLOCK.ACQUIRE", "k", "a"]).int();
    let mut patient = server.block(&["DLOCK.ACQUIRE", "k", "b", "BLOCK", "0"]);
    let mut hasty = server.post(&["DLOCK.ACQUIRE", "k", "c", "BLOCK", "80"]);
    let (reply, took) = hasty.expect_reply_timed(SOON);
    assert!(reply.is_null() && took >= Duration::from_millis(80), "{} {took:?}", reply.show());
    assert_eq!(queue(&server, "k"), ["b"]);
    patient.assert_no_reply();
    server.cmd(&["DLOCK.RELEASE", "k", "a"]).ok();
    assert!(patient.expect_reply(SOON).int() > token);
    // The connection goes on as before.
    assert_eq!(patient.client().cmd(&["DLOCK.RELEASE", "k", "b"]).int(), 0);
    assert!(hasty.client().cmd(&["DLOCK.ACQUIRE", "k", "c"]).int() > token);
    server.cmd(&["DLOCK.RELEASE", "k", "c"]).ok();
    assert_eq!(server.info_number("dlock", "timeouts"), 1);
    assert_eq!(server.info_number("dlock", "grants_after_waiting"), 1);
    server.left_over_check();
}

fn commands_after_a_blocked_call_are_answered_after_it(family: Family) {
    let server = start(family);
    server.cmd(&["DLOCK.ACQUIRE", "k", "a"]).ok();
    let longest = ["DLOCK.ACQUIRE", "k", "b", "BLOCK", "31536000000", "PX", "31536000000"];
    let mut waiter = server.block(&longest);
    waiter.client().send(&["ECHO", "later"]);
    waiter.assert_no_reply();
    let left = server.cmd(&["DLOCK.WAITERS", "k"]).items()[0].field("remaining-ms").int();
    assert!((31_535_000_000..=31_536_000_000).contains(&left), "{left}");
    server.cmd(&["DLOCK.RELEASE", "k", "a"]).ok();
    waiter.expect_reply(SOON).int();
    assert_eq!(waiter.expect_reply(SOON).text(), "later");
    server.cmd(&["DLOCK.RELEASE", "k", "b"]).ok();
    server.left_over_check();
}

fn the_queue_is_shown_in_order(family: Family) {
    let server = start(family);
    let mut viewer = server.client3();
    assert_eq!(viewer.cmd(&["DLOCK.WAITERS", "k"]), Value::Array(Vec::new()));
    server.cmd(&["DLOCK.ACQUIRE", "k", "a"]).ok();
    let timed = server.block(&["DLOCK.ACQUIRE", "k", "b", "BLOCK", "60000", "LABEL", "first"]);
    let endless = server.block(&["DLOCK.ACQUIRE", "k", "c", "BLOCK", "0"]);
    let mut placed = server.client();
    placed.cmd(&["DLOCK.ACQUIRE", "k", "d", "QUEUE", "60000", "LABEL", ""]).ok();
    let mut absent = server.client();
    absent.cmd(&["DLOCK.ACQUIRE", "k", "e", "QUEUE", "50000"]).ok();
    drop(absent);
    wait_until("the connection to be gone", || {
        server.cmd(&["DLOCK.WAITERS", "k"]).items()[3].field("client-id").int() == 0
    });
    // Owner, connection, range of the remaining time, label.
    let expected = [
        ("b", timed.id(), 30_000..60_001, "first"),
        ("c", endless.id(), -1..0, ""),
        ("d", placed.id(), -1..0, ""),
        ("e", 0, 20_000..50_001, ""),
    ];
    let maps = viewer.cmd(&["DLOCK.WAITERS", "k"]).items();
    let flat = server.cmd(&["DLOCK.WAITERS", "k"]).items();
    assert!(matches!(maps[0], Value::Map(_)) && matches!(flat[0], Value::Array(_)));
    for rows in [maps, flat] {
        assert_eq!(rows.len(), expected.len());
        for (row, (owner, client, remaining, label)) in rows.iter().zip(&expected) {
            let names: Vec<String> = row.pairs().into_iter().map(|(name, _)| name).collect();
            assert_eq!(names, reply::names(WaiterInfo::FIELDS));
            assert_eq!(row.field("owner").text(), *owner);
            assert_eq!(row.field("client-id").int(), i64::try_from(*client).unwrap());
            assert!(remaining.contains(&row.field("remaining-ms").int()), "{}", row.show());
            assert!((0..30_000).contains(&row.field("waiting-ms").int()), "{}", row.show());
            assert_eq!(row.field("label").text(), *label);
        }
    }
    assert_eq!(server.cmd(&["DLOCK.WAITERS", "k", "COUNT", "2"]).items().len(), 2);
    assert_eq!(server.cmd(&["DLOCK.WAITERS", "k", "COUNT", "9"]).items().len(), 4);
    for (owner, position) in [("a", 0), ("b", 1), ("c", 2), ("d", 3), ("e", 4)] {
        assert_eq!(server.cmd(&["DLOCK.POSITION", "k", owner]).int(), position);
    }
    assert!(server.cmd(&["DLOCK.POSITION", "k", "f"]).is_null());
    assert!(server.cmd(&["DLOCK.POSITION", "other", "a"]).is_null());
    let info = server.info("dlock");
    for (field, value) in
        [("waiters_blocked", "2"), ("waiters_queued", "2"), ("longest_queue", "4")]
    {
        assert_eq!(info[field], value, "{field}");
    }
    for waiter in ["e", "d"] {
        assert_eq!(server.cmd(&["DLOCK.CANCEL", "k", waiter]).int(), 1);
    }
    drop((timed, endless));
    server.wait_blocked(0);
    server.cmd(&["DLOCK.RELEASE", "k", "a"]).ok();
    server.left_over_check();
}

fn a_grant_to_a_place_must_be_claimed(family: Family) {
    let server = start(family);
    let mut client = server.client();
    for (request, claim) in [
        ("r1", &["DLOCK.ACQUIRE", "k", "b"][..]),
        ("r2", &["DLOCK.ACQUIRE", "k", "b", "NOREENTRY", "EX", "30"]),
        ("r3", &["DLOCK.ACQUIRE", "k", "b", "BLOCK", "0", "QUEUE", "1"]),
        ("r4", &["DLOCK.ACQUIRE", "k", "b", "REQID", "r4"]),
        ("r5", &["DLOCK.RENEW", "k", "b", "PX", "30000"]),
    ] {
        server.cmd(&["DLOCK.ACQUIRE", "k", "a"]).ok();
        let ask = ["DLOCK.ACQUIRE", "k", "b", "QUEUE", "20000", "REQID", request, "EX", "30"];
        assert!(client.cmd(&ask).is_null());
        // A repeated request tells a client that it still has its place.
        assert!(client.cmd(&ask).is_null());
        assert_eq!(queue(&server, "k"), ["b"]);
        server.cmd(&["DLOCK.RELEASE", "k", "a"]).ok();
        let info = server.cmd(&["DLOCK.INFO", "k"]);
        assert_eq!(info.field("owner").text(), "b");
        assert!((1..=20_000).contains(&info.field("ttl-ms").int()), "{}", info.show());
        assert!(server.cmd(&["DLOCK.ACQUIRE", "k", "c"]).is_null());
        let token = info.field("token").int();
        assert_eq!(server.cmd(claim).int(), token, "{claim:?}");
        let info = server.cmd(&["DLOCK.INFO", "k"]);
        assert_eq!(info.field("holds").int(), 1, "{claim:?}");
        assert_eq!(info.field("lease-ms").int(), 30_000, "{claim:?}");
        assert!(info.field("ttl-ms").int() > 20_000, "{claim:?}");
        // From here on it is an ordinary hold.
        assert_eq!(server.cmd(&["DLOCK.CANCEL", "k", "b"]).int(), 0);
        assert_eq!(server.cmd(&["DLOCK.ACQUIRE", "k", "b"]).int(), token);
        assert_eq!(server.cmd(&["DLOCK.RELEASE", "k", "b"]).int(), 1, "{claim:?}");
        assert_eq!(server.cmd(&["DLOCK.RELEASE", "k", "b"]).int(), 0);
    }
    assert_eq!(server.info_number("dlock", "unclaimed"), 0);
    server.left_over_check();
}

fn an_unclaimed_grant_goes_to_the_next_waiter(family: Family) {
    let server = start(family);
    let mut client = server.client();
    server.cmd(&["DLOCK.ACQUIRE", "k", "a"]).ok();
    client.cmd(&["DLOCK.ACQUIRE", "k", "b", "QUEUE", "60"]).ok();
    let mut next = server.block(&["DLOCK.ACQUIRE", "k", "c", "BLOCK", "0"]);
    let released = Instant::now();
    server.cmd(&["DLOCK.RELEASE", "k", "a"]).ok();
    next.expect_reply(SOON).int();
    assert!(released.elapsed() >= Duration::from_millis(60), "{:?}", released.elapsed());
    assert_eq!(server.info_number("dlock", "unclaimed"), 1);
    let late = client.cmd(&["DLOCK.RENEW", "k", "b"]).error();
    assert!(late.starts_with("NOTHELD "), "{late}");
    server.cmd(&["DLOCK.RELEASE", "k", "c"]).ok();
    server.left_over_check();
}

fn a_place_outlives_its_connection_by_queue(family: Family) {
    let server = start(family);
    let ask = |owner: &str, ms: &str| {
        let mut client = server.client();
        assert!(client.cmd(&["DLOCK.ACQUIRE", "k", owner, "QUEUE", ms]).is_null());
    };
    server.cmd(&["DLOCK.ACQUIRE", "k", "a"]).ok();
    ask("b", "1");
    wait_until("the short place to go", || queue(&server, "k").is_empty());
    ask("c", "30000");
    wait_until("the connection to go", || {
        server.cmd(&["DLOCK.WAITERS", "k"]).items()[0].field("client-id").int() == 0
    });
    server.cmd(&["DLOCK.RELEASE", "k", "a"]).ok();
    if family == Family::Fair {
        let left = server.cmd(&["DLOCK.INFO", "k"]).field("ttl-ms").int();
        assert!((1..=30_000).contains(&left), "{left}");
        assert_eq!(owner(&server, "k"), "c");
        server.client().cmd(&["DLOCK.ACQUIRE", "k", "c"]).int();
    } else {
        // It is granted nothing until its owner repeats the request.
        assert_eq!(owner(&server, "k"), "");
        server.client().cmd(&["DLOCK.ACQUIRE", "k", "c", "QUEUE", "1"]).int();
    }
    // A repeat from another connection moves the place there.
    let (mut old, mut new) = (server.client(), server.client());
    old.cmd(&["DLOCK.ACQUIRE", "k", "d", "QUEUE", "1"]).ok();
    new.cmd(&["DLOCK.ACQUIRE", "k", "d", "QUEUE", "1"]).ok();
    server.cmd(&args!["CLIENT", "KILL", "ID", old.id()]).ok();
    let row = server.cmd(&["DLOCK.WAITERS", "k"]).items()[0].clone();
    assert_eq!(row.field("client-id").int(), i64::try_from(new.id()).unwrap());
    drop(new);
    wait_until("the place to go", || queue(&server, "k").is_empty());
    server.cmd(&["DLOCK.RELEASE", "k", "c"]).ok();
    server.left_over_check();
}

fn a_hung_connection_is_passed_over_until_it_is_heard_again(family: Family) {
    let server = start(family);
    for heard in [
        &["DLOCK.RELEASE", "other", "h"][..],
        &["DLOCK.POSITION", "k2", "h"],
        &["DLOCK.UNBLOCK", "1"],
    ] {
        let mut hung = server.client();
        // The first grant expires, the second is claimed.
        for (key, queue) in [("k1", "30"), ("k2", "60000")] {
            server.cmd(&["DLOCK.ACQUIRE", key, "a"]).ok();
            hung.cmd(&["DLOCK.ACQUIRE", key, "h", "QUEUE", queue]).ok();
        }
        let mut next = server.block(&["DLOCK.ACQUIRE", "k1", "b", "BLOCK", "0"]);
        server.cmd(&["DLOCK.RELEASE", "k1", "a"]).ok();
        next.expect_reply(SOON).int();
        // One QUEUE was lost, the second was not.
        server.cmd(&["DLOCK.RELEASE", "k2", "a"]).ok();
        assert_eq!(owner(&server, "k2"), "");
        assert_eq!(queue(&server, "k2"), ["h"]);
        assert!(server.cmd(&["DLOCK.ACQUIRE", "k2", "b"]).int() > 0);
        server.cmd(&["DLOCK.RELEASE", "k2", "b"]).ok();
        assert_eq!(queue(&server, "k2"), ["h"]);
        hung.cmd(heard);
        wait_until(&format!("the grant after {heard:?}"), || owner(&server, "k2") == "h");
        hung.cmd(&["DLOCK.ACQUIRE", "k2", "h"]).int();
        for (key, owner) in [("k1", "b"), ("k2", "h")] {
            assert_eq!(server.cmd(&["DLOCK.RELEASE", key, owner]).int(), 0);
        }
    }
    server.left_over_check();
}

fn a_blocked_call_with_queue_leaves_its_place_behind(family: Family) {
    let server = start(family);
    server.cmd(&["DLOCK.ACQUIRE", "k", "a"]).ok();
    let call =
        |owner, block| ["DLOCK.ACQUIRE", "k", owner, "BLOCK", block, "QUEUE", "60000"].to_vec();
    let mut timed_out = server.post(&call("b", "10"));
    assert!(timed_out.expect_reply(SOON).is_null());
    let mut unblocked = server.block(&call("c", "0"));
    assert_eq!(server.cmd(&args!["DLOCK.UNBLOCK", unblocked.id(), "ERROR"]).int(), 1);
    assert!(unblocked.expect_reply(SOON).error().starts_with("UNBLOCKED "));
    let killed = server.block(&call("d", "0"));
    server.cmd(&args!["CLIENT", "KILL", "ID", killed.id()]).ok();
    wait_until("the connection to be gone", || {
        server.cmd(&["DLOCK.WAITERS", "k"]).items()[2].field("client-id").int() == 0
    });
    let rows = server.cmd(&["DLOCK.WAITERS", "k"]).items();
    let clients: Vec<i64> = rows.iter().map(|row| row.field("client-id").int()).collect();
    let id = |client: u64| i64::try_from(client).unwrap();
    assert_eq!(clients, [id(timed_out.id()), id(unblocked.id()), 0]);
    assert_eq!(queue(&server, "k"), ["b", "c", "d"]);
    for owner in ["a", "b", "c"] {
        assert_eq!(server.cmd(&["DLOCK.RELEASE", "k", owner]).int(), 0);
    }
    // Only a fair lock is granted to a place without a connection.
    let last = if family == Family::Fair {
        assert_eq!(server.cmd(&["DLOCK.RELEASE", "k", "d"]).int(), 0);
        0
    } else {
        1
    };
    assert_eq!(server.cmd(&["DLOCK.CANCEL", "k", "d"]).int(), last);
    server.left_over_check();
}

fn one_place_per_owner(family: Family) {
    let server = start(family);
    server.cmd(&["DLOCK.ACQUIRE", "k", "a"]).ok();
    let mut first = server.block(&["DLOCK.ACQUIRE", "k", "b", "BLOCK", "0", "LABEL", "old"]);
    let behind = server.block(&["DLOCK.ACQUIRE", "k", "c", "BLOCK", "0"]);
    // A call that does not wait leaves the place alone.
    assert!(server.cmd(&["DLOCK.ACQUIRE", "k", "b", "LABEL", "no"]).is_null());
    first.assert_no_reply();
    let replaced = r#"REPLACED "b" asked again for "k" with another call"#;
    let mut second =
        server.block(&["DLOCK.ACQUIRE", "k", "b", "BLOCK", "0", "PX", "7000", "LABEL", "new"]);
    assert_eq!(first.expect_reply(SOON).error(), replaced);
    assert_eq!(queue(&server, "k"), ["b", "c"]);
    let row = server.cmd(&["DLOCK.WAITERS", "k"]).items()[0].clone();
    assert_eq!(row.field("label").text(), "new");
    assert_eq!(row.field("client-id").int(), i64::try_from(second.id()).unwrap());
    // The connection of the earlier call no longer affects the place.
    first.hang_up();
    server.cmd(&["DLOCK.RELEASE", "k", "a"]).ok();
    second.expect_reply(SOON).int();
    assert_eq!(server.cmd(&["DLOCK.INFO", "k"]).field("lease-ms").int(), 7_000);
    // By a QUEUE call, and back.
    let mut blocked = server.block(&["DLOCK.ACQUIRE", "k", "d", "BLOCK", "0"]);
    assert!(second.client().cmd(&["DLOCK.ACQUIRE", "k", "d", "QUEUE", "60000"]).is_null());
    assert_eq!(blocked.expect_reply(SOON).error(), replaced.replace("\"b\"", "\"d\""));
    let mut blocked = server.block(&["DLOCK.ACQUIRE", "k", "d", "BLOCK", "0"]);
    assert_eq!(queue(&server, "k"), ["c", "d"]);
    behind.hang_up();
    wait_until("the place to go", || queue(&server, "k") == ["d"]);
    server.cmd(&["DLOCK.RELEASE", "k", "b"]).ok();
    blocked.expect_reply(SOON).int();
    server.cmd(&["DLOCK.RELEASE", "k", "d"]).ok();
    assert_eq!(server.info_number("dlock", "replaced"), 2);
    server.left_over_check();
}

fn a_place_or_an_unclaimed_grant_is_given_up(family: Family) {
    let server = start(family);
    let mut client = server.client();
    server.cmd(&["DLOCK.ACQUIRE", "k", "a"]).ok();
    assert_eq!(server.cmd(&["DLOCK.CANCEL", "k", "a"]).int(), 0);
    assert_eq!(server.cmd(&["DLOCK.CANCEL", "nothing", "a"]).int(), 0);
    let mut blocked = server.block(&["DLOCK.ACQUIRE", "k", "b", "BLOCK", "0"]);
    client.cmd(&["DLOCK.ACQUIRE", "k", "c", "QUEUE", "60000"]).ok();
    client.cmd(&["DLOCK.ACQUIRE", "k", "d", "QUEUE", "60000"]).ok();
    let mut last = server.block(&["DLOCK.ACQUIRE", "k", "e", "BLOCK", "0"]);
    assert_eq!(server.cmd(&["DLOCK.CANCEL", "k", "b"]).int(), 1);
    assert!(blocked.expect_reply(SOON).is_null());
    assert_eq!(server.cmd(&["DLOCK.CANCEL", "k", "b"]).int(), 0);
    assert_eq!(server.cmd(&["DLOCK.CANCEL", "k", "c"]).int(), 1);
    assert_eq!(queue(&server, "k"), ["d", "e"]);
    server.cmd(&["DLOCK.RELEASE", "k", "a"]).ok();
    assert_eq!(owner(&server, "k"), "d");
    last.assert_no_reply();
    assert_eq!(server.cmd(&["DLOCK.CANCEL", "k", "d"]).int(), 1);
    last.expect_reply(SOON).int();
    server.cmd(&["DLOCK.RELEASE", "k", "e"]).ok();
    server.left_over_check();
}

fn an_operator_ends_a_blocked_call(family: Family) {
    let server = start(family);
    server.cmd(&["DLOCK.ACQUIRE", "k", "a"]).ok();
    let by_operator = "UNBLOCKED an operator ended this call (DLOCK.UNBLOCK)";
    let by_server = "UNBLOCKED client unblocked via CLIENT UNBLOCK";
    let mut cases = vec![
        (&["DLOCK.UNBLOCK"][..], &[][..], None),
        (&["DLOCK.UNBLOCK"], &["ERROR"], Some(by_operator)),
    ];
    if Kind::of_binary().client_unblock_is_safe() {
        cases.push((&["CLIENT", "UNBLOCK"], &[], None));
        cases.push((&["CLIENT", "UNBLOCK"], &["TIMEOUT"], None));
        cases.push((&["CLIENT", "UNBLOCK"], &["ERROR"], Some(by_server)));
    }
    for (before, after, error) in cases {
        let mut waiter = server.block(&["DLOCK.ACQUIRE", "k", "b", "BLOCK", "0"]);
        let id = waiter.id().to_string();
        let call = [before, &[&id], after].concat();
        assert_eq!(server.cmd(&call).int(), 1, "{call:?}");
        let reply = waiter.expect_reply(SOON);
        match error {
            Some(error) => assert_eq!(reply.error(), error, "{call:?}"),
            None => assert!(reply.is_null(), "{call:?} {}", reply.show()),
        }
        wait_until("the place to go", || queue(&server, "k").is_empty());
        // The connection still works, and is not blocked.
        assert_eq!(waiter.client().cmd(&["PING"]).show(), "PONG");
        assert_eq!(server.cmd(&call).int(), 0, "{call:?}");
    }
    if !Kind::of_binary().client_unblock_is_safe() {
        let mut waiter = server.block(&["DLOCK.ACQUIRE", "k", "b", "BLOCK", "0"]);
        assert_eq!(server.cmd(&args!["CLIENT", "UNBLOCK", waiter.id()]).int(), 0);
        waiter.assert_no_reply();
        waiter.hang_up();
        server.wait_blocked(0);
    }
    // It does not affect calls that block on other keys, nor unknown connections.
    let list = server.block(&["BLPOP", "list", "0"]);
    assert_eq!(server.cmd(&args!["DLOCK.UNBLOCK", list.id()]).int(), 0);
    assert_eq!(server.cmd(&["DLOCK.UNBLOCK", "9223372036854775807", "ERROR"]).int(), 0);
    list.hang_up();
    server.cmd(&["DLOCK.RELEASE", "k", "a"]).ok();
    server.left_over_check();
}

fn one_connection_waits_for_many_locks(family: Family) {
    const LOCKS: usize = 300;
    let server = start(family);
    let (mut holder, mut waiter) = (server.client(), server.client());
    let calls = |owner: &str, verb: &str, queue: bool| -> Vec<Vec<Vec<u8>>> {
        let tail = if queue { args!["QUEUE", 60_000] } else { Vec::new() };
        let call = |n| [args![verb, format!("k{n}"), owner], tail.clone()].concat();
        (0..LOCKS).map(call).collect()
    };
    holder.pipeline(&calls("a", "DLOCK.ACQUIRE", false));
    assert!(waiter.pipeline(&calls("b", "DLOCK.ACQUIRE", true)).iter().all(Reply::is_null));
    assert_eq!(server.info_number("dlock", "waiters_queued"), 300);
    holder.pipeline(&calls("a", "DLOCK.RELEASE", false));
    let tokens = waiter.pipeline(&calls("b", "DLOCK.ACQUIRE", true));
    assert!(tokens.windows(2).all(|pair| pair[0].int() < pair[1].int()));
    assert!(waiter.pipeline(&calls("b", "DLOCK.RELEASE", false)).iter().all(|n| n.int() == 0));
    server.left_over_check();
}
