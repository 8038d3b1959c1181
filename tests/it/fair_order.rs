//! The order of a DFAIR queue over reconnects, restarts, failovers and reloads. `fair_restart.rs` tests the rest of
//! the state that a new process takes over.

use std::time::{Duration, Instant};

use redis::Value;

use crate::{
    args,
    durability::{AOF, crashed, done},
    fair_restart::{ask, come_back, failed_over, line_up, names, sent_away},
    queue::{owner, queue},
    restart::LATE,
    scene::assert_sent_away,
    support::{Client, Dice, Family, Heard, Reply, SOON, Server, wait_until},
};

/// Owners leave and return repeatedly, from one server to the next; the order of arrival stays.
#[test]
fn the_order_of_arrival_outlasts_everything() {
    const OWNERS: u64 = 24;
    let settings = ["dlock.fair-grace-ms", "60000", "appendonly", "yes", "appendfsync", "always"];
    let names: Vec<String> = (0..OWNERS).map(|n| format!("w{n}")).collect();
    let mut one = Family::Fair.with(&settings).start();
    let two = Family::Fair.with(&settings).replica_of(&one).start();
    one.cmd(&["DLOCK.ACQUIRE", "k", "h", "PX", "600000"]).int();
    let mut dice = Dice::new(17);
    let come = |server: &Server, name: &str, dice: &mut Dice| {
        let how: &[&str] = match dice.below(3) {
            0 => &["BLOCK", "0"],
            1 => &["QUEUE", "60000"],
            _ => &["BLOCK", "0", "QUEUE", "60000"],
        };
        ask(server, name, how)
    };
    let mut clients: Vec<Client> = names.iter().map(|name| come(&one, name, &mut dice)).collect();
    let shuffle = |server: &Server, clients: &mut Vec<Client>, dice: &mut Dice| {
        for _ in 0..60 {
            let n = usize::try_from(dice.below(OWNERS)).expect("a small number");
            match dice.below(3) {
                // Returns before the earlier connection closes, or without its close.
                0 => clients[n] = come(server, &names[n], dice),
                // Disconnects for a moment.
                1 => clients[n] = server.client(),
                _ => drop(server.cmd(&args!["CLIENT", "KILL", "ID", clients[n].id()])),
            }
        }
        assert_eq!(queue(server, "k"), names);
    };
    shuffle(&one, &mut clients, &mut dice);
    failed_over(&one, &two);
    shuffle(&two, &mut clients, &mut dice);
    two.wait_replica_synced(&one);
    failed_over(&two, &one);
    shuffle(&one, &mut clients, &mut dice);
    drop(two);
    for _ in 0..2 {
        one = crashed(one);
        shuffle(&one, &mut clients, &mut dice);
    }
    drop(clients);
    let mut all: Vec<Client> = names.iter().map(|name| come(&one, name, &mut dice)).collect();
    let (mut holder, mut last) = ("h", 0);
    for (name, client) in names.iter().zip(&mut all) {
        assert_eq!(one.cmd(&["DLOCK.RELEASE", "k", holder]).int(), 0);
        assert_eq!(owner(&one, "k"), *name);
        // A blocked call is answered before this.
        let token = match client.hear(Duration::from_millis(5)) {
            Heard::Reply(token) => token.int(),
            _ => client.cmd(&["DLOCK.ACQUIRE", "k", name]).int(),
        };
        assert!(token > last, "{name}: {token} after {last}");
        (holder, last) = (name, token);
    }
    assert_eq!(one.cmd(&["DLOCK.RELEASE", "k", holder]).int(), 0);
    one.left_over_check();
}

/// A server that becomes a replica gets its primary's data, queues included.
#[test]
fn a_server_that_becomes_a_replica_has_the_queue_of_its_primary() {
    let grace = ["dlock.fair-grace-ms", "30000"];
    let (server, other) = (Family::Fair.with(&grace).start(), Family::Fair.with(&grace).start());
    server.cmd(&["DLOCK.ACQUIRE", "k", "h", "PX", "600000"]).int();
    let mut sent = [ask(&server, "mine", &["BLOCK", "0"]), ask(&server, "w2", &["BLOCK", "0"])];
    let mut place = ask(&server, "w1", &["QUEUE", "60000"]);
    let _others = line_up(&other);
    server.cmd(&args!["REPLICAOF", "127.0.0.1", other.port()]).ok();
    for client in &mut sent {
        sent_away(client);
    }
    other.wait_replica_synced(&server);
    assert_eq!(queue(&server, "k"), names());
    assert_eq!(server.digest(), other.digest());
    // These connections belonged to old places.
    drop(sent);
    assert!(place.cmd(&["DLOCK.POSITION", "k", "mine"]).is_null());
    drop(place);
    server.cmd(&["REPLICAOF", "NO", "ONE"]).ok();
    come_back(&server, "after another's data");
}

/// The server reloads all data while owners wait.
#[test]
fn a_reload_keeps_the_order() {
    let server = Family::Fair.with(&["dlock.fair-grace-ms", "30000"]).start();
    for reload in [&["DEBUG", "RELOAD"][..], &["DEBUG", "RELOAD", "NOSAVE"]] {
        let mut clients = line_up(&server);
        server.cmd(&["SAVE"]).ok();
        server.cmd(reload).ok();
        assert_eq!(queue(&server, "k"), names(), "{reload:?}");
        for name in names() {
            assert_eq!(server.cmd(&["DLOCK.BREAK", "k"]).int(), 1, "{reload:?}");
            assert_eq!(owner(&server, "k"), name, "{reload:?}");
        }
        // They are still blocked or must repeat: no call stays unanswered.
        for waiter in [0, 2, 4] {
            match clients[waiter].reply(SOON) {
                Value::Int(_) => {}
                other => assert_sent_away(&other),
            }
        }
        server.cmd(&["DEL", "k"]).int();
        server.left_over_check();
    }
}

/// One queue of maximum length, most of whose owners disconnect before the crash.
#[test]
fn a_long_queue_survives_kill_9() {
    const PLACES: usize = 5_000;
    let mut server = Family::Fair.with(&AOF).and(&["auto-aof-rewrite-percentage", "0"]).start();
    let mut client = server.client();
    client.cmd(&["DLOCK.ACQUIRE", "k", "h", "PX", "600000"]).int();
    let ask = |n: usize| args!["DLOCK.ACQUIRE", "k", format!("w{n}"), "QUEUE", 600_000];
    let calls: Vec<_> = (0..PLACES).map(ask).collect();
    assert!(client.pipeline(&calls).iter().all(Reply::is_null));
    server = done(server, &["BGREWRITEAOF"]);
    wait_until("the rewrite", || server.info_number("persistence", "aof_rewrite_in_progress") == 0);
    let leave = |n: usize| args!["DLOCK.RELEASE", "k", format!("w{n}")];
    let calls: Vec<_> = (0..PLACES).filter(|n| n % 10 != 7).map(leave).collect();
    assert!(client.pipeline(&calls).iter().all(Reply::is_null));
    let digest = server.digest();
    let mut server = crashed(server);
    assert_eq!(server.digest(), digest);
    let left: Vec<String> = (0..PLACES).filter(|n| n % 10 == 7).map(|n| format!("w{n}")).collect();
    assert_eq!(queue(&server, "k"), left);
    let mut client = server.client();
    let mut before = "h".to_owned();
    for name in left {
        assert_eq!(client.cmd(&["DLOCK.RELEASE", "k", &before]).int(), 0);
        assert!(client.cmd(&["DLOCK.ACQUIRE", "k", &name]).int() > 0, "{name}");
        before = name;
    }
    assert_eq!(client.cmd(&["DLOCK.RELEASE", "k", &before]).int(), 0);
    server.left_over_check();
    server.shutdown(&[]);
}

/// No owner could return while it was a replica: the graces begin when it becomes a primary.
#[test]
fn places_outlast_the_time_that_a_server_is_a_replica() {
    let server = Family::Fair.with(&["dlock.fair-grace-ms", "3000"]).start();
    server.cmd(&["DLOCK.ACQUIRE", "k", "h", "PX", "600000"]).int();
    let [mut first, mut second] = ["w0", "w1"].map(|owner| ask(&server, owner, &["BLOCK", "0"]));
    server.cmd(&["REPLICAOF", "127.0.0.1", "1"]).ok();
    for waiter in [&mut first, &mut second] {
        sent_away(waiter);
    }
    let demoted = Instant::now();
    wait_until("longer than a grace to pass", || demoted.elapsed() > Duration::from_millis(3_200));
    assert_eq!(queue(&server, "k"), ["w0", "w1"]);
    let refusal = server.cmd(&["DLOCK.ACQUIRE", "k", "w1", "BLOCK", "0"]).error();
    assert!(refusal.starts_with("READONLY "), "{refusal}");
    let promoted = Instant::now();
    server.cmd(&["REPLICAOF", "NO", "ONE"]).ok();
    let mut second = ask(&server, "w1", &["BLOCK", "0"]);
    assert_eq!(queue(&server, "k"), ["w0", "w1"]);
    assert_eq!(server.cmd(&["DLOCK.RELEASE", "k", "h"]).int(), 0);
    second.reply(SOON).int();
    let took = promoted.elapsed();
    assert!(took >= Duration::from_secs(3), "{took:?}");
    assert!(took < Duration::from_secs(3) + LATE, "{took:?}");
    assert_eq!(server.cmd(&["DLOCK.RELEASE", "k", "w1"]).int(), 0);
    server.left_over_check();
}
