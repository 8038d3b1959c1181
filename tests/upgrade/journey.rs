//! A group of servers goes to another module and back, under load, with checks at every step.

use std::{
    env,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use dlock_testing::{Profile, Reply as _, Server, module_of_commit, module_path, wait_until};

use crate::{caller::Caller, compare::compare, group::Group, load::Load, standing::Standing};

/// Grants that show that the load goes on.
const GRANTS: usize = 40;

/// The module to upgrade from, which writes and reads level 1 alone.
pub fn former_module() -> PathBuf {
    match env::var("DLOCK_FROM").as_deref() {
        Ok("") | Err(_) => module_path(Profile::Dev).to_owned(),
        Ok(commit) => module_of_commit(commit),
    }
}

/// The load, what stands, and what went wrong.
struct Run {
    caller: Caller,
    load: Load,
    standing: Standing,
    faults: Vec<String>,
    compared: usize,
    different: usize,
    partly: usize,
    restarts: usize,
    gaps: Vec<(String, Duration)>,
}

/// Upgrade, downgrade, upgrade, level 2, restarts and a failover there. Each step is checked.
pub fn journey(server: &str, mut group: Group) {
    let (old, new) = (former_module(), module_path(Profile::NextLevel));
    let addresses = group.addresses();
    let mut run = Run {
        caller: Caller::new(&addresses),
        load: Load::start(&addresses),
        standing: Standing::default(),
        faults: Vec::new(),
        compared: 0,
        different: 0,
        partly: 0,
        restarts: 0,
        gaps: Vec::new(),
    };
    run.check(&group, "before the upgrade");
    run.change(&mut group, new, "upgrade");
    run.change(&mut group, &old, "downgrade");
    run.change(&mut group, new, "second upgrade");

    run.raise_level(&group);
    run.change(&mut group, new, "restarts at level 2");
    run.end(server, &group);
}

/// The level in force.
fn level(server: &Server) -> i64 {
    server.info_number("dlock_keys", "record_level")
}

impl Run {
    /// Replicas first, then a failover, then the former primaries.
    fn change(&mut self, group: &mut Group, module: &Path, what: &str) {
        let replicas_of = |group: &Group| -> Vec<usize> {
            group.shards().into_iter().flat_map(|(_, replicas)| replicas).collect()
        };
        let replicas = replicas_of(group);
        for &replica in &replicas {
            self.restart(group, replica, module, what);
        }
        self.check(group, &format!("{what}: replicas"));
        self.fail_over(group, &format!("{what}: failover"));
        self.check(group, &format!("{what}: failover"));
        for former in replicas_of(group).into_iter().filter(|n| !replicas.contains(n)) {
            self.restart(group, former, module, what);
        }
        self.check(group, &format!("{what}: former primaries"));
    }

    fn restart(&mut self, group: &mut Group, replica: usize, module: &Path, what: &str) {
        self.restarts += 1;
        let start = Instant::now();
        self.partly += usize::from(group.restart_replica(replica, module));
        self.note_gap(start, &format!("{what}: restart of {replica}"));
    }

    fn fail_over(&mut self, group: &Group, what: &str) {
        let start = Instant::now();
        group.fail_over();
        self.note_gap(start, what);
    }

    /// How long the lock with the longest wait was not granted, from `start` until all clients go on.
    fn note_gap(&mut self, start: Instant, what: &str) {
        self.goes_on();
        self.gaps.push((what.to_owned(), self.load.ledger.longest_gap(start)));
    }

    /// Level 2 on every primary; replicas learn of it from the records.
    fn raise_level(&mut self, group: &Group) {
        let levels: Vec<_> = group.servers.iter().map(level).collect();
        assert!(levels.iter().all(|&level| level == 1), "nothing raised it so far: {levels:?}");
        for (primary, _) in group.shards() {
            group.servers[primary].ask("CONFIG SET dlock.record-level 2").ok();
        }
        self.goes_on();
        wait_until("level 2 on all servers", || group.servers.iter().all(|one| level(one) == 2));
        self.check(group, "level 2");
    }

    /// The load goes on; everything stands; primary and replicas are equal.
    fn check(&mut self, group: &Group, what: &str) {
        self.goes_on();
        let faults = self.standing.check(&mut self.caller);
        self.faults.extend(faults.into_iter().map(|fault| format!("{what}: {fault}")));
        self.standing.next_stage(&mut self.caller);
        for (primary, replicas) in group.shards() {
            for replica in replicas {
                let result = compare(&group.servers[primary], &group.servers[replica]);
                self.compared += result.keys;
                self.different += result.different.len();
                let lines = result.different.into_iter();
                self.faults.extend(lines.map(|line| format!("{what}: {line}")));
            }
        }
        for server in &group.servers {
            let refused = server.info_number("dlock", "records_refused");
            if refused > 0 {
                self.faults.push(format!("{what}: {refused} records refused"));
            }
            let log = server.log();
            let refusal = log.lines().find(|line| line.contains("cannot be replayed"));
            self.faults.extend(refusal.map(|line| format!("{what}: {line}")));
        }
    }

    fn goes_on(&self) {
        let before = self.load.ledger.grants();
        wait_until("the load to go on", || self.load.ledger.grants() >= before + GRANTS);
    }

    fn end(mut self, server: &str, group: &Group) {
        let done = self.load.stop();
        assert!(group.servers.iter().all(|server| level(server) == 2), "the level stays");
        self.faults.extend(self.load.ledger.faults());
        println!(
            "{server}, {} servers: {done}; {} of {} restarts resynchronized in part; {} of {} keys differed; {} of {} \
             held locks went to strangers",
            group.servers.len(),
            self.partly,
            self.restarts,
            self.different,
            self.compared,
            self.standing.strangers,
            self.standing.asked
        );
        for (what, gap) in &self.gaps {
            println!("  longest time without a grant of a lock: {} ms, {what}", gap.as_millis());
        }
        let shown = self.faults.len().min(20);
        assert!(
            self.faults.is_empty(),
            "{} faults:\n{}",
            self.faults.len(),
            self.faults[..shown].join("\n")
        );
    }
}
