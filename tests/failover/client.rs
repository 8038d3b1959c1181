//! A client process in a namespace. It writes what it believed to its standard output, one line for each thing; see
//! `history.rs`.

use std::{
    path::Path,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use dlock_client::{Client, Election, Error, ErrorKind, Lock, Lost, Wait};
use dlock_quorum::QuorumLock;
use dlock_testing::Dice;
use tokio::time::{sleep, timeout};

use super::{
    history::{self, Nanos},
    monotonic,
};

/// The lease of all holds.
pub const LEASE: Duration = Duration::from_secs(2);

/// How long an acquire waits.
const PATIENCE: Duration = Duration::from_secs(5);

/// Between two calls of `valid_for`.
const SAMPLE: Duration = Duration::from_millis(8);

/// Between two writes to the fenced store.
const WRITE: Duration = Duration::from_millis(250);

/// Between two grants of fresh locks.
const PROBE: Duration = Duration::from_millis(100);

/// A call that takes longer hangs.
const HANGS: Duration = Duration::from_mins(1);

/// Locks of each set-up; each client has a task for each.
pub const KEYS: [&str; 5] = ["queue", "blocking", "fair", "write", "elect"];

/// Works at one URL, or with quorum locks at several, until the file `stop` exists. Each acquire waits for `replicas`
/// replicas ([`Lock::replicas`]), and no renewal does; 0: no acquire does.
pub fn run(args: &[String]) {
    let [url, seed, replicas, stop] = args else { panic!("four arguments: {args:?}") };
    let (seed, replicas) = (seed.parse().expect("a seed"), replicas.parse().expect("a number"));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.expect("a runtime").block_on(work(url, seed, replicas, Path::new(stop)));
}

async fn work(url: &str, seed: u64, replicas: u32, stop: &Path) {
    let builder = Client::builder()
        .lease(LEASE)
        .queue(Duration::from_secs(1))
        .response_timeout(Duration::from_millis(500))
        .connect_timeout(Duration::from_secs(1))
        .retry_for(Duration::from_secs(3));
    let mut clients = Vec::new();
    for url in url.split(' ') {
        clients.push(loop {
            match builder.clone().connect(url).await {
                Ok(client) => break client,
                Err(error) if error.kind() == ErrorKind::Invalid => panic!("{error}"),
                // The group is not up yet.
                Err(_) => sleep(SAMPLE).await,
            }
        });
    }
    let is_over = Arc::new(AtomicBool::new(false));
    let mut tasks = Vec::new();
    // An election has no such option.
    let has_elections = replicas == 0;
    let keys = KEYS.into_iter().filter(|&key| has_elections || key != "elect");
    for (n, key) in keys.enumerate() {
        let worker = Worker {
            wanted: Wanted::new(&clients, key, replicas),
            key,
            dice: Dice::part(seed, n as u64),
            is_over: is_over.clone(),
        };
        tasks.push(tokio::spawn(worker.run()));
    }
    tasks.push(tokio::spawn(probe(clients.clone(), seed, replicas, is_over.clone())));
    while !stop.exists() {
        sleep(PROBE).await;
    }
    is_over.store(true, Ordering::SeqCst);
    for task in tasks {
        timeout(HANGS, task).await.expect("a call does not hang").expect("a task does not fail");
    }
    // The history is complete: what happens to the connections does not matter.
    for client in clients {
        let _ = timeout(PATIENCE, client.close()).await;
    }
}

/// Takes fresh locks, so that the nemesis knows when locks are granted again.
async fn probe(clients: Vec<Client>, seed: u64, replicas: u32, is_over: Arc<AtomicBool>) {
    for n in 0_u64.. {
        if is_over.load(Ordering::SeqCst) {
            return;
        }
        let lock = Wanted::new(&clients, &format!("probe-{seed}-{n}"), replicas);
        let invoked = monotonic();
        match lock.acquire(Duration::ZERO).await {
            Ok(Some(held)) => {
                println!("probe {invoked} {}", monotonic());
                // Its lease ends it otherwise.
                let _ = held.release.await;
            }
            Ok(None) => println!("refused probe held"),
            Err(error) => println!("refused probe {}", kind_of(&error)),
        }
        sleep(PROBE).await;
    }
}

fn with_replicas(lock: Lock, replicas: u32) -> Lock {
    if replicas == 0 { lock } else { lock.replicas(replicas, LEASE / 2) }
}

/// The name of an error's kind, as one word.
fn kind_of(error: &Error) -> String {
    let kind = format!("{:?}", error.kind());
    kind.split(' ').next().unwrap_or_default().to_owned()
}

enum Wanted {
    Lock(Lock),
    Election(Election),
    Quorum(QuorumLock),
}

/// A hold, and its release. Dropping the release releases it, too.
struct Held {
    token: u64,
    valid_for: Box<dyn Fn() -> Duration + Send>,
    lost_now: Box<dyn Fn() -> Option<Lost> + Send>,
    release: Pin<Box<dyn Future<Output = Result<(), Error>> + Send>>,
}

/// Of a guard and what ends it.
macro_rules! held {
    ($guard:expr, $release:ident) => {
        $guard.map(|guard| {
            let (one, other) = (guard.hold(), guard.hold());
            Held {
                token: one.token(),
                valid_for: Box::new(move || one.valid_for()),
                lost_now: Box::new(move || other.lost_now()),
                release: Box::pin(guard.$release()),
            }
        })
    };
}

impl Wanted {
    fn new(clients: &[Client], key: &str, replicas: u32) -> Wanted {
        let [client] = clients else {
            return Wanted::Quorum(QuorumLock::new(clients.iter().cloned(), key));
        };
        let lock = match key {
            "blocking" => client.lock(key).wait(Wait::Blocking),
            "fair" => client.fair_lock(key),
            "write" => client.rw_lock(key).write(),
            "elect" => return Wanted::Election(client.election(key)),
            _ => client.lock(key),
        };
        Wanted::Lock(with_replicas(lock, replicas))
    }

    async fn acquire(&self, time: Duration) -> Result<Option<Held>, Error> {
        Ok(match self {
            Wanted::Lock(lock) if time.is_zero() => held!(lock.try_acquire().await?, release),
            Wanted::Lock(lock) => held!(lock.acquire_timeout(time).await?, release),
            Wanted::Election(election) => held!(election.campaign_timeout(time).await?, resign),
            Wanted::Quorum(lock) if time.is_zero() => held!(lock.try_acquire().await?, release),
            Wanted::Quorum(lock) => held!(lock.acquire_timeout(time).await?, release),
        })
    }
}

/// A task that takes one lock again and again.
struct Worker {
    wanted: Wanted,
    key: &'static str,
    dice: Dice,
    is_over: Arc<AtomicBool>,
}

impl Worker {
    async fn run(mut self) {
        while !self.is_over.load(Ordering::SeqCst) {
            let invoked = monotonic();
            match self.wanted.acquire(PATIENCE).await {
                Ok(Some(held)) => self.hold(held, invoked).await,
                Ok(None) => println!("refused {} held", self.key),
                Err(error) => {
                    println!("refused {} {}", self.key, kind_of(&error));
                    sleep(PROBE).await;
                }
            }
            sleep(self.dice.millis(100)).await;
        }
    }

    /// Holds it for up to three leases, and writes down what the client believed.
    async fn hold(&mut self, held: Held, invoked: Nanos) {
        let answered = monotonic();
        // Half of the holds are short, so that there are many.
        let most = if self.dice.one_in(2) { LEASE / 10 } else { LEASE * 3 };
        let until = answered + self.dice.below(nanos(most));
        let mut record = history::Hold {
            key: self.key.to_owned(),
            invoked,
            answered,
            token: held.token,
            ..history::Hold::default()
        };
        let mut next_write = answered;
        let is_valid = loop {
            let now = monotonic();
            let valid = (held.valid_for)();
            if valid.is_zero() {
                break false;
            }
            (record.last_yes, record.valid_until) = (now, now + nanos(valid));
            if now >= next_write {
                println!("write {} {} {now}", record.key, record.token);
                next_write = now + nanos(WRITE);
            }
            if now >= until || self.is_over.load(Ordering::SeqCst) {
                break true;
            }
            sleep(SAMPLE).await;
        };
        record.how = if is_valid {
            match held.release.await {
                Ok(()) => "released".to_owned(),
                Err(error) => match error.kind() {
                    ErrorKind::Lost { reason, .. } => format!("lost:{reason:?}"),
                    _ => format!("unknown:{}", kind_of(&error)),
                },
            }
        } else {
            (held.lost_now)().map_or("lost:".to_owned(), |how| format!("lost:{how:?}"))
        };
        record.ended = monotonic();
        println!("{record}");
    }
}

fn nanos(time: Duration) -> Nanos {
    u64::try_from(time.as_nanos()).expect("a short time")
}
