//! A server that temporarily refuses writes: CLIENT PAUSE, FAILOVER, SHUTDOWN. Leases are extended, waits continue,
//! and nothing is handed off before the end.

use std::time::{Duration, Instant};

use crate::{
    args,
    scene::{Scene, assert_lasted, assert_sent_away, assert_silent, block, waiter},
    support::{Family, Heard, Kind, LIMIT, ReplicaTap, Reply, SOON, Server, wait_until},
    test_both_families_at_once,
};

test_both_families_at_once! {
    a_pause_puts_leases_off_and_lets_waits_run_out
    a_pause_of_everything_does_the_same
    a_pause_puts_the_grace_of_places_off
    a_key_that_runs_out_during_a_pause_is_followed_up_after_it
    a_failover_that_is_given_up_is_a_pause
    a_shutdown_that_is_given_up_is_a_pause
}

const MODES: [&str; 2] = ["WRITE", "ALL"];

#[track_caller]
fn pause(server: &Server, ms: u64, mode: &str) {
    server.cmd(&["CLIENT", "PAUSE", &ms.to_string(), mode]).ok();
}

fn a_pause_puts_leases_off_and_lets_waits_run_out(family: Family) {
    const LEASE: u64 = 2_000;
    let server = family.start();
    server.cmd(&["DLOCK.ACQUIRE", "other", "h"]).int();
    let mut scene = Scene::set_with_lease(&server, "k", LEASE);
    let mut patient = waiter(&server, "other", "patient", 1_500);
    let begun = Instant::now();
    scene.holder.cmd(&args!["DLOCK.RENEW", "k", "h", "PX", LEASE]).int();
    pause(&server, 60_000, "WRITE");
    let paused = Instant::now();
    // Reads work, and show a lease that stands still.
    let left = || server.cmd(&["DLOCK.INFO", "k"]).field("ttl-ms").int();
    let before = left();
    assert!(patient.reply(SOON).is_null());
    assert_eq!(scene.first.hear(Duration::from_millis(LEASE)), Heard::Nothing);
    scene.assert_all_wait();
    assert!(before > 0);
    assert_eq!(left(), before);
    let lasted = u64::try_from(paused.elapsed().as_millis()).expect("a few seconds");
    server.cmd(&["CLIENT", "UNPAUSE"]).ok();

    let token = scene.first_is_granted();
    assert_lasted(begun, lasted + LEASE);
    assert_eq!(scene.messages.next_text(), scene.message("expired"));
    server.cmd(&["DLOCK.RELEASE", "other", "h"]).int();
    scene.play_out(token);
}

fn a_pause_of_everything_does_the_same(family: Family) {
    const PAUSE: u64 = 4_000;
    const LEASE: u64 = 1_500;
    let server = family.start();
    server.cmd(&["DLOCK.ACQUIRE", "other", "h"]).int();
    let mut scene = Scene::set_with_lease(&server, "k", LEASE);
    let mut patient = waiter(&server, "other", "patient", 1_500);
    let begun = Instant::now();
    scene.holder.cmd(&args!["DLOCK.RENEW", "k", "h", "PX", LEASE]).int();
    pause(&server, PAUSE, "ALL");
    assert!(patient.reply(SOON).is_null());
    assert!(begun.elapsed() < Duration::from_millis(PAUSE), "{:?}", begun.elapsed());
    let token = scene.first.reply(SOON).int();
    assert_lasted(begun, PAUSE + LEASE);
    assert_eq!(scene.messages.next_text(), scene.message("expired"));
    server.cmd(&["DLOCK.RELEASE", "other", "h"]).int();
    scene.play_out(token);
}

fn a_pause_puts_the_grace_of_places_off(family: Family) {
    let server = family.start();
    server.cmd(&["DLOCK.ACQUIRE", "k", "h"]).int();
    let mut absent = server.client();
    assert!(absent.cmd(&["DLOCK.ACQUIRE", "k", "absent", "QUEUE", "2500"]).is_null());
    drop(absent);
    let connected = || server.cmd(&["DLOCK.WAITERS", "k"]).items()[0].field("client-id").int() != 0;
    wait_until("the place to lose its connection", || !connected());
    pause(&server, 4_000, "WRITE");
    // Answered when the pause is over. Without the pause, the place is not 2.5 s old.
    server.cmd(&["DLOCK.RELEASE", "k", "h"]).int();
    if family == Family::Fair {
        let info = server.cmd(&["DLOCK.INFO", "k"]);
        assert_eq!(info.field("owner").text(), "absent");
        assert!((1..=2_500).contains(&info.field("ttl-ms").int()), "{}", info.show());
    } else {
        assert_eq!(server.cmd(&["DLOCK.POSITION", "k", "absent"]).int(), 1);
    }
    server.left_over_check();
}

#[test]
fn nothing_is_handed_on_during_a_pause() {
    let server = Server::start();
    for mode in MODES {
        let mut scene = Scene::set(&server, "k");
        let mut bound = server.client();
        bound.cmd(&["DLOCK.ACQUIRE", "tied", "h", "BIND", "0"]).int();
        let mut heir = waiter(&server, "tied", "heir", 0);
        pause(&server, if mode == "ALL" { 4_000 } else { 60_000 }, mode);

        // All waiters in front of `last` disconnect, and so does a holder whose binding ends its lease at once.
        drop(bound);
        drop(scene.first);
        scene.holder.send(&["DLOCK.RELEASE", "k", "h"]);
        if mode == "WRITE" {
            let gone = || server.cmd(&["DLOCK.WAITERS", "k"]).items().len() == 2;
            wait_until("the first to leave the queue", gone);
            let last = scene.last.id().to_string();
            assert_eq!(server.cmd(&["DLOCK.UNBLOCK", &last, "ERROR"]).int(), 1);
            assert!(scene.last.reply(SOON).error().starts_with("STOPPED "));
        }
        assert_eq!(heir.hear(Duration::from_millis(150)), Heard::Nothing);
        assert_eq!(scene.holder.hear(Duration::ZERO), Heard::Nothing);
        scene.messages.assert_none();
        if mode == "WRITE" {
            server.cmd(&["CLIENT", "UNPAUSE"]).ok();
        }

        assert!(heir.reply(SOON).int() > scene.token);
        assert_eq!(scene.holder.reply(SOON).int(), 0);
        assert!(scene.messages.next_text().starts_with("granted 0 "));
        assert!(scene.queued.cmd(&["DLOCK.ACQUIRE", "k", "queued"]).int() > scene.token);
        scene.queued.cmd(&["DLOCK.RELEASE", "k", "queued"]).int();
        if mode == "ALL" {
            scene.last.reply(SOON).int();
            scene.last.cmd(&["DLOCK.RELEASE", "k", "last"]).int();
        }
        heir.cmd(&["DLOCK.RELEASE", "tied", "heir"]).int();
        server.left_over_check();
    }
}

#[test]
fn a_grant_whose_receiver_dies_as_the_pause_begins_is_taken_back_after_it() {
    let server = Server::start();
    let mut scene = Scene::set(&server, "k");
    let first = scene.first.id();
    let replies = scene.holder.pipeline(&[
        args!["DLOCK.RELEASE", "k", "h"],
        args!["CLIENT", "KILL", "ID", first],
        args!["CLIENT", "PAUSE", 3_000, "WRITE"],
    ]);
    assert_eq!(replies[0].int(), 0);
    scene.first.expect_closed();
    scene.messages.assert_none();
    let granted = scene.messages.next_text();
    assert!(granted.starts_with("granted 0 "), "{granted}");
    assert_silent(&server, &mut scene.last);
    assert_eq!(scene.queued.cmd(&["DLOCK.RELEASE", "k", "queued"]).int(), 0);
    scene.last.reply(SOON).int();
    scene.last.cmd(&["DLOCK.RELEASE", "k", "last"]).int();
    server.left_over_check();
}

fn a_key_that_runs_out_during_a_pause_is_followed_up_after_it(family: Family) {
    let server = family.start();
    let mut scene = Scene::set(&server, "k");
    // In one write: the key must not expire before the pause.
    server
        .client()
        .pipeline(&[args!["PEXPIRE", "k", 500], args!["CLIENT", "PAUSE", 4_000, "WRITE"]]);
    assert_eq!(scene.first.hear(Duration::from_millis(700)), Heard::Nothing);
    let shown = server.cmd(&["DLOCK.INFO", "k"]);
    assert!(["", "h"].contains(&shown.field("owner").text().as_str()), "{}", shown.show());
    assert_silent(&server, &mut scene.first);
    let token = scene.first_is_granted_after_removal();
    assert_eq!(scene.messages.next_text(), scene.message("deleted"));
    scene.play_out(token);
}

fn role(server: &Server) -> String {
    server.info("replication").remove("role").unwrap_or_default()
}

#[test]
fn a_failover_takes_holds_along_and_sends_waiters_away() {
    let old = Server::start();
    let new = Server::with(&[]).replica_of(&old).start();
    let mut scene = Scene::set(&old, "k");
    let mut capable = old.client();
    if Kind::of_binary().at_least((99, 0), (8, 0)) {
        // The server does not disconnect such a client when it becomes a replica.
        capable.cmd(&["CLIENT", "CAPA", "redirect"]).ok();
    }
    block(&old, &mut capable, &args!["DLOCK.ACQUIRE", "k", "capable", "BLOCK", 0]);
    old.cmd(&["FAILOVER"]).ok();
    wait_until("the failover", || role(&old) == "slave" && role(&new) == "master");

    for waiter in [&mut scene.first, &mut scene.last, &mut capable] {
        assert_sent_away(&waiter.reply(SOON));
    }
    assert!(old.cmd(&["DLOCK.WAITERS", "k"]).items().is_empty());
    let refusal = old.cmd(&["DLOCK.ACQUIRE", "k", "first", "BLOCK", "0"]).error();
    assert!(refusal.starts_with("READONLY "), "{refusal}");
    for server in [&old, &new] {
        assert_eq!(server.cmd(&args!["DLOCK.CHECK", "k", scene.token]).int(), 1);
    }
    let mut first = waiter(&new, "k", "first", 0);
    assert_eq!(new.cmd(&["DLOCK.RELEASE", "k", "h"]).int(), 0);
    assert!(first.reply(SOON).int() > scene.token);
    old.wait_linked();
    new.wait_replica_synced(&old);
    assert_eq!(old.digest(), new.digest());
    assert_eq!(first.cmd(&["DLOCK.RELEASE", "k", "first"]).int(), 0);
    scene.messages.assert_none();
    new.wait_replica_synced(&old);
    old.left_over_check();
    new.left_over_check();
}

fn a_failover_that_is_given_up_is_a_pause(family: Family) {
    const LEASE: u64 = 1_500;
    let server = family.start();
    let _lagging = ReplicaTap::attach(&server);
    let mut scene = Scene::set_with_lease(&server, "k", LEASE);
    let begun = Instant::now();
    scene.holder.cmd(&args!["DLOCK.RENEW", "k", "h", "PX", LEASE]).int();
    server.cmd(&["FAILOVER", "TIMEOUT", "2500"]).ok();
    let (paused, mut seen) = (Instant::now(), Instant::now());
    wait_until("the failover to be given up", || {
        let info = server.info("replication");
        let is_on = info.get("master_failover_state").is_some_and(|state| state != "no-failover");
        if is_on {
            seen = Instant::now();
        }
        !is_on
    });
    let token = scene.first.reply(SOON).int();
    let failover = u64::try_from((seen - paused).as_millis()).expect("below a minute");
    assert!(failover > 1_000, "{failover} ms");
    assert_lasted(begun, LEASE + failover);
    assert_eq!(scene.messages.next_text(), scene.message("expired"));
    scene.play_out(token);
}

fn a_shutdown_that_is_given_up_is_a_pause(family: Family) {
    let server = family.with(&["shutdown-timeout", "60"]).start();
    let _lagging = ReplicaTap::attach(&server);
    let mut scene = Scene::set_with_lease(&server, "k", 1_500);
    scene.holder.cmd(&["DLOCK.RENEW", "k", "h", "PX", "1500"]).int();
    let mut shutdown = server.post(&["SHUTDOWN", "NOSAVE"]);
    assert_eq!(scene.first.hear(Duration::from_millis(1_800)), Heard::Nothing);
    shutdown.assert_no_reply();
    scene.assert_all_wait();
    server.cmd(&["SHUTDOWN", "ABORT"]).ok();
    shutdown.expect_reply(SOON).error();
    let token = scene.first_is_granted();
    assert_eq!(scene.messages.next_text(), scene.message("expired"));
    scene.play_out(token);
}

#[test]
fn a_shutdown_closes_blocked_connections_and_keeps_saved_data() {
    for how in ["SAVE", "NOSAVE"] {
        let mut server = Server::start();
        let Scene { token, mut first, mut queued, mut last, mut holder, .. } =
            Scene::set(&server, "k");
        server.shutdown(&[how]);
        for client in [&mut first, &mut last, &mut queued, &mut holder] {
            assert_eq!(client.hear(LIMIT), Heard::Closed);
        }
        server.start_again();
        assert_eq!(server.info_number("dlock", "waiters_queued"), 0);
        let kept = server.cmd(&args!["DLOCK.CHECK", "k", token]);
        if how == "SAVE" {
            assert_eq!(kept.int(), 1);
            let mut first = waiter(&server, "k", "first", 0);
            assert_eq!(server.cmd(&["DLOCK.RELEASE", "k", "h"]).int(), 0);
            assert!(first.reply(SOON).int() > token);
        } else {
            assert!(kept.error().starts_with("STALE "));
            assert!(server.cmd(&["DLOCK.ACQUIRE", "k", "first"]).int() > token);
        }
        assert_eq!(server.cmd(&["DLOCK.RELEASE", "k", "first"]).int(), 0);
        server.left_over_check();
    }
}
