//! Waits for permits: order of arrival, also for large counts, and everything that ends a wait.

use std::time::Duration;

use crate::{
    args,
    story::{Story, sem},
    support::{Kind, ReplicaTap, Reply, SOON, Server, wait_until},
};

#[test]
fn a_wide_request_is_not_overtaken() {
    Story::tell(
        &Server::start(),
        &[
            ("DSEM.INIT s 4", "1"),
            ("DSEM.ACQUIRE s a", "id p1"),
            ("DSEM.ACQUIRE s a", "id p2"),
            ("w: DSEM.ACQUIRE s b COUNT 3 BLOCK 0", "waits"),
            // Two are available, but not for later calls.
            ("sem s", "2 of 4 (2 leased, 0 taken); waits b"),
            ("DSEM.ACQUIRE s c", "nil"),
            ("DSEM.TAKE s", "nil"),
            ("DSEM.DRAIN s", "0"),
            ("n: DSEM.ACQUIRE s c BLOCK 0", "waits"),
            ("t: DSEM.TAKE s 2 BLOCK 0", "waits"),
            ("m: DSEM.ACQUIRE s d BLOCK 0", "waits"),
            ("sem s", "2 of 4 (2 leased, 0 taken); waits b c - d"),
            ("DSEM.POSITION s a", "0"),
            ("DSEM.POSITION s b", "1"),
            ("DSEM.POSITION s d", "4"),
            ("DSEM.POSITION s e", "nil"),
            // The reply to a release is the number available after the waiters were served.
            ("DSEM.RELEASE s $p1", "0"),
            ("w", "id w"),
            ("sem s", "0 of 4 (4 leased, 0 taken); waits c - d"),
            ("n", "waits"),
            ("DSEM.RELEASE s $p2", "0"),
            ("n", "id n"),
            ("t", "waits"),
            ("DSEM.RELEASE s $n", "1"),
            // One is available, the first in the queue wants two.
            ("t", "waits"),
            ("m", "waits"),
            ("DSEM.RELEASE s $w", "1"),
            ("t", "1"),
            ("m", "id m"),
            ("sem s", "1 of 4 (1 leased, 2 taken)"),
            ("DSEM.RELEASE s $m", "2"),
            ("DSEM.GIVE s 2", "4"),
            ("DEL s", "1"),
        ],
    );
}

#[test]
fn those_behind_a_wide_request_that_leaves_are_served() {
    let server = Server::start();
    for leaves in ["drop w", "kill w", "DSEM.CANCEL s b", "unblock", "time", "wider"] {
        println!("{leaves}");
        let mut story = Story::on(&server);
        let block = if leaves == "time" { "3000" } else { "0" };
        let wait = format!("w: DSEM.ACQUIRE s b COUNT 3 BLOCK {block}");
        story.go(&[
            ("DSEM.INIT s 5", "1"),
            ("DSEM.ACQUIRE s a COUNT 3", "id p"),
            (&wait, "waits"),
            ("n: DSEM.ACQUIRE s c BLOCK 0", "waits"),
            ("t: DSEM.TAKE s BLOCK 0", "waits"),
            ("m: DSEM.ACQUIRE s d BLOCK 0", "waits"),
        ]);
        match leaves {
            "unblock" => {
                let id = server.cmd(&["DSEM.WAITERS", "s"]).items()[0].field("client-id").int();
                story.go(&[(&format!("DLOCK.UNBLOCK {id}"), "1"), ("w", "nil")]);
            }
            "time" => story.go(&[("w", "nil")]),
            // It wants more, and moves to the end of the queue.
            "wider" => {
                story.go(&[("x: DSEM.ACQUIRE s b COUNT 4 BLOCK 0", "waits"), ("w", "REPLACED ")]);
            }
            "DSEM.CANCEL s b" => story.go(&[(leaves, "1"), ("w", "nil")]),
            _ => story.go(&[(leaves, "")]),
        }
        story.go(&[
            ("n", "id n"),
            ("t", "1"),
            ("m", "waits"),
            ("DSEM.RELEASE s $p", "2"),
            ("m", "id m"),
        ]);
        if leaves == "wider" {
            story.go(&[
                ("x", "waits"),
                ("DSEM.RELEASE s $n", "3"),
                ("DSEM.GIVE s", "0"),
                ("x", "id x"),
            ]);
        }
        story.go(&[("DEL s", "1")]);
        story.end();
    }
}

#[test]
fn every_way_for_permits_to_come_back_serves_the_queue() {
    let server = Server::start();
    for (back, answer) in [
        ("DSEM.RELEASE s $p", "0"),
        ("DSEM.BREAK s $p", "1"),
        ("DSEM.RENEW s $p PX 1", "1"),
        ("DSEM.GIVE s", "0"),
        ("DSEM.RESIZE s 4", "0"),
        ("DSEM.RESIZE s BY 2", "1"),
        ("kill tied", ""),
    ] {
        println!("{back}");
        Story::tell(
            &server,
            &[
                ("DSEM.INIT s 3", "1"),
                ("DSEM.ACQUIRE s a", "id p"),
                ("tied: DSEM.ACQUIRE s tied BIND 0", "id tied"),
                ("DSEM.TAKE s", "1"),
                ("w: DSEM.ACQUIRE s b BLOCK 0", "waits"),
                (back, answer),
                ("w", "id w"),
                ("DEL s", "1"),
            ],
        );
    }
    // Many permits at once go to many waiters.
    let mut tap = ReplicaTap::attach(&server);
    server.cmd(&["DSEM.INIT", "s", "40"]).int();
    let all = server.cmd(&["DSEM.ACQUIRE", "s", "a", "COUNT", "40"]).text();
    let mut waiters: Vec<_> = (0..20)
        .map(|n| server.block(&args!["DSEM.ACQUIRE", "s", format!("w{n}"), "COUNT", 2, "BLOCK", 0]))
        .collect();
    let mut late = server.block(&["DSEM.ACQUIRE", "s", "late", "BLOCK", "0"]);
    tap.commands(&server);
    assert_eq!(server.cmd(&["DSEM.RELEASE", "s", &all]).int(), 0);
    for waiter in &mut waiters {
        waiter.expect_reply(SOON).text();
    }
    late.assert_no_reply();
    assert_eq!(tap.lines(&server).len(), 1, "one record for all of them");
    late.hang_up();
    server.cmd(&["DEL", "s"]).ok();
    server.left_over_check();
}

#[test]
fn undelivered_grants_are_handed_off() {
    let server = Server::start();
    for (call, next) in [
        ("DSEM.ACQUIRE s b COUNT 2 BLOCK 0", "DSEM.ACQUIRE s c COUNT 2 BLOCK 0"),
        ("DSEM.ACQUIRE s b COUNT 2 BLOCK 0 REQID r BIND 0", "DSEM.TAKE s BLOCK 0"),
        ("DSEM.TAKE s 2 BLOCK 0", "DSEM.ACQUIRE s c BLOCK 0"),
        ("DSEM.TAKE s 2 BLOCK 0 REQID r", "DSEM.TAKE s 2 BLOCK 0"),
    ] {
        println!("{call}");
        server.cmd(&["DSEM.INIT", "s", "2"]).int();
        let id = server.cmd(&["DSEM.ACQUIRE", "s", "a", "COUNT", "2"]).text();
        let [mut b, mut c] =
            [call, next].map(|call| server.block(&call.split(' ').collect::<Vec<_>>()));
        let replies = server
            .client()
            .pipeline(&[args!["DSEM.RELEASE", "s", id], args!["CLIENT", "KILL", "ID", b.id()]]);
        assert_eq!((replies[0].int(), replies[1].int()), (0, 1));
        b.expect_closed_without_reply();
        c.expect_reply(SOON).ok();
        let out = u32::from(!next.contains('2'));
        wait_until("only the second one to have any", || {
            sem(&server, "s").starts_with(&format!("{out} of 2 "))
        });
        server.cmd(&["DEL", "s"]).ok();
        server.left_over_check();
    }
    // A semaphore that LIMIT created is removed with it if there are no others.
    let id = server.cmd(&["DSEM.ACQUIRE", "s", "a", "LIMIT", "1"]).text();
    let mut b = server.block(&["DSEM.ACQUIRE", "s", "b", "BLOCK", "0"]);
    server
        .client()
        .pipeline(&[args!["DSEM.RELEASE", "s", id], args!["CLIENT", "KILL", "ID", b.id()]]);
    b.expect_closed_without_reply();
    server.left_over_check();
}

#[test]
fn a_take_that_waits_twice_takes_once() {
    let server = Server::start();
    for killed in [None, Some(0), Some(1)] {
        server.cmd(&["DSEM.INIT", "s", "2"]).int();
        server.cmd(&["DSEM.TAKE", "s", "2"]).int();
        let id = format!("r{}", killed.unwrap_or(2));
        let call = ["DSEM.TAKE", "s", "BLOCK", "0", "REQID", &id];
        let mut both = [server.block(&call), server.block(&call)];
        let mut calls = vec![args!["DSEM.GIVE", "s", 2]];
        // Its reply cannot be sent; the other one's can.
        calls.extend(killed.map(|at: usize| args!["CLIENT", "KILL", "ID", both[at].id()]));
        assert_eq!(server.client().pipeline(&calls)[0].int(), 1, "{killed:?}");
        for (at, waiter) in both.iter_mut().enumerate() {
            if killed == Some(at) {
                waiter.expect_closed_without_reply();
            } else {
                assert_eq!(waiter.expect_reply(SOON).int(), 1, "{killed:?}");
            }
        }
        assert_eq!(server.cmd(&call[..2]).int(), 1, "{killed:?}: one was left");
        assert_eq!(sem(&server, "s"), "0 of 2 (0 leased, 2 taken)", "{killed:?}");
        server.cmd(&["DEL", "s"]).ok();
        server.left_over_check();
    }
}

#[test]
fn waits_end_by_time_and_by_operators() {
    let server = Server::start();
    for call in ["DSEM.ACQUIRE s b BLOCK", "DSEM.TAKE s BLOCK"] {
        let call = |block: &'static str| call.split(' ').chain([block]).collect::<Vec<_>>();
        let mut hasty = server.post(&call("60"));
        let (reply, took) = hasty.expect_reply_timed(SOON);
        assert!(reply.is_null() && took >= Duration::from_millis(60), "{} {took:?}", reply.show());
        let mut ways = vec![("DLOCK.UNBLOCK", "", false), ("DLOCK.UNBLOCK", "ERROR", true)];
        if Kind::of_binary().client_unblock_is_safe() {
            ways.extend([("CLIENT UNBLOCK", "TIMEOUT", false), ("CLIENT UNBLOCK", "ERROR", true)]);
        }
        for (before, after, is_error) in ways {
            let mut waiter = server.block(&call("0"));
            let unblock = format!("{before} {} {after}", waiter.id());
            assert_eq!(server.cmd(&unblock.trim().split(' ').collect::<Vec<_>>()).int(), 1);
            let reply = waiter.expect_reply(SOON);
            if is_error {
                assert!(reply.error().starts_with("UNBLOCKED "), "{}", reply.show());
            } else {
                assert!(reply.is_null(), "{}", reply.show());
            }
            wait_until("the place to go", || sem(&server, "s") == "nothing");
        }
    }
    server.left_over_check();
}
