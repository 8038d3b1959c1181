//! Failovers of real servers, in network namespaces: faults from a seed, and a judge of what the clients believed. Each
//! set-up has three clients that are processes of their own. Needs root and iproute2.
//!
//! ```text
//! make failover SECONDS=600 SEED=7 WORLD=sentinel PROFILE=holds REPLICAS=1 SETUPS=4 FAULT=
//! ```
//!
//! - `WORLD=sentinel`: three hosts with a server and a Sentinel each. `cluster`: two primaries with two replicas each,
//!   and a third that votes; slots move. `quorum`: three servers, and clients with quorum locks. `duel`: two primaries
//!   with clients of their own, and `2 * REPLICAS - 1` replicas that change sides.
//! - `PROFILE=holds`: clients that count a grant or renewal only when a replica has it, servers that write only with a
//!   replica, a quarantine of one lease. An overlap is a failure, and so are a refused write, a
//!   wrong order of tokens, and a fault after which a client gets no lock. `default`: none of these; overlaps are
//!   expected. Of a quorum lock only the quarantine is there.
//! - `REPLICAS=` replicas must confirm; default 1. With 2, all servers keep their data, and a lost hold is a failure.
//! - `FAULT=` takes one part of the profile away, and the run fails if the judge finds no overlap: `profile-off` (plain
//!   clients), `renewal-unconfirmed` (only acquires wait for a replica), `quarantine-0`. The run ends at the first
//!   overlap.
//! - `KIND=` names the faults, separated by commas; see `nemesis.rs`.
//!
//! The histories and the logs of the servers are in `target/tmp/failover-SEED-n`.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a run that cannot go on stops here and says why"
)]

mod client;
mod cluster;
mod group;
mod history;
mod judge;
mod nemesis;
mod net;
mod report;

use std::{
    env, fs,
    os::unix::process::CommandExt as _,
    path::{Path, PathBuf},
    process::{Command, ExitCode},
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use history::{History, Nanos};
use judge::{Rule, Verdicts};
use nemesis::{Kind, Nemesis};
use net::{HOSTS, World};

/// The argument that makes this program a client process.
const CLIENT: &str = "--client";

/// Set in this program's own namespace of mounts.
const MOUNTED: &str = "DLOCK_FAILOVER_MOUNTED";

/// Default number of set-ups.
const SETUPS: usize = 4;

/// How long after a fault was healed all must be served.
const HEALS: Duration = Duration::from_mins(1);

/// Between two looks at a state.
const POLL: Duration = Duration::from_millis(20);

/// True: end soon, because of a Ctrl-C or an overlap that was looked for.
static IS_OVER: AtomicBool = AtomicBool::new(false);

/// How a run is built.
#[derive(Clone, Debug)]
struct Plan {
    world: World,
    seed: u64,
    time: Duration,
    kinds: Vec<Kind>,
    /// `min-replicas-to-write` of the servers.
    replicas: u32,
    quarantine_ms: u64,
    /// What follows the URL of the clients.
    url_parameters: String,
    /// See [`client::run`].
    replicas_of_grants: u32,
    /// See [`Nemesis`].
    step_ms: u64,
    /// Stop at the first overlap.
    is_planted: bool,
}

impl Plan {
    /// A profile without or with a planted fault; `None`: no such name.
    fn new(world: &str, profile: &str, replicas: u32, fault: &str) -> Option<Plan> {
        let world = match world {
            "" | "sentinel" => World::Sentinel,
            "cluster" => World::Cluster,
            "quorum" => World::Quorum,
            "duel" => World::Duel(2 * replicas as usize + 1),
            _ => return None,
        };
        let mut kinds = Kind::ALL.to_vec();
        kinds.retain(|kind| kind.is_of(world));
        let mut plan = Plan {
            world,
            seed: 0,
            time: Duration::ZERO,
            kinds,
            replicas,
            // One lease: the least that the profile allows.
            quarantine_ms: 2_000,
            url_parameters: format!("?replicas={replicas}"),
            replicas_of_grants: 0,
            // Together less than the quarantine, which hides it; no matter if each replica knows each token.
            step_ms: if replicas as usize == HOSTS - 1 { 1_800_000 } else { 900 },
            is_planted: !fault.is_empty(),
        };
        if world == World::Quorum {
            (plan.url_parameters, plan.replicas) = (String::new(), 0);
        }
        match (profile, fault) {
            ("holds", "") => {}
            ("holds", "profile-off") => plan.url_parameters.clear(),
            ("holds", "renewal-unconfirmed") => {
                (plan.url_parameters, plan.replicas_of_grants) = (String::new(), replicas);
            }
            ("holds", "quarantine-0") => plan.quarantine_ms = 0,
            ("default", "") => {
                (plan.url_parameters, plan.replicas, plan.quarantine_ms) = (String::new(), 0, 0);
            }
            _ => return None,
        }
        Some(plan)
    }
}

/// Settings from the environment; see above. Without `SECONDS` nothing runs: a usual run of all tests needs no root.
fn main() -> ExitCode {
    let args: Vec<String> = env::args().skip(1).collect();
    if args.first().is_some_and(|arg| arg == CLIENT) {
        client::run(&args[1..]);
        return ExitCode::SUCCESS;
    }
    let setting = |name: &str| env::var(name).unwrap_or_default();
    let Ok(seconds) = setting("SECONDS").parse() else {
        println!("failover: not without SECONDS (make failover)");
        return ExitCode::SUCCESS;
    };
    // The file systems of the servers vanish with this program.
    if env::var_os(MOUNTED).is_none() {
        let program = env::current_exe().expect("a path of this program");
        let mut command = Command::new("unshare");
        let error = command.arg("--mount").arg(program).env(MOUNTED, "").exec();
        panic!("unshare (util-linux): {error}");
    }
    let (world, profile, fault) = (setting("WORLD"), setting("PROFILE"), setting("FAULT"));
    let profile = if profile.is_empty() { "holds" } else { &profile };
    let replicas = setting("REPLICAS").parse().unwrap_or(1);
    let Some(mut plan) = Plan::new(&world, profile, replicas, &fault) else {
        eprintln!("no WORLD={world} with PROFILE={profile} and FAULT={fault}");
        return ExitCode::FAILURE;
    };
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    plan.seed = setting("SEED").parse().unwrap_or(now);
    plan.time = Duration::from_secs(seconds);
    let names = setting("KIND");
    if !names.is_empty() {
        let is_wanted = |kind: &Kind| names.split(',').any(|name| name == format!("{kind:?}"));
        plan.kinds.retain(is_wanted);
        if plan.kinds.is_empty() {
            eprintln!("KIND={names}: there are {:?}", Kind::ALL);
            return ExitCode::FAILURE;
        }
    }
    let setups = setting("SETUPS").parse().unwrap_or(SETUPS);
    println!(
        "failover: {:?} of {}, profile {profile}, replicas {}, fault {fault:?}, seed {}, {setups} set-ups, {seconds} s",
        plan.world,
        dlock_testing::Binary::default().path(),
        plan.replicas,
        plan.seed,
    );
    net::delete_leftovers();
    end_at_ctrl_c();
    // Its build takes a minute, which would count as time of the run.
    dlock_testing::module_path(dlock_testing::Profile::Dev);
    let (found, is_complete) = run(&plan, setups);
    report::print(&found);
    let has = |rule| found.of(rule).next().is_some();
    let is_fine = match (profile, plan.is_planted) {
        (_, true) => has(Rule::Overlap),
        ("holds", _) => {
            let is_served = found.outages.iter().all(|outage| outage.recovery > 0);
            let rules = [Rule::Overlap, Rule::TokenOrder, Rule::RefusedWrite];
            let is_complete = plan.world == World::Sentinel && plan.replicas as usize == HOSTS - 1;
            let is_kept = !is_complete || !has(Rule::LostHold);
            is_served && is_kept && !rules.into_iter().any(has)
        }
        _ => true,
    };
    if is_fine && is_complete { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Runs all set-ups; false if one could not go on.
fn run(plan: &Plan, setups: usize) -> (Verdicts, bool) {
    let start = Instant::now();
    let mut found = Verdicts::default();
    let mut is_complete = true;
    thread::scope(|scope| {
        let run = |n| scope.spawn(move || run_setup(plan, n, start));
        let runs: Vec<_> = (0..setups).map(run).collect();
        for run in runs {
            match run.join() {
                Ok(verdicts) => found.merge(verdicts),
                Err(_) => is_complete = false,
            }
        }
    });
    (found, is_complete)
}

fn run_setup(plan: &Plan, n: usize, start: Instant) -> Verdicts {
    let folder = new_folder(&format!("failover-{}-{n}", plan.seed));
    let mut nemesis = Nemesis::start(plan, n, &folder);
    while start.elapsed() < plan.time && !IS_OVER.load(Ordering::SeqCst) {
        nemesis.episode(&plan.kinds);
        if plan.is_planted && has_overlap(&folder) {
            println!("the first overlap: after {:?}, in set-up {n}", start.elapsed());
            IS_OVER.store(true, Ordering::SeqCst);
        }
    }
    nemesis.finish();
    judge::judge(&History::read(&folder))
}

fn has_overlap(folder: &Path) -> bool {
    judge::judge(&History::read(folder)).of(Rule::Overlap).next().is_some()
}

fn new_folder(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    // There is none, as a rule.
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).expect("a folder below the target folder");
    folder
}

/// The first Ctrl-C ends the run as its time does, so that nothing is left behind.
fn end_at_ctrl_c() {
    thread::spawn(|| {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let _ = runtime.expect("a runtime").block_on(tokio::signal::ctrl_c());
        IS_OVER.store(true, Ordering::SeqCst);
    });
}

/// Nanoseconds of `CLOCK_MONOTONIC`, which all processes of the machine share.
fn monotonic() -> Nanos {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    let nanos = now.tv_sec * 1_000_000_000 + now.tv_nsec;
    u64::try_from(nanos).expect("a time after the start of the machine")
}

/// Polls until `condition` holds; ends the run, naming `what`, after a minute.
fn wait_for(what: &str, mut condition: impl FnMut() -> bool) {
    let start = Instant::now();
    while !condition() {
        assert!(start.elapsed() < HEALS, "waited {HEALS:?} in vain for: {what}");
        thread::park_timeout(POLL);
    }
}
