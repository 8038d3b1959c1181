//! Shared parts of these tests: wait strategies, time limits instead of hangs, and reads of the server.

use std::time::{Duration, Instant};

use dlock_client::{Client, ClientBuilder, Error, ErrorKind, Lock, Lost, Wait};
use dlock_testing::{Reply as _, Server};
use redis::Value;

use crate::places::Place;

/// Maximum time of a call through restarts and failovers, on the slowest machine. A longer wait is a hang.
pub const PATIENCE: Duration = Duration::from_mins(1);

/// The result of a call; fails the test, naming the call, if it hangs.
#[track_caller]
pub fn within<F: Future>(what: &str, call: F) -> impl Future<Output = F::Output> {
    let place = std::panic::Location::caller();
    let what = what.to_owned();
    async move {
        let done = tokio::time::timeout(PATIENCE, call).await;
        done.unwrap_or_else(|_| panic!("{what} hangs for {PATIENCE:?} ({place})"))
    }
}

/// How the hold was lost that was released too late; fails the test if the release says anything else.
#[track_caller]
pub fn loss_of(released: Result<(), Error>) -> Lost {
    let error = released.expect_err("a lost hold was released");
    let ErrorKind::Lost { reason, finished: true } = error.kind() else {
        panic!("the release of a lost hold ended with: {error}");
    };
    reason
}

/// A condition: a number has reached `least`, and has not changed for a second.
pub fn at_rest(number: impl Fn() -> usize, least: usize) -> impl FnMut() -> bool {
    let mut seen = (0, Instant::now());
    move || {
        let now = number();
        if now != seen.0 {
            seen = (now, Instant::now());
        }
        now >= least && seen.1.elapsed() > Duration::from_secs(1)
    }
}

/// Waits until `condition` holds, without blocking the runtime.
#[track_caller]
pub fn until(what: &str, mut condition: impl FnMut() -> bool) -> impl Future<Output = ()> {
    let place = std::panic::Location::caller();
    let what = what.to_owned();
    async move {
        let start = Instant::now();
        while !condition() {
            assert!(
                start.elapsed() < PATIENCE,
                "waited {PATIENCE:?} in vain for: {what} ({place})"
            );
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }
}

/// A client that detects a dead connection within half a second instead of three. (A new connection may take longer
/// than that on a busy machine.)
pub fn quick() -> ClientBuilder {
    Client::builder()
        .response_timeout(Duration::from_millis(500))
        .connect_timeout(Duration::from_secs(2))
        .queue(Duration::from_secs(2))
}

/// A real server, and a client connected straight to it.
pub async fn start() -> (Server, Client) {
    start_on().await
}

/// The same on a server of either kind.
pub async fn start_on<P: Place>() -> (P, Client) {
    let server = P::new();
    let client = server.client().await;
    (server, client)
}

/// A kind of lock and a way to wait for it.
#[derive(Clone, Copy, Debug)]
pub struct Variant {
    pub fair: bool,
    pub wait: Wait,
}

impl Variant {
    pub const ALL: [Variant; 4] = [
        Variant { fair: false, wait: Wait::Queue },
        Variant { fair: false, wait: Wait::Blocking },
        Variant { fair: true, wait: Wait::Queue },
        Variant { fair: true, wait: Wait::Blocking },
    ];

    pub fn lock(self, client: &Client, key: &str) -> Lock {
        let lock = if self.fair { client.fair_lock(key) } else { client.lock(key) };
        lock.wait(self.wait)
    }

    /// A separate key, for tests of all variants on one server.
    pub fn key(self) -> String {
        format!("{self:?}")
    }

    /// The prefix of its commands, without the dot.
    pub fn family(self) -> &'static str {
        if self.fair { "DFAIR" } else { "DLOCK" }
    }

    pub fn command(self, verb: &str) -> String {
        format!("{}.{verb}", self.family())
    }

    pub fn info(self, server: &impl Place, key: &str) -> Value {
        server.cmd(&[&self.command("INFO"), key])
    }

    pub fn is_free(self, server: &impl Place, key: &str) -> bool {
        self.info(server, key).is_null()
    }

    /// The count of the hold; 0: the lock is free.
    pub fn holds(self, server: &impl Place, key: &str) -> i64 {
        number(&self.info(server, key), "holds")
    }

    pub fn waiters(self, server: &impl Place, key: &str) -> i64 {
        number(&self.info(server, key), "waiters")
    }
}

/// Runs the work for every variant concurrently.
pub async fn for_each_variant<F>(work: impl Fn(Variant) -> F)
where
    F: Future<Output = ()> + Send + 'static,
{
    let all = Variant::ALL.map(|variant| (variant, tokio::spawn(work(variant))));
    for (variant, work) in all {
        within(&format!("{variant:?}"), work).await.unwrap();
    }
}

/// The wait strategies, for locks of one family.
pub const WAITS: [Wait; 2] = [Wait::Queue, Wait::Blocking];

/// A number of an INFO reply; 0 if the key does not exist.
pub fn number(info: &Value, field: &str) -> i64 {
    if info.is_null() { 0 } else { info.field(field).int() }
}
