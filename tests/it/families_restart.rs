//! Read-write locks, semaphores and latches over crashes, saving, loading, moving and promotion.

use std::time::{Duration, Instant};

use crate::{
    args,
    durability::{AOF, by_every_way},
    families_load::{self, Account},
    families_specimens::Specimens,
    looks::{latch, rw, sem},
    scene::assert_lasted,
    support::{Reply, SOON, Server, each, wait_until},
};

/// Kills a server under load and compares its data afterwards with the replies that its clients got.
fn survive_kill_9(preamble: &str, seed: u64) {
    let mut server = Server::with(&AOF).and(&["aof-use-rdb-preamble", preamble]).start();
    let workload = families_load::start(&server, 24, false, seed);
    workload.wait_answers(1_000);
    // The second half goes to another file, while the first is rewritten.
    server.cmd(&["BGREWRITEAOF"]).ok();
    workload.wait_answers(1_000);
    server.kill9();
    let mut accounts = workload.stop();
    server.start_again();
    // Repeated requests get the same replies; requests that the crash interrupted are executed once.
    let mut client = server.client();
    for account in &mut accounts {
        account.repeat_pending(&mut client);
    }
    let (known, found) = (Account::sum(accounts), Account::of(&server));
    assert!(known.holds.len() > 3 && known.permits.len() > 3 && known.steps.len() > 3, "{known:?}");
    assert_eq!(found.holds, known.holds);
    assert_eq!(found.permits, known.permits);
    assert_eq!(found.taken, known.taken);
    assert_eq!(found.steps, known.steps);
    for ((key, ..), (token, _)) in &known.holds {
        assert_eq!(client.cmd(&args!["DRW.CHECK", key, token]).int(), 1, "{key}");
    }
    let largest = known.holds.values().map(|(token, _)| *token).max().unwrap();
    assert!(client.cmd(&["DRW.ACQUIRE", "new", "a", "READ"]).int() > largest);
    client.cmd(&["FLUSHALL"]).ok();
    server.left_over_check();
}

#[test]
fn acknowledged_changes_survive_kill_9() {
    survive_kill_9("yes", 1);
    survive_kill_9("no", 2);
}

#[test]
#[ignore = "soak"]
fn soak_kill_9_again_and_again() {
    for seed in 100..130 {
        survive_kill_9(if seed % 2 == 0 { "yes" } else { "no" }, seed);
    }
}

#[test]
fn every_way_carries_everything() {
    by_every_way(Specimens::make, Specimens::use_up);
}

#[test]
fn a_promoted_replica_gives_every_lease_in_full() {
    const LEASE: u64 = 4_000;
    let mut old = Server::start();
    let new = Server::with(&[]).replica_of(&old).start();
    // A new replica may get its first commands a second late.
    old.cmd(&["SET", "first", "v"]).ok();
    assert_eq!(old.cmd(&["WAIT", "1", "20000"]).int(), 1);
    old.cmd(&["DEL", "first"]).ok();
    let token = old.cmd(&args!["DRW.ACQUIRE", "k", "a", "READ", "PX", 100]).int();
    old.cmd(&args!["DRW.RENEW", "k", "a", "READ", "PX", LEASE]).int();
    old.cmd(&args!["DRW.ACQUIRE", "k", "b", "READ", "PX", LEASE]).int();
    old.cmd(&["DSEM.INIT", "s", "2"]).int();
    let permit = old.cmd(&args!["DSEM.ACQUIRE", "s", "a", "COUNT", 2, "PX", LEASE]).text();
    old.cmd(&args!["DLATCH.INIT", "l", 2, "PX", LEASE]).int();
    old.wait_replica_synced(&new);
    wait_until("some of the leases to pass", || {
        new.cmd(&["DLATCH.INFO", "l"]).field("ttl-ms").int() < 3_500
    });
    let digest = new.digest();
    old.kill9();
    // A replica ends no lease, and hides expired ones.
    wait_until("the leases to be shown as over", || rw(&new, "k") == "nothing");
    wait_until("the permit and the latch, too", || {
        sem(&new, "s") == "2 of 2 (0 leased, 0 taken)" && latch(&new, "l") == "nothing"
    });
    assert!(new.cmd(&args!["DRW.CHECK", "k", token]).error().starts_with("STALE "));
    assert!(new.cmd(&["DLATCH.AWAIT", "l"]).error().starts_with("BROKEN "));
    assert!(new.cmd(&["DRW.POSITION", "k", "a"]).is_null());
    assert!(new.cmd(&["DSEM.POSITION", "s", "a"]).is_null());
    assert_eq!((new.digest(), new.keys()), (digest, 3));
    assert_eq!(new.info_number("dlock", "armed_deadlines"), 0);

    let told = Instant::now();
    new.cmd(&["REPLICAOF", "NO", "ONE"]).ok();
    assert_eq!(new.cmd(&args!["DRW.CHECK", "k", token]).int(), 1);
    let mut writer = new.block(&["DRW.ACQUIRE", "k", "w", "WRITE", "BLOCK", "0"]);
    let mut taker = new.block(&["DSEM.TAKE", "s", "BLOCK", "0"]);
    let mut awaits = new.block(&["DLATCH.AWAIT", "l", "BLOCK", "0"]);
    assert!(writer.expect_reply(SOON).int() > token);
    assert_lasted(told, LEASE);
    assert_eq!(taker.expect_reply(SOON).int(), 1);
    assert_lasted(told, LEASE);
    assert!(awaits.expect_reply(SOON).error().starts_with("BROKEN "));
    assert_lasted(told, LEASE);
    assert!(new.cmd(&["DSEM.RELEASE", "s", &permit]).error().starts_with("NOTHELD "));
    new.cmd(&["DEL", "k", "s"]).ok();
    new.left_over_check();
}

#[test]
fn bindings_of_an_earlier_process_end_unless_bound_again() {
    const GRACE: Duration = Duration::from_secs(4);
    each(&["RDB", "AOF", "promotion"], |&how| {
        println!("{how}");
        let settings = ["dlock.fair-grace-ms", "4000"];
        let mut old = Server::with(&settings).start();
        if how == "AOF" {
            old = Server::with(&settings).and(&AOF).start();
        }
        let replica =
            (how == "promotion").then(|| Server::with(&settings).replica_of(&old).start());
        let mut tied = old.client();
        tied.cmd(&["DRW.ACQUIRE", "k", "a", "READ", "BIND", "0"]).int();
        tied.cmd(&["DRW.ACQUIRE", "k", "b", "READ", "BIND", "0"]).int();
        tied.cmd(&["DSEM.INIT", "s", "3"]).int();
        tied.cmd(&["DSEM.ACQUIRE", "s", "a", "BIND", "0"]).text();
        let kept = tied.cmd(&["DSEM.ACQUIRE", "s", "b", "BIND", "0"]).text();
        let unbound = tied.cmd(&["DSEM.ACQUIRE", "s", "c", "BIND", "0"]).text();
        if how == "RDB" {
            old.cmd(&["SAVE"]).ok();
        }
        if let Some(replica) = &replica {
            old.wait_replica_synced(replica);
        }
        old.kill9();
        drop(tied);
        let told = Instant::now();
        let server = if let Some(replica) = replica {
            replica.cmd(&["REPLICAOF", "NO", "ONE"]).ok();
            replica
        } else {
            old.start_again();
            old
        };
        let mut client = server.client();
        assert_eq!(rw(&server, "k"), "read a*1 b*1");
        client.cmd(&["DRW.RENEW", "k", "b", "READ", "BIND", "0"]).int();
        assert_eq!(client.cmd(&["DSEM.RENEW", "s", &kept, "BIND", "0"]).int(), 1);
        // A renewal without BIND gives its PX in full, and ends the binding for good.
        assert_eq!(client.cmd(&["DSEM.RENEW", "s", &unbound, "PX", "60000"]).int(), 1);
        assert_eq!(client.cmd(&["DSEM.RENEW", "s", &unbound, "BIND", "0"]).int(), 1);
        wait_until("the holds that were not bound again to end", || {
            rw(&server, "k") == "read b*1" && sem(&server, "s") == "1 of 3 (2 leased, 0 taken)"
        });
        assert!(told.elapsed() >= GRACE, "{:?}", told.elapsed());
        assert!(told.elapsed() < GRACE + SOON, "{:?}", told.elapsed());
        drop(client);
        wait_until("the rest to end with the connection", || rw(&server, "k") == "nothing");
        wait_until("the permit, too", || sem(&server, "s") == "2 of 3 (1 leased, 0 taken)");
        assert_eq!(server.cmd(&["DSEM.RELEASE", "s", &unbound]).int(), 3);
        server.cmd(&["DEL", "s"]).ok();
        server.left_over_check();
    });
}
