//! The queue of a DFAIR lock after another process has taken over: order, graces, options.

use std::time::Duration;

use crate::{
    durability::{crashed, rewritten},
    queue::{owner, queue},
    restart::{LATE, LOG, PROMOTION, REWRITTEN_LOG, SNAPSHOT, Way, take_over},
    scene::assert_sent_away,
    support::{Client, Family, Heard, LIMIT, Reply, SOON, Server, each, wait_until},
};

const LOG_AS_COMMANDS: Way = Way {
    name: "an AOF rewritten as commands",
    settings: &["appendonly", "yes", "appendfsync", "always", "aof-use-rdb-preamble", "no"],
    take_over: |server, _| crashed(rewritten(server)),
};
const SHUTDOWN: Way = Way {
    name: "SHUTDOWN SAVE",
    settings: &[],
    take_over: |mut server, _| {
        server.shutdown(&["SAVE"]);
        server.start_again();
        server
    },
};
const FAILOVER: Way = Way {
    name: "FAILOVER",
    settings: &[],
    take_over: |server, settings| {
        let replica = Family::Fair.with(settings).replica_of(&server).start();
        failed_over(&server, &replica);
        replica
    },
};

/// The reply to a blocked call whose server has stopped to be the primary.
#[track_caller]
pub fn sent_away(client: &mut Client) {
    match client.hear(LIMIT) {
        Heard::Closed => {}
        Heard::Reply(reply) => {
            assert_sent_away(&reply);
        }
        Heard::Nothing => panic!("a blocked call was not answered"),
    }
}

#[track_caller]
pub fn failed_over(old: &Server, new: &Server) {
    old.wait_replica_synced(new);
    old.cmd(&["FAILOVER"]).ok();
    wait_until("the failover", || {
        new.info("replication").get("role").is_some_and(|role| role == "master")
    });
}

/// The waiters of [`line_up`]: some blocked, some not, some both.
const WAITERS: [(&str, &[&str]); 5] = [
    ("w0", &["BLOCK", "0", "LABEL", "zero"]),
    ("w1", &["QUEUE", "60000", "LABEL", "one"]),
    ("w2", &["BLOCK", "0", "QUEUE", "60000"]),
    ("w3", &["BLOCK", "0"]),
    ("w4", &["QUEUE", "60000"]),
];

pub fn names() -> Vec<&'static str> {
    WAITERS.iter().map(|&(name, _)| name).collect()
}

#[track_caller]
pub fn ask(server: &Server, owner: &str, options: &[&str]) -> Client {
    let call = [&["DLOCK.ACQUIRE", "k", owner], options].concat();
    if options[0] == "BLOCK" {
        return server.block(&call).into_client();
    }
    let mut client = server.client();
    assert!(client.cmd(&call).is_null());
    client
}

/// Lock `k`, held by `h`, and its waiters, including one that has disconnected and one that repeated its request.
#[track_caller]
pub fn line_up(server: &Server) -> Vec<Client> {
    server.cmd(&["DLOCK.ACQUIRE", "k", "h", "PX", "600000"]).int();
    let mut clients = Vec::new();
    for (n, (owner, options)) in WAITERS.iter().enumerate() {
        if n == 2 {
            ask(server, "given-up", &["QUEUE", "60000"]);
        }
        if n == 3 {
            clients.push(ask(server, owner, &["BLOCK", "0", "LABEL", "an earlier call"]));
        }
        clients.push(ask(server, owner, options));
    }
    assert!(server.cmd(&["DLOCK.RELEASE", "k", "given-up"]).is_null());
    assert_eq!(queue(server, "k"), names());
    clients
}

/// All owners return to the server that has taken over, the last one first, and are served in their old order.
#[track_caller]
pub fn come_back(server: &Server, how: &str) {
    let rows = server.cmd(&["DLOCK.WAITERS", "k"]).items();
    assert_eq!(queue(server, "k"), names(), "{how}");
    for (n, (row, (name, options))) in rows.iter().zip(WAITERS).enumerate() {
        assert_eq!(row.field("client-id").int(), 0, "{how}: {}", row.show());
        let most = if options.contains(&"QUEUE") { 60_000 } else { 30_000 };
        let left = row.field("remaining-ms").int();
        assert!((most - 20_000..=most).contains(&left), "{how}: {}", row.show());
        let label = ["zero", "one", "", "", ""][n];
        assert_eq!(row.field("label").text(), label, "{how}");
        let position = server.cmd(&["DLOCK.POSITION", "k", name]).int();
        assert_eq!(position, i64::try_from(n).expect("a few") + 1, "{how}");
    }
    let mut newcomer = ask(server, "newcomer", &["BLOCK", "0"]);
    let mut back: Vec<Client> =
        WAITERS.iter().rev().map(|(owner, options)| ask(server, owner, options)).collect();
    assert_eq!(queue(server, "k"), [&names()[..], &["newcomer"]].concat(), "{how}");
    let mut last = server.cmd(&["DLOCK.INFO", "k"]).field("token").int();
    let mut holder = "h";
    for (name, options) in WAITERS {
        assert_eq!(server.cmd(&["DLOCK.RELEASE", "k", holder]).int(), 0, "{how}");
        assert_eq!(owner(server, "k"), name, "{how}");
        let mut client = back.pop().expect("as many as waiters");
        let token = if options[0] == "BLOCK" {
            client.reply(SOON).int()
        } else {
            client.cmd(&["DLOCK.ACQUIRE", "k", name]).int()
        };
        assert!(token > last, "{how}: {token} after {last}");
        (last, holder) = (token, name);
    }
    assert_eq!(newcomer.hear(Duration::ZERO), Heard::Nothing, "{how}");
    assert_eq!(server.cmd(&["DLOCK.RELEASE", "k", holder]).int(), 0);
    assert!(newcomer.reply(SOON).int() > last, "{how}");
    assert_eq!(server.cmd(&["DLOCK.RELEASE", "k", "newcomer"]).int(), 0);
    server.left_over_check();
}

#[test]
fn an_owner_that_returns_in_time_has_its_old_place() {
    let ways = [SNAPSHOT, SHUTDOWN, LOG, REWRITTEN_LOG, LOG_AS_COMMANDS, PROMOTION, FAILOVER];
    each(&ways, |way| {
        let mut clients = Vec::new();
        let settings = ["dlock.fair-grace-ms", "30000"];
        let (server, ..) =
            take_over(Family::Fair, way, &settings, |server| clients = line_up(server));
        come_back(&server, way.name);
    });
}

/// The replica got every step, instead of the final state.
#[test]
fn a_replica_that_followed_every_step_serves_them_too() {
    each(&[false, true], |&by_failover| {
        let grace = ["dlock.fair-grace-ms", "30000"];
        let mut old = Family::Fair.with(&grace).start();
        let new = Family::Fair.with(&grace).replica_of(&old).start();
        let mut clients = line_up(&old);
        // The earlier call of the owner that repeated its request.
        assert!(clients[3].reply(SOON).error().starts_with("REPLACED "));
        if by_failover {
            failed_over(&old, &new);
            for waiter in [0, 2, 4] {
                sent_away(&mut clients[waiter]);
            }
        } else {
            old.wait_replica_synced(&new);
            old.kill9();
            new.cmd(&["REPLICAOF", "NO", "ONE"]).ok();
        }
        come_back(&new, if by_failover { "FAILOVER" } else { "a promotion" });
        if by_failover {
            new.wait_replica_synced(&old);
            old.left_over_check();
        }
    });
}

#[test]
fn owners_that_stay_away_cost_one_grace_together() {
    const GRACE: Duration = Duration::from_secs(4);
    each(&[SNAPSHOT, LOG, REWRITTEN_LOG, PROMOTION, FAILOVER], |way| {
        let name = way.name;
        let mut clients = Vec::new();
        let settings = ["dlock.fair-grace-ms", "4000"];
        let (server, before, after) = take_over(Family::Fair, way, &settings, |server| {
            server.cmd(&["DLOCK.ACQUIRE", "k", "h", "PX", "600000"]).int();
            for n in 0..40 {
                let how = if n % 4 == 3 { ["QUEUE", "4000"] } else { ["BLOCK", "0"] };
                clients.push(ask(server, &format!("w{n}"), &how));
            }
        });
        let mut last = ask(&server, "w39", &["BLOCK", "0"]);
        assert_eq!(server.cmd(&["DLOCK.POSITION", "k", "w39"]).int(), 40, "{name}");
        assert_eq!(server.cmd(&["DLOCK.RELEASE", "k", "h"]).int(), 0, "{name}");
        last.reply(SOON).int();
        let (total, since_start) = (before.elapsed(), after.elapsed());
        assert!(total >= GRACE, "{name}: {total:?} is too early");
        assert!(since_start < GRACE + LATE, "{name}: {since_start:?} is too late");
        assert_eq!(server.cmd(&["DLOCK.RELEASE", "k", "w39"]).int(), 0);
        server.left_over_check();
    });
}

#[test]
fn graces_begin_when_the_quarantine_is_over() {
    const QUARANTINE: Duration = Duration::from_secs(4);
    const GRACE: Duration = Duration::from_secs(3);
    each(&[SNAPSHOT, LOG, PROMOTION], |way| {
        let name = way.name;
        let mut clients = Vec::new();
        let settings = ["dlock.fair-grace-ms", "3000", "dlock.restart-quarantine-ms", "4000"];
        let (server, before, after) = take_over(Family::Fair, way, &settings, |server| {
            server.cmd(&["DLOCK.ACQUIRE", "k", "h", "PX", "600000"]).int();
            for (owner, how) in
                [("w0", ["BLOCK", "0"]), ("w1", ["QUEUE", "3000"]), ("w2", ["BLOCK", "0"])]
            {
                clients.push(ask(server, owner, &how));
            }
        });
        let mut back = ask(&server, "w2", &["BLOCK", "0"]);
        assert_eq!(server.cmd(&["DLOCK.RELEASE", "k", "h"]).int(), 0, "{name}");
        assert_eq!((owner(&server, "k"), queue(&server, "k").len()), (String::new(), 3), "{name}");
        assert!(after.elapsed() < QUARANTINE, "too slow to see anything");
        // The first waiter is granted the lock, although it is disconnected.
        wait_until("the quarantine to end", || owner(&server, "k") == "w0");
        assert!(before.elapsed() >= QUARANTINE, "{name}: {:?}", before.elapsed());
        back.reply(SOON).int();
        let (total, since_start) = (before.elapsed(), after.elapsed());
        assert!(total >= QUARANTINE + GRACE, "{name}: {total:?} is too early");
        assert!(since_start < QUARANTINE + GRACE + LATE, "{name}: {since_start:?} is too late");
        assert_eq!(server.cmd(&["DLOCK.RELEASE", "k", "w2"]).int(), 0);
        server.left_over_check();
    });
}

#[test]
fn options_of_a_waiter_are_preserved() {
    each(&[SNAPSHOT, LOG, REWRITTEN_LOG, LOG_AS_COMMANDS, PROMOTION], |way| {
        let name = way.name;
        let mut clients = Vec::new();
        let settings = ["dlock.fair-grace-ms", "30000", "dlock.claim-ms", "60000"];
        let (server, ..) = take_over(Family::Fair, way, &settings, |server| {
            server.cmd(&["DLOCK.ACQUIRE", "k", "h", "PX", "600000"]).int();
            let all =
                ["QUEUE", "50000", "PX", "7000", "LABEL", "next", "NOTIFY", "mine", "REQID", "r"];
            clients.push(ask(server, "w0", &all));
            clients.push(ask(server, "w1", &["QUEUE", "50000"]));
        });
        let mut heard = server.psubscribe(&["mine", "dlock:notify:*"]);
        assert_eq!(server.cmd(&["DLOCK.RELEASE", "k", "h"]).int(), 0);
        let info = server.cmd(&["DLOCK.INFO", "k"]);
        let token = info.field("token").int();
        assert_eq!(info.field("owner").text(), "w0", "{name}");
        assert_eq!(info.field("label").text(), "next", "{name}");
        assert!((40_000..=50_000).contains(&info.field("ttl-ms").int()), "{name}: {}", info.show());
        let offered = format!("offered 0 {token} 2 w0 1 r k").into_bytes();
        assert_eq!(heard.next(), ("mine".to_owned(), offered), "{name}");
        // The copy of its request gets the lock.
        let copy = ["DLOCK.ACQUIRE", "k", "w0", "REQID", "r", "PX", "70000"];
        assert_eq!(server.cmd(&copy).int(), token);
        assert_eq!(server.cmd(&["DLOCK.INFO", "k"]).field("lease-ms").int(), 70_000, "{name}");
        assert_eq!(server.cmd(&["DLOCK.INFO", "k"]).field("holds").int(), 1, "{name}");
        assert_eq!(server.cmd(&["DLOCK.RELEASE", "k", "w0"]).int(), 0);
        let token = server.cmd(&["DLOCK.INFO", "k"]).field("token").int();
        let offered = format!("offered 0 {token} 2 w1 0  k").into_bytes();
        assert_eq!(heard.next(), ("dlock:notify:w1".to_owned(), offered), "{name}");
        assert_eq!(server.cmd(&["DLOCK.RELEASE", "k", "w1"]).int(), 0);
        server.left_over_check();
    });
}
