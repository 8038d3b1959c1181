//! Fifty connections that take random sets of locks in random order.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use super::{call_for, locks_of, owner_of, owners_at_once, some_of, stream::grant, tokens};
use crate::{
    args,
    storm::{Meddling, Rounds, Storm, Worker, assert_happened},
    support::{Client, Dice, ReplicaTap, Reply, Server},
};

const LOCKS: u64 = 30;
const CONNECTIONS: usize = 50;

/// A call for several locks that was granted.
struct Granted {
    /// The order of arrival at the server.
    arrival: i64,
    owner: String,
    tokens: Vec<i64>,
}

/// What a connection remembers.
#[derive(Default)]
struct Notes {
    granted: Vec<Granted>,
    longest_wait: Duration,
}

/// Random sets of locks.
struct Sets {
    /// Calls time out, connections are killed, leases end; some calls want one lock, or any.
    is_ruthless: bool,
}

impl Rounds for Sets {
    type Notes = Notes;

    fn round(&self, worker: &mut Worker<'_, Notes>, name: &str) -> usize {
        let before = worker.notes.granted.len();
        match if self.is_ruthless { worker.dice.below(20) } else { 20 } {
            0 => die(worker, name),
            1 => take_any(worker, name),
            what => self.take_all(worker, name, what),
        }
        worker.notes.granted.len() - before
    }
}

impl Sets {
    fn take_all(&self, worker: &mut Worker<'_, Notes>, name: &str, what: u64) {
        let fewest = if what < 5 { 1 } else { 2 };
        let owner = owner_of(name, &some_of(&mut worker.dice, LOCKS, fewest, 20));
        let (lease, block) = match what {
            5..8 => (60_000, 1 + worker.dice.below(30)),
            8..11 => (1 + worker.dice.below(10), 0),
            _ => (60_000, 0),
        };
        let mut call = call_for("DLOCK.MACQUIRE", &owner);
        call.extend(args!["PX", lease, "BLOCK", block]);
        // Both arrive in one piece, so the count gives the order in which the calls arrived.
        let sent = Instant::now();
        let replies = worker.main.pipeline(&[args!["INCR", "arrivals"], call]);
        worker.notes.longest_wait = worker.notes.longest_wait.max(sent.elapsed());
        let arrival = replies[0].int();
        if block > 0 && replies[1].is_null() {
            return;
        }
        let tokens = tokens(&replies[1]);
        let count = tokens.len();
        worker.notes.granted.push(Granted { arrival, owner: owner.clone(), tokens });
        worker.pause(1_500);
        let released = worker.main.cmd(&call_for("DLOCK.MRELEASE", &owner)).int();
        if !self.is_ruthless {
            assert_eq!(usize::try_from(released), Ok(count), "{owner}");
        }
    }
}

/// One lock of several, no matter which.
fn take_any(worker: &mut Worker<'_, Notes>, name: &str) {
    let locks = owner_of(name, &some_of(&mut worker.dice, LOCKS, 2, 20));
    let mut call = call_for("DLOCK.ANYACQUIRE", &locks);
    *call.last_mut().expect("the owner") = name.as_bytes().to_vec();
    call.extend(args!["PX", 60_000, "BLOCK", 50]);
    let reply = worker.main.cmd(&call);
    if !reply.is_null() {
        // It may have been broken or deleted meanwhile.
        worker.main.cmd(&args!["DLOCK.RELEASE", reply.items()[0].text(), name]);
    }
}

/// Sends a request, and is killed.
fn die(worker: &mut Worker<'_, Notes>, name: &str) {
    let owner = owner_of(name, &some_of(&mut worker.dice, LOCKS, 2, 20));
    let mut call = call_for("DLOCK.MACQUIRE", &owner);
    call.extend(args!["PX", 60_000, "BLOCK", 0]);
    for reply in worker.ask(&call, Meddling::Kill) {
        assert!(!tokens(&reply).is_empty());
        worker.second.cmd(&call_for("DLOCK.MRELEASE", &owner)).int();
    }
}

/// Breaks, deletes or expires a lock with a holder and waiters.
fn trample(client: &mut Client, dice: &mut Dice) {
    let key = format!("k{}", dice.below(LOCKS));
    match dice.below(4) {
        0 | 1 => client.cmd(&["DLOCK.BREAK", &key]).int(),
        2 => client.cmd(&["DEL", &key]).int(),
        _ => client.cmd(&["PEXPIRE", &key, "1"]).int(),
    };
}

/// From the replication stream: every grant of several locks is one transaction.
#[derive(Default)]
struct History {
    /// The grants of the transaction that has begun.
    open: Option<BTreeMap<String, Vec<u64>>>,
    /// Number of granted calls.
    count: usize,
    last: u64,
}

impl History {
    fn go_on(&mut self, commands: &[Vec<Vec<u8>>]) {
        for command in commands {
            match &command[0][..] {
                b"MULTI" => self.open = Some(BTreeMap::new()),
                b"EXEC" => {
                    let step = self.open.take().expect("a transaction that has begun");
                    self.check(step);
                }
                _ => {
                    let Some((key, owner, token)) = grant(command) else { continue };
                    assert!(token > self.last, "token {token} came after {}", self.last);
                    self.last = token;
                    let lock = key[1..].parse().expect("the number of a lock");
                    if let Some(open) = &mut self.open {
                        open.entry(owner).or_default().push(lock);
                    } else {
                        self.check(BTreeMap::from([(owner, vec![lock])]));
                    }
                }
            }
        }
    }

    fn check(&mut self, step: BTreeMap<String, Vec<u64>>) {
        for (owner, mut got) in step {
            self.count += 1;
            let mut wanted = locks_of(&owner);
            if wanted.is_empty() {
                assert_eq!(got.len(), 1, "{owner} wants any one, and got {got:?}");
                continue;
            }
            wanted.sort_unstable();
            got.sort_unstable();
            assert_eq!(got, wanted, "{owner} got a part in one step");
        }
    }
}

/// Of any two calls with a common lock, the first to arrive was granted first.
fn assert_no_overtaking(granted: &[Granted]) {
    let mut by_lock: BTreeMap<u64, Vec<(i64, i64, &str)>> = BTreeMap::new();
    for Granted { arrival, owner, tokens } in granted {
        for (lock, token) in locks_of(owner).into_iter().zip(tokens) {
            by_lock.entry(lock).or_default().push((*arrival, *token, owner));
        }
    }
    for (lock, mut grants) in by_lock {
        grants.sort_unstable();
        for pair in grants.windows(2) {
            assert!(pair[0].1 < pair[1].1, "k{lock}: {} overtook {}", pair[1].2, pair[0].2);
        }
    }
}

pub fn storm(lasts: Duration, seed: u64, is_ruthless: bool) {
    let server = Server::start();
    let replica = Server::with(&[]).replica_of(&server).start();
    let mut tap = ReplicaTap::attach(&server);
    let mut history = History::default();
    let mut samples = 0;
    let (mut client, mut dice) = (server.client(), Dice::new(seed + 1));
    let storm = Storm { server: &server, seed, workers: CONNECTIONS, lasts, enough: 300 };
    let results = storm.blow(&Sets { is_ruthless }, || {
        history.go_on(&tap.commands(&server));
        if is_ruthless {
            trample(&mut client, &mut dice);
        } else {
            let owners = owners_at_once(&server, LOCKS);
            samples += usize::from(owners.iter().any(|owner| !owner.is_empty()));
        }
    });
    history.go_on(&tap.commands(&server));
    for (n, notes) in results.iter().enumerate() {
        assert!(!notes.granted.is_empty(), "connection {n} got nothing at all");
    }
    let longest = results.iter().map(|notes| notes.longest_wait).max().unwrap_or_default();
    let granted: Vec<Granted> = results.into_iter().flat_map(|notes| notes.granted).collect();
    println!("{} grants, the longest wait {longest:.1?}, {samples} looks", granted.len());
    assert!(is_ruthless || samples >= 10, "only {samples} looks at locks that were held");
    assert!(history.count >= granted.len(), "{} were told to the replica", history.count);
    assert_no_overtaking(&granted);
    assert_eq!(server.info_number("dlock", "deadlocks_refused"), 0);
    if is_ruthless {
        let outcomes = ["timeouts", "expiries", "broken", "grants_after_waiting"];
        assert_happened(&server, &outcomes);
    }
    let kept = server.cmd(&call_for("DLOCK.MACQUIRE", &owner_of("kept", &[3, 1, 2])));
    assert_eq!(tokens(&kept).len(), 3);
    server.wait_replica_synced(&replica);
    assert_eq!(server.digest(), replica.digest());
    server.cmd(&["FLUSHALL"]).ok();
    server.left_over_check();
}

#[test]
fn fifty_connections_take_random_sets() {
    storm(Duration::from_millis(2_500), 5, false);
}

#[test]
fn fifty_connections_while_locks_break_and_connections_die() {
    storm(Duration::from_millis(2_500), 6, true);
}

#[test]
#[ignore = "soak"]
fn soak_a_minute_of_random_sets() {
    storm(Duration::from_mins(1), 17, false);
    storm(Duration::from_mins(1), 18, true);
}
