//! A replica has the data of its primary, however it was transferred, and decides nothing.

use std::time::Duration;

use redis::Value;

use crate::{
    args,
    durability::AOF,
    specimens::Specimens,
    support::{Client, Family, ReplicaTap, Reply, SOON, Server, wait_until},
    test_both_families_at_once,
    workload::{Mix, Workload},
};

test_both_families_at_once! {
    a_full_sync_beside_the_old_data_is_equal
    a_replica_ends_no_lease_and_hides_expired_ones
    a_time_to_live_goes_with_a_new_owner_on_both_sides
    wait_covers_grants_that_came_late_or_were_repeated
    a_lock_that_was_renamed_to_an_empty_name_ends_on_replicas_too
}

/// Loads a full sync into a second data set while the first is served.
const BESIDE: [&str; 2] = ["repl-diskless-load", "swapdb"];

/// Waits until a replica has the data of its primary.
#[track_caller]
pub fn wait_equal(primary: &Server, replica: &Server, what: &str) {
    wait_until(&format!("{what} to be equal"), || {
        primary.wait_replica_synced(replica);
        // Leases end meanwhile: both sides must be compared at the same moment.
        let before = primary.digest();
        let theirs = replica.digest();
        before == theirs && primary.digest() == before
    });
}

#[test]
fn every_replica_is_equal_after_a_random_workload() {
    for family in Family::ALL {
        stay_equal(family, 3);
    }
}

/// Replicas of every kind, links that break, and a random workload.
pub fn stay_equal(family: Family, seed: u64) {
    // With a backlog for all writes until the last replica is back.
    let grace = ["dlock.fair-grace-ms", "100", "repl-backlog-size", "67108864"];
    let mut primary = family.with(&grace).start();
    let plain = family.with(&grace).replica_of(&primary).start();
    let mut logging = family.with(&AOF).replica_of(&primary).start();
    let chained = family.with(&[]).replica_of(&plain).start();
    let mix = Mix { family, connections: 16, keys: 24, lease_ms: 10..400, ruthless: true };
    let workload = Workload::start(&primary, &mix, seed);
    workload.wait_answers(1_000);
    // Their links break, and they resume.
    primary.cmd(&["CLIENT", "KILL", "TYPE", "replica"]).ok();
    workload.wait_answers(1_000);
    plain.cmd(&["CLIENT", "KILL", "TYPE", "replica"]).ok();
    // In the middle a new replica gets a full synchronization.
    let late = family.with(&BESIDE).replica_of(&primary).start();
    workload.wait_answers(1_000);
    drop(workload.stop());

    let went_on = |server: &Server| server.info_number("stats", "sync_partial_ok");
    wait_until("two replicas to go on where they were", || went_on(&primary) >= 2);
    wait_until("the chained one, too", || went_on(&plain) >= 1);
    let held = ["held", "left", "for", "the", "comparison"];
    for key in held {
        primary.cmd(&args!["DLOCK.ACQUIRE", key, "a", "PX", 600_000]).ok();
    }
    for (replica, what) in
        [(&plain, "a replica"), (&logging, "one with an AOF"), (&late, "a late one")]
    {
        wait_equal(&primary, replica, what);
    }
    plain.wait_replica_synced(&chained);
    wait_until("a replica's replica to be equal", || chained.digest() == primary.digest());

    // The AOF of a replica is a separate data set.
    wait_until("the last grants to end", || {
        primary.keys() == i64::try_from(held.len()).expect("a few")
    });
    wait_equal(&primary, &logging, "the one with an AOF");
    let digest = primary.digest();
    primary.kill9();
    logging.kill9();
    logging.start_again();
    assert_eq!(logging.digest(), digest);
    assert_ne!(digest, "0".repeat(40));

    done_with(&plain, &held);
    plain.left_over_check();
}

fn done_with(server: &Server, keys: &[&str]) {
    server.cmd(&["REPLICAOF", "NO", "ONE"]).ok();
    for key in keys {
        assert_eq!(server.cmd(&["DLOCK.RELEASE", key, "a"]).int(), 0, "{key}");
    }
}

fn a_full_sync_beside_the_old_data_is_equal(family: Family) {
    // The smallest possible backlog: a disconnected replica soon misses more than that.
    let primary = family.with(&["repl-backlog-size", "16384", "rdbcompression", "no"]).start();
    let replica = family.with(&BESIDE).and(&["rdbcompression", "no"]).start();
    let specimens = Specimens::make(&primary);
    let held = |server: &Server| server.info_number("dlock", "held_locks");
    let wait_entered = |what: &str| {
        primary.wait_replica_synced(&replica);
        wait_until(&format!("what was loaded to be entered, and only that: {what}"), || {
            held(&replica) == held(&primary)
        });
        specimens.check(&replica, what);
    };

    // Data that the primary does not have.
    replica.client().pipeline(&[
        args!["DLOCK.ACQUIRE", "plain", "of its own"],
        args!["DLOCK.ACQUIRE", "gone", "a"],
        args!["SELECT", 3],
        args!["DLOCK.ACQUIRE", "gone", "a"],
    ]);
    replica.cmd(&args!["REPLICAOF", "127.0.0.1", primary.port()]).ok();
    wait_entered("instead of its own data");

    // An older state of the primary, served meanwhile.
    primary.cmd(&["DLOCK.ACQUIRE", "gone", "a"]).ok();
    primary.wait_replica_synced(&replica);
    // In one step, or the replica would be back before it has missed enough.
    primary.client().pipeline(&[
        args!["MULTI"],
        args!["CLIENT", "KILL", "TYPE", "replica"],
        args!["DLOCK.RELEASE", "gone", "a"],
        args!["SET", "big", vec![b'x'; 1 << 20]],
        args!["DEL", "big"],
        args!["EXEC"],
    ]);
    wait_until("a second full sync", || primary.info_number("stats", "sync_full") == 2);
    wait_entered("instead of an older state");
    let swaps = replica.log().matches("Swapping active DB").count();
    assert_eq!(swaps, 2, "{}", replica.log_tail());

    // The following stream is applied to the loaded data.
    primary.cmd(&["DLOCK.BREAK", "full"]).ok();
    primary.wait_replica_synced(&replica);
    assert_eq!(replica.digest(), primary.digest());
    assert_eq!(held(&replica), held(&primary));
}

#[test]
fn a_replica_shows_everything_and_takes_no_write() {
    let primary = Server::start();
    let replica = Server::with(&[]).replica_of(&primary).start();
    let writable = Server::with(&["replica-read-only", "no"]).replica_of(&primary).start();
    let mut tied = primary.client();
    let token =
        tied.cmd(&["DLOCK.ACQUIRE", "k", "a", "PX", "60000", "BIND", "0", "LABEL", "why"]).int();
    tied.cmd(&["DLOCK.ACQUIRE", "k", "a"]).int();
    let _waiter = primary.block(&["DLOCK.ACQUIRE", "k", "b", "BLOCK", "0"]);
    for server in [&replica, &writable] {
        primary.wait_replica_synced(server);
        let info = server.cmd(&["DLOCK.INFO", "k"]);
        for (field, value) in [
            ("token", token),
            ("holds", 2),
            ("lease-ms", 60_000),
            // Connections and queues exist only on the primary.
            ("bound-client", 0),
            ("waiters", 0),
        ] {
            assert_eq!(info.field(field).int(), value, "{field}");
        }
        assert!((1..=60_000).contains(&info.field("ttl-ms").int()), "{}", info.show());
        assert_eq!(
            (info.field("owner").text(), info.field("label").text()),
            ("a".into(), "why".into())
        );
        assert_eq!(server.cmd(&args!["DLOCK.CHECK", "k", token]).int(), 1);
        let stale = server.cmd(&args!["DLOCK.CHECK", "k", token - 1]).error();
        assert!(stale.starts_with("STALE "), "{stale}");
        assert_eq!(server.cmd(&["DLOCK.POSITION", "k", "a"]).int(), 0);
        assert!(server.cmd(&["DLOCK.POSITION", "k", "b"]).is_null());
        assert_eq!(server.cmd(&["DLOCK.WAITERS", "k"]), Value::Array(vec![]));
        for call in [
            &["DLOCK.ACQUIRE", "k", "a"][..],
            &["DLOCK.ACQUIRE", "free", "a", "BLOCK", "0"],
            &["DLOCK.RELEASE", "k", "a"],
            &["DLOCK.RENEW", "k", "a"],
            &["DLOCK.FENCE", "k", "a", "1"],
            &["DLOCK.BREAK", "k"],
            &["DLOCK.RELEASE", "k", "b"],
        ] {
            let refused = server.cmd(call).error();
            assert!(refused.starts_with("READONLY "), "{call:?}: {refused}");
        }
        // UNBLOCK is not a write, and no call is blocked here.
        assert_eq!(server.cmd(&["DLOCK.UNBLOCK", "1"]).int(), 0);
        assert_eq!(server.digest(), primary.digest());
    }
}

fn a_replica_ends_no_lease_and_hides_expired_ones(family: Family) {
    let mut primary = family.start();
    let replica = family.with(&[]).replica_of(&primary).start();
    let mut tied = primary.client();
    let token = tied.cmd(&["DLOCK.ACQUIRE", "k", "a", "PX", "4000", "BIND", "0"]).int();
    primary.cmd(&["CONFIG", "SET", "dlock.lock-delay-ms", "4000"]).ok();
    primary.cmd(&["DLOCK.ACQUIRE", "closed", "a"]).ok();
    primary.cmd(&["DLOCK.BREAK", "closed"]).ok();
    primary.wait_replica_synced(&replica);
    let digest = replica.digest();
    // No primary is left that could send the replica anything.
    primary.kill9();
    assert!(!replica.cmd(&["DLOCK.INFO", "k"]).is_null());
    for key in ["k", "closed"] {
        wait_until(&format!("the end of {key} to be seen"), || {
            replica.cmd(&["DLOCK.INFO", key]).is_null()
        });
    }
    let stale = replica.cmd(&args!["DLOCK.CHECK", "k", token]).error();
    assert!(stale.starts_with("STALE "), "{stale}");
    assert!(replica.cmd(&["DLOCK.POSITION", "k", "a"]).is_null());
    assert_eq!(replica.keys(), 2);
    assert_eq!(replica.digest(), digest);
    let counters = replica.info("dlock");
    assert_eq!((counters["expiries"].as_str(), counters["disconnected"].as_str()), ("0", "0"));
    assert_eq!(counters["armed_deadlines"], "0", "nothing that could ring");
    // Promoted, it gives both their full time again, then ends them.
    replica.cmd(&["REPLICAOF", "NO", "ONE"]).ok();
    assert_eq!(replica.cmd(&args!["DLOCK.CHECK", "k", token]).int(), 1);
    assert!(replica.cmd(&["DLOCK.ACQUIRE", "closed", "b"]).is_null());
    let mut waiter = replica.block(&["DLOCK.ACQUIRE", "k", "b", "BLOCK", "0"]);
    assert!(waiter.expect_reply(SOON).int() > token);
    waiter.client().cmd(&["DLOCK.RELEASE", "k", "b"]).ok();
    replica.left_over_check();
}

/// Commands of dlock refuse an empty key, but RENAME does not.
fn a_lock_that_was_renamed_to_an_empty_name_ends_on_replicas_too(family: Family) {
    let primary = family.start();
    let replica = family.with(&[]).replica_of(&primary).start();
    let mut tied = primary.client();
    tied.cmd(&["DLOCK.ACQUIRE", "k", "a", "BIND", "0"]).int();
    primary.cmd(&["RENAME", "k", ""]).ok();
    primary.wait_replica_synced(&replica);
    assert_eq!(replica.keys(), 1);
    drop(tied);
    wait_until("the end of the hold", || primary.keys() == 0);
    primary.wait_replica_synced(&replica);
    assert_eq!(replica.keys(), 0);
    primary.left_over_check();
}

fn a_time_to_live_goes_with_a_new_owner_on_both_sides(family: Family) {
    let primary = family.start();
    let replica = family.with(&[]).replica_of(&primary).start();
    let expect = |what: &str, ttl: i64| {
        primary.wait_replica_synced(&replica);
        for server in [&primary, &replica] {
            let left = server.cmd(&["TTL", "k"]).int();
            assert_eq!(left.signum(), ttl, "{what}");
        }
        assert_eq!(replica.digest(), primary.digest(), "{what}");
    };
    let expire = || primary.cmd(&["EXPIRE", "k", "1000"]).ok();
    let token = primary.cmd(&["DLOCK.ACQUIRE", "k", "a"]).int();
    expire();
    primary.cmd(&["DLOCK.ACQUIRE", "k", "a"]).int();
    primary.cmd(&["DLOCK.RELEASE", "k", "a"]).int();
    primary.cmd(&["DLOCK.RENEW", "k", "a"]).int();
    primary.cmd(&args!["DLOCK.FENCE", "k", "a", token]).int();
    expect("the same hold", 1);
    primary.cmd(&args!["DLOCK.FENCE", "k", "a", token + 5]).int();
    expect("the same hold with a larger token", 1);
    let mut waiter = primary.block(&["DLOCK.ACQUIRE", "k", "b", "BLOCK", "0"]);
    primary.cmd(&["DLOCK.RELEASE", "k", "a"]).int();
    waiter.expect_reply(SOON).int();
    expect("another owner", -1);
    expire();
    primary.cmd(&["CONFIG", "SET", "dlock.lock-delay-ms", "3000"]).ok();
    let mut waiter = primary.block(&["DLOCK.ACQUIRE", "k", "c", "BLOCK", "0"]);
    primary.cmd(&["DLOCK.BREAK", "k"]).int();
    expect("closed", 1);
    waiter.expect_reply(SOON).int();
    expect("another owner after that", -1);
    primary.cmd(&["DLOCK.RELEASE", "k", "c"]).int();
    primary.wait_replica_synced(&replica);
    primary.left_over_check();
    replica.left_over_check();
}

fn wait_covers_grants_that_came_late_or_were_repeated(family: Family) {
    const MS: Duration = Duration::from_millis(50);
    let server = family.start();
    let mut tap = ReplicaTap::attach(&server);
    let mut first = server.client();
    let mut wait_says = |client: &mut Client, what: &str| {
        let ms = MS.as_millis();
        assert_eq!(client.cmd(&args!["WAIT", 1, ms]).int(), 0, "{what}: the replica is silent");
        tap.commands(&server);
        assert_eq!(client.cmd(&["WAIT", "1", "20000"]).int(), 1, "{what}: the replica has it");
    };
    let acquire = ["DLOCK.ACQUIRE", "k", "a", "REQID", "r"];
    let token = first.cmd(&acquire).int();
    // A connection that has written nothing itself, but got a reply to the same request.
    let mut second = server.client();
    assert_eq!(second.cmd(&acquire).int(), token);
    wait_says(&mut second, "a repeated ACQUIRE");
    first.cmd(&["DLOCK.ACQUIRE", "k", "a", "REQID", "s"]).int();
    first.cmd(&["DLOCK.RELEASE", "k", "a", "REQID", "s"]).int();
    let mut third = server.client();
    assert_eq!(third.cmd(&["DLOCK.RELEASE", "k", "a", "REQID", "s"]).int(), 1);
    wait_says(&mut third, "a repeated RELEASE");
    let mut waiter = server.block(&["DLOCK.ACQUIRE", "k", "b", "BLOCK", "0"]);
    first.cmd(&["DLOCK.RELEASE", "k", "a"]).int();
    waiter.expect_reply(SOON).int();
    wait_says(waiter.client(), "a grant to a blocked call");
    server.cmd(&["DLOCK.RELEASE", "k", "b"]).ok();
    server.left_over_check();
}
