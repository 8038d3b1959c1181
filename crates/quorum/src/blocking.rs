//! The same lock for programs without tokio: each call blocks its thread. See [`dlock_client::blocking`].

use std::sync::Arc;
use std::time::Duration;

use dlock_client::blocking::Client;
use dlock_client::internal::{Holding, invalid, lasted, verdict};
use dlock_client::{Error, Lost};

/// How long dropping a guard may block.
const RELEASE_WITHIN: Duration = Duration::from_secs(1);

/// As [`crate::QuorumLock`], over a client of each server.
///
/// ```
/// # let servers: Vec<_> = (0..3).map(|_| dlock_testing::Server::start()).collect();
/// # let urls: Vec<_> = servers.iter().map(|server| server.url()).collect();
/// use dlock_client::blocking::Client;
/// use dlock_quorum::blocking::QuorumLock;
///
/// let clients = urls.iter().map(|url| Client::connect(url)).collect::<Result<Vec<_>, _>>()?;
/// let lock = QuorumLock::new(clients, "nightly-report");
/// let guard = lock.acquire()?;
/// assert!(lock.try_acquire()?.is_none());
/// println!("the fencing token is {}", guard.token());
/// guard.release()?;
/// # Ok::<(), dlock_client::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct QuorumLock {
    inner: crate::QuorumLock,
    clients: Clients,
}

/// Their runtimes live as long as a lock or a guard has them.
#[derive(Debug, Clone)]
struct Clients(Arc<[Client]>);

impl Clients {
    /// Blocks this thread until the work is done, in the runtime of the first client.
    fn run<T>(&self, work: impl Future<Output = T>) -> Result<T, Error> {
        match self.0.first() {
            Some(first) => first.run(work),
            None => Err(invalid("a quorum lock needs at least one server")),
        }
    }
}

/// The options of the lock.
macro_rules! options {
    ($($option:ident($($arg:ident: $type:ty),*),)*) => {
        $(
            #[doc = concat!("As [`crate::QuorumLock::", stringify!($option), "`].")]
            #[must_use]
            pub fn $option(mut self, $($arg: $type),*) -> Self {
                self.inner = self.inner.$option($($arg),*);
                self
            }
        )*
    };
}

impl QuorumLock {
    /// As [`crate::QuorumLock::new`].
    pub fn new(clients: impl IntoIterator<Item = Client>, key: impl AsRef<[u8]>) -> Self {
        let clients = Clients(clients.into_iter().collect());
        let inner = crate::QuorumLock::new(clients.0.iter().map(Client::inner).cloned(), key);
        Self { inner, clients }
    }

    options! {
        lease(time: Duration),
        fixed_lease(time: Duration),
        timeout(time: Duration),
        max_hold(time: Duration),
        label(label: impl AsRef<[u8]>),
        server_timeout(timeout: Duration),
        back_off(shortest: Duration, longest: Duration),
    }

    /// As [`crate::QuorumLock::try_acquire`].
    ///
    /// # Errors
    ///
    /// As there, and [`Invalid`](dlock_client::ErrorKind::Invalid) in asynchronous code.
    pub fn try_acquire(&self) -> Result<Option<QuorumGuard>, Error> {
        Ok(self.clients.run(self.inner.try_acquire())??.map(|guard| self.guard(guard)))
    }

    /// As [`crate::QuorumLock::acquire`].
    ///
    /// # Errors
    ///
    /// As there, and [`Invalid`](dlock_client::ErrorKind::Invalid) in asynchronous code.
    pub fn acquire(&self) -> Result<QuorumGuard, Error> {
        Ok(self.guard(self.clients.run(self.inner.acquire())??))
    }

    /// As [`crate::QuorumLock::acquire_timeout`].
    ///
    /// # Errors
    ///
    /// As there, and [`Invalid`](dlock_client::ErrorKind::Invalid) in asynchronous code.
    pub fn acquire_timeout(&self, time: Duration) -> Result<Option<QuorumGuard>, Error> {
        // Inside the runtime: the time begins to run there.
        let guard = self.clients.run(async { self.inner.acquire_timeout(time).await })??;
        Ok(guard.map(|guard| self.guard(guard)))
    }

    /// Acquires it, runs the work under it, and releases it. Nothing can cancel the work of a thread: a lost hold shows
    /// only at the end, so ask the guard (`lost_now`) before each step that needs the lock.
    ///
    /// # Errors
    ///
    /// As [`acquire`](Self::acquire), and those of [`QuorumGuard::with`].
    pub fn with<T, E: From<Error>>(
        &self,
        work: impl FnOnce(&QuorumGuard) -> Result<T, E>,
    ) -> Result<T, E> {
        self.acquire()?.with(work)
    }

    fn guard(&self, inner: crate::QuorumGuard) -> QuorumGuard {
        QuorumGuard { inner, clients: self.clients.clone() }
    }
}

/// As [`crate::QuorumGuard`].
#[must_use = "the hold is released when this is dropped"]
#[derive(Debug)]
pub struct QuorumGuard {
    inner: crate::QuorumGuard,
    clients: Clients,
}

impl QuorumGuard {
    /// As [`crate::QuorumGuard::release`].
    ///
    /// # Errors
    ///
    /// As there, and [`Invalid`](dlock_client::ErrorKind::Invalid) in asynchronous code.
    pub fn release(self) -> Result<(), Error> {
        self.clients.run(Holding::release(&self.inner))?
    }

    /// Runs the work under the hold, and releases it. Nothing can cancel the work of a thread: ask `lost_now` before
    /// each step that needs the lock.
    ///
    /// # Errors
    ///
    /// That of the work, as it is. [`Lost`](dlock_client::ErrorKind::Lost) if the hold was over before the work was,
    /// whatever that returned. [`ReleaseUnknown`](dlock_client::ErrorKind::ReleaseUnknown) after work that succeeded:
    /// whether the hold lasted until then is not known.
    pub fn with<T, E: From<Error>>(self, work: impl FnOnce(&Self) -> Result<T, E>) -> Result<T, E> {
        let done = work(&self);
        lasted(&self.inner)?;
        verdict(done, self.release())
    }

    /// How the hold was lost, if it was. Ask before each step that needs the lock.
    pub fn lost_now(&self) -> Option<Lost> {
        self.inner.lost_now()
    }

    /// Waits until the hold is lost, but no longer than `time`. None: it is not lost.
    ///
    /// # Errors
    ///
    /// [`Invalid`](dlock_client::ErrorKind::Invalid) in asynchronous code.
    pub fn wait_lost(&self, time: Duration) -> Result<Option<Lost>, Error> {
        self.clients.run(async { tokio::time::timeout(time, self.inner.lost()).await.ok() })
    }

    /// How long the hold is certain to last; zero when it is lost.
    pub fn valid_for(&self) -> Duration {
        self.inner.valid_for()
    }

    /// As [`crate::QuorumHold::key`].
    pub fn key(&self) -> &[u8] {
        self.inner.key()
    }

    /// As [`crate::QuorumHold::token`].
    pub fn token(&self) -> u64 {
        self.inner.token()
    }
}

impl Drop for QuorumGuard {
    fn drop(&mut self) {
        // The release ends here: the runtimes may end with this handle. After an error, the lease ends the hold. Inside
        // a runtime, dropping `inner` releases it in the background.
        let release = async {
            let _ = tokio::time::timeout(RELEASE_WITHIN, Holding::release(&self.inner)).await;
        };
        let _ = self.clients.run(release);
    }
}
