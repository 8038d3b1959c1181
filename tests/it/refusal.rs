//! A server that refuses writes of clients does not hand off either. Waits end as usual, leases are not extended.

#![allow(clippy::expect_used, reason = "a test that cannot go on stops here and says why")]

use std::{
    fs,
    time::{Duration, Instant},
};

use crate::{
    args,
    scene::{Scene, assert_prompt, block},
    support::{Family, Heard, Kind, Reply, SOON, Server, wait_until},
    test_both_families_at_once,
};

test_both_families_at_once! {
    nothing_is_handed_on_while_writes_are_refused
    the_end_of_a_refusal_is_noticed_without_help
    a_connection_that_cannot_be_blocked_gets_an_error
}

/// Makes the server refuse writes, or accept them again.
type Step = fn(&Server);

/// The error code, and the functions that start and end the refusal.
const REFUSALS: [(&str, Step, Step); 2] = [
    ("NOREPLICAS ", |server| min_replicas(server, "1"), |server| min_replicas(server, "0")),
    ("MISCONF ", fail_to_save, save),
];

fn min_replicas(server: &Server, number: &str) {
    server.cmd(&["CONFIG", "SET", "min-replicas-to-write", number]).ok();
}

/// A directory stands where the file should go.
fn fail_to_save(server: &Server) {
    let file = server.dir().join("dump.rdb");
    fs::create_dir_all(file.join("in the way")).expect("a folder in a folder of ours");
    bgsave(server, "err");
}

fn save(server: &Server) {
    fs::remove_dir_all(server.dir().join("dump.rdb")).expect("the folder made above");
    bgsave(server, "ok");
}

pub fn bgsave(server: &Server, outcome: &str) {
    server.cmd(&["BGSAVE"]).ok();
    wait_until("the end of the BGSAVE", || {
        let info = server.info("persistence");
        info["rdb_bgsave_in_progress"] == "0" && info["rdb_last_bgsave_status"] == outcome
    });
}

fn nothing_is_handed_on_while_writes_are_refused(family: Family) {
    let server = family.with(&["save", "3600 1000000"]).start();
    for (code, begin, end) in REFUSALS {
        println!("{code}");
        let mut scene = Scene::set_with_lease(&server, "k", 4_000);
        let mut bound = server.client();
        bound.cmd(&["DLOCK.ACQUIRE", "tied", "h", "BIND", "0"]).int();
        let (mut heir, mut patient, mut called_off) =
            (server.client(), server.client(), server.client());
        block(&server, &mut heir, &args!["DLOCK.ACQUIRE", "tied", "heir", "BLOCK", 0]);
        block(&server, &mut called_off, &args!["DLOCK.ACQUIRE", "tied", "x", "BLOCK", 0]);
        block(&server, &mut patient, &args!["DLOCK.ACQUIRE", "tied", "patient", "BLOCK", 3_000]);
        // Only when the server refuses writes.
        scene.holder.cmd(&["DLOCK.RENEW", "k", "h", "PX", "4000"]).int();
        begin(&server);

        for call in [
            "DLOCK.ACQUIRE k x",
            "DLOCK.ACQUIRE free x",
            "DLOCK.ACQUIRE k x BLOCK 0",
            "DLOCK.ACQUIRE k x QUEUE 1000",
            "DLOCK.RENEW k h",
            "DLOCK.RELEASE k h",
            "DLOCK.FENCE k h 1",
            "DLOCK.RELEASE k queued",
            "DLOCK.BREAK k",
        ] {
            let refusal = server.ask(call).error();
            assert!(refusal.starts_with(code), "{call}: {refusal}");
        }
        drop(bound);
        let call_off = args!["DLOCK.UNBLOCK", called_off.id(), "ERROR"];
        assert_eq!(server.cmd(&call_off).int(), 1);
        assert!(called_off.reply(SOON).error().starts_with("STOPPED "));
        assert!(patient.reply(SOON).is_null());
        wait_until("the end of the lease", || {
            server.cmd(&["DLOCK.INFO", "k"]).field("owner").text().is_empty()
        });
        let stale = server.cmd(&args!["DLOCK.CHECK", "k", scene.token]);
        assert!(stale.error().starts_with("STALE "));
        assert_eq!(heir.hear(Duration::from_millis(100)), Heard::Nothing);
        scene.assert_all_wait();

        end(&server);
        let token = scene.first_is_granted();
        assert_eq!(scene.messages.next_text(), scene.message("expired"));
        assert!(heir.reply(SOON).int() > scene.token);
        heir.cmd(&["DLOCK.RELEASE", "tied", "heir"]).int();
        scene.play_out(token);
    }
}

/// No command comes while writes are refused, and the module gets no event at the end.
fn the_end_of_a_refusal_is_noticed_without_help(family: Family) {
    const LEASE: u64 = 700;
    let server = family.with(&["hz", "1", "dynamic-hz", "no"]).start();
    let mut operator = server.client();
    assert_prompt(|| {
        let mut scene = Scene::set_with_lease(&server, "k", LEASE);
        operator.cmd(&["CONFIG", "SET", "min-replicas-to-write", "1"]).ok();
        assert_eq!(scene.first.hear(Duration::from_millis(LEASE + 100)), Heard::Nothing);
        operator.cmd(&["CONFIG", "SET", "min-replicas-to-write", "0"]).ok();
        let over = Instant::now();
        let token = scene.first.reply(SOON).int();
        let late = over.elapsed();
        assert_eq!(scene.messages.next_text(), scene.message("expired"));
        scene.play_out(token);
        late
    });
}

/// A subscriber connection: newer versions of Valkey do not block it.
fn a_connection_that_cannot_be_blocked_gets_an_error(family: Family) {
    let server = family.start();
    let mut scene = Scene::set(&server, "k");
    let mut listener = server.client3();
    listener.send(&["SUBSCRIBE", "c"]);
    assert!(matches!(listener.hear(SOON), Heard::Reply(_)));
    let call = args!["DLOCK.ACQUIRE", "k", "listener", "BLOCK", 0];
    if Kind::of_binary().at_least((99, 0), (8, 1)) {
        let refusal = listener.cmd(&call).error();
        assert!(refusal.starts_with("ERR this connection cannot be blocked"), "{refusal}");
        scene.assert_all_wait();
        let with_place = args!["DLOCK.ACQUIRE", "k", "listener", "BLOCK", 0, "QUEUE", 60_000];
        assert!(listener.cmd(&with_place).error().starts_with("ERR "));
    } else {
        block(&server, &mut listener, &call);
    }
    assert!(server.cmd(&["DLOCK.RELEASE", "k", "listener"]).is_null());
    scene.assert_all_wait();
    scene.holder.cmd(&["DLOCK.RELEASE", "k", "h"]).int();
    let token = scene.first_is_granted();
    scene.play_out(token);
}
