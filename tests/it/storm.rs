//! Storms: many connections over few keys, whose waiting calls are interfered with in every way. The driver knows no
//! family: what a worker asks for, and what must be true of the answers, is in [`Rounds`].

use std::{
    collections::BTreeMap,
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
    sync::{
        Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed},
    },
    thread,
    time::{Duration, Instant},
};

use redis::Value;

use crate::{
    args,
    support::{Client, Dice, Heard, Kind, LIMIT, Reply, Server, wait_until},
};

/// A lease that does not end during a storm.
pub const LONG: u64 = 20_000;

/// A storm over a server.
pub struct Storm<'a> {
    pub server: &'a Server,
    pub seed: u64,
    pub workers: usize,
    pub lasts: Duration,
    /// Minimum number of grants. On a busy machine the storm goes on until then.
    pub enough: usize,
}

/// What the workers of a storm do.
pub trait Rounds: Sync {
    /// What a worker remembers.
    type Notes: Default + Send;

    /// One attempt. Returns the number of grants.
    fn round(&self, worker: &mut Worker<'_, Self::Notes>, name: &str) -> usize;
}

/// One of the workers: a connection for requests, and a second one that interferes.
pub struct Worker<'a, Notes> {
    pub server: &'a Server,
    pub number: usize,
    pub dice: Dice,
    pub main: Client,
    pub second: Client,
    pub notes: Notes,
}

/// How a waiting call is interfered with.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Meddling {
    Not,
    /// The server unblocks it: with its own command, or with that of the module.
    Unblock(&'static [&'static str]),
    Repeat,
    Kill,
    /// The client closes the connection.
    GiveUp,
}

impl Meddling {
    pub fn pick(dice: &mut Dice) -> Meddling {
        match dice.below(20) {
            0 => Meddling::Unblock(&["DLOCK.UNBLOCK", "ERROR"]),
            1 => Meddling::Unblock(&["DLOCK.UNBLOCK"]),
            2 if Kind::of_binary().client_unblock_is_safe() => {
                Meddling::Unblock(dice.pick(&[&["CLIENT UNBLOCK"], &["CLIENT UNBLOCK", "ERROR"]]))
            }
            3 | 4 => Meddling::Repeat,
            5..8 => Meddling::Kill,
            8 => Meddling::GiveUp,
            _ => Meddling::Not,
        }
    }

    /// The client may never learn of the grant.
    pub fn may_lose_the_answer(self) -> bool {
        matches!(self, Meddling::Kill | Meddling::GiveUp)
    }
}

/// Least number of times that a storm is looked at.
const MEANWHILE: usize = 20;

impl Storm<'_> {
    /// Runs the storm, and `meanwhile` again and again beside it, at least [`MEANWHILE`] times. Returns what the
    /// workers noted.
    pub fn blow<R: Rounds>(&self, rounds: &R, mut meanwhile: impl FnMut()) -> Vec<R::Notes> {
        println!("seed {}", self.seed);
        let (stop, granted) = (&AtomicBool::new(false), &AtomicUsize::new(0));
        let mut times = 0;
        let notes = thread::scope(|scope| {
            let workers: Vec<_> = (0..self.workers)
                .map(|number| self.worker(number))
                .map(|worker| scope.spawn(move || worker.work(rounds, stop, granted)))
                .collect();
            // The connections of so large a crowd take a while on a busy machine.
            let start = Instant::now();
            let went = catch_unwind(AssertUnwindSafe(|| {
                while start.elapsed() < self.lasts
                    || (granted.load(Relaxed) < self.enough || times < MEANWHILE)
                        && start.elapsed() < self.lasts + LIMIT
                {
                    if workers.iter().any(thread::ScopedJoinHandle::is_finished) {
                        break;
                    }
                    meanwhile();
                    times += 1;
                    thread::sleep(Duration::from_millis(2));
                }
            }));
            stop.store(true, Relaxed);
            let ended = workers.into_iter().map(thread::ScopedJoinHandle::join);
            let notes =
                ended.map(|notes| notes.unwrap_or_else(|panic| resume_unwind(panic))).collect();
            went.unwrap_or_else(|panic| resume_unwind(panic));
            notes
        });
        let granted = granted.load(Relaxed);
        assert!(granted >= self.enough, "only {granted} grants");
        assert!(times >= MEANWHILE, "only {times} looks from outside");
        notes
    }

    fn worker<N: Default>(&self, number: usize) -> Worker<'_, N> {
        Worker {
            server: self.server,
            number,
            dice: Dice::new((self.seed << 16) + number as u64 + 1),
            main: self.server.client(),
            second: self.server.client(),
            notes: N::default(),
        }
    }
}

impl<Notes> Worker<'_, Notes> {
    fn work<R>(mut self, rounds: &R, stop: &AtomicBool, granted: &AtomicUsize) -> Notes
    where
        R: Rounds<Notes = Notes>,
    {
        let mut round = 0;
        while !stop.load(Relaxed) {
            let name = format!("w{}.{round}", self.number);
            granted.fetch_add(rounds.round(&mut self, &name), Relaxed);
            // A blocked call gets exactly one reply: the next reply is that to the next call.
            assert_eq!(self.main.cmd(&["ECHO", &name]).text(), name);
            round += 1;
        }
        self.notes
    }

    /// A pause of random length.
    pub fn pause(&mut self, most_us: u64) {
        thread::sleep(Duration::from_micros(self.dice.below(most_us)));
    }

    /// Closes the connection for requests, and opens another.
    pub fn hang_up(&mut self) {
        self.main = self.server.client();
    }

    /// Makes a call that may wait, and interferes with it. Returns its reply, if any, and that to a repeat over the
    /// second connection.
    pub fn ask(&mut self, call: &[Vec<u8>], meddling: Meddling) -> Vec<Value> {
        self.main.send(call);
        self.pause(4_000);
        let id = self.main.id().to_string();
        match meddling {
            Meddling::Not => {}
            Meddling::Unblock(how) => {
                let mut call: Vec<&str> = how[0].split(' ').collect();
                call.push(&id);
                call.extend(&how[1..]);
                self.second.cmd(&call).ok();
            }
            Meddling::Repeat => {
                let again = self.second.cmd(call);
                return vec![self.main.reply(LIMIT), again];
            }
            Meddling::Kill => {
                self.second.cmd(&["CLIENT", "KILL", "ID", &id]).ok();
                let answered = match self.main.hear(LIMIT) {
                    Heard::Reply(reply) => vec![reply],
                    _ => Vec::new(),
                };
                self.main.expect_closed();
                self.hang_up();
                return answered;
            }
            Meddling::GiveUp => {
                self.hang_up();
                return Vec::new();
            }
        }
        vec![self.main.reply(LIMIT)]
    }
}

/// Whether the reply is a grant. Any other must be possible for a call in a storm.
#[track_caller]
pub fn is_grant(reply: &Value, other_errors: &[&str]) -> bool {
    match reply {
        Value::Int(_) | Value::BulkString(_) => true,
        Value::Nil => false,
        other => {
            let error = other.error();
            let possible = ["STOPPED ", "UNBLOCKED ", "MOVING ", "REPLACED "];
            let mut possible = possible.iter().chain(other_errors);
            assert!(possible.any(|code| error.starts_with(code)), "{error}");
            false
        }
    }
}

/// An owner and a mode.
type Holder = (String, &'static str);

/// The certain holds on one key, and until when: from the reply until the end of a lease that began with the request.
pub struct Certain {
    /// How much all holds together may take.
    capacity: u64,
    /// How much each takes, and its end.
    holds: Mutex<BTreeMap<Holder, (u64, Instant)>>,
}

impl Certain {
    pub fn new(capacity: u64) -> Certain {
        Certain { capacity, holds: Mutex::default() }
    }

    /// A new hold, which must have room beside those of all other owners.
    #[track_caller]
    pub fn add(&self, owner: &str, mode: &'static str, takes: u64, until: Instant) {
        let now = Instant::now();
        if now >= until {
            return;
        }
        let mut holds = self.holds.lock().unwrap();
        let others = holds.iter().filter(|((other, _), (_, end))| other != owner && *end > now);
        let beside: u64 = others.map(|(_, (takes, _))| takes).sum();
        assert!(beside + takes <= self.capacity, "{owner} {mode}, beside {holds:?}");
        holds.insert((owner.to_owned(), mode), (takes, until));
    }

    /// From now on it is no longer certain that this owner holds it, in these modes.
    pub fn forget(&self, owner: &str, modes: &[&str]) {
        let mut holds = self.holds.lock().unwrap();
        holds.retain(|(other, mode), _| other != owner || !modes.contains(mode));
    }
}

/// The storm had what makes it one.
#[track_caller]
pub fn assert_happened(server: &Server, outcomes: &[&str]) {
    let info = server.info("dlock");
    for outcome in outcomes {
        assert_ne!(info[*outcome], "0", "{outcome} did not happen: {info:?}");
    }
}

/// Waits until the replica has the same data.
#[track_caller]
pub fn assert_replica_is_equal(server: &Server, replica: &Server) {
    // Otherwise there may be nothing to compare.
    server.cmd(&args!["DLOCK.ACQUIRE", "left", "for the comparison", "PX", LONG]).int();
    wait_until("the replica to be equal", || {
        server.wait_replica_synced(replica);
        server.digest() == replica.digest()
    });
    server.cmd(&["DEL", "left"]).ok();
}
