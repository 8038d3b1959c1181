//! The time until all waiters know that a latch has opened.

use std::time::Instant;

use crate::{
    meter::CpuMeter,
    pair::load,
    recipe,
    report::{self, Table},
    stats::Sample,
    support::Server,
    wire::{Batch, Wire},
};

const ROUNDS: usize = 7;

const WAITERS: usize = 10_000;

/// Results of the rounds: milliseconds until the last waiter knew, and milliseconds of server CPU.
#[derive(Debug, Default)]
struct Openings {
    times: Vec<f64>,
    costs: Vec<f64>,
}

impl Openings {
    /// One round: `open` is answered, and all `waiters` receive `news`.
    fn round(
        &mut self,
        meter: CpuMeter,
        opener: &mut Wire,
        open: &Batch,
        (waiters, news): (&mut [Wire], &Batch),
    ) {
        let mut time = 0.0;
        let cost = meter.used_during(|| {
            let start = Instant::now();
            opener.run(open);
            for waiter in &mut *waiters {
                waiter.hear(news);
            }
            time = start.elapsed().as_secs_f64() * 1e3;
        });
        self.times.push(time);
        self.costs.push(cost / 1e3);
    }

    fn forget_first(mut self) -> Openings {
        self.times.remove(0);
        self.costs.remove(0);
        self
    }
}

/// All waiters are blocked in AWAIT.
fn dlock() -> Openings {
    let server = Server::with(&[]).release().start();
    let mut opener = Wire::connect(&server);
    let mut waiters: Vec<Wire> = (0..WAITERS).map(|_| Wire::connect(&server)).collect();
    let init = Batch::of(&["DLATCH.INIT", "latch", "1"], b":1");
    let open = Batch::of(&["DLATCH.COUNTDOWN", "latch"], b":0");
    let await_it = Batch::of(&["DLATCH.AWAIT", "latch", "BLOCK", "0"], b":1");
    let meter = CpuMeter::of(server.pid());
    let mut openings = Openings::default();
    for _ in 0..=ROUNDS {
        opener.run(&init);
        for waiter in &mut waiters {
            waiter.send(&await_it);
        }
        server.wait_blocked(WAITERS);
        openings.round(meter, &mut opener, &open, (&mut waiters, &await_it));
    }
    server.left_over_check();
    openings.forget_first()
}

/// All waiters subscribe to the channel.
fn recipe() -> Openings {
    let server = Server::with(&[]).without_module().start();
    let (set, down) = (load(&server, recipe::LATCH_SET), load(&server, recipe::LATCH_DOWN));
    let mut opener = Wire::connect(&server);
    let mut subscribe = Batch::of(&["SUBSCRIBE", "channel"], b"*3");
    for line in [&b"$9"[..], b"subscribe", b"$7", b"channel", b":1"] {
        subscribe.push_line(line);
    }
    let mut news = Batch::default();
    for line in [&b"*3"[..], b"$7", b"message", b"$7", b"channel", b"$1"] {
        news.push_line(line);
    }
    let (mut is_set, mut is_open) = (news.clone(), news);
    is_set.push_line(b"1");
    is_open.push_line(b"0");
    let mut waiters: Vec<Wire> = (0..WAITERS).map(|_| Wire::connect(&server)).collect();
    for waiter in &mut waiters {
        waiter.run(&subscribe);
    }
    let init = Batch::of(&["EVALSHA", &set, "2", "latch", "channel", "1", "1"], b":1");
    let open = Batch::of(&["EVALSHA", &down, "2", "latch", "channel", "0"], b":0");
    let meter = CpuMeter::of(server.pid());
    let mut openings = Openings::default();
    for _ in 0..=ROUNDS {
        opener.run(&init);
        for waiter in &mut waiters {
            waiter.hear(&is_set);
        }
        openings.round(meter, &mut opener, &open, (&mut waiters, &is_open));
    }
    openings.forget_first()
}

pub fn run() -> Table {
    let (ours, theirs) = (dlock(), recipe());
    let mut table = Table::new(
        "A latch opens, and all waiters know it",
        format!(
            "{WAITERS} connections wait. From sending the last countdown to reading the last answer, at a client that \
             reads one after the other; CPU: user and system time of the server. {ROUNDS} rounds, first all of dlock, \
             then all of the recipe (the connections of both would exceed the limit of a process). dlock: DLATCH.AWAIT \
             with BLOCK. The recipe: a counter and a channel, on a server without dlock; its clients must also read \
             the counter, before and after, which is not counted here."
        ),
        ["all know", "times dlock's"],
    );
    for (name, openings) in [("DLATCH", &ours), ("recipe", &theirs)] {
        for (what, numbers, dlock) in
            [("time", &openings.times, &ours.times), ("server CPU", &openings.costs, &ours.costs)]
        {
            let ratio = report::ratio(&Sample::ratios(numbers, dlock));
            table.row(
                &format!("{name}: {what}"),
                Sample::new(numbers.clone()).show("ms"),
                ratio,
                String::new(),
            );
        }
    }
    table
}
