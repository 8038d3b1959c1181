//! The client itself: connects, and makes handles.

use std::fmt;
use std::sync::Arc;

use dlock_wire::names::KEYS_MAX;

use crate::acquire::What;
use crate::admin::Admin;
use crate::config::ClientBuilder;
use crate::core::Core;
use crate::error::Error;
use crate::latch::Latch;
use crate::lock::{Lock, RwLock};
use crate::multi::{AnyLock, MultiLock};
use crate::semaphore::Semaphore;

/// A client of one server, of the primary that Sentinels name, or of a cluster. Cheap to clone; all clones and
/// handles share one connection to each server, plus private ones for calls that block.
///
/// Whatever is held through a client stays held while guards of it live, even if the client is dropped.
///
/// ```
/// # tokio::runtime::Runtime::new().unwrap().block_on(async {
/// # let server = dlock_testing::Server::start();
/// # let url = server.url();
/// let client = dlock_client::Client::connect(&url).await?;
/// let guard = client.lock("invoice:42").acquire().await?;
/// // Work that nobody else does meanwhile.
/// guard.release().await?;
/// # Ok::<(), dlock_client::Error>(()) }).unwrap();
/// ```
#[derive(Clone)]
pub struct Client {
    core: Arc<Core>,
}

impl Client {
    pub(crate) fn from_core(core: Arc<Core>) -> Self {
        Self { core }
    }

    /// What operators read and break.
    pub fn admin(&self) -> Admin {
        Admin::new(self.core.clone())
    }

    pub(crate) fn core(&self) -> &Arc<Core> {
        &self.core
    }

    /// Connects. The URL is
    ///
    /// - `redis://[user:password@]host:port/db`, `rediss://…` with TLS, `unix:///path` for one server;
    /// - `redis-sentinel://[user:password@]host:port,host:port/name[/db]` for the primary of that name, whichever
    ///   server that is. User and password are those of the servers; those of the Sentinels come behind, as
    ///   `?sentinel_username=…&sentinel_password=…`, or with [`ClientBuilder::sentinel_credentials`];
    /// - `redis-cluster://[user:password@]host:port,host:port` for a cluster;
    /// - the latter two with `rediss-` for TLS, also to the Sentinels (unless `sentinel_tls=no`).
    ///
    /// In users and passwords, what has a meaning in URLs is written as `%40` (`@`), `%26` (`&`) and so on.
    ///
    /// Inside a tokio runtime, which has to live as long as the client is used. Errors:
    /// [`Invalid`](crate::ErrorKind::Invalid) (the URL), [`Refused`](crate::ErrorKind::Refused),
    /// [`Unavailable`](crate::ErrorKind::Unavailable).
    pub async fn connect(url: &str) -> Result<Self, Error> {
        Self::builder().connect(url).await
    }

    /// To set how the client behaves before it connects.
    pub fn builder() -> ClientBuilder {
        ClientBuilder::default()
    }

    /// Closes this client with all its clones and handles: for the end of a process, so that nobody has to wait for the
    /// leases and places that it leaves behind.
    ///
    /// - Acquires and waits that are on their way end with [`Closed`](crate::ErrorKind::Closed), and leave their queues.
    ///   So do all that come later.
    /// - Holds whose guards still live are released; [`Hold::lost`](crate::Hold::lost) resolves with
    ///   [`Lost::Closed`](crate::Lost::Closed) before that, work under `with` is cancelled, and
    ///   [`Guard::release`](crate::Guard::release) finds it [`Gone`](crate::Released::Gone). A quorum lock is given up on
    ///   all its servers as soon as one of its clients is closed.
    /// - Then the connections end. Any other call fails with [`Closed`](crate::ErrorKind::Closed) from then on.
    ///
    /// It takes about a round trip, and no longer than
    /// [`response_timeout`](crate::ClientBuilder::response_timeout). Calls for latches and for several locks wait on
    /// connections of their own, which end when their futures are polled or dropped; those that are neither within 100 ms
    /// are not waited for.
    ///
    /// Closing twice is fine: each call returns when the client is closed, with the same outcome. Dropping this future
    /// stops nothing: the client goes on closing in the background.
    ///
    /// # Errors
    ///
    /// [`Unavailable`](crate::ErrorKind::Unavailable): a server did not confirm in time that all was given back; the client
    /// is closed, and what is left there ends with its lease. [`Closed`](crate::ErrorKind::Closed): the runtime in which
    /// the client was connected has ended.
    ///
    /// ```
    /// # tokio::runtime::Runtime::new().unwrap().block_on(async {
    /// # let server = dlock_testing::Server::start();
    /// # let client = dlock_client::Client::connect(&server.url()).await?;
    /// use dlock_client::{ErrorKind, Lost};
    ///
    /// let guard = client.lock("orders:7").acquire().await?;
    /// client.close().await?;
    /// assert_eq!(guard.lost_now(), Some(Lost::Closed));
    /// let late = client.lock("orders:7").acquire().await;
    /// assert_eq!(late.unwrap_err().kind(), ErrorKind::Closed);
    /// # Ok::<(), dlock_client::Error>(()) }).unwrap();
    /// ```
    pub async fn close(&self) -> Result<(), Error> {
        self.core.close().await
    }

    /// The lock of that name: one holder, re-entrant for a named [`owner`](Lock::owner).
    pub fn lock(&self, key: impl AsRef<[u8]>) -> Lock {
        Lock::new(&self.core, What::Lock { fair: false }, key.as_ref())
    }

    /// The lock of that name with a queue that is part of the key: places outlive restarts and failovers of the
    /// server, and lost connections.
    ///
    /// ```
    /// # tokio::runtime::Runtime::new().unwrap().block_on(async {
    /// # let server = dlock_testing::Server::start();
    /// # let client = dlock_client::Client::connect(&server.url()).await?;
    /// let guard = client.fair_lock("tickets").acquire().await?;
    /// # Ok::<(), dlock_client::Error>(()) }).unwrap();
    /// ```
    pub fn fair_lock(&self, key: impl AsRef<[u8]>) -> Lock {
        Lock::new(&self.core, What::Lock { fair: true }, key.as_ref())
    }

    /// The read-write lock of that name.
    pub fn rw_lock(&self, key: impl AsRef<[u8]>) -> RwLock {
        RwLock::new(&self.core, key.as_ref())
    }

    /// The semaphore of that name.
    pub fn semaphore(&self, key: impl AsRef<[u8]>) -> Semaphore {
        Semaphore::new(&self.core, key.as_ref())
    }

    /// The count-down latch of that name.
    pub fn latch(&self, key: impl AsRef<[u8]>) -> Latch {
        Latch::new(&self.core, key.as_ref())
    }

    /// Several locks, to be taken together: 1 to 262,144 different keys.
    pub fn multi_lock<K: AsRef<[u8]>>(&self, keys: impl IntoIterator<Item = K>) -> MultiLock {
        MultiLock::new(&self.core, owned(keys))
    }

    /// Several locks, any one of which will do: 1 to 262,144 different keys.
    pub fn any_lock<K: AsRef<[u8]>>(&self, keys: impl IntoIterator<Item = K>) -> AnyLock {
        AnyLock::new(&self.core, owned(keys))
    }

    /// A lock in `stripes` parts, each of which can be held by somebody: the keys are `{key}:0`, `{key}:1`, … with
    /// the braces, so that they share a slot of a cluster.
    pub fn striped_lock(&self, key: impl AsRef<[u8]>, stripes: u32) -> AnyLock {
        let key = key.as_ref();
        let stripe = |n: u32| [b"{", key, b"}:", n.to_string().as_bytes()].concat();
        AnyLock::new(&self.core, (0..stripes.min(KEYS_MAX + 1)).map(stripe).collect())
    }
}

fn owned<K: AsRef<[u8]>>(keys: impl IntoIterator<Item = K>) -> Vec<Vec<u8>> {
    keys.into_iter().map(|key| key.as_ref().to_vec()).collect()
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let servers: Vec<_> =
            self.core.servers().iter().map(|server| server.name.clone()).collect();
        f.debug_struct("Client").field("servers", &servers).finish_non_exhaustive()
    }
}
