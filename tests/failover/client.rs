//! A client process in a namespace. It writes what it believed to its standard output, one line for each thing; see
//! `history.rs`.

use std::{
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use dlock_client::{
    Client, Election, Error, ErrorKind, Guard, Hold, Leadership, Lock, Released, Wait,
};
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
const KEYS: [&str; 5] = ["queue", "blocking", "fair", "write", "elect"];

/// What a client process is told.
#[derive(Clone, Debug)]
pub struct Orders {
    pub url: String,
    pub seed: u64,
    /// Each acquire waits for this number of replicas ([`Lock::replicas`]), and no renewal does; 0: no acquire does.
    pub replicas_of_grants: u32,
    /// The client ends when this file exists.
    pub stop: PathBuf,
}

impl Orders {
    /// As arguments of the process.
    pub fn to_args(&self) -> [String; 4] {
        let (seed, replicas) = (self.seed.to_string(), self.replicas_of_grants.to_string());
        [self.url.clone(), seed, replicas, self.stop.display().to_string()]
    }

    pub fn from_args(args: &[String]) -> Orders {
        let [url, seed, replicas, stop] = args else { panic!("four arguments: {args:?}") };
        Orders {
            url: url.clone(),
            seed: seed.parse().expect("a seed"),
            replicas_of_grants: replicas.parse().expect("a number of replicas"),
            stop: stop.into(),
        }
    }
}

/// Works until it is told to stop.
pub fn run(orders: &Orders) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.expect("a runtime").block_on(work(orders));
}

async fn work(orders: &Orders) {
    let builder = Client::builder()
        .lease(LEASE)
        .queue(Duration::from_secs(1))
        .response_timeout(Duration::from_millis(500))
        .connect_timeout(Duration::from_secs(1))
        .retry_for(Duration::from_secs(3));
    let client = loop {
        match builder.clone().connect(&orders.url).await {
            Ok(client) => break client,
            Err(error) if error.kind() == ErrorKind::Invalid => panic!("{error}"),
            // The group is not up yet.
            Err(_) => sleep(SAMPLE).await,
        }
    };
    let is_over = Arc::new(AtomicBool::new(false));
    let mut tasks = Vec::new();
    // An election has no such option.
    let has_elections = orders.replicas_of_grants == 0;
    let keys = KEYS.into_iter().filter(|&key| has_elections || key != "elect");
    for (n, key) in keys.enumerate() {
        let worker = Worker {
            wanted: Wanted::new(&client, key, orders.replicas_of_grants),
            key,
            dice: Dice::part(orders.seed, n as u64),
            is_over: is_over.clone(),
        };
        tasks.push(tokio::spawn(worker.run()));
    }
    tasks.push(tokio::spawn(probe(client.clone(), orders.clone(), is_over.clone())));
    while !orders.stop.exists() {
        sleep(PROBE).await;
    }
    is_over.store(true, Ordering::SeqCst);
    for task in tasks {
        timeout(HANGS, task).await.expect("a call does not hang").expect("a task does not fail");
    }
    // The history is complete: what happens to the connections does not matter.
    let _ = timeout(PATIENCE, client.close()).await;
}

/// Takes fresh locks, so that the nemesis knows when locks are granted again.
async fn probe(client: Client, orders: Orders, is_over: Arc<AtomicBool>) {
    for n in 0_u64.. {
        if is_over.load(Ordering::SeqCst) {
            return;
        }
        let lock = client.lock(format!("probe-{}-{n}", orders.seed));
        let lock = with_replicas(lock, orders.replicas_of_grants);
        let invoked = monotonic();
        match lock.try_acquire().await {
            Ok(Some(guard)) => {
                println!("probe {invoked} {}", monotonic());
                // Its lease ends it otherwise.
                let _ = guard.release().await;
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
}

enum Held {
    Guard(Guard),
    Leadership(Leadership),
}

impl Wanted {
    fn new(client: &Client, key: &str, replicas: u32) -> Wanted {
        let lock = match key {
            "blocking" => client.lock(key).wait(Wait::Blocking),
            "fair" => client.fair_lock(key),
            "write" => client.rw_lock(key).write(),
            "elect" => return Wanted::Election(client.election(key)),
            _ => client.lock(key),
        };
        Wanted::Lock(with_replicas(lock, replicas))
    }

    async fn acquire(&self) -> Result<Option<Held>, Error> {
        Ok(match self {
            Wanted::Lock(lock) => lock.acquire_timeout(PATIENCE).await?.map(Held::Guard),
            Wanted::Election(election) => {
                election.campaign_timeout(PATIENCE).await?.map(Held::Leadership)
            }
        })
    }
}

impl Held {
    fn hold(&self) -> Hold {
        match self {
            Held::Guard(guard) => guard.hold(),
            Held::Leadership(leadership) => leadership.hold(),
        }
    }

    async fn release(self) -> Result<Released, Error> {
        match self {
            Held::Guard(guard) => guard.release().await,
            Held::Leadership(leadership) => leadership.resign().await,
        }
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
            match self.wanted.acquire().await {
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
        let view = held.hold();
        // Half of the holds are short, so that there are many.
        let most = if self.dice.one_in(2) { LEASE / 10 } else { LEASE * 3 };
        let until = answered + self.dice.below(nanos(most));
        let mut record = history::Hold {
            key: self.key.to_owned(),
            invoked,
            answered,
            token: view.token(),
            ..history::Hold::default()
        };
        let mut next_write = answered;
        let is_valid = loop {
            let now = monotonic();
            let valid = view.valid_for();
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
            match held.release().await {
                Ok(Released::Gone { reason, .. }) => format!("lost:{reason:?}"),
                Ok(_) => "released".to_owned(),
                Err(error) => format!("unknown:{}", kind_of(&error)),
            }
        } else {
            view.lost_now().map_or("lost:".to_owned(), |how| format!("lost:{how:?}"))
        };
        record.ended = monotonic();
        println!("{record}");
    }
}

fn nanos(time: Duration) -> Nanos {
    u64::try_from(time.as_nanos()).expect("a short time")
}
