//! Count-down latches.

use std::sync::Arc;
use std::time::Duration;

use dlock_wire::reply::LatchInfo;
use dlock_wire::request::{
    Await, CountDown, LatchInit, LatchOp, LatchRead, OneKey, Op, Read, Request,
};
use redis::Value;

use crate::base::clock::Moment;
use crate::base::command::command;
use crate::base::error::Error;
use crate::base::reply::{read, read_or_null};
use crate::base::settings::checked_ms;
use crate::base::target::Keys;
use crate::shell::Core;

/// A count-down latch: any number of tasks wait until it has been counted down to zero.
///
/// ```
#[doc = example!()]
/// let ready = client.latch("ready");
/// ready.init(2).await?;
/// assert_eq!(ready.count_down(1).await?, 1);
/// assert_eq!(ready.count_down(1).await?, 0);
/// ready.wait().await?;
/// # Ok::<(), dlock_client::Error>(()) }).unwrap();
/// ```
///
/// # As a barrier
///
/// Tasks that begin together each call [`init_for`](Latch::init_for), [`count_down`](Latch::count_down) and
/// [`wait_timeout`](Latch::wait_timeout).
///
/// - A latch opens once. Each round needs a key of its own: put the number of the round into it.
/// - A latch that is not there is open: call `init_for` first, and give it more time than a task may take to arrive.
/// - A count-down has no owner. A task that calls it twice counts twice, and a task that died after it is not missed.
/// - A task that starts again after the round has begun makes a new latch, and waits there until its time limit.
#[derive(Debug, Clone)]
pub struct Latch {
    core: Arc<Core>,
    key: Keys,
}

impl Latch {
    pub(crate) fn new(core: &Arc<Core>, key: &[u8]) -> Self {
        Self { core: core.clone(), key: Keys::of([key]) }
    }

    /// Closes it with this count, 1 to 2^31 - 1. False: one is closed already.
    ///
    /// # Errors
    ///
    /// [`WrongType`](crate::ErrorKind::WrongType), [`Unavailable`](crate::ErrorKind::Unavailable).
    #[doc = cancel_sent!()]
    pub async fn init(&self, count: u32) -> Result<bool, Error> {
        self.close(count, None).await
    }

    /// As [`init`](Latch::init); after `time`, 1 ms to 365 days, the latch breaks: waiting tasks get
    /// [`Broken`](crate::ErrorKind::Broken).
    #[doc = errors_as!("[`init`](Latch::init)")]
    pub async fn init_for(&self, count: u32, time: Duration) -> Result<bool, Error> {
        self.close(count, Some(checked_ms("time", time)?)).await
    }

    async fn close(&self, count: u32, lease_ms: Option<u64>) -> Result<bool, Error> {
        let init = LatchInit { key: self.key.first(), count, lease_ms };
        Ok(read::<u64>(self.call(Op::Latch(LatchOp::Init(init))).await?)? == 1)
    }

    /// Counts it down, by 1 to 2^31 - 1; returns what remains, 0 for an open or missing latch.
    #[doc = errors_as!("[`init`](Latch::init)")]
    pub async fn count_down(&self, by: u32) -> Result<i64, Error> {
        let reqid = crate::base::random::Name::new();
        let step = CountDown { key: self.key.first(), n: by, reqid: Some(reqid.as_bytes()) };
        read(self.call(Op::Latch(LatchOp::CountDown(step))).await?)
    }

    /// Waits until it is open, on a dedicated connection. A latch that was never closed is open.
    ///
    /// # Errors
    ///
    /// [`Broken`](crate::ErrorKind::Broken) if it is deleted or flushed, or its time ends, before. The server
    /// remembers that for `dlock.request-memory-ms` (60 s), or until the latch is closed again.
    /// [`Unavailable`](crate::ErrorKind::Unavailable).
    ///
    /// # Cancel safety
    ///
    /// Dropping this future ends the wait.
    pub async fn wait(&self) -> Result<(), Error> {
        while !self.await_open(Moment::NEVER).await? {}
        Ok(())
    }

    /// As [`wait`](Latch::wait), but at most for `time`. False: it is still closed.
    #[doc = errors_as!("[`wait`](Latch::wait)")]
    pub async fn wait_timeout(&self, time: Duration) -> Result<bool, Error> {
        self.await_open(Moment::now().after(time)).await
    }

    async fn await_open(&self, deadline: Moment) -> Result<bool, Error> {
        let key = self.key.clone();
        let request = move |block_ms| {
            command(Op::Latch(LatchOp::Await(Await { key: key.first(), block_ms })))
        };
        let reply = self.core.wait(self.key.first(), deadline, false, Box::new(request));
        Ok(reply.await? != Value::Nil)
    }

    /// What remains to be counted down; None if there is no closed latch.
    ///
    /// # Errors
    ///
    /// As [`init`](Latch::init).
    #[doc = cancel_read!()]
    pub async fn remaining(&self) -> Result<Option<u64>, Error> {
        let reply =
            self.call(Read::Latch(LatchRead::Info(OneKey { key: self.key.first() }))).await?;
        Ok(read_or_null::<LatchInfo>(reply)?.map(|latch| latch.count))
    }

    /// Whether it is open: a call to [`wait`](Latch::wait) would return at once. A latch that was never closed is open.
    ///
    /// # Errors
    ///
    /// As [`wait`](Latch::wait).
    #[doc = cancel_read!()]
    pub async fn is_open(&self) -> Result<bool, Error> {
        let call = Await { key: self.key.first(), block_ms: None };
        Ok(self.call(Op::Latch(LatchOp::Await(call))).await? != Value::Nil)
    }

    async fn call<'a>(&self, request: impl Into<Request<'a>>) -> Result<Value, Error> {
        self.core.call(self.key.first(), request).await
    }
}
