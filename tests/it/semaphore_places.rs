//! QUEUE waiters for permits: one per owner, with a count that the claim must match.

use std::time::{Duration, Instant};

use dlock_wire::reply::{self, WaiterInfo};

use crate::{
    story::{Story, sem},
    support::{Reply, SOON, Server, wait_until},
};

#[test]
fn a_repeat_keeps_the_place_unless_it_wants_more() {
    let server = Server::start();
    let mut story = Story::on(&server);
    story.go(&[
        ("DSEM.INIT s 3", "1"),
        ("DSEM.ACQUIRE s a COUNT 3", "id p"),
        ("1: DSEM.ACQUIRE s b COUNT 2 BLOCK 0", "waits"),
        ("2: DSEM.ACQUIRE s c BLOCK 0", "waits"),
        ("DSEM.ACQUIRE s b", "nil"),
        ("DSEM.ACQUIRE s b COUNT 3", "nil"),
        ("1", "waits"),
        ("3: DSEM.ACQUIRE s b COUNT 2 BLOCK 0", "waits"),
        ("1", r#"REPLACED "b" asked again for "s" with another call"#),
        ("sem s", "0 of 3 (3 leased, 0 taken); waits b c"),
        // A smaller count does not lose the place.
        ("1: DSEM.ACQUIRE s b COUNT 1 QUEUE 60000", "nil"),
        ("3", "REPLACED "),
        ("sem s", "0 of 3 (3 leased, 0 taken); waits b c"),
        ("1: DSEM.ACQUIRE s b COUNT 3 QUEUE 60000", "nil"),
        ("sem s", "0 of 3 (3 leased, 0 taken); waits c b"),
        ("DSEM.CANCEL s b", "1"),
        ("DSEM.CANCEL s b", "0"),
        ("DSEM.RELEASE s $p", "2"),
        ("2", "id q"),
        ("DEL s", "1"),
    ]);
    assert_eq!(server.info_number("dlock", "replaced"), 2);
    story.end();
}

#[test]
fn a_grant_to_a_place_is_claimed_with_its_count() {
    // The requests of each round have the same id.
    let server = Server::with(&["dlock.request-memory-ms", "0"]).start();
    let mut messages = server.subscribe(&["dlock:notify:b"]);
    let mut story = Story::on(&server);
    for claim in [
        "q: DSEM.ACQUIRE s b COUNT 2",
        "DSEM.ACQUIRE s b COUNT 2 BLOCK 0 EX 30",
        "DSEM.ACQUIRE s b COUNT 2 QUEUE 1 EX 30 LIMIT 1",
        "DSEM.ACQUIRE s b COUNT 2 REQID r",
        "DSEM.RENEW",
    ] {
        println!("{claim}");
        story.go(&[
            ("DSEM.INIT s 3", "1"),
            ("DSEM.ACQUIRE s a COUNT 3", "id p"),
            ("q: DSEM.ACQUIRE s b COUNT 2 QUEUE 20000 EX 30 REQID r", "nil"),
            ("q: DSEM.ACQUIRE s b COUNT 2 QUEUE 20000 EX 30 REQID r", "nil"),
            ("DSEM.RELEASE s $p", "1"),
            ("sem s", "1 of 3 (2 leased, 0 taken)"),
        ]);
        let permit = server.cmd(&["DSEM.PERMITS", "s"]).items()[0].clone();
        let id = permit.field("id").text();
        assert!((1..=20_000).contains(&permit.field("ttl-ms").int()), "{}", permit.show());
        assert_eq!(messages.next_text(), format!("granted 0 {id} 1 b 1 r s"));
        // Another count is another request.
        story.go(&[("DSEM.ACQUIRE s b COUNT 1", "id other"), ("DSEM.RELEASE s $other", "1")]);
        if claim == "DSEM.RENEW" {
            let call = format!("DSEM.RENEW s {id} EX 30");
            story.go(&[(&call, "1")]);
        } else {
            story.go(&[(claim, "id q")]);
            assert_eq!(story.value("q"), id, "{claim}");
        }
        let permit = server.cmd(&["DSEM.PERMITS", "s"]).items()[0].clone();
        assert!(permit.field("ttl-ms").int() > 20_000, "{claim}: {}", permit.show());
        let call = format!("DSEM.RELEASE s {id}");
        // From here on it is an ordinary permit, and the next call takes another.
        story.go(&[("DSEM.CANCEL s b", "0"), (&call, "3"), ("DEL s", "1")]);
    }
    // Returned instead.
    story.go(&[
        ("DSEM.INIT s 1", "1"),
        ("DSEM.TAKE s", "1"),
        ("q: DSEM.ACQUIRE s b QUEUE 60000", "nil"),
        ("n: DSEM.ACQUIRE s c BLOCK 0", "waits"),
        ("DSEM.GIVE s", "0"),
        ("n", "waits"),
        ("DSEM.CANCEL s b", "1"),
        ("n", "id n"),
        ("DEL s", "1"),
    ]);
    messages.next_text();
    messages.assert_none();
    assert_eq!(server.info_number("dlock", "unclaimed"), 0);
    story.end();
}

#[test]
fn unclaimed_grants_go_to_the_next_waiter() {
    let server = Server::start();
    let mut hung = server.client();
    server.cmd(&["DSEM.INIT", "s", "1"]).int();
    server.cmd(&["DSEM.TAKE", "s"]).int();
    for (owner, queue) in [("b", "60"), ("c", "60000")] {
        assert!(hung.cmd(&["DSEM.ACQUIRE", "s", owner, "QUEUE", queue]).is_null());
    }
    let mut next = server.block(&["DSEM.ACQUIRE", "s", "d", "BLOCK", "0"]);
    let given = Instant::now();
    assert_eq!(server.cmd(&["DSEM.GIVE", "s"]).int(), 0);
    let id = next.expect_reply(SOON).text();
    assert!(given.elapsed() >= Duration::from_millis(60), "{:?}", given.elapsed());
    // One QUEUE was lost, not two: the server skips the other place, which keeps its order and blocks no waiter.
    assert_eq!(server.info_number("dlock", "unclaimed"), 1);
    assert_eq!(server.cmd(&["DSEM.RELEASE", "s", &id]).int(), 1);
    assert_eq!(sem(&server, "s"), "1 of 1 (0 leased, 0 taken); waits c");
    assert_eq!(server.cmd(&["DSEM.TAKE", "s"]).int(), 1);
    server.cmd(&["DSEM.GIVE", "s"]).int();
    hung.cmd(&["DSEM.POSITION", "s", "c"]).int();
    wait_until("the grant", || sem(&server, "s") == "0 of 1 (1 leased, 0 taken)");
    let id = hung.cmd(&["DSEM.ACQUIRE", "s", "c"]).text();
    assert_eq!(server.cmd(&["DSEM.RELEASE", "s", &id]).int(), 1);
    server.cmd(&["DEL", "s"]).ok();
    server.left_over_check();
}

/// A wide waiter that the server skips does not block the narrow ones behind it.
#[test]
fn those_behind_a_place_are_served_when_its_connection_is_found_to_be_hung() {
    let server = Server::start();
    let mut hung = server.client();
    let lapses = server.cmd(&["DSEM.ACQUIRE", "lapses", "a", "LIMIT", "1"]).text();
    assert!(hung.cmd(&["DSEM.ACQUIRE", "lapses", "h", "QUEUE", "30"]).is_null());
    server.cmd(&["DSEM.INIT", "s", "3"]).int();
    server.cmd(&["DSEM.TAKE", "s"]).int();
    assert!(hung.cmd(&["DSEM.ACQUIRE", "s", "h", "COUNT", "3", "QUEUE", "60000"]).is_null());
    let mut b = server.block(&["DSEM.ACQUIRE", "s", "b", "BLOCK", "0"]);
    let mut taker = server.block(&["DSEM.TAKE", "s", "BLOCK", "0"]);
    server.cmd(&["DSEM.RELEASE", "lapses", &lapses]).int();
    wait_until("the grant to expire", || server.info_number("dlock", "unclaimed") == 1);
    b.expect_reply(SOON).text();
    assert_eq!(taker.expect_reply(SOON).int(), 1);
    assert_eq!(sem(&server, "s"), "0 of 3 (1 leased, 2 taken); waits h");
    hung.cmd(&["DSEM.CANCEL", "s", "h"]).int();
    server.cmd(&["DEL", "s"]).ok();
    server.left_over_check();
}

#[test]
fn waiters_are_maps_in_queue_order() {
    let server = Server::start();
    let mut client = server.client3();
    let blocked = server.block(&["DSEM.ACQUIRE", "s", "b", "BLOCK", "60000", "LABEL", "x"]);
    let taker = server.block(&["DSEM.TAKE", "s", "3", "BLOCK", "0"]);
    assert!(client.cmd(&["DSEM.ACQUIRE", "s", "c", "QUEUE", "60000"]).is_null());
    for rows in
        [server.cmd(&["DSEM.WAITERS", "s"]), client.cmd(&["DSEM.WAITERS", "s", "COUNT", "5"])]
    {
        let rows = rows.items();
        assert_eq!(rows.len(), 3);
        for (row, (owner, id, label)) in rows.iter().zip([
            ("b", blocked.id(), "x"),
            ("", taker.id(), ""),
            ("c", client.id(), ""),
        ]) {
            let names: Vec<String> = row.pairs().into_iter().map(|(name, _)| name).collect();
            assert_eq!(names, reply::names(WaiterInfo::FIELDS));
            assert_eq!(
                (row.field("owner").text(), row.field("label").text()),
                (owner.into(), label.into())
            );
            assert_eq!(u64::try_from(row.field("client-id").int()).unwrap(), id);
        }
    }
    assert_eq!(server.cmd(&["DSEM.WAITERS", "s", "COUNT", "2"]).items().len(), 2);
    blocked.hang_up();
    taker.hang_up();
    client.cmd(&["DSEM.CANCEL", "s", "c"]).int();
    server.left_over_check();
}
