//! Leader election: the holder of a lock leads, and its label is what the others need to know of it.

use std::fmt;
use std::ops::{ControlFlow, Deref};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::stream::{self, BoxStream, StreamExt};

use crate::base::back_off::BackOff;
use crate::base::clock::Moment;
use crate::base::error::{Error, ErrorKind};
use crate::base::target::{Family, Keys, Target};
use crate::handles::guard::Guard;
use crate::handles::lock::Lock;
use crate::handles::with::while_held;
use crate::hold::Hold;
use crate::shell::Core;

/// Before the leader is asked for again while there is none, and before a campaign that no server could decide begins
/// again.
const PAUSES: BackOff = BackOff::new(Duration::from_millis(10), Duration::from_millis(250));

/// How long a leader that lost its connection still leads, unless it says otherwise.
const BIND: Duration = Duration::from_secs(2);
/// A leader that must know before the next one leads needs some time.
const BIND_MIN: Duration = Duration::from_millis(100);

/// An election under one name: of all candidates, one leads at a time. The others wait in order of arrival.
///
/// The leader is the holder of the lock of that name ([`Client::lock`](crate::Client::lock)), and its value is the
/// label of the hold. So `DLOCK.INFO` shows the leader to any program.
///
/// ```
#[doc = example!()]
/// let election = client.election("scheduler").value("10.0.0.7:80");
/// let leadership = election.campaign().await?;
/// let leader = election.leader().await?.expect("a leader");
/// assert_eq!((leader.value.as_slice(), leader.token), (&b"10.0.0.7:80"[..], leadership.token()));
/// leadership.resign().await?;
/// # Ok::<(), dlock_client::Error>(()) }).unwrap();
/// ```
#[derive(Debug, Clone)]
pub struct Election {
    lock: Lock,
}

/// A leader.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Leader {
    /// What it says of itself: [`Election::value`].
    pub value: Vec<u8>,
    /// The fencing token of its leadership, larger than that of every leader before.
    pub token: u64,
}

impl Election {
    pub(crate) fn new(core: &Arc<Core>, name: &[u8]) -> Self {
        Self { lock: Lock::new(core, Target::Lock(Family::Lock), Keys::of([name])).bind(BIND) }
    }

    /// What the others should know of this candidate when it leads, 0 to 256 bytes: for example its address.
    #[must_use]
    pub fn value(self, value: impl AsRef<[u8]>) -> Self {
        Self { lock: self.lock.label(value) }
    }

    /// How long this candidate still leads after its connection is lost, 100 ms (less counts as that) to 365 days,
    /// default 2 s: the time without a leader after its process dies. It has to be long enough to connect again, and a
    /// server that answers nothing for that time ends the leadership; see [`Lock::bind`].
    #[must_use]
    pub fn bind(self, rest: Duration) -> Self {
        Self { lock: self.lock.bind(rest.max(BIND_MIN)) }
    }

    /// The lease of the leadership, 30 ms to 365 days, which the client renews every third of it: the time without a
    /// leader after its machine vanishes or its process stops (SIGSTOP), so that no connection closes. Without this, it
    /// is the lease of the client ([`ClientBuilder::lease`](crate::ClientBuilder::lease)).
    #[must_use]
    pub fn lease(self, lease: Duration) -> Self {
        Self { lock: self.lock.lease(lease) }
    }

    /// Waits in the queue of candidates, and leads.
    #[doc = errors_as!("[`Lock::acquire`]")]
    pub async fn campaign(&self) -> Result<Leadership, Error> {
        Ok(Leadership { guard: self.lock.acquire().await? })
    }

    /// As [`campaign`](Self::campaign), but waits at most `time`. None: another candidate led all the time.
    #[doc = errors_as!("[`Lock::acquire`]")]
    pub async fn campaign_timeout(&self, time: Duration) -> Result<Option<Leadership>, Error> {
        let guard = self.lock.acquire_timeout(time).await?;
        Ok(guard.map(|guard| Leadership { guard }))
    }

    /// Leads again and again: campaigns, runs `work` under the leadership, resigns, and campaigns again at the end of
    /// the queue. When the leadership is lost, the work is cancelled: its future is dropped. The work returns
    /// [`Continue`](ControlFlow::Continue) to hand over, and [`Break`](ControlFlow::Break) to stop with a result.
    ///
    /// An async closure as below may only read what it captures. Work that changes captured state is a closure that
    /// returns a future: `|hold| { rounds += 1; async move { … } }`. [`Leadership`] shows how to
    /// stop without dropping the work.
    ///
    /// Waits while no server answers or can grant: it begins again after errors of the kinds
    /// [`Unavailable`](ErrorKind::Unavailable) and [`Replicas`](ErrorKind::Replicas).
    ///
    /// # Errors
    ///
    /// The other ones of [`campaign`](Self::campaign); [`Closed`](ErrorKind::Closed) when the client is closed.
    ///
    /// # Cancel safety
    ///
    /// Dropping this future leaves the queue, or drops the work and resigns in the background.
    ///
    /// ```
    #[doc = example!()]
    /// use std::ops::ControlFlow;
    ///
    /// let election = client.election("scheduler");
    /// let token = election.lead(async |hold| {
    ///     // The work of the leader, until it hands over or stops.
    ///     ControlFlow::Break(hold.token())
    /// });
    /// assert!(token.await? > 0);
    /// # Ok::<(), dlock_client::Error>(()) }).unwrap();
    /// ```
    pub async fn lead<T, F>(&self, mut work: impl FnMut(Hold) -> F) -> Result<T, Error>
    where
        F: Future<Output = ControlFlow<T>>,
    {
        loop {
            let leadership = self.campaign_through_outages().await?;
            let work = leadership.tracked.report.instrument(work(leadership.hold()));
            let done = while_held(&leadership.guard, work).await;
            // After an error, the leadership ends with its lease.
            let _ = leadership.resign().await;
            if let Ok(ControlFlow::Break(value)) = done {
                return Ok(value);
            }
        }
    }

    /// As [`campaign`](Self::campaign), but begins again after errors that may pass.
    pub(crate) async fn campaign_through_outages(&self) -> Result<Leadership, Error> {
        let mut pauses = PAUSES;
        loop {
            match self.campaign().await {
                Err(error)
                    if error.passes() || matches!(error.kind(), ErrorKind::Replicas { .. }) =>
                {
                    pauses.pause().await;
                }
                done => return done,
            }
        }
    }

    /// The leader of this moment. It may have changed when the reply arrives.
    ///
    /// # Errors
    ///
    /// [`Unavailable`](crate::ErrorKind::Unavailable): no server answered. [`WrongType`](crate::ErrorKind::WrongType).
    #[doc = cancel_read!()]
    pub async fn leader(&self) -> Result<Option<Leader>, Error> {
        let holder = self.lock.holder().await?;
        Ok(holder.map(|holder| Leader { value: holder.label, token: holder.token }))
    }

    /// The leaders, from the one of this moment on.
    pub fn observe(&self) -> Leaders {
        let stream = stream::unfold((self.clone(), 0), |(election, last)| async move {
            let next = election.leader_after(last).await;
            let last = next.as_ref().map_or(last, |leader| leader.token);
            Some((next, (election, last)))
        });
        Leaders { stream: stream.boxed() }
    }

    /// Waits until another one leads than that with this token.
    async fn leader_after(&self, last: u64) -> Result<Leader, Error> {
        let mut pauses = PAUSES;
        loop {
            match self.leader().await? {
                Some(leader) if leader.token > last => return Ok(leader),
                Some(leader) if leader.token == last => {
                    self.lock.await_end(last, Moment::NEVER).await?;
                    pauses.reset();
                }
                // There is none; or a server that was the primary before does not know of the present one.
                Some(_) | None => pauses.pause().await,
            }
        }
    }
}

/// Leadership. It ends when this is dropped, with [`resign`](Leadership::resign), or when it is
/// [lost](Hold::lost).
///
/// A scheduler that finishes its present step before it stops:
///
/// ```
#[doc = example!()]
/// # let (stop, mut stopped) = tokio::sync::watch::channel(false);
/// # let job = async |_token: u64| { stop.send_replace(true); };
/// // stopped: a `tokio::sync::watch::Receiver<bool>` that a signal handler sets to true.
/// let election = client.election("scheduler");
/// while !*stopped.borrow() {
///     let leadership = tokio::select! {
///         leadership = election.campaign() => leadership?,
///         _ = stopped.wait_for(|stop| *stop) => break,
///     };
///     while !*stopped.borrow() {
///         tokio::select! {
///             biased;
///             _ = leadership.lost() => break,
///             () = job(leadership.token()) => {}
///         }
///     }
///     match leadership.resign().await {
///         Err(error) if matches!(error.kind(), dlock_client::ErrorKind::Lost { .. }) => {}
///         done => done?,
///     }
/// }
/// client.close().await?;
/// # Ok::<(), dlock_client::Error>(()) }).unwrap();
/// ```
#[must_use = "the leadership ends when this is dropped"]
#[derive(Debug)]
pub struct Leadership {
    guard: Guard,
}

impl Leadership {
    /// Lets the next candidate lead.
    #[doc = errors_as!("[`Guard::release`]")]
    pub async fn resign(self) -> Result<(), Error> {
        self.guard.release().await
    }

    #[cfg(feature = "blocking")]
    pub(crate) fn into_guard(self) -> Guard {
        self.guard
    }

    /// A view of the leadership, for other tasks.
    pub fn hold(&self) -> Hold {
        self.guard.hold()
    }
}

impl Deref for Leadership {
    type Target = Hold;

    fn deref(&self) -> &Hold {
        &self.guard
    }
}

/// The leaders of an [`Election`], one after the other, with rising tokens. After each change it reads the leader of
/// that moment; a leader between two others may be left out, the present one is not. While there is none, it asks up to
/// four times a second. A leader with a smaller token than one seen before is not shown: that happens only if a
/// failover lost the later grant and the clock of the new server is behind. Each `Leaders` blocks a dedicated
/// connection.
///
/// A `Stream`, without an end. After an error it goes on.
#[must_use = "nothing is observed until it is polled"]
pub struct Leaders {
    stream: BoxStream<'static, Result<Leader, Error>>,
}

impl Leaders {
    /// The next leader.
    ///
    /// # Errors
    ///
    /// As [`Election::leader`].
    ///
    /// # Cancel safety
    ///
    /// No leader is lost when this future is dropped.
    pub async fn next(&mut self) -> Result<Leader, Error> {
        // It has no end.
        self.stream.next().await.unwrap_or_else(|| Err(Error::closed()))
    }
}

impl futures_util::Stream for Leaders {
    type Item = Result<Leader, Error>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.stream.poll_next_unpin(cx)
    }
}

impl fmt::Debug for Leaders {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Leaders").finish_non_exhaustive()
    }
}
