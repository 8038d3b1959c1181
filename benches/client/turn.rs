//! An empty turn under contention: the time that client and server compute for it, beside the least that a wait on a
//! Redis server costs.

use std::{
    fs,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    time::Instant,
};

use dlock_client::{Client, Wait};
use tokio::task::JoinSet;

use crate::{
    Plan,
    baseline::Token,
    ours::{self, Ours},
    report::{self, Table},
    stats::{Sample, digits},
    strategy::{LOCK, Strategy},
    support::Server,
};

/// Number of tasks that compete for the lock.
const TASKS: [usize; 2] = [10, 50];
/// Turns of all tasks together in one round.
const TURNS: usize = 30_000;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Contender {
    Floor,
    Queue,
    Blocking,
    With,
}

use Contender::{Blocking, Floor, Queue, With};

const ALL: [Contender; 4] = [Floor, Queue, Blocking, With];

impl Contender {
    fn name(self) -> &'static str {
        match self {
            Floor => "BLPOP + LPUSH, private connections",
            Queue => "dlock-client, Wait::Queue",
            Blocking => "dlock-client, Wait::Blocking",
            With => "dlock-client, `with`",
        }
    }
}

/// Result of one round.
struct Round {
    /// Turns per second.
    rate: f64,
    /// Microseconds of user time for a turn.
    client: f64,
    server: f64,
    /// How often the server slept, for a turn.
    slept: f64,
}

pub fn run(plan: Plan) -> Vec<Table> {
    let server = Server::with(&[]).release().start();
    let (rounds, turns) = (plan.size(2, 10), plan.size(2_000, TURNS));
    let how = format!(
        "Acquire and release, nothing between them: {turns} turns of all tasks together in a round, {rounds} rounds in \
         turns; medians of the rounds, ratios within each. User time is what a process computes outside of the \
         kernel. The first line is the least that a wait on a Redis server costs this program: one list element, a \
         private connection for each task, no lease, no owner, no token. Where threads sleep between two turns, all \
         are slower: compare rates of rounds that slept alike."
    );
    let table = |tasks| table(plan, &server, tasks, rounds, turns, how.clone());
    let tables = TASKS.into_iter().map(table).collect();
    server.left_over_check();
    tables
}

fn table(
    plan: Plan,
    server: &Server,
    tasks: usize,
    rounds: usize,
    turns: usize,
    how: String,
) -> Table {
    let mut all: Vec<Vec<Round>> = ALL.iter().map(|_| Vec::new()).collect();
    for round in 0..rounds {
        for turn in 0..ALL.len() {
            let which = (round + turn) % ALL.len();
            all[which].push(one_round(plan, server, ALL[which], tasks, turns));
        }
    }
    let mut table = Table::new(
        format!("Empty turns of {tasks} tasks under one lock"),
        how,
        &[
            "turns per second",
            "relative",
            "client's user time",
            "relative",
            "server's user time",
            "relative",
            "sleeps of the server",
            "aim",
        ],
    );
    for (contender, rounds) in ALL.into_iter().zip(&all) {
        let numbers = |number: fn(&Round) -> f64| -> (Sample, Sample) {
            let of = |rounds: &[Round]| rounds.iter().map(number).collect::<Vec<_>>();
            (Sample::new(of(rounds)), Sample::ratios(&of(rounds), &of(&all[0])))
        };
        let (rate, of_rate) = numbers(|round| round.rate);
        let (client, of_client) = numbers(|round| round.client);
        let (server, of_server) = numbers(|round| round.server);
        let (slept, _) = numbers(|round| round.slept);
        let aim = || {
            let rate = report::at_least(of_rate.median(), 0.9);
            let client = report::at_most(of_client.median(), 1.3);
            format!("{rate}; {client}; {}", report::at_most(of_server.median(), 1.5))
        };
        table.row(
            contender.name(),
            vec![
                rate.show(""),
                digits(of_rate.median()),
                client.show("µs"),
                digits(of_client.median()),
                server.show("µs"),
                digits(of_server.median()),
                slept.show(""),
                if contender == Floor { String::new() } else { aim() },
            ],
        );
    }
    table
}

fn one_round(
    plan: Plan,
    server: &Server,
    contender: Contender,
    tasks: usize,
    turns: usize,
) -> Round {
    let (runtime, url) = (plan.runtime(), server.url());
    if contender == Floor {
        runtime.block_on(Token::make(&url));
        let token = |_| runtime.block_on(Token::new(&url, None));
        let tokens: Vec<_> = (0..tasks).map(token).collect();
        let round = runtime.block_on(measured(server, turns, |turns| all(tokens, turns)));
        runtime.block_on(Token::unmake(&url));
        return round;
    }
    let wait = if contender == Blocking { Wait::Blocking } else { Wait::Queue };
    let client = runtime.block_on(ours::client(&url, wait, tasks));
    runtime.block_on(measured(server, turns, async |turns| {
        if contender == With {
            with(&client, tasks, turns).await;
        } else {
            all((0..tasks).map(|_| Ours::new(&client)).collect(), turns).await;
        }
    }))
}

/// The turns that are left for all tasks.
#[derive(Clone)]
struct Left(Arc<AtomicUsize>);

impl Left {
    fn take(&self) -> bool {
        self.0.fetch_update(Relaxed, Relaxed, |left| left.checked_sub(1)).is_ok()
    }
}

async fn all<S: Strategy>(strategies: Vec<S>, left: Left) {
    let mut tasks = JoinSet::new();
    for mut strategy in strategies {
        let left = left.clone();
        tasks.spawn(async move {
            while left.take() {
                let held = strategy.acquire().await;
                strategy.release(held).await;
            }
        });
    }
    tasks.join_all().await;
}

async fn with(client: &Client, number: usize, left: Left) {
    let mut tasks = JoinSet::new();
    for _ in 0..number {
        let (lock, left) = (client.lock(LOCK), left.clone());
        tasks.spawn(async move {
            while left.take() {
                lock.with(async |_| Ok::<_, dlock_client::Error>(())).await.expect("a turn");
            }
        });
    }
    tasks.join_all().await;
}

async fn measured(server: &Server, turns: usize, work: impl AsyncFnOnce(Left)) -> Round {
    let pids = ["self".to_owned(), server.pid().to_string()];
    let before = pids.each_ref().map(|pid| Used::of(pid));
    let start = Instant::now();
    work(Left(Arc::new(AtomicUsize::new(turns)))).await;
    let seconds = start.elapsed().as_secs_f64();
    let after = pids.each_ref().map(|pid| Used::of(pid));
    let turns = turns as f64;
    let user = |which: usize| (after[which].user - before[which].user) / turns;
    Round {
        rate: turns / seconds,
        client: user(0),
        server: user(1),
        slept: (after[1].slept - before[1].slept) / turns,
    }
}

/// What a process has used.
struct Used {
    /// Microseconds of user time. The kernel counts in ticks of 10 ms.
    user: f64,
    slept: f64,
}

impl Used {
    fn of(pid: &str) -> Used {
        let read = |file| fs::read_to_string(format!("/proc/{pid}/{file}")).expect("Linux");
        let stat = read("stat");
        let (_, fields) = stat.rsplit_once(") ").expect("the name in brackets");
        let ticks: f64 = fields.split(' ').nth(11).expect("utime").parse().expect("a number");
        let status = read("status");
        let slept = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
        let slept = slept.expect("a line").trim().parse().expect("a number");
        Used { user: ticks * 10_000.0, slept }
    }
}
