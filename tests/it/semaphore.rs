//! DSEM as a client sees it. Its rules are told by the tables of the core (see `rules.rs`).

use std::{
    collections::BTreeSet,
    time::{Duration, Instant},
};

use dlock_wire::reply::{self, PermitInfo, SemInfo, WaiterInfo};
use redis::Value;

use crate::{
    args,
    looks::{is_permit_id, sem},
    support::{Client, ReplicaTap, Reply, SOON, Server, wait_until},
};

#[test]
fn ids_are_uuids_and_all_different() {
    let server = Server::start();
    let mut client = server.client();
    let calls: Vec<_> = (0..2_000)
        .map(|n| args!["DSEM.ACQUIRE", format!("s{}", n % 7), "a", "LIMIT", 1_000])
        .collect();
    let ids: BTreeSet<String> = client.pipeline(&calls).iter().map(Reply::text).collect();
    assert_eq!(ids.len(), 2_000);
    assert!(ids.iter().all(|id| is_permit_id(id)), "{:?}", ids.first());
    assert_eq!(server.info_number("dlock", "leased_permits"), 2_000);
    // Ids are equal in any case.
    let some = ids.first().unwrap().to_uppercase();
    let broken: i64 =
        (0..7).map(|n| client.cmd(&["DSEM.BREAK", &format!("s{n}"), &some]).int()).sum();
    assert_eq!(broken, 1);
    client.cmd(&["FLUSHALL"]).ok();
    server.left_over_check();
}

#[test]
fn info_and_permits_are_maps_with_every_field() {
    let server = Server::start();
    let mut holder = server.client3();
    holder.cmd(&["DSEM.INIT", "s", "10"]).int();
    let mut ask = |call: &[&str]| holder.cmd(call).text();
    let wide =
        ask(&["DSEM.ACQUIRE", "s", "a", "COUNT", "3", "PX", "40000", "BIND", "5", "LABEL", "x y"]);
    let narrow = ask(&["DSEM.ACQUIRE", "s", "b", "EX", "90"]);
    server.cmd(&["DSEM.TAKE", "s", "4"]).int();
    let waiter = server.block(&["DSEM.ACQUIRE", "s", "c", "COUNT", "9", "BLOCK", "0"]);
    let names = |map: &Value| map.pairs().into_iter().map(|(name, _)| name).collect::<Vec<_>>();
    let (flat, map) = (server.cmd(&["DSEM.INFO", "s"]), holder.cmd(&["DSEM.INFO", "s"]));
    assert!(matches!(flat, Value::Array(_)) && matches!(map, Value::Map(_)), "{}", map.show());
    for info in [flat, map] {
        assert_eq!(names(&info), reply::names(SemInfo::FIELDS));
        for (field, value) in
            [("capacity", 10), ("available", 2), ("leased", 4), ("taken", 4), ("waiters", 1)]
        {
            assert_eq!(info.field(field).int(), value, "{field}");
        }
    }
    let id = i64::try_from(holder.id()).unwrap();
    for permits in [server.cmd(&["DSEM.PERMITS", "s"]), holder.cmd(&["DSEM.PERMITS", "s"])] {
        let permits = permits.items();
        assert_eq!(permits.len(), 2);
        for (permit_id, owner, count, lease, label, bound) in
            [(&wide, "a", 3, 40_000, "x y", id), (&narrow, "b", 1, 90_000, "", 0)]
        {
            let shown =
                permits.iter().find(|permit| permit.field("id").text() == *permit_id).unwrap();
            assert_eq!(names(shown), reply::names(PermitInfo::FIELDS));
            assert_eq!(
                (shown.field("owner").text(), shown.field("label").text()),
                (owner.into(), label.into())
            );
            assert_eq!(
                (shown.field("count").int(), shown.field("bound-client").int()),
                (count, bound)
            );
            let (left, held) = (shown.field("ttl-ms").int(), shown.field("held-ms").int());
            assert!((lease - 10_000..=lease).contains(&left) && held < 10_000, "{left} {held}");
        }
    }
    // It counts permits, not grants.
    let info = server.info("dlock");
    assert_eq!((info["leased_permits"].as_str(), info["held_locks"].as_str()), ("4", "0"));
    assert!(server.cmd(&["DSEM.PERMITS", "nothing"]).items().is_empty());
    waiter.hang_up();
    holder.cmd(&["DSEM.RENEW", "s", &wide, "EX", "500"]).int();
    let shown = holder.cmd(&["DSEM.PERMITS", "s"]).items();
    let ttl = |permit: &Value| permit.field("ttl-ms").int();
    assert!(shown.iter().map(ttl).max().unwrap() > 400_000);
    server.cmd(&["DEL", "s"]).ok();
    server.left_over_check();
}

#[test]
fn a_permit_of_a_dead_holder_is_free_after_its_lease() {
    let server = Server::start();
    let mut messages = server.subscribe(&["news"]);
    server.cmd(&["DSEM.INIT", "s", "5"]).int();
    let hold = |client: &mut Client, count: u32, options: &[&str]| {
        let mut call = args!["DSEM.ACQUIRE", "s", "a", "COUNT", count, "NOTIFY", "news"];
        call.extend(options.iter().map(|option| option.as_bytes().to_vec()));
        client.cmd(&call).text()
    };
    // By its lease, not before; a renewed permit stays.
    let (mut first, mut second) = (server.client(), server.client());
    let start = Instant::now();
    let lost = hold(&mut first, 2, &["PX", "300"]);
    let kept = hold(&mut second, 1, &["PX", "300"]);
    second.cmd(&["DSEM.RENEW", "s", &kept, "PX", "60000"]).int();
    drop(first);
    let mut waiter = server.post(&["DSEM.ACQUIRE", "s", "b", "COUNT", "4", "BLOCK", "0"]);
    let granted = waiter.expect_reply(SOON).text();
    assert!(start.elapsed() >= Duration::from_millis(300), "{:?}", start.elapsed());
    assert_eq!(messages.next_text(), format!("expired 0 {lost} 1 a 0  s"));
    assert_eq!(sem(&server, "s"), "0 of 5 (5 leased, 0 taken)");
    assert!(server.cmd(&["DSEM.RENEW", "s", &lost]).error().starts_with("NOTHELD "));
    server.cmd(&["DSEM.RELEASE", "s", &granted]).int();
    // By its binding, at once.
    let tied = hold(&mut second, 4, &["BIND", "0", "EX", "900"]);
    assert!(server.cmd(&["DSEM.TAKE", "s"]).is_null());
    drop(second);
    wait_until("the bound permit to come back", || {
        sem(&server, "s") == "4 of 5 (1 leased, 0 taken)"
    });
    assert_eq!(messages.next_text(), format!("disconnected 0 {tied} 1 a 0  s"));
    // The other ways for a permit to end.
    let mut client = server.client();
    let broken = hold(&mut client, 1, &[]);
    client.cmd(&["DSEM.BREAK", "s", &broken]).int();
    assert_eq!(messages.next_text(), format!("broken 0 {broken} 1 a 0  s"));
    let released = hold(&mut client, 1, &[]);
    client.cmd(&["DSEM.RELEASE", "s", &released]).int();
    client.cmd(&["DEL", "s"]).ok();
    assert_eq!(messages.next_text(), format!("deleted 0 {kept} 1 a 0  s"));
    messages.assert_none();
    let info = server.info("dlock");
    for (field, value) in
        [("expiries", "1"), ("disconnected", "1"), ("broken", "1"), ("leased_permits", "0")]
    {
        assert_eq!(info[field], value, "{field}");
    }
    server.left_over_check();
}

#[test]
fn taken_permits_stay_out_after_a_disconnect() {
    let server = Server::start();
    server.cmd(&["DSEM.INIT", "s", "3"]).int();
    let mut taker = server.client();
    taker.cmd(&["DSEM.TAKE", "s", "2"]).int();
    server.cmd(&args!["CLIENT", "KILL", "ID", taker.id()]).ok();
    taker.expect_closed();
    assert_eq!(sem(&server, "s"), "1 of 3 (0 leased, 2 taken)");
    assert_eq!(server.cmd(&["DSEM.GIVE", "s", "2"]).int(), 3);
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
    assert!(client.cmd(&["DSEM.RELEASE", "s", "c", "ALL"]).is_null());
    server.left_over_check();
}

#[test]
fn many_permits_that_come_back_at_once_are_one_record() {
    let server = Server::start();
    let mut tap = ReplicaTap::attach(&server);
    server.cmd(&["DSEM.INIT", "s", "40"]).int();
    let all = server.cmd(&["DSEM.ACQUIRE", "s", "a", "COUNT", "40"]).text();
    let mut waiters: Vec<_> = (0..20)
        .map(|n| server.block(&args!["DSEM.ACQUIRE", "s", format!("w{n}"), "COUNT", 2, "BLOCK", 0]))
        .collect();
    let mut late = server.block(&["DSEM.ACQUIRE", "s", "late", "BLOCK", "0"]);
    tap.commands(&server);
    assert_eq!(server.cmd(&["DSEM.RELEASE", "s", &all]).int(), 0);
    for waiter in &mut waiters {
        waiter.expect_reply(SOON).text();
    }
    late.assert_no_reply();
    assert_eq!(tap.lines(&server).len(), 1, "one record for all of them");
    late.hang_up();
    server.cmd(&["DEL", "s"]).ok();
    server.left_over_check();
}
