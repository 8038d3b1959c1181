//! A server that becomes a replica, and a promoted replica, with holders and waiters, blocked and queued.

use std::time::Instant;

use crate::{
    args,
    scene::{Scene, assert_lasted, assert_sent_away, waiter},
    support::{LIMIT, Reply, SOON, Server, each, wait_until},
};

#[track_caller]
fn replicate(server: &Server, primary: &Server) {
    server.cmd(&["REPLICAOF", "127.0.0.1", &primary.port().to_string()]).ok();
    server.wait_linked();
}

/// Promotes a replica; returns the time of the command.
#[track_caller]
fn promote(server: &Server) -> Instant {
    let told = Instant::now();
    server.cmd(&["REPLICAOF", "NO", "ONE"]).ok();
    told
}

#[test]
fn waiters_of_a_server_that_becomes_a_replica_are_sent_away() {
    let other = Server::start();
    let token = other.cmd(&["DLOCK.ACQUIRE", "k", "of the other"]).int();
    let server = Server::start();
    let mut scene = Scene::set(&server, "k");
    replicate(&server, &other);
    for waiter in [&mut scene.first, &mut scene.last] {
        assert_sent_away(&waiter.reply(SOON));
    }
    // Its data are now those of the other server, and its waiters are gone.
    assert_eq!(server.cmd(&args!["DLOCK.CHECK", "k", token]).int(), 1);
    assert!(server.cmd(&["DLOCK.WAITERS", "k"]).items().is_empty());
    for call in [
        "DLOCK.ACQUIRE k x BLOCK 0",
        "DLOCK.ACQUIRE k queued",
        "DLOCK.RELEASE k h",
        "DLOCK.BREAK k",
        "DLOCK.RELEASE k queued",
    ] {
        let refusal = server.ask(call).error();
        assert!(refusal.starts_with("READONLY "), "{call}: {refusal}");
    }
    scene.messages.assert_none();
    assert_eq!(server.digest(), other.digest());
    other.cmd(&["DLOCK.RELEASE", "k", "of the other"]).int();
    other.wait_replica_synced(&server);
    server.left_over_check();
    other.left_over_check();
}

/// A lone replica does not close its connections: bound or waiting ones may still close, without any effect.
#[test]
fn a_replica_ends_no_hold_and_shows_expired_ones_as_ended() {
    let server = Server::start();
    let mut scene = Scene::set_with_lease(&server, "k", 2_000);
    let mut bound = server.client();
    bound.cmd(&["DLOCK.ACQUIRE", "tied", "h", "BIND", "0"]).int();
    scene.holder.cmd(&["DLOCK.RENEW", "k", "h", "PX", "2000"]).int();
    // A primary that is unreachable.
    server.cmd(&["REPLICAOF", "127.0.0.1", "1"]).ok();
    for waiter in [&mut scene.first, &mut scene.last] {
        assert_sent_away(&waiter.reply(SOON));
    }
    drop(bound);
    let told_of_end = scene.message("expired");
    drop(scene.queued);
    wait_until("the lease to be shown as over", || server.cmd(&["DLOCK.INFO", "k"]).is_null());
    assert!(server.cmd(&args!["DLOCK.CHECK", "k", scene.token]).error().starts_with("STALE "));
    assert!(server.cmd(&["DLOCK.POSITION", "k", "h"]).is_null());
    assert_eq!((server.keys(), server.info_number("dlock", "expiries")), (2, 0));

    // While it was a replica, owners could not renew: the lease restarts.
    let told = promote(&server);
    assert_eq!(server.cmd(&args!["DLOCK.CHECK", "k", scene.token]).int(), 1);
    assert!(waiter(&server, "k", "late", 0).reply(SOON).int() > scene.token);
    assert_lasted(told, 2_000);
    assert_eq!(scene.messages.next_text(), told_of_end);
    server.cmd(&["DLOCK.RELEASE", "k", "late"]).int();
    server.cmd(&["DEL", "tied"]).ok();
    server.left_over_check();
}

#[test]
fn a_promoted_replica_gives_every_lease_in_full() {
    const LEASE: u64 = 4_000;
    let mut old = Server::start();
    let new = Server::with(&[]).replica_of(&old).start();
    // A new replica may get its first commands a second late.
    old.cmd(&["SET", "first", "v"]).ok();
    assert_eq!(old.cmd(&["WAIT", "1", "20000"]).int(), 1);
    let token = old.cmd(&args!["DLOCK.ACQUIRE", "k", "h", "PX", LEASE]).int();
    old.cmd(&args!["DLOCK.ACQUIRE", "k", "h", "PX", 50]).int();
    let unclaimed = args!["DLOCK.ACQUIRE", "q", "lazy", "QUEUE", LEASE, "PX", 50];
    old.cmd(&["DLOCK.ACQUIRE", "q", "h"]).int();
    assert!(old.cmd(&unclaimed).is_null());
    old.cmd(&["DLOCK.RELEASE", "q", "h"]).int();
    old.wait_replica_synced(&new);
    wait_until("some of the lease to pass", || {
        new.cmd(&["DLOCK.INFO", "k"]).field("ttl-ms").int() < 3_500
    });
    old.kill9();

    let told = promote(&new);
    let info = new.cmd(&["DLOCK.INFO", "k"]);
    assert_eq!((info.field("token").int(), info.field("holds").int()), (token, 2));
    new.cmd(&["DEL", "first"]).ok();
    let (mut first, mut second) = (waiter(&new, "k", "first", 0), waiter(&new, "q", "second", 0));
    for heir in [&mut first, &mut second] {
        assert!(heir.reply(LIMIT).int() > token);
        assert_lasted(told, LEASE);
    }
    new.cmd(&["DLOCK.RELEASE", "k", "first"]).int();
    new.cmd(&["DLOCK.RELEASE", "q", "second"]).int();
    new.left_over_check();
}

/// Time for an owner to bind its hold again after its connection closed.
const GRACE: [&str; 2] = ["dlock.fair-grace-ms", "4000"];

/// The four holds whose connections are on another server, or belong to an earlier process.
fn tie_four(server: &Server) -> Vec<i64> {
    let ties = [("untied", "0"), ("renewed", "0"), ("tied", "0"), ("long", "5000")];
    let mut holder = server.client();
    let token =
        |(key, ms): (&str, &str)| holder.cmd(&["DLOCK.ACQUIRE", key, "h", "BIND", ms]).int();
    let tokens = ties.map(token).to_vec();
    // Kept open until the server has gone: otherwise the bindings would end the holds there.
    std::mem::forget(holder);
    tokens
}

/// The grace began at `told` or since.
fn orphans_end_unless_bound_again(server: &Server, told: Instant, tokens: &[i64]) {
    let shown = server.cmd(&["DLOCK.INFO", "untied"]);
    assert_eq!((shown.field("token").int(), shown.field("bound-client").int()), (tokens[0], 0));
    assert!(shown.field("ttl-ms").int() <= 4_000, "{}", shown.show());
    let mut holder = server.client();
    // A renewal without BIND gives the lease in full, and the hold is bound no more.
    holder.cmd(&["DLOCK.RENEW", "renewed", "h", "PX", "60000"]).int();
    holder.cmd(&["DLOCK.RENEW", "tied", "h", "PX", "60000", "BIND", "0"]).int();
    let ends = [("untied", 4_000), ("long", 5_000)];
    let mut heirs = ends.map(|(key, _)| waiter(server, key, "heir", 0));
    for ((key, ms), heir) in ends.into_iter().zip(&mut heirs) {
        heir.reply(SOON).int();
        assert_lasted(told, ms);
        heir.cmd(&["DLOCK.RELEASE", key, "heir"]).int();
    }
    assert_eq!(server.info_number("dlock", "disconnected"), 2);
    assert_eq!(server.cmd(&args!["DLOCK.CHECK", "tied", tokens[2]]).int(), 1);
    drop(holder);
    wait_until("the hold that was bound again to end", || server.keys() == 1);
    let shown = server.cmd(&["DLOCK.INFO", "renewed"]);
    assert_eq!((shown.field("token").int(), shown.field("bound-client").int()), (tokens[1], 0));
    assert!(shown.field("ttl-ms").int() > 5_000, "{}", shown.show());
    server.cmd(&["DLOCK.RELEASE", "renewed", "h"]).int();
    server.left_over_check();
}

#[test]
fn bindings_of_a_lost_server_end_unless_bound_again() {
    let mut old = Server::start();
    let new = Server::with(&GRACE).replica_of(&old).start();
    let tokens = tie_four(&old);
    old.wait_replica_synced(&new);
    old.kill9();
    let told = promote(&new);
    orphans_end_unless_bound_again(&new, told, &tokens);
}

#[test]
fn bindings_of_an_earlier_life_end_unless_bound_again() {
    each(&["RDB", "AOF"], |&how| {
        let append_only = if how == "AOF" { "yes" } else { "no" };
        let mut server = Server::with(&GRACE).and(&["appendonly", append_only]).start();
        let tokens = tie_four(&server);
        if how == "RDB" {
            server.cmd(&["SAVE"]).ok();
        }
        server.kill9();
        let told = Instant::now();
        server.start_again();
        orphans_end_unless_bound_again(&server, told, &tokens);
    });
}

#[test]
fn a_promoted_replica_grants_nothing_new_during_its_quarantine() {
    let mut old = Server::start();
    let quarantine = ["dlock.restart-quarantine-ms", "4000"];
    let new = Server::with(&quarantine).replica_of(&old).start();
    let token = old.cmd(&["DLOCK.ACQUIRE", "k", "h"]).int();
    old.wait_replica_synced(&new);
    old.kill9();
    let told = promote(&new);
    let refusal = new.cmd(&["DLOCK.ACQUIRE", "free", "x"]).error();
    assert!(refusal.starts_with("QUARANTINE "), "{refusal}");
    let (mut first, mut next) = (waiter(&new, "free", "x", 0), waiter(&new, "k", "next", 0));
    assert_eq!(new.cmd(&["DLOCK.ACQUIRE", "k", "h"]).int(), token);
    assert_eq!(new.cmd(&["DLOCK.RENEW", "k", "h"]).int(), token);
    assert_eq!(new.cmd(&["DLOCK.RELEASE", "k", "h", "ALL"]).int(), 0);
    for (heir, key, owner) in [(&mut first, "free", "x"), (&mut next, "k", "next")] {
        assert!(heir.reply(SOON).int() > token);
        assert_lasted(told, 4_000);
        heir.cmd(&["DLOCK.RELEASE", key, owner]).int();
    }
    new.left_over_check();
}

/// A replica that has missed a release is promoted: the former holder enters again, with its former token. With
/// `n = r` in the failover profile every replica has the grant that came in between, and refuses that.
#[test]
fn a_replica_that_missed_a_release_gives_the_former_token_again() {
    let primary = Server::start();
    let replica = Server::with(&[]).replica_of(&primary).start();
    let former = primary.cmd(&["DLOCK.ACQUIRE", "k", "a"]).int();
    primary.wait_replica_synced(&replica);
    promote(&replica);
    primary.cmd(&["DLOCK.RELEASE", "k", "a"]).int();
    let later = primary.cmd(&["DLOCK.ACQUIRE", "k", "b"]).int();
    assert!(later > former);
    primary.cmd(&["DLOCK.RELEASE", "k", "b"]).int();
    assert_eq!(replica.cmd(&["DLOCK.ACQUIRE", "k", "a"]).int(), former);
    assert_eq!(replica.cmd(&args!["DLOCK.CHECK", "k", former]).int(), 1);
    replica.cmd(&["DLOCK.RELEASE", "k", "a", "ALL"]).int();
    assert!(
        replica.cmd(&["DLOCK.ACQUIRE", "k", "c"]).int() > former,
        "new grants have larger ones"
    );
    replica.cmd(&["DLOCK.RELEASE", "k", "c"]).int();
    replica.left_over_check();
}

/// Demoted and promoted before the module could process it.
#[test]
fn a_server_that_changes_its_role_twice_in_one_step_goes_on() {
    let server = Server::start();
    let mut scene = Scene::set(&server, "k");
    let replies = server.client().pipeline(&[
        args!["REPLICAOF", "127.0.0.1", 1],
        args!["REPLICAOF", "NO", "ONE"],
        args!["DLOCK.POSITION", "k", "h"],
        args!["DLOCK.RELEASE", "k", "h"],
        args!["DLOCK.ACQUIRE", "k", "x"],
    ]);
    assert_eq!([replies[2].int(), replies[3].int()], [0, 0]);
    assert!(replies[4].int() > scene.token, "{}", replies[4].show());
    for waiter in [&mut scene.first, &mut scene.last] {
        assert_sent_away(&waiter.reply(SOON));
    }
    assert_eq!(server.cmd(&["DLOCK.RELEASE", "k", "x"]).int(), 0);
    server.left_over_check();
}

/// The replica may have confirmed grants of another primary, from which it comes.
#[test]
fn a_quarantine_begins_when_a_replica_comes_online() {
    let server = Server::with(&["dlock.restart-quarantine-ms", "60000"]).start();
    let over = |server: &Server| {
        // A running quarantine keeps its end: a change of role begins one without a length.
        server.cmd(&["CONFIG", "SET", "dlock.restart-quarantine-ms", "0"]).ok();
        server.cmd(&["REPLICAOF", "127.0.0.1", "1"]).ok();
        server.cmd(&["REPLICAOF", "NO", "ONE"]).ok();
        server.cmd(&["CONFIG", "SET", "dlock.restart-quarantine-ms", "60000"]).ok();
        wait_until("the end of the quarantine", || {
            server.info_number("dlock", "quarantine_left_ms") == 0
        });
    };
    let refused = |what: &str| {
        wait_until(what, || server.info_number("dlock", "quarantine_left_ms") > 0);
        let reply = server.cmd(&["DLOCK.ACQUIRE", "free", "b"]).error();
        assert!(reply.starts_with("QUARANTINE "), "{what}: {reply}");
        server.cmd(&["DLOCK.RENEW", "held", "a"]).int();
    };
    over(&server);
    server.cmd(&["DLOCK.ACQUIRE", "held", "a"]).int();
    let replica = Server::with(&[]).replica_of(&server).start();
    refused("a replica with a full synchronization");
    server.wait_replica_synced(&replica);
    server.cmd(&["CONFIG", "SET", "dlock.restart-quarantine-ms", "61000"]).ok();
    server.cmd(&["CLIENT", "KILL", "TYPE", "replica"]).int();
    wait_until("a replica that goes on where it was", || {
        server.info_number("dlock", "quarantine_left_ms") > 60_000
    });
    let info = server.info("dlock");
    let ms = |name: &str| info[name].parse::<u64>().unwrap();
    let length = ms("quarantine_left_ms") + ms("quarantine_age_ms");
    assert!((60_998..=61_002).contains(&length), "it began again: {info:?}");
    assert!(server.log().contains("Partial resynchronization request"), "{}", server.log());
    refused("a replica with a partial synchronization");
    server.cmd(&["DLOCK.RELEASE", "held", "a"]).int();
}
