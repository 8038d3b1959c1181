//! Every way to leave a wait for several locks: out of all queues at once, without harm to the waiters behind.

use std::time::Instant;

use super::{ask, picture, tokens, wait, words};
use crate::{
    args,
    scene::{assert_lasted, assert_sent_away},
    support::{Blocked, Kind, Reply, SOON, Server, wait_until},
};

const KEYS: &str = "f1 busy f2";

/// `busy` is held. `m` waits for it and two free locks. Behind it wait `x` for one of the free locks, another call
/// for all of them, and `y`.
struct Scene<'a> {
    server: &'a Server,
    m: Blocked,
    x: Blocked,
    all: Blocked,
    y: Blocked,
}

impl<'a> Scene<'a> {
    fn set(server: &'a Server, options: &str) -> Scene<'a> {
        ask(server, "DLOCK.ACQUIRE busy h").int();
        let m = wait(server, &format!("DLOCK.MACQUIRE 3 f1 busy f2 m {options}"));
        let x = wait(server, "DLOCK.ACQUIRE f1 x BLOCK 0");
        let all = wait(server, "DLOCK.MACQUIRE 3 f2 busy f1 all BLOCK 0");
        let y = wait(server, "DLOCK.ACQUIRE f2 y BLOCK 0");
        assert_eq!(picture(server, KEYS), "f1:-<m<x<all busy:h<m<all f2:-<m<all<y");
        Scene { server, m, x, all, y }
    }

    /// `m` has left. Waiters that only `m` blocked are served in that step, the others keep their order.
    #[track_caller]
    fn end(mut self) {
        let server = self.server;
        self.x.expect_reply(SOON).int();
        assert_eq!(picture(server, KEYS), "f1:x<all busy:h<all f2:-<all<y");
        ask(server, "DLOCK.RELEASE busy h").int();
        self.all.assert_no_reply();
        ask(server, "DLOCK.RELEASE f1 x").int();
        tokens(&self.all.expect_reply(SOON));
        assert_eq!(picture(server, KEYS), "f1:all busy:all f2:all<y");
        assert_eq!(ask(server, "DLOCK.MRELEASE 3 f1 f2 busy all").int(), 3);
        self.y.expect_reply(SOON).int();
        ask(server, "DLOCK.RELEASE f2 y").int();
        server.left_over_check();
    }
}

#[test]
fn a_timeout_leaves_all_queues() {
    let server = Server::start();
    let sent = Instant::now();
    let mut scene = Scene::set(&server, "BLOCK 3000");
    assert!(scene.m.expect_reply(SOON).is_null());
    assert_lasted(sent, 3_000);
    assert!(server.info_number("dlock", "timeouts") >= 1);
    scene.end();
}

#[test]
fn an_operator_ends_the_wait() {
    let server = Server::start();
    let mut ways = vec!["DLOCK.UNBLOCK", "DLOCK.UNBLOCK ERROR"];
    if Kind::of_binary().client_unblock_is_safe() {
        ways.extend(["CLIENT UNBLOCK", "CLIENT UNBLOCK ERROR"]);
    }
    for way in ways {
        let mut scene = Scene::set(&server, "BLOCK 0");
        let (name, error) = way.strip_suffix(" ERROR").map_or((way, ""), |name| (name, " ERROR"));
        assert_eq!(ask(&server, &format!("{name} {}{error}", scene.m.id())).int(), 1, "{way}");
        let reply = scene.m.expect_reply(SOON);
        if error.is_empty() {
            assert!(reply.is_null(), "{way}: {}", reply.show());
        } else {
            assert!(reply.error().starts_with("UNBLOCKED "), "{way}: {}", reply.show());
        }
        assert_eq!(scene.m.client().cmd(&["ECHO", "once"]).text(), "once");
        scene.end();
    }
}

#[test]
fn cancel_at_any_of_the_keys_ends_the_whole_wait() {
    let server = Server::start();
    for key in words(KEYS) {
        let mut scene = Scene::set(&server, "BLOCK 60000");
        assert_eq!(server.cmd(&["DLOCK.CANCEL", key, "m"]).int(), 1);
        assert!(scene.m.expect_reply(SOON).is_null());
        for key in words(KEYS) {
            assert_eq!(server.cmd(&["DLOCK.CANCEL", key, "m"]).int(), 0, "{key}");
        }
        scene.end();
    }
}

#[test]
fn a_connection_that_ends_leaves_all_queues() {
    let server = Server::start();
    let Scene { m, x, all, y, .. } = Scene::set(&server, "BLOCK 0");
    m.hang_up();
    Scene { server: &server, m: server.post(&["PING"]), x, all, y }.end();
    let mut scene = Scene::set(&server, "BLOCK 0 BIND 0 REQID r");
    ask(&server, &format!("CLIENT KILL ID {}", scene.m.id())).ok();
    scene.m.expect_closed_without_reply();
    scene.end();
}

/// Waiters in the middle and at the end of the queues leave, too, and the first one stays first.
#[test]
fn a_waiter_that_leaves_from_the_middle_does_not_affect_the_first() {
    let server = Server::start();
    ask(&server, "DLOCK.ACQUIRE busy h").int();
    let mut first = wait(&server, "DLOCK.MACQUIRE 3 f1 busy f2 first BLOCK 0");
    let middle: Vec<Blocked> = (0..20)
        .map(|n| {
            let keys = if n % 2 == 0 { "3 f2 f1 busy" } else { "2 busy f1" };
            wait(&server, &format!("DLOCK.MACQUIRE {keys} o{n} BLOCK 0"))
        })
        .collect();
    let mut last = wait(&server, "DLOCK.MACQUIRE 3 f1 busy f2 last BLOCK 0");
    // In one turn of the server's loop, from front to back.
    let kills: Vec<_> =
        middle.iter().map(|waiter| args!["CLIENT", "KILL", "ID", waiter.id()]).collect();
    server.client().pipeline(&kills);
    for mut waiter in middle {
        waiter.expect_closed_without_reply();
    }
    wait_until("them to be gone", || {
        picture(&server, KEYS) == "f1:-<first<last busy:h<first<last f2:-<first<last"
    });
    first.assert_no_reply();
    ask(&server, "DLOCK.RELEASE busy h").int();
    tokens(&first.expect_reply(SOON));
    last.assert_no_reply();
    ask(&server, "DLOCK.MRELEASE 3 f1 f2 busy first").int();
    tokens(&last.expect_reply(SOON));
    ask(&server, "DLOCK.MRELEASE 3 f1 f2 busy last").int();
    server.left_over_check();
}

#[test]
fn a_server_that_becomes_a_replica_sends_them_away() {
    let other = Server::start();
    let server = Server::start();
    ask(&server, "DLOCK.ACQUIRE busy h").int();
    let mut m = wait(&server, "DLOCK.MACQUIRE 3 f1 busy f2 m BLOCK 0");
    let mut any = wait(&server, "DLOCK.ANYACQUIRE 2 busy f1 a BLOCK 0");
    server.cmd(&["REPLICAOF", "127.0.0.1", &other.port().to_string()]).ok();
    for waiter in [&mut m, &mut any] {
        assert_sent_away(&waiter.expect_reply(SOON));
    }
    for call in [
        "DLOCK.MACQUIRE 2 f1 f2 m BLOCK 0",
        "DLOCK.ANYACQUIRE 2 f1 f2 m",
        "DLOCK.MRELEASE 2 f1 f2 m",
        "DLOCK.MRENEW 2 f1 f2 m",
    ] {
        let refusal = ask(&server, call).error();
        assert!(refusal.starts_with("READONLY "), "{call}: {refusal}");
    }
    wait_until("the link to the primary", || {
        server.info("replication").get("master_link_status").is_some_and(|status| status == "up")
    });
    assert_eq!(picture(&server, KEYS), "f1:- busy:- f2:-");
    ask(&server, "REPLICAOF NO ONE").ok();
    server.left_over_check();
}
