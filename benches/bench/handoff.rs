//! The cost of passing a lock on, with few and with many waiters.

use std::{
    collections::VecDeque,
    time::{Duration, Instant},
};

use crate::{
    meter::CpuMeter,
    names::owner,
    report::{self, Table},
    stats::Sample,
    support::Server,
    wire::{Batch, Wire},
};

const ROUNDS: usize = 11;

/// Hand-offs in one round.
const HANDOFFS: usize = 1_000;

/// Maximum time of a round: some servers need seconds to pass on a list with 10,000 waiters.
pub const ROUND: Duration = Duration::from_secs(1);

/// Number of waiters; there is one holder in addition.
const SIZES: [usize; 3] = [2, 100, 10_000];

/// How one kind of lock is acquired with waiting, and passed on.
pub struct Protocol {
    /// Whether it is released once before the first acquire, which creates the lock.
    starts_passed: bool,
    take: fn(&str) -> Batch,
    pass: fn(&str) -> Batch,
}

pub static DLOCK: Protocol = Protocol {
    starts_passed: false,
    take: |owner| Batch::of(&["DLOCK.ACQUIRE", "lock", owner, "EX", "3600", "BLOCK", "0"], b":1"),
    pass: |owner| Batch::of(&["DLOCK.RELEASE", "lock", owner], b":0"),
};

/// The same with a durable queue.
pub static DFAIR: Protocol = Protocol {
    starts_passed: false,
    take: |owner| Batch::of(&["DFAIR.ACQUIRE", "lock", owner, "EX", "3600", "BLOCK", "0"], b":1"),
    pass: |owner| Batch::of(&["DFAIR.RELEASE", "lock", owner], b":0"),
};

/// A lock made of a list with one element: the plain server's own queue of blocked calls.
static LIST: Protocol = Protocol {
    starts_passed: true,
    // An array of two bulk strings: five lines.
    take: |_| {
        let mut batch = Batch::of(&["BLPOP", "lock", "0"], b"*2");
        for line in [&b"$4"[..], b"lock", b"$1", b"1"] {
            batch.push_line(line);
        }
        batch
    },
    pass: |_| Batch::of(&["RPUSH", "lock", "1"], b":1"),
};

/// Results of the rounds.
#[derive(Debug, Default)]
pub struct Rounds {
    /// Microseconds from sending the release to the next holder's reply: the median of each round.
    pub times: Vec<f64>,
    /// Microseconds of server CPU per hand-off, round by round.
    pub costs: Vec<f64>,
}

/// A lock that is passed on repeatedly.
pub trait Line {
    /// Passes it on, and queues the old holder at the end; returns the microseconds.
    fn hand_off(&mut self) -> f64;

    fn meter(&self) -> CpuMeter;

    fn rounds(&mut self) -> &mut Rounds;

    /// One round of hand-offs.
    fn round(&mut self, counts: bool) {
        let mut times = Vec::new();
        let used = self.meter().used_during(|| {
            let start = Instant::now();
            while times.len() < HANDOFFS && start.elapsed() < ROUND {
                times.push(self.hand_off());
            }
        });
        if counts {
            let cost = used / times.len() as f64;
            let rounds = self.rounds();
            rounds.times.push(Sample::new(times).median());
            rounds.costs.push(cost);
        }
    }
}

/// One lock with all its owners. The first one holds it, the others wait in this order.
pub struct Queue {
    protocol: &'static Protocol,
    pub server: Server,
    meter: CpuMeter,
    parties: VecDeque<Party>,
    pub rounds: Rounds,
}

struct Party {
    wire: Wire,
    owner: String,
}

impl Queue {
    pub fn new(server: Server, protocol: &'static Protocol, waiters: usize) -> Queue {
        let mut parties = VecDeque::new();
        for n in 0..=waiters {
            let owner = owner(n);
            let mut wire = Wire::connect(&server);
            let take = (protocol.take)(&owner);
            if n > 0 {
                wire.send(&take);
            } else {
                if protocol.starts_passed {
                    wire.run(&(protocol.pass)(&owner));
                }
                wire.run(&take);
            }
            parties.push_back(Party { wire, owner });
        }
        server.wait_blocked(waiters);
        let meter = CpuMeter::of(server.pid());
        Queue { protocol, server, meter, parties, rounds: Rounds::default() }
    }
}

impl Line for Queue {
    fn hand_off(&mut self) -> f64 {
        let mut old = self.parties.pop_front().expect("a holder");
        let new = self.parties.front_mut().expect("a waiter");
        // Prepared outside the measured time. The replies are the same for all connections.
        let (pass, take) = ((self.protocol.pass)(&old.owner), (self.protocol.take)(&old.owner));
        let start = Instant::now();
        old.wire.send(&pass);
        new.wire.hear(&take);
        let time = start.elapsed();
        old.wire.hear(&pass);
        // To the end of the queue, so that it keeps its length.
        old.wire.send(&take);
        self.parties.push_back(old);
        time.as_secs_f64() * 1e6
    }

    fn meter(&self) -> CpuMeter {
        self.meter
    }

    fn rounds(&mut self) -> &mut Rounds {
        &mut self.rounds
    }
}

/// All sizes in turns; time and CPU per hand-off of each.
fn measure(server: impl Fn() -> Server, protocol: &'static Protocol) -> [(Vec<f64>, Vec<f64>); 3] {
    let mut queues = SIZES.map(|waiters| Queue::new(server(), protocol, waiters));
    for round in 0..=ROUNDS {
        for turn in 0..queues.len() {
            // The first round only warms up. Each round begins with another size.
            queues[(round + turn) % 3].round(round > 0);
        }
    }
    for (queue, waiters) in queues.iter().zip(SIZES) {
        queue.server.wait_blocked(waiters);
    }
    queues.map(|queue| (queue.rounds.times, queue.rounds.costs))
}

pub fn run() -> Table {
    let mut table = Table::new(
        "Hand-off, with waiters on one lock",
        format!(
            "From sending the release to the next holder's answer, both at the client, one after the other; the old \
             holder then queues again. CPU: user and system time of the server for all of that. {ROUNDS} rounds of \
             {HANDOFFS} hand-offs (at most a second), in turns, each size on a separate server; the median of each \
             round. BLPOP is a list as a lock on a server without dlock."
        ),
        ["per hand-off", "times that of 100 waiters"],
    );
    let with = || Server::with(&[]).release().start();
    let bare = || Server::with(&[]).without_module().start();
    for (name, measured, has_aim) in
        [("DLOCK", measure(with, &DLOCK), true), ("BLPOP + RPUSH", measure(bare, &LIST), false)]
    {
        for (waiters, (times, costs)) in SIZES.iter().zip(&measured) {
            let hundred = &measured[1];
            for (kind, ours, theirs) in
                [("time", times, &hundred.0), ("server CPU", costs, &hundred.1)]
            {
                let ratio = Sample::ratios(ours, theirs);
                let aim = if has_aim && *waiters == SIZES[2] {
                    report::at_most(ratio.median(), 1.3, "")
                } else {
                    String::new()
                };
                table.row(
                    &format!("{name}, {waiters} waiters: {kind}"),
                    Sample::new(ours.clone()).show("µs"),
                    report::ratio(&ratio),
                    aim,
                );
            }
        }
    }
    table
}
