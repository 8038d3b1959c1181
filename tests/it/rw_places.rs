//! QUEUE waiters of a read-write lock: one per owner, with a mode that the claim must match.

use std::time::{Duration, Instant};

use dlock_wire::reply::{self, WaiterInfo};

use crate::{
    story::{Story, rw},
    support::{Reply, SOON, Server, wait_until},
};

#[test]
fn a_repeat_keeps_the_place_unless_the_mode_differs() {
    let server = Server::start();
    let mut story = Story::on(&server);
    story.go(&[
        ("DRW.ACQUIRE k a WRITE", "token a"),
        ("1: DRW.ACQUIRE k b WRITE BLOCK 0", "waits"),
        ("2: DRW.ACQUIRE k c READ BLOCK 0", "waits"),
        ("3: DRW.ACQUIRE k d READ BLOCK 0", "waits"),
        // A call that does not wait leaves the place unchanged, in any mode.
        ("DRW.ACQUIRE k b READ", "nil"),
        ("DRW.ACQUIRE k b WRITE", "nil"),
        ("1", "waits"),
        ("4: DRW.ACQUIRE k b WRITE BLOCK 0 LABEL new", "waits"),
        ("1", r#"REPLACED "b" asked again for "k" with another call"#),
        ("rw k", "write a*1; waits b c d"),
        ("5: DRW.ACQUIRE k b READ QUEUE 60000", "nil"),
        ("4", "REPLACED "),
        ("rw k", "write a*1; waits c d b"),
        ("1: DRW.ACQUIRE k c WRITE BLOCK 0", "waits"),
        ("2", "REPLACED "),
        ("rw k", "write a*1; waits d b c"),
        ("DRW.RELEASE k a WRITE", "0"),
        ("3", "token d"),
        ("rw k", "read b*1 d*1; waits c"),
        ("5: DRW.ACQUIRE k b READ", "token b"),
        ("DRW.BREAK k", "2"),
        ("1", "token c"),
        ("DRW.RELEASE k c WRITE", "0"),
    ]);
    assert_eq!(server.info_number("dlock", "replaced"), 3);
    story.end();
}

#[test]
fn a_grant_to_a_place_is_claimed_in_its_mode() {
    // The requests of each round have the same id.
    let server = Server::with(&["dlock.request-memory-ms", "0"]).start();
    let mut messages = server.subscribe(&["dlock:notify:b", "news"]);
    let mut story = Story::on(&server);
    for claim in [
        "q: DRW.ACQUIRE k b READ",
        "DRW.ACQUIRE k b READ EX 30 BLOCK 0",
        "DRW.ACQUIRE k b READ QUEUE 1 EX 30",
        "DRW.ACQUIRE k b READ REQID r",
        "DRW.RENEW k b READ PX 30000",
    ] {
        println!("{claim}");
        story.go(&[
            ("DRW.ACQUIRE k a WRITE", "token a"),
            ("q: DRW.ACQUIRE k b READ QUEUE 20000 EX 30 REQID r", "nil"),
            ("q: DRW.ACQUIRE k b READ QUEUE 20000 EX 30 REQID r", "nil"),
            ("q: DRW.ACQUIRE k c READ QUEUE 20000 NOTIFY news", "nil"),
            ("rw k", "write a*1; waits b c"),
            ("DRW.RELEASE k a WRITE", "0"),
            ("rw k", "read b*1 c*1"),
        ]);
        let readers = server.cmd(&["DRW.INFO", "k"]).field("readers").items();
        for (owner, channel, reqid) in [("b", "dlock:notify:b", "1 r"), ("c", "news", "0 ")] {
            let hold = readers.iter().find(|hold| hold.field("owner").text() == owner).unwrap();
            assert!((1..=20_000).contains(&hold.field("ttl-ms").int()), "{}", hold.show());
            let token = hold.field("token").int();
            let text = format!("granted 0 {token} 1 {owner} {reqid} k");
            assert_eq!(messages.next(), (channel.to_owned(), text.into_bytes()));
        }
        story.go(&[
            (claim, "token b"),
            ("rw k", "read b*1 c*1"),
            // From here on it is an ordinary hold; the other one is released.
            ("DRW.CANCEL k b", "0"),
            ("DRW.CANCEL k c", "1"),
            ("rw k", "read b*1"),
        ]);
        let hold = server.cmd(&["DRW.INFO", "k"]).field("readers").items()[0].clone();
        assert_eq!(hold.field("lease-ms").int(), 30_000, "{claim}");
        assert!(hold.field("ttl-ms").int() > 20_000, "{claim}: {}", hold.show());
        story.go(&[("DRW.RELEASE k b READ", "0")]);
    }
    assert_eq!(server.info_number("dlock", "unclaimed"), 0);
    // A request for the other mode claims nothing.
    story.go(&[
        ("DRW.ACQUIRE k a WRITE", "token a"),
        ("q: DRW.ACQUIRE k b WRITE QUEUE 60000", "nil"),
        ("DRW.RELEASE k a WRITE", "0"),
        ("DRW.RENEW k b READ", "NOTHELD "),
        ("DRW.ACQUIRE k b READ", "token b"),
        ("rw k", "write b*1; read b*1"),
        ("DRW.CANCEL k b", "1"),
        ("rw k", "read b*1"),
        ("DRW.RELEASE k b READ", "0"),
    ]);
    messages.next_text();
    messages.assert_none();
    story.end();
}

#[test]
fn unclaimed_grants_go_to_the_next_waiter() {
    let server = Server::start();
    let mut messages = server.subscribe(&["news"]);
    let mut place = server.client();
    server.cmd(&["DRW.ACQUIRE", "k", "a", "WRITE"]).int();
    for owner in ["b", "c"] {
        let call = ["DRW.ACQUIRE", "k", owner, "READ", "QUEUE", "60", "NOTIFY", "news"];
        assert!(place.cmd(&call).is_null());
    }
    let mut next = server.block(&["DRW.ACQUIRE", "k", "d", "WRITE", "BLOCK", "0"]);
    let released = Instant::now();
    server.cmd(&["DRW.RELEASE", "k", "a", "WRITE"]).int();
    next.expect_reply(SOON).int();
    assert!(released.elapsed() >= Duration::from_millis(60), "{:?}", released.elapsed());
    let mut texts: Vec<String> = (0..4).map(|_| messages.next_text()).collect();
    texts.sort();
    for (text, event) in texts.iter().zip(["expired", "expired", "granted", "granted"]) {
        assert!(text.starts_with(&format!("{event} 0 ")), "{texts:?}");
    }
    assert_eq!(server.info_number("dlock", "unclaimed"), 2);
    server.cmd(&["DRW.RELEASE", "k", "d", "WRITE"]).int();
    server.left_over_check();
}

#[test]
fn places_of_a_hung_connection_are_passed_over() {
    let server = Server::start();
    let mut hung = server.client();
    for (key, queue) in [("k1", "30"), ("k2", "60000")] {
        server.cmd(&["DRW.ACQUIRE", key, "a", "WRITE"]).int();
        assert!(hung.cmd(&["DRW.ACQUIRE", key, "h", "WRITE", "QUEUE", queue]).is_null());
    }
    let mut next = server.block(&["DRW.ACQUIRE", "k1", "b", "READ", "BLOCK", "0"]);
    server.cmd(&["DRW.RELEASE", "k1", "a", "WRITE"]).int();
    next.expect_reply(SOON).int();
    // One QUEUE was lost, the second was not: the lock is free for other readers and writers.
    server.cmd(&["DRW.RELEASE", "k2", "a", "WRITE"]).int();
    assert_eq!(rw(&server, "k2"), "free; waits h");
    for mode in ["READ", "WRITE"] {
        server.cmd(&["DRW.ACQUIRE", "k2", "b", mode]).int();
    }
    server.cmd(&["DRW.BREAK", "k2"]).int();
    hung.cmd(&["DRW.POSITION", "k2", "h"]).int();
    wait_until("the grant", || rw(&server, "k2") == "write h*1");
    hung.cmd(&["DRW.ACQUIRE", "k2", "h", "WRITE"]).int();
    for (key, owner, mode) in [("k1", "b", "READ"), ("k2", "h", "WRITE")] {
        server.cmd(&["DRW.RELEASE", key, owner, mode]).int();
    }
    server.left_over_check();
}

/// A writer that the server skips does not block the readers behind it.
#[test]
fn those_behind_a_place_are_let_in_when_its_connection_is_found_to_be_hung() {
    let server = Server::start();
    let mut hung = server.client();
    server.cmd(&["DRW.ACQUIRE", "lapses", "a", "WRITE"]).int();
    assert!(hung.cmd(&["DRW.ACQUIRE", "lapses", "h", "WRITE", "QUEUE", "30"]).is_null());
    server.cmd(&["DRW.ACQUIRE", "k", "a", "READ"]).int();
    assert!(hung.cmd(&["DRW.ACQUIRE", "k", "h", "WRITE", "QUEUE", "60000"]).is_null());
    let mut readers =
        ["b", "c"].map(|owner| server.block(&["DRW.ACQUIRE", "k", owner, "READ", "BLOCK", "0"]));
    server.cmd(&["DRW.RELEASE", "lapses", "a", "WRITE"]).int();
    wait_until("the grant to expire", || server.info_number("dlock", "unclaimed") == 1);
    for reader in &mut readers {
        reader.expect_reply(SOON).int();
    }
    assert_eq!(rw(&server, "k"), "read a*1 b*1 c*1; waits h");
    server.cmd(&["DRW.BREAK", "k"]).int();
    hung.cmd(&["DRW.CANCEL", "k", "h"]).int();
    server.left_over_check();
}

/// A waiting owner may come to hold the lock: then its grant is a re-entry, or it continues to wait, but it has no
/// second hold.
#[test]
fn an_owner_never_has_two_holds_of_a_mode() {
    let server = Server::start();
    let check = |holds: &[&str]| {
        let is = rw(&server, "k");
        assert!(holds.contains(&is.as_str()), "{is}");
        // It survives save and load.
        server.cmd(&["DEBUG", "RELOAD"]).ok();
        server.cmd(&["DRW.BREAK", "k"]).int();
    };
    for (mode, others) in [("READ", "WRITE"), ("WRITE", "READ")] {
        println!("{mode}");
        // By a hold that is renamed to the requested key.
        server.cmd(&["DRW.ACQUIRE", "other", "b", mode]).int();
        server.cmd(&["DRW.ACQUIRE", "k", "a", others]).int();
        let mut waiter = server.block(&["DRW.ACQUIRE", "k", "b", mode, "BLOCK", "2000"]);
        server.cmd(&["RENAME", "other", "k"]).ok();
        waiter.expect_reply(SOON).ok();
        let mode = mode.to_lowercase();
        check(&[&format!("{mode} b*1"), &format!("{mode} b*2")]);
    }
    // By another connection, while the server skips the one with the place.
    let mut hung = server.client();
    for (key, queue) in [("lapses", "20"), ("k", "60000")] {
        server.cmd(&["DRW.ACQUIRE", key, "a", "WRITE"]).int();
        assert!(hung.cmd(&["DRW.ACQUIRE", key, "b", "READ", "QUEUE", queue]).is_null());
    }
    server.cmd(&["DRW.RELEASE", "lapses", "a", "WRITE"]).int();
    wait_until("the grant to expire", || server.info_number("dlock", "unclaimed") == 1);
    server.cmd(&["DRW.RELEASE", "k", "a", "WRITE"]).int();
    server.cmd(&["DRW.ACQUIRE", "k", "b", "READ"]).int();
    hung.cmd(&["DRW.POSITION", "k", "b"]).int();
    server.cmd(&["DRW.POSITION", "k", "b"]).int();
    check(&["read b*1", "read b*2", "read b*1; waits b", "read b*2; waits b"]);
    server.cmd(&["DRW.CANCEL", "k", "b"]).int();
    server.cmd(&["DRW.BREAK", "k"]).int();
    server.left_over_check();
}

#[test]
fn waiters_are_maps_in_queue_order() {
    let server = Server::start();
    let mut client = server.client3();
    client.cmd(&["DRW.ACQUIRE", "k", "a", "WRITE"]).int();
    let blocked = server.block(&["DRW.ACQUIRE", "k", "b", "READ", "BLOCK", "60000", "LABEL", "x"]);
    assert!(client.cmd(&["DRW.ACQUIRE", "k", "c", "WRITE", "QUEUE", "60000"]).is_null());
    for rows in [server.cmd(&["DRW.WAITERS", "k"]), client.cmd(&["DRW.WAITERS", "k", "COUNT", "5"])]
    {
        let rows = rows.items();
        assert_eq!(rows.len(), 2);
        for (row, (owner, id, label)) in
            rows.iter().zip([("b", blocked.id(), "x"), ("c", client.id(), "")])
        {
            let names: Vec<String> = row.pairs().into_iter().map(|(name, _)| name).collect();
            assert_eq!(names, reply::names(WaiterInfo::FIELDS));
            assert_eq!(
                (row.field("owner").text(), row.field("label").text()),
                (owner.into(), label.into())
            );
            assert_eq!(u64::try_from(row.field("client-id").int()).unwrap(), id);
        }
    }
    assert_eq!(server.cmd(&["DRW.WAITERS", "k", "COUNT", "1"]).items().len(), 1);
    let info = server.info("dlock");
    for (field, value) in
        [("waiters_blocked", "1"), ("waiters_queued", "1"), ("longest_queue", "2")]
    {
        assert_eq!(info[field], value, "{field}");
    }
    blocked.hang_up();
    server.wait_blocked(0);
    client.cmd(&["DRW.CANCEL", "k", "c"]).int();
    client.cmd(&["DRW.RELEASE", "k", "a", "WRITE"]).int();
    server.left_over_check();
}
