//! Single flight: of those who want the same work done, one does it and the others wait for the end.

use std::sync::Arc;
use std::time::Duration;

use dlock_wire::reply::HoldEnd;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::{sleep, timeout};

use super::Lock;
use crate::acquire::{Handle, acquire_within};
use crate::base::back_off::BackOff;
use crate::base::clock::Moment;
use crate::base::error::Error;
use crate::base::flight::{Flight, SharedResult};
use crate::handles::guard::Guard;
use crate::handles::with::{Holding, lasted, verdict, while_held};
use crate::hold::Hold;
use crate::machine::Machine;
use crate::machine::acquire::Limit;

/// Before a free lock that grants nothing now is asked again.
const PAUSES: BackOff = BackOff::new(Duration::from_millis(5), Duration::from_millis(250));
/// How long one AWAIT waits. After that, calls that began meanwhile are known to have seen the run.
const SLICE: Duration = Duration::from_secs(600);

/// What became of the work of [`Lock::run_once`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub enum Once<T> {
    /// It ran here; this is its result.
    Ran(T),
    /// Another task or process ran it to its end while this call waited. A task of this client: with a clone of its
    /// result, if that has the same type.
    AnotherRan(Option<T>),
}

/// What a call of [`Lock::run_once`] has to do.
pub(crate) enum Begun {
    /// Its work, under this hold.
    Ours(Guard, Run),
    AnotherRan(SharedResult),
}

/// A run of this client. The other calls of the client wait while this exists.
pub(crate) struct Run {
    flight: Arc<Flight>,
    _permit: OwnedSemaphorePermit,
}

impl Lock {
    /// Runs the work unless another task or process is running it: then it waits for the end of that run. So of many
    /// requests for one missing cache entry, one computes it.
    ///
    /// A run counts if it returns `Ok` and releases its hold in time. If the runner fails, panics, loses its hold or
    /// dies, one of the waiting calls runs its own work: within a client in order of arrival, and between clients the
    /// first to ask again. Two runs never hold the lock at the same time; check the [token](Hold::token) where late
    /// writes matter. In doubt the work runs again: at least once, not exactly once. Doubt means a failover, a lost
    /// connection at the wrong moment, or a run that followed a failed one and was too short for this client to see.
    ///
    /// A server that restarts without its data grants the lock again while the runner before still works. Programs in
    /// other languages take part with `RELEASE … DONE`, which `DLOCK.AWAIT` with REASON shows.
    ///
    /// The waiting tasks of this client get clones of the result; put a large one into an [`Arc`]. Other processes read
    /// the result where the work has left it.
    ///
    /// The waiting tasks of a client need one dedicated connection together. Plain holds of the same lock are waited
    /// for, but are no runs. The hold is not re-entrant: an owner that holds the lock already gets
    /// [`Reentry`](crate::ErrorKind::Reentry). A mode of a read-write lock is
    /// [`Invalid`](crate::ErrorKind::Invalid). A call that begins in the round trip after a run has ended may still get
    /// `AnotherRan` for it.
    ///
    /// # Errors
    ///
    /// The error of the work, if it ran here. [`Lost`](crate::ErrorKind::Lost) if the hold was over before the work
    /// was: the work is dropped then. [`ReleaseUnknown`](crate::ErrorKind::ReleaseUnknown) after work that succeeded:
    /// its result is dropped, and another call may run its own. The errors of [`acquire`](Self::acquire): the
    /// [`timeout`](Self::timeout) limits the wait for the runs of others, not work that has begun here.
    ///
    /// # Cancel safety
    ///
    /// Dropping this future stops waiting. If the work runs here, it is dropped, and another call runs its own.
    ///
    /// ```
    #[doc = example!()]
    /// use dlock_client::{Error, Once};
    ///
    /// let entry = client.lock("cache:report");
    /// let done = entry.run_once(|hold| async move { Ok::<_, Error>(hold.token()) }).await?;
    /// match done {
    ///     Once::Ran(token) => println!("computed under token {token}"),
    ///     Once::AnotherRan(Some(token)) => println!("computed by another task under token {token}"),
    ///     Once::AnotherRan(None) => println!("it is in the cache now"),
    /// }
    /// # Ok::<(), dlock_client::Error>(()) }).unwrap();
    /// ```
    pub async fn run_once<T, E, F>(&self, work: impl FnOnce(Hold) -> F) -> Result<Once<T>, E>
    where
        T: Clone + Send + 'static,
        F: Future<Output = Result<T, E>>,
        E: From<Error>,
    {
        match self.begin_once().await? {
            Begun::Ours(guard, run) => {
                let value = while_held(&guard, work(guard.hold())).await??;
                Ok(Once::Ran(run.finish(&guard, value).await?))
            }
            Begun::AnotherRan(result) => Ok(Once::AnotherRan(result.get())),
        }
    }

    /// Waits until the work is to run here, or another run has finished, or the client closes.
    pub(crate) async fn begin_once(&self) -> Result<Begun, Error> {
        tokio::select! {
            biased;
            closed = self.handle.core.reached(Machine::no_admission) => Err(closed),
            begun = self.await_turn() => begun,
        }
    }

    async fn await_turn(&self) -> Result<Begun, Error> {
        self.lock_family()?;
        let deadline = self.handle.deadline();
        let Handle { core, target, keys, .. } = &self.handle;
        let flight = core.flights.join(target.family(), &keys.first().into());
        let number = flight.enter();
        let turn = flight.turn(number);
        // Without a limit no timer is needed, nor the runtime that has one.
        let turn = match deadline {
            Moment::NEVER => Ok(turn.await),
            _ => timeout(deadline.since(Moment::now()), turn).await,
        };
        let Ok(turn) = turn else { return Err(self.handle.not_acquired()) };
        let Some(permit) = turn else { return Ok(Begun::AnotherRan(flight.result())) };
        // Kept out of the tasks that wait for their turn: there may be very many.
        let guard = Box::pin(self.take_turn(&flight, deadline)).await?;
        Ok(match guard {
            Some(guard) => Begun::Ours(guard, Run { flight, _permit: permit }),
            None => Begun::AnotherRan(SharedResult::default()),
        })
    }

    /// Acquires the lock, or waits for the end of a run elsewhere. None: there was one, and it has answered the calls
    /// here that waited for it.
    async fn take_turn(&self, flight: &Flight, deadline: Moment) -> Result<Option<Guard>, Error> {
        let lock = self.clone().no_reentry();
        let mut pauses = PAUSES;
        loop {
            let before = flight.joined();
            // Asked together: a hold that is seen here was in force after these calls began, so its end is the end of a
            // run that they waited for.
            let within = deadline.since(Moment::now()).min(lock.retry_for());
            let limit = Limit::Try(Moment::now().after(within));
            let acquiring = acquire_within::<Guard>(&lock.handle, limit);
            let (seen, got) = tokio::join!(lock.holder_within(within), acquiring);
            let mut quarantine = Duration::ZERO;
            let guard = match got {
                Err(error) if error.is_reply() && error.passes() && Moment::now() < deadline => {
                    quarantine = error.time_left();
                    None
                }
                got => got?,
            };
            let other = seen?.map(|holder| holder.token);
            let other = other.filter(|&token| guard.as_ref().is_none_or(|g| g.token() != token));
            match (guard, other) {
                (Some(guard), Some(token)) => {
                    // It ended before the lock was acquired here.
                    let ended = lock.await_end(token, Moment::now().after(within)).await?;
                    if ended.is_none_or(|ended| ended.how != HoldEnd::Done) {
                        return Ok(Some(guard));
                    }
                    flight.finish(before, SharedResult::default());
                    return Ok(None);
                }
                (Some(guard), None) => return Ok(Some(guard)),
                (None, Some(token)) => match lock.await_run(flight, before, token, deadline).await?
                {
                    None => return Err(lock.handle.not_acquired()),
                    Some((HoldEnd::Done, up_to)) => {
                        flight.finish(up_to, SharedResult::default());
                        return Ok(None);
                    }
                    Some(_) => pauses.reset(),
                },
                (None, None) if deadline <= Moment::now() => {
                    return Err(lock.handle.not_acquired());
                }
                (None, None) => {
                    pauses.pause_within(deadline.since(Moment::now())).await;
                    sleep(deadline.since(Moment::now()).min(quarantine)).await;
                }
            }
        }
    }

    /// Waits for the end of a run elsewhere, which the calls up to `certain` waited for. Says how it ended, and up to
    /// which number the calls here waited for it. None: the time is over.
    async fn await_run(
        &self,
        flight: &Flight,
        mut certain: u64,
        token: u64,
        deadline: Moment,
    ) -> Result<Option<(HoldEnd, u64)>, Error> {
        loop {
            match self.await_end(token, deadline.min(Moment::now().after(SLICE))).await? {
                Some(ended) => {
                    let up_to = if ended.is_late { certain } else { flight.joined() };
                    return Ok(Some((ended.how, up_to)));
                }
                None if deadline <= Moment::now() => return Ok(None),
                None => certain = flight.joined(),
            }
        }
    }
}

impl Run {
    /// The work has done what it should. Releases its hold: only this release says so to those who wait elsewhere.
    pub(crate) async fn finish<T>(self, guard: &Guard, value: T) -> Result<T, Error>
    where
        T: Clone + Send + 'static,
    {
        // These had begun when the work was done, too.
        let up_to = self.flight.joined();
        lasted(guard)?;
        guard.tracked.set_done();
        let value = verdict::<T, Error>(Ok(value), Holding::release(guard).await)?;
        // The runner has one of the references.
        let others_wait = Arc::strong_count(&self.flight) > 1;
        let result = others_wait.then(|| SharedResult::new(value.clone()));
        self.flight.finish(up_to, result.unwrap_or_default());
        Ok(value)
    }
}
