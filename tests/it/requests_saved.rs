//! Finished requests in files and full synchronizations: a server that takes a data set over knows them, too.

use std::{fs, panic::AssertUnwindSafe};

use crate::{
    args,
    durability::{Way, crashed, done, rewritten},
    requests::{fail_over, refused},
    support::{Family, Kind, Reply, Server, wait_until},
    test_both_families_at_once,
};

test_both_families_at_once! {
    a_late_replica_knows_earlier_finished_requests
    a_full_sync_replaces_the_finished_requests
    a_file_contains_finished_requests
}

/// Ends holds and other requests with an id, of every kind of use.
fn spend(server: &Server) {
    server.ask("DLOCK.ACQUIRE k a REQID a1").int();
    server.ask("DLOCK.ACQUIRE k a REQID a2").int();
    assert_eq!(server.ask("DLOCK.RELEASE k a REQID a1").int(), 1);
    assert_eq!(server.ask("DLOCK.RELEASE k a REQID a2").int(), 0);
    server.ask("DLOCK.ACQUIRE l a REQID a1").int();
    server.ask("DEL l").ok();
    refused(server, "DLOCK.RELEASE m a REQID a1", "UNKNOWN");
    server.ask("DLOCK.ACQUIRE n a REQID a1").int();
    assert_eq!(server.ask("DLOCK.RELEASE n a REQID a1").int(), 0);
    server.ask("DSEM.INIT s 9").int();
    assert_eq!(server.ask("DSEM.TAKE s 2 REQID t").int(), 1);
    assert_eq!(server.ask("DSEM.GIVE s REQID g").int(), 8);
    assert_eq!(server.ask("DSEM.DRAIN s REQID d").int(), 8);
    wait_until("the end of the hold that was deleted", || remembered(server) == SPENT);
}

/// Requests that [`spend`] ends.
const SPENT: i64 = 8;

fn remembered(server: &Server) -> i64 {
    server.info_number("dlock", "requests_remembered")
}

/// Copies of all of them arrive, and do nothing.
#[track_caller]
fn copies_do_nothing(server: &Server, what: &str) {
    assert_eq!(remembered(server), SPENT, "{what}");
    // Another owner now holds one of the keys.
    let token = server.ask("DLOCK.ACQUIRE n b").int();
    for copy in ["k a REQID a1", "k a REQID a2", "l a REQID a1", "m a REQID a1", "n a REQID a1"] {
        refused(server, &format!("DLOCK.ACQUIRE {copy}"), "SPENT");
        refused(server, &format!("DLOCK.ACQUIRE {copy} BLOCK 0"), "SPENT");
    }
    assert_eq!(server.ask("DLOCK.RELEASE k a REQID a1").int(), 1, "{what}");
    assert_eq!(server.ask("DLOCK.RELEASE k a REQID a2").int(), 0, "{what}");
    assert_eq!(server.ask("DLOCK.RELEASE n a REQID a1").int(), 0, "{what}");
    refused(server, "DLOCK.RELEASE l a REQID a1", "LOST deleted");
    assert_eq!(server.cmd(&args!["DLOCK.CHECK", "n", token]).int(), 1, "{what}");
    refused(server, "DLOCK.RELEASE m a REQID a1", "UNKNOWN");
    assert_eq!(server.ask("DSEM.TAKE s 2 REQID t").int(), 1, "{what}");
    assert_eq!(server.ask("DSEM.GIVE s REQID g").int(), 0, "{what}");
    assert_eq!(server.ask("DSEM.DRAIN s REQID d").int(), 8, "{what}");
    refused(server, "DSEM.TAKE s REQID t", "ERR");
    // New requests are executed.
    assert_eq!(server.ask("DLOCK.RELEASE n b").int(), 0, "{what}");
    server.ask("DLOCK.ACQUIRE k a REQID a3").int();
    assert_eq!(server.ask("DLOCK.RELEASE k a REQID a3").int(), 0, "{what}");
    server.ask("DEL s").ok();
    server.left_over_check();
}

fn a_late_replica_knows_earlier_finished_requests(family: Family) {
    let ways: [&[&str]; 4] = [
        &[],
        &["repl-diskless-load", "swapdb"],
        &["repl-diskless-load", "on-empty-db"],
        &["appendonly", "yes"],
    ];
    for settings in ways {
        let mut primary = family.start();
        spend(&primary);
        let replica = family.with(settings).replica_of(&primary).start();
        let chained = family.with(settings).replica_of(&replica).start();
        assert_eq!(remembered(&replica), SPENT);
        // Later requests come as records, and count once.
        refused(&primary, "DLOCK.RELEASE m a REQID a1", "UNKNOWN");
        primary.wait_replica_synced(&replica);
        replica.wait_replica_synced(&chained);
        fail_over(&mut primary, &replica);
        copies_do_nothing(&replica, &format!("a replica with {settings:?}"));
        drop(replica);
        chained.ask("REPLICAOF NO ONE").ok();
        let known = remembered(&chained);
        assert!(known >= SPENT, "{known} by a replica's replica with {settings:?}");
        refused(&chained, "DLOCK.ACQUIRE k a REQID a1", "SPENT");
    }
}

fn a_full_sync_replaces_the_finished_requests(family: Family) {
    for load in ["disabled", "swapdb"] {
        let mut primary = family.with(&["repl-backlog-size", "16384"]).start();
        spend(&primary);
        // It was a primary itself; its knowledge is about data that are replaced.
        let replica = family.with(&["repl-diskless-load", load]).start();
        replica.ask("DLOCK.ACQUIRE own a REQID a1").int();
        replica.ask("DLOCK.RELEASE own a REQID a1").int();
        replica.cmd(&args!["REPLICAOF", "127.0.0.1", primary.port()]).ok();
        let synced = |times: i64| {
            wait_until("the full sync", || {
                replica.info("replication")["master_link_status"] == "up"
                    && primary.info_number("stats", "sync_full") == times
            });
            primary.wait_replica_synced(&replica);
        };
        synced(1);
        assert_eq!(remembered(&replica), SPENT, "{load}");
        // Again, with missed records; with swapdb the old data are served meanwhile.
        let mut client = primary.client();
        client.pipeline(&[
            args!["MULTI"],
            args!["CLIENT", "KILL", "TYPE", "replica"],
            args!["DLOCK.ACQUIRE", "late", "a", "REQID", "a1"],
            args!["DLOCK.RELEASE", "late", "a", "REQID", "a1"],
            args!["SET", "big", vec![b'x'; 1 << 20]],
            args!["DEL", "big"],
            args!["EXEC"],
        ]);
        synced(2);
        wait_until("the replica to know as much", || remembered(&replica) == SPENT + 1);
        refused(&primary, "DLOCK.RELEASE later a REQID a1", "UNKNOWN");
        fail_over(&mut primary, &replica);
        assert_eq!(remembered(&replica), SPENT + 2, "{load}");
        for copy in ["k a REQID a1", "late a REQID a1", "later a REQID a1"] {
            refused(&replica, &format!("DLOCK.ACQUIRE {copy}"), "SPENT");
        }
        // Its data set does not contain this request.
        replica.ask("DLOCK.ACQUIRE own a REQID a1").int();
        assert_eq!(replica.ask("DLOCK.RELEASE own a REQID a1").int(), 0);

        // A full synchronization from a primary without requests removes all of them.
        let empty = family.start();
        replica.ask("DEL s").ok();
        replica.cmd(&args!["REPLICAOF", "127.0.0.1", empty.port()]).ok();
        replica.wait_linked();
        assert_eq!(remembered(&replica), 0, "{load}");
        replica.cmd(&["REPLICAOF", "NO", "ONE"]).ok();
        replica.left_over_check();
    }
}

fn a_file_contains_finished_requests(family: Family) {
    const PREAMBLE: &[&str] =
        &["appendonly", "yes", "appendfsync", "always", "aof-use-rdb-preamble", "yes"];
    let ways = [
        Way { name: "an RDB file", settings: &[], go: |server| crashed(done(server, &["SAVE"])) },
        Way { name: "an AOF", settings: PREAMBLE, go: crashed },
        Way {
            name: "a rewritten AOF",
            settings: PREAMBLE,
            go: |server| crashed(rewritten(server)),
        },
        Way {
            name: "DEBUG RELOAD",
            settings: &[],
            go: |server| done(server, &["DEBUG", "RELOAD"]),
        },
    ];
    for Way { name, settings, go } in ways {
        let server = family.with(settings).start();
        spend(&server);
        copies_do_nothing(&go(server), name);
    }
}

#[test]
fn outdated_requests_are_not_saved() {
    if !Kind::of_binary().at_least((7, 2), (7, 2)) {
        // A file of an older server always needs the module.
        return;
    }
    let server = Server::start();
    let plain = Server::with(&[]).without_module().start();
    let load = || {
        server.ask("SAVE").ok();
        fs::copy(server.dir().join("dump.rdb"), plain.dir().join("dump.rdb")).expect("our files");
        plain.ask("DEBUG RELOAD NOSAVE").ok();
    };
    server.ask("SET plain value").ok();
    server.ask("DLOCK.ACQUIRE k a REQID a1").int();
    server.ask("DLOCK.RELEASE k a").int();
    server.ask("CONFIG SET dlock.request-memory-ms 1").ok();
    wait_until("all to be forgotten", || remembered(&server) == 0);
    load();
    assert_eq!(plain.ask("GET plain").text(), "value");
}

#[test]
fn a_damaged_memory_of_requests_is_refused_at_the_start() {
    let mut server = Server::with(&["rdbcompression", "no", "rdbchecksum", "no"]).start();
    for id in ["a1", "a2"] {
        server.ask(&format!("DLOCK.ACQUIRE k a REQID {id}")).int();
        server.ask(&format!("DLOCK.RELEASE k a REQID {id}")).int();
    }
    server.ask("SAVE").ok();
    let token = server.info_number("dlock", "last_token");
    server.kill9();
    let file = server.dir().join("dump.rdb");
    let whole = fs::read(&file).expect("the file that was saved");
    let head = [&[1][..], &token.to_le_bytes()].concat();
    let head = whole.windows(9).position(|part| part == head).expect("the first string");
    // A later version; an invalid token; more requests than exist, and fewer.
    for (at, byte) in [(0, 9), (8, 0xFF), (25, 3), (32, 0xFF), (25, 1), (25, 0)] {
        let mut bytes = whole.clone();
        bytes[head + at] = byte;
        fs::write(&file, bytes).expect("a file of ours");
        let start = AssertUnwindSafe(|| server.start_again());
        assert!(std::panic::catch_unwind(start).is_err(), "the server started: {at} {byte}");
    }
    assert!(server.log().contains("refused: it needs record level 9"), "{}", server.log_tail());
    fs::write(&file, whole).expect("a file of ours");
    server.start_again();
    refused(&server, "DLOCK.ACQUIRE k a REQID a1", "SPENT");
    server.left_over_check();
}
