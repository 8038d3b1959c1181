//! Every command in every state, at two sizes: the server's processor time for it, how that grows with the state, and
//! its ratio to the plain server's nearest operation. A bench shows all that is out of line; a test measures a part.

mod probes;
mod states;

use std::{thread, time::Duration};

use dlock_testing::{Client, Server, Setup};
use probes::{PROBES, Plain, Probe};
use states::{STATES, Site, State, run};

use crate::meter::CpuMeter;

/// What a key of ours is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Lock,
    Fair,
    Rw,
    Sem,
    Latch,
}

/// The sizes of the states, and how carefully the calls are measured.
#[derive(Debug, Clone, Copy)]
pub struct Scale {
    pub sizes: [usize; 2],
    /// Repetitions in one write.
    pub repeats: usize,
    pub rounds: usize,
    /// Out of line: the cost grows by more than this power of the size, and by more than [`Scale::noise`].
    pub exponent: f64,
    /// In microseconds.
    pub noise: f64,
    /// Out of line: more than this many times the plain operation for each of the calls.
    pub ratio: f64,
}

/// The cost of a probe in a state, in microseconds for all of its calls.
#[derive(Clone, Copy)]
pub struct Row {
    pub state: &'static State,
    pub probe: &'static Probe,
    pub costs: [f64; 2],
    pub exponent: f64,
    /// To the plain server's nearest operation, at the larger size.
    pub ratio: f64,
}

impl Row {
    /// Why it is out of line.
    pub fn is_out_of_line(&self, scale: Scale) -> Option<&'static str> {
        let [small, large] = self.costs;
        if self.probe.grows.is_some() {
            None
        } else if self.exponent > scale.exponent && large - small > scale.noise {
            Some("grows")
        } else if self.ratio > scale.ratio && large > scale.noise {
            Some("dear")
        } else {
            None
        }
    }
}

fn calls(probe: &Probe, size: usize) -> Vec<String> {
    let text = probe.calls.replace("{mid}", &(size / 2).to_string());
    text.split(';').map(|call| call.trim().to_owned()).collect()
}

/// The server's processor time for the calls, in microseconds: the median of the rounds. Not the least: the clock of
/// another process may lag where the machine is busy, so a round can seem to cost nothing.
fn cost(server: &Server, client: &mut Client, calls: &[String], scale: Scale) -> f64 {
    let meter = CpuMeter::of(server.pid());
    settle(meter);
    let mut ids = 0..;
    let mut many = || -> Vec<String> {
        let ids = ids.by_ref().take(scale.repeats);
        let named =
            ids.map(|id| calls.iter().map(move |call| call.replace("{id}", &format!("i{id}"))));
        named.flatten().collect()
    };
    let round = |_| {
        let many = many();
        meter.used_during(|| run(client, &many))
    };
    let mut rounds: Vec<f64> = (0..scale.rounds).map(round).collect();
    rounds.sort_by(f64::total_cmp);
    rounds[rounds.len() / 2] / scale.repeats as f64
}

/// Waits until the server has nothing to do: what earlier calls left for later is not the cost of the next ones.
fn settle(meter: CpuMeter) {
    let pause = Duration::from_millis(5);
    let is_busy = || meter.used_during(|| thread::sleep(pause)) > 500.0;
    assert!((0..1_000).any(|_| !is_busy()), "the server does not come to rest");
}

fn plain_costs(scale: Scale) -> Vec<(Plain, f64)> {
    let server = Server::with(&[]).without_module().start();
    let mut client = server.client();
    run(&mut client, &["SET s x".to_owned()]);
    let mut costs = Vec::new();
    for plain in Plain::ALL {
        let calls: Vec<_> = plain.calls().split("; ").map(str::to_owned).collect();
        costs.push((plain, cost(&server, &mut client, &calls, scale) / calls.len() as f64));
    }
    costs
}

fn applies(state: &State, probe: &Probe) -> bool {
    probe.on.is_none() || probe.on == state.kind
}

/// Measures what `wanted` says, on servers of this set-up.
pub fn rows(
    scale: Scale,
    setup: fn() -> Setup,
    wanted: impl Fn(&State, &Probe) -> bool,
) -> Vec<Row> {
    let plain = plain_costs(scale);
    let plain = |of: Plain| plain.iter().find(|(plain, _)| *plain == of).map_or(1.0, |it| it.1);
    let mut rows = Vec::new();
    for state in STATES {
        let probes: Vec<_> =
            PROBES.iter().filter(|probe| applies(state, probe) && wanted(state, probe)).collect();
        if probes.is_empty() {
            continue;
        }
        let sizes = scale.sizes.map(|size| if state.is_costly { size / 10 } else { size });
        let costs = sizes.map(|size| {
            let mut site = Site::start(state, size, setup);
            let mut costs = Vec::new();
            for probe in &probes {
                let Site { server, client, .. } = &mut site;
                let repeats = if probe.grows.is_some() { 2 } else { scale.repeats };
                let scale = Scale { repeats, ..scale };
                costs.push(cost(server, client, &calls(probe, size), scale));
            }
            costs
        });
        for (n, probe) in probes.into_iter().enumerate() {
            let costs = [costs[0][n], costs[1][n]];
            let growth = scale.sizes[1] as f64 / scale.sizes[0] as f64;
            let exponent = (costs[1] / costs[0]).ln() / growth.ln();
            let each = costs[1] / probe.calls.split(';').count() as f64;
            rows.push(Row { state, probe, costs, exponent, ratio: each / plain(probe.plain) });
        }
    }
    rows
}
