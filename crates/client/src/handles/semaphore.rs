//! Semaphores.

use std::time::Duration;

use dlock_wire::reply::SemInfo;
use dlock_wire::request::{
    Drain, Give, OneKey, Op, Read, Resize, ResizeTo, SemInit, SemOp, SemRead, Take,
};
use redis::Value;

use crate::acquire::Handle;
use crate::base::clock::Moment;
use crate::base::command::command;
use crate::base::error::Error;
use crate::base::random::Name;
use crate::base::reply::{read, read_or_null};
use crate::base::settings::Wait;
use crate::base::target::Target;
use crate::handles::guard::{Permit, PermitHold};
use crate::handles::handle::handle;

/// A semaphore: permits with a lease each, granted in order of arrival.
///
/// ```
#[doc = example!()]
/// // Made on first use, with two permits.
/// let downloads = client.semaphore("downloads").limit(2);
/// let one = downloads.acquire().await?;
/// let two = downloads.acquire().await?;
/// assert!(downloads.try_acquire().await?.is_none());
/// # Ok::<(), dlock_client::Error>(()) }).unwrap();
/// ```
#[derive(Debug, Clone)]
pub struct Semaphore {
    handle: Handle,
}

handle!(
    Semaphore,
    Permit of PermitHold,
    "Acquires permits if they are available. None: they are not. For more than the semaphore has, the error is \
     [`Limit`](crate::ErrorKind::Limit).",
    "Waits in the queue, and acquires permits."
);

impl Semaphore {
    /// The number of permits that an acquire takes together, 1 to 2^31 - 1; default 1.
    #[must_use]
    pub fn count(mut self, permits: u32) -> Self {
        if let Target::Permit { count, .. } = &mut self.handle.target {
            *count = permits;
        }
        self
    }

    /// Creates the semaphore on first use with this number of permits, 1 to 2^31 - 1. The server removes it when the
    /// last permit is back. Ignored where there is a semaphore already.
    #[must_use]
    pub fn limit(mut self, permits: u32) -> Self {
        if let Target::Permit { limit, .. } = &mut self.handle.target {
            *limit = Some(permits);
        }
        self
    }

    /// How to wait, in place of what the client was built with.
    #[must_use]
    pub fn wait(mut self, wait: Wait) -> Self {
        self.handle.options_mut().wait = Some(wait);
        self
    }

    /// Creates it with this number of permits, 1 to 2^31 - 1. False: there is one already.
    ///
    /// # Errors
    ///
    /// [`WrongType`](crate::ErrorKind::WrongType), [`Unavailable`](crate::ErrorKind::Unavailable).
    #[doc = cancel_sent!()]
    pub async fn init(&self, permits: u32) -> Result<bool, Error> {
        let init = SemInit { key: self.key(), permits };
        Ok(read::<u64>(self.call(SemOp::Init(init)).await?)? == 1)
    }

    /// Changes the number of permits; returns how many are available then, negative while more are out.
    ///
    /// # Errors
    ///
    /// [`Invalid`](crate::ErrorKind::Invalid): there is no such semaphore.
    #[doc = cancel_sent!()]
    pub async fn resize(&self, permits: u32) -> Result<i64, Error> {
        self.resize_to(ResizeTo::Absolute(permits)).await
    }

    /// Changes the number of permits by `delta`; returns the same as [`resize`](Semaphore::resize).
    #[doc = errors_as!("[`resize`](Semaphore::resize)")]
    pub async fn resize_by(&self, delta: i64) -> Result<i64, Error> {
        self.resize_to(ResizeTo::By(delta)).await
    }

    async fn resize_to(&self, to: ResizeTo) -> Result<i64, Error> {
        let reqid = Name::new();
        let resize = Resize { key: self.key(), to, reqid: Some(reqid.as_bytes()) };
        read(self.call(SemOp::Resize(resize)).await?)
    }

    /// How many permits are available, negative while more are out than there are. It may have changed since the server
    /// answered. Without such a semaphore: its [`limit`](Semaphore::limit), or 0.
    ///
    /// # Errors
    ///
    /// [`WrongType`](crate::ErrorKind::WrongType), [`Unavailable`](crate::ErrorKind::Unavailable).
    #[doc = cancel_read!()]
    ///
    /// ```
    #[doc = example!()]
    /// let downloads = client.semaphore("downloads").limit(2);
    /// let permit = downloads.acquire().await?;
    /// assert_eq!(downloads.available().await?, 1);
    /// # Ok::<(), dlock_client::Error>(()) }).unwrap();
    /// ```
    pub async fn available(&self) -> Result<i64, Error> {
        let request = Read::Sem(SemRead::Info(OneKey { key: self.key() }));
        let reply = self.handle.core.call(self.key(), request).await?;
        // One that has waiters and was never created has no permits either.
        let info = read_or_null::<SemInfo>(reply)?.filter(|info| info.capacity > 0);
        let Target::Permit { limit, .. } = self.handle.target else { return Ok(0) };
        Ok(info.map_or_else(|| limit.unwrap_or(0).into(), |info| info.available))
    }

    /// Takes permits without an owner and a lease, as from a counter. False: they are not available. Only
    /// [`give`](Semaphore::give) returns them.
    ///
    /// # Errors
    ///
    /// [`Unavailable`](crate::ErrorKind::Unavailable): they may have been taken.
    ///
    /// # Cancel safety
    ///
    /// Not cancel safe: if this future is dropped, the permits may have been taken, and nothing returns them.
    pub async fn take(&self, permits: u32) -> Result<bool, Error> {
        let reqid = Name::new();
        let take = Take { reqid: Some(reqid.as_bytes()), ..Take::new(self.key(), permits) };
        Ok(self.call(SemOp::Take(take)).await? != Value::Nil)
    }

    /// As [`take`](Semaphore::take), but waits at most `time`, on a dedicated connection.
    #[doc = errors_as!("[`take`](Semaphore::take)")]
    pub async fn take_timeout(&self, permits: u32, time: Duration) -> Result<bool, Error> {
        let (key, reqid) = (self.key().to_vec(), Name::new());
        let take = move |block_ms| {
            let reqid = Some(reqid.as_bytes());
            command(Op::Sem(SemOp::Take(Take { block_ms, reqid, ..Take::new(&key, permits) })))
        };
        let deadline = Moment::now().after(time);
        let reply = self.handle.core.wait(self.key(), deadline, true, Box::new(take)).await?;
        Ok(reply != Value::Nil)
    }

    /// Returns what [`take`](Semaphore::take) or [`drain`](Semaphore::drain) took; the result is how many permits are
    /// available then.
    ///
    /// # Errors
    ///
    /// [`Limit`](crate::ErrorKind::Limit): more than they took. [`Invalid`](crate::ErrorKind::Invalid): there is no
    /// such semaphore.
    #[doc = cancel_sent!()]
    pub async fn give(&self, permits: u32) -> Result<i64, Error> {
        let reqid = Name::new();
        let give = Give { key: self.key(), n: permits, reqid: Some(reqid.as_bytes()) };
        read(self.call(SemOp::Give(give)).await?)
    }

    /// Takes all available permits; returns how many.
    #[doc = errors_as!("[`take`](Semaphore::take)")]
    pub async fn drain(&self) -> Result<i64, Error> {
        let reqid = Name::new();
        let drain = Drain { key: self.key(), reqid: Some(reqid.as_bytes()) };
        read(self.call(SemOp::Drain(drain)).await?)
    }

    fn key(&self) -> &[u8] {
        self.handle.keys.first()
    }

    async fn call(&self, op: SemOp<'_>) -> Result<Value, Error> {
        self.handle.core.call(self.key(), Op::Sem(op)).await
    }
}
