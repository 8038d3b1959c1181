//! Grants whose receiver disconnects before the reply can be sent. The server executes all commands of one write in
//! one turn of its loop, and sends replies to blocked calls at the end of the turn. So these races are deterministic.

use crate::{
    args,
    support::{Blocked, Family, Kind, Reply, SOON, Server, wait_until},
    test_both_families,
};

test_both_families! {
    a_grant_that_cannot_be_sent_goes_to_the_next
    it_stays_when_the_request_was_resent_in_time
    only_the_unreported_count_is_undone
    with_queue_the_place_stays_or_the_grant_of_a_fair_lock
    a_late_unblock_takes_no_grant
    three_hundred_dying_waiters_lose_nothing
}

/// Lock `k`: held by `a`; `b` waits with these options, `c` behind it.
struct Scene {
    server: Server,
    b: Blocked,
    c: Blocked,
    before: i64,
}

impl Scene {
    /// Without QUEUE, a DFAIR place does not outlive its connection here, so that both families behave alike.
    fn new(family: Family, options: &[&str]) -> Scene {
        let server = family.with(&["dlock.fair-grace-ms", "0"]).start();
        let before = server.cmd(&["DLOCK.ACQUIRE", "k", "a"]).int();
        let b = server.block(&[&["DLOCK.ACQUIRE", "k", "b", "BLOCK", "0"], options].concat());
        let c = server.block(&["DLOCK.ACQUIRE", "k", "c", "BLOCK", "0"]);
        Scene { server, b, c, before }
    }

    /// `a` releases, `between` runs, and the connection of `b` is killed, all in one turn. Returns the replies to
    /// `between`.
    fn release_and_kill(&self, between: &[&[&str]]) -> Vec<redis::Value> {
        let id = self.b.id().to_string();
        let release: &[&str] = &["DLOCK.RELEASE", "k", "a"];
        let kill: &[&str] = &["CLIENT", "KILL", "ID", &id];
        let all = [&[release], between, &[kill]].concat();
        let calls: Vec<Vec<&str>> = all.into_iter().map(<[&str]>::to_vec).collect();
        let mut replies = self.server.client().pipeline(&calls);
        assert_eq!(replies.remove(0).int(), 0);
        assert_eq!(replies.pop().map(|killed| killed.int()), Some(1));
        replies
    }

    fn holds(&self, owner: &str) -> i64 {
        let info = self.server.cmd(&["DLOCK.INFO", "k"]);
        assert_eq!(info.field("owner").text(), owner);
        info.field("holds").int()
    }

    /// `c` gets the lock, and nothing is left.
    fn end(mut self) {
        assert!(self.c.expect_reply(SOON).int() > self.before + 1);
        assert_eq!(self.server.cmd(&["DLOCK.RELEASE", "k", "c"]).int(), 0);
        assert_eq!(self.server.info_number("dlock", "grants_in_flight"), 0);
        self.server.left_over_check();
    }
}

fn a_grant_that_cannot_be_sent_goes_to_the_next(family: Family) {
    for options in [&[][..], &["REQID", "r"], &["BIND", "0"], &["BIND", "60000", "LABEL", "x"]] {
        let mut scene = Scene::new(family, options);
        scene.release_and_kill(&[]);
        scene.b.expect_closed_without_reply();
        scene.end();
    }
    // In a transaction the same.
    let mut scene = Scene::new(family, &[]);
    let replies = scene.server.client().pipeline(&[
        args!["MULTI"],
        args!["DLOCK.RELEASE", "k", "a"],
        args!["CLIENT", "KILL", "ID", scene.b.id()],
        args!["EXEC"],
    ]);
    assert_eq!(replies[3].show(), "[(integer) 0, (integer) 1]");
    scene.b.expect_closed_without_reply();
    scene.end();
}

fn it_stays_when_the_request_was_resent_in_time(family: Family) {
    let mut scene = Scene::new(family, &["REQID", "r"]);
    let resent: &[&str] = &["DLOCK.ACQUIRE", "k", "b", "REQID", "r", "BLOCK", "0"];
    let token = scene.release_and_kill(&[resent])[0].int();
    scene.b.expect_closed_without_reply();
    assert_eq!(scene.server.cmd(&args!["DLOCK.CHECK", "k", token]).int(), 1);
    assert_eq!(scene.holds("b"), 1);
    scene.c.assert_no_reply();
    assert_eq!(scene.server.cmd(&["DLOCK.RELEASE", "k", "b"]).int(), 0);
    scene.end();
}

fn only_the_unreported_count_is_undone(family: Family) {
    // Commands of the owner on another connection meanwhile, and the number of its holds afterwards.
    for (meanwhile, holds) in [
        (&[&["DLOCK.ACQUIRE", "k", "b"][..]][..], 1),
        (&[&["DLOCK.ACQUIRE", "k", "b"], &["DLOCK.ACQUIRE", "k", "b"]], 2),
        (&[&["DLOCK.RENEW", "k", "b"]], 1),
        (&[&["DLOCK.ACQUIRE", "k", "b"], &["DLOCK.RELEASE", "k", "b"]], 1),
        (&[&["DLOCK.RELEASE", "k", "b"]], 0),
    ] {
        let mut scene = Scene::new(family, &["REQID", "r"]);
        for reply in scene.release_and_kill(meanwhile) {
            reply.ok();
        }
        scene.b.expect_closed_without_reply();
        for left in (0..holds).rev() {
            assert_eq!(scene.holds("b"), left + 1, "{meanwhile:?}");
            assert_eq!(scene.server.cmd(&["DLOCK.RELEASE", "k", "b"]).int(), left);
        }
        scene.end();
    }
}

fn with_queue_the_place_stays_or_the_grant_of_a_fair_lock(family: Family) {
    if family == Family::Fair { it_waits_to_be_claimed(family) } else { the_place_stays(family) }
}

fn the_place_stays(family: Family) {
    let Scene { server, mut b, mut c, .. } = {
        let scene = Scene::new(family, &["QUEUE", "40000", "EX", "90"]);
        scene.release_and_kill(&[]);
        scene
    };
    b.expect_closed_without_reply();
    c.expect_reply(SOON).int();
    let rows = server.cmd(&["DLOCK.WAITERS", "k"]).items();
    assert_eq!(rows.len(), 1);
    assert_eq!((rows[0].field("owner").text(), rows[0].field("client-id").int()), ("b".into(), 0));
    let mut again = server.client();
    assert!(again.cmd(&["DLOCK.ACQUIRE", "k", "b", "QUEUE", "40000"]).is_null());
    assert_eq!(server.cmd(&["DLOCK.RELEASE", "k", "c"]).int(), 0);
    assert!(again.cmd(&["DLOCK.ACQUIRE", "k", "b"]).int() > 0);
    assert_eq!(server.cmd(&["DLOCK.RELEASE", "k", "b"]).int(), 0);
    assert_eq!(server.info_number("dlock", "grants_in_flight"), 0);
    drop(again);
    server.left_over_check();
}

fn it_waits_to_be_claimed(family: Family) {
    let mut scene = Scene::new(family, &["QUEUE", "40000", "EX", "90"]);
    scene.release_and_kill(&[]);
    scene.b.expect_closed_without_reply();
    assert_eq!(scene.holds("b"), 1);
    let info = scene.server.cmd(&["DLOCK.INFO", "k"]);
    assert!((1..=40_000).contains(&info.field("ttl-ms").int()), "{}", info.show());
    assert_eq!(scene.server.cmd(&["DLOCK.ACQUIRE", "k", "b"]).int(), info.field("token").int());
    assert_eq!(scene.holds("b"), 1);
    scene.server.cmd(&["DLOCK.RELEASE", "k", "b"]).ok();
    scene.end();
    let mut scene = Scene::new(family, &["QUEUE", "30", "EX", "90"]);
    scene.release_and_kill(&[]);
    scene.b.expect_closed_without_reply();
    wait_until("the place to end", || scene.server.info_number("dlock", "unclaimed") == 1);
    scene.end();
}

fn a_late_unblock_takes_no_grant(family: Family) {
    let mut ways = vec![vec!["DLOCK.UNBLOCK"], vec!["DLOCK.UNBLOCK", "ERROR"]];
    if Kind::of_binary().client_unblock_is_safe() {
        ways.extend([vec!["CLIENT", "UNBLOCK"], vec!["CLIENT", "UNBLOCK", "ERROR"]]);
    }
    for way in ways {
        let mut scene = Scene::new(family, &[]);
        let id = scene.b.id().to_string();
        let by_server = way[0] == "CLIENT";
        let mut call = way.clone();
        call.insert(if by_server { 2 } else { 1 }, &id);
        let replies =
            scene.server.client().pipeline(&[vec!["DLOCK.RELEASE", "k", "a"], call.clone()]);
        // The server itself counts the call as blocked until its reply is sent.
        assert_eq!(replies[1].int(), i64::from(by_server), "{call:?}");
        let reply = scene.b.expect_reply(SOON);
        if way == ["CLIENT", "UNBLOCK", "ERROR"] {
            // The server answers the call first: the grant could not be sent, and goes to the next waiter.
            assert!(reply.error().starts_with("UNBLOCKED "), "{}", reply.show());
        } else {
            assert_eq!(scene.server.cmd(&args!["DLOCK.CHECK", "k", reply.int()]).int(), 1);
            scene.c.assert_no_reply();
            assert_eq!(scene.b.client().cmd(&["DLOCK.RELEASE", "k", "b"]).int(), 0, "{call:?}");
        }
        assert_eq!(scene.b.client().cmd(&["ECHO", &id]).text(), id, "answered once");
        scene.end();
    }
}

fn three_hundred_dying_waiters_lose_nothing(family: Family) {
    let server = family.with(&["dlock.fair-grace-ms", "0"]).start();
    server.cmd(&["DLOCK.ACQUIRE", "k", "a"]).ok();
    let dying: Vec<Blocked> = (0..300)
        .map(|n| server.block(&args!["DLOCK.ACQUIRE", "k", format!("d{n}"), "BLOCK", 0]))
        .collect();
    let mut survivor = server.block(&["DLOCK.ACQUIRE", "k", "s", "BLOCK", "0"]);
    // Any dlock command hands off the lock of a killed connection, here to the next connection to be killed. A
    // transaction, because the server would not read all these bytes in one turn.
    let mut calls = vec![args!["MULTI"], args!["DLOCK.RELEASE", "k", "a"]];
    for waiter in &dying {
        calls.push(args!["CLIENT", "KILL", "ID", waiter.id()]);
        calls.push(args!["DLOCK.CANCEL", "other", "x"]);
    }
    calls.push(args!["EXEC"]);
    server.client().pipeline(&calls).pop().unwrap().ok();
    survivor.expect_reply(SOON).int();
    let grants = server.info_number("dlock", "grants_after_waiting");
    // DFAIR takes no grant back: a grant ends with its place, and the server skips waiters that have died by then.
    assert!(grants == 301 || family == Family::Fair && grants > 1, "{grants}");
    server.cmd(&["DLOCK.RELEASE", "k", "s"]).ok();
    for mut waiter in dying {
        waiter.expect_closed_without_reply();
    }
    server.left_over_check();
}
