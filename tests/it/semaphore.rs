//! DSEM as a client sees it: number of permits, owners, leases.

use std::{
    collections::BTreeSet,
    time::{Duration, Instant},
};

use dlock_wire::reply::{self, PermitInfo, SemInfo};
use redis::Value;

use crate::{
    args,
    story::{Story, is_permit_id, sem},
    support::{Client, Reply, SOON, Server, wait_until},
};

#[test]
fn permits_go_out_and_come_back() {
    Story::tell(
        &Server::start(),
        &[
            ("DSEM.INFO s", "nil"),
            ("DSEM.INIT s 3", "1"),
            ("DSEM.INIT s 5", "0"),
            ("TYPE s", "'dlock-sem"),
            ("sem s", "3 of 3 (0 leased, 0 taken)"),
            ("DSEM.ACQUIRE s a", "id p1"),
            // An owner may have any number.
            ("DSEM.ACQUIRE s a COUNT 2", "id p2"),
            ("sem s", "0 of 3 (3 leased, 0 taken)"),
            ("DSEM.ACQUIRE s b", "nil"),
            ("DSEM.RELEASE s $p1", "1"),
            ("DSEM.RELEASE s $p1", "NOTHELD "),
            ("DSEM.ACQUIRE s b COUNT 2", "nil"),
            ("DSEM.RENEW s $p1", "NOTHELD "),
            ("DSEM.BREAK s $p1", "0"),
            ("DSEM.RENEW s $p2 PX 5000", "1"),
            ("DSEM.RENEW s $p2", "1"),
            ("DSEM.BREAK s $p2", "1"),
            ("DSEM.RELEASE s $p2", "NOTHELD "),
            ("DSEM.RELEASE nothing $p2", "NOTHELD "),
            ("DSEM.RENEW nothing $p2", "NOTHELD "),
            ("DSEM.BREAK nothing $p2", "0"),
            ("DSEM.ACQUIRE s a COUNT 3", "id p3"),
            ("DSEM.ACQUIRE s a COUNT 4", "LIMIT "),
            ("DSEM.RELEASE s $p3", "3"),
            // A semaphore of INIT stays.
            ("sem s", "3 of 3 (0 leased, 0 taken)"),
            ("DEL s", "1"),
            ("DSEM.INFO s", "nil"),
        ],
    );
}

#[test]
fn permits_without_an_owner_are_only_counted() {
    Story::tell(
        &Server::start(),
        &[
            ("DSEM.TAKE s", "nil"),
            ("DSEM.GIVE s", "ERR no such semaphore"),
            ("DSEM.DRAIN s", "ERR no such semaphore"),
            ("DSEM.RESIZE s 5", "ERR no such semaphore"),
            ("DSEM.RESIZE s BY 5", "ERR no such semaphore"),
            ("EXISTS s", "0"),
            ("DSEM.INIT s 6", "1"),
            ("DSEM.GIVE s", "LIMIT "),
            ("DSEM.ACQUIRE s a COUNT 2", "id p"),
            ("DSEM.GIVE s", "LIMIT "),
            ("DSEM.TAKE s", "1"),
            ("DSEM.TAKE s 2", "1"),
            ("sem s", "1 of 6 (2 leased, 3 taken)"),
            ("DSEM.TAKE s 2", "nil"),
            ("DSEM.TAKE s 7", "LIMIT "),
            ("DSEM.GIVE s 4", "LIMIT "),
            ("sem s", "1 of 6 (2 leased, 3 taken)"),
            ("DSEM.GIVE s 2", "3"),
            ("DSEM.DRAIN s", "3"),
            ("DSEM.DRAIN s", "0"),
            ("sem s", "0 of 6 (2 leased, 4 taken)"),
            ("DSEM.RELEASE s $p", "2"),
            ("DSEM.GIVE s 4", "6"),
            ("DSEM.GIVE s", "LIMIT "),
            ("DEL s", "1"),
        ],
    );
}

#[test]
fn the_capacity_is_changed_while_permits_are_out() {
    Story::tell(
        &Server::start(),
        &[
            ("DSEM.INIT s 4", "1"),
            ("DSEM.RESIZE s 6", "6"),
            ("DSEM.RESIZE s BY 2", "8"),
            ("DSEM.RESIZE s by -3", "5"),
            ("DSEM.ACQUIRE s a COUNT 3", "id p1"),
            ("DSEM.ACQUIRE s b", "id p2"),
            ("DSEM.TAKE s", "1"),
            // Granted permits stay with their owners.
            ("DSEM.RESIZE s 2", "-3"),
            ("sem s", "-3 of 2 (4 leased, 1 taken)"),
            ("DSEM.ACQUIRE s c", "nil"),
            ("DSEM.TAKE s", "nil"),
            ("DSEM.DRAIN s", "0"),
            ("DSEM.ACQUIRE s c COUNT 3", "LIMIT "),
            ("DSEM.RENEW s $p1", "1"),
            ("DSEM.RELEASE s $p2", "-2"),
            ("DSEM.GIVE s", "-1"),
            ("DSEM.ACQUIRE s c", "nil"),
            ("DSEM.RESIZE s BY 1", "0"),
            ("DSEM.RELEASE s $p1", "3"),
            ("DSEM.RESIZE s 2147483647", "2147483647"),
            ("DSEM.RESIZE s BY 1", "LIMIT "),
            ("DSEM.RESIZE s BY -2147483647", "LIMIT "),
            ("sem s", "2147483647 of 2147483647 (0 leased, 0 taken)"),
            ("DSEM.RESIZE s BY -2147483646", "1"),
            ("DSEM.RESIZE s BY -1", "LIMIT "),
            ("DSEM.ACQUIRE s c", "id p3"),
            ("DSEM.RELEASE s $p3", "1"),
            ("DEL s", "1"),
        ],
    );
}

#[test]
fn repeats_count_nothing() {
    Story::tell(
        &Server::start(),
        &[
            ("DSEM.INIT s 9", "1"),
            ("DSEM.ACQUIRE s a COUNT 2 REQID r", "id p"),
            ("w: DSEM.ACQUIRE s a COUNT 2 REQID r", "$p"),
            ("w: DSEM.ACQUIRE s a COUNT 2 REQID r BLOCK 0 PX 5", "$p"),
            ("sem s", "7 of 9 (2 leased, 0 taken)"),
            // The same id of another owner is another request, and so is another id.
            ("DSEM.ACQUIRE s b REQID r", "id q"),
            ("DSEM.ACQUIRE s a REQID r2", "id p2"),
            ("sem s", "5 of 9 (4 leased, 0 taken)"),
            ("DSEM.TAKE s 2 REQID t", "1"),
            ("w: DSEM.TAKE s 2 REQID t", "1"),
            ("DSEM.GIVE s 1 REQID g", "4"),
            ("w: DSEM.GIVE s 1 REQID g", "4"),
            ("DSEM.RESIZE s BY 3 REQID z", "7"),
            ("w: DSEM.RESIZE s BY 3 REQID z", "7"),
            ("sem s", "7 of 12 (4 leased, 1 taken)"),
            ("DSEM.DRAIN s REQID d", "7"),
            ("w: DSEM.DRAIN s REQID d", "7"),
            ("sem s", "0 of 12 (4 leased, 8 taken)"),
            ("DSEM.GIVE s 8 REQID g2", "8"),
            ("DSEM.DRAIN s REQID d", "7"),
            ("sem s", "8 of 12 (4 leased, 0 taken)"),
            // A copy that comes after the permit is back gets none.
            ("DSEM.RELEASE s $p", "10"),
            ("DSEM.RELEASE s $p", "NOTHELD "),
            ("DSEM.ACQUIRE s a COUNT 2 REQID r", "SPENT "),
            ("DEL s", "1"),
        ],
    );
}

#[test]
fn a_repeat_finds_its_permit_also_when_there_are_fewer_now() {
    Story::tell(
        &Server::start(),
        &[
            ("DSEM.INIT s 9", "1"),
            ("DSEM.ACQUIRE s a COUNT 5 REQID r", "id p"),
            ("DSEM.TAKE s 4 REQID t", "1"),
            ("q: DSEM.ACQUIRE s b COUNT 4 QUEUE 60000", "nil"),
            ("DSEM.GIVE s 4", "0"),
            ("DSEM.RESIZE s 3", "-6"),
            ("DSEM.ACQUIRE s a COUNT 5 REQID r", "$p"),
            ("DSEM.TAKE s 4 REQID t", "1"),
            ("DSEM.ACQUIRE s a COUNT 5 REQID other", "LIMIT "),
            // A grant that waits to be claimed is had already, too.
            ("q: DSEM.ACQUIRE s b COUNT 4", "id q"),
            ("DSEM.CANCEL s b", "0"),
            ("sem s", "-6 of 3 (9 leased, 0 taken)"),
            ("DEL s", "1"),
        ],
    );
}

#[test]
fn one_that_is_made_on_first_use_goes_with_its_last_permit() {
    let server = Server::start();
    Story::tell(
        &server,
        &[
            ("DSEM.ACQUIRE s a LIMIT 2 COUNT 3", "LIMIT "),
            ("EXISTS s", "0"),
            ("DSEM.ACQUIRE s a LIMIT 3 COUNT 2", "id p1"),
            ("sem s", "1 of 3 (2 leased, 0 taken)"),
            // It has no effect on an existing semaphore.
            ("DSEM.ACQUIRE s b LIMIT 100", "id p2"),
            ("DSEM.ACQUIRE s c LIMIT 100", "nil"),
            ("DSEM.ACQUIRE s c LIMIT 100 COUNT 4", "LIMIT "),
            ("DSEM.INIT s 7", "0"),
            ("DSEM.RELEASE s $p1", "2"),
            ("DSEM.TAKE s 2", "1"),
            ("DSEM.RELEASE s $p2", "1"),
            ("sem s", "1 of 3 (0 leased, 2 taken)"),
            ("DSEM.GIVE s", "2"),
            ("EXISTS s", "1"),
            ("DSEM.GIVE s", "3"),
            ("EXISTS s", "0"),
            ("DSEM.INFO s", "nil"),
            // All ways for the last permit to come back.
            ("DSEM.ACQUIRE s a LIMIT 1", "id p"),
            ("DSEM.BREAK s $p", "1"),
            ("sem s", "nothing"),
            ("DSEM.ACQUIRE s a LIMIT 1 PX 1", "id p"),
            ("sem s", "nothing"),
            ("w: DSEM.ACQUIRE s a LIMIT 1 BIND 0", "id p"),
            ("sem s", "0 of 1 (1 leased, 0 taken)"),
            ("kill w", ""),
            ("sem s", "nothing"),
            // A waiter keeps the semaphore, and gets the permit.
            ("DSEM.ACQUIRE s a LIMIT 1", "id p"),
            ("w: DSEM.ACQUIRE s b BLOCK 0", "waits"),
            ("DSEM.RELEASE s $p", "0"),
            ("w", "id q"),
            ("DSEM.RELEASE s $q", "1"),
            ("sem s", "nothing"),
        ],
    );
    assert_eq!(server.info_number("dlock", "leased_permits"), 0);
}

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
    let lost = hold(&mut first, 2, &["PX", "1500"]);
    let kept = hold(&mut second, 1, &["PX", "1500"]);
    second.cmd(&["DSEM.RENEW", "s", &kept, "PX", "60000"]).int();
    drop(first);
    let mut waiter = server.post(&["DSEM.ACQUIRE", "s", "b", "COUNT", "4", "BLOCK", "0"]);
    let granted = waiter.expect_reply(SOON).text();
    assert!(start.elapsed() >= Duration::from_millis(1_500), "{:?}", start.elapsed());
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
fn a_tie_moves_with_bind_and_with_a_repeat() {
    let server = Server::start();
    server.cmd(&["DSEM.INIT", "s", "2"]).int();
    let mut last = server.client();
    let id = last.cmd(&["DSEM.ACQUIRE", "s", "a", "BIND", "0", "REQID", "1", "EX", "100"]).text();
    let bound = || server.cmd(&["DSEM.PERMITS", "s"]).items()[0].field("bound-client").int();
    for (call, moves) in [
        (&["DSEM.RENEW", "s", &id][..], false),
        (&["DSEM.RENEW", "s", &id, "BIND", "0"], true),
        (&["DSEM.ACQUIRE", "s", "a", "REQID", "1"], true),
        (&["DSEM.ACQUIRE", "s", "a", "REQID", "1", "BIND", "0"], true),
    ] {
        let mut client = server.client();
        client.cmd(call).ok();
        let (stays, goes) = if moves { (client, last) } else { (last, client) };
        server.cmd(&args!["CLIENT", "KILL", "ID", goes.id()]).ok();
        assert_eq!(u64::try_from(bound()).unwrap(), stays.id(), "{call:?}");
        last = stays;
    }
    drop(last);
    wait_until("the permit to end", || sem(&server, "s") == "2 of 2 (0 leased, 0 taken)");
    server.cmd(&["DEL", "s"]).ok();
    server.left_over_check();
}
