//! Acknowledged changes survive: kill -9, every way of saving and loading, every way of moving a lock.

use std::collections::BTreeMap;

use dlock_core::value::resource::Resource;

use crate::{
    args,
    records::{stored, words},
    specimens::Specimens,
    support::{Client, Family, Reply, Server, wait_until},
    workload::{Account, Claim, Mix, Pending, Verb, Workload},
};

/// Everything that was answered is in the file.
pub const AOF: [&str; 4] = ["appendonly", "yes", "appendfsync", "always"];
const NO_REWRITE: [&str; 2] = ["auto-aof-rewrite-percentage", "0"];

#[test]
fn acknowledged_changes_survive_kill_9() {
    for family in Family::ALL {
        survive_kill_9(family, "yes", 1);
        survive_kill_9(family, "no", 2);
    }
}

/// Kills a server under load and compares its data afterwards with the replies that its clients got.
pub fn survive_kill_9(family: Family, preamble: &str, seed: u64) {
    let mut server =
        family.with(&AOF).and(&["aof-use-rdb-preamble", preamble, "rdbcompression", "no"]).start();
    let lease_ms = 600_000..900_000;
    let mix = Mix { family, connections: 24, keys: 16, lease_ms, ruthless: false };
    let workload = Workload::start(&server, &mix, seed);
    workload.wait_answers(1_000);
    // The second half goes to another file, while the first is rewritten.
    server.cmd(&["BGREWRITEAOF"]).ok();
    workload.wait_answers(1_000);
    server.kill9();
    let accounts = workload.stop();
    server.start_again();

    let mut client = server.client();
    let mut found = BTreeMap::new();
    for key in (0..mix.keys).map(|n| format!("key{n}")) {
        found.extend(stored(&mut client, key.as_bytes()).map(|lock| (key, lock)));
    }
    let answered: usize = accounts.iter().map(|account| account.claims.len()).sum();
    assert!(answered > 3, "too little was held at the end: {accounts:?}");
    for account in &accounts {
        nothing_is_lost(account, &found);
    }
    nothing_is_made_up(&accounts, &found);
    for account in &accounts {
        // A rewrite as commands does not carry what the server remembers of requests that are over.
        calls_can_be_repeated(account, &mut client, preamble == "yes");
    }
    let largest = accounts.iter().map(|account| account.largest).max();
    assert!(Some(client.cmd(&["DLOCK.ACQUIRE", "new", "a"]).int()) > largest);
}

/// Every acknowledged hold exists, with its token, its count and the ids of the calls.
fn nothing_is_lost(account: &Account, found: &BTreeMap<String, Resource>) {
    for (key, claim) in &account.claims {
        let pending = account.pending.as_ref().filter(|pending| pending.key == *key);
        let what = || {
            let is = found.get(key).map_or("nothing".to_owned(), words);
            format!("{key} of {}: {claim:?}, sent last {pending:?}, found {is}", account.owner)
        };
        let hold = found.get(key).and_then(|resource| resource.lock().hold());
        let hold = hold.filter(|hold| *hold.owner == *account.owner.as_bytes());
        let Some(hold) = hold else {
            let was_released =
                pending.is_some_and(|p| p.verb == Verb::Release) && claim.holds() == 1;
            assert!(was_released, "{}", what());
            continue;
        };
        let open: Vec<String> =
            hold.request_ids().map(|id| id.escape_ascii().to_string()).collect();
        let mut known = claim.ids.clone();
        match pending {
            Some(Pending { id, verb: Verb::Acquire, .. }) if open.contains(id) => {
                known.push(id.clone());
            }
            Some(Pending { id, verb: Verb::Release, .. }) if !open.contains(id) => {
                known.retain(|open| open != id);
            }
            _ => {}
        }
        assert_eq!(open, known, "{}", what());
        assert_eq!(hold.count as usize, known.len(), "{}", what());
        let token = i64::try_from(hold.token).unwrap();
        let highest =
            claim.token + if pending.is_some_and(|p| p.verb == Verb::Fence) { 2 } else { 0 };
        assert!((claim.token..=highest).contains(&token), "{}", what());
    }
}

/// Every existing hold is known, was requested when the crash came, or is a grant to a place.
fn nothing_is_made_up(accounts: &[Account], found: &BTreeMap<String, Resource>) {
    for (key, resource) in found {
        // A key of DFAIR may hold nothing but places.
        let Some(hold) = resource.lock().hold() else { continue };
        let owner =
            accounts.iter().find(|account| *hold.owner == *account.owner.as_bytes()).unwrap();
        let is_asked_for = owner.pending.as_ref().is_some_and(|p| p.key == *key);
        assert!(
            owner.claims.contains_key(key) || is_asked_for || hold.unclaimed().is_some(),
            "{key} was released, but is {}",
            words(resource)
        );
    }
}

/// Repeated requests get the same replies after the crash; requests that the crash interrupted are executed once.
fn calls_can_be_repeated(account: &Account, client: &mut Client, remembers: bool) {
    let owner = &account.owner;
    if let Some(Pending { key, verb, id }) = &account.pending {
        let earlier = account.claims.get(key);
        let before = earlier.map_or(0, Claim::holds);
        match verb {
            Verb::Acquire => {
                let token = client.cmd(&args!["DLOCK.ACQUIRE", key, owner, "REQID", id]);
                if token.is_null() {
                    assert_eq!(earlier, None, "{owner} lost {key}");
                } else {
                    let holds = client.cmd(&["DLOCK.INFO", key]).field("holds").int();
                    assert_eq!(holds, before + 1, "{key} {owner}");
                }
            }
            Verb::Release => {
                let left = client.cmd(&args!["DLOCK.RELEASE", key, owner, "REQID", id]).int();
                assert_eq!(left, before - 1, "{key} {owner}");
            }
            Verb::Renew | Verb::Fence => {}
        }
    }
    for (key, claim) in &account.claims {
        if account.pending.as_ref().is_some_and(|p| p.key == *key) {
            continue;
        }
        for id in &claim.ids {
            let again = client.cmd(&args!["DLOCK.ACQUIRE", key, owner, "REQID", id]).int();
            assert_eq!(again, claim.token, "{key} {owner} {id}");
        }
        if let Some((id, left)) = claim.released.as_ref().filter(|_| remembers) {
            let again = client.cmd(&args!["DLOCK.RELEASE", key, owner, "REQID", id]).int();
            assert_eq!(again, *left, "{key} {owner} {id}");
            let over = client.cmd(&args!["DLOCK.ACQUIRE", key, owner, "REQID", id]).error();
            assert!(over.starts_with("SPENT "), "{key} {owner} {id}: {over}");
        }
        let holds = client.cmd(&["DLOCK.INFO", key]).field("holds").int();
        assert_eq!(holds, claim.holds(), "{key} {owner}");
    }
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
