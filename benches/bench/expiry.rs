//! The delay of a waiter's grant after the lease of the holder expired, on an otherwise idle server.

use std::time::{Duration, Instant};

use crate::{
    names::owner,
    report::{self, Table},
    stats::{Sample, digits},
    support::Server,
    wire::{Batch, Wire},
};

const SAMPLES: usize = 1_000;

/// Leases from 5 ms on, each different from the one before, so that they do not match any period of the server.
fn lease_ms(n: usize) -> u64 {
    5 + (n as u64 * 7_919) % 23
}

fn late(start: Instant, ms: u64) -> f64 {
    (start.elapsed().as_secs_f64() - Duration::from_millis(ms).as_secs_f64()) * 1e3
}

pub fn run() -> Table {
    let with = Server::with(&[]).release().start();
    let bare = Server::with(&[]).without_module().start();
    let (mut holder, mut waiter) = (Wire::connect(&with), Wire::connect(&with));
    let mut plain = Wire::connect(&bare);
    let ping = Batch::of(&["PING"], b"+PONG");
    let (mut seen, mut alarm) = (vec![], vec![]);
    let (mut timeouts, mut sleeps, mut pings) = (vec![], vec![], vec![]);
    for n in 0..SAMPLES {
        let (ms, a, b) = (lease_ms(n), owner(2 * n), owner(2 * n + 1));
        let lease = ms.to_string();
        let take = Batch::of(&["DLOCK.ACQUIRE", "lock", &a, "PX", &lease], b":1");
        let wait = Batch::of(&["DLOCK.ACQUIRE", "lock", &b, "BLOCK", "0"], b":1");
        let start = Instant::now();
        holder.run(&take);
        waiter.run(&wait);
        seen.push(late(start, ms));
        alarm.push(with.info_number("dlock", "alarm_late_last_us") as f64 / 1e3);
        waiter.run(&Batch::of(&["DLOCK.RELEASE", "lock", &b], b":0"));

        let seconds = format!("0.{ms:03}");
        let start = Instant::now();
        plain.run(&Batch::of(&["BLPOP", "nothing", &seconds], b"*-1"));
        timeouts.push(late(start, ms));

        let start = Instant::now();
        std::thread::sleep(Duration::from_millis(ms));
        sleeps.push(late(start, ms));
        let start = Instant::now();
        plain.run(&ping);
        pings.push(late(start, 0));
    }
    with.left_over_check();

    let mut table = Table::new(
        "Delay of the hand-off when a lease expires",
        format!(
            "{SAMPLES} leases of 5 to 27 ms on an idle server, in turns with the others; a call waits with BLOCK. \"At \
             the client\" counts from sending the holder's ACQUIRE to reading the waiter's answer, less the lease, so \
             it includes both ways; \"in the server\" is `alarm_late_last_us` of INFO. For comparison, on a server \
             without dlock: a BLPOP that times out; and for how quiet the machine is: a sleep of the client of as \
             long, and a PING after it."
        ),
        ["median", "p99 · worst"],
    );
    let mut row = |what: &str, late: Vec<f64>, has_aim: bool| {
        let late = Sample::new(late);
        let p99 = late.percentile(99.0);
        table.row(
            what,
            format!("{} ms", digits(late.median())),
            format!("{} ms · {} ms", digits(p99), digits(late.max())),
            if has_aim { report::at_most(p99, 2.0, "ms (p99)") } else { String::new() },
        );
    };
    row("DLOCK, expiry to next holder, at the client", seen, true);
    row("DLOCK, alarm, in the server", alarm, true);
    row("BLPOP timing out, at the client", timeouts, false);
    row("a sleeping process, woken by its timer", sleeps, false);
    row("PING, round trip", pings, false);
    table
}
