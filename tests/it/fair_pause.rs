//! A server that temporarily refuses writes loses no place of a DFAIR queue, and sends nothing to its replicas
//! meanwhile. `pause.rs` tests the behaviour shared with DLOCK.

use std::time::{Duration, Instant};

use crate::{
    args,
    fair::lose,
    queue::{owner, queue},
    restart::LATE,
    scene::assert_lasted,
    support::{Blocked, Family, Heard, ReplicaTap, Reply, SOON, Server, each, wait_until},
};

fn start(grace_ms: &str) -> Server {
    Family::Fair.with(&["dlock.fair-grace-ms", grace_ms]).start()
}

#[track_caller]
fn pause(server: &Server, ms: u64, mode: &str) -> Instant {
    let begun = Instant::now();
    server.cmd(&args!["CLIENT", "PAUSE", ms, mode]).ok();
    begun
}

#[track_caller]
fn block(server: &Server, owner: &str, ms: &str) -> Blocked {
    server.block(&["DLOCK.ACQUIRE", "k", owner, "BLOCK", ms])
}

#[test]
fn a_pause_extends_the_grace_of_disconnected_owners() {
    const GRACE: u64 = 2_000;
    const PAUSE: u64 = 3_000;
    let ways = ["WRITE", "ALL"].map(|mode| [(mode, true), (mode, false)]);
    each(ways.as_flattened(), |&(mode, lost_before)| {
        println!("{mode}, lost before: {lost_before}");
        let server = start("2000");
        server.cmd(&["DLOCK.ACQUIRE", "k", "h", "PX", "600000"]).int();
        let lost = block(&server, "lost", "0");
        let mut next = block(&server, "next", "0");
        let begun;
        if lost_before {
            lose(&server, lost, false);
            begun = pause(&server, PAUSE, mode);
        } else {
            begun = pause(&server, PAUSE, mode);
            // In a full pause the server answers no client.
            if mode == "WRITE" {
                lose(&server, lost, false);
            } else {
                lost.hang_up();
            }
        }
        // Answered when the pause is over, before the grace is.
        assert_eq!(server.cmd(&["DLOCK.RELEASE", "k", "h"]).int(), 0);
        assert_lasted(begun, PAUSE);
        let info = server.cmd(&["DLOCK.INFO", "k"]);
        assert_eq!(info.field("owner").text(), "lost");
        next.expect_reply(SOON).int();
        // The time before the pause counts.
        let least = if lost_before { PAUSE } else { PAUSE + GRACE };
        assert!(begun.elapsed() >= Duration::from_millis(least), "{:?}", begun.elapsed());
        let most = Duration::from_millis(PAUSE + GRACE) + LATE;
        assert!(begun.elapsed() < most, "{:?}", begun.elapsed());
        assert_eq!(server.cmd(&["DLOCK.RELEASE", "k", "next"]).int(), 0);
        server.left_over_check();
    });
}

/// An owner that gives up during the pause is answered at once; its leaving is written after the pause.
#[test]
fn an_owner_that_gives_up_during_a_pause_leaves_after_it() {
    let primary = start("60000");
    let replica = Family::Fair.with(&[]).replica_of(&primary).start();
    let mut tap = ReplicaTap::attach(&primary);
    primary.cmd(&["DLOCK.ACQUIRE", "k", "h", "PX", "600000"]).int();
    let mut timed_out = block(&primary, "timed-out", "3000");
    let mut unblocked = block(&primary, "unblocked", "0");
    let mut patient = block(&primary, "patient", "0");
    primary.wait_replica_synced(&replica);
    tap.commands(&primary);
    let digest = primary.digest();

    pause(&primary, 60_000, "WRITE");
    assert!(timed_out.expect_reply(SOON).is_null());
    assert_eq!(primary.cmd(&args!["DLOCK.UNBLOCK", unblocked.id()]).int(), 1);
    assert!(unblocked.expect_reply(SOON).is_null());
    // Reads show them as gone; stored and replicated data do not change.
    assert_eq!(queue(&primary, "k"), ["patient"]);
    assert_eq!(primary.cmd(&["DLOCK.POSITION", "k", "patient"]).int(), 1);
    assert!(primary.cmd(&["DLOCK.POSITION", "k", "timed-out"]).is_null());
    assert_eq!(primary.cmd(&["DLOCK.INFO", "k"]).field("waiters").int(), 1);
    assert_eq!(primary.digest(), digest);
    assert_eq!(tap.commands(&primary).len(), 0);
    patient.assert_no_reply();
    primary.cmd(&["CLIENT", "UNPAUSE"]).ok();

    wait_until("the places to go", || primary.digest() != digest);
    assert_eq!(queue(&primary, "k"), ["patient"]);
    wait_until("the replica to know", || {
        primary.wait_replica_synced(&replica);
        queue(&replica, "k") == ["patient"] && replica.digest() == primary.digest()
    });
    assert!(tap.commands(&primary).iter().all(|command| command[0] == b"DLOCK.APPLY"));
    assert_eq!(primary.cmd(&["DLOCK.RELEASE", "k", "h"]).int(), 0);
    patient.expect_reply(SOON).int();
    assert_eq!(primary.cmd(&["DLOCK.RELEASE", "k", "patient"]).int(), 0);
    primary.wait_replica_synced(&replica);
    replica.left_over_check();
    primary.left_over_check();
}

/// An owner that gave up during the pause is not granted the lock.
#[test]
fn nothing_is_granted_to_an_owner_that_gave_up_during_a_pause() {
    each(&["WRITE", "ALL"], |mode| {
        let server = start("60000");
        let mut holder = server.client();
        holder.cmd(&["DLOCK.ACQUIRE", "k", "h", "PX", "600000"]).int();
        let mut hasty = block(&server, "hasty", "1500");
        let mut both =
            server.post(&["DLOCK.ACQUIRE", "k", "both", "BLOCK", "1500", "QUEUE", "60000"]);
        server.wait_blocked(2);
        let mut patient = block(&server, "patient", "0");
        pause(&server, 4_000, mode);
        holder.send(&["DLOCK.RELEASE", "k", "h"]);
        assert!(hasty.expect_reply(SOON).is_null());
        assert!(both.expect_reply(SOON).is_null());
        assert_eq!(holder.hear(Duration::ZERO), Heard::Nothing, "the pause is over too early");
        assert_eq!(holder.reply(SOON).int(), 0);
        // The place with QUEUE is still one.
        assert_eq!(
            (owner(&server, "k"), queue(&server, "k")),
            ("both".into(), vec!["patient".into()])
        );
        patient.assert_no_reply();
        assert!(both.client().cmd(&["DLOCK.ACQUIRE", "k", "both"]).int() > 0);
        assert_eq!(server.cmd(&["DLOCK.RELEASE", "k", "both"]).int(), 0);
        patient.expect_reply(SOON).int();
        assert_eq!(server.cmd(&["DLOCK.RELEASE", "k", "patient"]).int(), 0);
        server.left_over_check();
    });
}

/// Waiters at the front leave or stay; the order is unchanged.
#[test]
fn a_queue_is_the_same_after_a_pause() {
    let server = start("60000");
    for mode in ["WRITE", "ALL"] {
        server.cmd(&["DLOCK.ACQUIRE", "k", "h", "PX", "600000"]).int();
        let mut waiters: Vec<Blocked> =
            (0..6).map(|n| block(&server, &format!("w{n}"), "0")).collect();
        let all = queue(&server, "k");
        let begun = pause(&server, 500, mode);
        // Some are disconnected and repeat their request elsewhere before the pause ends: it is processed afterwards.
        for n in [1, 4] {
            let call = args!["DLOCK.ACQUIRE", "k", format!("w{n}"), "BLOCK", 0];
            waiters[n] = server.post(&call);
        }
        assert_eq!(server.cmd(&["DLOCK.RELEASE", "k", "h"]).int(), 0);
        assert_lasted(begun, 500);
        server.wait_blocked(5);
        assert_eq!((owner(&server, "k"), queue(&server, "k")), (all[0].clone(), all[1..].to_vec()));
        for (n, mut waiter) in waiters.into_iter().enumerate() {
            waiter.expect_reply(SOON).int();
            assert_eq!(server.cmd(&args!["DLOCK.RELEASE", "k", format!("w{n}")]).int(), 0);
        }
        server.left_over_check();
    }
}

/// The reply to a grant could not be sent, and the pause began in the same turn of the loop: the owner keeps its
/// place.
#[test]
fn a_grant_whose_receiver_dies_as_the_pause_begins_is_kept_for_it() {
    let server = start("60000");
    server.cmd(&["DLOCK.ACQUIRE", "k", "h"]).int();
    let mut dies = block(&server, "dies", "0");
    let mut next = block(&server, "next", "0");
    let replies = server.client().pipeline(&[
        args!["DLOCK.RELEASE", "k", "h"],
        args!["CLIENT", "KILL", "ID", dies.id()],
        args!["CLIENT", "PAUSE", 300, "WRITE"],
    ]);
    assert_eq!(replies[0].int(), 0);
    dies.expect_closed_without_reply();
    // Answered after the pause.
    let token = server.cmd(&["DLOCK.ACQUIRE", "k", "dies", "PX", "90000"]).int();
    let info = server.cmd(&["DLOCK.INFO", "k"]);
    assert_eq!((info.field("token").int(), info.field("holds").int()), (token, 1));
    next.assert_no_reply();
    assert_eq!(server.cmd(&["DLOCK.RELEASE", "k", "dies"]).int(), 0);
    next.expect_reply(SOON).int();
    assert_eq!(server.cmd(&["DLOCK.RELEASE", "k", "next"]).int(), 0);
    server.left_over_check();
}
