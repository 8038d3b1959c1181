//! Several locks in a cluster: one slot, and waiters that must retry where their slot is.

use super::{one_of, picture, tokens};
use crate::{
    args,
    support::{Blocked, Reply, SOON, Server},
};

#[track_caller]
fn assert_unblocked(waiter: &mut Blocked) {
    let answer = waiter.expect_reply(SOON).error();
    assert!(answer.starts_with("MOVING "), "{answer}");
}

#[test]
fn keys_of_several_slots_are_refused() {
    let server = Server::with(&[]).cluster().start();
    for name in ["DLOCK.MACQUIRE", "DLOCK.ANYACQUIRE", "DLOCK.MRELEASE", "DLOCK.MRENEW"] {
        for keys in ["a b", "{x}a {y}b", "{x}a {x}b {y}c"] {
            let call = format!("{name} {} {keys} o", keys.split(' ').count());
            let refusal = server.ask(&call).error();
            assert!(refusal.starts_with("CROSSSLOT "), "{call}: {refusal}");
        }
    }
    assert_eq!(server.keys(), 0);
    assert_eq!(tokens(&server.ask("DLOCK.MACQUIRE 3 {x}a {x}b x o")).len(), 3);
    assert!(one_of(&server.ask("DLOCK.ANYACQUIRE 2 {x}a {x}b o")).1 > 0);
    assert_eq!(server.ask("DLOCK.MRENEW 2 {x}a {x}b o").int(), 2);
    assert_eq!(server.ask("DLOCK.MRELEASE 3 {x}a {x}b x o").int(), 3);
    server.cmd(&["FLUSHALL"]).ok();
    server.left_over_check();
}

/// A server that parses commands in I/O threads looks up their keys there, while the main thread works.
#[test]
fn calls_for_several_locks_come_through_io_threads() {
    let settings = ["io-threads", "4", "appendonly", "yes", "appendfsync", "no"];
    let server = Server::with(&settings).cluster().start();
    std::thread::scope(|scope| {
        for thread in 0..8 {
            let mut client = server.client();
            scope.spawn(move || {
                let (keys, owner) = (format!("{{t}}{thread}"), format!("o{thread}"));
                let calls: Vec<_> = (0..250)
                    .flat_map(|_| {
                        [
                            args!["DLOCK.MACQUIRE", 2, keys, "{t}shared", owner],
                            args!["SET", format!("plain{keys}"), "1", "PX", "1"],
                            args!["DLOCK.ANYACQUIRE", 2, keys, "{t}shared", owner],
                            args!["DLOCK.MRELEASE", 2, keys, "{t}shared", owner],
                        ]
                    })
                    .collect();
                for _ in 0..10 {
                    assert_eq!(client.pipeline(&calls).len(), 1_000);
                }
            });
        }
    });
    server.cmd(&["FLUSHALL"]).ok();
    server.left_over_check();
}

/// The keys for cluster routing and for ACLs.
#[test]
fn the_server_finds_all_keys() {
    let server = Server::start();
    for name in ["DLOCK.MACQUIRE", "DLOCK.ANYACQUIRE", "DLOCK.MRELEASE", "DLOCK.MRENEW"] {
        let found = server.ask(&format!("COMMAND GETKEYS {name} 3 k1 k2 k3 owner"));
        assert_eq!(found.show(), "[\"k1\", \"k2\", \"k3\"]", "{name}");
        let found = server.ask(&format!("COMMAND GETKEYS {name} 1 k1 owner REQID r"));
        assert_eq!(found.show(), "[\"k1\"]", "{name}");
        let mut many = args!["COMMAND", "GETKEYS", name, 3_000];
        many.extend((0..3_000).map(|n| format!("k{n}").into_bytes()));
        many.extend(args!["owner"]);
        assert_eq!(server.cmd(&many).items().len(), 3_000, "{name}");
        for wrong in ["0 k1 owner", "3 k1 k2", "x k1 owner", "-1 k1 owner"] {
            server.ask(&format!("COMMAND GETKEYS {name} {wrong}")).error();
        }
    }
}

#[test]
fn when_one_of_the_keys_is_removed_the_call_is_told_to_ask_again() {
    let server = Server::with(&[]).cluster().start();
    for removal in ["DEL {t}busy", "UNLINK {t}busy", "PEXPIRE {t}busy 20", "FLUSHALL"] {
        println!("{removal}");
        server.ask("DLOCK.MACQUIRE 2 {t}busy {t}too h").ok();
        let mut all = server.wait("DLOCK.MACQUIRE 3 {t}f1 {t}busy {t}f2 m BLOCK 0");
        let mut any = server.wait("DLOCK.ANYACQUIRE 2 {t}busy {t}too a BLOCK 0");
        let mut behind = server.wait("DLOCK.ACQUIRE {t}f1 x BLOCK 0");
        server.ask(removal).ok();
        assert_unblocked(&mut all);
        assert_unblocked(&mut any);
        if removal == "FLUSHALL" {
            // `f1` was free: its waiter may be told to retry, too, or has got the lock.
            let reply = behind.expect_reply(SOON);
            assert!(matches!(reply, redis::Value::Int(_)) || reply.error().starts_with("MOVING "));
        } else {
            behind.expect_reply(SOON).int();
            assert_eq!(
                picture(&server, "{t}f1 {t}busy {t}f2 {t}too"),
                "{t}f1:x {t}busy:- {t}f2:- {t}too:h"
            );
        }
        server.cmd(&["FLUSHALL"]).ok();
        server.left_over_check();
    }
    // Any other end hands the lock off as without a cluster.
    server.ask("DLOCK.ACQUIRE {t}busy h PX 1000").int();
    let mut all = server.wait("DLOCK.MACQUIRE 2 {t}f1 {t}busy m BLOCK 0");
    tokens(&all.expect_reply(SOON));
    assert_eq!(server.ask("DLOCK.MRELEASE 2 {t}f1 {t}busy m").int(), 2);
    server.left_over_check();
}

#[test]
fn calls_for_several_locks_go_where_their_slot_goes() {
    let one = Server::with(&[]).cluster().start();
    let two = one.join(Server::with(&[]));
    let slot = one.slot("t");
    let held = tokens(&one.ask("DLOCK.MACQUIRE 2 {t}k1 {t}k2 h PX 60000"));
    let mut all = one.wait("DLOCK.MACQUIRE 3 {t}k1 {t}f {t}k2 m BLOCK 0");
    let mut any = one.wait("DLOCK.ANYACQUIRE 2 {t}k1 {t}k2 a BLOCK 0");
    one.begin_slot_move(slot, &two);
    assert_eq!(one.migrate_slot_keys(slot, &two), 2);
    assert_unblocked(&mut all);
    assert_unblocked(&mut any);
    one.end_slot_move(slot, &two);
    let moved = one.ask("DLOCK.MACQUIRE 2 {t}k1 {t}k2 m BLOCK 0").error();
    assert!(moved.starts_with("MOVED "), "{moved}");
    let mut all = two.wait("DLOCK.MACQUIRE 3 {t}k1 {t}f {t}k2 m BLOCK 0");
    assert_eq!(two.ask("DLOCK.MRELEASE 2 {t}k1 {t}k2 h").int(), 2);
    assert!(tokens(&all.expect_reply(SOON))[0] > held[1]);
    assert_eq!(two.ask("DLOCK.MRELEASE 3 {t}k1 {t}k2 {t}f m").int(), 3);
    two.left_over_check();
    one.left_over_check();
}

/// While a slot moves, this node cannot know whether a missing key is held on the other one.
#[test]
fn while_their_slot_moves_keys_that_are_not_together_are_refused() {
    let one = Server::with(&[]).cluster().start();
    let two = one.join(Server::with(&[]));
    let slot = one.slot("t");
    one.ask("DLOCK.ACQUIRE {t}goes other").int();
    one.begin_slot_move(slot, &two);
    assert_eq!(one.migrate_slot_keys(slot, &two), 1);
    one.ask("DLOCK.ACQUIRE {t}stays h").error();
    let importing = |call: &str| {
        let mut client = two.client();
        client.cmd(&["ASKING"]).ok();
        client.cmd(&call.split(' ').collect::<Vec<_>>())
    };
    for name in ["DLOCK.MACQUIRE", "DLOCK.ANYACQUIRE", "DLOCK.MRELEASE", "DLOCK.MRENEW"] {
        // The first key is here, the second is unknown; in the other order, the first is unknown.
        for keys in ["{t}goes {t}new", "{t}new {t}goes"] {
            let refusal = importing(&format!("{name} 2 {keys} m")).error();
            assert!(refusal.starts_with("TRYAGAIN "), "{name} {keys}: {refusal}");
        }
        let elsewhere = one.ask(&format!("{name} 2 {{t}}goes {{t}}new m")).error();
        assert!(elsewhere.starts_with("ASK "), "{name}: {elsewhere}");
    }
    // All are there.
    assert_eq!(importing("DLOCK.MRENEW 1 {t}goes other").int(), 1);
    one.ask("DLOCK.INFO {t}new").error();
    one.end_slot_move(slot, &two);
    assert_eq!(picture(&two, "{t}goes {t}new"), "{t}goes:other {t}new:-");
    assert_eq!(tokens(&two.ask("DLOCK.MACQUIRE 2 {t}new {t}too m")).len(), 2);
    assert_eq!(two.ask("DLOCK.MRELEASE 2 {t}new {t}too m").int(), 2);
    assert_eq!(two.ask("DLOCK.RELEASE {t}goes other").int(), 0);
    two.left_over_check();
    one.left_over_check();
}

/// The same on the source: keys that are still here, and keys that may have moved.
#[test]
fn where_a_slot_moves_from_keys_that_are_all_here_are_served() {
    let one = Server::with(&[]).cluster().start();
    let two = one.join(Server::with(&[]));
    assert_eq!(tokens(&one.ask("DLOCK.MACQUIRE 2 {t}a {t}b o")).len(), 2);
    one.begin_slot_move(one.slot("t"), &two);
    for name in ["DLOCK.MACQUIRE", "DLOCK.ANYACQUIRE", "DLOCK.MRELEASE", "DLOCK.MRENEW"] {
        let refusal = one.ask(&format!("{name} 2 {{t}}a {{t}}gone o")).error();
        assert!(refusal.starts_with("TRYAGAIN "), "{name}: {refusal}");
    }
    assert_eq!(one.ask("DLOCK.MRENEW 2 {t}a {t}b o").int(), 2);
    assert_eq!(one.ask("DLOCK.MRELEASE 2 {t}a {t}b o").int(), 2);
    one.left_over_check();
}

/// A slot that moves silently, while a call that waits for a missing key reserves all other locks.
#[test]
fn a_slot_that_goes_away_is_noticed() {
    let one = Server::with(&["dlock.restart-quarantine-ms", "60000"]).cluster().start();
    let two = one.join(Server::with(&[]));
    let mut all = one.wait("DLOCK.MACQUIRE 3 {t}k1 {t}k2 {t}k3 m BLOCK 0");
    let mut any = one.wait("DLOCK.ANYACQUIRE 2 {t}k4 {t}k5 a BLOCK 0");
    let mut stays = one.wait("DLOCK.MACQUIRE 1 other s BLOCK 0");
    one.end_slot_move(one.slot("t"), &two);
    assert_unblocked(&mut all);
    assert_unblocked(&mut any);
    stays.assert_no_reply();
    drop(stays);
    one.left_over_check();
}
