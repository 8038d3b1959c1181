//! Waits: blocked calls, QUEUE waiters, grants to them, and everything that ends a wait.

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
    an_unclaimed_grant_goes_to_the_next_waiter
    a_hung_connection_is_passed_over_until_it_is_heard_again
    a_replaced_call_is_told_so
    an_operator_ends_a_blocked_call
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
        assert!(server.cmd(&["DLOCK.RELEASE", "k", waiter]).is_null());
    }
    drop((timed, endless));
    server.wait_blocked(0);
    server.cmd(&["DLOCK.RELEASE", "k", "a"]).ok();
    server.left_over_check();
}

fn an_unclaimed_grant_goes_to_the_next_waiter(family: Family) {
    let server = start(family);
    let mut client = server.client();
    server.cmd(&["DLOCK.ACQUIRE", "k", "a"]).ok();
    client.cmd(&["DLOCK.ACQUIRE", "k", "b", "QUEUE", "60", "PX", "1"]).ok();
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

fn a_hung_connection_is_passed_over_until_it_is_heard_again(family: Family) {
    let server = start(family);
    for heard in [
        &["DLOCK.RELEASE", "other", "h"][..],
        &["DLOCK.POSITION", "k2", "h"],
        &["DLOCK.UNBLOCK", "1"],
    ] {
        let mut hung = server.client();
        // The first grant expires, the second is taken over.
        for (key, queue, lease) in [("k1", "30", "1"), ("k2", "60000", "30000")] {
            server.cmd(&["DLOCK.ACQUIRE", key, "a"]).ok();
            hung.cmd(&["DLOCK.ACQUIRE", key, "h", "QUEUE", queue, "PX", lease]).ok();
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

fn an_operator_ends_a_blocked_call(family: Family) {
    let server = start(family);
    server.cmd(&["DLOCK.ACQUIRE", "k", "a"]).ok();
    let by_operator = "STOPPED an operator ended this call (DLOCK.UNBLOCK)";
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

fn a_replaced_call_is_told_so(family: Family) {
    let server = start(family);
    server.cmd(&["DLOCK.ACQUIRE", "k", "a"]).ok();
    let mut first = server.block(&["DLOCK.ACQUIRE", "k", "b", "BLOCK", "0"]);
    let mut second = server.block(&["DLOCK.ACQUIRE", "k", "b", "BLOCK", "0"]);
    let replaced = r#"REPLACED "b" asked again for "k" with another call"#;
    assert_eq!(first.expect_reply(SOON).error(), replaced);
    // The connection of the earlier call no longer affects the place.
    first.hang_up();
    server.cmd(&["DLOCK.RELEASE", "k", "a"]).ok();
    second.expect_reply(SOON).int();
    assert_eq!(server.info_number("dlock", "replaced"), 1);
    server.cmd(&["DLOCK.RELEASE", "k", "b"]).ok();
    server.left_over_check();
}
