//! Many connections that use locks at random, and record their replies.

#![allow(clippy::panic, reason = "a test that cannot go on stops here and says why")]

use std::{
    collections::BTreeMap,
    ops::Range,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread::{self, JoinHandle},
};

use redis::{Value, cmd};

use crate::support::{Dice, Family, Server, wait_until};

/// The mix of calls.
#[derive(Clone, Debug)]
pub struct Mix {
    /// The family of the commands.
    pub family: Family,
    /// Connections, one owner each.
    pub connections: u64,
    /// Locks that they share.
    pub keys: u64,
    /// Leases, in milliseconds.
    pub lease_ms: Range<u64>,
    /// Sometimes any lock is broken, deleted, renamed or expired: then no connection can rely on its replies.
    pub ruthless: bool,
}

/// A connection's knowledge of its own hold.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Claim {
    /// The last token it was answered.
    pub token: i64,
    /// The ids of its granted requests, oldest first: each is one count of the hold.
    pub ids: Vec<String>,
    /// The request that was released last, and the reply.
    pub released: Option<(String, i64)>,
}

impl Claim {
    /// The count of the hold.
    pub fn holds(&self) -> i64 {
        self.ids.len().cast_signed() as i64
    }
}

/// A call that was sent and not answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pending {
    pub key: String,
    pub verb: Verb,
    /// The id of the ACQUIRE, which RELEASE names, too.
    pub id: String,
}

/// The request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verb {
    Acquire,
    Release,
    Renew,
    Fence,
}

/// Final knowledge of one connection.
#[derive(Clone, Debug, Default)]
pub struct Account {
    pub owner: String,
    /// Its holds by key, from the replies.
    pub claims: BTreeMap<String, Claim>,
    /// The ids of requests that may still have a place, by key: the owner sends copies of them.
    pub places: BTreeMap<String, String>,
    /// The call that the end of the server cut off.
    pub pending: Option<Pending>,
    /// The largest token it was answered.
    pub largest: i64,
}

/// Work of one connection.
pub trait Work: Send + 'static {
    /// Its final knowledge.
    type Account: Send + 'static;

    /// Makes a call and records the reply.
    fn step(&mut self) -> Result<(), Gone>;

    /// Its knowledge.
    fn into_account(self) -> Self::Account;
}

/// The server is gone.
pub struct Gone;

/// The connections at work.
pub struct Workload<A = Account> {
    stop: Arc<AtomicBool>,
    answers: Arc<AtomicU64>,
    threads: Vec<JoinHandle<A>>,
}

impl Workload {
    /// Starts connections that use locks.
    pub fn start(server: &Server, mix: &Mix, seed: u64) -> Workload {
        let worker = |n| Worker {
            connection: server.conn(),
            dice: Dice::new(seed ^ (n + 1) << 32),
            mix: mix.clone(),
            calls: 0,
            account: Account { owner: format!("owner{n}"), ..Account::default() },
        };
        Workload::run((0..mix.connections).map(worker))
    }
}

impl<A: Send + 'static> Workload<A> {
    /// Starts the workers.
    pub fn run<W: Work<Account = A>>(workers: impl Iterator<Item = W>) -> Workload<A> {
        let (stop, answers) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let threads = workers.map(|mut worker| {
            let (stop, answers) = (stop.clone(), answers.clone());
            thread::spawn(move || {
                while !stop.load(Ordering::Relaxed) && worker.step().is_ok() {
                    answers.fetch_add(1, Ordering::Relaxed);
                }
                worker.into_account()
            })
        });
        let threads = threads.collect();
        Workload { stop, answers, threads }
    }

    /// Waits for `more` further replies.
    #[track_caller]
    pub fn wait_answers(&self, more: u64) {
        let enough = self.answers.load(Ordering::Relaxed) + more;
        wait_until("the workload to go on", || self.answers.load(Ordering::Relaxed) >= enough);
    }

    /// Lets each connection end its call, and returns their knowledge. Also ends when the server stops.
    #[track_caller]
    pub fn stop(self) -> Vec<A> {
        self.stop.store(true, Ordering::Relaxed);
        let account = |thread: JoinHandle<A>| match thread.join() {
            Ok(account) => account,
            Err(failure) => std::panic::resume_unwind(failure),
        };
        self.threads.into_iter().map(account).collect()
    }
}

struct Worker {
    connection: redis::Connection,
    dice: Dice,
    mix: Mix,
    calls: u64,
    account: Account,
}

impl Work for Worker {
    type Account = Account;

    fn into_account(self) -> Account {
        self.account
    }

    fn step(&mut self) -> Result<(), Gone> {
        let key = format!("key{}", self.dice.below(self.mix.keys));
        if self.mix.ruthless && self.dice.below(12) == 0 {
            return self.trample(&key);
        }
        let verb = match (self.account.claims.contains_key(&key), self.dice.below(10)) {
            (false, _) | (true, 0..=2) => Verb::Acquire,
            (true, 3..=6) => Verb::Release,
            (true, 7..=8) => Verb::Renew,
            (true, _) => Verb::Fence,
        };
        let id = self.id(verb, &key);
        self.account.pending = Some(Pending { key: key.clone(), verb, id: id.clone() });
        let answer = self.ask(verb, &key, &id)?;
        self.account.pending = None;
        self.take_note(verb, key, id, answer);
        Ok(())
    }
}

impl Worker {
    /// The id of a call: RELEASE names any granted request, ACQUIRE repeats one that may have a place.
    fn id(&mut self, verb: Verb, key: &str) -> String {
        let Account { claims, places, owner, .. } = &self.account;
        let ids = claims.get(key).map_or(&[][..], |claim| &claim.ids);
        if verb == Verb::Release && !ids.is_empty() {
            return ids[self.dice.index(ids.len())].clone();
        }
        self.calls += 1;
        let place = places.get(key).filter(|_| verb == Verb::Acquire);
        place.cloned().unwrap_or_else(|| format!("{owner}-{}", self.calls))
    }

    fn ask(&mut self, verb: Verb, key: &str, id: &str) -> Result<Result<Value, String>, Gone> {
        let mut call = self.command(match verb {
            Verb::Acquire => "ACQUIRE",
            Verb::Release => "RELEASE",
            Verb::Renew => "RENEW",
            Verb::Fence => "FENCE",
        });
        call.arg(key).arg(&self.account.owner);
        let span = &self.mix.lease_ms;
        let lease = span.start + self.dice.below(span.end - span.start);
        match verb {
            Verb::Acquire => {
                call.arg("PX").arg(lease).arg("REQID").arg(id);
                match self.dice.below(6) {
                    0..=2 => call.arg("BLOCK").arg(1 + self.dice.below(40)),
                    3 => call.arg("QUEUE").arg(500),
                    4 => call.arg("LABEL").arg(format!("label of {id}")),
                    _ => call.arg("NOTIFY").arg(format!("channel of {id}")),
                };
            }
            Verb::Release => {
                call.arg("REQID").arg(id);
            }
            Verb::Renew => {
                call.arg("PX").arg(lease);
            }
            Verb::Fence => {
                let token = self.account.claims.get(key).map_or(0, |claim| claim.token);
                call.arg(token + i64::try_from(self.dice.below(3)).unwrap_or(0));
            }
        }
        answer(call.query(&mut self.connection))
    }

    fn command(&self, verb: &str) -> redis::Cmd {
        cmd(&format!("{}.{verb}", self.mix.family.name()))
    }

    /// Interference of an operator with any lock.
    fn trample(&mut self, key: &str) -> Result<(), Gone> {
        let other = format!("key{}", self.dice.below(self.mix.keys));
        let call = match self.dice.below(5) {
            0 | 1 => self.command("BREAK").arg(key).clone(),
            2 => cmd("DEL").arg(key).clone(),
            3 => cmd("PEXPIRE").arg(key).arg(20 + self.dice.below(2_000)).clone(),
            // Refused if the key does not exist: that is fine.
            _ => cmd("RENAME").arg(key).arg(other).clone(),
        };
        answer(call.query(&mut self.connection)).map(drop)
    }

    /// Records a reply.
    #[track_caller]
    fn take_note(&mut self, verb: Verb, key: String, id: String, answer: Result<Value, String>) {
        let Account { claims, places, largest, .. } = &mut self.account;
        let earlier = claims.remove(&key);
        if verb == Verb::Acquire {
            places.remove(&key);
        }
        let lost = ["NOTHELD", "LOST", "UNKNOWN", "SPENT"];
        let number = match answer {
            Ok(Value::Int(number)) => number,
            Ok(Value::Nil) if earlier.is_none() || self.mix.ruthless => {
                if verb == Verb::Acquire {
                    places.insert(key, id);
                }
                return;
            }
            Err(text) if self.mix.ruthless && lost.iter().any(|code| text.contains(code)) => return,
            Err(text) if text.contains("DEADLOCK") && (earlier.is_none() || self.mix.ruthless) => {
                return;
            }
            other => panic!("{verb:?} {key} by {}, {earlier:?}: {other:?}", self.account.owner),
        };
        let mut claim = match (verb, earlier) {
            // A grant to an owner that had a hold: it was lost in between.
            (Verb::Acquire, Some(claim)) if self.mix.ruthless && claim.token != number => {
                Claim { token: number, ..Claim::default() }
            }
            (_, claim) => claim.unwrap_or(Claim { token: number, ..Claim::default() }),
        };
        match verb {
            Verb::Acquire => claim.ids.push(id),
            Verb::Release => {
                claim.ids.retain(|open| *open != id);
                claim.released = Some((id, number));
            }
            Verb::Fence => claim.token = number,
            Verb::Renew => {}
        }
        if !self.mix.ruthless {
            let expected = if verb == Verb::Release { claim.holds() } else { claim.token };
            assert_eq!(number, expected, "{verb:?} {key}: {claim:?}");
        }
        *largest = claim.token.max(*largest);
        if verb != Verb::Release || number > 0 {
            claims.insert(key, claim);
        }
    }
}

/// A reply, or what the server refused the call with.
pub fn answer(reply: redis::RedisResult<Value>) -> Result<Result<Value, String>, Gone> {
    match reply {
        Ok(value) => Ok(Ok(value)),
        Err(error) if error.code().is_some() => Ok(Err(error.to_string())),
        Err(_) => Err(Gone),
    }
}
