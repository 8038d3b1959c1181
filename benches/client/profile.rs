//! What the failover profile costs: acquires, hand-overs and renewals that a replica confirms, beside the default.

use std::time::{Duration, Instant};

use dlock_client::Client;
use tokio::task::JoinSet;

use crate::{
    Plan,
    meter::CpuMeter,
    report::{self, Table},
    stats::Sample,
    support::Server,
};

const NAMES: [&str; 2] = ["default", "holds_through_failover(1)"];

/// Results of one round, in microseconds for each operation.
struct Round {
    /// Acquire and release, one after the other.
    alone: Sample,
    /// The same by 50 tasks, each on its own lock.
    abreast: f64,
    /// A renewal of one hold.
    renewal: Sample,
    /// Server CPU for each acquire and release of the 50 tasks.
    cpu: f64,
}

pub fn run(plan: Plan) -> Vec<Table> {
    let server = Server::with(&[]).release().start();
    let replica = Server::with(&[]).release().replica_of(&server).start();
    server.wait_replica_synced(&replica);
    // The first acknowledgement comes up to a second later.
    while !confirms(&server) {
        std::thread::sleep(Duration::from_millis(50));
    }
    // From now on, so that no grant waits for it: clients refuse leases that are longer.
    server.client().cmd(&["CONFIG", "SET", "dlock.restart-quarantine-ms", "30000"]);
    let (rounds, calls) = (plan.size(2, 7), plan.size(200, 2_000));
    let mut all = [Vec::new(), Vec::new()];
    for round in 0..rounds {
        for turn in 0..2 {
            let which = (round + turn) % 2;
            all[which].push(one_round(plan, &server, which == 1, calls));
        }
    }
    let mut table = Table::new(
        "The failover profile, with one replica".to_owned(),
        format!(
            "Primary, replica and program on one machine. {rounds} rounds in turns, medians of the rounds; {calls} \
             calls of each kind a round. An acquire and a release of a free lock: one task, then 50 tasks on locks of \
             their own. A renewal by hand of one hold."
        ),
        &[
            "acquire + release: p50 · p99",
            "relative",
            "50 tasks: time for each",
            "relative",
            "server CPU",
            "renewal: p50 · p99",
            "relative",
        ],
    );
    let median = |rounds: &[Round], of: fn(&Round) -> f64| {
        Sample::new(rounds.iter().map(of).collect()).median()
    };
    let values =
        |rounds: &[Round], of: fn(&Round) -> f64| rounds.iter().map(of).collect::<Vec<_>>();
    for (name, rounds) in NAMES.iter().zip(&all) {
        let both = |p50: fn(&Round) -> f64, p99: fn(&Round) -> f64| {
            format!("{} · {}", report::time(median(rounds, p50)), report::time(median(rounds, p99)))
        };
        let relative = |of: fn(&Round) -> f64| {
            report::ratio(&Sample::ratios(&values(rounds, of), &values(&all[0], of)))
        };
        table.row(
            name,
            vec![
                both(|round| round.alone.median(), |round| round.alone.percentile(99.0)),
                relative(|round| round.alone.median()),
                report::time(median(rounds, |round| round.abreast)),
                relative(|round| round.abreast),
                report::time(median(rounds, |round| round.cpu)),
                both(|round| round.renewal.median(), |round| round.renewal.percentile(99.0)),
                relative(|round| round.renewal.median()),
            ],
        );
    }
    vec![table]
}

fn confirms(server: &Server) -> bool {
    let mut client = server.client();
    client.cmd(&["SET", "probe", ""]);
    client.cmd(&["DEL", "probe"]);
    matches!(client.cmd(&["WAIT", "1", "100"]), redis::Value::Int(1))
}

fn one_round(plan: Plan, server: &Server, is_profile: bool, calls: usize) -> Round {
    let runtime = plan.runtime();
    let builder = Client::builder();
    let builder = if is_profile { builder.holds_through_failover(1) } else { builder };
    let client = runtime.block_on(builder.connect(&server.url())).expect("a client");
    let alone = runtime.block_on(turns(&client, "alone", calls));
    let mut abreast = 0.0;
    let cpu = CpuMeter::of(server.pid()).used_during(|| {
        let start = Instant::now();
        runtime.block_on(async {
            let mut tasks = JoinSet::new();
            for n in 0..50 {
                let client = client.clone();
                tasks.spawn(async move { turns(&client, &format!("lock{n}"), calls / 50).await });
            }
            tasks.join_all().await;
        });
        abreast = micros(start) / calls as f64;
    });
    let renewal = runtime.block_on(async {
        let guard = client.lock("renewed").acquire().await.expect("the lock");
        let mut times = Vec::with_capacity(calls);
        for _ in 0..calls {
            let start = Instant::now();
            guard.renew(Duration::from_secs(30)).await.expect("a renewal");
            times.push(micros(start));
        }
        guard.release().await.expect("a release");
        times
    });
    Round {
        alone: Sample::new(alone),
        abreast,
        renewal: Sample::new(renewal),
        cpu: cpu / calls as f64,
    }
}

/// Acquires and releases a free lock `calls` times; microseconds of each turn.
async fn turns(client: &Client, key: &str, calls: usize) -> Vec<f64> {
    let lock = client.lock(key);
    let mut times = Vec::with_capacity(calls);
    for _ in 0..calls {
        let start = Instant::now();
        let guard = lock.acquire().await.expect("the lock");
        guard.release().await.expect("a release");
        times.push(micros(start));
    }
    times
}

fn micros(since: Instant) -> f64 {
    since.elapsed().as_secs_f64() * 1e6
}
