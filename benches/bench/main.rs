//! The cost of dlock, each number next to that of the plain server in the same run.
//!
//! `cargo bench` measures everything; `cargo bench -- cpu memory` only these parts. `--markdown` also writes the
//! tables to `docs/performance.md` (only for a whole run, so that all numbers there are of one machine and one day).
//!
//! Contenders run in turns, round after round, so that a change in the machine's speed affects both. Numbers are
//! medians of the rounds, with the middle 80 % in brackets; ratios are taken within each round.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a bench that cannot go on stops here and says why"
)]
#![allow(clippy::cast_precision_loss, reason = "numbers to be shown with three digits")]

mod attack;
mod cpu;
mod deadlock;
mod expiry;
mod fair;
mod handoff;
mod latch;
mod leases;
mod lua_lock;
mod machine;
mod memory;
mod meter;
mod multi;
mod names;
mod outliers;
mod pair;
mod places;
mod primitives;
mod recipe;
mod report;
mod stall;
mod stats;
mod sweep;
mod wire;

use dlock_testing as support;

use self::report::Table;

/// Name and function of a part.
type Part = (&'static str, fn() -> Table);

/// The parts, in the order of execution.
const PARTS: [Part; 14] = [
    ("cpu", cpu::run),
    ("handoff", handoff::run),
    ("expiry", expiry::run),
    ("leases", leases::run),
    ("stall", stall::run),
    ("attack", attack::run),
    ("memory", memory::run),
    ("primitives", primitives::run),
    ("fair", fair::run),
    ("latch", latch::run),
    ("multi", multi::run),
    ("deadlock", deadlock::run),
    ("places", places::run),
    ("sweep", outliers::run),
];

fn main() {
    let mut wanted = Vec::new();
    let mut markdown = false;
    for arg in std::env::args().skip(1) {
        match arg.as_str() {
            // Cargo passes this to every bench.
            "--bench" => {}
            "--markdown" => markdown = true,
            name if PARTS.iter().any(|(part, _)| *part == name) => wanted.push(arg),
            other => {
                let names: Vec<&str> = PARTS.iter().map(|(name, _)| *name).collect();
                eprintln!("'{other}' is not known; there are --markdown and {}", names.join(", "));
                std::process::exit(2);
            }
        }
    }
    if markdown && !wanted.is_empty() {
        eprintln!("--markdown writes all tables or none: leave the names of the parts out");
        std::process::exit(2);
    }
    let about = machine::describe();
    println!("{about}");
    if let Some(warning) = machine::busy() {
        eprintln!("{warning}");
    }
    let mut tables = Vec::new();
    for (name, run) in PARTS {
        if wanted.is_empty() || wanted.iter().any(|wanted| wanted == name) {
            let table = run();
            println!("\n{}", table.text());
            tables.push(table);
        }
    }
    if markdown {
        report::write_markdown(&about, &tables);
    }
}
