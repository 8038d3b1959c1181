//! Clients of every family that take turns without a pause, and what they are answered.

use std::{
    collections::VecDeque,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use dlock_testing::{Dice, Reply as _, redis::Value};

use crate::{
    caller::{Addresses, Answer, Caller, call, shown},
    ledger::{Ledger, Share, Turn},
    requests::{Copy, Expected},
};

/// Much longer than a turn, with a failover in the middle.
const LEASE_MS: u64 = 60_000;
/// Longest wait of one request; then the client repeats it.
const BLOCK_MS: u64 = 2000;
/// Longest wait for a grant: longer than a lease, after which a lost RELEASE does no harm any more.
const PATIENCE: Duration = Duration::from_secs(90);
/// Finished requests of which a client sends late copies.
const REMEMBERED: usize = 300;

/// The kinds of turns, one client each; two of those that exclude each other.
const CLIENTS: [Kind; 14] = [
    Kind::Lock,
    Kind::Lock,
    Kind::Lock,
    Kind::Fair,
    Kind::Fair,
    Kind::Fair,
    Kind::Rw,
    Kind::Rw,
    Kind::Semaphore,
    Kind::Semaphore,
    Kind::Tickets,
    Kind::Latch,
    Kind::All,
    Kind::Any,
];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Lock,
    Fair,
    Rw,
    Semaphore,
    Tickets,
    Latch,
    All,
    Any,
}

/// The clients at work.
pub struct Load {
    stop: Arc<AtomicBool>,
    pub ledger: Arc<Ledger>,
    counts: Arc<Counts>,
    threads: Vec<JoinHandle<()>>,
}

/// What the clients did.
#[derive(Debug, Default)]
struct Counts {
    repeated: AtomicU64,
    copies: AtomicU64,
}

impl Load {
    pub fn start(addresses: &Addresses) -> Load {
        let (stop, ledger) = (Arc::new(AtomicBool::new(false)), Arc::new(Ledger::default()));
        let counts = Arc::new(Counts::default());
        let start = |(n, kind): (u64, Kind)| {
            let mut worker = Worker {
                kind,
                owner: format!("w{n}"),
                caller: Caller::new(addresses),
                dice: Dice::part(21, n),
                requests: 0,
                finished: VecDeque::new(),
                ledger: ledger.clone(),
                counts: counts.clone(),
            };
            let stop = stop.clone();
            thread::spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    worker.turn();
                }
            })
        };
        let threads = (0..).zip(CLIENTS).map(start).collect();
        Load { stop, ledger, counts, threads }
    }

    /// Ends the clients; each ends its turn. Returns what they did, on one line.
    pub fn stop(&mut self) -> String {
        self.stop.store(true, Ordering::Relaxed);
        for client in self.threads.drain(..) {
            client.join().expect("a client");
        }
        format!(
            "{} turns, {} requests repeated, {} late copies",
            self.ledger.turns(),
            self.counts.repeated.load(Ordering::Relaxed),
            self.counts.copies.load(Ordering::Relaxed)
        )
    }
}

struct Worker {
    kind: Kind,
    owner: String,
    caller: Caller,
    dice: Dice,
    requests: u64,
    finished: VecDeque<Copy>,
    ledger: Arc<Ledger>,
    counts: Arc<Counts>,
}

impl Worker {
    fn turn(&mut self) {
        match self.kind {
            Kind::Lock => self.lock("DLOCK", ""),
            Kind::Fair => self.lock("DFAIR", ""),
            Kind::Rw => {
                let mode = self.dice.pick(&[" READ", " READ", " WRITE"]);
                self.lock("DRW", mode);
            }
            Kind::Semaphore => self.semaphore(),
            Kind::Tickets => self.tickets(),
            Kind::Latch => self.latch(),
            Kind::All => self.all(),
            Kind::Any => self.any(),
        }
        if self.dice.one_in(3) && !self.finished.is_empty() {
            let copy = self.finished[self.dice.index(self.finished.len())].clone();
            self.counts.copies.fetch_add(1, Ordering::Relaxed);
            if let Err(fault) = copy.send(&mut self.caller) {
                self.ledger.fault(fault);
            }
        }
        thread::sleep(self.dice.millis(8));
    }

    /// One turn of a lock with a token.
    fn lock(&mut self, family: &str, mode: &str) {
        let key = format!("load:{family}:{}", self.dice.below(3));
        let id = self.id();
        let acquire = format!(
            "{family}.ACQUIRE {key} {}{mode} PX {LEASE_MS} BLOCK {BLOCK_MS} REQID a{id}",
            self.owner
        );
        let Some(granted) = self.acquire(&key, &acquire) else { return };
        let share = if mode == " READ" { Share::Reader } else { Share::Alone };
        let (token, from) = (granted.int(), Instant::now());
        self.work();
        self.held(&key, token, share, from);
        let release =
            format!("{family}.RELEASE {key} {}{mode} TOKEN {token} REQID a{id}", self.owner);
        self.release(&key, &release, &Value::Int(0));
        self.finish(&key, &acquire, Expected::Spent);
        self.finish(&key, &release, Expected::Same(Value::Int(0)));
    }

    /// The permit of a semaphore that has one.
    fn semaphore(&mut self) {
        let key = format!("load:DSEM:{}", self.dice.below(2));
        let id = self.id();
        let acquire = format!(
            "DSEM.ACQUIRE {key} {} LIMIT 1 PX {LEASE_MS} BLOCK {BLOCK_MS} REQID a{id}",
            self.owner
        );
        let Some(granted) = self.acquire(&key, &acquire) else { return };
        let (permit, from) = (granted.text(), Instant::now());
        self.work();
        self.held(&key, 0, Share::Permits { count: 1, capacity: 1 }, from);
        // A permit id is its own request id: a repeat finds it gone.
        let release = call(&format!("DSEM.RELEASE {key} {permit}"));
        let answer = self.send(&key, &release);
        let is_fine = answer.as_ref().is_some_and(|answer| match &answer.value {
            Value::Int(_) => true,
            Value::ServerError(error) => answer.repeated && error.code() == "NOTHELD",
            _ => false,
        });
        if !is_fine {
            self.ledger.fault(format!("{release:?}: {}", shown(answer.as_ref())));
        }
        self.finish(&key, &acquire, Expected::Spent);
    }

    /// Permits without an owner: what is taken is given back, each once.
    fn tickets(&mut self) {
        let key = "load:tickets".to_owned();
        let id = self.id();
        self.send(&key, &call(&format!("DSEM.INIT {key} 3")));
        let take = format!("DSEM.TAKE {key} 2 BLOCK {BLOCK_MS} REQID t{id}");
        if self.acquire(&key, &take).is_none() {
            return;
        }
        self.work();
        let give = format!("DSEM.GIVE {key} 2 REQID g{id}");
        self.release(&key, &give, &Value::Int(3));
        self.finish(&key, &take, Expected::Same(Value::Int(1)));
    }

    /// A latch of three steps, some of them sent twice.
    fn latch(&mut self) {
        let id = self.id();
        let key = format!("load:latch:{}", id % 5);
        self.send(&key, &call(&format!("DLATCH.INIT {key} 3")));
        for left in [2, 1, 0] {
            let step = format!("DLATCH.COUNTDOWN {key} REQID s{id}:{left}");
            self.release(&key, &step, &Value::Int(left));
            if left > 0 && self.dice.one_in(2) {
                self.release(&key, &step, &Value::Int(left));
            }
            self.work();
        }
        let open = call(&format!("DLATCH.AWAIT {key}"));
        let answer = self.send(&key, &open);
        if !matches!(&answer, Some(answer) if answer.value == Value::Int(1)) {
            self.ledger.fault(format!("{open:?}: {}", shown(answer.as_ref())));
        }
    }

    /// All of three locks, one of which another kind of client takes, too.
    fn all(&mut self) {
        let id = self.id();
        let keys: Vec<String> = (0..3).map(|n| format!("load:{{m}}:{n}")).collect();
        let named = keys.join(" ");
        let acquire = format!(
            "DLOCK.MACQUIRE 3 {named} {} PX {LEASE_MS} BLOCK {BLOCK_MS} REQID a{id}",
            self.owner
        );
        let Some(granted) = self.acquire(&keys[0], &acquire) else { return };
        let from = Instant::now();
        self.work();
        for (key, token) in keys.iter().zip(granted.items()) {
            self.held(key, token.int(), Share::Alone, from);
        }
        let release = format!("DLOCK.MRELEASE 3 {named} {} REQID a{id}", self.owner);
        self.release(&keys[0], &release, &Value::Int(3));
        self.finish(&keys[0], &acquire, Expected::Spent);
        self.finish(&keys[0], &release, Expected::Same(Value::Int(3)));
    }

    /// Any of two locks.
    fn any(&mut self) {
        let id = self.id();
        let acquire = format!(
            "DLOCK.ANYACQUIRE 2 load:{{m}}:1 load:{{m}}:2 {} PX {LEASE_MS} BLOCK {BLOCK_MS} REQID a{id}",
            self.owner
        );
        let Some(granted) = self.acquire("load:{m}:1", &acquire) else { return };
        let from = Instant::now();
        let (key, token) = (granted.items()[0].text(), granted.items()[1].int());
        self.work();
        self.held(&key, token, Share::Alone, from);
        let release = format!("DLOCK.RELEASE {key} {} TOKEN {token} REQID a{id}", self.owner);
        self.release(&key, &release, &Value::Int(0));
        self.finish(&key, &acquire, Expected::Spent);
        self.finish(&key, &release, Expected::Same(Value::Int(0)));
    }

    /// Sends a request until it is granted; `None` if it is refused.
    fn acquire(&mut self, key: &str, words: &str) -> Option<Value> {
        let words = call(words);
        let start = Instant::now();
        loop {
            let answer = self.send(key, &words);
            match answer {
                Some(Answer { value: Value::Nil, .. }) if start.elapsed() < PATIENCE => {}
                Some(Answer { value, .. }) if !matches!(value, Value::ServerError(_)) => {
                    self.ledger.granted(key);
                    return Some(value);
                }
                other => {
                    self.ledger.fault(format!("{words:?}: {}", shown(other.as_ref())));
                    return None;
                }
            }
        }
    }

    /// Sends a request whose reply is known.
    fn release(&mut self, key: &str, words: &str, expected: &Value) {
        let answer = self.send(key, &call(words));
        if !matches!(&answer, Some(answer) if answer.value == *expected) {
            self.ledger.fault(format!("{words}: {}", shown(answer.as_ref())));
        }
    }

    fn send(&mut self, key: &str, words: &[String]) -> Option<Answer> {
        let answer = self.caller.call(key, words);
        if answer.as_ref().is_some_and(|answer| answer.repeated) {
            self.counts.repeated.fetch_add(1, Ordering::Relaxed);
        }
        answer
    }

    fn held(&self, key: &str, token: i64, share: Share, from: Instant) {
        let token = u64::try_from(token).expect("a token");
        let turn = Turn { owner: self.owner.clone(), token, share, from, to: Instant::now() };
        let limit = Duration::from_millis(LEASE_MS);
        if turn.to - turn.from > limit {
            self.ledger.fault(format!("a turn of more than {limit:?}: {turn:?}"));
        }
        self.ledger.add(key, turn);
    }

    fn finish(&mut self, key: &str, words: &str, expected: Expected) {
        if self.finished.len() == REMEMBERED {
            let at = self.dice.index(REMEMBERED);
            self.finished.remove(at);
        }
        self.finished.push_back(Copy { key: key.to_owned(), words: call(words), expected });
    }

    fn work(&mut self) {
        thread::sleep(self.dice.millis(4));
    }

    fn id(&mut self) -> u64 {
        self.requests += 1;
        self.requests
    }
}
