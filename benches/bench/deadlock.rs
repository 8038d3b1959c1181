//! The cost of a search for deadlocks where there are none.

use std::time::Instant;

use crate::{
    handoff::{DLOCK, Line, Queue, ROUND, Rounds},
    meter::CpuMeter,
    names::owner,
    report::{self, Table},
    stats::{Sample, digits},
    support::Server,
    wire::{Batch, Wire},
};

const ROUNDS: usize = 21;

const WAITERS: usize = 1_000;

/// Calls in one round that join the queue and leave it again, unless the round would take too long; as many in flight
/// as there are different callers.
const ASKS: usize = 20_000;

const CALLERS: usize = 100;

/// What the waiters and the caller have besides the lock.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Besides {
    /// Nothing: the usual case.
    Nothing,
    /// Each holds another lock.
    Hold,
    /// Each holds another lock and waits in another queue: the search visits all of them.
    HoldAndPlace,
}

struct Scene {
    name: &'static str,
    queue: Queue,
    asks: Wire,
    batch: Batch,
    meter: CpuMeter,
    /// With detection, and without.
    hand_offs: [Rounds; 2],
    ask_costs: [Vec<f64>; 2],
}

impl Scene {
    fn new(name: &'static str, besides: Besides) -> Scene {
        let server = Server::with(&[]).release().start();
        let mut wire = Wire::connect(&server);
        for n in 0..=WAITERS + CALLERS {
            let own = format!("own:{n}");
            let hold = ["DLOCK.ACQUIRE", &own, &owner(n), "EX", "3600"];
            if besides != Besides::Nothing {
                wire.run(&Batch::of(&hold, b":1"));
            }
            if besides == Besides::HoldAndPlace {
                let (other, holder) = (format!("other:{n}"), format!("holder:{n}"));
                wire.run(&Batch::of(&["DLOCK.ACQUIRE", &other, &holder, "EX", "3600"], b":1"));
                let place = ["DLOCK.ACQUIRE", &other, &owner(n), "QUEUE", "86400000"];
                wire.run(&Batch::of(&place, b"$-1"));
            }
        }
        let meter = CpuMeter::of(server.pid());
        // They run one after the other: only the following calls are of interest.
        server.cmd(&["CONFIG", "SET", "dlock.deadlock-detection", "no"]);
        let queue = Queue::new(server, &DLOCK, WAITERS);
        let mut batch = Batch::default();
        for n in WAITERS + 1..=WAITERS + CALLERS {
            batch.push(&["DLOCK.ACQUIRE", "lock", &owner(n), "QUEUE", "60000"], b"$-1");
            batch.push(&["DLOCK.RELEASE", "lock", &owner(n)], b"$-1");
        }
        Scene {
            name,
            queue,
            asks: wire,
            batch,
            meter,
            hand_offs: Default::default(),
            ask_costs: Default::default(),
        }
    }

    fn round(&mut self, on: usize, counts: bool) {
        let setting = ["yes", "no"][on];
        self.queue.server.cmd(&["CONFIG", "SET", "dlock.deadlock-detection", setting]);
        std::mem::swap(&mut self.queue.rounds, &mut self.hand_offs[on]);
        self.queue.round(counts);
        std::mem::swap(&mut self.queue.rounds, &mut self.hand_offs[on]);
        let mut asked = 0;
        let used = self.meter.used_during(|| {
            let start = Instant::now();
            while asked < ASKS && start.elapsed() < ROUND {
                self.asks.run(&self.batch);
                asked += CALLERS;
            }
        });
        if counts {
            self.ask_costs[on].push(used / asked as f64);
        }
    }
}

pub fn run() -> Table {
    let mut scenes = [
        Scene::new("no owner holds another lock", Besides::Nothing),
        Scene::new("each holds another lock", Besides::Hold),
        Scene::new("each holds one and waits for one more", Besides::HoldAndPlace),
    ];
    for round in 0..=ROUNDS {
        for turn in 0..scenes.len() {
            let scene = &mut scenes[(round + turn) % 3];
            // Each round begins with the other setting.
            for on in [round % 2, 1 - round % 2] {
                scene.round(on, round > 0);
            }
        }
    }
    let mut table = Table::new(
        "Deadlock detection where there is no deadlock",
        format!(
            "A lock with {WAITERS} blocked calls waiting for it, detection on and off in turns on the same server, \
             {ROUNDS} rounds. Contended acquire: server CPU for a release, the hand-off, and the old holder's call \
             that waits at the end of the queue again, as in the hand-offs above. A place alone: server CPU for an \
             ACQUIRE with QUEUE at the end of that queue and a RELEASE, {} commands in flight; no other call is as \
             cheap. In brackets in the name: what every owner has besides.",
            2 * CALLERS
        ),
        ["on · off", "on, relative to off"],
    );
    for scene in &scenes {
        let [on, off] = &scene.hand_offs;
        let [ask_on, ask_off] = &scene.ask_costs;
        for (what, on, off, has_aim) in [
            ("contended acquire", &on.costs, &off.costs, true),
            ("a place alone", ask_on, ask_off, false),
        ] {
            let ratio = Sample::ratios(on, off);
            let (on, off) = (Sample::new(on.clone()), Sample::new(off.clone()));
            let more = (ratio.median() - 1.0) * 100.0;
            let aim = if has_aim { report::at_most(more, 5.0, "% more") } else { String::new() };
            let value = format!("{} · {} µs", digits(on.median()), digits(off.median()));
            table.row(&format!("{what} ({})", scene.name), value, report::ratio(&ratio), aim);
        }
    }
    table
}
