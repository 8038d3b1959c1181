//! How holds of a read-write lock end by time, each separately, and when that closes the lock.

use std::time::{Duration, Instant};

use redis::Value;

use crate::{
    args,
    scene::assert_lasted,
    story::rw,
    support::{Reply, SOON, Server, wait_until},
};

#[test]
fn each_hold_has_a_lease_of_its_own() {
    let server = Server::start();
    let mut client = server.client();
    client.cmd(&["DRW.ACQUIRE", "k", "a", "READ", "EX", "100"]).ok();
    client.cmd(&["DRW.ACQUIRE", "k", "a", "WRITE", "EX", "300"]).ok();
    for (call, read, write) in [
        // Re-entry never shortens.
        (&["DRW.ACQUIRE", "k", "a", "READ", "PX", "5"][..], 100_000, 300_000),
        (&["DRW.ACQUIRE", "k", "a", "READ", "EX", "200"], 200_000, 300_000),
        (&["DRW.RENEW", "k", "a", "WRITE", "EX", "150"], 200_000, 150_000),
        (&["DRW.RENEW", "k", "a", "WRITE"], 200_000, 150_000),
        (&["DRW.RENEW", "k", "a", "READ", "PX", "31536000000"], 31_536_000_000, 150_000),
    ] {
        client.cmd(call).int();
        let info = client.cmd(&["DRW.INFO", "k"]);
        for (hold, lease) in
            [(&info.field("readers").items()[0], read), (&info.field("writer"), write)]
        {
            assert_eq!(hold.field("lease-ms").int(), lease, "{call:?}");
            let left = hold.field("ttl-ms").int();
            assert!((lease - 10_000..=lease).contains(&left), "{call:?}: {left}");
        }
    }
    // One mode ends, the other stays.
    client.cmd(&["DRW.RENEW", "k", "a", "WRITE", "PX", "1"]).int();
    wait_until("the write hold to end", || rw(&server, "k") == "read a*3");
    client.cmd(&["DRW.ACQUIRE", "k", "a", "WRITE"]).int();
    client.cmd(&["DRW.RENEW", "k", "a", "READ", "PX", "1"]).int();
    wait_until("the read hold to end", || rw(&server, "k") == "write a*1");
    client.cmd(&["DRW.RELEASE", "k", "a", "WRITE"]).int();
    assert_eq!(server.info_number("dlock", "expiries"), 2);
    server.left_over_check();
}

#[test]
fn readers_expire_one_by_one_and_not_early() {
    let server = Server::start();
    let mut messages = server.subscribe(&["news"]);
    let leases = [("c", 2_700_u64), ("a", 700), ("b", 1_700)];
    let start = Instant::now();
    for (owner, lease) in leases {
        let call = args!["DRW.ACQUIRE", "k", owner, "READ", "PX", lease, "NOTIFY", "news"];
        server.cmd(&call).int();
    }
    let mut writer = server.post(&["DRW.ACQUIRE", "k", "w", "WRITE", "BLOCK", "0"]);
    for (owner, lease) in [("a", 700), ("b", 1_700), ("c", 2_700)] {
        let text = messages.next_text();
        assert!(
            text.starts_with("expired 0 ") && text.ends_with(&format!(" 1 {owner} 0  k")),
            "{text}"
        );
        assert!(start.elapsed() >= Duration::from_millis(lease), "{owner}: {:?}", start.elapsed());
    }
    writer.expect_reply(SOON).int();
    assert_eq!(server.info_number("dlock", "expiries"), 3);
    server.cmd(&["DRW.RELEASE", "k", "w", "WRITE"]).int();
    server.left_over_check();
}

#[test]
fn a_lock_is_closed_after_a_write_hold_that_was_not_given_back() {
    let server = Server::with(&["dlock.lock-delay-ms", "60000"]).start();
    // The end of a hold, its mode, and whether the lock is closed then.
    for (mode, end, closed) in [
        ("WRITE", &["DRW.RENEW", "k", "a", "WRITE", "PX", "1"][..], true),
        ("WRITE", &["DRW.BREAK", "k"], true),
        ("WRITE", &["DRW.BREAK", "k", "a"], true),
        ("WRITE", &[], true),
        ("WRITE", &["DRW.RELEASE", "k", "a", "WRITE"], false),
        ("WRITE", &["DEL", "k"], false),
        ("READ", &["DRW.RENEW", "k", "a", "READ", "PX", "1"], false),
        ("READ", &["DRW.BREAK", "k"], false),
        ("READ", &[], false),
    ] {
        let mut holder = server.client();
        holder.cmd(&["DRW.ACQUIRE", "k", "a", mode, "BIND", "0"]).int();
        if !end.is_empty() {
            server.cmd(end).ok();
        }
        drop(holder);
        let is_over = || ["nothing", "free"].contains(&rw(&server, "k").as_str());
        wait_until(&format!("the end of {mode} by {end:?}"), is_over);
        for mode in ["READ", "WRITE"] {
            let reply = server.cmd(&["DRW.ACQUIRE", "k", "b", mode]);
            assert_eq!(reply.is_null(), closed, "{mode} by {end:?}: {}", reply.show());
        }
        assert_eq!(
            rw(&server, "k"),
            if closed { "free" } else { "write b*1; read b*1" },
            "{end:?}"
        );
        server.cmd(&["DEL", "k"]).ok();
    }
    // An unclaimed grant is not a crash.
    let mut place = server.client();
    server.cmd(&["DRW.ACQUIRE", "k", "a", "WRITE"]).int();
    assert!(place.cmd(&["DRW.ACQUIRE", "k", "b", "WRITE", "QUEUE", "20"]).is_null());
    server.cmd(&["DRW.RELEASE", "k", "a", "WRITE"]).int();
    wait_until("the grant to expire", || server.info_number("dlock", "unclaimed") == 1);
    assert_eq!(rw(&server, "k"), "nothing");
    // It is served when the delay is over.
    server.cmd(&["CONFIG", "SET", "dlock.lock-delay-ms", "2000"]).ok();
    server.cmd(&["DRW.ACQUIRE", "k", "a", "WRITE"]).int();
    let mut readers =
        ["b", "c"].map(|owner| server.block(&["DRW.ACQUIRE", "k", owner, "READ", "BLOCK", "0"]));
    let start = Instant::now();
    server.cmd(&["DRW.BREAK", "k"]).int();
    assert_eq!(rw(&server, "k"), "free; waits b c");
    for reader in &mut readers {
        reader.expect_reply(SOON).int();
        assert_lasted(start, 2_000);
    }
    server.cmd(&["DRW.BREAK", "k"]).int();
    server.left_over_check();
}

#[test]
fn each_hold_is_tied_to_its_own_connection() {
    let server = Server::start();
    for first in ["READ", "WRITE"] {
        let (mut reader, mut writer) = (server.client(), server.client());
        reader.cmd(&["DRW.ACQUIRE", "k", "a", "READ", "BIND", "0"]).int();
        writer.cmd(&["DRW.ACQUIRE", "k", "a", "WRITE", "BIND", "0"]).int();
        let info = server.cmd(&["DRW.INFO", "k"]);
        let bound = |hold: &Value| u64::try_from(hold.field("bound-client").int()).unwrap();
        assert_eq!(bound(&info.field("writer")), writer.id());
        assert_eq!(bound(&info.field("readers").items()[0]), reader.id());
        let mut waiter = server.block(&["DRW.ACQUIRE", "k", "b", "READ", "BLOCK", "0"]);
        if first == "WRITE" {
            drop(writer);
            waiter.expect_reply(SOON).int();
            wait_until("b to read beside a", || rw(&server, "k") == "read a*1 b*1");
            drop(reader);
        } else {
            drop(reader);
            wait_until("the read hold to end", || rw(&server, "k") == "write a*1; waits b");
            drop(writer);
            waiter.expect_reply(SOON).int();
        }
        wait_until("both to end", || rw(&server, "k") == "read b*1");
        server.cmd(&["DRW.RELEASE", "k", "b", "READ"]).int();
    }
    assert_eq!(server.info_number("dlock", "disconnected"), 4);
    // RENEW moves one binding and not the other.
    let (mut reader, mut other) = (server.client(), server.client());
    reader.cmd(&["DRW.ACQUIRE", "k", "a", "READ", "BIND", "0"]).int();
    reader.cmd(&["DRW.ACQUIRE", "k", "a", "WRITE", "BIND", "0"]).int();
    other.cmd(&["DRW.RENEW", "k", "a", "WRITE", "BIND", "0"]).int();
    drop(reader);
    wait_until("the read hold to end", || rw(&server, "k") == "write a*1");
    drop(other);
    server.left_over_check();
}
