//! Late copies of requests: their holds have ended, here and after a failover, and the copies do nothing.

use crate::{
    support::{Family, Reply, Server, wait_until},
    test_both_families,
};

test_both_families! {
    a_promoted_replica_knows_finished_requests
}

/// Makes a call given as words, on a separate connection.
#[track_caller]
pub fn ask(server: &Server, call: &str) -> redis::Value {
    server.cmd(&call.split(' ').collect::<Vec<_>>())
}

#[track_caller]
pub fn refused(server: &Server, call: &str, code: &str) {
    let error = ask(server, call).error();
    assert!(error.starts_with(&format!("{code} ")), "{call}: {error}");
}

/// Promotes a replica that has everything.
#[track_caller]
pub fn fail_over(primary: &mut Server, replica: &Server) {
    primary.wait_replica_synced(replica);
    primary.kill9();
    ask(replica, "REPLICAOF NO ONE").ok();
}

fn a_promoted_replica_knows_finished_requests(family: Family) {
    let mut primary = family.start();
    let replica = family.with(&[]).replica_of(&primary).start();
    ask(&primary, "SET first v").ok();
    assert_eq!(ask(&primary, "WAIT 1 20000").int(), 1);
    ask(&primary, "DLOCK.ACQUIRE k a REQID a1").int();
    ask(&primary, "DLOCK.ACQUIRE k a REQID a2").int();
    assert_eq!(ask(&primary, "DLOCK.RELEASE k a REQID r1").int(), 1);
    assert_eq!(ask(&primary, "DLOCK.RELEASE k a REQID r2").int(), 0);
    ask(&primary, "DLOCK.ACQUIRE l a REQID a1").int();
    ask(&primary, "DEL l first").ok();
    assert_eq!(ask(&primary, "DLOCK.CANCEL m a REQID a1").int(), 0);
    let known = primary.info_number("dlock", "requests_remembered");
    assert_eq!(known, 6);
    primary.wait_replica_synced(&replica);
    wait_until("the replica to know as many", || {
        replica.info_number("dlock", "requests_remembered") == known
    });
    assert_eq!(primary.digest(), replica.digest());
    fail_over(&mut primary, &replica);
    assert_eq!(ask(&replica, "DLOCK.RELEASE k a REQID r1").int(), 1);
    assert_eq!(ask(&replica, "DLOCK.RELEASE k a REQID r2").int(), 0);
    for copy in ["k a REQID a1", "k a REQID a2", "l a REQID a1", "m a REQID a1"] {
        refused(&replica, &format!("DLOCK.ACQUIRE {copy} BLOCK 0"), "SPENT");
    }
    replica.left_over_check();
}

#[test]
fn read_write_locks_know_the_requests_of_each_mode() {
    let mut primary = Server::start();
    let replica = Server::with(&[]).replica_of(&primary).start();
    ask(&primary, "SET first v").ok();
    assert_eq!(ask(&primary, "WAIT 1 20000").int(), 1);
    ask(&primary, "DEL first").ok();
    ask(&primary, "DRW.ACQUIRE k a WRITE REQID x").int();
    ask(&primary, "DRW.ACQUIRE k a READ REQID x").int();
    assert_eq!(ask(&primary, "DRW.RELEASE k a WRITE REQID y").int(), 0);
    refused(&primary, "DRW.ACQUIRE k a WRITE REQID x", "SPENT");
    ask(&primary, "DRW.ACQUIRE k a READ REQID x").int();
    ask(&primary, "DRW.CANCEL k b REQID z").int();
    fail_over(&mut primary, &replica);
    refused(&replica, "DRW.ACQUIRE k a WRITE REQID x BLOCK 0", "SPENT");
    refused(&replica, "DRW.ACQUIRE k b READ REQID z", "SPENT");
    refused(&replica, "DRW.ACQUIRE k b WRITE REQID z", "SPENT");
    ask(&replica, "DRW.ACQUIRE k a READ REQID x").int();
    assert_eq!(ask(&replica, "DRW.RELEASE k a READ REQID r").int(), 0);
    ask(&replica, "DRW.ACQUIRE k a READ").int();
    assert_eq!(ask(&replica, "DRW.RELEASE k a READ REQID r").int(), 0);
    assert_eq!(ask(&replica, "DRW.INFO k").field("mode").text(), "read");
    ask(&replica, "DRW.RELEASE k a READ").int();
    replica.left_over_check();
}

#[test]
fn semaphores_remember_each_request() {
    let mut primary = Server::start();
    let replica = Server::with(&[]).replica_of(&primary).start();
    ask(&primary, "SET first v").ok();
    assert_eq!(ask(&primary, "WAIT 1 20000").int(), 1);
    ask(&primary, "DEL first").ok();
    ask(&primary, "DSEM.INIT s 9").int();
    let permit = ask(&primary, "DSEM.ACQUIRE s a REQID a1").text();
    ask(&primary, &format!("DSEM.RELEASE s {permit}")).int();
    refused(&primary, "DSEM.ACQUIRE s a REQID a1", "SPENT");
    // More than 64 of them.
    for n in 0..100 {
        assert_eq!(ask(&primary, &format!("DSEM.TAKE s REQID t{n}")).int(), 1);
        ask(&primary, &format!("DSEM.GIVE s REQID g{n}")).int();
    }
    assert_eq!(ask(&primary, "DSEM.TAKE s 2 REQID t").int(), 1);
    assert_eq!(ask(&primary, "DSEM.RESIZE s 8 REQID z").int(), 6);
    assert_eq!(ask(&primary, "DSEM.DRAIN s REQID d").int(), 6);
    fail_over(&mut primary, &replica);
    refused(&replica, "DSEM.ACQUIRE s a REQID a1 BLOCK 0", "SPENT");
    for copy in ["TAKE s REQID t0", "TAKE s 2 REQID t"] {
        assert_eq!(ask(&replica, &format!("DSEM.{copy}")).int(), 1);
    }
    assert_eq!(ask(&replica, "DSEM.GIVE s REQID g0").int(), 0);
    assert_eq!(ask(&replica, "DSEM.RESIZE s 8 REQID z").int(), 0);
    assert_eq!(ask(&replica, "DSEM.DRAIN s REQID d").int(), 6);
    for misuse in ["TAKE s 3 REQID t", "GIVE s REQID t", "RESIZE s 9 REQID z", "DRAIN s REQID t"] {
        refused(&replica, &format!("DSEM.{misuse}"), "ERR");
    }
    let info = ask(&replica, "DSEM.INFO s");
    assert_eq!((info.field("available").int(), info.field("taken").int()), (0, 8));
    ask(&replica, "DEL s").ok();
    replica.left_over_check();
}

#[test]
fn calls_for_several_keys_are_known_key_by_key() {
    let mut primary = Server::start();
    let replica = Server::with(&[]).replica_of(&primary).start();
    ask(&primary, "SET first v").ok();
    assert_eq!(ask(&primary, "WAIT 1 20000").int(), 1);
    ask(&primary, "DEL first").ok();
    ask(&primary, "DLOCK.MACQUIRE 2 k l a REQID m").items();
    assert_eq!(ask(&primary, "DLOCK.MRELEASE 3 k l n a REQID r").int(), 2);
    ask(&primary, "DLOCK.ANYACQUIRE 2 k l a REQID any").items();
    assert_eq!(ask(&primary, "DLOCK.MRELEASE 2 k l a").int(), 1);
    ask(&primary, "DLOCK.MACQUIRE 3 k l n a REQID next").items();
    assert_eq!(ask(&primary, "DLOCK.MRELEASE 3 k l n a REQID r").int(), 2);
    fail_over(&mut primary, &replica);
    assert_eq!(ask(&replica, "DLOCK.MRELEASE 3 k l n a REQID r").int(), 2);
    refused(&replica, "DLOCK.MACQUIRE 2 k l a REQID m BLOCK 0", "SPENT");
    refused(&replica, "DLOCK.ANYACQUIRE 2 k l a REQID any", "SPENT");
    refused(&replica, "DLOCK.MRELEASE 3 k l n a REQID next", "ERR");
    assert_eq!(ask(&replica, "DLOCK.MRENEW 3 k l n a").int(), 3);
    assert_eq!(ask(&replica, "DLOCK.MRELEASE 3 k l n a").int(), 3);
    replica.left_over_check();
}
