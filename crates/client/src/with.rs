//! Work under a hold: it ends with the hold, and its result counts only if the hold lasted.

use crate::error::Error;
use crate::lost::{Lost, Released};

/// A guard, as `with` sees it.
pub(crate) trait Holding {
    /// Resolves when the hold is lost.
    fn lost(&self) -> impl Future<Output = Lost> + Send;

    /// How the hold was lost, if it was, by the clock of this moment.
    fn lost_now(&self) -> Option<Lost>;

    /// The key; of several, the first.
    fn key(&self) -> &[u8];

    /// The work, inside the span of the hold.
    fn in_span<F: Future>(&self, work: F) -> impl Future<Output = F::Output>;

    /// Releases the hold.
    fn release(&self) -> impl Future<Output = Result<Released, Error>> + Send;
}

/// Works under a hold and releases it. Error [`Lost`](crate::ErrorKind::Lost) if the hold was over before the work was;
/// the work is dropped then.
pub(crate) async fn under<T, F>(hold: &impl Holding, work: impl FnOnce() -> F) -> Result<T, Error>
where
    F: Future<Output = T>,
{
    // No step of the work begins after the hold was lost: `lost` is polled before the work each time, and looks at the
    // clock each time.
    let done = tokio::select! {
        biased;
        how = hold.lost() => return Err(Error::lost(how).of_key(hold.key())),
        done = hold.in_span(work()) => done,
    };
    // The last step of the work may have taken longer than the lease.
    if let Some(how) = hold.lost_now() {
        return Err(Error::lost_by_the_end(how).of_key(hold.key()));
    }
    verdict(done, &hold.release().await).map_err(|error| error.of_key(hold.key()))
}

impl Released {
    /// An error if the hold had ended before the release: then others may have worked under the lock meanwhile, and
    /// the work should not count.
    ///
    /// # Errors
    ///
    /// [`Lost`](crate::ErrorKind::Lost) with `finished: true`, as from [`with`](crate::Lock::with).
    ///
    /// ```
    #[doc = example!()]
    /// let guard = client.lock("orders:7").acquire().await?;
    /// // ... the work ...
    /// guard.release().await?.ok_or_lost()?;
    /// # Ok::<(), dlock_client::Error>(()) }).unwrap();
    /// ```
    pub fn ok_or_lost(self) -> Result<(), Error> {
        match self {
            Self::Remaining(_) | Self::Already => Ok(()),
            Self::Gone => Err(Error::lost_by_the_end(Lost::Refused)),
        }
    }
}

/// The result of work, if it counts after that outcome of the release.
pub(crate) fn verdict<T>(done: T, released: &Result<Released, Error>) -> Result<T, Error> {
    match released {
        Ok(released) => released.ok_or_lost().map(|()| done),
        // Whether the answer to the release comes does not change what was done under the lock.
        Err(_) => Ok(done),
    }
}

/// The methods of a guard that work under its hold, given what the work gets.
macro_rules! guard_with {
    ($guard:ident, $hold:ident) => {
        impl $guard {
            /// A view of the hold, for other tasks. It keeps no hold alive.
            pub fn hold(&self) -> $hold {
                self.deref().clone()
            }

            /// Runs the work under the hold, and releases it. When the hold is lost, the work is cancelled: its future
            /// is dropped.
            ///
            /// A release whose reply is lost does not lose the result of the work.
            ///
            /// # Errors
            ///
            /// [`Lost`](crate::ErrorKind::Lost), which says why and whether the work had finished.
            ///
            /// # Cancel safety
            ///
            /// Dropping this future drops the work and releases the hold in the background.
            pub async fn with<T, F>(self, work: impl FnOnce($hold) -> F) -> Result<T, $crate::Error>
            where
                F: Future<Output = T>,
            {
                let hold = self.hold();
                $crate::with::under(&self, || work(hold)).await
            }

            /// As [`with`](Self::with), for work that can fail: its error is returned as it is. The hold is released in
            /// both cases. If the hold was lost, that is the error, whatever the work returned.
            #[doc = errors_as!("[`with`](Self::with)", ", and that of the work")]
            pub async fn try_with<T, E, F>(self, work: impl FnOnce($hold) -> F) -> Result<T, E>
            where
                F: Future<Output = Result<T, E>>,
                E: From<$crate::Error>,
            {
                self.with(work).await?
            }
        }
    };
}
pub(crate) use guard_with;

/// The methods of a handle that acquire, work and release, given what the work gets.
macro_rules! handle_with {
    ($name:ident, $hold:ident) => {
        impl $name {
            /// Acquires as [`acquire`](Self::acquire), runs the work under the hold, and releases it. When the hold is
            /// lost, the work is cancelled: its future is dropped.
            ///
            /// A release whose reply is lost does not lose the result of the work.
            ///
            /// # Errors
            ///
            /// As [`acquire`](Self::acquire), and [`Lost`](crate::ErrorKind::Lost), which says why and whether the work
            /// had finished.
            ///
            /// # Cancel safety
            ///
            /// Dropping this future leaves the queue, or drops the work and releases the hold in the background.
            pub async fn with<T, F>(
                &self,
                work: impl FnOnce($hold) -> F,
            ) -> Result<T, $crate::Error>
            where
                F: Future<Output = T>,
            {
                self.acquire().await?.with(work).await
            }

            /// As [`with`](Self::with), for work that can fail: its error is returned as it is. The hold is released in
            /// both cases. If the hold was lost, that is the error, whatever the work returned.
            #[doc = errors_as!("[`with`](Self::with)", ", and that of the work")]
            pub async fn try_with<T, E, F>(&self, work: impl FnOnce($hold) -> F) -> Result<T, E>
            where
                F: Future<Output = Result<T, E>>,
                E: From<$crate::Error>,
            {
                self.with(work).await?
            }

            /// As [`with`](Self::with), but waits at most `time` for the grant. None: not granted in that time, and the
            /// work did not run. The time of the work is not limited.
            #[doc = errors_as!("[`with`](Self::with)")]
            pub async fn with_timeout<T, F>(
                &self,
                time: std::time::Duration,
                work: impl FnOnce($hold) -> F,
            ) -> Result<Option<T>, $crate::Error>
            where
                F: Future<Output = T>,
            {
                match self.acquire_timeout(time).await? {
                    Some(guard) => guard.with(work).await.map(Some),
                    None => Ok(None),
                }
            }

            /// As [`with_timeout`](Self::with_timeout), for work that can fail, as [`try_with`](Self::try_with).
            #[doc = errors_as!("[`try_with`](Self::try_with)")]
            pub async fn try_with_timeout<T, E, F>(
                &self,
                time: std::time::Duration,
                work: impl FnOnce($hold) -> F,
            ) -> Result<Option<T>, E>
            where
                F: Future<Output = Result<T, E>>,
                E: From<$crate::Error>,
            {
                self.with_timeout(time, work).await?.transpose()
            }
        }
    };
}
pub(crate) use handle_with;
