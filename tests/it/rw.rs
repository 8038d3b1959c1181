//! DRW as a client sees it. Its rules are told by the tables of the core (see `rules.rs`).

use dlock_wire::reply::{self, HolderInfo, RwInfo, WaiterInfo};
use redis::Value;
use std::time::{Duration, Instant};

use crate::{
    args,
    support::{ReplicaTap, Reply, SOON, Server},
};

#[test]
fn a_mode_knows_sixty_four_requests_that_are_not_released() {
    let server = Server::start();
    let mut client = server.client();
    let mut acquire = |id: u32| {
        client.cmd(&args!["DRW.ACQUIRE", "k", "a", "READ", "REQID", format!("r{id}")]).int();
        client.cmd(&["DRW.INFO", "k"]).field("readers").items()[0].field("holds").int()
    };
    for id in 1..=64 {
        assert_eq!(acquire(id), i64::from(id));
    }
    for id in 1..=64 {
        assert_eq!(acquire(id), 64, "r{id} is known");
    }
    let full = server.ask("DRW.ACQUIRE k a READ REQID r65").error();
    assert_eq!(
        full,
        r#"LIMIT "k" is held by 64 requests of "a" already. RELEASE them, or all with ALL"#
    );
    assert_eq!(server.ask("DRW.RELEASE k a READ REQID r1").int(), 63);
    assert_eq!(acquire(65), 64);
    assert!(server.ask("DRW.ACQUIRE k a READ REQID r1").error().starts_with("SPENT "));
    server.cmd(&["DRW.BREAK", "k"]).ok();
    server.left_over_check();
}

#[test]
fn info_shows_every_hold_with_every_field() {
    let server = Server::start();
    let mut holder = server.client3();
    let id = i64::try_from(holder.id()).unwrap();
    let read = ["DRW.ACQUIRE", "k", "a", "READ", "PX", "40000", "BIND", "5", "LABEL", "x y"];
    let reading = holder.cmd(&read).int();
    holder.cmd(&["DRW.ACQUIRE", "k", "a", "READ", "PX", "1", "BIND", "5", "LABEL", "x y"]).int();
    let writing = holder.cmd(&["DRW.ACQUIRE", "k", "a", "WRITE", "EX", "90"]).int();
    let mut waiter = server.block(&["DRW.ACQUIRE", "k", "b", "READ", "BLOCK", "0"]);
    let (flat, map) = (server.cmd(&["DRW.INFO", "k"]), holder.cmd(&["DRW.INFO", "k"]));
    assert!(matches!(flat, Value::Array(_)), "{}", flat.show());
    assert!(matches!(map, Value::Map(_)), "{}", map.show());
    assert!(matches!(map.field("writer"), Value::Map(_)), "{}", map.show());
    for info in [flat, map] {
        let names = |map: &Value| map.pairs().into_iter().map(|(name, _)| name).collect::<Vec<_>>();
        assert_eq!(names(&info), reply::names(RwInfo::FIELDS));
        assert_eq!(
            (info.field("kind").text(), info.field("mode").text()),
            ("drw".into(), "write".into())
        );
        assert_eq!(info.field("waiters").int(), 1);
        let (writer, readers) = (info.field("writer"), info.field("readers").items());
        assert_eq!(readers.len(), 1);
        for (hold, token, holds, lease, label, bound) in
            [(&writer, writing, 1, 90_000, "", 0), (&readers[0], reading, 2, 40_000, "x y", id)]
        {
            assert_eq!(names(hold), reply::names(HolderInfo::FIELDS));
            assert_eq!(
                (hold.field("owner").text(), hold.field("label").text()),
                ("a".into(), label.into())
            );
            for (field, value) in
                [("token", token), ("holds", holds), ("lease-ms", lease), ("bound-client", bound)]
            {
                assert_eq!(hold.field(field).int(), value, "{field}");
            }
            let (left, held) = (hold.field("ttl-ms").int(), hold.field("held-ms").int());
            assert!((lease - 10_000..=lease).contains(&left) && held < 10_000, "{left} {held}");
        }
    }
    holder.cmd(&["DRW.RELEASE", "k", "a", "WRITE"]).int();
    waiter.expect_reply(SOON).int();
    let info = holder.cmd(&["DRW.INFO", "k"]);
    assert!(info.field("writer").is_null(), "{}", info.show());
    let mut owners: Vec<_> =
        info.field("readers").items().iter().map(|hold| hold.field("owner").text()).collect();
    owners.sort();
    assert_eq!(
        (info.field("mode").text().as_str(), owners),
        ("read", vec!["a".to_owned(), "b".to_owned()])
    );
    assert_eq!(server.info_number("dlock", "held_locks"), 2);
    server.cmd(&["DRW.BREAK", "k"]).ok();
    assert!(holder.cmd(&["DRW.INFO", "k"]).is_null());
    server.left_over_check();
}

#[test]
fn tokens_are_those_of_all_families_together() {
    let server = Server::start();
    let mut last = 0;
    for call in [
        &["DLOCK.ACQUIRE", "l", "a"][..],
        &["DRW.ACQUIRE", "k", "a", "READ"],
        &["DRW.ACQUIRE", "k", "b", "READ"],
        &["DLOCK.ACQUIRE", "m", "a"],
        &["DRW.ACQUIRE", "n", "a", "WRITE"],
    ] {
        let token = server.cmd(call).int();
        assert!(token > last, "{call:?}: {token} after {last}");
        last = token;
    }
    assert_eq!(server.info_number("dlock", "last_token"), last);
    assert_eq!(server.info_number("dlock", "held_locks"), 5);
    server.cmd(&["FLUSHALL"]).ok();
    server.left_over_check();
}

#[test]
fn readers_side_by_side_are_let_in_in_one_step() {
    const READERS: usize = 50;
    let server = Server::start();
    let mut tap = ReplicaTap::attach(&server);
    for end in [&["DRW.RELEASE", "k", "w", "WRITE"][..], &["DRW.BREAK", "k"], &["DEL", "k"]] {
        server.cmd(&["DRW.ACQUIRE", "k", "w", "WRITE"]).int();
        let mut readers: Vec<_> = (0..READERS)
            .map(|n| server.block(&args!["DRW.ACQUIRE", "k", format!("r{n}"), "READ", "BLOCK", 0]))
            .collect();
        let mut next = server.block(&["DRW.ACQUIRE", "k", "next", "WRITE", "BLOCK", "0"]);
        tap.commands(&server);
        // Every observer in the same turn of the server sees all of them. (After DEL, from the next writing call on.)
        let all: [&[&str]; 5] =
            [&["MULTI"], end, &["DRW.RELEASE", "k", "x", "READ"], &["DRW.INFO", "k"], &["EXEC"]];
        let replies = server.client().pipeline(&all.map(<[&str]>::to_vec));
        let info = replies[4].items()[2].clone();
        assert_eq!(info.field("readers").items().len(), READERS, "{end:?}");
        assert_eq!(info.field("waiters").int(), 1, "{end:?}");
        let records = tap.commands(&server);
        let ours = records.iter().filter(|record| record[0] == b"DLOCK.APPLY").count();
        // After a DEL the key is created again.
        assert_eq!(ours, 1, "{end:?}: one record for all of them");
        let mut last = 0;
        for reader in &mut readers {
            let token = reader.expect_reply(SOON).int();
            assert!(token > last, "{token} after {last}");
            last = token;
        }
        next.assert_no_reply();
        assert_eq!(server.cmd(&["DRW.BREAK", "k"]).int(), 50);
        next.expect_reply(SOON).int();
        server.cmd(&["DRW.RELEASE", "k", "next", "WRITE"]).int();
    }
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
    assert!(client.cmd(&["DRW.RELEASE", "k", "c", "WRITE"]).is_null());
    client.cmd(&["DRW.RELEASE", "k", "a", "WRITE"]).int();
    server.left_over_check();
}

#[test]
fn readers_expire_one_by_one_and_not_early() {
    let server = Server::start();
    let mut messages = server.subscribe(&["news"]);
    let leases = [("c", 700_u64), ("a", 200), ("b", 450)];
    let start = Instant::now();
    for (owner, lease) in leases {
        let call = args!["DRW.ACQUIRE", "k", owner, "READ", "PX", lease, "NOTIFY", "news"];
        server.cmd(&call).int();
    }
    let mut writer = server.post(&["DRW.ACQUIRE", "k", "w", "WRITE", "BLOCK", "0"]);
    for (owner, lease) in [("a", 200), ("b", 450), ("c", 700)] {
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
