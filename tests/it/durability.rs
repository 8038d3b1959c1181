//! Acknowledged changes survive: kill -9, every way of saving and loading, every way of moving a lock.

use std::collections::BTreeMap;

use crate::{
    args,
    load::{self, Account},
    specimens::Specimens,
    support::{Client, Family, Reply, Server, wait_until},
};

/// Everything that was answered is in the file.
pub const AOF: [&str; 4] = ["appendonly", "yes", "appendfsync", "always"];
const NO_REWRITE: [&str; 2] = ["auto-aof-rewrite-percentage", "0"];

#[test]
fn acknowledged_changes_survive_kill_9() {
    survive_kill_9("yes", 1);
    survive_kill_9("no", 2);
}

/// Kills a server under load and compares its data afterwards with the replies that its clients got.
pub fn survive_kill_9(preamble: &str, seed: u64) {
    let mut server = Server::with(&AOF).and(&["aof-use-rdb-preamble", preamble]).start();
    let load = load::start(&server, 24, false, seed);
    load.wait_answers(2_000);
    // The second half goes to another file, while the first is rewritten.
    server.cmd(&["BGREWRITEAOF"]).ok();
    load.wait_answers(2_000);
    server.kill9();
    let mut accounts = load.stop();
    server.start_again();
    let mut client = server.client();
    for account in &mut accounts {
        account.repeat(&mut client);
    }
    let (known, found) = (Account::sum(accounts), Account::of(&server));
    for kind in ["lock", "fair", "rw"] {
        assert!(known.holds.keys().any(|(key, ..)| key.starts_with(kind)), "{kind}: {known:?}");
    }
    assert!(known.permits.len() > 3 && known.steps.len() > 3, "{known:?}");
    assert_eq!(found.holds, known.holds);
    assert_eq!(found.permits, known.permits);
    assert_eq!(found.taken, known.taken);
    assert_eq!(found.steps, known.steps);
    let mut largest = 0;
    for ((key, ..), (token, _)) in &known.holds {
        let family = match &key[..2] {
            "lo" => "DLOCK",
            "fa" => "DFAIR",
            _ => "DRW",
        };
        assert_eq!(client.cmd(&args![format!("{family}.CHECK"), key, token]).int(), 1, "{key}");
        largest = largest.max(*token);
    }
    assert!(client.cmd(&["DRW.ACQUIRE", "new", "a", "READ"]).int() > largest);
    client.cmd(&["FLUSHALL"]).ok();
    server.left_over_check();
}

/// A way from a server to one with the same data.
pub struct Way {
    pub name: &'static str,
    pub settings: &'static [&'static str],
    pub go: fn(Server) -> Server,
}

const WAYS: [Way; 10] = [
    Way {
        name: "SHUTDOWN SAVE",
        settings: &[],
        go: |mut server| {
            server.shutdown(&["SAVE"]);
            server.start_again();
            server
        },
    },
    Way {
        name: "BGSAVE",
        settings: &[],
        go: |server| {
            server.cmd(&["BGSAVE"]).ok();
            wait_until("the end of BGSAVE", || {
                server.info_number("persistence", "rdb_bgsave_in_progress") == 0
            });
            crashed(server)
        },
    },
    Way { name: "the AOF", settings: &AOF, go: crashed },
    Way {
        name: "an AOF rewritten as RDB",
        settings: &["appendonly", "yes", "appendfsync", "always", "aof-use-rdb-preamble", "yes"],
        go: |server| crashed(rewritten(server)),
    },
    Way {
        name: "an AOF rewritten as commands",
        settings: &["appendonly", "yes", "appendfsync", "always", "aof-use-rdb-preamble", "no"],
        go: |server| crashed(rewritten(server)),
    },
    Way { name: "DEBUG RELOAD", settings: &[], go: |server| done(server, &["DEBUG", "RELOAD"]) },
    Way { name: "DEBUG LOADAOF", settings: &AOF, go: |server| done(server, &["DEBUG", "LOADAOF"]) },
    Way { name: "a full sync", settings: &[], go: |server| promoted(&server, &[]) },
    Way {
        name: "DUMP and RESTORE",
        settings: &[],
        go: |server| {
            let dumps = each_key(&server, |client, key| {
                let dump = client.cmd(&[b"DUMP", key]).bytes();
                client.cmd(&[b"DEL", key]).ok();
                dump
            });
            for ((db, key), dump) in dumps {
                let mut client = server.client();
                client.cmd(&["SELECT", &db]).ok();
                client.cmd(&args!["RESTORE", key, 0, dump]).ok();
            }
            server
        },
    },
    Way {
        name: "MIGRATE",
        settings: &[],
        go: |server| {
            let target = server.family().with(&["rdbcompression", "no"]).start();
            for ((db, key), ()) in each_key(&server, |_, _| ()) {
                let mut client = server.client();
                client.cmd(&["SELECT", &db]).ok();
                let port = target.port();
                client.cmd(&args!["MIGRATE", "127.0.0.1", port, key, db, 5_000]).ok();
            }
            server.left_over_check();
            target
        },
    },
];

pub fn crashed(mut server: Server) -> Server {
    server.kill9();
    server.start_again();
    server
}

pub fn rewritten(server: Server) -> Server {
    server.cmd(&["BGREWRITEAOF"]).ok();
    wait_rewritten(&server);
    server
}

/// Waits for the end of a rewrite of the AOF, including one that the server started itself.
#[track_caller]
pub fn wait_rewritten(server: &Server) {
    wait_until("the end of the rewrite", || {
        server.info_number("persistence", "aof_rewrite_in_progress") == 0
            && server.info_number("persistence", "aof_rewrite_scheduled") == 0
    });
}

pub fn done(server: Server, call: &[&str]) -> Server {
    server.cmd(call).ok();
    server
}

pub fn promoted(server: &Server, settings: &[&str]) -> Server {
    let replica = server.family().with(settings).and(&["rdbcompression", "no"]);
    let replica = replica.replica_of(server).start();
    done(replica, &["REPLICAOF", "NO", "ONE"])
}

/// Calls `each` for every key, by database and key.
fn each_key<R>(
    server: &Server,
    act: impl Fn(&mut Client, &[u8]) -> R,
) -> BTreeMap<(String, Vec<u8>), R> {
    let mut results = BTreeMap::new();
    let mut client = server.client();
    for db in ["0", "9"] {
        client.cmd(&["SELECT", db]).ok();
        for key in client.cmd(&["KEYS", "*"]).items() {
            let key = key.bytes();
            let result = act(&mut client, &key);
            results.insert((db.to_owned(), key), result);
        }
    }
    results
}

/// As [`by_every_way_of`], for any family.
#[track_caller]
pub fn by_every_way<S>(make: impl Fn(&Server) -> S, use_up: impl Fn(S, &Server, &str)) {
    by_every_way_of(Family::Lock, make, use_up);
}

/// Creates a state on a server, transfers it in each way, and uses it up on the resulting server.
#[track_caller]
pub fn by_every_way_of<S>(
    family: Family,
    make: impl Fn(&Server) -> S,
    use_up: impl Fn(S, &Server, &str),
) {
    for Way { name, settings, go } in WAYS {
        let server = family.with(settings).and(&NO_REWRITE).and(&["rdbcompression", "no"]).start();
        let specimens = make(&server);
        let server = go(server);
        use_up(specimens, &server, name);
    }
}

#[test]
fn every_way_carries_everything() {
    for family in Family::ALL {
        by_every_way_of(family, Specimens::make, Specimens::use_up);
    }
}
