//! A restart ends no lease early: the snapshot contains neither later renewals nor the time that has elapsed.

use std::{
    thread,
    time::{Duration, Instant},
};

use crate::{
    args,
    durability::{AOF, crashed, done, rewritten},
    support::{Blocked, Client, Family, Reply, SOON, Server, each, wait_until, words},
};

const LEASE: u64 = 8_000;
/// Remaining time of the leases when they are saved, in milliseconds.
const SAVED: i64 = 4_500;
/// Maximum time after a lease from the start; less than the lease, which must not be given twice.
const LATE: Duration = Duration::from_secs(7);

/// How the data set is saved, and the settings of the server.
struct Way {
    name: &'static str,
    settings: &'static [&'static str],
    save: fn(Server) -> Server,
}

const WAYS: [Way; 3] = [
    Way { name: "an RDB file", settings: &[], save: |server| done(server, &["SAVE"]) },
    Way { name: "an AOF that begins with an RDB file", settings: &AOF, save: rewritten },
    Way {
        name: "an AOF",
        settings: &["appendonly", "yes", "aof-use-rdb-preamble", "no"],
        save: rewritten,
    },
];

/// A hold that is saved with little of its lease left, and then has its full lease again.
struct Scene {
    name: &'static str,
    /// Required keys.
    before: &'static [&'static str],
    hold: &'static str,
    /// Waits for the grant that the owner claims later; `hold` is released then.
    queued: Option<&'static str>,
    /// Reads the remaining time.
    left: &'static str,
    /// After the snapshot; `$id` is what `hold` replied.
    renew: Option<&'static str>,
    /// Waits for it as another owner.
    wait: &'static str,
}

const SCENES: [Scene; 7] = [
    Scene {
        name: "a lock",
        before: &[],
        hold: "DLOCK.ACQUIRE lock a",
        queued: None,
        left: "DLOCK.INFO lock",
        renew: Some("DLOCK.RENEW lock a"),
        wait: "DLOCK.ACQUIRE lock b BLOCK 0",
    },
    Scene {
        name: "a lock that is not renewed",
        before: &[],
        hold: "DLOCK.ACQUIRE still a",
        queued: None,
        left: "DLOCK.INFO still",
        renew: None,
        wait: "DLOCK.ACQUIRE still b BLOCK 0",
    },
    Scene {
        name: "a fair lock",
        before: &[],
        hold: "DFAIR.ACQUIRE fair a",
        queued: None,
        left: "DFAIR.INFO fair",
        renew: Some("DFAIR.RENEW fair a"),
        wait: "DFAIR.ACQUIRE fair b BLOCK 0",
    },
    Scene {
        name: "a writer",
        before: &[],
        hold: "DRW.ACQUIRE write a WRITE",
        queued: None,
        left: "DRW.INFO write",
        renew: Some("DRW.RENEW write a WRITE"),
        wait: "DRW.ACQUIRE write b READ BLOCK 0",
    },
    Scene {
        name: "a reader",
        before: &[],
        hold: "DRW.ACQUIRE read a READ",
        queued: None,
        left: "DRW.INFO read",
        renew: Some("DRW.RENEW read a READ"),
        wait: "DRW.ACQUIRE read b WRITE BLOCK 0",
    },
    Scene {
        name: "a permit",
        before: &["DSEM.INIT sem 1"],
        hold: "DSEM.ACQUIRE sem a",
        queued: None,
        left: "DSEM.PERMITS sem",
        renew: Some("DSEM.RENEW sem $id"),
        wait: "DSEM.ACQUIRE sem b BLOCK 0",
    },
    // Its owner claims the grant after the save: its lease begins then.
    Scene {
        name: "a grant that is claimed",
        before: &[],
        hold: "DLOCK.ACQUIRE claimed h",
        queued: Some("DLOCK.ACQUIRE claimed a QUEUE 8000"),
        left: "DLOCK.INFO claimed",
        renew: Some("DLOCK.ACQUIRE claimed a"),
        wait: "DLOCK.ACQUIRE claimed b BLOCK 0",
    },
];

/// The remaining time of the first hold in a reply.
fn left(reply: &redis::Value) -> i64 {
    let text = reply.show();
    let found = text.split("ttl-ms").nth(1).unwrap_or_else(|| panic!("no ttl-ms in {text}"));
    let digits: String = found
        .chars()
        .skip_while(|c| !c.is_ascii_digit())
        .take_while(char::is_ascii_digit)
        .collect();
    digits.parse().unwrap()
}

/// A scene on the way.
struct Running<'a> {
    scene: &'a Scene,
    id: String,
    renewed: Instant,
}

fn survive(way: &Way) {
    let lease_ms = LEASE.to_string();
    let server = Server::with(way.settings).and(&["dlock.default-lease-ms", &lease_ms]).start();
    let mut owner = server.client();
    let mut all: Vec<Running> =
        SCENES.iter().map(|scene| begin(&server, &mut owner, scene)).collect();
    wait_until("most of the leases to pass", || {
        SCENES.iter().all(|scene| left(&server.ask(scene.left)) < SAVED)
    });
    let server = (way.save)(server);
    for running in &mut all {
        let Some(renew) = running.scene.renew else { continue };
        running.renewed = Instant::now();
        let reply = owner.cmd(&words(&renew.replace("$id", &running.id)));
        assert!(reply.int() > 0, "{}: {}", running.scene.name, reply.show());
    }
    drop(owner);
    let server = crashed(server);
    let loaded = Instant::now();
    let waiters: Vec<Blocked> =
        SCENES.iter().map(|scene| server.post(&words(scene.wait))).collect();
    let lease = Duration::from_millis(LEASE);
    thread::scope(|scope| {
        for (mut waiter, running) in waiters.into_iter().zip(&all) {
            scope.spawn(move || {
                waiter.expect_reply(lease + SOON).ok();
                let (held, late) = (running.renewed.elapsed(), loaded.elapsed());
                let what = format!("{}, {}", running.scene.name, way.name);
                assert!(held >= lease, "{what}: another owner has it after {held:?}");
                assert!(late < lease + LATE, "{what}: {late:?} is too late");
            });
        }
    });
    server.cmd(&["FLUSHALL"]).ok();
}

fn begin<'a>(server: &Server, owner: &mut Client, scene: &'a Scene) -> Running<'a> {
    for call in scene.before {
        server.ask(call).int();
    }
    let held = server.ask(scene.hold).ok();
    let id = if scene.hold.starts_with("DSEM") { held.text() } else { String::new() };
    if let Some(queued) = scene.queued {
        assert!(owner.cmd(&words(queued)).is_null());
        server.cmd(&["DLOCK.RELEASE", "claimed", "h"]).int();
    }
    Running { scene, id, renewed: Instant::now() }
}

#[test]
fn another_owner_waits_for_the_full_lease_counted_from_the_start() {
    each(&WAYS, survive);
}

#[test]
fn a_restored_hold_continues_with_its_remaining_lease() {
    let server = Server::start();
    server.cmd(&["DLOCK.ACQUIRE", "k", "a", "PX", "60000"]).int();
    wait_until("some of the lease to pass", || left(&server.cmd(&["DLOCK.INFO", "k"])) < 59_900);
    let dump = server.cmd(&["DUMP", "k"]).bytes();
    server.cmd(&[&b"RESTORE"[..], b"l", b"0", &dump]).ok();
    assert!(left(&server.cmd(&["DLOCK.INFO", "l"])) < 59_900);
    server.cmd(&["DEL", "k", "l"]).int();
    server.left_over_check();
}

#[test]
fn without_an_aof_the_quarantine_protects_grants_after_the_snapshot() {
    for family in Family::ALL {
        let server = family.start();
        server.cmd(&["DLOCK.ACQUIRE", "old", "a"]).int();
        let server = done(server, &["SAVE"]);
        server.cmd(&["DLOCK.ACQUIRE", "new", "a"]).int();
        server.cmd(&["CONFIG", "SET", "dlock.restart-quarantine-ms", "60000"]).ok();
        server.cmd(&["CONFIG", "REWRITE"]).ok();
        let server = crashed(server);
        let mut other: Client = server.client();
        assert!(other.cmd(&["DLOCK.ACQUIRE", "old", "b"]).is_null());
        assert!(other.cmd(&["DLOCK.ACQUIRE", "new", "b"]).error().starts_with("QUARANTINE "));
        assert!(!warns(&server), "the quarantine is set");
        server.cmd(&["FLUSHALL"]).ok();
    }
}

/// Whether the log says that grants may have been lost.
fn warns(server: &Server) -> bool {
    server.log().contains("started from an RDB file")
}

#[test]
fn the_log_says_at_the_start_what_an_rdb_file_cannot_protect() {
    let server = Server::start();
    assert!(!warns(&server), "nothing was loaded");
    server.cmd(&["DLOCK.ACQUIRE", "k", "a"]).int();
    let server = crashed(done(server, &["SAVE"]));
    wait_until("a line in the log", || warns(&server));
    let server = Server::with(&AOF).start();
    server.cmd(&args!["DLOCK.ACQUIRE", "k", "a"]).int();
    let server = crashed(rewritten(server));
    assert_eq!(server.cmd(&["DLOCK.POSITION", "k", "a"]).int(), 0);
    assert!(!warns(&server), "the AOF is on");
}
