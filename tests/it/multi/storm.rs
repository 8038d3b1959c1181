//! Fifty connections that take random sets of locks in random order.

use std::{
    collections::BTreeMap,
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
    sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed},
    thread,
    time::{Duration, Instant},
};

use super::{call_for, locks_of, owner_of, owners_at_once, some_of, stream::grant, tokens};
use crate::{
    args,
    support::{Client, Dice, Heard, LIMIT, ReplicaTap, Reply, Server},
};

const LOCKS: u64 = 30;
const CONNECTIONS: usize = 50;
/// Minimum number of grants. On a busy machine the storm goes on until then.
const ENOUGH: usize = 300;

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

/// A connection for requests, and a second one that kills it.
struct Worker<'a> {
    server: &'a Server,
    number: usize,
    /// Calls time out, connections are killed, leases end; some calls want one lock, or any.
    is_ruthless: bool,
    dice: Dice,
    main: Client,
    second: Client,
    notes: Notes,
}

impl Worker<'_> {
    fn work(mut self, stop: &AtomicBool, granted: &AtomicUsize) -> Notes {
        let mut round = 0;
        while !stop.load(Relaxed) {
            let name = format!("w{}.{round}", self.number);
            let before = self.notes.granted.len();
            match if self.is_ruthless { self.dice.below(20) } else { 20 } {
                0 => self.die(&name),
                1 => self.take_any(&name),
                what => self.take_all(&name, what),
            }
            granted.fetch_add(self.notes.granted.len() - before, Relaxed);
            // A blocked call gets exactly one reply: the next reply is that to the next call.
            assert_eq!(self.main.cmd(&["ECHO", &name]).text(), name);
            round += 1;
        }
        self.notes
    }

    /// A pause of random length.
    fn pause(&mut self, most_us: u64) {
        thread::sleep(Duration::from_micros(self.dice.below(most_us)));
    }

    fn take_all(&mut self, name: &str, what: u64) {
        let fewest = if what < 5 { 1 } else { 2 };
        let owner = owner_of(name, &some_of(&mut self.dice, LOCKS, fewest, 20));
        let (lease, block) = match what {
            5..8 => (60_000, 1 + self.dice.below(30)),
            8..11 => (1 + self.dice.below(10), 0),
            _ => (60_000, 0),
        };
        let mut call = call_for("DLOCK.MACQUIRE", &owner);
        call.extend(args!["PX", lease, "BLOCK", block]);
        // Both arrive in one piece, so the count gives the order in which the calls arrived.
        let sent = Instant::now();
        let replies = self.main.pipeline(&[args!["INCR", "arrivals"], call]);
        self.notes.longest_wait = self.notes.longest_wait.max(sent.elapsed());
        let arrival = replies[0].int();
        if block > 0 && replies[1].is_null() {
            return;
        }
        let tokens = tokens(&replies[1]);
        let count = tokens.len();
        self.notes.granted.push(Granted { arrival, owner: owner.clone(), tokens });
        self.pause(1_500);
        let released = self.main.cmd(&call_for("DLOCK.MRELEASE", &owner)).int();
        if !self.is_ruthless {
            assert_eq!(usize::try_from(released), Ok(count), "{owner}");
        }
    }

    /// One lock of several, no matter which.
    fn take_any(&mut self, name: &str) {
        let locks = owner_of(name, &some_of(&mut self.dice, LOCKS, 2, 20));
        let mut call = call_for("DLOCK.ANYACQUIRE", &locks);
        *call.last_mut().expect("the owner") = name.as_bytes().to_vec();
        call.extend(args!["PX", 60_000, "BLOCK", 50]);
        let reply = self.main.cmd(&call);
        if !reply.is_null() {
            // It may have been broken or deleted meanwhile.
            self.main.cmd(&args!["DLOCK.RELEASE", reply.items()[0].text(), name]);
        }
    }

    /// Sends a request, and is killed.
    fn die(&mut self, name: &str) {
        let owner = owner_of(name, &some_of(&mut self.dice, LOCKS, 2, 20));
        let mut call = call_for("DLOCK.MACQUIRE", &owner);
        call.extend(args!["PX", 60_000, "BLOCK", 0]);
        self.main.send(&call);
        self.pause(4_000);
        let id = self.main.id().to_string();
        self.second.cmd(&["CLIENT", "KILL", "ID", &id]).ok();
        if let Heard::Reply(reply) = self.main.hear(LIMIT) {
            assert!(!tokens(&reply).is_empty());
            self.second.cmd(&call_for("DLOCK.MRELEASE", &owner)).int();
        }
        self.main.expect_closed();
        self.main = self.server.client();
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

/// Lets the connections work, and runs `meanwhile` all the time beside them. Returns what they noted.
fn blow(
    server: &Server,
    seed: u64,
    lasts: Duration,
    is_ruthless: bool,
    mut meanwhile: impl FnMut(),
) -> Vec<Notes> {
    println!("seed {seed}");
    let (stop, granted) = (&AtomicBool::new(false), &AtomicUsize::new(0));
    let worker = |number| Worker {
        server,
        number,
        is_ruthless,
        dice: Dice::new((seed << 16) + number as u64 + 1),
        main: server.client(),
        second: server.client(),
        notes: Notes::default(),
    };
    let start = Instant::now();
    let notes = thread::scope(|scope| {
        let workers: Vec<_> = (0..CONNECTIONS)
            .map(worker)
            .map(|worker| scope.spawn(move || worker.work(stop, granted)))
            .collect();
        let went = catch_unwind(AssertUnwindSafe(|| {
            while start.elapsed() < lasts
                || granted.load(Relaxed) < ENOUGH && start.elapsed() < lasts + LIMIT
            {
                if workers.iter().any(thread::ScopedJoinHandle::is_finished) {
                    break;
                }
                meanwhile();
                thread::sleep(Duration::from_millis(2));
            }
        }));
        stop.store(true, Relaxed);
        let ended = workers.into_iter().map(thread::ScopedJoinHandle::join);
        let notes = ended.map(|notes| notes.unwrap_or_else(|panic| resume_unwind(panic))).collect();
        went.unwrap_or_else(|panic| resume_unwind(panic));
        notes
    });
    let granted = granted.load(Relaxed);
    assert!(granted >= ENOUGH, "only {granted} grants");
    notes
}

fn storm(lasts: Duration, seed: u64, is_ruthless: bool) {
    let server = Server::start();
    let replica = Server::with(&[]).replica_of(&server).start();
    let mut tap = ReplicaTap::attach(&server);
    let mut history = History::default();
    let mut samples = 0;
    let (mut client, mut dice) = (server.client(), Dice::new(seed + 1));
    let results = blow(&server, seed, lasts, is_ruthless, || {
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
        let info = server.info("dlock");
        for outcome in ["timeouts", "expiries", "broken", "grants_after_waiting"] {
            assert_ne!(info[outcome], "0", "{outcome} did not happen: {info:?}");
        }
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
