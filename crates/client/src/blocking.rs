//! The same client for programs without tokio: each call blocks its thread.
//!
//! A thread of its own does what goes on in the background (renewals, messages), so holds stay alive while the
//! program works. Asynchronous code is refused with [`Invalid`](crate::ErrorKind::Invalid): these calls would block its
//! runtime. Threads that may block, such as those of `tokio::task::spawn_blocking`, may call them.
//!
//! When the last handle of a client is dropped, the client closes: what was still being given back in the background is
//! given back first. In asynchronous code that takes a thread of its own. [`Client::close`] closes before that.
//!
//! ```
//! # let server = dlock_testing::Server::start();
//! # let url = server.url();
//! let client = dlock_client::blocking::Client::connect(&url)?;
//! let guard = client.lock("orders:7").acquire()?;
//! println!("ours, with fencing token {}", guard.token());
//! guard.release()?;
//! # Ok::<(), dlock_client::Error>(())
//! ```

mod background;

use std::sync::Arc;
use std::time::Duration;

use self::background::Background;
use crate::error::Error;
use crate::lost::{Lost, Released};
use crate::with::{Holding, verdict};
use crate::{ClientBuilder, Wait};

/// How long dropping a guard may block.
const RELEASE_WITHIN: Duration = Duration::from_secs(1);

/// As [`crate::Client`].
#[derive(Clone, Debug)]
pub struct Client {
    client: crate::Client,
    background: Arc<Background>,
}

impl Client {
    /// As [`crate::Client::connect`].
    pub fn connect(url: &str) -> Result<Self, Error> {
        Self::with(crate::Client::builder(), url)
    }

    /// Connects as `builder` says.
    ///
    /// ```
    /// # let server = dlock_testing::Server::start();
    /// # let url = server.url();
    /// use std::time::Duration;
    /// let builder = dlock_client::Client::builder().lease(Duration::from_secs(5));
    /// let client = dlock_client::blocking::Client::with(builder, &url)?;
    /// # Ok::<(), dlock_client::Error>(())
    /// ```
    pub fn with(builder: ClientBuilder, url: &str) -> Result<Self, Error> {
        let background = Background::start()?;
        let client = background.run(builder.connect(url))??;
        background.is_of(&client);
        Ok(Self { client, background: Arc::new(background) })
    }

    /// Closes this client with all its clones, handles and guards, as [`crate::Client::close`]. Calls that wait in other
    /// threads end with [`Closed`](crate::ErrorKind::Closed).
    ///
    /// # Errors
    ///
    /// As [`crate::Client::close`], and [`Invalid`](crate::ErrorKind::Invalid) in asynchronous code.
    pub fn close(&self) -> Result<(), Error> {
        self.background.run(self.client.close())?
    }

    /// As [`crate::Client::lock`].
    pub fn lock(&self, key: impl AsRef<[u8]>) -> Lock {
        Lock { inner: self.client.lock(key), background: self.background.clone() }
    }

    /// As [`crate::Client::fair_lock`].
    pub fn fair_lock(&self, key: impl AsRef<[u8]>) -> Lock {
        Lock { inner: self.client.fair_lock(key), background: self.background.clone() }
    }

    /// As [`crate::Client::rw_lock`].
    pub fn rw_lock(&self, key: impl AsRef<[u8]>) -> RwLock {
        RwLock { inner: self.client.rw_lock(key), background: self.background.clone() }
    }

    /// As [`crate::Client::semaphore`].
    pub fn semaphore(&self, key: impl AsRef<[u8]>) -> Semaphore {
        Semaphore { inner: self.client.semaphore(key), background: self.background.clone() }
    }

    /// As [`crate::Client::latch`].
    pub fn latch(&self, key: impl AsRef<[u8]>) -> Latch {
        Latch { inner: self.client.latch(key), background: self.background.clone() }
    }

    /// As [`crate::Client::multi_lock`].
    pub fn multi_lock<K: AsRef<[u8]>>(&self, keys: impl IntoIterator<Item = K>) -> MultiLock {
        MultiLock { inner: self.client.multi_lock(keys), background: self.background.clone() }
    }

    /// As [`crate::Client::any_lock`].
    pub fn any_lock<K: AsRef<[u8]>>(&self, keys: impl IntoIterator<Item = K>) -> AnyLock {
        AnyLock { inner: self.client.any_lock(keys), background: self.background.clone() }
    }

    /// As [`crate::Client::striped_lock`].
    pub fn striped_lock(&self, key: impl AsRef<[u8]>, stripes: u32) -> AnyLock {
        AnyLock {
            inner: self.client.striped_lock(key, stripes),
            background: self.background.clone(),
        }
    }
}

/// A handle: its options, and the three ways to acquire.
macro_rules! handle {
    ($(#[$doc:meta])* $name:ident gives $guard:ident, with $($option:ident($($arg:ident: $type:ty),*)),* $(,)?) => {
        $(#[$doc])*
        #[derive(Clone, Debug)]
        pub struct $name {
            inner: crate::$name,
            background: Arc<Background>,
        }

        impl $name {
            $(
                #[doc = concat!("As [`crate::", stringify!($name), "::", stringify!($option), "`].")]
                #[must_use]
                pub fn $option(mut self, $($arg: $type),*) -> Self {
                    self.inner = self.inner.$option($($arg),*);
                    self
                }
            )*

            #[doc = concat!("As [`crate::", stringify!($name), "::try_acquire`].")]
            pub fn try_acquire(&self) -> Result<Option<$guard>, Error> {
                Ok(self.background.run(self.inner.try_acquire())??.map(|guard| self.guard(guard)))
            }

            #[doc = concat!("As [`crate::", stringify!($name), "::acquire`].")]
            pub fn acquire(&self) -> Result<$guard, Error> {
                Ok(self.guard(self.background.run(self.inner.acquire())??))
            }

            #[doc = concat!("As [`crate::", stringify!($name), "::acquire_timeout`].")]
            pub fn acquire_timeout(&self, time: Duration) -> Result<Option<$guard>, Error> {
                // Inside the runtime: the time begins to run there.
                let guard = self.background.run(async { self.inner.acquire_timeout(time).await })??;
                Ok(guard.map(|guard| self.guard(guard)))
            }

            /// Waits for it, works under it, gives it back. Nothing can cancel the work of a thread: a hold that is
            /// lost shows only at the end, so ask the guard (`lost_now`) before each step that needs the lock.
            ///
            /// # Errors
            ///
            /// As `acquire`, and [`Lost`](crate::ErrorKind::Lost) if the hold was over before the work was; the work
            /// has always finished then, and its result is dropped.
            pub fn with<T>(&self, work: impl FnOnce(&$guard) -> T) -> Result<T, Error> {
                let guard = self.acquire()?;
                let done = work(&guard);
                if let Some(how) = guard.lost_now() {
                    return Err(Error::lost_by_the_end(how));
                }
                verdict(done, &guard.release())
            }

            fn guard(&self, inner: crate::$guard) -> $guard {
                $guard { inner, background: self.background.clone() }
            }
        }
    };
}

handle! {
    /// As [`crate::Lock`].
    Lock gives Guard, with lease(time: Duration), owner(owner: impl AsRef<[u8]>), label(label: impl AsRef<[u8]>),
    bind(rest: Duration), no_reentry(), wait(wait: Wait), replicas(replicas: u32, timeout: Duration),
    replicas_on_disk(replicas: u32, timeout: Duration),
}

handle! {
    /// As [`crate::Semaphore`].
    Semaphore gives Permit, with lease(time: Duration), owner(owner: impl AsRef<[u8]>),
    label(label: impl AsRef<[u8]>), bind(rest: Duration), count(permits: u32), limit(permits: u32), wait(wait: Wait),
}

handle! {
    /// As [`crate::MultiLock`].
    MultiLock gives MultiGuard, with lease(time: Duration), owner(owner: impl AsRef<[u8]>),
    label(label: impl AsRef<[u8]>), bind(rest: Duration),
}

handle! {
    /// As [`crate::QuorumLock`], over a client of each server.
    ///
    /// ```
    /// # let servers: Vec<_> = (0..3).map(|_| dlock_testing::Server::start()).collect();
    /// # let urls: Vec<_> = servers.iter().map(|server| server.url()).collect();
    /// use dlock_client::blocking::{Client, QuorumLock};
    ///
    /// let clients = urls.iter().map(|url| Client::connect(url)).collect::<Result<Vec<_>, _>>()?;
    /// let lock = QuorumLock::new(clients, "nightly-report");
    /// let guard = lock.acquire()?;
    /// assert!(lock.try_acquire()?.is_none());
    /// println!("the fencing token is {}", guard.token());
    /// guard.release()?;
    /// # Ok::<(), dlock_client::Error>(())
    /// ```
    QuorumLock gives QuorumGuard, with lease(time: Duration), label(label: impl AsRef<[u8]>),
    server_timeout(timeout: Duration), back_off(shortest: Duration, longest: Duration),
}

handle! {
    /// As [`crate::AnyLock`].
    AnyLock gives Guard, with lease(time: Duration), owner(owner: impl AsRef<[u8]>), label(label: impl AsRef<[u8]>),
    bind(rest: Duration),
}

impl QuorumLock {
    /// As [`crate::QuorumLock::new`].
    pub fn new(clients: impl IntoIterator<Item = Client>, key: impl AsRef<[u8]>) -> Self {
        let (clients, others): (Vec<_>, _) =
            clients.into_iter().map(|client| (client.client, client.background)).unzip();
        let background = Arc::new(Background::of_several(others));
        Self { inner: crate::QuorumLock::new(clients, key), background }
    }
}

impl Lock {
    /// As [`crate::Lock::check`].
    pub fn check(&self, token: u64) -> Result<(), Error> {
        self.background.run(self.inner.check(token))?
    }
}

impl Semaphore {
    /// As [`crate::Semaphore::init`].
    pub fn init(&self, permits: u32) -> Result<bool, Error> {
        self.background.run(self.inner.init(permits))?
    }

    /// As [`crate::Semaphore::resize`].
    pub fn resize(&self, permits: u32) -> Result<i64, Error> {
        self.background.run(self.inner.resize(permits))?
    }

    /// As [`crate::Semaphore::resize_by`].
    pub fn resize_by(&self, delta: i64) -> Result<i64, Error> {
        self.background.run(self.inner.resize_by(delta))?
    }

    /// As [`crate::Semaphore::take`].
    pub fn take(&self, permits: u32) -> Result<bool, Error> {
        self.background.run(self.inner.take(permits))?
    }

    /// As [`crate::Semaphore::take_timeout`].
    pub fn take_timeout(&self, permits: u32, time: Duration) -> Result<bool, Error> {
        self.background.run(async { self.inner.take_timeout(permits, time).await })?
    }

    /// As [`crate::Semaphore::give`].
    pub fn give(&self, permits: u32) -> Result<i64, Error> {
        self.background.run(self.inner.give(permits))?
    }

    /// As [`crate::Semaphore::drain`].
    pub fn drain(&self) -> Result<i64, Error> {
        self.background.run(self.inner.drain())?
    }
}

/// As [`crate::RwLock`].
#[derive(Clone, Debug)]
pub struct RwLock {
    inner: crate::RwLock,
    background: Arc<Background>,
}

impl RwLock {
    /// As [`crate::RwLock::read`].
    #[must_use]
    pub fn read(&self) -> Lock {
        Lock { inner: self.inner.read(), background: self.background.clone() }
    }

    /// As [`crate::RwLock::write`].
    #[must_use]
    pub fn write(&self) -> Lock {
        Lock { inner: self.inner.write(), background: self.background.clone() }
    }
}

/// As [`crate::Latch`].
#[derive(Clone, Debug)]
pub struct Latch {
    inner: crate::Latch,
    background: Arc<Background>,
}

impl Latch {
    /// As [`crate::Latch::init`].
    pub fn init(&self, count: u32) -> Result<bool, Error> {
        self.background.run(self.inner.init(count))?
    }

    /// As [`crate::Latch::init_for`].
    pub fn init_for(&self, count: u32, time: Duration) -> Result<bool, Error> {
        self.background.run(self.inner.init_for(count, time))?
    }

    /// As [`crate::Latch::count_down`].
    pub fn count_down(&self, by: u32) -> Result<i64, Error> {
        self.background.run(self.inner.count_down(by))?
    }

    /// As [`crate::Latch::wait`].
    pub fn wait(&self) -> Result<(), Error> {
        self.background.run(self.inner.wait())?
    }

    /// As [`crate::Latch::wait_timeout`].
    pub fn wait_timeout(&self, time: Duration) -> Result<bool, Error> {
        self.background.run(async { self.inner.wait_timeout(time).await })?
    }

    /// As [`crate::Latch::remaining`].
    pub fn remaining(&self) -> Result<Option<u64>, Error> {
        self.background.run(self.inner.remaining())?
    }
}

/// What every guard can do.
macro_rules! guard {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[must_use = "it is given back when this is dropped"]
        #[derive(Debug)]
        pub struct $name {
            inner: crate::$name,
            background: Arc<Background>,
        }

        impl $name {
            #[doc = concat!("As [`crate::", stringify!($name), "::release`].")]
            pub fn release(self) -> Result<Released, Error> {
                self.background.run(Holding::release(&self.inner))?
            }

            /// How it was lost, if it was. Ask before each step that must not be done without the lock.
            pub fn lost_now(&self) -> Option<Lost> {
                self.inner.lost_now()
            }

            /// Waits for so long whether it is lost. None: it is not.
            pub fn wait_lost(&self, time: Duration) -> Result<Option<Lost>, Error> {
                self.background.run(async { tokio::time::timeout(time, self.inner.lost()).await.ok() })
            }

            /// How long it is certain to last; zero when it is lost.
            pub fn valid_for(&self) -> Duration {
                self.inner.valid_for()
            }
        }

        impl Drop for $name {
            fn drop(&mut self) {
                // At once, and not only begun: the background may end with this handle. Nobody is there to be told
                // of an error; the lease ends it then. Inside a runtime, dropping `inner` does it in the background.
                let release = async {
                    let _ = tokio::time::timeout(RELEASE_WITHIN, Holding::release(&self.inner)).await;
                };
                let _ = self.background.run(release);
            }
        }
    };
}

/// What every guard can do whose lease can be set anew.
macro_rules! renewable {
    ($name:ident) => {
        impl $name {
            #[doc = concat!("As [`crate::", stringify!($name), "::renew`].")]
            pub fn renew(&self, lease: Duration) -> Result<(), Error> {
                self.background.run(self.inner.renew(lease))?
            }
        }
    };
}

guard! {
    /// As [`crate::Guard`].
    Guard
}
renewable!(Guard);
guard! {
    /// As [`crate::Permit`].
    Permit
}
renewable!(Permit);
guard! {
    /// As [`crate::MultiGuard`].
    MultiGuard
}
renewable!(MultiGuard);
guard! {
    /// As [`crate::QuorumGuard`].
    QuorumGuard
}

impl QuorumGuard {
    /// As [`crate::QuorumGuard::key`].
    pub fn key(&self) -> &[u8] {
        self.inner.key()
    }

    /// As [`crate::QuorumGuard::token`].
    pub fn token(&self) -> u64 {
        self.inner.token()
    }
}

impl Guard {
    /// As [`crate::Hold::key`].
    pub fn key(&self) -> &[u8] {
        self.inner.key()
    }

    /// As [`crate::Hold::owner`].
    pub fn owner(&self) -> &[u8] {
        self.inner.owner()
    }

    /// As [`crate::Hold::token`].
    pub fn token(&self) -> u64 {
        self.inner.token()
    }
}

impl Permit {
    /// As [`crate::Permit::permit_id`].
    pub fn permit_id(&self) -> String {
        self.inner.permit_id()
    }
}

impl MultiGuard {
    /// As [`crate::MultiGuard::tokens`].
    pub fn tokens(&self) -> &[u64] {
        self.inner.tokens()
    }
}
