//! Locks with one holder, and the two modes of a read-write lock.

mod observe;
mod once;

use std::sync::Arc;
use std::time::Duration;

use dlock_wire::request::{Check, Mode};

use crate::acquire::{Handle, Keys, Target, handle};
use crate::core::Core;
use crate::error::Error;
use crate::family::Family;
use crate::guard::Guard;
use crate::hold::Hold;
use crate::options::Replicas;
use crate::settings::Wait;
use crate::with::under;

pub use self::once::Once;

/// A lock of one holder. Cheap to make and to clone; nothing is sent before an acquire.
///
/// ```
#[doc = example!()]
/// use std::time::Duration;
///
/// let lock = client.lock("orders:7");
/// let guard = lock.acquire().await?;
/// assert!(lock.try_acquire().await?.is_none(), "each acquire is an owner of its own");
/// assert!(lock.acquire_timeout(Duration::from_millis(20)).await?.is_none());
/// println!("the fencing token is {}", guard.token());
/// guard.release().await?;
/// # Ok::<(), dlock_client::Error>(()) }).unwrap();
/// ```
#[derive(Clone)]
pub struct Lock {
    handle: Handle,
}

handle!(
    Lock,
    Guard,
    "Acquires the lock if it is free. None: another owner holds it.",
    "Waits in the queue, and acquires the lock."
);

impl Lock {
    /// Refuses re-entry: an owner that holds the lock already gets [`Reentry`](crate::ErrorKind::Reentry). Not for
    /// read-write locks, which ignore it.
    #[must_use]
    pub fn no_reentry(mut self) -> Self {
        self.handle.options.no_reentry = !matches!(self.handle.target, Target::Lock(Family::Rw(_)));
        self
    }

    /// How to wait, in place of what the client was built with.
    #[must_use]
    pub fn wait(mut self, wait: Wait) -> Self {
        self.handle.options.wait = Some(wait);
        self
    }

    /// A grant counts only when this number of replicas has it, which may take up to `timeout`; else it is released and
    /// the error is [`Replicas`](crate::ErrorKind::Replicas). So the grant survives the loss of the primary, if one of
    /// those replicas is promoted. Each such acquire uses a dedicated connection.
    #[must_use]
    pub fn replicas(mut self, replicas: u32, timeout: Duration) -> Self {
        self.handle.options.replicas = Some(Replicas { wanted: replicas, timeout, on_disk: false });
        self
    }

    /// As [`replicas`](Lock::replicas), but the grant has to be on the disks of the primary and of these replicas
    /// (WAITAOF: Redis 7.2, Valkey; all of them with `appendonly yes`).
    #[must_use]
    pub fn replicas_on_disk(mut self, replicas: u32, timeout: Duration) -> Self {
        self.handle.options.replicas = Some(Replicas { wanted: replicas, timeout, on_disk: true });
        self
    }

    /// Acquires the lock, runs the work under it, and releases it. When the hold is lost, the work is cancelled: its
    /// future is dropped.
    ///
    /// A release whose reply is lost does not lose the result of the work.
    ///
    /// # Errors
    ///
    /// As [`acquire`](Self::acquire), and [`Lost`](crate::ErrorKind::Lost), which says why and whether the work had
    /// finished.
    ///
    /// # Cancel safety
    ///
    /// Dropping this future leaves the queue, or drops the work and releases the lock in the background.
    ///
    /// ```
    #[doc = example!()]
    /// let token = client.lock("report").with(|hold| async move { hold.token() }).await?;
    /// assert!(token > 0);
    /// # Ok::<(), dlock_client::Error>(()) }).unwrap();
    /// ```
    pub async fn with<T, F>(&self, work: impl FnOnce(Hold) -> F) -> Result<T, Error>
    where
        F: Future<Output = T>,
    {
        let guard = self.acquire().await?;
        under(&guard, || work(guard.hold())).await
    }

    /// Checks that `token` is that of the current hold.
    ///
    /// # Errors
    ///
    /// [`Stale`](crate::ErrorKind::Stale): it is not. [`Unavailable`](crate::ErrorKind::Unavailable): no server
    /// answered.
    #[doc = cancel_read!()]
    pub async fn check(&self, token: u64) -> Result<(), Error> {
        let Handle { core, target, keys, .. } = &self.handle;
        let key = keys.first();
        let request = target.family().check(Check { key, token });
        core.routes.send(key, request, core.ctx.retry_until()).await.map(drop)
    }
}

/// A read-write lock: many readers or one writer, in order of arrival.
///
/// ```
#[doc = example!()]
/// let prices = client.rw_lock("prices");
/// let one = prices.read().acquire().await?;
/// let two = prices.read().acquire().await?;
/// assert!(prices.write().try_acquire().await?.is_none());
/// # Ok::<(), dlock_client::Error>(()) }).unwrap();
/// ```
#[derive(Clone, Debug)]
pub struct RwLock {
    read: Lock,
    write: Lock,
}

impl RwLock {
    pub(crate) fn new(core: &Arc<Core>, key: &[u8]) -> Self {
        let of = |mode| Lock::new(core, Target::Lock(Family::Rw(mode)), Keys::one(key));
        Self { read: of(Mode::Read), write: of(Mode::Write) }
    }

    /// The shared mode. A reader that asks for [`write`](RwLock::write) under the same [`owner`](Lock::owner) is
    /// upgraded as soon as it is the only reader; a second one that tries gets
    /// [`Deadlock`](crate::ErrorKind::Deadlock).
    #[must_use]
    pub fn read(&self) -> Lock {
        self.read.clone()
    }

    /// The exclusive mode. The writer may also take [`read`](RwLock::read) under the same owner and then release
    /// the write hold: a downgrade without a gap.
    #[must_use]
    pub fn write(&self) -> Lock {
        self.write.clone()
    }
}
