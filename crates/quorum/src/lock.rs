//! The lock: its options, and the ways to acquire it.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use dlock_client::internal::{self, Moment, Options, millis};
use dlock_client::{Client, Error, ErrorKind};
use dlock_wire::names::LEASE_MAX_MS;
use dlock_wire::reply::quote;

use crate::attempt::{Failure, Standing, Terms};
use crate::driver::{Driver, any_closes};
use crate::guard::{QuorumGuard, QuorumHold};
use crate::view::no_quorum;

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
/// use dlock_client::Client;
/// use dlock_quorum::QuorumLock;
///
/// let mut clients = Vec::new();
/// for url in &urls {
///     clients.push(Client::connect(url).await?);
/// }
/// let lock = QuorumLock::new(clients, "nightly-report");
/// let guard = lock.acquire().await?;
/// assert!(lock.try_acquire().await?.is_none());
/// println!("the fencing token is {}", guard.token());
/// guard.release().await?;
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
/// server, or one with replicas ([`Lock::replicas`](dlock_client::Lock::replicas)), is faster and fair.
#[derive(Clone)]
pub struct QuorumLock {
    servers: Arc<[Client]>,
    key: Arc<[u8]>,
    options: Options,
    /// Of one server.
    timeout: Option<Duration>,
    pause: (Duration, Duration),
}

impl QuorumLock {
    /// The lock of this key on these servers: an odd number of them, mostly 3 or 5. Nothing is sent before an
    /// acquire.
    pub fn new(clients: impl IntoIterator<Item = Client>, key: impl AsRef<[u8]>) -> Self {
        Self {
            servers: clients.into_iter().collect(),
            key: key.as_ref().into(),
            options: Options::default(),
            timeout: None,
            pause: (Duration::from_millis(10), Duration::from_millis(100)),
        }
    }

    /// The lease, 30 ms to 365 days, which a watchdog renews every third of it while the guard lives. Without this, it
    /// is the shortest of those of the clients.
    #[must_use]
    pub fn lease(mut self, lease: Duration) -> Self {
        (self.options.lease, self.options.is_fixed) = (Some(lease), false);
        self
    }

    /// A lease of this length, 30 ms to 365 days, that nothing renews.
    #[must_use]
    pub fn fixed_lease(mut self, lease: Duration) -> Self {
        (self.options.lease, self.options.is_fixed) = (Some(lease), true);
        self
    }

    /// As [`Lock::max_hold`](dlock_client::Lock::max_hold): the longest time that the watchdog keeps the lock alive, 1
    /// ms to 365 days. Then it is lost with the reason [`MaxHold`](dlock_client::Lost::MaxHold), and released. No
    /// effect with a [`fixed_lease`](QuorumLock::fixed_lease). The setting of the clients does not apply.
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

    /// How long [`acquire`](Self::acquire) and [`with`](Self::with) try at most, also while too few servers answer. The
    /// time of the work is not limited.
    #[must_use]
    pub fn timeout(mut self, time: Duration) -> Self {
        self.options.timeout = Some(time);
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
        self.acquire_with(Moment::now()).await
    }

    /// Tries until it has the lock.
    ///
    /// # Errors
    ///
    /// As [`try_acquire`](QuorumLock::try_acquire): without a [`timeout`](Self::timeout) it does not wait for servers
    /// to come back. After that [`NotAcquired`](ErrorKind::NotAcquired): another client had it at the last attempt.
    ///
    /// # Cancel safety
    ///
    /// As [`try_acquire`](QuorumLock::try_acquire).
    pub async fn acquire(&self) -> Result<QuorumGuard, Error> {
        let deadline = self.options.timeout.map_or(Moment::NEVER, |time| Moment::now().after(time));
        let guard = self.acquire_with(deadline).await?;
        guard.ok_or_else(|| internal::of_keys(internal::not_acquired(), vec![self.key.to_vec()]))
    }

    /// Tries for at most `time`, also while too few servers answer. None: another client had it at the last attempt.
    ///
    /// # Errors and cancel safety
    ///
    /// As [`try_acquire`](QuorumLock::try_acquire).
    pub async fn acquire_timeout(&self, time: Duration) -> Result<Option<QuorumGuard>, Error> {
        self.acquire_with(Moment::now().after(time)).await
    }

    async fn acquire_with(&self, deadline: Moment) -> Result<Option<QuorumGuard>, Error> {
        let token = |guard: &QuorumGuard| guard.token();
        internal::report_acquire(&self.key, token, self.attempts(deadline)).await
    }

    async fn attempts(&self, deadline: Moment) -> Result<Option<QuorumGuard>, Error> {
        let terms = self.terms()?;
        let _calls: Vec<_> = self.servers.iter().map(internal::begin_cleanup).collect();
        loop {
            if let Some(error) = self.servers.iter().find_map(internal::no_admission) {
                return Err(error);
            }
            let error = match self.attempt(terms).await {
                Ok(None) => None,
                Err(error) if matches!(error.kind(), ErrorKind::NoQuorum { .. }) => Some(error),
                outcome => return outcome,
            };
            let pause = self.pause.1.saturating_sub(self.pause.0).mul_f64(internal::fraction());
            let pause = self.pause.0 + pause;
            // Without a deadline, it does not wait for servers to come back.
            let gives_up = deadline == Moment::NEVER && error.is_some();
            if gives_up || Moment::now().after(pause) >= deadline {
                return error.map_or(Ok(None), Err);
            }
            tokio::select! {
                () = tokio::time::sleep(pause) => {}
                () = any_closes(&self.servers) => {}
            }
        }
    }

    fn terms(&self) -> Result<Terms, Error> {
        let of_clients = self.servers.iter().map(internal::lease).min();
        let Some(of_clients) = of_clients else {
            return Err(internal::invalid("a quorum lock needs at least one server"));
        };
        self.options.check()?;
        let lease = self.options.lease.unwrap_or(of_clients);
        let timeout = self.timeout.unwrap_or_else(|| TIMEOUT.min(lease / 10));
        if lease < LEASE_MIN {
            return Err(internal::invalid("lease of a quorum lock must be at least 30 ms"));
        }
        if timeout.is_zero() || timeout >= lease / 2 {
            return Err(internal::invalid("server_timeout must be less than half of the lease"));
        }
        if self.pause.0 > self.pause.1 || !(1..=LEASE_MAX_MS).contains(&millis(self.pause.1)) {
            return Err(internal::invalid(
                "back_off must be from shorter to longer, 1 ms to 365 days",
            ));
        }
        if self.key.is_empty() {
            return Err(internal::invalid("key must not be empty"));
        }
        Ok(Terms { lease, timeout })
    }

    /// One attempt. None: another client has the lock, or is about to.
    async fn attempt(&self, terms: Terms) -> Result<Option<QuorumGuard>, Error> {
        let (orders, mut view) = Driver::start(&self.servers, &self.key, &self.options, terms)?;
        let decided = view.wait_for(|view| view.standing != Standing::Pending).await;
        let Ok(decided) = decided.map(|view| view.clone()) else {
            return Err(internal::abandoned());
        };
        if decided.closed {
            return Err(internal::closed());
        }
        let wanted = self.servers.len() / 2 + 1;
        let (why, granted) = match decided.standing {
            Standing::Held { token, .. } => {
                let held = QuorumHold { key: self.key.clone(), token, view };
                return Ok(Some(QuorumGuard { held, wanted, timeout: terms.timeout, orders }));
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

/// Work under the lock.
impl QuorumLock {
    /// Acquires as [`acquire`](Self::acquire), runs the work under the hold, and releases it. When the hold is lost,
    /// the work is cancelled: its future is dropped.
    ///
    /// # Errors
    ///
    /// As [`acquire`](Self::acquire), and those of [`QuorumGuard::with`].
    ///
    /// # Cancel safety
    ///
    /// Dropping this future gives up, or drops the work and releases the hold in the background. It does not borrow the
    /// lock, so it can be spawned if the work can.
    pub fn with<T, E, F, W>(&self, work: W) -> impl Future<Output = Result<T, E>> + use<T, E, F, W>
    where
        F: Future<Output = Result<T, E>>,
        E: From<Error>,
        W: FnOnce(QuorumHold) -> F,
    {
        let lock = self.clone();
        async move { lock.acquire().await?.with(work).await }
    }
}

impl fmt::Debug for QuorumLock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("QuorumLock")
            .field("key", &quote(&self.key))
            .field("servers", &self.servers.len())
            .field("lease", &self.options.lease)
            .finish_non_exhaustive()
    }
}
