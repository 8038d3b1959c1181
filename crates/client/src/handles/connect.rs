//! Connecting.

#[cfg(feature = "redis")]
mod existing;

use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::time::Instant;

use crate::base::back_off::BackOff;
use crate::base::dialer::Dial;
use crate::base::error::Error;
use crate::base::settings::{Settings, Wait};
use crate::base::tls;
#[cfg(feature = "tls-rustls")]
use crate::base::tls::TlsCertificates;
#[cfg(feature = "sentinel")]
use crate::base::url::sentinel::credentials;
use crate::base::url::{Endpoints, take_replicas};
use crate::handles::client::Client;
use crate::shell::Core;

/// Before a server that is not there yet is tried again.
const PAUSES: BackOff = BackOff::new(Duration::from_millis(50), Duration::from_secs(1));

impl Client {
    /// Connects. The URL is
    ///
    /// - `redis://[user:password@]host:port/db`, `rediss://…` with TLS, `unix:///path` for one server;
    /// - `redis-sentinel://[user:password@]host:port,host:port/name[/db]` for the primary of that name, whichever
    ///   server that is. User and password are those of the servers; those of the Sentinels are parameters:
    ///   `?sentinel_username=…&sentinel_password=…`, or with [`ClientBuilder::sentinel_credentials`];
    /// - `redis-cluster://[user:password@]host:port,host:port` for a cluster;
    /// - the latter two with `rediss-` for TLS, also to the Sentinels (unless `sentinel_tls=no`);
    /// - each with the parameter `?replicas=n`, which is [`ClientBuilder::holds_through_failover`].
    ///
    /// In users and passwords, characters with a meaning in URLs are written as `%40` (`@`), `%26` (`&`) and so on.
    ///
    /// Needs a tokio runtime, which has to live as long as the client.
    ///
    /// # Errors
    ///
    /// [`Invalid`](crate::ErrorKind::Invalid) (the URL, or no runtime), [`Refused`](crate::ErrorKind::Refused),
    /// [`NoModule`](crate::ErrorKind::NoModule), [`Unavailable`](crate::ErrorKind::Unavailable).
    ///
    /// # Cancel safety
    ///
    /// Dropping this future ends the connections.
    pub async fn connect(url: &str) -> Result<Self, Error> {
        Self::builder().connect(url).await
    }

    /// Settings, for a client that is not connected yet.
    pub fn builder() -> ClientBuilder {
        ClientBuilder::default()
    }
}

/// Settings of a [`Client`], before it connects.
///
/// ```
#[doc = example!()]
/// use std::time::Duration;
/// use dlock_client::Client;
///
/// let client = Client::builder().lease(Duration::from_secs(10)).connect(&url).await?;
/// # Ok::<(), dlock_client::Error>(()) }).unwrap();
/// ```
#[derive(Debug, Clone, Default)]
#[must_use = "call connect"]
pub struct ClientBuilder {
    settings: Settings,
    #[cfg(feature = "tls-rustls")]
    tls: Option<TlsCertificates>,
    #[cfg(feature = "sentinel")]
    sentinel: Option<redis::RedisConnectionInfo>,
}

/// Methods of [`ClientBuilder`] that change one setting.
macro_rules! settings {
    ($($(#[$doc:meta])* $setting:ident: $type:ty,)*) => {
        impl ClientBuilder {
            $($(#[$doc])*
            pub fn $setting(mut self, $setting: $type) -> Self {
                self.settings.$setting = $setting;
                self
            })*
        }
    };
}

settings! {
    /// How tasks wait, unless a lock says otherwise; default [`Wait::Queue`].
    wait: Wait,

    /// The lease of holds without their own lease, 30 ms to 365 days, default 30 s. A watchdog renews these holds
    /// every third of it; a lock stays held that long after its holder's process died.
    lease: Duration,

    /// How long the watchdog keeps a hold alive, unless a handle says otherwise
    /// ([`Lock::max_hold`](crate::Lock::max_hold)), 1 ms to 365 days. Default None: as long as its guard lives.
    max_hold: Option<Duration>,

    /// How long a place in the queue outlives its connection, and the longest lease of what a waiting task is granted
    /// until the watchdog renews it, 100 ms to 1 day, default 10 s. Waiting tasks ask again every half of it; a process
    /// that dies while it waits holds the queue up by as much, once.
    queue: Duration,

    /// How long setting up a connection may take, 1 ms to 365 days, default 3 s.
    connect_timeout: Duration,

    /// How long [`connect`](Self::connect) waits for a server that is not there yet, at most 365 days, default 0: it
    /// tries once. It tries again after any error but those of kind [`Refused`](crate::ErrorKind::Refused) and
    /// [`NoModule`](crate::ErrorKind::NoModule). The last attempt may end one
    /// [`connect_timeout`](Self::connect_timeout) later.
    connect_retry_for: Duration,

    /// How long the answer to a request that does not wait may take, 1 ms to 365 days, default 3 s. After that the
    /// connection counts as dead and the request is repeated over a new one, with the same request id.
    response_timeout: Duration,

    /// How long a call goes on while no server answers, 1 ms to 365 days, default 10 s: the one setting for every
    /// request after [`connect`](Self::connect), which has [`connect_retry_for`](Self::connect_retry_for). It covers
    /// an acquire that waits, too: each answer starts the time again, so an acquire waits without a limit while a
    /// server answers. Calls with their own timeout end by that. A server that cannot grant for now (it loads its
    /// data, or is in quarantine) does answer.
    retry_for: Duration,

    /// How many calls may block a dedicated connection at a time, per server, default 32. Each costs the server
    /// some 40 to 75 KB while it is blocked. A connection that was not used for a minute closes within another one.
    dedicated_connections: usize,
}

impl ClientBuilder {
    /// A grant counts only when `replicas` replicas have it, and so does each renewal: a hold lasts no longer than the
    /// last renewal that they confirmed. If the servers are set up for it
    /// ([docs/failover.md](https://github.com/dlock/dlock/blob/main/docs/failover.md), `dlock doctor`), no two clients
    /// hold a lock at the same time, also after failovers. 1 or more; the default is not to wait for replicas. Also
    /// `replicas=n` in the URL; the larger number counts.
    ///
    /// An acquire gets [`Replicas`](crate::ErrorKind::Replicas) if too few replicas have its grant within a sixth of
    /// the lease, at most one second; the grant is released. While replicas are missing, the client's requests wait
    /// for up to that time, and holds end with their leases. A release does not wait. Every client of a lock needs this
    /// setting. A lease above the server's `dlock.restart-quarantine-ms` is [`Invalid`](crate::ErrorKind::Invalid).
    pub fn holds_through_failover(mut self, replicas: u32) -> Self {
        self.settings.replicas = Some(replicas);
        self
    }

    /// Certificates for `rediss://`: your own authority (instead of those that the system trusts), and a
    /// certificate of this client. They apply to Sentinels and all nodes of a cluster, too. Bad certificates, and a URL
    /// without TLS, are [`Invalid`](crate::ErrorKind::Invalid).
    #[cfg(feature = "tls-rustls")]
    pub fn tls(mut self, certificates: TlsCertificates) -> Self {
        self.tls = Some(certificates);
        self
    }

    /// User and password of the Sentinels themselves, as `sentinel_username` and `sentinel_password` of the URL, and
    /// before these. An empty user is the default one, whose password Sentinels call `requirepass`. No effect without
    /// Sentinels.
    ///
    /// ```
    #[doc = example!()]
    /// # let sentinels = dlock_testing::Sentinels::with().requirepass("s3cret").start(1, &server, 0);
    /// # let url = sentinels.url();
    /// // url: "redis-sentinel://sentinel-a:26379,sentinel-b:26379/locks"
    /// let builder = dlock_client::Client::builder().sentinel_credentials("", "s3cret");
    /// let client = builder.connect(&url).await?;
    /// # Ok::<(), dlock_client::Error>(()) }).unwrap();
    /// ```
    #[cfg(feature = "sentinel")]
    pub fn sentinel_credentials(
        mut self,
        user: impl Into<String>,
        password: impl Into<String>,
    ) -> Self {
        self.sentinel = Some(credentials(&user.into(), &password.into()));
        self
    }

    /// Connects to what `url` names; see [`Client::connect`].
    #[doc = errors_as!("[`Client::connect`]")]
    pub async fn connect(self, url: &str) -> Result<Client, Error> {
        let (url, replicas) = take_replicas(url)?;
        let mut builder = self;
        builder.settings.replicas = builder.settings.replicas.max(replicas);
        builder.connect_to(Endpoints::parse(&url)?).await
    }

    /// Connects to whatever that leads to.
    pub(crate) async fn connect_by(self, dialer: Arc<dyn Dial>) -> Result<Client, Error> {
        self.connect_to(Endpoints::Given(dialer)).await
    }

    async fn connect_to(self, mut endpoints: Endpoints) -> Result<Client, Error> {
        self.settings.check()?;
        #[cfg(feature = "sentinel")]
        if let (Some(credentials), Endpoints::Sentinel(named)) = (&self.sentinel, &mut endpoints) {
            named.set_credentials(credentials);
        }
        #[cfg(feature = "tls-rustls")]
        if let Some(tls) = self.tls {
            endpoints.certify(&tls.checked()?)?;
        }
        let has_tls = endpoints.has_tls();
        if has_tls {
            tls::crypto_provider()?;
        }
        let runtime = Handle::try_current()
            .map_err(|_| Error::invalid("connect has to be called inside a tokio runtime"))?;
        let until = Instant::now() + self.settings.connect_retry_for;
        let mut pauses = PAUSES;
        let core = loop {
            let settings = self.settings.clone();
            match Core::connect(endpoints.clone(), settings, runtime.clone()).await {
                Err(error) if !error.ends_opening() && Instant::now() < until => {
                    pauses.pause_within(until.saturating_duration_since(Instant::now())).await;
                }
                done => break done.map_err(|error| error.of_port(has_tls))?,
            }
        };
        Ok(Client::from_core(core))
    }
}
