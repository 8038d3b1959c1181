//! Leader election for threads.

use std::ops::{ControlFlow, Deref};
use std::sync::Arc;
use std::time::Duration;

use super::background::Background;
use super::guards::Guard;
use crate::Leader;
use crate::base::error::Error;

wrapper! {
    /// As [`crate::Election`].
    ///
    /// ```
    /// # let server = dlock_testing::Server::start();
    /// # let url = server.url();
    /// let client = dlock_client::blocking::Client::connect(&url)?;
    /// let election = client.election("scheduler").value("10.0.0.7:80");
    /// let leadership = election.campaign()?;
    /// while leadership.lost_now().is_none() {
    ///     // A step of the work of the leader.
    ///     # break;
    /// }
    /// leadership.resign()?;
    /// # Ok::<(), dlock_client::Error>(())
    /// ```
    #[derive(Clone)]
    Election
}

options!(Election: value(value: impl AsRef<[u8]>), bind(rest: Duration), lease(lease: Duration));

impl Election {
    #[doc = waiting_as!(Election::campaign)]
    pub fn campaign(&self) -> Result<Leadership, Error> {
        Ok(self.led(self.background.run(self.inner.campaign())??))
    }

    #[doc = waiting_as!(Election::campaign_timeout)]
    pub fn campaign_timeout(&self, time: Duration) -> Result<Option<Leadership>, Error> {
        // Inside the runtime: the time begins to run there.
        let led = self.background.run(async { self.inner.campaign_timeout(time).await })??;
        Ok(led.map(|led| self.led(led)))
    }

    /// As [`crate::Election::lead`]. Nothing can cancel the work of a thread: ask `lost_now` before each step that only
    /// the leader may do, and return [`Continue`](ControlFlow::Continue) when the leadership is lost.
    ///
    /// # Errors
    ///
    /// As there, and [`Invalid`](crate::ErrorKind::Invalid) in asynchronous code.
    pub fn lead<T>(&self, mut work: impl FnMut(&Leadership) -> ControlFlow<T>) -> Result<T, Error> {
        loop {
            let leadership = self.background.run(self.inner.campaign_through_outages())??;
            let leadership = self.led(leadership);
            let done = work(&leadership);
            // After an error, the leadership ends with its lease.
            let _ = leadership.resign();
            if let ControlFlow::Break(value) = done {
                return Ok(value);
            }
        }
    }

    /// As [`crate::Election::observe`].
    pub fn observe(&self) -> Leaders {
        Leaders { inner: self.inner.observe(), background: self.background.clone() }
    }

    fn led(&self, leadership: crate::Leadership) -> Leadership {
        let (inner, background) = (leadership.into_guard(), self.background.clone());
        Leadership { guard: Guard { inner, background } }
    }
}

waits!(Election: leader() -> Option<Leader>);

/// As [`crate::Leadership`]. It ends when this is dropped, with [`resign`](Leadership::resign), or when it is
/// [lost](Guard::lost_now).
#[must_use = "the leadership ends when this is dropped"]
#[derive(Debug)]
pub struct Leadership {
    guard: Guard,
}

impl Leadership {
    #[doc = waiting_as!(Leadership::resign)]
    pub fn resign(self) -> Result<(), Error> {
        self.guard.release()
    }
}

impl Deref for Leadership {
    type Target = Guard;

    fn deref(&self) -> &Guard {
        &self.guard
    }
}

wrapper! {
    /// As [`crate::Leaders`]: an iterator without an end. [`next`](Iterator::next) waits for the next leader.
    #[must_use = "nothing is observed until it is iterated"]
    Leaders
}

impl Leaders {
    /// The next leader. None: the leader has not changed in this time.
    ///
    /// # Errors
    ///
    /// As [`crate::Leaders::next`], and [`Invalid`](crate::ErrorKind::Invalid) in asynchronous code.
    pub fn next_timeout(&mut self, time: Duration) -> Result<Option<Leader>, Error> {
        let Self { inner, background } = self;
        // No leader is lost by a time that is over.
        let next = background.run(async { tokio::time::timeout(time, inner.next()).await.ok() })?;
        next.transpose()
    }
}

impl Iterator for Leaders {
    type Item = Result<Leader, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        let Self { inner, background } = self;
        Some(background.run(inner.next()).unwrap_or_else(Err))
    }
}
