//! The partition harness: clients that contend for a few locks, while the reply of each of their requests in turn is
//! lost, by a cut, a hole, a stopped server, a dead process. A *turn* is one fault. It begins with the `k`-th request
//! since the turn before; all faults meet request 1, then all meet request 2, and so on.
//!
//! All times are of one monotonic clock, each on the side that favours the client: a belief begins when the harness has
//! heard `granted`, and ends before it asked the `check` that was answered with `held`, or the release that was
//! answered with `released`.

mod client;

use std::{
    collections::{BTreeMap, HashMap, VecDeque},
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use dlock_testing::{Binary, Proxy, Server, Way};

use self::client::Client;

/// Client processes of a session.
const CLIENTS: usize = 3;
/// Between two looks for what is held, and how many after all have ended: dead places of a fair lock take time.
const PAUSE: Duration = Duration::from_millis(15);
const LOOKS: usize = 4_000;

/// A moment since the start.
type At = Duration;

/// What to run.
#[derive(Clone, Debug)]
pub struct Partition {
    /// How many faults.
    pub turns: usize,
    /// The seed of faults and tasks.
    pub seed: u64,
    /// Sessions at a time: each has a server and three client processes.
    pub sessions: usize,
    /// The driver.
    pub command: Vec<String>,
}

#[derive(Debug)]
struct Tally {
    begin: Instant,
    turns: AtomicUsize,
    grants: AtomicUsize,
    findings: AtomicUsize,
    words: Mutex<BTreeMap<String, usize>>,
}

/// Runs it until the first finding, and prints what was found; true if that is nothing.
pub fn partition(plan: &Partition, binary: &Binary) -> bool {
    let [turns, grants, findings] = Default::default();
    let tally = Tally { begin: Instant::now(), turns, grants, findings, words: Mutex::default() };
    let is_complete = thread::scope(|scope| {
        let (plan, tally) = (plan, &tally);
        let run = |n| scope.spawn(move || Session::start(plan, tally, binary, n).run());
        let sessions: Vec<_> = (0..plan.sessions).map(run).collect();
        // Not `all`: each thread is waited for.
        let ends: Vec<_> = sessions.into_iter().map(thread::ScopedJoinHandle::join).collect();
        ends.iter().all(Result::is_ok)
    });
    println!("{:?}", lock(&tally.words));
    let [turns, grants, findings] =
        [tally.turns, tally.grants, tally.findings].map(AtomicUsize::into_inner);
    let seconds = tally.begin.elapsed().as_secs();
    println!(
        "{turns} turns, {grants} grants, {findings} findings, seed {}, {seconds} s",
        plan.seed
    );
    is_complete && findings == 0
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[derive(Clone, Debug)]
struct Belief {
    begin: At,
    end: At,
    /// Tasks that may share a key are one party.
    party: String,
    task: String,
}

/// A server, and clients with a proxy each.
struct Session<'a> {
    plan: &'a Partition,
    tally: &'a Tally,
    n: usize,
    server: Mutex<Server>,
    proxies: Vec<Proxy>,
    beliefs: Mutex<HashMap<String, Vec<Belief>>>,
    log: Mutex<VecDeque<(At, String)>>,
}

impl<'a> Session<'a> {
    fn start(plan: &'a Partition, tally: &'a Tally, binary: &Binary, n: usize) -> Session<'a> {
        let settings = ["appendonly", "yes", "dlock.fair-grace-ms", "500"];
        let server = Server::with(&settings).binary(binary).start();
        let proxies: Vec<_> = (0..CLIENTS).map(|_| Proxy::to(&server)).collect();
        proxies.iter().for_each(Proxy::remember);
        let (server, beliefs, log) = (Mutex::new(server), Mutex::default(), Mutex::default());
        Session { plan, tally, n, server, proxies, beliefs, log }
    }

    fn run(&self) {
        let mut clients: Vec<_> = (0..CLIENTS).map(|n| Client::start(self, n)).collect();
        while !self.is_over() {
            thread::scope(|scope| {
                for client in &mut clients {
                    scope.spawn(move || client.round());
                }
            });
            if self.has_found() {
                return;
            }
            let (server, ended) = (lock(&self.server), self.now());
            let left = || {
                let info = server.info("dlock");
                let fields = ["held_locks", "leased_permits", "waiters_blocked", "waiters_queued"];
                let left = fields.map(|field| info.get(field).cloned().unwrap_or_default());
                left.iter().any(|number| number != "0").then_some(left)
            };
            let mut looks = (0..LOOKS).map(|_| left()).take_while(Option::is_some);
            looks.by_ref().take(LOOKS - 1).for_each(|_| thread::park_timeout(PAUSE));
            if let Some(left) = looks.next().flatten() {
                self.find(ended, &format!("held, permits, blocked, queued at the end: {left:?}"));
            }
        }
    }

    fn now(&self) -> At {
        self.tally.begin.elapsed()
    }

    fn is_over(&self) -> bool {
        let turns = self.tally.turns.load(Ordering::SeqCst);
        turns >= self.plan.turns || self.has_found()
    }

    fn has_found(&self) -> bool {
        self.tally.findings.load(Ordering::SeqCst) > 0
    }

    fn note(&self, text: String) {
        let mut log = lock(&self.log);
        if log.len() == 5_000 {
            log.drain(..1_000);
        }
        log.push_back((self.now(), text));
    }

    /// Shows what happened since shortly before `from`.
    fn find(&self, from: At, what: &str) {
        if self.tally.findings.fetch_add(1, Ordering::SeqCst) > 0 {
            return;
        }
        let from = from.saturating_sub(Duration::from_secs(3));
        let mut lines: Vec<_> = lock(&self.log).iter().cloned().collect();
        for (n, proxy) in self.proxies.iter().enumerate() {
            for frame in proxy.wire() {
                let mark = if frame.way == Way::ToServer { '→' } else { '←' };
                let at = frame.at.saturating_duration_since(self.tally.begin);
                lines.push((at, format!("{n} {mark} {frame}")));
            }
        }
        lines.retain(|(at, _)| *at >= from);
        lines.sort_by_key(|(at, _)| *at);
        for (at, line) in lines {
            println!("  {:7.3} {line}", at.saturating_sub(from).as_secs_f64());
        }
        let (n, seed, after) = (self.n, self.plan.seed, self.now().as_secs());
        println!("FOUND after {after} s, in session {n} of seed {seed}: {what}");
    }

    /// Adds the belief in some keys of which each admits `limit` parties.
    fn believe(&self, keys: &str, limit: usize, belief: &Belief) {
        for key in keys.split(',') {
            let mut all = lock(&self.beliefs);
            let all = all.entry(key.to_owned()).or_default();
            if all.len() == 4_000 {
                all.drain(..2_000);
            }
            all.push(belief.clone());
            let meets = |one: &&Belief| one.begin < belief.end && belief.begin < one.end;
            let met: Vec<&Belief> = all.iter().filter(meets).collect();
            for at in met.iter().map(|one| one.begin.max(belief.begin)) {
                let at_once = met.iter().filter(|one| one.begin <= at && at < one.end);
                let mut by_party: Vec<&Belief> = at_once.copied().collect();
                by_party.sort_by(|one, other| one.party.cmp(&other.party));
                by_party.dedup_by(|one, other| one.party == other.party);
                if by_party.len() > limit {
                    let end = by_party.iter().map(|one| one.end).min().unwrap_or(at);
                    let tasks: Vec<_> = by_party.iter().map(|one| &one.task).collect();
                    self.find(at, &format!("{key} of {tasks:?} for {:?}", end.saturating_sub(at)));
                    return;
                }
            }
        }
    }
}
