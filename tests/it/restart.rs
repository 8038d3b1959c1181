//! A new process, or a promoted replica, takes over: leases, bindings, quarantine and tokens continue.

use std::fs;
use std::time::{Duration, Instant};

use crate::{
    args,
    durability::{AOF, crashed, done, promoted, rewritten, wait_rewritten},
    support::{Client, Family, Reply, SOON, Server, each, wait_until},
    test_both_families_at_once,
};

test_both_families_at_once! {
    leases_end_later_but_never_earlier
    a_bound_hold_has_a_grace_to_be_bound_again
    new_grants_wait_until_the_quarantine_is_over
    tokens_go_on_growing
    a_token_that_came_and_went_in_the_file_is_known
    a_lock_that_moved_right_after_it_was_loaded_ends_by_itself
    a_grant_between_two_swaps_of_databases_expires
    a_promoted_replica_gives_the_last_known_lease_in_full
}

/// A way for another process to take over, and its settings.
pub struct Way {
    pub name: &'static str,
    pub settings: &'static [&'static str],
    /// The other process has these settings, too.
    pub take_over: fn(Server, &[&str]) -> Server,
}

pub const SNAPSHOT: Way = Way {
    name: "an RDB file",
    settings: &[],
    take_over: |server, _| crashed(done(server, &["SAVE"])),
};
pub const LOG: Way = Way { name: "an AOF", settings: &AOF, take_over: |server, _| crashed(server) };
pub const REWRITTEN_LOG: Way = Way {
    name: "a rewritten AOF",
    settings: &AOF,
    take_over: |server, _| crashed(rewritten(server)),
};
pub const PROMOTION: Way = Way {
    name: "a promotion",
    settings: &[],
    take_over: |mut server, settings| {
        let replica = promoted(&server, settings);
        server.kill9();
        replica
    },
};

/// Maximum delay on a machine that runs many tests at a time.
pub const LATE: Duration = Duration::from_secs(8);

/// Takes over after `prepare`; returns the new server, with a time when it did not run yet and a time when it did.
pub fn take_over(
    family: Family,
    way: &Way,
    settings: &[&str],
    prepare: impl FnOnce(&Server),
) -> (Server, Instant, Instant) {
    let server = family.with(way.settings).start();
    prepare(&server);
    for setting in settings.chunks_exact(2) {
        server.cmd(&["CONFIG", "SET", setting[0], setting[1]]).ok();
    }
    server.cmd(&["CONFIG", "REWRITE"]).ok();
    let before = Instant::now();
    let server = (way.take_over)(server, settings);
    (server, before, Instant::now())
}

fn leases_end_later_but_never_earlier(family: Family) {
    each(&[SNAPSHOT, LOG, REWRITTEN_LOG, PROMOTION], |way| {
        let name = way.name;
        let mut given = Instant::now();
        let (server, _, after) = take_over(family, way, &[], |server| {
            // A hold, an unclaimed grant, a closed lock.
            server.cmd(&["DLOCK.ACQUIRE", "turn", "a"]).ok();
            let mut queued = server.client();
            // Its lease is no longer than QUEUE: after a snapshot the owner may have claimed the grant.
            queued.cmd(&["DLOCK.ACQUIRE", "turn", "b", "QUEUE", "600", "PX", "600"]).ok();
            server.cmd(&["CONFIG", "SET", "dlock.lock-delay-ms", "900"]).ok();
            server.cmd(&["DLOCK.ACQUIRE", "closed", "a"]).ok();
            given = Instant::now();
            server.cmd(&["DLOCK.ACQUIRE", "held", "a", "PX", "300"]).ok();
            server.cmd(&["DLOCK.RELEASE", "turn", "a"]).ok();
            server.cmd(&["DLOCK.BREAK", "closed"]).ok();
            server.cmd(&["CONFIG", "SET", "dlock.lock-delay-ms", "0"]).ok();
        });
        let mut waiters: Vec<_> = [("held", 300), ("turn", 600), ("closed", 900)]
            .map(|(key, ms)| {
                let call = ["DLOCK.ACQUIRE", key, "c", "BLOCK", "0"];
                (key, Duration::from_millis(ms), server.post(&call))
            })
            .into();
        for (key, lease, waiter) in &mut waiters {
            waiter.expect_reply(SOON).int();
            let (total, since_start) = (given.elapsed(), after.elapsed());
            assert!(total >= *lease, "{key}, {name}: {total:?} after the grant is too early");
            assert!(
                since_start <= *lease + LATE,
                "{key}, {name}: {since_start:?} after the start is too late"
            );
        }
        for (key, _, waiter) in &mut waiters {
            assert_eq!(waiter.client().cmd(&["DLOCK.RELEASE", key, "c"]).int(), 0);
        }
        server.left_over_check();
    });
}

fn a_promoted_replica_gives_the_last_known_lease_in_full(family: Family) {
    let primary = family.start();
    let replica = family.with(&[]).replica_of(&primary).start();
    // The longest that was promised: a longer RENEW counts, a shorter one does not.
    let leases = [("long", "60000", "90000", 90_000), ("short", "4000", "1000", 4_000)];
    for (key, first, renewed, _) in leases {
        primary.cmd(&["DLOCK.ACQUIRE", key, "a", "PX", first]).ok();
        primary.cmd(&["DLOCK.RENEW", key, "a", "PX", renewed]).ok();
    }
    wait_until("some of the lease to pass", || {
        primary.cmd(&["DLOCK.INFO", "short"]).field("ttl-ms").int() < 3_700
    });
    primary.wait_replica_synced(&replica);
    let before = Instant::now();
    replica.cmd(&["REPLICAOF", "NO", "ONE"]).ok();
    for (key, _, _, lease) in leases {
        let info = replica.cmd(&["DLOCK.INFO", key]);
        let passed = i64::try_from(before.elapsed().as_millis()).unwrap() + 1;
        let left = info.field("ttl-ms").int();
        assert!((lease - passed..=lease).contains(&left), "{key}: {left} left");
        assert_eq!(info.field("lease-ms").int(), lease);
    }
    let mut waiter = replica.block(&["DLOCK.ACQUIRE", "short", "b", "BLOCK", "0"]);
    waiter.expect_reply(SOON).int();
    assert!(before.elapsed() >= Duration::from_secs(4));
    assert_eq!(replica.info_number("dlock", "expiries"), 1);
    waiter.client().cmd(&["DLOCK.RELEASE", "short", "b"]).ok();
    replica.cmd(&["DLOCK.RELEASE", "long", "a"]).ok();
    replica.left_over_check();
}

fn a_bound_hold_has_a_grace_to_be_bound_again(family: Family) {
    const GRACE: Duration = Duration::from_secs(4);
    const LONGER: Duration = Duration::from_secs(5);
    each(&[SNAPSHOT, LOG, PROMOTION], |way| {
        let name = way.name;
        let settings = ["dlock.fair-grace-ms", "4000"];
        let mut ties: Vec<Client> = Vec::new();
        let (server, before, after) = take_over(family, way, &settings, |server| {
            for (key, ms) in [
                ("lost", "0"),
                ("longer", "5000"),
                ("renewed", "0"),
                ("entered", "0"),
                ("untied", "0"),
            ] {
                let mut client = server.client();
                client.cmd(&["DLOCK.ACQUIRE", key, "a", "BIND", ms, "NOTIFY", key]).ok();
                ties.push(client);
            }
        });
        let mut heard = server.subscribe(&["lost"]);
        let mut client = server.client();
        let ended = |key| server.cmd(&["DLOCK.INFO", key]).is_null();
        assert!(!ended("lost") && !ended("longer"), "{name}: they have a grace");
        client.cmd(&["DLOCK.RENEW", "renewed", "a", "BIND", "0"]).ok();
        client.cmd(&["DLOCK.ACQUIRE", "entered", "a", "BIND", "0"]).ok();
        // A renewal without BIND gives the lease in full, and the hold is bound no more.
        client.cmd(&["DLOCK.RENEW", "untied", "a", "PX", "60000"]).ok();
        client.cmd(&["DLOCK.RENEW", "untied", "a", "PX", "1", "BIND", "0"]).ok();
        for (key, until) in [("lost", GRACE), ("longer", LONGER)] {
            wait_until("a hold without an answered request to end", || ended(key));
            assert!(before.elapsed() >= until, "{key}, {name}: {:?}", before.elapsed());
            assert!(after.elapsed() <= until + LATE, "{key}, {name}: {:?}", after.elapsed());
        }
        assert!(heard.next_text().starts_with("disconnected "), "{name}");
        for key in ["renewed", "entered"] {
            let info = client.cmd(&["DLOCK.INFO", key]);
            assert_eq!(
                info.field("bound-client").int().cast_unsigned(),
                client.id(),
                "{key}, {name}"
            );
        }
        drop(client);
        wait_until("the holds that were bound again to end", || {
            ended("renewed") && ended("entered")
        });
        let info = server.cmd(&["DLOCK.INFO", "untied"]);
        assert_eq!(info.field("bound-client").int(), 0, "{name}");
        assert!(info.field("ttl-ms").int() > 5_000, "{name}: {}", info.show());
        server.cmd(&["DLOCK.RELEASE", "untied", "a"]).int();
        server.left_over_check();
    });
}

fn new_grants_wait_until_the_quarantine_is_over(family: Family) {
    const QUARANTINE: Duration = Duration::from_secs(5);
    each(&[SNAPSHOT, LOG, PROMOTION], |way| {
        let name = way.name;
        let settings = ["dlock.restart-quarantine-ms", "5000"];
        let (server, before, after) = take_over(family, way, &settings, |server| {
            server.cmd(&["DLOCK.ACQUIRE", "held", "a"]).ok();
            server.cmd(&["DLOCK.ACQUIRE", "brief", "a", "PX", "200"]).ok();
            server.cmd(&["DLOCK.ACQUIRE", "given", "a", "REQID", "r"]).ok();
        });
        assert!(server.info_number("dlock", "quarantine_left_ms") > 0, "{name}");
        let refused = server.cmd(&["DLOCK.ACQUIRE", "free", "b"]).error();
        assert!(refused.starts_with("QUARANTINE "), "{name}: {refused}");
        assert!(server.cmd(&["DLOCK.ACQUIRE", "held", "b"]).is_null(), "{name}: it is held");
        let waits = ["free", "brief", "given"]
            .map(|key| server.block(&["DLOCK.ACQUIRE", key, "b", "BLOCK", "0"]));
        // Known holds work as usual.
        let token = server.cmd(&["DLOCK.ACQUIRE", "given", "a", "REQID", "r"]).int();
        assert_eq!(server.cmd(&["DLOCK.ACQUIRE", "given", "a"]).int(), token, "{name}");
        assert_eq!(server.cmd(&["DLOCK.RENEW", "given", "a"]).int(), token, "{name}");
        let raised = (token + 1).to_string();
        assert_eq!(server.cmd(&["DLOCK.FENCE", "given", "a", &raised]).int(), token + 1, "{name}");
        assert_eq!(server.cmd(&["DLOCK.RELEASE", "given", "a", "ALL"]).int(), 0, "{name}");
        wait_until("the lease that ends in the quarantine", || {
            server.cmd(&["DLOCK.INFO", "brief"]).field("holds").int() == 0
        });
        assert!(after.elapsed() < QUARANTINE, "too slow to see anything");
        for (mut wait, key) in waits.into_iter().zip(["free", "brief", "given"]) {
            assert!(wait.expect_reply(SOON).int() > token + 1, "{key}, {name}");
            assert!(before.elapsed() >= QUARANTINE, "{key}, {name}: {:?}", before.elapsed());
            wait.client().cmd(&["DLOCK.RELEASE", key, "b"]).ok();
        }
        assert!(after.elapsed() <= QUARANTINE + LATE, "{name}: {:?}", after.elapsed());
        server.cmd(&["DLOCK.RELEASE", "held", "a"]).ok();
        server.left_over_check();
    });
}

fn tokens_go_on_growing(family: Family) {
    let as_commands = Way {
        name: "an AOF rewritten as commands",
        settings: &["appendonly", "yes", "appendfsync", "always", "aof-use-rdb-preamble", "no"],
        take_over: |server, _| crashed(rewritten(server)),
    };
    let in_a_pause = Way {
        name: "an AOF rewritten as commands in a pause",
        settings: as_commands.settings,
        take_over: |server, _| {
            // The server forks, and pauses before the module can write.
            let pause = args!["CLIENT", "PAUSE", 60_000, "WRITE"];
            for reply in server.client().pipeline(&[args!["BGREWRITEAOF"], pause]) {
                reply.ok();
            }
            wait_until("the new file", || {
                let is_whole = |name: &str| name.starts_with("temp-rewriteaof-bg");
                let mut files = fs::read_dir(server.dir()).unwrap().flatten();
                server.info_number("persistence", "aof_rewrite_in_progress") == 0
                    || files.any(|file| file.file_name().to_str().is_some_and(is_whole))
            });
            crashed(server)
        },
    };
    let reload = Way {
        name: "DEBUG RELOAD",
        settings: &[],
        take_over: |server, _| done(server, &["DEBUG", "RELOAD"]),
    };
    let turned_on = Way {
        name: "an AOF that was turned on",
        settings: &["aof-use-rdb-preamble", "no"],
        take_over: |server, _| {
            server.cmd(&["CONFIG", "SET", "appendonly", "yes"]).ok();
            server.cmd(&["CONFIG", "REWRITE"]).ok();
            wait_rewritten(&server);
            crashed(server)
        },
    };
    let partial = Way {
        name: "a partial synchronization",
        settings: &["dlock.max-token-lead-ms", LEAD],
        take_over: |mut server, settings| {
            let replica = server.family().with(settings).replica_of(&server).start();
            server.cmd(&["CLIENT", "KILL", "TYPE", "replica"]).ok();
            raise_and_release(&server);
            server.wait_replica_synced(&replica);
            assert_eq!(server.info_number("stats", "sync_full"), 1);
            server.kill9();
            done(replica, &["REPLICAOF", "NO", "ONE"])
        },
    };
    let log_of_replica = Way {
        name: "the AOF of a replica",
        settings: &[],
        take_over: |mut server, _| {
            let log = ["appendonly", "yes", "appendfsync", "always", "aof-use-rdb-preamble", "no"];
            let replica = server.family().with(&log).replica_of(&server).start();
            wait_rewritten(&replica);
            server.kill9();
            done(crashed(replica), &["REPLICAOF", "NO", "ONE"])
        },
    };
    let ways = [
        SNAPSHOT,
        LOG,
        REWRITTEN_LOG,
        PROMOTION,
        reload,
        as_commands,
        in_a_pause,
        turned_on,
        partial,
        log_of_replica,
    ];
    each(&ways, |way| {
        let name = way.name;
        let mut raised = 0;
        let (server, ..) = take_over(family, way, &[], |server| {
            server.cmd(&["CONFIG", "SET", "dlock.max-token-lead-ms", LEAD]).ok();
            raised = raise_and_release(server);
        });
        let last = server.info_number("dlock", "last_token");
        assert!(last >= raised, "{name}: {last} after {raised}");
        assert_eq!(server.cmd(&["DLOCK.ACQUIRE", "other", "a"]).int(), last + 1, "{name}");
    });
}

/// 30 days.
const LEAD: &str = "2592000000";

/// Moves the tokens 20 days ahead, or a second if they already are, with a hold that is then released.
fn raise_and_release(server: &Server) -> i64 {
    let token = server.cmd(&["DLOCK.ACQUIRE", "k", "a"]).int();
    let wall = server.cmd(&["TIME"]).items()[0].text().parse::<i64>().unwrap() * 1_000_000;
    let raised = (wall + 20 * 86_400_000_000).max(token + 1_000_000);
    server.cmd(&args!["DLOCK.FENCE", "k", "a", raised]).ok();
    server.cmd(&["DLOCK.RELEASE", "k", "a"]).ok();
    assert_eq!(server.keys(), 0);
    raised
}

/// A value that was restored, and deleted again within one turn of the server.
fn a_token_that_came_and_went_in_the_file_is_known(family: Family) {
    let server = family.with(&AOF).start();
    server.cmd(&["CONFIG", "SET", "dlock.max-token-lead-ms", LEAD]).ok();
    let token = server.cmd(&["DLOCK.ACQUIRE", "k", "a"]).int();
    let raised = token + 86_400_000_000;
    server.cmd(&args!["DLOCK.FENCE", "k", "a", raised]).ok();
    let dump = server.cmd(&["DUMP", "k"]).bytes();
    let other = family.with(&AOF).start();
    other.cmd(&["CONFIG", "SET", "dlock.max-token-lead-ms", LEAD]).ok();
    other.cmd(&args!["RESTORE", "k", 0, dump]).ok();
    other.cmd(&["DEL", "k"]).ok();
    let other = crashed(other);
    assert!(other.cmd(&["DLOCK.ACQUIRE", "k", "a"]).int() > raised);
}

fn a_lock_that_moved_right_after_it_was_loaded_ends_by_itself(family: Family) {
    let moves: [&[&str]; 3] =
        [&["RENAME", "k", "moved"], &["MOVE", "k", "5"], &["SWAPDB", "0", "5"]];
    let is_over = |server: &Server, call: &[&str]| {
        wait_until(&format!("the lease to end after {call:?}"), || server.keys() == 0);
        assert_eq!(server.info_number("dlock", "expiries"), 1, "{call:?}");
        server.left_over_check();
    };
    let in_the_file = |call: &[&str]| {
        // The move directly follows the loaded value: the server takes no turn in between.
        let server = family.with(&AOF).and(&["aof-use-rdb-preamble", "yes"]).start();
        server.cmd(&["DLOCK.ACQUIRE", "k", "a", "PX", "5000"]).ok();
        is_over(&crashed(done(rewritten(server), call)), call);
    };
    let in_a_transaction = |call: &[&str]| {
        let server = family.start();
        server.cmd(&["DLOCK.ACQUIRE", "k", "a", "PX", "3000"]).ok();
        let dump = server.cmd(&["DUMP", "k"]).bytes();
        let restore = args!["RESTORE", "k", 0, dump, "REPLACE"];
        let moving = call.iter().map(|word| word.as_bytes().to_vec()).collect();
        let replies = server.client().pipeline(&[args!["MULTI"], restore, moving, args!["EXEC"]]);
        assert_eq!(replies[3].items().len(), 2, "{replies:?}");
        is_over(&server, call);
    };
    each(&moves, |call| {
        each(
            &[true, false],
            |&is_file| if is_file { in_the_file(call) } else { in_a_transaction(call) },
        );
    });
}

fn a_grant_between_two_swaps_of_databases_expires(family: Family) {
    // The other process reads all of this at once and takes no turn in between.
    let transact = |server: &Server| {
        // A replica needs up to a second to acknowledge all of it.
        let grant = |key: &str| args!["DLOCK.ACQUIRE", key, "a", "PX", "6000"];
        let swap = || args!["SWAPDB", 0, 5];
        let calls = [
            args!["MULTI"],
            grant("k"),
            swap(),
            grant("k"),
            swap(),
            swap(),
            grant("l"),
            args!["EXEC"],
        ];
        let replies = server.client().pipeline(&calls);
        assert_eq!(replies[7].items().len(), 6, "{replies:?}");
    };
    let all_end = |server: &Server, of: &str| {
        wait_until(&format!("all leases to end {of}"), || server.keys() == 0);
        assert_eq!(server.info_number("dlock", "expiries"), 3, "{of}");
        server.left_over_check();
    };
    each(&["that an AOF brought", "that a primary told of"], |&of| {
        if of == "that an AOF brought" {
            let server = family.with(&AOF).start();
            transact(&server);
            all_end(&crashed(server), of);
        } else {
            let primary = family.start();
            let replica = family.with(&[]).replica_of(&primary).start();
            primary.wait_replica_synced(&replica);
            transact(&primary);
            primary.wait_replica_synced(&replica);
            all_end(&done(replica, &["REPLICAOF", "NO", "ONE"]), of);
        }
    });
}
