//! While the server would refuse a client's write, nothing is granted and nothing is handed off, for any cause.
//!
//! Each case has a waiter `y` that becomes grantable as soon as the obstacle in front of it is gone: a wider request
//! at the head of the queue, or a hold. All cases of a refusal run at once, each on separate keys.

#![allow(clippy::expect_used, reason = "a test that cannot go on stops here and says why")]

use std::time::{Duration, Instant};

use crate::support::{Client, Heard, Reply, SOON, Server, Setup, wait_until};

/// Duration of leases and waits that end by time, in milliseconds: long enough to set all cases up.
const SHORT: &str = "5000";

/// How the obstacle in front of `y` ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Cause {
    /// By time: the BLOCK of a waiter elapses, or the lease of a hold.
    Time,
    /// DLOCK.UNBLOCK ends the call of the waiter.
    Unblock,
    /// The connection of the waiter, or of a bound holder, closes.
    Close,
}

/// A family, its first calls, the obstacle (its last command runs on a separate connection), and the command of `y`.
/// `#` stands for the keys of the case, `SHORT` for a time that ends while writes are refused.
type Case = (&'static [&'static str], &'static [Cause], &'static str, &'static str);

use Cause::{Close, Time, Unblock};

const CASES: [Case; 12] = [
    // A call at the head keeps a free lock closed while it waits for another one.
    (
        &["DLOCK.ACQUIRE #busy o9"],
        &[Time, Unblock, Close],
        "DLOCK.MACQUIRE 2 #hot #busy batch BLOCK SHORT",
        "DLOCK.ACQUIRE #hot y BLOCK 0",
    ),
    (
        &["DRW.ACQUIRE #hot r READ"],
        &[Time, Unblock, Close],
        "DRW.ACQUIRE #hot w WRITE BLOCK SHORT",
        "DRW.ACQUIRE #hot y READ BLOCK 0",
    ),
    (
        &["DSEM.INIT #hot 2", "DSEM.TAKE #hot"],
        &[Time, Unblock, Close],
        "DSEM.ACQUIRE #hot wide COUNT 2 BLOCK SHORT",
        "DSEM.ACQUIRE #hot y BLOCK 0",
    ),
    (
        &["DSEM.INIT #hot 2", "DSEM.TAKE #hot"],
        &[Time, Unblock, Close],
        "DSEM.TAKE #hot 2 BLOCK SHORT",
        "DSEM.TAKE #hot BLOCK 0",
    ),
    // A hold ends: its lease, or with its connection.
    (&[], &[Time], "DLOCK.ACQUIRE #hot h PX SHORT", "DLOCK.ACQUIRE #hot y BLOCK 0"),
    (&[], &[Close], "DLOCK.ACQUIRE #hot h BIND 0", "DLOCK.ACQUIRE #hot y BLOCK 0"),
    (&[], &[Time], "DFAIR.ACQUIRE #hot h PX SHORT", "DFAIR.ACQUIRE #hot y BLOCK 0"),
    (&[], &[Close], "DFAIR.ACQUIRE #hot h BIND 0", "DFAIR.ACQUIRE #hot y BLOCK 0"),
    (&[], &[Time], "DRW.ACQUIRE #hot h WRITE PX SHORT", "DRW.ACQUIRE #hot y READ BLOCK 0"),
    (&[], &[Close], "DRW.ACQUIRE #hot h READ BIND 0", "DRW.ACQUIRE #hot y WRITE BLOCK 0"),
    (&["DSEM.INIT #hot 1"], &[Time], "DSEM.ACQUIRE #hot h PX SHORT", "DSEM.ACQUIRE #hot y BLOCK 0"),
    (&["DSEM.INIT #hot 1"], &[Close], "DSEM.ACQUIRE #hot h BIND 0", "DSEM.ACQUIRE #hot y BLOCK 0"),
];

/// A holder, a grant to a place that no request reaches before it expires, and `y` behind it.
const UNCLAIMED: [[&str; 4]; 4] = [
    [
        "DLOCK.ACQUIRE #hot h",
        "DLOCK.ACQUIRE #hot q QUEUE SHORT PX SHORT",
        "DLOCK.RELEASE #hot h",
        "DLOCK.ACQUIRE #hot y BLOCK 0",
    ],
    [
        "DFAIR.ACQUIRE #hot h",
        "DFAIR.ACQUIRE #hot q QUEUE SHORT PX SHORT",
        "DFAIR.RELEASE #hot h",
        "DFAIR.ACQUIRE #hot y BLOCK 0",
    ],
    [
        "DRW.ACQUIRE #hot h WRITE",
        "DRW.ACQUIRE #hot q WRITE QUEUE SHORT PX SHORT",
        "DRW.RELEASE #hot h WRITE",
        "DRW.ACQUIRE #hot y READ BLOCK 0",
    ],
    [
        "DSEM.ACQUIRE #hot q LIMIT 1 QUEUE SHORT",
        "DSEM.ACQUIRE #hot q QUEUE SHORT PX SHORT",
        "DSEM.BREAK #hot PERMIT",
        "DSEM.ACQUIRE #hot y BLOCK 0",
    ],
];

fn words(call: &str, number: usize) -> Vec<String> {
    // All keys of a case are in one slot.
    let key = format!("{{{number}}}");
    call.split(' ').map(|word| word.replace('#', &key).replace("SHORT", SHORT)).collect()
}

/// One case in progress: the obstacle, and the waiter behind it.
struct Player {
    cause: Cause,
    front: Option<Client>,
    next: Client,
    call: Vec<String>,
}

/// The connection of the obstacle in front of `y`, after the preceding calls.
fn stand_in_front(server: &Server, number: usize, first: &[&str], call: &str) -> Client {
    for earlier in first {
        let _ = server.cmd(&words(earlier, number));
    }
    let mut front = server.client();
    front.send(&words(call, number));
    if call.contains(" BLOCK ") {
        wait_until("a blocked call", || server.is_blocked(front.id()));
    } else {
        let _ = front.reply(SOON);
    }
    front
}

fn play(server: &Server, number: usize, scene: &Case, cause: Cause) -> Player {
    let (first, _, front_call, next_call) = scene;
    let front = stand_in_front(server, number, first, front_call);
    let mut next = server.client();
    let call = words(next_call, number);
    next.send(&call);
    wait_until("a blocked call", || server.is_blocked(next.id()));
    Player { cause, front: Some(front), next, call }
}

fn play_unclaimed(
    server: &Server,
    number: usize,
    [hold, place, release, next]: &[&str; 4],
) -> Player {
    let permit = server.cmd(&words(hold, number));
    let mut front = server.client();
    assert!(front.cmd(&words(place, number)).is_null(), "{place}");
    let mut waiter = server.client();
    let call = words(next, number);
    waiter.send(&call);
    wait_until("a blocked call", || server.is_blocked(waiter.id()));
    let mut release = words(release, number);
    if release.last().is_some_and(|word| word == "PERMIT") {
        release.pop();
        release.push(permit.text());
    }
    let _ = server.cmd(&release);
    Player { cause: Time, front: Some(front), next: waiter, call }
}

/// Makes the server refuse writes, or accept them again.
type Switch = fn(&Server);

fn config(server: &Server, name: &str, value: &str) {
    server.cmd(&["CONFIG", "SET", name, value]).ok();
}

fn nothing_is_granted(setup: Setup, begin: Switch, end: Switch) {
    let server = setup.start();
    let mut players = Vec::new();
    for case in &CASES {
        for &cause in case.1 {
            players.push(play(&server, players.len(), case, cause));
        }
    }
    for case in &UNCLAIMED {
        players.push(play_unclaimed(&server, players.len(), case));
    }
    let granted = || server.info_number("dlock", "grants_after_waiting");
    let before = granted();
    begin(&server);
    for player in &mut players {
        match player.cause {
            Time => {}
            Unblock => {
                let id = player.front.as_ref().expect("a waiter").id().to_string();
                assert_eq!(server.cmd(&["DLOCK.UNBLOCK", &id]).int(), 1);
            }
            Close => player.front = None,
        }
    }
    // Everything with a time limit ends; waits end during a pause, too.
    for player in &mut players {
        let blocks = |front: &mut Client| server.is_blocked(front.id());
        if let Some(front) = &mut player.front {
            wait_until("the end of a wait", || !blocks(front));
        }
    }
    // All leases were as short, and began earlier.
    for player in &mut players {
        assert_eq!(
            player.next.hear(Duration::from_millis(30)),
            Heard::Nothing,
            "{:?}",
            player.call
        );
    }
    assert_eq!(granted(), before, "nothing is granted while the server refuses writes");
    end(&server);
    for player in &mut players {
        let answer = player.next.reply(SOON);
        assert!(
            !answer.is_null() && !matches!(answer, redis::Value::ServerError(_)),
            "{:?}: {answer:?}",
            player.call
        );
    }
    assert!(granted() > before);
}

#[test]
fn nothing_is_granted_while_too_few_replicas_follow() {
    nothing_is_granted(
        Server::with(&[]),
        |server| config(server, "min-replicas-to-write", "1"),
        |server| config(server, "min-replicas-to-write", "0"),
    );
}

#[test]
fn nothing_is_granted_while_the_disk_fails() {
    let begin = |server: &Server| {
        std::fs::create_dir_all(server.dir().join("dump.rdb/in the way")).expect("a folder");
        crate::refusal::bgsave(server, "err");
    };
    let end = |server: &Server| {
        std::fs::remove_dir_all(server.dir().join("dump.rdb")).expect("the folder made above");
        crate::refusal::bgsave(server, "ok");
    };
    nothing_is_granted(Server::with(&["save", "3600 1000000"]), begin, end);
}

#[test]
fn nothing_is_granted_during_a_pause() {
    nothing_is_granted(
        Server::with(&[]),
        |server| {
            server.cmd(&["CLIENT", "PAUSE", "60000", "WRITE"]).ok();
        },
        |server| {
            server.cmd(&["CLIENT", "UNPAUSE"]).ok();
        },
    );
}

/// A node of a cluster that is down. It ends blocked calls itself, so `y` waits with QUEUE.
#[test]
fn nothing_is_granted_while_the_cluster_is_down() {
    let server = Server::with(&[]).cluster().start();
    let mut fronts = Vec::new();
    let mut places = Vec::new();
    for (first, causes, front_call, next_call) in &CASES {
        // TAKE has no QUEUE; a closed connection has no effect on the cluster.
        if next_call.contains("TAKE") || !causes.contains(&Time) {
            continue;
        }
        let number = fronts.len();
        let front = stand_in_front(&server, number, first, front_call);
        fronts.push(front);
        let mut next = server.client();
        let call = next_call.replace("BLOCK 0", "QUEUE 60000");
        assert!(next.cmd(&words(&call, number)).is_null(), "{call}");
        places.push(next);
    }
    let used: Vec<u16> = (0..fronts.len()).map(|n| server.slot(&format!("{{{n}}}"))).collect();
    let spare = (0..16_384).find(|slot| !used.contains(slot)).expect("a slot").to_string();
    let granted = || server.info_number("dlock", "grants_after_waiting");
    let before = granted();
    server.cmd(&["CLUSTER", "DELSLOTS", &spare]).ok();
    wait_until("cluster_state:fail", || {
        server.cmd(&["CLUSTER", "INFO"]).text().contains("cluster_state:fail")
    });
    for front in &mut fronts {
        wait_until("the end of a wait", || !server.is_blocked(front.id()));
    }
    // As long as the leases were while the cluster was up.
    let short = Duration::from_millis(SHORT.parse().expect("a number"));
    assert_eq!(server.client().hear(short), Heard::Nothing);
    assert_eq!(granted(), before, "nothing is granted while the cluster is down");
    server.cmd(&["CLUSTER", "ADDSLOTS", &spare]).ok();
    server.wait_cluster_ok();
    let all = before + i64::try_from(places.len()).expect("a few");
    wait_until("all places to be granted", || granted() == all);
}

/// As BLPOP: Redis answers the calls of modules, too, and dlock those that Valkey leaves. The places stay.
#[test]
fn a_cluster_that_is_down_answers_blocked_calls() {
    for name in ["redis-7.0", "redis-8.2", "valkey-9.1"] {
        let server = Server::of(name).cluster().start();
        let spare = (server.slot("k") + 1).to_string();
        server.cmd(&["DLOCK.ACQUIRE", "k", "h"]).int();
        server.cmd(&["DLATCH.INIT", "{k}l", "1"]).int();
        let calls = [
            "DLOCK.ACQUIRE k w BLOCK 60000",
            "DLOCK.ACQUIRE k q BLOCK 60000 QUEUE 60000",
            "DLOCK.AWAIT k BLOCK 0",
            "DLATCH.AWAIT {k}l BLOCK 0",
            "BLPOP {k}list 0",
        ];
        let waiters = calls.map(|call| server.wait(call));
        server.wait_blocked(calls.len());
        server.cmd(&["CLUSTER", "DELSLOTS", &spare]).ok();
        for (mut waiter, call) in waiters.into_iter().zip(calls) {
            let reply = waiter.expect_reply(SOON).error();
            assert!(reply.starts_with("CLUSTERDOWN "), "{name}, {call}: {reply}");
        }
        assert_eq!(server.info_number("dlock", "waiters_queued"), 1, "{name}");
        server.cmd(&["CLUSTER", "ADDSLOTS", &spare]).ok();
        server.wait_cluster_ok();
        server.cmd(&["DEL", "k", "{k}l"]).int();
        server.left_over_check();
    }
}

/// A start with a data set that contains leases and waiters, on a server without the required replica.
#[test]
fn nothing_is_granted_after_a_start_before_the_server_accepts_writes() {
    let settings = ["appendonly", "yes", "dlock.fair-grace-ms", "60000"];
    let mut server = Server::with(&settings).start();
    server.cmd(&["DFAIR.ACQUIRE", "k", "h", "PX", "1000"]).int();
    assert!(server.cmd(&["DFAIR.ACQUIRE", "k", "y", "QUEUE", "60000"]).is_null());
    config(&server, "min-replicas-to-write", "1");
    server.cmd(&["CONFIG", "REWRITE"]).ok();
    server.kill9();
    server.start_again();
    let records = || server.info_number("dlock", "grants_after_waiting");
    // Its lease does not run before the first write of the server.
    assert_eq!(server.client().hear(Duration::from_secs(2)), Heard::Nothing);
    assert_eq!(server.cmd(&["DFAIR.INFO", "k"]).field("owner").text(), "h");
    assert_eq!(records(), 0);
    assert_eq!(server.cmd(&["DFAIR.POSITION", "k", "y"]).int(), 1);
    let opened = Instant::now();
    config(&server, "min-replicas-to-write", "0");
    wait_until("the grant", || records() == 1);
    let lasted = opened.elapsed();
    assert!(lasted >= Duration::from_millis(900), "{lasted:?} of a lease of a second");
    assert_eq!(server.cmd(&["DFAIR.POSITION", "k", "y"]).int(), 0);
}

/// What a closed connection leaves is work for the time after. A connection that leaves nothing is forgotten at once:
/// there can be many of them while writes are refused.
#[test]
fn connections_that_close_while_writes_are_refused_leave_no_notice() {
    let server = Server::start();
    server.ask("DLATCH.INIT l 1").ok();
    server.ask("DLOCK.ACQUIRE k h").int();
    let mut bound = server.client();
    bound.cmd(&["DLOCK.ACQUIRE", "b", "h", "BIND", "0"]).int();
    config(&server, "min-replicas-to-write", "1");
    let mut waits: Vec<Client> = (0..20).map(|_| server.client()).collect();
    for (n, wait) in waits.iter_mut().enumerate() {
        let key = if n % 2 == 0 { ["DLATCH.AWAIT", "l"] } else { ["DLOCK.AWAIT", "k"] };
        wait.send(&[key[0], key[1], "BLOCK", "0"]);
    }
    server.wait_blocked(20);
    drop((waits, bound));
    wait_until("the end of the connections", || {
        let count = |field: &str| server.info_number("dlock", field);
        count("parked_clients") == 0
            && count("connections_watched") == 1
            && count("notices_pending") == 0
    });
    config(&server, "min-replicas-to-write", "0");
    assert!(server.ask("DLOCK.ACQUIRE b other").int() > 0, "the bound hold has ended");
    server.ask("DEL l k b").ok();
    server.left_over_check();
}

/// It needs the end of a pause, and no gate: the server makes no other fork before, also none for a replica.
#[test]
fn an_aof_rewrite_ends_although_writes_are_refused() {
    let server = Server::with(&["appendonly", "yes", "aof-use-rdb-preamble", "no"]).start();
    server.ask("DLOCK.ACQUIRE k h").int();
    config(&server, "min-replicas-to-write", "1");
    let rewritten = |calls: &[Vec<&str>]| {
        server.client().pipeline(calls);
        wait_until("the end of the rewrite", || {
            server.info_number("persistence", "aof_rewrite_in_progress") == 0
                && server.info_number("persistence", "aof_rewrite_scheduled") == 0
        });
        assert_eq!(server.info("persistence")["aof_last_bgrewrite_status"], "ok");
    };
    rewritten(&[vec!["BGREWRITEAOF"], vec!["DLOCK.UNBLOCK", "1"]]);
    rewritten(&[vec!["CLIENT", "PAUSE", "300", "WRITE"], vec!["BGREWRITEAOF"]]);
    config(&server, "min-replicas-to-write", "0");
    server.ask("DEL k").ok();
    server.left_over_check();
}
