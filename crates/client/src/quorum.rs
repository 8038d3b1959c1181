//! A lock on several servers that know nothing of each other.

mod attempt;
mod driver;
mod tally;
mod view;

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use dlock_wire::reply::quote;
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, timeout};

use self::attempt::{Failure, Standing, Terms};
use self::driver::{Driver, Upkeep, any_closes};
use self::view::{View, no_quorum};
use crate::base::clock::{by_the_clock, sleep_until};
use crate::base::deadline::Deadline;
use crate::base::error::{Error, ErrorKind};
use crate::base::lost::{Lost, Released};
use crate::base::options::Options;
use crate::base::settings::lease_ms;
use crate::handles::client::Client;
use crate::handles::with::{Holding, guard_with, handle_with};
use crate::registry::Core;
use crate::telemetry::acquiring;

/// The shortest lease of a quorum lock: shorter ones are used up by asking.
const LEASE_MIN: Duration = Duration::from_millis(30);
/// How long one server may take by default; but no more than a tenth of the lease.
const TIMEOUT: Duration = Duration::from_millis(200);

/// A lock that is held on a majority of several independent servers: it works, and stays what it is, while fewer than
/// half of them are down. Each server has a [`Client`] of its own.
///
/// ```
/// # tokio::runtime::Runtime::new().unwrap().block_on(async {
/// # let servers: Vec<_> = (0..3).map(|_| dlock_testing::Server::start()).collect();
/// # let urls: Vec<_> = servers.iter().map(|server| server.url()).collect();
/// use dlock_client::{Client, QuorumLock};
///
/// let mut clients = Vec::new();
/// for url in &urls {
///     clients.push(Client::connect(url).await?);
/// }
/// let lock = QuorumLock::new(clients, "nightly-report");
/// let guard = lock.acquire().await?;
/// assert!(lock.try_acquire().await?.is_none());
/// println!("the fencing token is {}", guard.token());
/// guard.release().await?.ok_or_lost()?;
/// # Ok::<(), dlock_client::Error>(()) }).unwrap();
/// ```
///
/// # The algorithm
///
/// Redlock, as the Redis documentation describes it ("Distributed Locks with Redis"): all servers are asked at once,
/// the lock is held if a majority grants it, and its time is counted from before the first request was sent. What is
/// added is what Martin Kleppmann found missing ("How to do distributed locking", 2016; answered by antirez, "Is
/// Redlock safe?"): **fencing tokens that grow across holders.** Before the lock is returned, the largest token that
/// was granted is written back to the other servers (`DLOCK.FENCE`), and a server counts only if it has acknowledged
/// it; what is left of the lease is computed after that. Two majorities share a server, so the next holder's token is
/// larger.
///
/// # What it needs
///
/// - Servers that share nothing: not replicas of each other, not nodes of one cluster.
/// - Servers that keep their data (`appendonly yes`, `appendfsync always`), or have `dlock.restart-quarantine-ms` of
///   at least the longest lease in use and at least the largest difference between the servers' wall clocks. A
///   server that comes back empty and grants at once can help a second client to a majority, or forget a token.
/// - Wall clocks of the servers that differ by less than their `dlock.max-token-lead-ms` (60 seconds): a server refuses
///   a token that is further ahead of its clock.
/// - Monotonic clocks of servers and clients that run at the same speed within 1 %.
///
/// There is no queue: a client that does not get the lock tries again after a random pause, in no order. A single
/// server, or one with replicas ([`Lock::replicas`](crate::Lock::replicas)), is faster and fair.
#[derive(Clone)]
pub struct QuorumLock {
    servers: Arc<[Arc<Core>]>,
    key: Arc<[u8]>,
    /// Only lease, label and `max_hold` count.
    options: Options,
    timeout: Option<Duration>,
    pause: (Duration, Duration),
}

impl QuorumLock {
    /// The lock of this key on these servers: an odd number of them, mostly 3 or 5. Nothing is sent before an
    /// acquire.
    pub fn new(clients: impl IntoIterator<Item = Client>, key: impl AsRef<[u8]>) -> Self {
        Self {
            servers: clients.into_iter().map(|client| client.core().clone()).collect(),
            key: key.as_ref().into(),
            options: Options::default(),
            timeout: None,
            pause: (Duration::from_millis(10), Duration::from_millis(100)),
        }
    }

    /// A lease of this length, 30 ms to 365 days, that nothing renews. Without this, the lease is the shortest of
    /// those of the clients, and a watchdog renews it every third of it while the guard lives.
    #[must_use]
    pub fn lease(mut self, lease: Duration) -> Self {
        self.options.lease = Some(lease);
        self
    }

    /// As [`Lock::max_hold`](crate::Lock::max_hold): the longest time that the watchdog keeps the lock alive, 1 ms to
    /// 365 days. Then it is lost with the reason [`MaxHold`](Lost::MaxHold), and released. No effect with a
    /// [`lease`](QuorumLock::lease). The setting of the clients does not apply.
    #[must_use]
    pub fn max_hold(mut self, time: Duration) -> Self {
        self.options.max_hold = Some(time);
        self
    }

    /// A text for people, 0 to 256 bytes, that INFO shows on each server. The owner is another one for each attempt.
    #[must_use]
    pub fn label(mut self, label: impl AsRef<[u8]>) -> Self {
        self.options.label = Some(label.as_ref().into());
        self
    }

    /// How long each server may take to answer, less than half of the lease. Default 200 ms or a tenth of the lease,
    /// whichever is shorter. A server that is silent costs an acquire less than that: it is waited for twice as
    /// long as the majority took.
    #[must_use]
    pub fn server_timeout(mut self, timeout: Duration) -> Self {
        self.timeout = Some(timeout);
        self
    }

    /// The pause between two attempts is chosen at random between these two. Default 10 ms to 100 ms. It should be
    /// longer than an attempt takes, and longest with many waiters; at most 365 days.
    #[must_use]
    pub fn back_off(mut self, shortest: Duration, longest: Duration) -> Self {
        self.pause = (shortest, longest);
        self
    }

    /// One attempt. None: a majority answers, but another client has the lock, or is about to.
    ///
    /// # Errors
    ///
    /// [`NoQuorum`](ErrorKind::NoQuorum) if too few servers answered in time; the text has the first error of a server.
    /// [`Invalid`](ErrorKind::Invalid) for options out of range.
    ///
    /// # Cancel safety
    ///
    /// Dropping this future releases in the background what was granted.
    pub async fn try_acquire(&self) -> Result<Option<QuorumGuard>, Error> {
        self.acquire_with(Deadline::Now).await
    }

    /// Tries until it has the lock.
    #[doc = errors_as!(
        "[`try_acquire`](QuorumLock::try_acquire)",
        ": it does not wait for servers to come back"
    )]
    pub async fn acquire(&self) -> Result<QuorumGuard, Error> {
        loop {
            // None would mean that "never" has come.
            if let Some(guard) = self.acquire_with(Deadline::Never).await? {
                return Ok(guard);
            }
        }
    }

    /// Tries for at most `time`, also while too few servers answer. None: another client had it at the last attempt.
    #[doc = errors_as!("[`try_acquire`](QuorumLock::try_acquire)")]
    pub async fn acquire_timeout(&self, time: Duration) -> Result<Option<QuorumGuard>, Error> {
        self.acquire_with(Deadline::after(time)).await
    }

    async fn acquire_with(&self, deadline: Deadline) -> Result<Option<QuorumGuard>, Error> {
        let (server, token) = (|| None, |guard: &QuorumGuard| guard.token());
        acquiring(None, &self.key, server, token, self.attempts(deadline)).await
    }

    async fn attempts(&self, deadline: Deadline) -> Result<Option<QuorumGuard>, Error> {
        let terms = self.terms()?;
        let gates = || self.servers.iter().map(|core| &core.ctx.gate);
        let _calls: Vec<_> = gates().map(|gate| gate.call()).collect();
        loop {
            if let Some(error) = gates().find_map(|gate| gate.no_admission()) {
                return Err(error);
            }
            let error = match self.attempt(terms).await {
                Ok(None) => None,
                Err(error) if matches!(error.kind(), ErrorKind::NoQuorum { .. }) => Some(error),
                outcome => return outcome,
            };
            let pause =
                self.pause.1.saturating_sub(self.pause.0).mul_f64(crate::base::random::fraction());
            let pause = self.pause.0 + pause;
            let again = match deadline {
                Deadline::Now => false,
                Deadline::At(end) => Instant::now() + pause < end,
                Deadline::Never => error.is_none(),
            };
            if !again {
                return error.map_or(Ok(None), Err);
            }
            tokio::select! {
                () = tokio::time::sleep(pause) => {}
                () = any_closes(&self.servers) => {}
            }
        }
    }

    fn terms(&self) -> Result<Terms, Error> {
        let of_clients = self.servers.iter().map(|core| core.ctx.settings.lease).min();
        let Some(of_clients) = of_clients else {
            return Err(Error::invalid("a quorum lock needs at least one server"));
        };
        self.options.check()?;
        let lease = self.options.lease.unwrap_or(of_clients);
        let timeout = self.timeout.unwrap_or_else(|| TIMEOUT.min(lease / 10));
        if lease < LEASE_MIN {
            return Err(Error::invalid("lease of a quorum lock must be at least 30 ms"));
        }
        if timeout.is_zero() || timeout >= lease / 2 {
            return Err(Error::invalid("server_timeout must be less than half of the lease"));
        }
        if self.pause.0 > self.pause.1 || lease_ms(self.pause.1).is_err() {
            return Err(Error::invalid(
                "back_off must be from shorter to longer, 1 ms to 365 days",
            ));
        }
        if self.key.is_empty() {
            return Err(Error::invalid("key must not be empty"));
        }
        Ok(Terms { lease, timeout })
    }

    /// One attempt. None: another client has the lock, or is about to.
    async fn attempt(&self, terms: Terms) -> Result<Option<QuorumGuard>, Error> {
        let label = self.options.label.as_ref();
        let upkeep = match (self.options.lease, self.options.max_hold) {
            (None, max_hold) => Upkeep::Renewed { max_hold },
            (Some(_), _) => Upkeep::None,
        };
        let (orders, mut view) = Driver::start(&self.servers, &self.key, label, terms, upkeep)?;
        let decided = view.wait_for(|view| view.standing != Standing::Pending).await;
        let Ok(decided) = decided.map(|view| view.clone()) else {
            return Err(Error::abandoned());
        };
        if decided.closed {
            return Err(Error::closed());
        }
        let wanted = self.servers.len() / 2 + 1;
        let (why, granted) = match decided.standing {
            Standing::Held { token, .. } => {
                let (key, timeout) = (self.key.clone(), terms.timeout);
                let held = QuorumHold { key, token, view };
                return Ok(Some(QuorumGuard { held, wanted, timeout, orders }));
            }
            Standing::Failed { why, granted } => (why, granted),
            // Lost in the moment in which it was granted.
            _ => return Ok(None),
        };
        let what = match why {
            Failure::Contended => return Ok(None),
            Failure::Unreachable => "too few servers answered",
            Failure::TooLate => "too few servers had the token in time",
        };
        let servers = self.servers.len();
        let mut text = format!("{what}: {granted} of {servers} granted, {wanted} wanted");
        if let Some(error) = decided.error {
            text = format!("{text}; {error}");
        }
        Err(no_quorum(granted, wanted, text))
    }
}

handle_with!(QuorumLock, QuorumHold);

impl fmt::Debug for QuorumLock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("QuorumLock")
            .field("key", &quote(&self.key))
            .field("servers", &self.servers.len())
            .field("lease", &self.options.lease)
            .finish_non_exhaustive()
    }
}

/// A hold of a quorum lock. Release it with [`release`](QuorumGuard::release); dropping it does so in the background,
/// which needs a running runtime.
///
/// While the guard lives, a watchdog renews it on all servers that are part of it (unless the lock has its own
/// lease). A server that lost its hold is not asked again: the lock lives on with the others while they are a
/// majority.
#[must_use = "the lock is released when the guard is dropped"]
#[derive(Debug)]
pub struct QuorumGuard {
    held: QuorumHold,
    wanted: usize,
    timeout: Duration,
    /// Closing it is an order to release, too.
    orders: mpsc::Sender<()>,
}

guard_with!(QuorumGuard, QuorumHold);

/// A view of the hold of a quorum lock, for the work under it. It keeps no hold alive.
#[derive(Clone)]
pub struct QuorumHold {
    key: Arc<[u8]>,
    token: u64,
    view: watch::Receiver<View>,
}

impl QuorumHold {
    /// The key that is locked.
    pub fn key(&self) -> &[u8] {
        &self.key
    }

    /// The fencing token, 1 to 2^53 - 1, the same on all servers that are part of the lock, and larger than that of
    /// every earlier holder; see [what it needs](QuorumLock#what-it-needs).
    pub fn token(&self) -> u64 {
        self.token
    }

    /// How long it is certain to last if nothing renews it: what is left of the lease, counted from before the first
    /// request, less 1 % of it and 2 ms. Zero when it is lost.
    pub fn valid_for(&self) -> Duration {
        self.view.borrow().valid_for()
    }

    /// Resolves when the lock is lost: [`Expired`](Lost::Expired) when its time is over by the clock of this machine,
    /// [`Refused`](Lost::Refused) when the servers that still hold it are no majority. Does not resolve
    /// for a lock that is released.
    pub fn lost(&self) -> impl Future<Output = Lost> + Send + 'static {
        let mut view = self.view.clone();
        let clock = self.view.clone();
        let told = async move {
            loop {
                let seen = view.borrow_and_update().clone();
                if let Some(how) = seen.lost() {
                    return how;
                }
                if seen.standing == Standing::Released {
                    std::future::pending::<()>().await;
                }
                tokio::select! {
                    changed = view.changed() => if changed.is_err() {
                        // The driver is gone: nothing renews it.
                        return Lost::Abandoned;
                    },
                    () = sleep_until(seen.until) => {}
                }
            }
        };
        by_the_clock(move || clock.borrow().lost(), told)
    }

    /// How it was lost, if it was.
    pub fn lost_now(&self) -> Option<Lost> {
        self.view.borrow().lost()
    }
}

impl Deref for QuorumGuard {
    type Target = QuorumHold;

    fn deref(&self) -> &QuorumHold {
        &self.held
    }
}

impl QuorumGuard {
    /// Releases it on all servers. [`Released::Gone`]: without the servers that had lost it before, there is no
    /// majority.
    ///
    /// Waits until a majority has released it, so that other clients can acquire the lock, but at most for the timeout
    /// of one server; then it goes on in the background.
    ///
    /// # Errors
    ///
    /// [`NoQuorum`](ErrorKind::NoQuorum): fewer than a majority said in that time that they released it; other clients
    /// may have to wait until the lease ends. [`ReleaseUnknown`](ErrorKind::ReleaseUnknown): replies were lost, and too
    /// few servers know whether the lock lasted until then.
    ///
    /// # Cancel safety
    ///
    /// Dropping this future does not stop the release: it goes on in the background.
    pub async fn release(self) -> Result<Released, Error> {
        Holding::release(&self).await
    }
}

impl Holding for QuorumGuard {
    fn lost(&self) -> impl Future<Output = Lost> + Send {
        self.held.lost()
    }

    fn lost_now(&self) -> Option<Lost> {
        self.held.lost_now()
    }

    fn lost_keys(&self) -> Vec<Vec<u8>> {
        vec![self.held.key.to_vec()]
    }

    fn in_span<F: Future>(&self, work: F) -> impl Future<Output = F::Output> {
        work
    }

    async fn release(&self) -> Result<Released, Error> {
        let lost = self.lost_now();
        // An error: it has been told, or has ended.
        let _ = self.orders.try_send(());
        let wanted = self.wanted;
        let mut view = self.held.view.clone();
        let done = view.wait_for(|view| view.settled || view.tally.is_decided(wanted));
        // An error: the runtime has ended.
        let _ = timeout(self.timeout, done).await;
        let view = self.held.view.borrow();
        view.released(lost, wanted, self.lost_keys())
    }
}

impl fmt::Debug for QuorumHold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("QuorumHold")
            .field("key", &quote(&self.key))
            .field("token", &self.token)
            .field("valid_for", &self.valid_for())
            .field("lost", &self.lost_now())
            .finish_non_exhaustive()
    }
}
