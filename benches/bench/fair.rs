//! The cost of passing a fair lock on, and its dependence on the number of waiters.

use std::{collections::VecDeque, time::Instant};

use crate::{
    handoff::{Line, Queue, Rounds},
    meter::CpuMeter,
    names::owner,
    primitives::FairScripts,
    report::{self, Table},
    stats::Sample,
    support::Server,
    wire::{Batch, Wire},
};

const ROUNDS: usize = 7;

const SIZES: [usize; 4] = [10, 100, 1_000, 10_000];

/// One lock of the recipe with all its owners. They share a connection for commands and one for messages: the
/// cheapest setup for a client.
struct RecipeQueue {
    scripts: FairScripts,
    _server: Server,
    meter: CpuMeter,
    calls: Wire,
    messages: Wire,
    /// The first one holds the lock, the others wait in this order.
    owners: VecDeque<String>,
    rounds: Rounds,
}

impl RecipeQueue {
    fn new(server: Server, waiters: usize) -> RecipeQueue {
        let scripts = FairScripts::load(&server);
        let (mut calls, mut messages) = (Wire::connect(&server), Wire::connect(&server));
        let mut subscribe = Batch::of(&["PSUBSCRIBE", "fair_channel:*"], b"*3");
        for line in [&b"$10"[..], b"psubscribe", b"$14", b"fair_channel:*", b":1"] {
            subscribe.push_line(line);
        }
        messages.run(&subscribe);
        let owners: VecDeque<String> = (0..=waiters).map(owner).collect();
        for (n, owner) in owners.iter().enumerate() {
            let mut take = Batch::default();
            scripts.lock(&mut take, "lock", owner, if n == 0 { b"$-1" } else { b":" });
            calls.run(&take);
        }
        let meter = CpuMeter::of(server.pid());
        let rounds = Rounds::default();
        RecipeQueue { scripts, _server: server, meter, calls, messages, owners, rounds }
    }

    fn hand_off(&mut self) -> f64 {
        let old = self.owners.pop_front().expect("a holder");
        let new = self.owners.front().expect("a waiter");
        let (mut pass, mut take, mut again) =
            (Batch::default(), Batch::default(), Batch::default());
        self.scripts.unlock(&mut pass, "lock", &old);
        self.scripts.lock(&mut take, "lock", new, b"$-1");
        self.scripts.lock(&mut again, "lock", &old, b":");
        // The message to the next one: nine lines.
        let mut message = Batch::default();
        for line in [
            &b"*4"[..],
            b"$8",
            b"pmessage",
            b"$14",
            b"fair_channel:*",
            b"$",
            b"fair_channel:",
            b"$1",
            b"0",
        ] {
            message.push_line(line);
        }
        let start = Instant::now();
        self.calls.send(&pass);
        self.messages.hear(&message);
        // The answer to the unlock comes first.
        self.calls.send(&take);
        self.calls.hear(&pass.and(&take));
        let time = start.elapsed();
        self.calls.run(&again);
        self.owners.push_back(old);
        time.as_secs_f64() * 1e6
    }
}

impl Line for RecipeQueue {
    fn hand_off(&mut self) -> f64 {
        RecipeQueue::hand_off(self)
    }

    fn meter(&self) -> CpuMeter {
        self.meter
    }

    fn rounds(&mut self) -> &mut Rounds {
        &mut self.rounds
    }
}

pub fn run() -> Table {
    let with = || Server::with(&[]).release().start();
    let bare = || Server::with(&[]).without_module().start();
    let mut ours = SIZES.map(|waiters| Queue::new(with(), &crate::handoff::DFAIR, waiters));
    let mut recipe = SIZES.map(|waiters| RecipeQueue::new(bare(), waiters));
    for round in 0..=ROUNDS {
        for turn in 0..SIZES.len() {
            // The first round only warms up. Each round begins with another contender.
            let at = (round + turn) % SIZES.len();
            ours[at].round(round > 0);
            recipe[at].round(round > 0);
        }
    }
    let mut table = Table::new(
        "Hand-off of a fair lock, with waiters on it",
        format!(
            "As above, {ROUNDS} rounds of at most 1000 hand-offs (at most a second). dlock: one blocked connection for \
             each waiter. The recipe: a hash with a list and a sorted set; unlock publishes to the channel of the next \
             waiter, which then runs the lock script; all waiters share two connections, fewer than separate clients \
             would need. It updates the timeout of each waiter with every hand-off."
        ),
        ["per hand-off", "times that of 10 waiters"],
    );
    let costs =
        |rounds: &Rounds| [("time", rounds.times.clone()), ("server CPU", rounds.costs.clone())];
    for (at, waiters) in SIZES.into_iter().enumerate() {
        for (kind, (what, numbers)) in costs(&ours[at].rounds).into_iter().enumerate() {
            let ratio = Sample::ratios(&numbers, &costs(&ours[0].rounds)[kind].1);
            let aim = if waiters == SIZES[SIZES.len() - 1] {
                report::at_most(ratio.median(), 1.3, "")
            } else {
                String::new()
            };
            let name = format!("DFAIR, {waiters} waiters: {what}");
            table.row(&name, Sample::new(numbers).show("µs"), report::ratio(&ratio), aim);
        }
    }
    for (at, waiters) in SIZES.into_iter().enumerate() {
        for (kind, (what, numbers)) in costs(&recipe[at].rounds).into_iter().enumerate() {
            let ratio = Sample::ratios(&numbers, &costs(&recipe[0].rounds)[kind].1);
            let beside = Sample::ratios(&numbers, &costs(&ours[at].rounds)[kind].1);
            let name = format!("recipe, {waiters} waiters: {what}");
            let value =
                format!("{}, {} dlock's", Sample::new(numbers).show("µs"), report::ratio(&beside));
            table.row(&name, value, report::ratio(&ratio), String::new());
        }
    }
    table
}
