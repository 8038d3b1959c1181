//! Grants of several locks whose receiver disconnects before the reply can be sent: all in one turn of the server's
//! loop.

use super::{ask, clear, one_of, picture, tokens, wait, words};
use crate::{
    args,
    support::{Blocked, Reply, SOON, Server},
};

const KEYS: &str = "f1 busy f2";

/// `h` holds `busy`; `m` waits for it and two free locks, `x`, `y` and `z` wait behind it for one each.
struct Scene {
    server: Server,
    m: Blocked,
    behind: [Blocked; 3],
}

impl Scene {
    fn new() -> Scene {
        let server = Server::start();
        ask(&server, "DLOCK.ACQUIRE busy h").int();
        let m = wait(&server, "DLOCK.MACQUIRE 3 f1 busy f2 m BLOCK 0 REQID r");
        let behind = [("f1", "x"), ("busy", "y"), ("f2", "z")]
            .map(|(key, owner)| wait(&server, &format!("DLOCK.ACQUIRE {key} {owner} BLOCK 0")));
        Scene { server, m, behind }
    }

    /// `h` releases, `between` runs, and the connection of `m` is killed, all in one turn.
    fn release_and_kill(&mut self, between: &[&str]) -> Vec<redis::Value> {
        let kill = format!("CLIENT KILL ID {}", self.m.id());
        let mut calls = vec![words("DLOCK.RELEASE busy h")];
        calls.extend(between.iter().map(|call| words(call)));
        calls.push(words(&kill));
        let mut replies = self.server.client().pipeline(&calls);
        assert_eq!(replies.remove(0).int(), 0);
        assert_eq!(replies.pop().map(|killed| killed.int()), Some(1));
        self.m.expect_closed_without_reply();
        replies
    }

    /// `m` releases its remaining locks; then all waits are granted.
    fn end(mut self) {
        ask(&self.server, "DLOCK.MRELEASE 3 f1 busy f2 m").int();
        for waiter in &mut self.behind {
            waiter.expect_reply(SOON).int();
        }
        assert_eq!(picture(&self.server, KEYS), "f1:x busy:y f2:z");
        assert_eq!(self.server.info_number("dlock", "grants_in_flight"), 0);
        clear(&self.server);
    }
}

#[test]
fn it_is_taken_back_from_all_of_them() {
    let mut scene = Scene::new();
    scene.release_and_kill(&[]);
    assert_eq!(picture(&scene.server, KEYS), "f1:x busy:y f2:z");
    scene.end();
}

#[test]
fn in_a_transaction_the_same() {
    let mut scene = Scene::new();
    let replies = scene.server.client().pipeline(&[
        args!["MULTI"],
        args!["DLOCK.RELEASE", "busy", "h"],
        args!["CLIENT", "KILL", "ID", scene.m.id()],
        args!["EXEC"],
    ]);
    assert_eq!(replies[3].show(), "[(integer) 0, (integer) 1]");
    scene.m.expect_closed_without_reply();
    scene.end();
}

#[test]
fn it_stays_when_the_request_was_resent_in_time() {
    let mut scene = Scene::new();
    let replies = scene.release_and_kill(&["DLOCK.MACQUIRE 3 f1 busy f2 m REQID r BLOCK 0"]);
    assert_eq!(tokens(&replies[0]).len(), 3);
    assert_eq!(picture(&scene.server, KEYS), "f1:m<x busy:m<y f2:m<z");
    for waiter in &mut scene.behind {
        waiter.assert_no_reply();
    }
    scene.end();
}

/// Each lock is a separate hold: a reply to its owner for one of them preserves that one.
#[test]
fn only_unreported_counts_are_undone() {
    for (meanwhile, left) in [
        ("DLOCK.ACQUIRE f1 m", "f1:m<x busy:y f2:z"),
        ("DLOCK.ACQUIRE f1 m REQID r", "f1:m<x busy:y f2:z"),
        ("DLOCK.RENEW busy m", "f1:x busy:m<y f2:z"),
        ("DLOCK.MRENEW 2 f1 f2 m", "f1:m<x busy:y f2:m<z"),
        ("DLOCK.RELEASE f2 m", "f1:x busy:y f2:z"),
        ("DLOCK.MACQUIRE 2 f2 busy m", "f1:x busy:m<y f2:m<z"),
        ("DLOCK.ANYACQUIRE 2 f2 other m", "f1:x busy:y f2:m<z"),
    ] {
        let mut scene = Scene::new();
        for reply in scene.release_and_kill(&[meanwhile]) {
            reply.ok();
        }
        assert_eq!(picture(&scene.server, KEYS), left, "{meanwhile}");
        scene.end();
    }
}

/// A lock that was held before the call loses the one count whose reply was not delivered.
#[test]
fn an_earlier_hold_is_unchanged() {
    let server = Server::start();
    let held = ask(&server, "DLOCK.ACQUIRE k1 m").int();
    ask(&server, "DLOCK.ACQUIRE k1 m").int();
    ask(&server, "DLOCK.ACQUIRE busy h").int();
    let mut m = wait(&server, "DLOCK.MACQUIRE 3 k1 busy free m BLOCK 0");
    let kill = args!["CLIENT", "KILL", "ID", m.id()];
    server.client().pipeline(&[args!["DLOCK.RELEASE", "busy", "h"], kill]);
    m.expect_closed_without_reply();
    server.wait_blocked(0);
    assert_eq!(picture(&server, "k1 busy free"), "k1:m*2 busy:- free:-");
    assert_eq!(server.cmd(&args!["DLOCK.CHECK", "k1", held]).int(), 1);
    clear(&server);
}

#[test]
fn one_of_several_is_handed_on_too() {
    let server = Server::start();
    ask(&server, "DLOCK.MACQUIRE 2 k1 k2 h").ok();
    let mut lost = wait(&server, "DLOCK.ANYACQUIRE 2 k1 k2 a BLOCK 0");
    let mut next = wait(&server, "DLOCK.ANYACQUIRE 2 k2 k1 b BLOCK 0");
    let kill = args!["CLIENT", "KILL", "ID", lost.id()];
    server.client().pipeline(&[args!["DLOCK.RELEASE", "k2", "h"], kill]);
    lost.expect_closed_without_reply();
    assert_eq!(one_of(&next.expect_reply(SOON)).0, "k2");
    assert_eq!(picture(&server, "k1 k2"), "k1:h k2:b");
    clear(&server);
}

/// Two hundred calls that die one after the other, each with a grant in progress.
#[test]
fn a_chain_of_dying_calls_loses_nothing() {
    let server = Server::start();
    ask(&server, "DLOCK.ACQUIRE k0 h").int();
    let dying: Vec<Blocked> = (0..200)
        .map(|n| {
            wait(
                &server,
                &format!("DLOCK.MACQUIRE 3 k0 k{} k{} d{n} BLOCK 0", 1 + n % 3, 4 + n % 5),
            )
        })
        .collect();
    let mut survivor = wait(&server, "DLOCK.MACQUIRE 9 k0 k1 k2 k3 k4 k5 k6 k7 k8 s BLOCK 0");
    let mut calls = vec![args!["MULTI"], args!["DLOCK.RELEASE", "k0", "h"]];
    for waiter in &dying {
        calls.push(args!["CLIENT", "KILL", "ID", waiter.id()]);
        // Any dlock command hands off the lock of a killed connection, here to the next connection to be killed.
        calls.push(args!["DLOCK.CANCEL", "other", "x"]);
    }
    calls.push(args!["EXEC"]);
    server.client().pipeline(&calls).pop().expect("the last").ok();
    assert_eq!(tokens(&survivor.expect_reply(SOON)).len(), 9);
    for mut waiter in dying {
        waiter.expect_closed_without_reply();
    }
    clear(&server);
}
