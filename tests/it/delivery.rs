//! Grants whose receiver disconnects before the reply can be sent. The server executes all commands of one write in
//! one turn of its loop, and sends replies to blocked calls at the end of the turn. So these races are deterministic.

use crate::{
    args,
    support::{Blocked, Family, Kind, Reply, SOON, Server},
    test_both_families,
};

test_both_families! {
    a_grant_that_cannot_be_sent_goes_to_the_next
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

    /// `a` releases, and the connection of `b` is killed, all in one turn.
    fn release_and_kill(&mut self) {
        let kill = args!["CLIENT", "KILL", "ID", self.b.id()];
        let calls = [args!["DLOCK.RELEASE", "k", "a"], kill];
        let replies = self.server.client().pipeline(&calls);
        assert_eq!((replies[0].int(), replies[1].int()), (0, 1));
        self.b.expect_closed_without_reply();
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
        scene.release_and_kill();
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
        calls.push(args!["DLOCK.BREAK", "other"]);
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

/// Grants of other kinds go to the next waiter, too.
#[test]
fn a_grant_of_any_kind_that_cannot_be_sent_goes_to_the_next() {
    let server = Server::start();
    let words = |text: &str| text.split(' ').map(str::to_owned).collect::<Vec<_>>();
    for (taken, wish, back) in [
        ("DRW.ACQUIRE k a WRITE", "DRW.ACQUIRE k OWNER WRITE BLOCK 0", "DRW.RELEASE k a WRITE"),
        ("DLOCK.ACQUIRE k a", "DLOCK.MACQUIRE 2 l k OWNER BLOCK 0 REQID r", "DLOCK.RELEASE k a"),
        ("DLOCK.ACQUIRE k a", "DLOCK.ANYACQUIRE 1 k OWNER BLOCK 0", "DLOCK.RELEASE k a"),
        ("DSEM.TAKE k", "DSEM.ACQUIRE k OWNER BLOCK 0", "DSEM.GIVE k"),
        ("DSEM.TAKE k", "DSEM.TAKE k BLOCK 0", "DSEM.GIVE k"),
    ] {
        println!("{wish}");
        if taken.starts_with("DSEM") {
            server.cmd(&["DSEM.INIT", "k", "1"]).int();
        }
        server.ask(taken).int();
        let [mut lost, mut next] =
            ["b", "c"].map(|owner| server.block(&words(&wish.replace("OWNER", owner))));
        let kill = words(&format!("CLIENT KILL ID {}", lost.id()));
        server.client().pipeline(&[words(back), kill]);
        lost.expect_closed_without_reply();
        next.expect_reply(SOON).ok();
        assert_eq!(server.info_number("dlock", "grants_in_flight"), 0);
        server.cmd(&["FLUSHALL"]).ok();
        server.left_over_check();
    }
}
