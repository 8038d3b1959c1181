//! The wall clock of a running server is moved by an hour and by ten years, in both directions: leases, waits, graces
//! and delays end on time, without a command.

use std::{
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::{Duration, Instant},
};

use redis::Value;

use crate::{
    args,
    scene::{assert_lasted, assert_prompt, waiter},
    support::{Client, Family, Heard, LIMIT, Reply, Server, wait_until},
    test_both_families,
};

test_both_families! {
    nothing_ends_early_or_late_when_the_wall_clock_moves
    the_quarantine_is_not_moved
    a_removal_is_followed_up_at_once
    the_alarm_is_set_again_after_something_else_rang_it
}

const HOUR: i64 = 3_600;
const YEAR: i64 = 365 * 24 * HOUR;

/// Maximum delay of any end: far less than the second after which the server would check anyway.
const LATE: Duration = Duration::from_millis(100);

/// A busy machine delays the server, or this test. A round allows the delay of a sleeping thread of this process in
/// addition. A round that is still late is repeated, up to this number of times. An early end fails at once.
const TRIES: usize = 5;

/// The longest delay of a sleeping thread while `f` ran.
fn with_noise<R>(f: impl FnOnce() -> R) -> (R, Duration) {
    const NAP: Duration = Duration::from_millis(1);
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        let watch = scope.spawn(|| {
            let mut worst = Duration::ZERO;
            while !done.load(Ordering::Relaxed) {
                let start = Instant::now();
                thread::sleep(NAP);
                worst = worst.max(start.elapsed() - NAP);
            }
            worst
        });
        // Also after a panic: the scope waits for the watch.
        let ends = Ends(&done);
        let result = f();
        drop(ends);
        (result, watch.join().expect("the watch does not fail"))
    })
}

/// Ends the watch when dropped.
struct Ends<'a>(&'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// A reply that is due a while after a call.
struct Due {
    what: &'static str,
    client: Client,
    wanted: fn(&Value) -> bool,
    /// Before the call was sent: nothing in the call began earlier.
    asked: Instant,
    /// After the call was executed: nothing in it began later.
    done: Instant,
    after: Duration,
}

impl Due {
    /// Waits for the reply; returns its delay.
    #[track_caller]
    fn lateness(mut self) -> Duration {
        let reply = self.client.reply(LIMIT);
        let (longest, shortest) = (self.asked.elapsed(), self.done.elapsed());
        assert!((self.wanted)(&reply), "{}: {}", self.what, reply.show());
        assert!(longest >= self.after, "{}: early, after {longest:?}", self.what);
        shortest.saturating_sub(self.after)
    }
}

fn is_token(reply: &Value) -> bool {
    matches!(reply, Value::Int(_))
}

/// Timed events, each after another time in milliseconds. The server gets no other commands meanwhile.
fn begin(server: &Server) -> Vec<Due> {
    let hold = |key: &str, options: &[&str]| {
        let mut call = vec!["DLOCK.ACQUIRE", key, "h"];
        call.extend(options);
        server.cmd(&call).int();
    };
    let due = |what, client, wanted, asked, after| {
        let after = Duration::from_millis(after);
        Due { what, client, wanted, asked, done: Instant::now(), after }
    };
    let mut all = Vec::new();

    let mut client = server.client();
    hold("wait", &[]);
    let asked = Instant::now();
    client.send(&["DLOCK.ACQUIRE", "wait", "w", "BLOCK", "1260"]);
    wait_until("the call to block", || server.is_blocked(client.id()));
    all.push(due("a wait", client, Reply::is_null, asked, 1_260));

    let mut listener = server.client();
    listener.cmd(&["SUBSCRIBE", "granted"]).ok();
    let is_granted = |message: &Value| message.items()[2].text().starts_with("granted 0 ");
    let asked = Instant::now();
    hold("place", &["PX", "1320"]);
    let lease = due("a lease, for a place", listener, is_granted, asked, 1_320);
    let place = args!["DLOCK.ACQUIRE", "place", "w", "QUEUE", 60_000, "NOTIFY", "granted"];
    assert!(server.cmd(&place).is_null());
    all.push(lease);

    let asked = Instant::now();
    hold("lease", &["PX", "1380"]);
    let done = Instant::now();
    let client = waiter(server, "lease", "w", 0);
    all.push(Due { done, ..due("a lease, for a blocked call", client, is_token, asked, 1_380) });

    let mut holder = server.client();
    holder.cmd(&args!["DLOCK.ACQUIRE", "tie", "h", "BIND", 1_440]).int();
    let client = waiter(server, "tie", "w", 0);
    let asked = Instant::now();
    drop(holder);
    let tied = || server.cmd(&["DLOCK.INFO", "tie"]).field("bound-client").int();
    wait_until("the bound lease to be shortened", || tied() == 0);
    all.push(due("a tie", client, is_token, asked, 1_440));

    // In other families a waiter without a connection blocks no other waiter.
    if server.family() == Family::Fair {
        hold("grace", &[]);
        let mut absent = server.client();
        assert!(absent.cmd(&args!["DLOCK.ACQUIRE", "grace", "absent", "QUEUE", 1_500]).is_null());
        let client = waiter(server, "grace", "w", 0);
        let asked = Instant::now();
        drop(absent);
        let connected =
            || server.cmd(&["DLOCK.WAITERS", "grace"]).items()[0].field("client-id").int();
        wait_until("the place to lose its connection", || connected() == 0);
        let grace = due("the grace of a place", client, is_token, asked, 1_500);
        server.cmd(&["DLOCK.RELEASE", "grace", "h"]).int();
        all.push(grace);
    }

    hold("unclaimed", &[]);
    assert!(
        server.cmd(&args!["DLOCK.ACQUIRE", "unclaimed", "lazy", "QUEUE", 1_560, "PX", 1]).is_null()
    );
    let client = waiter(server, "unclaimed", "w", 0);
    let asked = Instant::now();
    server.cmd(&["DLOCK.RELEASE", "unclaimed", "h"]).int();
    all.push(due("a grant that nobody claims", client, is_token, asked, 1_560));

    hold("delay", &[]);
    let client = waiter(server, "delay", "w", 0);
    server.cmd(&["CONFIG", "SET", "dlock.lock-delay-ms", "1620"]).ok();
    let asked = Instant::now();
    server.cmd(&["DLOCK.BREAK", "delay"]).int();
    all.push(due("a lock-delay", client, is_token, asked, 1_620));
    server.cmd(&["CONFIG", "SET", "dlock.lock-delay-ms", "0"]).ok();
    all
}

/// Moves the clock during the waits; returns the delay of each.
fn round(server: &Server, shifts: &[i64]) -> Vec<(&'static str, Duration)> {
    let all = begin(server);
    for &shift in shifts {
        thread::sleep(Duration::from_millis(20));
        server.shift_wall_clock(shift);
    }
    let lateness = all.into_iter().map(|due| (due.what, due.lateness())).collect();
    server.cmd(&["FLUSHALL"]).ok();
    server.left_over_check();
    lateness
}

fn nothing_ends_early_or_late_when_the_wall_clock_moves(family: Family) {
    // Once a second the server would check everything anyway. That must not be the reason for its punctuality.
    let server = family.with(&["hz", "1", "dynamic-hz", "no"]).preload_wallclock().start();
    let mut last_token = 0;
    for shifts in [
        &[HOUR][..],
        &[-HOUR],
        &[10 * YEAR],
        &[0],
        // An hour at a time, there and back and past it.
        &[HOUR, 0, -HOUR, 10 * YEAR, 0],
    ] {
        let is_punctual = |_| {
            let (lateness, noise) = with_noise(|| round(&server, shifts));
            println!("clock set to {shifts:?}, noise {noise:?}: {lateness:?} late");
            lateness.iter().all(|&(_, late)| late <= LATE + noise)
        };
        assert!((0..TRIES).any(is_punctual), "late {TRIES} times over: see above");
        let token = server.info_number("dlock", "last_token");
        assert!(token > last_token, "{token} after {last_token}");
        last_token = token;
    }
}

fn the_quarantine_is_not_moved(family: Family) {
    let server = family
        .with(&["hz", "1", "dlock.restart-quarantine-ms", "4000"])
        .preload_wallclock()
        .start();
    let mut client = waiter(&server, "k", "w", 0);
    let asked = Instant::now();
    let left = server.info_number("dlock", "quarantine_left_ms");
    server.shift_wall_clock(10 * YEAR);
    assert_eq!(client.hear(Duration::from_millis(20)), Heard::Nothing);
    server.shift_wall_clock(-HOUR);
    assert!(client.reply(LIMIT).int() > 0);
    assert_lasted(asked, u64::try_from(left).expect("milliseconds"));
    client.cmd(&["DLOCK.RELEASE", "k", "w"]).int();
    server.left_over_check();
}

/// A server whose own checks run only once a second.
fn slow_server(family: Family) -> Server {
    family.with(&["hz", "1", "dynamic-hz", "no"]).start()
}

fn a_removal_is_followed_up_at_once(family: Family) {
    let server = slow_server(family);
    assert_prompt(|| {
        server.cmd(&["DLOCK.ACQUIRE", "k", "h"]).int();
        let mut first = waiter(&server, "k", "first", 0);
        server.cmd(&["DEL", "k"]).ok();
        let removed = Instant::now();
        first.reply(LIMIT).int();
        let late = removed.elapsed();
        first.cmd(&["DLOCK.RELEASE", "k", "first"]).int();
        late
    });
    server.left_over_check();
}

/// The module has one alarm. An earlier wake-up for another reason must not consume it.
fn the_alarm_is_set_again_after_something_else_rang_it(family: Family) {
    const LEASE: u64 = 600;
    let server = slow_server(family);
    assert_prompt(|| {
        let mut first = server.client();
        server.cmd(&args!["DLOCK.ACQUIRE", "k", "h", "PX", LEASE]).int();
        let begun = Instant::now();
        first.send(&["DLOCK.ACQUIRE", "k", "first", "BLOCK", "0"]);
        server.client().pipeline(&[
            args!["DLOCK.ACQUIRE", "other", "h"],
            args!["MULTI"],
            args!["DEL", "other"],
            args!["DLOCK.ACQUIRE", "other", "x"],
            args!["DLOCK.RELEASE", "other", "x"],
            args!["EXEC"],
        ]);
        first.reply(LIMIT).int();
        let lasted = begun.elapsed();
        first.cmd(&["DLOCK.RELEASE", "k", "first"]).int();
        lasted.saturating_sub(Duration::from_millis(LEASE))
    });
    server.left_over_check();
}
