//! Replicas of read-write locks, semaphores and latches: equal to the primary after any operation, and without
//! decisions.

use redis::Value;

use crate::{
    args,
    durability::AOF,
    families_load,
    looks::{latch, rw, sem},
    replication::wait_equal,
    scene::assert_sent_away,
    support::{ReplicaTap, Reply, SOON, Server, wait_until},
};

/// Replicas of every kind, links that break, and a random workload of all commands.
fn stay_equal(seed: u64) {
    println!("seed {seed}");
    let mut primary = Server::start();
    let plain = Server::with(&[]).replica_of(&primary).start();
    let mut logging = Server::with(&AOF).replica_of(&primary).start();
    let chained = Server::with(&[]).replica_of(&plain).start();
    let workload = families_load::start(&primary, 16, true, seed);
    workload.wait_answers(1_000);
    // Their links break, and they resume.
    primary.cmd(&["CLIENT", "KILL", "TYPE", "replica"]).ok();
    workload.wait_answers(1_000);
    // In the middle a new replica gets a full synchronization.
    let late = Server::with(&["repl-diskless-load", "swapdb"]).replica_of(&primary).start();
    workload.wait_answers(2_000);
    drop(workload.stop());

    for call in [
        "DRW.ACQUIRE left a READ PX 600000",
        "DRW.ACQUIRE left b READ PX 600000",
        "DSEM.ACQUIRE left:s a LIMIT 5 COUNT 2 PX 600000",
        "DSEM.TAKE left:s",
        "DLATCH.INIT left:l 5",
        "DLATCH.COUNTDOWN left:l 2 REQID r",
    ] {
        primary.ask(call).ok();
    }
    for (replica, what) in
        [(&plain, "a replica"), (&logging, "one with an AOF"), (&late, "a late one")]
    {
        wait_equal(&primary, replica, what);
    }
    wait_equal(&plain, &chained, "a replica's replica");
    let info = primary.info("dlock");
    for outcome in [
        "grants_at_once",
        "grants_after_waiting",
        "timeouts",
        "expiries",
        "releases",
        "broken",
        "disconnected",
        "unclaimed",
    ] {
        assert_ne!(info[outcome], "0", "{outcome} did not happen: {info:?}");
    }

    // The AOF of a replica is a separate data set.
    wait_until("everything else to end", || {
        let info = primary.info("dlock");
        let expiring = primary.info("keyspace").values().any(|db| !db.contains("expires=0"));
        (info["held_locks"].as_str(), info["leased_permits"].as_str()) == ("2", "2") && !expiring
    });
    wait_equal(&primary, &logging, "the one with an AOF");
    let digest = logging.digest();
    primary.kill9();
    logging.kill9();
    logging.start_again();
    assert_eq!(logging.digest(), digest);
    assert_ne!(digest, "0".repeat(40));
    for server in [&plain, &late] {
        server.cmd(&["REPLICAOF", "NO", "ONE"]).ok();
        assert_eq!(rw(server, "left"), "read a*1 b*1");
        assert_eq!(sem(server, "left:s"), "2 of 5 (2 leased, 1 taken)");
        assert_eq!(latch(server, "left:l"), "3 of 5");
        server.cmd(&["FLUSHALL"]).ok();
        server.left_over_check();
    }
}

#[test]
fn every_replica_is_equal_after_a_random_workload() {
    stay_equal(3);
    stay_equal(4);
}

#[test]
#[ignore = "soak"]
fn soak_replicas_are_equal_again_and_again() {
    for seed in 100..120 {
        stay_equal(seed);
    }
}

#[test]
fn a_replica_shows_everything_and_takes_no_write() {
    let primary = Server::start();
    let replica = Server::with(&[]).replica_of(&primary).start();
    let writable = Server::with(&["replica-read-only", "no"]).replica_of(&primary).start();
    let mut tied = primary.client();
    let hold = ["DRW.ACQUIRE", "k", "a", "READ", "PX", "60000", "BIND", "0", "LABEL", "why"];
    let token = tied.cmd(&hold).int();
    let writing = tied.cmd(&["DRW.ACQUIRE", "k", "a", "WRITE"]).int();
    let id = tied.cmd(&["DSEM.ACQUIRE", "s", "a", "LIMIT", "3", "COUNT", "2", "BIND", "0"]).text();
    tied.cmd(&["DSEM.TAKE", "s"]).int();
    let _waiters = [
        primary.block(&["DRW.ACQUIRE", "k", "b", "READ", "BLOCK", "0"]),
        primary.block(&["DSEM.ACQUIRE", "s", "b", "BLOCK", "0"]),
    ];
    for server in [&replica, &writable] {
        primary.wait_replica_synced(server);
        assert_eq!(server.digest(), primary.digest());
        // Connections and queues exist only on the primary.
        assert_eq!(rw(server, "k"), "write a*1; read a*1");
        assert_eq!(sem(server, "s"), "0 of 3 (2 leased, 1 taken)");
        let reader = server.cmd(&["DRW.INFO", "k"]).field("readers").items()[0].clone();
        assert_eq!((reader.field("token").int(), reader.field("bound-client").int()), (token, 0));
        assert_eq!(reader.field("label").text(), "why");
        assert!((1..=60_000).contains(&reader.field("ttl-ms").int()), "{}", reader.show());
        let permit = server.cmd(&["DSEM.PERMITS", "s"]).items()[0].clone();
        assert_eq!(
            (permit.field("id").text(), permit.field("bound-client").int()),
            (id.clone(), 0)
        );
        for token in [token, writing] {
            assert_eq!(server.cmd(&args!["DRW.CHECK", "k", token]).int(), 1);
        }
        assert_eq!(server.cmd(&["DRW.POSITION", "k", "a"]).int(), 0);
        assert_eq!(server.cmd(&["DSEM.POSITION", "s", "a"]).int(), 0);
        for family in ["DRW", "DSEM"] {
            let key = if family == "DRW" { "k" } else { "s" };
            assert!(server.cmd(&[&format!("{family}.POSITION"), key, "b"]).is_null());
            assert_eq!(server.cmd(&[&format!("{family}.WAITERS"), key]), Value::Array(vec![]));
        }
        for call in [
            "DRW.ACQUIRE k a READ",
            "DRW.ACQUIRE free a WRITE BLOCK 0",
            "DRW.RELEASE k a READ",
            "DRW.RENEW k a WRITE",
            "DRW.BREAK k",
            "DRW.RELEASE k b WRITE",
            "DSEM.INIT t 1",
            "DSEM.RESIZE s 5",
            "DSEM.ACQUIRE s a BLOCK 0",
            &format!("DSEM.RELEASE s {id}"),
            &format!("DSEM.RENEW s {id}"),
            &format!("DSEM.BREAK s {id}"),
            "DSEM.TAKE s",
            "DSEM.GIVE s",
            "DSEM.DRAIN s",
            "DSEM.RELEASE s b ALL",
        ] {
            let refused = server.ask(call).error();
            assert!(refused.starts_with("READONLY "), "{call}: {refused}");
        }
        assert_eq!(server.digest(), primary.digest());
    }
}

#[test]
fn waiters_of_a_server_that_becomes_a_replica_are_sent_away() {
    let other = Server::start();
    let server = Server::start();
    server.cmd(&["DRW.ACQUIRE", "k", "h", "WRITE"]).int();
    server.cmd(&["DLATCH.INIT", "l", "1"]).int();
    let mut waiters = [
        server.block(&["DRW.ACQUIRE", "k", "a", "READ", "BLOCK", "0"]),
        server.block(&["DSEM.ACQUIRE", "s", "a", "BLOCK", "0"]),
        server.block(&["DSEM.TAKE", "s", "BLOCK", "0"]),
        server.block(&["DLATCH.AWAIT", "l", "BLOCK", "0"]),
    ];
    let port = other.port().to_string();
    server.cmd(&["REPLICAOF", "127.0.0.1", &port]).ok();
    for waiter in &mut waiters {
        assert_sent_away(&waiter.expect_reply(SOON));
    }
    other.cmd(&["SET", "mark", "x"]).ok();
    other.wait_replica_synced(&server);
    assert_eq!(server.digest(), other.digest());
    other.cmd(&["DEL", "mark"]).ok();
    other.wait_replica_synced(&server);
    server.left_over_check();
}

/// Replicas get the effects of a call; a call that only waits or is refused sends nothing.
#[test]
fn each_call_is_one_record_or_none() {
    let server = Server::start();
    let mut tap = ReplicaTap::attach(&server);
    let mut client = server.client();
    let mut id = String::new();
    for (call, records) in [
        ("DRW.ACQUIRE k a READ", 1),
        ("DRW.ACQUIRE k b READ", 1),
        ("DRW.ACQUIRE k a READ", 1),
        ("DRW.ACQUIRE k c WRITE", 0),
        ("DRW.ACQUIRE k c WRITE QUEUE 60000", 0),
        ("DRW.RENEW k a READ", 1),
        ("DRW.RELEASE k a READ ALL", 1),
        ("DRW.RELEASE k b READ", 1),
        ("DRW.INFO k", 0),
        ("DRW.BREAK k", 1),
        ("DRW.BREAK k", 0),
        ("DSEM.INIT s 5", 1),
        ("DSEM.INIT s 5", 0),
        ("DSEM.ACQUIRE s a REQID r", 1),
        // Replicated again, so that WAIT after it covers the grant.
        ("DSEM.ACQUIRE s a REQID r", 1),
        ("DSEM.TAKE s 2", 1),
        ("DSEM.TAKE s 3", 0),
        ("DSEM.DRAIN s", 1),
        ("DSEM.RESIZE s 9", 1),
        ("DSEM.GIVE s 4", 1),
        ("DSEM.RENEW s $id", 1),
        ("DSEM.RELEASE s $id", 1),
        ("DSEM.PERMITS s", 0),
        ("DLATCH.INIT l 3", 1),
        ("DLATCH.INIT l 3", 0),
        ("DLATCH.AWAIT l", 0),
        ("DLATCH.COUNTDOWN l REQID a", 1),
        ("DLATCH.COUNTDOWN l 5", 1),
        ("DLATCH.COUNTDOWN l", 0),
        ("DEL s", 1),
    ] {
        let reply = client.cmd(&call.replace("$id", &id).split(' ').collect::<Vec<_>>()).ok();
        if let Value::BulkString(_) = &reply {
            id = reply.text();
        }
        let lines = tap.lines(&server);
        assert_eq!(lines.len(), records, "{call}: {lines:?}");
    }
    server.left_over_check();
}
