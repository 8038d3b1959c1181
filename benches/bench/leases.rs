//! The wait of other clients while very many leases end in one millisecond.

use std::{
    thread,
    time::{Duration, Instant, SystemTime},
};

use crate::{
    names::{key, owner},
    report::{self, Table},
    stats::{Sample, digits},
    support::Server,
    wire::{Batch, Wire},
};

const ROUNDS: usize = 3;

const LEASES: usize = 1_000_000;

/// Leases taken in one millisecond of loading; few enough to fit.
const BATCH: usize = 200;

/// From the first grant to the common end: time for all grants and for a look at the idle server.
const SPAN_MS: u64 = 20_000;

/// The same for keys of the plain server, which need no pacing.
const PLAIN_SPAN_MS: u64 = 8_000;

/// Minimum time of a measurement around the end; and without an end, for the noise of the machine.
const LOOK: Duration = Duration::from_secs(2);

/// The clock of tokens, in microseconds.
fn wall_us() -> u64 {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).expect("after 1970");
    u64::try_from(now.as_micros()).expect("a small number")
}

/// Waits for the next whole millisecond.
fn wait_for_next_ms() {
    let next = wall_us() / 1_000 + 1;
    let left = (next * 1_000).saturating_sub(wall_us());
    thread::sleep(Duration::from_micros(left.saturating_sub(300)));
    while wall_us() < next * 1_000 {
        std::hint::spin_loop();
    }
}

/// Takes all leases so that they end in the same millisecond. Returns that millisecond and the number of leases that
/// met it: a token is the microsecond of its grant.
fn load_leases(wire: &mut Wire) -> (u64, usize) {
    let end_ms = wall_us() / 1_000 + SPAN_MS;
    let mut batch = Batch::default();
    let mut hit = 0;
    for first in (0..LEASES).step_by(BATCH) {
        // Written before the millisecond begins that it is computed for.
        let lease_ms = end_ms.saturating_sub(wall_us() / 1_000 + 1);
        assert!(lease_ms > 0, "this machine is too slow: {first} leases in {SPAN_MS} ms");
        let lease = lease_ms.to_string();
        batch.clear();
        for n in first..first + BATCH {
            batch.push(&["DLOCK.ACQUIRE", &key(n), &owner(n), "PX", &lease], b":1");
        }
        wait_for_next_ms();
        wire.run_with(&batch, |line| {
            let token: u64 = std::str::from_utf8(&line[1..]).unwrap().parse().expect("a token");
            hit += usize::from(token / 1_000 + lease_ms == end_ms);
        });
    }
    (end_ms, hit)
}

/// The same with keys of the plain server, which accepts an absolute end.
fn load_keys(wire: &mut Wire) -> u64 {
    let end_ms = wall_us() / 1_000 + PLAIN_SPAN_MS;
    let end = end_ms.to_string();
    let mut batch = Batch::default();
    for first in (0..LEASES).step_by(BATCH) {
        batch.clear();
        for n in first..first + BATCH {
            batch.push(&["SET", &key(n), &owner(n), "NX", "PXAT", &end], b"+OK");
        }
        wire.run(&batch);
    }
    end_ms
}

/// Observations of a client that only sends PING.
struct Look {
    longest_ms: f64,
    /// When it first saw no keys, in milliseconds of the wall clock.
    emptied_ms: f64,
}

/// Sends PINGs for at least [`LOOK`] and, if `to_the_end`, until `server` has no keys.
fn ping(wire: &mut Wire, to_the_end: bool) -> Look {
    let pings = Batch::of(&["PING"], b"+PONG");
    let size = Batch::of(&["DBSIZE"], b":");
    let (mut longest, mut left) = (Duration::ZERO, u64::from(to_the_end));
    let start = Instant::now();
    let mut emptied_ms = None;
    while start.elapsed() < LOOK || left > 0 {
        // In between, reads the number of remaining keys: as short a command, and timed as well.
        for n in 0..100 {
            let sent = Instant::now();
            if n == 0 {
                wire.run_with(&size, |line| {
                    left = std::str::from_utf8(&line[1..]).unwrap().parse().expect("a number");
                });
                if !to_the_end {
                    left = 0;
                }
            } else {
                wire.run(&pings);
            }
            longest = longest.max(sent.elapsed());
        }
        if left == 0 {
            emptied_ms.get_or_insert_with(|| wall_us() as f64 / 1e3);
        }
    }
    Look { longest_ms: longest.as_secs_f64() * 1e3, emptied_ms: emptied_ms.unwrap_or_default() }
}

/// Sleeps until shortly before the end.
fn rest(end_ms: u64) {
    let left = end_ms.saturating_sub(wall_us() / 1_000 + 200);
    thread::sleep(Duration::from_millis(left));
}

pub fn run() -> Table {
    let with = Server::with(&[]).release().start();
    let bare = Server::with(&[]).without_module().start();
    let (mut ours, mut theirs) = (Wire::connect(&with), Wire::connect(&bare));
    let (mut quiet, mut ends, mut plain_quiet, mut plain_ends) = (vec![], vec![], vec![], vec![]);
    let (mut hits, mut took, mut plain_took) = (vec![], vec![], vec![]);
    for _ in 0..ROUNDS {
        let (end_ms, hit) = load_leases(&mut ours);
        hits.push(100.0 * hit as f64 / LEASES as f64);
        quiet.push(ping(&mut ours, false).longest_ms);
        assert!(
            wall_us() / 1_000 + 200 < end_ms,
            "the machine is too slow for a span of {SPAN_MS} ms"
        );
        rest(end_ms);
        let look = ping(&mut ours, true);
        ends.push(look.longest_ms);
        took.push(look.emptied_ms - end_ms as f64);

        let end_ms = load_keys(&mut theirs);
        plain_quiet.push(ping(&mut theirs, false).longest_ms);
        rest(end_ms);
        let look = ping(&mut theirs, true);
        plain_ends.push(look.longest_ms);
        plain_took.push(look.emptied_ms - end_ms as f64);
    }
    with.left_over_check();

    let mut table = Table::new(
        "Longest PING while 1,000,000 leases end in one millisecond",
        format!(
            "{ROUNDS} rounds of at least {} s, in turns; one client that pings without a pause. {:.1} % of the leases \
             ended in that millisecond, the others in the one after it. Meanwhile no client requests the locks. The \
             plain server has as many keys that end in one millisecond (SET PXAT).",
            LOOK.as_secs(),
            Sample::new(hits).median(),
        ),
        ["longest PING: median of rounds · worst", "until all were gone"],
    );
    let mut row = |what: &str, longest: Vec<f64>, took: Option<Vec<f64>>, has_aim: bool| {
        let longest = Sample::new(longest);
        table.row(
            what,
            format!("{} ms · {} ms", digits(longest.median()), digits(longest.max())),
            took.map_or_else(String::new, |took| Sample::new(took).show("ms")),
            if has_aim { report::at_most(longest.median(), 10.0, "ms") } else { String::new() },
        );
    };
    row("DLOCK: leases end", ends, Some(took), true);
    row("DLOCK: as many are held, none ends", quiet, None, false);
    row("SET PXAT, server without dlock: keys end", plain_ends, Some(plain_took), false);
    row("SET PXAT, server without dlock: none ends", plain_quiet, None, false);
    table
}
