//! The two wait strategies of the client, and a mixture of both, for the choice of the default: the time of a
//! hand-off, and the server's cost of a waiting task.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use dlock_client::{Client, Lock, Wait};
use tokio::task::JoinSet;

use crate::{
    Plan,
    meter::CpuMeter,
    ours,
    report::{self, Table},
    stats::{Sample, digits},
    strategy::LOCK,
    support::Server,
};

/// Maximum time for the hand-offs of one round.
const LIMIT: Duration = Duration::from_secs(3);

/// Wait strategies: the number of tasks with [`Wait::Blocking`] (the others use [`Wait::Queue`]), and a name.
const STRATEGIES: [(usize, &str); 3] = [
    (0, "Wait::Queue"),
    (usize::MAX, "Wait::Blocking"),
    (4, "the first 4 blocking, the others in the queue"),
];

/// With fewer tasks, the memory of one cannot be measured.
const FEW: usize = 1_000;

/// Result of one round.
struct Round {
    /// Microseconds of each hand-off.
    times: Sample,
    /// Microseconds of server CPU per hand-off.
    cpu: f64,
    /// Bytes of the server per waiting task.
    memory: f64,
}

pub fn run(plan: Plan) -> Vec<Table> {
    let server = Server::with(&[]).release().start();
    let rounds = plan.size(2, 5);
    let handoffs = plan.size(300, 3_000);
    let sizes: &[usize] = plan.size(&[2, 1_000], &[2, 100, 2_000]);
    let mut table = Table::new(
        "Wait strategies: the two of the client, and a mixture".to_owned(),
        format!(
            "Tasks of one client wait for one lock; the holder releases it at once and waits again. From calling \
             release to the return of the next task's acquire, in one program; server CPU with the next ACQUIRE \
             included. Memory: growth of `used_memory` from one holder to all waiting, connections included, divided \
             by their number. {rounds} rounds of {handoffs} hand-offs (at most {} s), in turns, medians of the \
             rounds.",
            LIMIT.as_secs(),
        ),
        &[
            "hand-off: p50 · p99",
            "server CPU per hand-off",
            "server memory per waiting task",
            "time relative to Wait::Queue",
        ],
    );
    for &tasks in sizes {
        let mut all = STRATEGIES.map(|_| Vec::new());
        for round in 0..rounds {
            for turn in 0..STRATEGIES.len() {
                let which = (round + turn) % STRATEGIES.len();
                all[which].push(one_round(plan, &server, (STRATEGIES[which].0, tasks), handoffs));
            }
        }
        let medians =
            |rounds: &[Round]| rounds.iter().map(|round| round.times.median()).collect::<Vec<_>>();
        let queue = medians(&all[0]);
        for ((_, name), rounds) in STRATEGIES.iter().zip(&all) {
            let median =
                |of: fn(&Round) -> f64| Sample::new(rounds.iter().map(of).collect()).median();
            table.row(
                &format!("{name}, {tasks} tasks wait"),
                vec![
                    format!(
                        "{} · {}",
                        report::time(median(|round| round.times.median())),
                        report::time(median(|round| round.times.percentile(99.0)))
                    ),
                    report::time(median(|round| round.cpu)),
                    if tasks < FEW {
                        // Other changes in the server outweigh the memory of so few tasks.
                        String::new()
                    } else {
                        format!("{} bytes", digits(median(|round| round.memory)))
                    },
                    report::ratio(&Sample::ratios(&medians(rounds), &queue)),
                ],
            );
        }
    }
    server.left_over_check();
    vec![table]
}

fn one_round(plan: Plan, server: &Server, tasks: (usize, usize), handoffs: usize) -> Round {
    let runtime = plan.runtime();
    let client = runtime.block_on(ours::client(&server.url(), Wait::Queue, tasks.1));
    let mut round = None;
    let mut waiting = JoinSet::new();
    let memory = runtime.block_on(gather(&client, server, tasks, handoffs, &mut waiting));
    let (first, line, memory) = memory;
    let used = CpuMeter::of(server.pid()).used_during(|| {
        runtime.block_on(async {
            line.release(first).await;
            while let Some(ended) = waiting.join_next().await {
                ended.expect("no task fails");
            }
        });
        round = Some(line.end());
    });
    let (times, count) = round.expect("it ran");
    Round { times: Sample::new(times), cpu: used / count as f64, memory }
}

/// Queues all tasks behind a first holder; returns the server's bytes per task.
async fn gather(
    client: &Client,
    server: &Server,
    (blocking, tasks): (usize, usize),
    handoffs: usize,
    waiting: &mut JoinSet<()>,
) -> (dlock_client::Guard, Arc<Line>, f64) {
    let first = client.lock(LOCK).acquire().await.expect("the lock");
    let line = Arc::new(Line { handoffs, start: Instant::now(), state: Mutex::default() });
    let before = server.info_number("memory", "used_memory");
    for n in 0..tasks {
        let wait = if n < blocking { Wait::Blocking } else { Wait::Queue };
        waiting.spawn(line.clone().wait(client.lock(LOCK).wait(wait)));
    }
    let waiters = || {
        server.info_number("dlock", "waiters_queued")
            + server.info_number("dlock", "waiters_blocked")
    };
    while usize::try_from(waiters()).expect("a count") < tasks {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let grown = server.info_number("memory", "used_memory") - before;
    (first, line, grown as f64 / tasks as f64)
}

/// A lock that is passed through the queue.
struct Line {
    handoffs: usize,
    start: Instant,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    released: Option<Instant>,
    times: Vec<f64>,
    all: usize,
}

impl Line {
    async fn wait(self: Arc<Self>, lock: Lock) {
        loop {
            let guard = lock.acquire().await.expect("the lock");
            let go_on = self.took();
            self.release(guard).await;
            if !go_on {
                return;
            }
        }
    }

    async fn release(&self, guard: dlock_client::Guard) {
        self.state().released = Some(Instant::now());
        guard.release().await.expect("a release");
    }

    /// Records a hand-off; returns whether to continue.
    fn took(&self) -> bool {
        let mut state = self.state();
        state.all += 1;
        let released = state.released.expect("the first holder has released it");
        if state.times.len() < self.handoffs && self.start.elapsed() < LIMIT {
            state.times.push(released.elapsed().as_secs_f64() * 1e6);
            return true;
        }
        false
    }

    /// The times that count, and the number of hand-offs.
    fn end(&self) -> (Vec<f64>, usize) {
        let state = self.state();
        (state.times.clone(), state.all)
    }

    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
