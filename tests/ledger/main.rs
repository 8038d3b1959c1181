//! A ledger of turns: locks, multi-locks, elections and owners of the Rust client, behind a proxy that breaks
//! connections, and in failovers. Each worker writes what it believed and when; `judge.rs` compares the ledger with
//! itself and with what the servers reported.
//!
//! ```text
//! make ledger TURNS=20000 SEED=7 WORLD=proxy,failover KIND=locks,elections
//! ```

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a run that cannot go on stops here and says why"
)]

mod book;
mod judge;
mod witness;
mod work;
mod world;

use std::{
    env,
    fmt::Write as _,
    fs,
    path::PathBuf,
    process::ExitCode,
    sync::{Arc, Mutex, atomic::AtomicUsize},
    thread,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use book::Ledger;
use judge::Verdicts;
use work::{Crew, Kind};
use world::World;

/// Default number of turns of each kind in each world.
const TURNS: usize = 300;

/// Findings of each sort that are shown; the file has all.
const SHOWN: usize = 3;

/// Settings from the environment: `TURNS`, `SEED`, `WORLD` and `KIND` (names separated by commas), `PLANT` (some
/// workers ignore a loss, and the verdicts must find it).
fn main() -> ExitCode {
    // Skipped, as any test, when a filter names another test.
    let filters = env::args().skip(1).filter(|arg| !arg.starts_with('-')).collect::<Vec<_>>();
    if !filters.is_empty() && !filters.iter().any(|filter| "ledger".contains(&**filter)) {
        return ExitCode::SUCCESS;
    }
    if env::args().any(|arg| arg == "--list" || arg == "--ignored") {
        return ExitCode::SUCCESS;
    }
    let setting = |name: &str| env::var(name).ok().filter(|text| !text.is_empty());
    let number = |name: &str| setting(name).and_then(|text| text.parse::<u64>().ok());
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    let seed = number("SEED").unwrap_or(now);
    let turns = number("TURNS").and_then(|turns| usize::try_from(turns).ok()).unwrap_or(TURNS);
    let is_planted = setting("PLANT").is_some();
    let is_wanted = |setting: &Option<String>, name: &str| {
        setting.as_ref().is_none_or(|names| names.split(',').any(|wanted| wanted == name))
    };
    let (worlds, kinds) = (setting("WORLD"), setting("KIND"));
    let kinds = Kind::ALL.into_iter().filter(|kind| is_wanted(&kinds, kind.name()));
    let kinds = kinds.collect::<Vec<_>>();
    println!("ledger: {turns} turns of each kind in each world, seed {seed}");
    println!("{HEADING}");
    let mut is_fine = true;
    for world in World::ALL.into_iter().filter(|world| is_wanted(&worlds, world.name())) {
        // They mostly wait.
        let runs: Vec<_> = kinds
            .iter()
            .map(|&kind| Run { world, kind, turns, seed, is_planted })
            .map(|run| thread::spawn(move || run.go()))
            .collect();
        for run in runs {
            // Not `all`: each thread is waited for.
            is_fine &= run.join().unwrap_or(false);
        }
    }
    // A plan of faults that finds nothing is a fault of the verdicts.
    if is_fine == is_planted { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

const HEADING: &str = "| world | kind | turns | overlaps | successes for lost work | losses for finished work \
    | late yes | token order | unknown | real losses | cut short | faults | seconds | seed |\n\
    |---|---|---|---|---|---|---|---|---|---|---|---|---|---|";

/// One kind in one world.
#[derive(Clone, Copy, Debug)]
struct Run {
    world: World,
    kind: Kind,
    turns: usize,
    seed: u64,
    is_planted: bool,
}

impl Run {
    /// Prints its row of the table; true if nothing was found.
    fn go(self) -> bool {
        let start = Instant::now();
        let ledger = Arc::new(Ledger::new());
        let longest = if self.turns < 2_000 { 1_500 } else { 8_000 };
        let crew = Arc::new(Crew {
            kind: self.kind,
            ledger: ledger.clone(),
            left: AtomicUsize::new(self.turns),
            replicas: self.world.may_crash(self.kind),
            planted: self.is_planted,
            longest: Duration::from_millis(longest),
            refusals: Mutex::default(),
        });
        let faults = self.world.run(&crew, self.seed);
        let (turns, ends) = ledger.entries();
        let found = judge::judge(&turns, &ends);
        println!("{}", self.row(&found, faults, start.elapsed()));
        println!("    requests without a grant: {:?}", crew.refusals.lock().unwrap());
        if !found.is_fine() {
            self.report(&found, &ledger);
        }
        found.is_fine()
    }

    fn row(&self, found: &Verdicts, faults: u64, time: Duration) -> String {
        format!(
            "| {} | {} | {} | {} | {} | {} | {} | {} | {} | {} | {} | {faults} | {:.0} | {} |",
            self.world.name(),
            self.kind.name(),
            found.turns,
            found.overlaps.len(),
            found.false_success.len(),
            found.false_loss.len(),
            found.late_yes.len(),
            found.token_order.len(),
            found.unknown,
            found.real_losses,
            found.cut_short,
            time.as_secs_f64(),
            self.seed,
        )
    }

    /// Shows some findings, and writes the ledger to a file.
    fn report(&self, found: &Verdicts, ledger: &Ledger) {
        let mut text = String::new();
        for (name, all) in found.findings() {
            for (n, one) in all.iter().enumerate() {
                let line = format!("    {name}: {one}");
                if n < SHOWN {
                    eprintln!("{line}");
                }
                let _ = writeln!(text, "{line}");
            }
        }
        let (turns, ends) = ledger.entries();
        for turn in turns {
            let _ = writeln!(text, "{turn:?}");
        }
        for end in ends {
            let _ = writeln!(text, "{end:?}");
        }
        let name = format!("ledger-{}-{}-{}.txt", self.world.name(), self.kind.name(), self.seed);
        let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
        match fs::write(&path, text) {
            Ok(()) => eprintln!("    everything: {}", path.display()),
            Err(error) => eprintln!("    {}: {error}", path.display()),
        }
    }
}
