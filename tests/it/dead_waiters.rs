//! Large numbers of waiters whose processes died or hang: their cost for live waiters.

use std::{
    thread,
    time::{Duration, Instant},
};

use crate::{
    args,
    queue::{owner, queue},
    restart::LATE,
    support::{Blocked, Client, Family, Reply, SOON, Server, wait_until},
    test_both_families,
};

test_both_families! {
    a_hung_process_costs_one_queue
    a_hung_process_costs_one_queue_over_all_locks
    places_of_a_cut_connection_go_after_queue
}

/// Number of waiters that die at once.
const DEAD: usize = 999;

/// A thousand owners wait for one lock, and all but the last die. `ms`: how long a place outlives its connection.
fn survive(options: &[&str], ms: u64, released_before: bool) {
    let what = format!("{options:?}, released before: {released_before}");
    let server = Family::Fair.start();
    server.cmd(&args!["CONFIG", "SET", "dlock.fair-grace-ms", ms]).ok();
    if options.contains(&"QUEUE") {
        server.cmd(&["CONFIG", "SET", "dlock.fair-grace-ms", "86400000"]).ok();
    }
    server.cmd(&["DLOCK.ACQUIRE", "k", "holder", "EX", "1000"]).int();
    let crowd: Vec<Blocked> = (0..DEAD)
        .map(|n| {
            // If an owner gets the lock before it dies, its lease is no longer than its place would be.
            let call = args!["DLOCK.ACQUIRE", "k", format!("dead{n}"), "PX", ms];
            server.post(&[call, args![options]].concat())
        })
        .collect();
    wait_until("the crowd to wait", || {
        server.cmd(&["DLOCK.INFO", "k"]).field("waiters").int() == DEAD.cast_signed() as i64
    });
    let mut alive = server.block(&["DLOCK.ACQUIRE", "k", "alive", "BLOCK", "0"]);
    assert_eq!(server.cmd(&["DLOCK.POSITION", "k", "alive"]).int(), 1_000);
    let release = || assert_eq!(server.cmd(&["DLOCK.RELEASE", "k", "holder"]).int(), 0);

    let begun = Instant::now();
    if released_before {
        release();
        // The first of them was granted the lock, just before it died with the others.
        assert_ne!(owner(&server, "k"), "holder");
    }
    drop(crowd);
    let connected = format!("{} 1", if released_before { DEAD - 1 } else { DEAD });
    let expected = |server: &Server| {
        let rows = server.cmd(&["DLOCK.WAITERS", "k"]).items();
        let absent = rows.iter().filter(|row| row.field("client-id").int() == 0).count();
        format!("{absent} {}", rows.len() - absent)
    };
    // A place may end before the server notices the last disconnect: then there is nothing to wait for.
    wait_until("the server to know that they are dead", || {
        let seen = expected(&server);
        seen == connected || seen.ends_with(" 0") || begun.elapsed() > Duration::from_millis(ms)
    });
    if !released_before {
        release();
    }
    let known = Instant::now();
    alive.expect_reply(SOON).int();
    let grace = Duration::from_millis(ms);
    assert!(begun.elapsed() >= grace, "{what}: {:?} is too early", begun.elapsed());
    assert!(known.elapsed() < grace + LATE, "{what}: {:?} is too late", known.elapsed());
    assert_eq!(queue(&server, "k"), [""; 0], "{what}");
    assert_eq!(server.cmd(&["DLOCK.RELEASE", "k", "alive"]).int(), 0);
    server.left_over_check();
}

#[test]
fn a_thousand_dead_waiters_cost_one_grace() {
    thread::scope(|scope| {
        for options in [&["BLOCK", "0"][..], &["BLOCK", "0", "QUEUE", "3000"], &["QUEUE", "3000"]] {
            for released_before in [false, true] {
                scope.spawn(move || survive(options, 3_000, released_before));
            }
        }
    });
}

/// A connection that waits for `k` as `o0`, `o1`, …
fn hang(server: &Server, places: usize, queue_ms: u64) -> Client {
    let mut hung = server.client();
    let call = |n| args!["DLOCK.ACQUIRE", "k", format!("o{n}"), "QUEUE", queue_ms, "PX", queue_ms];
    let calls: Vec<_> = (0..places).map(call).collect();
    assert!(hung.pipeline(&calls).iter().all(Reply::is_null));
    hung
}

fn a_hung_process_costs_one_queue(family: Family) {
    const PLACES: usize = 1_000;
    const QUEUE: u64 = 3_000;
    let server = family.start();
    server.cmd(&["DLOCK.ACQUIRE", "k", "holder"]).int();
    let mut hung = hang(&server, PLACES, QUEUE);
    let mut alive = server.block(&["DLOCK.ACQUIRE", "k", "alive", "BLOCK", "0"]);
    let begun = Instant::now();
    server.cmd(&["DLOCK.RELEASE", "k", "holder"]).int();
    let known = Instant::now();
    alive.expect_reply(SOON).int();
    let (least, most) = (begun.elapsed(), known.elapsed());
    let one = Duration::from_millis(QUEUE);
    assert!(least >= one && most < one + LATE, "{least:?} {most:?}");
    assert_eq!(server.info_number("dlock", "unclaimed"), 1);
    // The server skips them, but they keep their order; only the granted one has lost its place.
    let names: Vec<String> = (1..PLACES).map(|n| format!("o{n}")).collect();
    assert_eq!(queue(&server, "k"), names);
    assert_eq!(server.cmd(&["DLOCK.RELEASE", "k", "alive"]).int(), 0);
    assert_eq!(owner(&server, "k"), "");
    // After any command the server counts them again.
    assert_eq!(hung.cmd(&["DLOCK.POSITION", "k", "o999"]).int(), 998);
    assert_eq!(owner(&server, "k"), "o1");
    for name in names {
        assert!(hung.cmd(&["DLOCK.ACQUIRE", "k", &name]).int() > 0);
        assert_eq!(hung.cmd(&["DLOCK.RELEASE", "k", &name]).int(), 0);
    }
    server.left_over_check();
}

/// One lock each: only the first grant is delayed.
fn a_hung_process_costs_one_queue_over_all_locks(family: Family) {
    const LOCKS: usize = 1_000;
    let server = family.start();
    let (mut holder, mut hung, mut alive) = (server.client(), server.client(), server.client());
    let calls = |verb: &str, owner: &str, queue: &[&str]| -> Vec<_> {
        let call = |n| [args![verb, format!("k{n}"), owner], args![queue]].concat();
        (0..LOCKS).map(call).collect()
    };
    holder.pipeline(&calls("DLOCK.ACQUIRE", "holder", &[]));
    let all_wait = |replies: Vec<redis::Value>| assert!(replies.iter().all(Reply::is_null));
    all_wait(hung.pipeline(&calls("DLOCK.ACQUIRE", "hung", &["QUEUE", "400", "PX", "400"])));
    all_wait(alive.pipeline(&calls("DLOCK.ACQUIRE", "alive", &["QUEUE", "60000"])));
    let begun = Instant::now();
    holder.cmd(&["DLOCK.RELEASE", "k0", "holder"]).int();
    // INFO of the key is too early: it shows the end shortly before the server skips the connection.
    wait_until("the grant to expire", || server.info_number("dlock", "unclaimed") == 1);
    assert_eq!(owner(&server, "k0"), "alive");
    assert!(begun.elapsed() >= Duration::from_millis(400), "{:?}", begun.elapsed());
    let rest = Instant::now();
    holder.pipeline(&calls("DLOCK.RELEASE", "holder", &[])[1..]);
    let tokens = alive.pipeline(&calls("DLOCK.ACQUIRE", "alive", &[]));
    assert!(tokens.iter().all(|token| token.int() > 0));
    assert!(rest.elapsed() < LATE, "{:?}", rest.elapsed());
    assert_eq!(server.info_number("dlock", "unclaimed"), 1);
    drop(hung);
    assert!(alive.pipeline(&calls("DLOCK.RELEASE", "alive", &[])).iter().all(|n| n.int() == 0));
    server.left_over_check();
}

fn places_of_a_cut_connection_go_after_queue(family: Family) {
    const PLACES: usize = 10_000;
    const QUEUE: u64 = 500;
    let server = family.start();
    server.cmd(&["DLOCK.ACQUIRE", "k", "holder"]).int();
    let hung = hang(&server, PLACES, QUEUE);
    let left = || server.cmd(&["DLOCK.INFO", "k"]).field("waiters").int();
    assert_eq!(left(), 10_000);
    let begun = Instant::now();
    drop(hung);
    wait_until("the first place to go", || left() < 10_000);
    assert!(begun.elapsed() >= Duration::from_millis(QUEUE), "{:?}", begun.elapsed());
    wait_until("the last place to go", || left() == 0);
    assert!(begun.elapsed() < Duration::from_millis(QUEUE) + LATE, "{:?}", begun.elapsed());
    assert_eq!(server.cmd(&["DLOCK.RELEASE", "k", "holder"]).int(), 0);
    server.left_over_check();
}
