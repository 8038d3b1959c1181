//! The cost of a lock for a program: the Rust client next to the usual alternatives, in one run.
//!
//! `cargo bench --bench client` measures everything; `-- counter` only this part. `--quick` is for trials: small
//! sizes, few rounds. `--threads 2` runs the program on tokio's multi-thread runtime. `--markdown` also writes the
//! tables to `docs/performance.md`.
//!
//! The program runs on tokio's runtime with one thread by default. A second thread has no work here (one holder
//! works, all others wait). With client and server on two cores it takes the server's core.
//!
//! Contenders run in turns, round after round, so that a change in the machine's speed affects all of them. Numbers
//! are medians of the rounds; ratios are taken within each round.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a bench that cannot go on stops here and says why"
)]
#![allow(clippy::cast_precision_loss, reason = "numbers to be shown with three digits")]

mod baseline;
mod counter;
mod default_wait;
#[path = "../bench/lua_lock.rs"]
mod lua_lock;
#[path = "../bench/machine.rs"]
mod machine;
#[path = "../bench/meter.rs"]
mod meter;
mod ours;
mod profile;
mod pubsub;
mod report;
mod retry;
#[path = "../bench/stats.rs"]
#[allow(dead_code, reason = "the other bench needs more of it")]
mod stats;
mod strategy;
mod turn;

use dlock_testing as support;

use self::report::Table;

/// Size and environment of a measurement.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Plan {
    /// Small sizes, few rounds: for trials.
    pub(crate) quick: bool,
    /// Threads of the program's runtime; 0: the current-thread runtime.
    pub(crate) threads: usize,
}

impl Plan {
    /// The runtime of the measured program.
    pub(crate) fn runtime(self) -> tokio::runtime::Runtime {
        let mut builder = if self.threads == 0 {
            tokio::runtime::Builder::new_current_thread()
        } else {
            let mut builder = tokio::runtime::Builder::new_multi_thread();
            builder.worker_threads(self.threads);
            builder
        };
        builder.enable_all().build().expect("a runtime")
    }

    /// The size for this plan.
    pub(crate) fn size<T>(self, quick: T, whole: T) -> T {
        if self.quick { quick } else { whole }
    }
}

/// Name and function of a part.
type Part = (&'static str, fn(Plan) -> Vec<Table>);

/// The parts, in the order of execution.
const PARTS: [Part; 4] = [
    ("counter", counter::run),
    ("turn", turn::run),
    ("wait", default_wait::run),
    ("failover", profile::run),
];

fn main() {
    let mut plan = Plan { quick: false, threads: 0 };
    let mut wanted = Vec::new();
    let mut markdown = false;
    let mut args = std::env::args().skip(1);
    while let Some(arg) = args.next() {
        match arg.as_str() {
            // Cargo passes this to every bench.
            "--bench" => {}
            "--markdown" => markdown = true,
            "--quick" => plan.quick = true,
            "--threads" => {
                let threads = args.next().and_then(|threads| threads.parse().ok());
                plan.threads = threads.expect("--threads wants a number");
            }
            _ => wanted.push(arg),
        }
    }
    if markdown && (plan.quick || plan.threads > 0 || !wanted.is_empty()) {
        eprintln!("--markdown writes all tables of a whole run: leave the rest out");
        std::process::exit(2);
    }
    let parts: Vec<Part> = PARTS
        .into_iter()
        .filter(|(name, _)| wanted.is_empty() || wanted.iter().any(|wanted| wanted == name))
        .collect();
    if parts.is_empty() {
        // Cargo passes the same names to every bench: these are for another one.
        let names = PARTS.map(|(name, _)| name).join(", ");
        eprintln!("the parts of this bench are {names}: none of them is wanted");
        return;
    }
    let about = machine::describe();
    println!("{about}");
    if let Some(warning) = machine::busy() {
        eprintln!("{warning}");
    }
    let mut tables = Vec::new();
    for (_, run) in parts {
        for table in run(plan) {
            println!("\n{}", table.text());
            tables.push(table);
        }
    }
    if markdown {
        report::write_markdown(&about, &tables);
    }
}
