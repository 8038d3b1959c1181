//! The wait of other clients during a large operation of dlock: the longest PING of a second connection, per scene,
//! at the default limits.

mod scenes;

use std::{
    sync::atomic::{AtomicBool, Ordering::Relaxed},
    thread,
    time::{Duration, Instant},
};

use crate::{
    meter::CpuMeter,
    report::{self, Table},
    stats::{Sample, digits},
    support::Server,
    wire::{Batch, Wire},
};

use self::scenes::SCENES;

/// Rounds of each scene; `DLOCK_ROUNDS` overrides it.
fn rounds() -> usize {
    std::env::var("DLOCK_ROUNDS").ok().and_then(|rounds| rounds.parse().ok()).unwrap_or(5)
}

/// The goal for operations without a counterpart in the plain server, in milliseconds.
const AIM_MS: f64 = 10.0;

/// The goal for one call that itself names or returns as much data: the ratio to the plain server.
const AIM_RATIO: f64 = 2.0;

/// A large operation on a server.
struct Scene {
    name: &'static str,
    run: fn(&Server, &Meter),
    /// The same amount of plain keys or bytes, on a server without dlock.
    plain: Option<fn(&Server, &Meter)>,
    /// Compared with the plain server; otherwise the goal is 10 ms.
    is_excepted: bool,
}

/// Measures the longest PING during an operation.
#[derive(Default)]
struct Meter {
    longest_ms: std::cell::Cell<f64>,
    /// The most processor time that the server used between two PING replies.
    busy_ms: std::cell::Cell<f64>,
}

impl Meter {
    /// Runs `work` while another connection sends PINGs without a pause, plus `rest` for the event loop to finish.
    fn watch(&self, server: &Server, rest: Duration, work: impl FnOnce()) {
        let ping = Batch::of(&["PING"], b"+PONG");
        self.watch_with(server, (Wire::connect(server), &ping), rest, work);
    }

    /// The same over a connection that subscribes to a channel: not a client of type `normal`.
    fn watch_as_listener(&self, server: &Server, rest: Duration, work: impl FnOnce()) {
        let mut wire = Wire::connect(server);
        wire.run(&lines(&["SUBSCRIBE", "none"], &[b"*3", b"$", b"", b"$", b"", b":1"]));
        let ping = lines(&["PING"], &[b"*2", b"$", b"pong", b"$0", b""]);
        self.watch_with(server, (wire, &ping), rest, work);
    }

    fn watch_with(
        &self,
        server: &Server,
        (mut wire, ping): (Wire, &Batch),
        rest: Duration,
        work: impl FnOnce(),
    ) {
        wire.run(ping);
        let is_over = AtomicBool::new(false);
        let processor = CpuMeter::of(server.pid());
        let (longest, busiest) = thread::scope(|scope| {
            let pings = scope.spawn(|| {
                let (mut longest, mut busiest) = (Duration::ZERO, Duration::ZERO);
                let mut used = processor.read();
                while !is_over.load(Relaxed) {
                    let sent = Instant::now();
                    wire.run(ping);
                    longest = longest.max(sent.elapsed());
                    let before = std::mem::replace(&mut used, processor.read());
                    busiest = busiest.max(used.saturating_sub(before));
                }
                (longest, busiest)
            });
            work();
            thread::sleep(rest);
            is_over.store(true, Relaxed);
            pings.join().expect("the pings end")
        });
        self.longest_ms.set(self.longest_ms.get().max(longest.as_secs_f64() * 1e3));
        self.busy_ms.set(self.busy_ms.get().max(busiest.as_secs_f64() * 1e3));
    }
}

/// A command with a reply of several lines.
fn lines(command: &[&str], answer: &[&'static [u8]]) -> Batch {
    let mut batch = Batch::of(command, answer[0]);
    answer[1..].iter().for_each(|line| batch.push_line(line));
    batch
}

/// The longest PING of each round, and the most processor time between two of them.
fn measure(run: fn(&Server, &Meter), has_module: bool) -> (Sample, Sample) {
    let round = |_| {
        let setup =
            Server::with(&["save", "", "maxclients", "10000", "enable-debug-command", "yes"]);
        let setup = if has_module { setup.release() } else { setup.without_module() };
        let server = setup.start();
        let meter = Meter::default();
        run(&server, &meter);
        (meter.longest_ms.get(), meter.busy_ms.get())
    };
    let (longest, busiest) = (0..rounds()).map(round).unzip();
    (Sample::new(longest), Sample::new(busiest))
}

fn show(longest: &Sample) -> String {
    let [least, median, most] = [0.0, 50.0, 100.0].map(|percent| longest.percentile(percent));
    format!("{} ms ({}–{})", digits(median), digits(least), digits(most))
}

fn show_both(longest: &Sample, busy: &Sample) -> String {
    format!("{}; {}", show(longest), show(busy))
}

pub fn run() -> Table {
    let only = std::env::var("DLOCK_SCENES").unwrap_or_default();
    let mut table = Table::new(
        "Longest PING during a large operation of dlock",
        format!(
            "{} rounds, each on a new server; a second connection pings without a pause from the first command \
             of the scene until the server has had time to finish all of its work. Calls that themselves name or carry \
             much data are compared with the plain server, for as many plain keys or bytes; the goal of all others is \
             {AIM_MS} ms. Each hold, permit and waiter has BIND, NOTIFY and as many REQIDs as it remembers: eight, or one.",
            rounds(),
        ),
        [
            "longest PING; most server CPU between two: median of rounds (least–most)",
            "server without dlock",
        ],
    );
    let is_wanted = |scene: &&Scene| only.split('|').any(|part| scene.name.contains(part));
    for scene in SCENES.iter().filter(is_wanted) {
        let (ours, busy) = measure(scene.run, true);
        let theirs = scene.plain.map(|plain| measure(plain, false));
        let aim = match &theirs {
            Some((theirs, _)) if scene.is_excepted => {
                report::at_most(ours.median() / theirs.median(), AIM_RATIO, "times as long")
            }
            _ => report::at_most(ours.median(), AIM_MS, "ms"),
        };
        // On a machine with other load, the processor time says more.
        let ours = show_both(&ours, &busy);
        let plain = theirs.as_ref().map(|(longest, busy)| show_both(longest, busy));
        let plain = plain.unwrap_or_default();
        eprintln!("{}: {ours}; without dlock: {plain}", scene.name);
        table.row(scene.name, ours, plain, aim);
    }
    table
}
