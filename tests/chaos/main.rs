//! Chaos: random commands of all families and of the server, restarts, failovers, slot moves and closed connections,
//! from a seed. After each burst all invariants are checked; see `checks.rs` and `oracle.rs`.
//!
//! ```text
//! make chaos SECONDS=600 SEED=7 WORLD=single,cluster
//! ```

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a run that cannot go on stops here and says why"
)]

mod call;
mod checks;
mod crowd;
mod faults;
mod generate;
mod key;
mod oracle;
mod pipe;
mod report;
mod run;
mod world;

use std::{
    env,
    process::ExitCode,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use run::Run;
use world::Kind;

/// Default run time of each world.
const SECONDS: u64 = 20;

/// Settings from the environment: `SEED`, `SECONDS` for each world, `WORLD` (names separated by commas), `FROM` (the
/// first group of bursts).
fn main() -> ExitCode {
    // Skipped, as any test, when a filter names another test.
    let filters = env::args().skip(1).filter(|arg| !arg.starts_with('-')).collect::<Vec<_>>();
    if !filters.is_empty() && !filters.iter().any(|filter| "chaos".contains(&**filter)) {
        return ExitCode::SUCCESS;
    }
    if env::args().any(|arg| arg == "--list" || arg == "--ignored") {
        return ExitCode::SUCCESS;
    }
    let number = |name: &str| env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    let seed = number("SEED").unwrap_or(now);
    let seconds = Duration::from_secs(number("SECONDS").unwrap_or(SECONDS));
    let from = number("FROM").unwrap_or(0);
    let names = env::var("WORLD").unwrap_or_default();
    let wanted = |kind: &Kind| names.is_empty() || names.split(',').any(|name| name == kind.name());
    println!("chaos: {}, seed {seed}, {seconds:?} for each world", report::version());
    if !Kind::ALL.iter().any(wanted) {
        eprintln!("WORLD={names}: there are single, replicated and cluster");
        return ExitCode::FAILURE;
    }
    // Its build takes a minute, which would count as time of the first world.
    dlock_testing::module_path(dlock_testing::Profile::Dev);
    let mut is_fine = true;
    for kind in Kind::ALL.into_iter().filter(wanted) {
        is_fine &= Run::new(kind, seed, from).go(seconds);
    }
    if is_fine { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
