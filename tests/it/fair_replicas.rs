//! The queue of a DFAIR lock on replicas: the same data after every step, shown, and replicated only as effects.

use std::time::Duration;

use crate::{
    args,
    durability::{AOF, crashed},
    queue::{owner, queue},
    support::{Blocked, Client, Family, ReplicaTap, Reply, SOON, Server, wait_until},
};

/// A primary, its replica, and their current data.
struct Pair {
    primary: Server,
    replica: Server,
    client: Client,
    digest: String,
}

impl Pair {
    fn start() -> Pair {
        let primary = Family::Fair.with(&AOF).start();
        let replica = Family::Fair.with(&[]).replica_of(&primary).start();
        let client = primary.client();
        Pair { primary, replica, client, digest: "0".repeat(40) }
    }

    #[track_caller]
    fn cmd(&mut self, call: &str) -> redis::Value {
        self.client.cmd(&call.split(' ').collect::<Vec<_>>())
    }

    #[track_caller]
    fn block(&self, call: &str) -> Blocked {
        self.primary.wait(call)
    }

    /// Checks that both are equal, that their data changed since the last step, and that these owners wait for `k`.
    #[track_caller]
    fn changed(&mut self, waiting: &[&str]) {
        let before = self.digest.clone();
        self.settle(waiting, Some(&before));
        self.equal(waiting);
    }

    /// Waits until an end by time has reached the replica: a read shows it shortly before it is replicated.
    #[track_caller]
    fn settle(&mut self, waiting: &[&str], before: Option<&str>) {
        wait_until(&format!("both to have changed, and {waiting:?} to wait on both"), || {
            self.primary.wait_replica_synced(&self.replica);
            self.digest = self.primary.digest();
            before != Some(&self.digest)
                && self.replica.digest() == self.digest
                && queue(&self.primary, "k") == waiting
                && queue(&self.replica, "k") == waiting
        });
    }

    #[track_caller]
    fn equal(&mut self, waiting: &[&str]) {
        self.settle(waiting, None);
        assert_eq!(owner(&self.replica, "k"), owner(&self.primary, "k"));
        for (n, name) in waiting.iter().enumerate() {
            let place = self.replica.cmd(&["DLOCK.POSITION", "k", name]).int();
            assert_eq!(place, i64::try_from(n).expect("a few") + 1, "{name}");
        }
        assert_eq!(self.replica.keys(), self.primary.keys());
    }
}

#[test]
fn a_replica_is_equal_after_every_step() {
    let mut at = Pair::start();
    at.cmd("DLOCK.ACQUIRE k h PX 600000").int();
    at.changed(&[]);
    let mut b = at.block("DLOCK.ACQUIRE k b BLOCK 0");
    at.changed(&["b"]);
    at.cmd("DLOCK.ACQUIRE k c QUEUE 60000 LABEL x");
    at.changed(&["b", "c"]);
    let mut again = at.block("DLOCK.ACQUIRE k b BLOCK 0 LABEL y PX 4000");
    assert!(b.expect_reply(SOON).error().starts_with("REPLACED "));
    at.equal(&["b", "c"]);
    let mut d = at.block("DLOCK.ACQUIRE k d BLOCK 3000");
    at.changed(&["b", "c", "d"]);
    assert!(d.expect_reply(SOON).is_null());
    at.changed(&["b", "c"]);
    let mut d = at.block("DLOCK.ACQUIRE k d BLOCK 0");
    at.equal(&["b", "c", "d"]);
    at.cmd(&format!("DLOCK.UNBLOCK {}", d.id())).int();
    assert!(d.expect_reply(SOON).is_null());
    at.changed(&["b", "c"]);
    at.cmd("DLOCK.ACQUIRE k d QUEUE 60000");
    at.equal(&["b", "c", "d"]);
    assert!(at.cmd("DLOCK.RELEASE k d").is_null());
    at.changed(&["b", "c"]);
    // A lost connection changes nothing; the end of its grace does.
    at.cmd("CONFIG SET dlock.fair-grace-ms 4000").ok();
    let lost = at.block("DLOCK.ACQUIRE k d BLOCK 0");
    at.equal(&["b", "c", "d"]);
    lost.hang_up();
    at.primary.wait_blocked(1);
    at.equal(&["b", "c", "d"]);
    at.changed(&["b", "c"]);
    // Grants after a release, after the end of a lease and of a grant to a place, and after BREAK.
    at.cmd("DLOCK.RELEASE k h").int();
    again.expect_reply(SOON).int();
    at.changed(&["c"]);
    at.cmd("DLOCK.ACQUIRE k d QUEUE 60000");
    at.changed(&["d"]);
    at.cmd("DLOCK.ACQUIRE k c").int();
    at.changed(&["d"]);
    at.cmd("DLOCK.ACQUIRE k e QUEUE 50 PX 50");
    // On another connection: the server skips a connection that lets a grant expire.
    let mut other = at.primary.client();
    assert!(other.cmd(&["DLOCK.ACQUIRE", "k", "f", "QUEUE", "60000"]).is_null());
    at.cmd("DLOCK.BREAK k").int();
    at.changed(&["e", "f"]);
    at.cmd("DLOCK.ACQUIRE k d").int();
    at.cmd("DLOCK.RELEASE k d").int();
    wait_until("the end of the grant to e", || owner(&at.primary, "k") == "f");
    at.changed(&[]);
    at.cmd("CONFIG SET dlock.lock-delay-ms 3000").ok();
    at.cmd("DLOCK.ACQUIRE k f").int();
    let mut g = at.block("DLOCK.ACQUIRE k g BLOCK 0");
    at.cmd("DLOCK.BREAK k").int();
    at.changed(&["g"]);
    g.expect_reply(SOON).int();
    at.cmd("CONFIG SET dlock.lock-delay-ms 0").ok();
    at.changed(&[]);
    at.cmd("DLOCK.RELEASE k g").int();
    at.changed(&[]);
    at.primary.left_over_check();
    at.replica.left_over_check();
}

#[test]
fn a_replica_is_equal_when_other_commands_meet_the_key() {
    let mut at = Pair::start();
    for (call, waiting) in [
        ("DEL k", &["e"][..]),
        ("UNLINK k", &["e"]),
        ("FLUSHALL", &["e"]),
        ("PEXPIRE k 1", &["e"]),
        ("RENAME k l", &["d", "e", "f"]),
        ("MOVE k 5", &["d", "e", "f"]),
        ("SWAPDB 0 5", &["d", "e", "f"]),
    ] {
        println!("{call}");
        at.cmd("DLOCK.ACQUIRE k h PX 600000").int();
        let mut first = at.block("DLOCK.ACQUIRE k c BLOCK 0");
        at.cmd("DLOCK.ACQUIRE k d QUEUE 60000");
        let mut last = at.block("DLOCK.ACQUIRE k e BLOCK 0");
        at.cmd("DLOCK.ACQUIRE k f QUEUE 60000");
        at.changed(&["c", "d", "e", "f"]);
        at.cmd(call).ok();
        first.expect_reply(SOON).int();
        at.changed(waiting);
        for &name in waiting {
            at.cmd("DLOCK.BREAK k").int();
            assert_eq!(owner(&at.primary, "k"), name);
        }
        last.expect_reply(SOON).int();
        at.cmd("FLUSHALL").ok();
        at.equal(&[]);
    }
    at.primary.left_over_check();
    at.replica.left_over_check();
}

/// The AOF replays the work of a primary to the same data, from the stream and from a rewritten file.
#[test]
fn the_log_is_replayed_to_the_same_data() {
    let server = Family::Fair.with(&AOF).start();
    let mut client = server.client();
    for key in ["k", "l", "m", "n"] {
        client.cmd(&["DLOCK.ACQUIRE", key, "h", "PX", "600000"]).int();
        let mut waiters: Vec<Blocked> = Vec::new();
        for n in 0..6 {
            let name = format!("w{n}");
            waiters.push(server.block(&["DLOCK.ACQUIRE", key, &name, "BLOCK", "0"]));
            let name = format!("q{n}");
            client.cmd(&["DLOCK.ACQUIRE", key, &name, "QUEUE", "600000", "LABEL", &name]).ok();
        }
        assert!(client.cmd(&["DLOCK.RELEASE", key, "q3"]).is_null());
        assert!(client.cmd(&["DLOCK.RELEASE", key, "w4"]).is_null());
        client.cmd(&["DLOCK.RELEASE", key, "h"]).int();
        client.cmd(&["DLOCK.BREAK", key]).int();
        let call: &[&str] = match key {
            "k" => &["PING"],
            "l" => &["DEL", "l"],
            "m" => &["RENAME", "m", "elsewhere"],
            _ => &["MOVE", "n", "3"],
        };
        client.cmd(call).ok();
        server.cmd(&["CONFIG", "SET", "dlock.fair-grace-ms", "86400000"]).ok();
    }
    let shown = |server: &Server| ["k", "l", "m", "n", "elsewhere"].map(|key| queue(server, key));
    let (digest, waiting) = (server.digest(), shown(&server));
    assert_eq!(waiting[0], ["w1", "q1", "w2", "q2", "w3", "q4", "w5", "q5"]);
    let server = crashed(server);
    assert_eq!((server.digest(), shown(&server)), (digest.clone(), waiting.clone()));
    let server = crashed(crate::durability::rewritten(server));
    assert_eq!((server.digest(), shown(&server)), (digest, waiting));
}

#[test]
fn a_replica_shows_the_queue() {
    let at = Pair::start();
    let mut client = at.primary.client();
    client.cmd(&["DLOCK.ACQUIRE", "k", "h", "PX", "600000"]).int();
    let _blocked = at.block("DLOCK.ACQUIRE k b BLOCK 60000 LABEL why");
    client.cmd(&["DLOCK.ACQUIRE", "k", "c", "QUEUE", "60000"]).ok();
    // Received as a stream, and in a full synchronization.
    let late = Family::Fair.with(&[]).replica_of(&at.primary).start();
    for replica in [&at.replica, &late] {
        at.primary.wait_replica_synced(replica);
        assert_eq!(replica.cmd(&["DLOCK.INFO", "k"]).field("waiters").int(), 2);
        let rows = replica.cmd(&["DLOCK.WAITERS", "k"]).items();
        for (row, (name, label)) in rows.iter().zip([("b", "why"), ("c", "")]) {
            assert_eq!(row.field("owner").text(), name);
            assert_eq!(row.field("label").text(), label);
            // Connections and times exist only on the primary.
            assert_eq!(row.field("client-id").int(), 0);
            assert_eq!(row.field("remaining-ms").int(), -1);
        }
        assert_eq!(rows.len(), 2);
        assert_eq!(replica.cmd(&["DLOCK.WAITERS", "k", "COUNT", "1"]).items().len(), 1);
        assert_eq!(replica.cmd(&["DLOCK.POSITION", "k", "h"]).int(), 0);
        assert_eq!(replica.cmd(&["DLOCK.POSITION", "k", "c"]).int(), 2);
        assert!(replica.cmd(&["DLOCK.POSITION", "k", "x"]).is_null());
        for call in [
            &["DLOCK.ACQUIRE", "k", "b", "BLOCK", "0"][..],
            &["DLOCK.ACQUIRE", "k", "b", "QUEUE", "1000"],
            &["DLOCK.RELEASE", "k", "b"],
            &["DLOCK.BREAK", "k"],
        ] {
            let refusal = replica.cmd(call).error();
            assert!(refusal.starts_with("READONLY "), "{call:?}: {refusal}");
        }
        assert_eq!(replica.digest(), at.primary.digest());
        // A replica has no alarms and no waiters.
        let info = replica.info("dlock");
        for field in ["armed_deadlines", "parked_clients", "connections_watched"] {
            assert_eq!(info[field], "0", "{field}");
        }
    }
}

/// The number of records of each step; nothing else is replicated.
#[test]
fn the_stream_holds_effects_alone() {
    const ONE: &[&str] = &["DLOCK.APPLY"];
    let server = Family::Fair.with(&["dlock.fair-grace-ms", "60000"]).start();
    let mut tap = ReplicaTap::attach(&server);
    let mut sent = || {
        let commands = tap.commands(&server);
        let names = commands.iter().map(|command| command[0].escape_ascii().to_string());
        let len: usize = commands.iter().flatten().map(Vec::len).sum();
        (names.collect::<Vec<_>>(), len)
    };
    let mut blocked = Vec::new();
    let mut client = server.client();
    for (call, names) in [
        ("DLOCK.ACQUIRE k h PX 600000", ONE),
        // Reads, and refused requests.
        ("DLOCK.ACQUIRE k b", &[]),
        ("DLOCK.INFO k", &[]),
        ("DLOCK.WAITERS k", &[]),
        ("DLOCK.POSITION k b", &[]),
        // Joining and leaving.
        ("DLOCK.ACQUIRE k b BLOCK 0", ONE),
        ("DLOCK.ACQUIRE k c QUEUE 60000", ONE),
        ("DLOCK.ACQUIRE k d QUEUE 60000", ONE),
        ("DLOCK.RELEASE k c", ONE),
        // A hand-off is one step.
        ("DLOCK.RELEASE k h", ONE),
        ("DLOCK.BREAK k", ONE),
        ("DLOCK.ACQUIRE k d", ONE),
        ("DLOCK.RELEASE k d", ONE),
    ] {
        let words: Vec<&str> = call.split(' ').collect();
        if words.contains(&"BLOCK") {
            blocked.push(server.block(&words));
        } else {
            client.cmd(&words).ok();
        }
        assert_eq!(sent().0, names, "{call}");
    }
    // A long queue is not replicated as a whole: only joins and leaves are.
    client.cmd(&["DLOCK.ACQUIRE", "k", "h", "PX", "600000"]).int();
    let calls: Vec<_> =
        (0..2_000).map(|n| args!["DLOCK.ACQUIRE", "k", format!("w{n}"), "QUEUE", 60_000]).collect();
    client.pipeline(&calls);
    let (names, len) = sent();
    assert!(names.iter().all(|name| name == "DLOCK.APPLY") && names.len() == 2_001, "{names:?}");
    assert!(len < 2_001 * 150, "{len} bytes");
    let lost = server.block(&["DLOCK.ACQUIRE", "k", "lost", "BLOCK", "0"]);
    sent();
    lost.hang_up();
    server.wait_blocked(0);
    assert_eq!(sent().0, [""; 0], "connections are not replicated");
    for n in 0..3 {
        client.cmd(&["DLOCK.BREAK", "k"]).int();
        let (names, len) = sent();
        assert!(names == ONE && len < 250, "{n}: {names:?} {len}");
    }
    client.cmd(&["DEL", "k"]).int();
    assert_eq!(sent().0, ["DEL"], "no call was blocked: nothing is left");
    server.left_over_check();
}

/// A record of a left or taken place counts as a write of that connection.
#[test]
fn wait_covers_places() {
    let server = Family::Fair.start();
    let mut tap = ReplicaTap::attach(&server);
    server.cmd(&["DLOCK.ACQUIRE", "k", "h"]).int();
    tap.commands(&server);
    for call in [&["DLOCK.ACQUIRE", "k", "a", "QUEUE", "60000"][..], &["DLOCK.RELEASE", "k", "a"]] {
        let mut client = server.client();
        client.cmd(call).ok();
        assert_eq!(client.cmd(&["WAIT", "1", "50"]).int(), 0, "{call:?}: the replica is silent");
        tap.commands(&server);
        assert_eq!(client.cmd(&["WAIT", "1", "20000"]).int(), 1, "{call:?}: the replica has it");
    }
    assert_eq!(server.cmd(&["DLOCK.RELEASE", "k", "h"]).int(), 0);
    server.left_over_check();
}

/// A replica that was disconnected for a moment gets the missed records.
#[test]
fn a_broken_link_loses_no_step() {
    let mut at = Pair::start();
    at.cmd("DLOCK.ACQUIRE k h PX 600000").int();
    at.cmd("DLOCK.ACQUIRE k a QUEUE 60000");
    at.equal(&["a"]);
    for round in 0..3 {
        at.primary.cmd(&["CLIENT", "KILL", "TYPE", "replica"]).ok();
        at.cmd(&format!("DLOCK.ACQUIRE k r{round} QUEUE 60000"));
        at.cmd(&format!("DLOCK.ACQUIRE k s{round} QUEUE 60000"));
        assert!(at.cmd(&format!("DLOCK.RELEASE k r{round}")).is_null());
    }
    at.changed(&["a", "s0", "s1", "s2"]);
    assert_eq!(at.primary.info_number("stats", "sync_full"), 1);
    at.cmd("DEL k").int();
    at.primary.left_over_check();
    at.equal(&[]);
    assert_eq!(at.client.hear(Duration::ZERO), crate::support::Heard::Nothing);
}
