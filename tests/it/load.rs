//! Many connections that use all families at random, and record their replies.

mod account;

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread::{self, JoinHandle},
};

use redis::{Value, cmd};

pub use self::account::Account;
use self::account::{Call, What};
use crate::{
    args,
    support::{Dice, Reply, Server, wait_until},
};

/// Number of keys of each kind.
const KEYS: u64 = 5;
/// Initial count of semaphores and latches.
const PERMITS: i64 = 12;
const STEPS: i64 = 1_000_000;

/// The connections at work.
pub struct Load {
    stop: Arc<AtomicBool>,
    answers: Arc<AtomicU64>,
    threads: Vec<JoinHandle<Account>>,
}

/// Starts the connections. If `ruthless`, leases are short, all options are used, and random keys are broken,
/// deleted, renamed or resized: then no connection can rely on its replies.
pub fn start(server: &Server, connections: u64, ruthless: bool, seed: u64) -> Load {
    println!("seed {seed}");
    for n in 0..KEYS {
        server.cmd(&args!["DSEM.INIT", format!("sem{n}"), PERMITS]).int();
        server.cmd(&args!["DLATCH.INIT", format!("latch{n}"), STEPS]).int();
    }
    let address = redis::Client::open(server.url()).unwrap();
    let (stop, answers) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let threads = (0..connections).map(|n| {
        let mut worker = Worker {
            connection: server.conn(),
            address: address.clone(),
            dice: Dice::new(seed ^ (n + 1) << 32),
            owner: format!("owner{n}"),
            ruthless,
            calls: 0,
            last_id: String::new(),
            account: Account::default(),
        };
        let (stop, answers) = (stop.clone(), answers.clone());
        thread::spawn(move || {
            while !stop.load(Ordering::Relaxed) && worker.step().is_ok() {
                answers.fetch_add(1, Ordering::Relaxed);
            }
            worker.account
        })
    });
    let threads = threads.collect();
    Load { stop, answers, threads }
}

impl Load {
    /// Waits for `more` further replies.
    #[track_caller]
    pub fn wait_answers(&self, more: u64) {
        let enough = self.answers.load(Ordering::Relaxed) + more;
        wait_until("the load to go on", || self.answers.load(Ordering::Relaxed) >= enough);
    }

    /// Lets each connection end its call, and returns their knowledge. Also ends when the server stops.
    #[track_caller]
    pub fn stop(self) -> Vec<Account> {
        self.stop.store(true, Ordering::Relaxed);
        let account = |thread: JoinHandle<Account>| match thread.join() {
            Ok(account) => account,
            Err(failure) => std::panic::resume_unwind(failure),
        };
        self.threads.into_iter().map(account).collect()
    }
}

/// The server is gone.
struct Gone;

/// A reply, or what the server refused the call with.
fn answer(reply: redis::RedisResult<Value>) -> Result<Result<Value, String>, Gone> {
    match reply {
        Ok(value) => Ok(Ok(value)),
        Err(error) if error.code().is_some() => Ok(Err(error.to_string())),
        Err(_) => Err(Gone),
    }
}

struct Worker {
    connection: redis::Connection,
    address: redis::Client,
    dice: Dice,
    owner: String,
    ruthless: bool,
    calls: u64,
    /// The last permit that it had.
    last_id: String,
    account: Account,
}

impl Worker {
    /// Makes a call and records the reply.
    fn step(&mut self) -> Result<(), Gone> {
        self.calls += 1;
        let call = self.next_call();
        let mut sent = cmd(std::str::from_utf8(&call.words[0]).unwrap());
        for word in &call.words[1..] {
            sent.arg(word);
        }
        if self.ruthless && self.dice.below(40) == 0 {
            // Disconnects without reading the reply, and reconnects.
            let sent = self.connection.send_packed_command(&sent.get_packed_command());
            let back = self.address.get_connection();
            self.connection = sent.and(back).map_err(|_| Gone)?;
            return Ok(());
        }
        self.account.pending = Some(call);
        let answer = answer(sent.query(&mut self.connection))?;
        let call = self.account.pending.take().unwrap();
        if let Ok(Value::BulkString(id)) = &answer {
            self.last_id = String::from_utf8_lossy(id).into_owned();
        }
        if !self.ruthless {
            self.account.book(&call, &answer, false);
        } else if let Err(text) = answer {
            let expected =
                ["NOTHELD", "DEADLOCK", "LIMIT", "no such semaphore", "no such key", "REPLACED"];
            assert!(expected.iter().any(|part| text.contains(part)), "{call:?}: {text}");
        }
        Ok(())
    }

    fn next_call(&mut self) -> Call {
        let key = self.dice.below(KEYS);
        match self.dice.below(20) {
            0 if self.ruthless => self.trample(key),
            0..5 => self.rw(format!("rw{key}")),
            5..9 => self.sem(format!("sem{key}")),
            9..13 => self.lock("DLOCK", format!("lock{key}")),
            13..16 => self.lock("DFAIR", format!("fair{key}")),
            16..18 => self.several(key),
            _ => {
                let key = format!("latch{key}");
                let words = args!["DLATCH.COUNTDOWN", &key, "REQID", self.id()];
                Call { words, what: What::Step { key } }
            }
        }
    }

    /// A new request id.
    fn id(&self) -> String {
        format!("{}-{}", self.owner, self.calls)
    }

    /// The options of a call that takes something.
    fn options(&mut self) -> Vec<Vec<u8>> {
        let lease = if self.ruthless { 10 + self.dice.below(400) } else { 600_000 };
        let mut options = args!["PX", lease, "REQID", self.id()];
        match self.dice.below(6) {
            0..=2 => options.extend(args!["BLOCK", 1 + self.dice.below(40)]),
            3 if self.ruthless => options.extend(args!["QUEUE", 60]),
            4 if self.ruthless => options.extend(args!["BIND", 5, "NOTIFY", "news"]),
            5 => options.extend(args!["LABEL", format!("label of {}", self.id())]),
            _ => {}
        }
        options
    }

    fn lock(&mut self, family: &str, key: String) -> Call {
        let hold = (key, self.owner.clone(), "");
        let known = self.account.holds.get(&hold).copied();
        let has = self.ruthless || known.is_some();
        let head = |verb: &str| args![format!("{family}.{verb}"), &hold.0, &hold.1];
        let (words, what) = match self.dice.below(10) {
            0..4 if has => {
                let words = [head("RELEASE"), args!["REQID", self.id()]].concat();
                (words, What::Release(hold))
            }
            4 if has => (head("RENEW"), What::Other),
            5 if has => {
                let token = known.map_or(1, |(token, _)| token) + self.dice.below(3).cast_signed();
                ([head("FENCE"), args![token]].concat(), What::Fence(hold))
            }
            _ => ([head("ACQUIRE"), self.options()].concat(), What::Acquire(hold)),
        };
        Call { words, what }
    }

    /// Two locks or three, this one first.
    fn several(&mut self, first: u64) -> Call {
        let count = 2 + self.dice.below(2);
        let keys = (0..count).map(|n| format!("lock{}", (first + n) % KEYS));
        let holds: Vec<_> = keys.map(|key| (key, self.owner.clone(), "")).collect();
        let mut words = args!["DLOCK.MACQUIRE", count];
        words.extend(holds.iter().map(|hold| hold.0.clone().into_bytes()));
        let lease = if self.ruthless { 10 + self.dice.below(400) } else { 600_000 };
        words.extend(args![&self.owner, "PX", lease, "REQID", self.id()]);
        words.extend(args!["BLOCK", 1 + self.dice.below(40)]);
        Call { words, what: What::AcquireAll(holds) }
    }

    fn rw(&mut self, key: String) -> Call {
        let mode = if self.dice.below(3) == 0 { "WRITE" } else { "READ" };
        let hold = (key, self.owner.clone(), mode);
        let has = self.ruthless || self.account.holds.contains_key(&hold);
        let head = |verb: &str| args![verb, &hold.0, &hold.1, mode];
        let (words, what) = match self.dice.below(10) {
            0..5 if has => {
                let words = [head("DRW.RELEASE"), args!["REQID", self.id()]].concat();
                (words, What::Release(hold))
            }
            5 if has => (head("DRW.RENEW"), What::Other),
            _ => ([head("DRW.ACQUIRE"), self.options()].concat(), What::Acquire(hold)),
        };
        Call { words, what }
    }

    fn sem(&mut self, key: String) -> Call {
        let n = 1 + i64::try_from(self.dice.below(2)).unwrap();
        let some = self.account.permits.first_key_value();
        let known = some.map(|(id, permit)| (id.clone(), permit.0.clone()));
        let permit = if self.ruthless && !self.last_id.is_empty() {
            Some((self.last_id.clone(), key.clone()))
        } else {
            known
        };
        let taken = self.account.taken.get(&key).copied().unwrap_or_default();
        let (words, what) = match (self.dice.below(10), permit) {
            (0..3, Some((id, key))) => (args!["DSEM.RELEASE", key, &id], What::Return { id }),
            (3, Some((id, key))) => (args!["DSEM.RENEW", key, &id], What::Other),
            (4, _) => (
                args!["DSEM.TAKE", &key, n, "REQID", self.id(), "BLOCK", 1 + self.dice.below(20)],
                What::Take { key, n },
            ),
            (5, _) if taken >= n || self.ruthless => {
                (args!["DSEM.GIVE", &key, n, "REQID", self.id()], What::Give { key, n })
            }
            _ => {
                let mut words = args!["DSEM.ACQUIRE", &key, &self.owner, "COUNT", n];
                if self.ruthless && self.dice.below(2) == 0 {
                    words.extend(args!["LIMIT", PERMITS]);
                }
                words.extend(self.options());
                (words, What::Permit { key, owner: self.owner.clone(), count: n })
            }
        };
        Call { words, what }
    }

    /// Interference of an operator with any key.
    fn trample(&mut self, key: u64) -> Call {
        let kind = self.dice.pick(&["lock", "fair", "rw", "sem", "latch"]);
        let (key, other) = (format!("{kind}{key}"), format!("{kind}{}", self.dice.below(KEYS)));
        let n = 1 + self.dice.below(20);
        let words = match (self.dice.below(8), kind) {
            (0, _) => args!["DEL", key],
            (1, _) => args!["PEXPIRE", key, 20 + self.dice.below(2_000)],
            (2, _) => args!["RENAME", key, other],
            (_, "lock") => args!["DLOCK.BREAK", key],
            (_, "fair") => args!["DFAIR.BREAK", key],
            (_, "rw") => args!["DRW.BREAK", key],
            (3, "sem") => args!["DSEM.DRAIN", key],
            (4, "sem") => args!["DSEM.GIVE", key, n],
            (5, "sem") => args!["DSEM.INIT", key, n],
            (_, "sem") => args!["DSEM.RESIZE", key, n],
            (3, _) => args!["DLATCH.COUNTDOWN", key, STEPS],
            _ => {
                args!["DLATCH.INIT", key, 1 + self.dice.below(40), "PX", 10 + self.dice.below(400)]
            }
        };
        Call { words, what: What::Other }
    }
}
