//! Tasks that increment a plain counter under one lock: turns per second, and the wait for each turn.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use dlock_client::Wait;
use redis::aio::MultiplexedConnection;
use tokio::{runtime::Runtime, task::JoinSet};

use crate::{
    Plan,
    baseline::Token,
    meter::CpuMeter,
    ours::{self, Ours},
    pubsub::{self, PubSub, PubSubLock},
    report::{self, Table},
    retry::Retry,
    stats::{Sample, digits},
    strategy::{Strategy, ask, connect},
    support::Server,
};

const COUNTER: &str = "counter";

/// Maximum time of one strategy in one round. Turns that are not done by then do not count.
const LIMIT: Duration = Duration::from_secs(6);

/// Number of tasks that compete for the lock.
const TASKS: [usize; 2] = [10, 50];

/// The strategies to compare.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Contender {
    Queue,
    Blocking,
    PubSub,
    Retry,
    Token,
    TokenShared,
    QueueEach,
    PubSubEach,
}

use Contender::{Blocking, PubSubEach, Queue, QueueEach, Token as Floor, TokenShared};

const ALL: [Contender; 8] = [
    Queue,
    Blocking,
    Contender::PubSub,
    Contender::Retry,
    Floor,
    TokenShared,
    QueueEach,
    PubSubEach,
];

impl Contender {
    fn name(self) -> &'static str {
        match self {
            Queue => "dlock-client, Wait::Queue",
            Blocking => "dlock-client, Wait::Blocking",
            Contender::PubSub => "pub/sub and Lua, one client",
            Contender::Retry => "rslock",
            Floor => "BLPOP + LPUSH, private connections",
            TokenShared => "BLPOP on private connections, LPUSH on a shared one",
            QueueEach => "dlock-client, a client for each task",
            PubSubEach => "pub/sub and Lua, a client for each task",
        }
    }

    /// Whether the server needs the module.
    fn is_ours(self) -> bool {
        matches!(self, Queue | Blocking | QueueEach)
    }

    /// The strategy of this client that it is compared with.
    fn against(self) -> Contender {
        if self == PubSubEach { QueueEach } else { Queue }
    }
}

/// Result of one round.
struct Round {
    turns: f64,
    seconds: f64,
    /// Turns of a task that did not have the previous turn.
    handed: f64,
    /// Microseconds of server CPU.
    cpu: f64,
    /// Microseconds of each turn.
    waits: Sample,
}

impl Round {
    fn rate(&self) -> f64 {
        self.turns / self.seconds
    }
}

pub fn run(plan: Plan) -> Vec<Table> {
    let with = Server::with(&[]).release().start();
    let bare = Server::with(&[]).without_module().start();
    let times = plan.size(40, 1_000);
    TASKS.into_iter().map(|tasks| table(plan, &with, &bare, tasks, times)).collect()
}

fn table(plan: Plan, with: &Server, bare: &Server, tasks: usize, times: usize) -> Table {
    let rounds = plan.size(2, 3);
    let mut all: Vec<Vec<Round>> = ALL.iter().map(|_| Vec::new()).collect();
    for round in 0..rounds {
        for turn in 0..ALL.len() {
            let which = (round + turn) % ALL.len();
            let contender = ALL[which];
            let server = if contender.is_ours() { with } else { bare };
            all[which].push(one_round(plan, server, contender, tasks, times));
        }
    }
    with.left_over_check();

    let of = |contender: Contender| {
        &all[ALL.iter().position(|other| *other == contender).expect("one of all")]
    };
    let mut table = Table::new(
        format!("{tasks} tasks that increment a counter under one lock"),
        if tasks == TASKS[0] { how(plan, rounds, times) } else { "As above.".to_owned() },
        &[
            "all turns",
            "turns per second",
            "from another task",
            "server CPU per turn",
            "wait: p50 · p99 · max",
            "p99 / p50 of the wait",
            "dlock-client's turns per second, relative to this",
            "aim",
        ],
    );
    for contender in ALL {
        let rounds = of(contender);
        let median =
            |number: fn(&Round) -> f64| Sample::new(rounds.iter().map(number).collect()).median();
        let spread = Sample::new(rounds.iter().map(|round| spread(&round.waits)).collect());
        let ours = of(contender.against());
        let rates = |rounds: &[Round]| rounds.iter().map(Round::rate).collect::<Vec<_>>();
        let ratio = Sample::ratios(&rates(ours), &rates(rounds));
        let rate = median(Round::rate);
        let whole = (tasks * times) as f64;
        let stopped = rounds.iter().any(|round| round.turns < whole);
        let all_turns =
            format!("{}{}", if stopped { "≈ " } else { "" }, report::time(whole / rate * 1e6));
        table.row(
            contender.name(),
            vec![
                all_turns,
                digits(rate),
                format!("{} %", digits(median(|round| round.handed / round.turns * 100.0))),
                report::time(median(|round| round.cpu / round.turns)),
                format!(
                    "{} · {} · {}",
                    report::time(median(|round| round.waits.median())),
                    report::time(median(|round| round.waits.percentile(99.0))),
                    report::time(median(|round| round.waits.max())),
                ),
                digits(spread.median()),
                if contender.against() == contender {
                    String::new()
                } else {
                    report::ratio(&ratio)
                },
                aim(contender, tasks, &ratio, &spread),
            ],
        );
    }
    table
}

fn spread(waits: &Sample) -> f64 {
    waits.percentile(99.0) / waits.median()
}

fn aim(contender: Contender, tasks: usize, ratio: &Sample, spread: &Sample) -> String {
    match contender {
        Queue => format!("p99 / p50 {}", report::at_most(spread.median(), 3.0)),
        Contender::PubSub => {
            report::at_least(ratio.median(), if tasks == 10 { 10.0 } else { 20.0 })
        }
        Floor => report::at_least(ratio.median(), 0.95),
        _ => String::new(),
    }
}

fn how(plan: Plan, rounds: usize, times: usize) -> String {
    let runtime = match plan.threads {
        0 => "tokio's runtime with one thread".to_owned(),
        threads => format!("tokio's runtime with {threads} threads"),
    };
    format!(
        "One program, {runtime}; each task {times} times: acquire, GET, SET, release; GET and SET over one connection \
         for all. {rounds} rounds, in turns; medians of the rounds, ratios (in brackets the middle 80 % of the rounds) \
         within each. A contender that takes longer than {} s in a round is stopped there (≈: how long all would have \
         taken). All on the same redis-rs; dlock on a server with it, the others on one without. The wait is the time \
         that acquire takes. \"From another task\": how many turns went to another task than the one before; where it \
         is little, one task after the other makes all its turns and the rest starve until then (see the longest \
         wait). Pub/sub and Lua is the algorithm of the usual Java library, reimplemented \
         (`benches/client/pubsub.rs`). A list with one element is a lock without lease, owner or token.",
        LIMIT.as_secs(),
    )
}

/// Runs the whole program once.
fn one_round(
    plan: Plan,
    server: &Server,
    contender: Contender,
    tasks: usize,
    times: usize,
) -> Round {
    let program = Program { runtime: plan.runtime(), url: server.url(), times };
    let url = server.url();
    match contender {
        Queue | Blocking => {
            let wait = if contender == Queue { Wait::Queue } else { Wait::Blocking };
            let client = program.runtime.block_on(ours::client(&url, wait, tasks));
            program.run(server, (0..tasks).map(|_| Ours::new(&client)).collect())
        }
        QueueEach => {
            let client = || program.runtime.block_on(ours::client(&url, Wait::Queue, 1));
            program.run(server, (0..tasks).map(|_| Ours::new(&client())).collect())
        }
        Contender::PubSub => {
            program.runtime.block_on(pubsub::load(&url));
            let client = program.runtime.block_on(PubSub::new(&url, 0));
            program.run(server, (0..tasks).map(|task| PubSubLock::new(&client, task)).collect())
        }
        PubSubEach => {
            program.runtime.block_on(pubsub::load(&url));
            let client = |task| program.runtime.block_on(PubSub::new(&url, task));
            program.run(server, (0..tasks).map(|task| PubSubLock::new(&client(task), 0)).collect())
        }
        Contender::Retry => {
            let manager = Retry::manager(&url);
            program.run(server, (0..tasks).map(|_| Retry::new(&manager)).collect())
        }
        Floor | TokenShared => {
            let shared = program.runtime.block_on(connect(&url));
            let shared = (contender == TokenShared).then_some(&shared);
            program.runtime.block_on(Token::make(&url));
            let token = |_| program.runtime.block_on(Token::new(&url, shared));
            let round = program.run(server, (0..tasks).map(token).collect());
            program.runtime.block_on(Token::unmake(&url));
            round
        }
    }
}

struct Program {
    runtime: Runtime,
    url: String,
    times: usize,
}

impl Program {
    fn run<S: Strategy>(&self, server: &Server, strategies: Vec<S>) -> Round {
        let mut redis = self.runtime.block_on(connect(&self.url));
        self.runtime.block_on(ask::<()>(&mut redis, redis::cmd("SET").arg(COUNTER).arg(0)));
        let (mut waits, mut handed) = (Vec::new(), 0);
        let mut seconds = 0.0;
        let cpu = CpuMeter::of(server.pid()).used_during(|| {
            let start = Instant::now();
            (waits, handed) = self.runtime.block_on(all(strategies, &redis, self.times));
            seconds = start.elapsed().as_secs_f64();
        });
        let turns = waits.len();
        let counted: usize =
            self.runtime.block_on(ask(&mut redis, redis::cmd("GETDEL").arg(COUNTER)));
        assert_eq!(counted, turns, "two had the lock at a time");
        Round {
            turns: turns as f64,
            seconds,
            handed: f64::from(handed),
            cpu,
            waits: Sample::new(waits),
        }
    }
}

/// Runs all tasks to their end; returns the wait for each turn in microseconds, and how often the lock passed from
/// one task to another.
async fn all<S: Strategy>(
    strategies: Vec<S>,
    redis: &MultiplexedConnection,
    times: usize,
) -> (Vec<f64>, u32) {
    let start = Instant::now();
    let last = Arc::new(AtomicUsize::new(usize::MAX));
    let mut tasks = JoinSet::new();
    for (task, mut strategy) in strategies.into_iter().enumerate() {
        let (mut redis, last) = (redis.clone(), last.clone());
        tasks.spawn(async move {
            let (mut waits, mut handed) = (Vec::with_capacity(times), 0);
            while waits.len() < times && start.elapsed() < LIMIT {
                let asked = Instant::now();
                let held = strategy.acquire().await;
                waits.push(asked.elapsed().as_secs_f64() * 1e6);
                handed += u32::from(last.swap(task, Ordering::Relaxed) != task);
                let value: u64 = ask(&mut redis, redis::cmd("GET").arg(COUNTER)).await;
                let () = ask(&mut redis, redis::cmd("SET").arg(COUNTER).arg(value + 1)).await;
                strategy.release(held).await;
            }
            (waits, handed)
        });
    }
    let (mut waits, mut handed) = (Vec::new(), 0);
    while let Some(ended) = tasks.join_next().await {
        let of_task = ended.expect("no task fails");
        waits.extend(of_task.0);
        handed += of_task.1;
    }
    (waits, handed)
}
