//! How a client behaves, and where it connects to.

use std::fmt;
use std::time::Duration;

use crate::client::Client;
use crate::core::Core;
use crate::error::Error;
use crate::url::Target;

/// How to wait for a lock that somebody else holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Wait {
    /// Take a place in the queue over the shared connection, and be told by a message when it is one's turn. Any
    /// number of tasks wait on one connection. The message may get lost (a connection that breaks, a proxy): the
    /// client asks again after each reconnect and at least every half [`ClientBuilder::queue`].
    #[default]
    Queue,
    /// Block a private connection for each waiting task. For servers behind proxies that do not pass messages on.
    /// At most [`ClientBuilder::private_connections`] wait at a time; the next gets [`ErrorKind::Busy`](crate::ErrorKind::Busy).
    Blocking,
}

/// Settings of a [`Client`], before it connects.
///
/// ```
/// # tokio::runtime::Runtime::new().unwrap().block_on(async {
/// # let server = dlock_testing::Server::start();
/// # let url = server.url();
/// use std::time::Duration;
/// use dlock_client::Client;
///
/// let client = Client::builder().lease(Duration::from_secs(10)).connect(&url).await?;
/// # Ok::<(), dlock_client::Error>(()) }).unwrap();
/// ```
#[derive(Debug, Clone)]
#[must_use = "call connect"]
pub struct ClientBuilder {
    settings: Settings,
    tls: Option<redis::TlsCertificates>,
    sentinel: Option<SentinelCredentials>,
}

#[derive(Clone)]
struct SentinelCredentials {
    user: String,
    password: String,
}

impl fmt::Debug for SentinelCredentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SentinelCredentials").field("user", &self.user).finish_non_exhaustive()
    }
}

#[derive(Debug, Clone)]
pub(crate) struct Settings {
    pub(crate) wait: Wait,
    pub(crate) lease: Duration,
    pub(crate) queue: Duration,
    pub(crate) connect_timeout: Duration,
    pub(crate) response_timeout: Duration,
    pub(crate) retry_for: Duration,
    pub(crate) private_connections: usize,
}

impl Default for ClientBuilder {
    fn default() -> Self {
        Self {
            settings: Settings {
                wait: Wait::default(),
                lease: Duration::from_secs(30),
                queue: Duration::from_secs(10),
                connect_timeout: Duration::from_secs(3),
                response_timeout: Duration::from_secs(3),
                retry_for: Duration::from_secs(10),
                private_connections: 256,
            },
            tls: None,
            sentinel: None,
        }
    }
}

impl ClientBuilder {
    /// How tasks wait, unless a lock says otherwise; default [`Wait::Queue`].
    pub fn wait(mut self, wait: Wait) -> Self {
        self.settings.wait = wait;
        self
    }

    /// The lease of holds without one of their own, 30 ms to 365 days, default 30 s. A watchdog renews these holds
    /// every third of it; it is how long a lock stays taken after its holder's process died.
    pub fn lease(mut self, lease: Duration) -> Self {
        self.settings.lease = lease;
        self
    }

    /// How long a place in the queue outlives its connection, and how long a grant that was announced stays ready (at
    /// most `dlock.claim-ms` of the server), 100 ms to 1 day, default 10 s. Waiting tasks ask again every half of it; a
    /// process that dies while it waits holds the queue up by as much, once.
    pub fn queue(mut self, queue: Duration) -> Self {
        self.settings.queue = queue;
        self
    }

    /// How long setting up a connection may take, 1 ms to 365 days, default 3 s.
    pub fn connect_timeout(mut self, timeout: Duration) -> Self {
        self.settings.connect_timeout = timeout;
        self
    }

    /// How long the answer to a request that does not wait may take, 1 ms to 365 days, default 3 s. After that the connection counts
    /// as dead and the request is repeated over a new one, with the same request id.
    pub fn response_timeout(mut self, timeout: Duration) -> Self {
        self.settings.response_timeout = timeout;
        self
    }

    /// How long a request is repeated while no server answers it, 1 ms to 365 days, default 10 s. Calls with a timeout of their own
    /// end by that.
    pub fn retry_for(mut self, time: Duration) -> Self {
        self.settings.retry_for = time;
        self
    }

    /// How many calls may block a connection of their own at a time, per server, default 256. Each costs the server
    /// some 40 to 75 KB while it is blocked.
    pub fn private_connections(mut self, most: usize) -> Self {
        self.settings.private_connections = most;
        self
    }

    /// Certificates for `rediss://`: an authority of one's own (instead of those that the system trusts), and a
    /// certificate of this client. For Sentinels and all nodes of a cluster as well. What is wrong with them, or a URL
    /// without TLS, is [`Invalid`](crate::ErrorKind::Invalid).
    pub fn tls(mut self, certificates: redis::TlsCertificates) -> Self {
        self.tls = Some(certificates);
        self
    }

    /// User and password of the Sentinels themselves, as `sentinel_username` and `sentinel_password` of the URL, and
    /// before these. An empty user is the default one, whose password Sentinels call `requirepass`. Where no Sentinels
    /// are asked this has no effect.
    ///
    /// ```
    /// # tokio::runtime::Runtime::new().unwrap().block_on(async {
    /// # let server = dlock_testing::Server::start();
    /// # let sentinels = dlock_testing::Sentinels::with().requirepass("s3cret").start(1, &server, 0);
    /// # let url = sentinels.url();
    /// // url: "redis-sentinel://sentinel-a:26379,sentinel-b:26379/locks"
    /// let builder = dlock_client::Client::builder().sentinel_credentials("", "s3cret");
    /// let client = builder.connect(&url).await?;
    /// # Ok::<(), dlock_client::Error>(()) }).unwrap();
    /// ```
    pub fn sentinel_credentials(
        mut self,
        user: impl Into<String>,
        password: impl Into<String>,
    ) -> Self {
        let credentials = SentinelCredentials { user: user.into(), password: password.into() };
        self.sentinel = Some(credentials);
        self
    }

    /// Connects to what `url` names; see [`Client::connect`].
    pub async fn connect(self, url: &str) -> Result<Client, Error> {
        let target = Target::parse(url)?;
        self.connect_target(target).await
    }

    /// Connects to one server, with a configuration of redis-rs (`redis::Client::get_connection_info` has that of
    /// an existing client).
    pub async fn connect_info(self, server: redis::ConnectionInfo) -> Result<Client, Error> {
        self.connect_target(Target::Single(Box::new(server))).await
    }

    /// Connects to the primary that these Sentinels name, and to the next one after a failover. `node` has password,
    /// database number and TLS for the servers themselves; its address is not used. All Sentinels are asked with the
    /// user and password of the first of them.
    pub async fn connect_sentinel(
        self,
        sentinels: Vec<redis::ConnectionInfo>,
        primary_name: &str,
        node: redis::ConnectionInfo,
    ) -> Result<Client, Error> {
        let name = primary_name.to_owned();
        self.connect_target(Target::Sentinel { sentinels, name, node: Box::new(node) }).await
    }

    /// Connects to the cluster that these nodes belong to; the other nodes get the same user, password and TLS as
    /// the first of them.
    pub async fn connect_cluster(self, nodes: Vec<redis::ConnectionInfo>) -> Result<Client, Error> {
        self.connect_target(Target::Cluster { nodes }).await
    }

    async fn connect_target(self, mut target: Target) -> Result<Client, Error> {
        self.settings.check()?;
        if let Some(SentinelCredentials { user, password }) = &self.sentinel {
            target.set_sentinel_credentials(user, password);
        }
        if let Some(tls) = &self.tls {
            target = target.with_certificates(tls)?;
        }
        Ok(Client::from_core(Core::connect(target, self.tls, self.settings).await?))
    }
}

impl Settings {
    fn check(&self) -> Result<(), Error> {
        crate::options::lease_ms(self.lease)?;
        if self.lease < Duration::from_millis(30) {
            return Err(Error::invalid("lease must be at least 30 ms to be renewed in time"));
        }
        if !(Duration::from_millis(100)..=Duration::from_hours(24)).contains(&self.queue) {
            return Err(Error::invalid("queue must be 100 ms to 1 day"));
        }
        for (name, time) in [
            ("connect_timeout", self.connect_timeout),
            ("response_timeout", self.response_timeout),
            ("retry_for", self.retry_for),
        ] {
            if !(Duration::from_millis(1)..=Duration::from_hours(365 * 24)).contains(&time) {
                return Err(Error::invalid(format!("{name} must be 1 ms to 365 days")));
            }
        }
        if self.private_connections == 0 {
            return Err(Error::invalid("private_connections must be at least 1"));
        }
        Ok(())
    }

    /// How long a grant lasts at least, from its making on, that a message announced.
    pub(crate) fn announced(&self) -> Duration {
        self.queue.min(Duration::from_millis(dlock_wire::names::CLAIM_MIN_MS))
    }

    pub(crate) fn queue_ms(&self) -> u64 {
        u64::try_from(self.queue.as_millis()).unwrap_or(dlock_wire::names::QUEUE_MAX_MS)
    }
}
