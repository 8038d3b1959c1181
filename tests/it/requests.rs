//! Late copies of requests: their holds have ended, here and after a failover, and the copies do nothing.

use crate::{
    support::{Family, Reply, Server, wait_until},
    test_both_families,
};

test_both_families! {
    a_promoted_replica_knows_finished_requests
}

#[track_caller]
pub fn refused(server: &Server, call: &str, code: &str) {
    let error = server.ask(call).error();
    assert!(error.starts_with(&format!("{code} ")), "{call}: {error}");
}

/// A primary, and a replica that follows it.
fn pair(family: Family) -> (Server, Server) {
    let primary = family.start();
    let replica = family.with(&[]).replica_of(&primary).start();
    primary.ask("SET first v").ok();
    assert_eq!(primary.ask("WAIT 1 20000").int(), 1);
    primary.ask("DEL first").ok();
    (primary, replica)
}

/// Promotes a replica that has everything.
#[track_caller]
pub fn fail_over(primary: &mut Server, replica: &Server) {
    primary.wait_replica_synced(replica);
    primary.kill9();
    replica.ask("REPLICAOF NO ONE").ok();
}

fn a_promoted_replica_knows_finished_requests(family: Family) {
    let (mut primary, replica) = pair(family);
    primary.ask("DLOCK.ACQUIRE k a REQID a1").int();
    primary.ask("DLOCK.ACQUIRE k a REQID a2").int();
    assert_eq!(primary.ask("DLOCK.RELEASE k a REQID a1").int(), 1);
    assert_eq!(primary.ask("DLOCK.RELEASE k a REQID a2").int(), 0);
    primary.ask("DLOCK.ACQUIRE l a REQID a1").int();
    primary.ask("DEL l").ok();
    refused(&primary, "DLOCK.RELEASE m a REQID a1", "UNKNOWN");
    let known = primary.info_number("dlock", "requests_remembered");
    assert_eq!(known, 4);
    primary.wait_replica_synced(&replica);
    wait_until("the replica to know as many", || {
        replica.info_number("dlock", "requests_remembered") == known
    });
    assert_eq!(primary.digest(), replica.digest());
    fail_over(&mut primary, &replica);
    assert_eq!(replica.ask("DLOCK.RELEASE k a REQID a1").int(), 1);
    assert_eq!(replica.ask("DLOCK.RELEASE k a REQID a2").int(), 0);
    refused(&replica, "DLOCK.RELEASE l a REQID a1", "LOST deleted");
    refused(&replica, "DLOCK.RELEASE m a REQID a1", "UNKNOWN");
    for copy in ["k a REQID a1", "k a REQID a2", "l a REQID a1", "m a REQID a1"] {
        refused(&replica, &format!("DLOCK.ACQUIRE {copy} BLOCK 0"), "SPENT");
    }
    replica.left_over_check();
}

#[test]
fn read_write_locks_know_the_requests_of_each_mode() {
    let (mut primary, replica) = pair(Family::Lock);
    primary.ask("DRW.ACQUIRE k a WRITE REQID x").int();
    primary.ask("DRW.ACQUIRE k a READ REQID x").int();
    assert_eq!(primary.ask("DRW.RELEASE k a WRITE REQID x").int(), 0);
    refused(&primary, "DRW.ACQUIRE k a WRITE REQID x", "SPENT");
    primary.ask("DRW.ACQUIRE k a READ REQID x").int();
    refused(&primary, "DRW.RELEASE k b READ REQID z", "UNKNOWN");
    fail_over(&mut primary, &replica);
    refused(&replica, "DRW.ACQUIRE k a WRITE REQID x BLOCK 0", "SPENT");
    refused(&replica, "DRW.ACQUIRE k b READ REQID z", "SPENT");
    assert!(replica.ask("DRW.ACQUIRE k b WRITE REQID z").is_null());
    replica.ask("DRW.ACQUIRE k a READ REQID x").int();
    assert_eq!(replica.ask("DRW.RELEASE k a READ REQID x").int(), 0);
    replica.ask("DRW.ACQUIRE k a READ").int();
    assert_eq!(replica.ask("DRW.RELEASE k a READ REQID x").int(), 0);
    assert_eq!(replica.ask("DRW.INFO k").field("mode").text(), "read");
    replica.ask("DRW.RELEASE k a READ").int();
    replica.left_over_check();
}

#[test]
fn semaphores_remember_each_request() {
    let (mut primary, replica) = pair(Family::Lock);
    primary.ask("DSEM.INIT s 9").int();
    let permit = primary.ask("DSEM.ACQUIRE s a REQID a1").text();
    primary.ask(&format!("DSEM.RELEASE s {permit}")).int();
    refused(&primary, "DSEM.ACQUIRE s a REQID a1", "SPENT");
    // More than 64 of them.
    for n in 0..100 {
        assert_eq!(primary.ask(&format!("DSEM.TAKE s REQID t{n}")).int(), 1);
        primary.ask(&format!("DSEM.GIVE s REQID g{n}")).int();
    }
    assert_eq!(primary.ask("DSEM.TAKE s 2 REQID t").int(), 1);
    assert_eq!(primary.ask("DSEM.RESIZE s 8 REQID z").int(), 6);
    assert_eq!(primary.ask("DSEM.DRAIN s REQID d").int(), 6);
    fail_over(&mut primary, &replica);
    refused(&replica, "DSEM.ACQUIRE s a REQID a1 BLOCK 0", "SPENT");
    for copy in ["TAKE s REQID t0", "TAKE s 2 REQID t"] {
        assert_eq!(replica.ask(&format!("DSEM.{copy}")).int(), 1);
    }
    assert_eq!(replica.ask("DSEM.GIVE s REQID g0").int(), 0);
    assert_eq!(replica.ask("DSEM.RESIZE s 8 REQID z").int(), 0);
    assert_eq!(replica.ask("DSEM.DRAIN s REQID d").int(), 6);
    for misuse in ["TAKE s 3 REQID t", "GIVE s REQID t", "RESIZE s 9 REQID z", "DRAIN s REQID t"] {
        refused(&replica, &format!("DSEM.{misuse}"), "ERR");
    }
    let info = replica.ask("DSEM.INFO s");
    assert_eq!((info.field("available").int(), info.field("taken").int()), (0, 8));
    replica.ask("DEL s").ok();
    replica.left_over_check();
}

#[test]
fn calls_for_several_keys_are_known_key_by_key() {
    let (mut primary, replica) = pair(Family::Lock);
    primary.ask("DLOCK.MACQUIRE 2 k l a REQID m").items();
    assert_eq!(primary.ask("DLOCK.MRELEASE 2 k l a REQID m").int(), 2);
    primary.ask("DLOCK.ANYACQUIRE 2 k l a REQID any").items();
    assert_eq!(primary.ask("DLOCK.RELEASE k a REQID any").int(), 0);
    primary.ask("DLOCK.MACQUIRE 3 k l n a REQID next").items();
    assert_eq!(primary.ask("DLOCK.MRELEASE 2 k l a REQID m").int(), 2);
    fail_over(&mut primary, &replica);
    assert_eq!(replica.ask("DLOCK.MRELEASE 2 k l a REQID m").int(), 2);
    // The request never named one of the keys.
    refused(&replica, "DLOCK.MRELEASE 3 k l n a REQID m", "UNKNOWN");
    refused(&replica, "DLOCK.MACQUIRE 2 k l a REQID m BLOCK 0", "SPENT");
    refused(&replica, "DLOCK.ANYACQUIRE 2 k l a REQID any", "SPENT");
    assert_eq!(replica.ask("DLOCK.MRENEW 3 k l n a").int(), 3);
    assert_eq!(replica.ask("DLOCK.MRELEASE 3 k l n a REQID next").int(), 3);
    replica.left_over_check();
}
