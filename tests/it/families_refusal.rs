//! Refusals for read-write locks, semaphores and latches on servers that are new, paused, full or in a cluster.

use std::time::{Duration, Instant};

use crate::{
    families::{WAITS, hold, let_go},
    looks::sem,
    scene::assert_lasted,
    support::{Blocked, Reply, SOON, Server},
};

#[test]
fn a_new_server_grants_nothing_during_its_quarantine() {
    const QUARANTINE: u64 = 6_000;
    let setting = ["dlock.restart-quarantine-ms", &QUARANTINE.to_string()];
    let begun = Instant::now();
    let server = Server::with(&setting).start();
    // A latch grants nothing, and a semaphore may be made.
    assert_eq!(server.cmd(&["DLATCH.INIT", "l", "1"]).int(), 1);
    assert_eq!(server.cmd(&["DSEM.INIT", "s", "2"]).int(), 1);
    for call in [
        "DRW.ACQUIRE k a READ",
        "DRW.ACQUIRE k a WRITE",
        "DSEM.ACQUIRE s a",
        "DSEM.ACQUIRE t a LIMIT 1",
        "DSEM.TAKE s",
        "DSEM.DRAIN s",
    ] {
        let refusal = server.ask(call).error();
        assert!(refusal.starts_with("QUARANTINE "), "{call}: {refusal}");
    }
    let mut reader = server.block(&["DRW.ACQUIRE", "k", "a", "READ", "BLOCK", "0"]);
    let mut taker = server.block(&["DSEM.TAKE", "s", "BLOCK", "0"]);
    let mut maker = server.block(&["DSEM.ACQUIRE", "t", "a", "LIMIT", "1", "BLOCK", "0"]);
    assert!(server.cmd(&["DSEM.ACQUIRE", "s", "b", "QUEUE", "60000"]).is_null());
    assert_eq!(server.cmd(&["DLATCH.COUNTDOWN", "l"]).int(), 0);
    assert!(begun.elapsed() < Duration::from_millis(QUARANTINE), "too slow to see anything");
    for waiter in [&mut reader, &mut taker, &mut maker] {
        waiter.expect_reply(SOON).ok();
        assert!(begun.elapsed() >= Duration::from_millis(QUARANTINE), "{:?}", begun.elapsed());
    }
    assert_eq!(sem(&server, "s"), "0 of 2 (1 leased, 1 taken)");
    server.cmd(&["DEL", "k", "s", "t"]).ok();
    server.left_over_check();
}

#[test]
fn a_pause_puts_leases_off() {
    const LEASE: u64 = 4_000;
    const PAUSE: u64 = 3_500;
    let server = Server::start();
    server.cmd(&["DSEM.INIT", "s", "1"]).int();
    let lease = LEASE.to_string();
    let begun = Instant::now();
    server.cmd(&["DRW.ACQUIRE", "k", "h", "WRITE", "PX", &lease]).int();
    server.cmd(&["DSEM.ACQUIRE", "s", "h", "PX", &lease]).text();
    server.cmd(&["DLATCH.INIT", "l", "1", "PX", &lease]).int();
    let mut waiters: Vec<Blocked> = WAITS.map(|(_, call)| server.wait(&format!("{call} 0"))).into();
    let mut hasty = server.block(&["DLATCH.AWAIT", "l", "BLOCK", "1000"]);
    server.cmd(&["CLIENT", "PAUSE", &PAUSE.to_string(), "WRITE"]).ok();
    // The time of a wait continues.
    assert!(hasty.expect_reply(SOON).is_null());
    assert!(begun.elapsed() < Duration::from_millis(PAUSE), "too slow to see anything");
    for at in [0, 2, 4] {
        let reply = waiters[at].expect_reply(SOON);
        assert_lasted(begun, LEASE + PAUSE - 20);
        if let redis::Value::ServerError(_) = reply {
            assert!(at == 4 && reply.error().starts_with("BROKEN "), "{}", reply.show());
        }
    }
    server.cmd(&["DRW.BREAK", "k"]).ok();
    waiters[1].expect_reply(SOON).int();
    waiters.remove(3).hang_up();
    server.wait_blocked(0);
    server.cmd(&["DEL", "k", "s"]).ok();
    server.left_over_check();
}

#[test]
fn a_full_server_hands_on_but_grants_nothing_new() {
    let server = Server::start();
    hold(&server);
    let mut waiters: Vec<Blocked> = WAITS.map(|(_, call)| server.wait(&format!("{call} 0"))).into();
    server.cmd(&["CONFIG", "SET", "maxmemory", "1"]).ok();
    for call in [
        "DRW.ACQUIRE k x WRITE",
        "DRW.ACQUIRE k x READ BLOCK 0",
        "DSEM.ACQUIRE s x",
        "DSEM.TAKE s BLOCK 0",
        "DSEM.INIT t 1",
        "DLATCH.INIT m 1",
    ] {
        let refusal = server.ask(call).error();
        assert!(refusal.starts_with("OOM "), "{call}: {refusal}");
    }
    assert_eq!(server.cmd(&["DRW.RELEASE", "k", "h", "WRITE"]).int(), 0);
    waiters[0].expect_reply(SOON).int();
    assert_eq!(server.cmd(&["DRW.RELEASE", "k", "a", "READ"]).int(), 0);
    waiters[1].expect_reply(SOON).int();
    assert_eq!(server.cmd(&["DSEM.GIVE", "s"]).int(), 0);
    let id = waiters[2].expect_reply(SOON).text();
    assert_eq!(server.cmd(&["DSEM.RELEASE", "s", &id]).int(), 0);
    assert_eq!(waiters[3].expect_reply(SOON).int(), 1);
    server.cmd(&["CONFIG", "SET", "maxmemory", "0"]).ok();
    assert_eq!(server.cmd(&["DLATCH.COUNTDOWN", "l"]).int(), 0);
    waiters[4].expect_reply(SOON).int();
    let_go(&server);
}

#[test]
fn in_a_cluster_waiters_for_a_key_that_was_removed_are_told_to_ask_again() {
    let server = Server::with(&[]).cluster().start();
    for removal in ["DEL", "UNLINK", "FLUSHALL"] {
        hold(&server);
        let mut waiters: Vec<Blocked> =
            WAITS.map(|(_, call)| server.wait(&format!("{call} 0"))).into();
        for key in ["k", "s", "l"] {
            let call: &[&str] = if removal == "FLUSHALL" { &[removal] } else { &[removal, key] };
            server.cmd(call).ok();
        }
        for (waiter, (_, call)) in waiters.iter_mut().zip(WAITS) {
            let error = waiter.expect_reply(SOON).error();
            let wanted = if call.starts_with("DLATCH") { "BROKEN " } else { "MOVING " };
            assert!(error.starts_with(wanted), "{call}: {error}");
        }
        assert_eq!(server.keys(), 0);
        server.left_over_check();
    }
}
