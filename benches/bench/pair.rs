//! Pairs of acquire and release, measured in turns.

use std::time::Instant;

use redis::Value;

use crate::{
    meter::CpuMeter,
    report,
    stats::{Sample, digits},
    support::{Reply as _, Server},
    wire::{Batch, Wire},
};

/// Pairs in one pipeline: 200 commands.
pub const PAIRS: usize = 100;

/// Different pipelines, so that keys and owners vary.
pub const PIPELINES: usize = 20;

/// One implementation of the pair, on one server.
pub struct Contender {
    meter: CpuMeter,
    /// Runs all pairs of a round.
    work: Box<dyn FnMut()>,
    pairs: usize,
    /// Microseconds of server CPU per pair, round by round.
    pub costs: Vec<f64>,
    /// Microseconds of a round, divided by its pairs.
    pub times: Vec<f64>,
}

impl Contender {
    /// `work` acquires and releases `pairs` times.
    pub fn new(server: &Server, pairs: usize, work: impl FnMut() + 'static) -> Contender {
        Contender {
            meter: CpuMeter::of(server.pid()),
            work: Box::new(work),
            pairs,
            costs: Vec::new(),
            times: Vec::new(),
        }
    }

    /// Sends different pipelines of [`PAIRS`] pairs, each several times in a round. `pair` appends the two commands
    /// of the pair with this number.
    pub fn pipelined(
        server: &Server,
        repeats: usize,
        pair: impl Fn(&mut Batch, usize),
    ) -> Contender {
        let pipeline = |pipeline: usize| {
            let mut batch = Batch::default();
            (pipeline * PAIRS..(pipeline + 1) * PAIRS).for_each(|n| pair(&mut batch, n));
            batch
        };
        let pipelines: Vec<Batch> = (0..PIPELINES).map(pipeline).collect();
        let mut wire = Wire::connect(server);
        Contender::new(server, repeats * PIPELINES * PAIRS, move || {
            for _ in 0..repeats {
                for pipeline in &pipelines {
                    wire.run(pipeline);
                }
            }
        })
    }

    fn round(&mut self, counts: bool) {
        let start = Instant::now();
        let used = self.meter.used_during(&mut self.work);
        if counts {
            self.costs.push(used / self.pairs as f64);
            self.times.push(start.elapsed().as_secs_f64() * 1e6 / self.pairs as f64);
        }
    }
}

/// Measures them in turns. The first round only warms up. Each round begins with another contender.
pub fn measure(contenders: &mut [Contender], rounds: usize) {
    let count = contenders.len();
    for round in 0..=rounds {
        for turn in 0..count {
            contenders[(round + turn) % count].round(round > 0);
        }
    }
}

/// Loads a script into `server`; returns its hash.
pub fn load(server: &Server, script: &str) -> String {
    match server.cmd(&["SCRIPT", "LOAD", script]) {
        Value::BulkString(hash) => String::from_utf8(hash).expect("a hash in hex"),
        other => panic!("SCRIPT LOAD: {}", other.show()),
    }
}

/// Converts a round's time per pair to pairs per second.
pub fn per_second(times: &[f64]) -> String {
    let sample = Sample::new(times.to_vec());
    // The rates are thousands: whole numbers.
    format!("{} thousand/s", digits(1e3 / sample.median()))
}

/// Cost and rate of the recipe relative to dlock: the ratio of CPU, and the ratio of pairs per second.
pub fn ratios(recipe: &Contender, ours: &Contender) -> (Sample, Sample) {
    (Sample::ratios(&recipe.costs, &ours.costs), Sample::ratios(&recipe.times, &ours.times))
}

/// The goal that both ratios are at least `aim`: the worse one counts.
pub fn both_at_least((costs, times): &(Sample, Sample), aim: f64) -> String {
    report::at_least(costs.median().min(times.median()), aim, "")
}
