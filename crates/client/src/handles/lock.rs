//! Locks with one holder, and the two modes of a read-write lock.

mod modes;
mod observe;
mod once;

use std::sync::Arc;
use std::time::Duration;

use dlock_wire::reply::{HolderInfo, Info};
use dlock_wire::request::{Check, Mode, Read};

use crate::acquire::Handle;
use crate::base::command::command;
use crate::base::error::Error;
use crate::base::replicas::Replicas;
use crate::base::reply::value;
use crate::base::settings::Wait;
use crate::base::target::{Family, Keys, Target};
use crate::handles::guard::Guard;
use crate::handles::handle::handle;
use crate::hold::Hold;
use crate::shell::Core;

#[cfg(feature = "blocking")]
pub(crate) use self::once::Begun;
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
///
/// // Work under the lock, with an error type of your own.
/// let parsed: Result<u64, Box<dyn std::error::Error>> =
///     lock.with(|_| async { Ok("17".parse()?) }).await;
/// assert_eq!(parsed.unwrap(), 17);
/// let soon = lock.timeout(Duration::from_secs(1));
/// let token = soon.with(|hold| async move { Ok::<_, dlock_client::Error>(hold.token()) }).await?;
/// assert!(token > 0);
/// # Ok::<(), dlock_client::Error>(()) }).unwrap();
/// ```
#[derive(Debug, Clone)]
pub struct Lock {
    handle: Handle,
}

handle!(
    Lock,
    Guard of Hold,
    "Acquires the lock if it is free. None: another owner holds it.",
    "Waits in the queue, and acquires the lock."
);

/// What an option of a handle demands.
fn own_replicas(wanted: u32, timeout: Duration, on_disk: bool) -> Replicas {
    Replicas { wanted, timeout, on_disk, checks_quarantine: false, lease: Duration::ZERO }
}

impl Lock {
    /// Refuses re-entry: an owner that holds the lock already gets [`Reentry`](crate::ErrorKind::Reentry). Not for
    /// read-write locks, which ignore it.
    #[must_use]
    pub fn no_reentry(mut self) -> Self {
        let is_rw = matches!(self.handle.target, Target::Lock(Family::Rw(_)));
        self.handle.options_mut().no_reentry = !is_rw;
        self
    }

    /// How to wait, in place of what the client was built with.
    #[must_use]
    pub fn wait(mut self, wait: Wait) -> Self {
        self.handle.options_mut().wait = Some(wait);
        self
    }

    /// A grant counts only when this number of replicas has it, which may take up to `timeout`; else it is released and
    /// asked for again. When the time of the acquire is over (without one,
    /// [`ClientBuilder::retry_for`](crate::ClientBuilder::retry_for)), the error is
    /// [`Replicas`](crate::ErrorKind::Replicas). So the grant survives the loss of the primary, if one of those
    /// replicas is promoted. Each such acquire uses a dedicated connection.
    #[must_use]
    pub fn replicas(mut self, replicas: u32, timeout: Duration) -> Self {
        self.handle.options_mut().replicas = Some(own_replicas(replicas, timeout, false));
        self
    }

    /// As [`replicas`](Lock::replicas), but the grant has to be on the disks of the primary and of these replicas
    /// (WAITAOF: Redis 7.2, Valkey; all of them with `appendonly yes`).
    #[must_use]
    pub fn replicas_on_disk(mut self, replicas: u32, timeout: Duration) -> Self {
        self.handle.options_mut().replicas = Some(own_replicas(replicas, timeout, true));
        self
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
        core.ask(key, request, core.settings.retry_for).await.map(drop)
    }
}

impl Lock {
    /// Whether an owner holds the lock, in any process. True or false when the server answered; it may have changed
    /// since. Of a mode of a read-write lock: whether it is held in that mode.
    ///
    /// # Errors
    ///
    /// As [`check`](Self::check), and [`WrongType`](crate::ErrorKind::WrongType).
    #[doc = cancel_read!()]
    pub async fn is_locked(&self) -> Result<bool, Error> {
        Ok(self.holder().await?.is_some())
    }

    /// The holder when the server answered: owner, token, label, remaining lease. None: nobody holds the lock. Of the
    /// shared mode of a read-write lock: one of the readers; [`RwLock::holders`] has all.
    #[doc = errors_as!("[`is_locked`](Self::is_locked)")]
    ///
    /// ```
    #[doc = example!()]
    /// let lock = client.lock("report").label("worker 7");
    /// assert!(!lock.is_locked().await?);
    /// let guard = lock.acquire().await?;
    /// let holder = lock.holder().await?.expect("held");
    /// assert_eq!((holder.token, holder.label.as_slice()), (guard.token(), &b"worker 7"[..]));
    /// # Ok::<(), dlock_client::Error>(()) }).unwrap();
    /// ```
    pub async fn holder(&self) -> Result<Option<HolderInfo>, Error> {
        self.holder_within(self.retry_for()).await
    }

    fn retry_for(&self) -> Duration {
        self.handle.core.settings.retry_for
    }

    async fn holder_within(&self, within: Duration) -> Result<Option<HolderInfo>, Error> {
        let Some(info) = self.info(within).await? else { return Ok(None) };
        Ok(match (info, self.handle.target) {
            (Info::ReadWrite(lock), Target::Lock(Family::Rw(Mode::Read))) => {
                lock.readers.into_iter().next()
            }
            (Info::ReadWrite(lock), _) => lock.writer,
            (info, _) => info.holders().next().cloned(),
        })
    }

    /// What INFO says. None: there is no such key.
    async fn info(&self, within: Duration) -> Result<Option<Info>, Error> {
        let Handle { core, target, keys, .. } = &self.handle;
        let (key, kind) = (keys.first(), target.family().kind());
        let reply = core.ask(key, command(Read::info(kind, key)), within).await?;
        Ok(Info::read(kind, value(reply))?)
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
        let of = |mode| Lock::new(core, Target::Lock(Family::Rw(mode)), Keys::of([key]));
        Self { read: of(Mode::Read), write: of(Mode::Write) }
    }

    pub(crate) fn owned_by(self, owner: &[u8]) -> Self {
        Self { read: self.read.owner(owner), write: self.write.owner(owner) }
    }

    /// Whether it is held, in either mode, as [`Lock::is_locked`].
    #[doc = errors_as!("[`Lock::is_locked`]")]
    pub async fn is_locked(&self) -> Result<bool, Error> {
        Ok(!self.holders().await?.is_empty())
    }

    /// All holders when the server answered: the writer first, if there is one, then the readers.
    #[doc = errors_as!("[`Lock::is_locked`]")]
    pub async fn holders(&self) -> Result<Vec<HolderInfo>, Error> {
        let info = self.read.info(self.read.retry_for()).await?;
        Ok(info.map_or(Vec::new(), |info| info.holders().cloned().collect()))
    }

    /// The shared mode. A reader that asks for [`write`](RwLock::write) under the same [`owner`](Lock::owner) is
    /// upgraded as soon as it is the only reader; a second one that tries gets
    /// [`Deadlock`](crate::ErrorKind::Deadlock). [`Guard::upgrade`] does so for a guard.
    #[must_use]
    pub fn read(&self) -> Lock {
        self.read.clone()
    }

    /// The exclusive mode. The writer may also take [`read`](RwLock::read) under the same owner and then release
    /// the write hold: a downgrade without a gap, which [`Guard::downgrade`] does for a guard.
    #[must_use]
    pub fn write(&self) -> Lock {
        self.write.clone()
    }
}
