//! DLATCH: steps, waiters, and its end.

use std::time::{Duration, Instant};

use dlock_wire::reply::{self, LatchInfo, WaiterInfo};
use redis::Value;

use crate::{
    args,
    looks::latch,
    scene::assert_lasted,
    support::{Blocked, ReplicaTap, Reply, SOON, Server, wait_until},
};

#[test]
fn a_step_that_is_sent_again_counts_once_however_many_came_since() {
    const STEPS: usize = 1_000;
    let server = Server::start();
    server.cmd(&args!["DLATCH.INIT", "l", STEPS + 1]).int();
    let calls: Vec<_> = (0..STEPS)
        .map(|n| args!["DLATCH.COUNTDOWN", "l", "REQID", format!("a request with number {n}")])
        .collect();
    let mut client = server.client();
    let counts: Vec<i64> = client.pipeline(&calls).iter().map(Reply::int).collect();
    assert!(counts.iter().rev().copied().eq(1..=1_000));
    for how in ["at once", "DEBUG RELOAD"] {
        if how == "DEBUG RELOAD" {
            client.cmd(&["DEBUG", "RELOAD"]).ok();
        }
        assert!(client.pipeline(&calls).iter().all(|count| count.int() == 1), "{how}");
    }
    assert_eq!(client.cmd(&["DLATCH.COUNTDOWN", "l"]).int(), 0);
    server.left_over_check();
}

#[test]
fn concurrent_steps_are_each_counted_once() {
    const CLIENTS: usize = 20;
    const STEPS: usize = 100;
    let server = Server::start();
    server.cmd(&args!["DLATCH.INIT", "l", CLIENTS * STEPS + 1]).int();
    let mut waiter = server.block(&["DLATCH.AWAIT", "l", "BLOCK", "0"]);
    std::thread::scope(|scope| {
        for name in 0..CLIENTS {
            let server = &server;
            scope.spawn(move || {
                let (mut client, mut again) = (server.client(), server.client());
                for n in 0..STEPS {
                    let call = args!["DLATCH.COUNTDOWN", "l", "REQID", format!("{name}.{n}")];
                    // Sent twice over two connections; the first to arrive counts.
                    again.send(&call);
                    assert!(client.cmd(&call).int() > 0);
                    assert!(again.reply(SOON).int() > 0);
                }
            });
        }
    });
    assert_eq!(latch(&server, "l"), "1 of 2001; waits -");
    waiter.assert_no_reply();
    assert_eq!(server.cmd(&["DLATCH.COUNTDOWN", "l"]).int(), 0);
    assert_eq!(waiter.expect_reply(SOON).int(), 1);
    server.left_over_check();
}

#[test]
fn ten_thousand_waiters_are_released_by_one_step() {
    const WAITERS: usize = 10_000;
    let server = Server::start();
    let mut tap = ReplicaTap::attach(&server);
    server.cmd(&["DLATCH.INIT", "l", "2"]).int();
    let call = args!["DLATCH.AWAIT", "l", "BLOCK", 0];
    let mut waiters: Vec<Blocked> = (0..WAITERS).map(|_| server.post(&call)).collect();
    server.wait_blocked(WAITERS);
    assert_eq!(server.cmd(&["DLATCH.INFO", "l"]).field("waiters").int(), 10_000);
    assert_eq!(server.cmd(&["DLATCH.WAITERS", "l", "COUNT", "3"]).items().len(), 3);
    assert_eq!(server.cmd(&["DLATCH.COUNTDOWN", "l"]).int(), 1);
    waiters[0].assert_no_reply();
    waiters[WAITERS - 1].assert_no_reply();
    tap.commands(&server);
    let start = Instant::now();
    assert_eq!(server.cmd(&["DLATCH.COUNTDOWN", "l"]).int(), 0);
    let counted = start.elapsed();
    for waiter in &mut waiters {
        assert_eq!(waiter.expect_reply(SOON).int(), 1);
    }
    println!(
        "{WAITERS} waiters: the step took {counted:?}, all were answered after {:?}",
        start.elapsed()
    );
    // Replicas get the opening, and nothing about the waiters.
    assert_eq!(tap.commands(&server).len(), 1);
    // One reply each: the next reply is that to the next call.
    for (n, waiter) in waiters.iter_mut().enumerate() {
        waiter.client().send(&args!["ECHO", n]);
    }
    for (n, waiter) in waiters.iter_mut().enumerate() {
        assert_eq!(waiter.expect_reply(SOON).text(), n.to_string());
    }
    server.left_over_check();
}

#[test]
fn waiters_for_a_latch_that_ends_unopened_get_broken() {
    let server = Server::start();
    for (init, end) in [
        (&["DLATCH.INIT", "l", "3"][..], &["DEL", "l"][..]),
        (&["DLATCH.INIT", "l", "3"], &["UNLINK", "l"]),
        (&["DLATCH.INIT", "l", "3"], &["PEXPIRE", "l", "5"]),
        (&["DLATCH.INIT", "l", "3"], &["FLUSHDB"]),
        (&["DLATCH.INIT", "l", "3"], &["FLUSHALL", "ASYNC"]),
        (&["DLATCH.INIT", "l", "3"], &["EVAL", "return redis.call('DEL', KEYS[1])", "1", "l"]),
        // The name that they asked for has no latch any more.
        (&["DLATCH.INIT", "l", "3"], &["RENAME", "l", "m"]),
        (&["DLATCH.INIT", "l", "3"], &["MOVE", "l", "3"]),
        (&["DLATCH.INIT", "l", "3"], &["SET", "l", "text", "PX", "1"]),
        (&["DLATCH.INIT", "l", "3", "PX", "300"], &["PING"]),
        (&["DLATCH.INIT", "l", "3", "EX", "1"], &["DLATCH.COUNTDOWN", "l"]),
    ] {
        println!("{init:?} {end:?}");
        assert_eq!(server.cmd(init).int(), 1);
        let mut waiters =
            ["0", "60000"].map(|ms| server.block(&["DLATCH.AWAIT", "l", "BLOCK", ms]));
        server.cmd(end).ok();
        for waiter in &mut waiters {
            let error = waiter.expect_reply(SOON).error();
            assert!(error.starts_with("BROKEN "), "{error}");
        }
        wait_until("the name to be free", || server.cmd(&["EXISTS", "l"]).int() == 0);
        for waiter in &mut waiters {
            let reply = waiter.client().cmd(&["DLATCH.AWAIT", "l", "BLOCK", "0"]);
            if ["RENAME", "MOVE", "FLUSHDB", "FLUSHALL"].contains(&end[0]) {
                // It is somewhere else. After a flush, no latch is known.
                assert_eq!(reply.int(), 1);
            } else {
                assert!(reply.error().starts_with("BROKEN "));
            }
        }
        assert_eq!(latch(&server, "l"), "nothing");
        assert_eq!(server.cmd(&["EXISTS", "l"]).int(), 0);
    }
    server.cmd(&["FLUSHALL"]).ok();
    // Even if the transaction closes it again: they waited for the previous latch.
    server.cmd(&["DLATCH.INIT", "l", "1"]).int();
    let mut waiter = server.block(&["DLATCH.AWAIT", "l", "BLOCK", "0"]);
    let replies = server.client().pipeline(&[
        args!["MULTI"],
        args!["DEL", "l"],
        args!["DLATCH.INIT", "l", 2],
        args!["EXEC"],
    ]);
    assert_eq!(replies[3].items()[1].int(), 1);
    assert!(waiter.expect_reply(SOON).error().starts_with("BROKEN "));
    assert_eq!(latch(&server, "l"), "2 of 2");
    server.cmd(&["DEL", "l"]).ok();
    server.left_over_check();
}

#[test]
fn its_time_ends_by_itself_and_not_early() {
    let server = Server::start();
    let start = Instant::now();
    server.cmd(&["DLATCH.INIT", "l", "2", "PX", "500"]).int();
    let mut waiter = server.block(&["DLATCH.AWAIT", "l", "BLOCK", "0"]);
    // A step does not lengthen it.
    assert_eq!(server.cmd(&["DLATCH.COUNTDOWN", "l"]).int(), 1);
    assert!(waiter.expect_reply(SOON).error().starts_with("BROKEN "));
    assert_lasted(start, 500);
    // Also without waiters and readers.
    server.cmd(&["DLATCH.INIT", "l", "1", "PX", "1"]).int();
    wait_until("the key to go", || server.keys() == 0);
    server.cmd(&["DLATCH.INIT", "l", "1", "PX", "1"]).int();
    wait_until("it to count as gone", || server.cmd(&["DLATCH.INIT", "l", "5"]).int() == 1);
    assert_eq!(latch(&server, "l"), "5 of 5");
    server.cmd(&["DEL", "l"]).ok();
    server.left_over_check();
}

#[test]
fn waits_end_by_time_and_with_their_connection() {
    let server = Server::start();
    server.cmd(&["DLATCH.INIT", "l", "1"]).int();
    let mut hasty = server.post(&["DLATCH.AWAIT", "l", "BLOCK", "60"]);
    let (reply, took) = hasty.expect_reply_timed(SOON);
    assert!(reply.is_null() && took >= Duration::from_millis(60), "{} {took:?}", reply.show());
    let mut stays = server.block(&["DLATCH.AWAIT", "l", "BLOCK", "0"]);
    let hangs_up = server.block(&["DLATCH.AWAIT", "l", "BLOCK", "0"]);
    hangs_up.hang_up();
    let mut killed = server.block(&["DLATCH.AWAIT", "l", "BLOCK", "0"]);
    server.cmd(&args!["CLIENT", "KILL", "ID", killed.id()]).ok();
    killed.expect_closed_without_reply();
    wait_until("the places to go", || latch(&server, "l") == "1 of 1; waits -");
    stays.assert_no_reply();
    assert_eq!(server.cmd(&["DLATCH.COUNTDOWN", "l"]).int(), 0);
    assert_eq!(stays.expect_reply(SOON).int(), 1);
    server.left_over_check();
}

#[test]
fn info_and_waiters_are_maps_with_every_field() {
    let server = Server::start();
    let mut client = server.client3();
    client.cmd(&["DLATCH.INIT", "l", "5", "PX", "40000"]).int();
    client.cmd(&["DLATCH.INIT", "endless", "5"]).int();
    client.cmd(&["DLATCH.COUNTDOWN", "l", "2"]).int();
    let endless = server.block(&["DLATCH.AWAIT", "l", "BLOCK", "0"]);
    let timed = server.block(&["DLATCH.AWAIT", "l", "BLOCK", "50000"]);
    let names = |map: &Value| map.pairs().into_iter().map(|(name, _)| name).collect::<Vec<_>>();
    let (flat, map) = (server.cmd(&["DLATCH.INFO", "l"]), client.cmd(&["DLATCH.INFO", "l"]));
    assert!(matches!(flat, Value::Array(_)) && matches!(map, Value::Map(_)), "{}", map.show());
    for info in [flat, map] {
        assert_eq!(names(&info), reply::names(LatchInfo::FIELDS));
        for (field, value) in [("count", 3), ("initial", 5), ("waiters", 2)] {
            assert_eq!(info.field(field).int(), value, "{field}");
        }
        let left = info.field("ttl-ms").int();
        assert!((10_000..=40_000).contains(&left), "{left}");
    }
    assert_eq!(client.cmd(&["DLATCH.INFO", "endless"]).field("ttl-ms").int(), -1);
    for rows in
        [server.cmd(&["DLATCH.WAITERS", "l"]), client.cmd(&["DLATCH.WAITERS", "l", "COUNT", "9"])]
    {
        let rows = rows.items();
        assert_eq!(rows.len(), 2);
        let remaining = [-1..=-1, 20_000..=50_000];
        for ((row, waits), remaining) in rows.iter().zip([&endless, &timed]).zip(remaining) {
            assert_eq!(names(row), reply::names(WaiterInfo::FIELDS));
            assert!(row.field("owner").bytes().is_empty() && row.field("label").bytes().is_empty());
            assert_eq!(u64::try_from(row.field("client-id").int()).unwrap(), waits.id());
            assert!(remaining.contains(&row.field("remaining-ms").int()), "{}", row.show());
            assert!((0..30_000).contains(&row.field("waiting-ms").int()), "{}", row.show());
        }
    }
    assert_eq!(server.cmd(&["DLATCH.WAITERS", "l", "COUNT", "1"]).items().len(), 1);
    assert!(server.cmd(&["DLATCH.WAITERS", "nothing"]).items().is_empty());
    let info = server.info("dlock");
    for (field, value) in [("waiters_blocked", "2"), ("longest_queue", "2"), ("held_locks", "0")] {
        assert_eq!(info[field], value, "{field}");
    }
    drop((endless, timed));
    server.wait_blocked(0);
    server.cmd(&["DEL", "l", "endless"]).ok();
    server.left_over_check();
}

#[test]
fn calls_do_not_wait_on_a_replica() {
    let primary = Server::start();
    let replica = Server::with(&[]).replica_of(&primary).start();
    primary.cmd(&["DLATCH.INIT", "l", "3", "PX", "60000"]).int();
    primary.cmd(&["DLATCH.COUNTDOWN", "l", "REQID", "r"]).int();
    let _waiter = primary.block(&["DLATCH.AWAIT", "l", "BLOCK", "0"]);
    primary.wait_replica_synced(&replica);
    assert_eq!(replica.digest(), primary.digest());
    assert!(replica.cmd(&["DLATCH.AWAIT", "l", "BLOCK", "0"]).is_null());
    assert!(replica.cmd(&["DLATCH.AWAIT", "l"]).is_null());
    assert_eq!(replica.cmd(&["DLATCH.AWAIT", "nothing", "BLOCK", "0"]).int(), 1);
    let info = replica.cmd(&["DLATCH.INFO", "l"]);
    assert_eq!((info.field("count").int(), info.field("waiters").int()), (2, 0));
    assert!(replica.cmd(&["DLATCH.WAITERS", "l"]).items().is_empty());
    for call in [&["DLATCH.INIT", "n", "1"][..], &["DLATCH.COUNTDOWN", "l"]] {
        let refused = replica.cmd(call).error();
        assert!(refused.starts_with("READONLY "), "{call:?}: {refused}");
    }
    primary.cmd(&["DLATCH.COUNTDOWN", "l", "2"]).int();
    primary.wait_replica_synced(&replica);
    assert_eq!(replica.cmd(&["DLATCH.AWAIT", "l"]).int(), 1);
    assert_eq!(replica.keys(), 0);
}
