//! Work under a hold: it ends with the hold, and its result counts only if the hold lasted.

use crate::base::error::Error;
use crate::base::lost::{Lost, Released};

/// A guard, as `with` sees it.
pub trait Holding {
    /// Resolves when the hold is lost.
    fn lost(&self) -> impl Future<Output = Lost> + Send;

    /// How the hold was lost, if it was, by the clock of this moment.
    fn lost_now(&self) -> Option<Lost>;

    /// The keys that were lost, if it was: all of them, unless the server named some.
    fn lost_keys(&self) -> Vec<Vec<u8>>;

    /// The work, inside the span of the hold.
    fn in_span<F: Future>(&self, work: F) -> impl Future<Output = F::Output>;

    /// Releases the hold.
    fn release(&self) -> impl Future<Output = Result<Released, Error>> + Send;
}

/// Works under a hold and releases it.
///
/// # Errors
///
/// [`Lost`](crate::ErrorKind::Lost) if the hold was over before the work was; the work is dropped then. Those of the
/// work and of the release.
pub async fn under<T, E, F>(hold: &impl Holding, work: impl FnOnce() -> F) -> Result<T, E>
where
    T: Send + 'static,
    E: From<Error>,
    F: Future<Output = Result<T, E>>,
{
    // No step of the work begins after the hold was lost: `lost` is polled before the work each time, and looks at the
    // clock each time.
    let done = tokio::select! {
        biased;
        how = hold.lost() => return Err(Error::lost(how).of_keys(hold.lost_keys()).into()),
        done = hold.in_span(work()) => done,
    };
    lasted(hold)?;
    verdict(done, hold.release().await)
}

/// Whether the hold lasted until now.
///
/// # Errors
///
/// [`Lost`](crate::ErrorKind::Lost) if it did not, by the clock of this moment: the last step of the work may have
/// taken longer than the lease.
pub fn lasted(hold: &impl Holding) -> Result<(), Error> {
    hold.lost_now().map_or(Ok(()), |how| Err(Error::lost_by_the_end(how).of_keys(hold.lost_keys())))
}

impl Released {
    /// An error if the hold had ended before the release: then others may have worked under the lock meanwhile, and
    /// the work should not count.
    ///
    /// # Errors
    ///
    /// [`Lost`](crate::ErrorKind::Lost) with `finished: true`, as from [`with`](crate::Lock::with). It names the keys.
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
            Self::Remaining(_) | Self::Available(_) => Ok(()),
            Self::Gone { reason, keys } => Err(Error::lost_by_the_end(reason).of_keys(keys)),
        }
    }
}

/// The result of work, after that outcome of the release.
///
/// # Errors
///
/// Those of the work and of the release. The error of work that failed comes before an outcome that is not known.
pub fn verdict<T, E>(done: Result<T, E>, released: Result<Released, Error>) -> Result<T, E>
where
    T: Send + 'static,
    E: From<Error>,
{
    match (released, done) {
        (Ok(released), done) => {
            released.ok_or_lost()?;
            done
        }
        (Err(error), Ok(value)) => Err(error.unknown_after(value).into()),
        (Err(_), failed) => failed,
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
            /// # Errors
            ///
            /// [`Lost`](crate::ErrorKind::Lost), which says why and whether the work had finished.
            /// [`ReleaseUnknown`](crate::ErrorKind::ReleaseUnknown), which has the result of the work: whether the hold
            /// lasted until then is not known.
            ///
            /// # Cancel safety
            ///
            /// Dropping this future drops the work and releases the hold in the background.
            pub async fn with<T, F>(
                self,
                work: impl FnOnce($hold) -> F,
            ) -> Result<T, $crate::base::error::Error>
            where
                T: Send + 'static,
                F: Future<Output = T>,
            {
                let hold = self.hold();
                $crate::handles::with::under(&self, || async { Ok(work(hold).await) }).await
            }

            /// As [`with`](Self::with), for work that can fail: its error is returned as it is. The hold is released in
            /// both cases. If the hold was lost, that is the error, whatever the work returned.
            #[doc = errors_as!("[`with`](Self::with)", ", and that of the work")]
            pub async fn try_with<T, E, F>(self, work: impl FnOnce($hold) -> F) -> Result<T, E>
            where
                T: Send + 'static,
                F: Future<Output = Result<T, E>>,
                E: From<$crate::base::error::Error>,
            {
                let hold = self.hold();
                $crate::handles::with::under(&self, || work(hold)).await
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
            /// # Errors
            ///
            /// As [`acquire`](Self::acquire), and [`Lost`](crate::ErrorKind::Lost), which says why and whether the work
            /// had finished. [`ReleaseUnknown`](crate::ErrorKind::ReleaseUnknown), which has the result of the work:
            /// whether the hold lasted until then is not known.
            ///
            /// # Cancel safety
            ///
            /// Dropping this future leaves the queue, or drops the work and releases the hold in the background. It
            /// does not borrow the handle, so it can be spawned if the work can.
            pub fn with<T, F, W>(
                &self,
                work: W,
            ) -> impl Future<Output = Result<T, $crate::base::error::Error>> + use<T, F, W>
            where
                T: Send + 'static,
                F: Future<Output = T>,
                W: FnOnce($hold) -> F,
            {
                let handle = self.clone();
                async move { handle.acquire().await?.with(work).await }
            }

            /// As [`with`](Self::with), for work that can fail: its error is returned as it is. The hold is released in
            /// both cases. If the hold was lost, that is the error, whatever the work returned.
            #[doc = errors_as!("[`with`](Self::with)", ", and that of the work")]
            pub fn try_with<T, E, F, W>(
                &self,
                work: W,
            ) -> impl Future<Output = Result<T, E>> + use<T, E, F, W>
            where
                T: Send + 'static,
                F: Future<Output = Result<T, E>>,
                E: From<$crate::base::error::Error>,
                W: FnOnce($hold) -> F,
            {
                let handle = self.clone();
                async move { handle.acquire().await?.try_with(work).await }
            }

            /// As [`with`](Self::with), but waits at most `time` for the grant. None: not granted in that time, and the
            /// work did not run. The time of the work is not limited.
            #[doc = errors_as!("[`with`](Self::with)")]
            pub fn with_timeout<T, F, W>(
                &self,
                time: std::time::Duration,
                work: W,
            ) -> impl Future<Output = Result<Option<T>, $crate::base::error::Error>> + use<T, F, W>
            where
                T: Send + 'static,
                F: Future<Output = T>,
                W: FnOnce($hold) -> F,
            {
                let handle = self.clone();
                async move {
                    match handle.acquire_timeout(time).await? {
                        Some(guard) => guard.with(work).await.map(Some),
                        None => Ok(None),
                    }
                }
            }

            /// As [`with_timeout`](Self::with_timeout), for work that can fail, as [`try_with`](Self::try_with).
            #[doc = errors_as!("[`try_with`](Self::try_with)")]
            pub fn try_with_timeout<T, E, F, W>(
                &self,
                time: std::time::Duration,
                work: W,
            ) -> impl Future<Output = Result<Option<T>, E>> + use<T, E, F, W>
            where
                T: Send + 'static,
                F: Future<Output = Result<T, E>>,
                E: From<$crate::base::error::Error>,
                W: FnOnce($hold) -> F,
            {
                let handle = self.clone();
                async move {
                    match handle.acquire_timeout(time).await? {
                        Some(guard) => guard.try_with(work).await.map(Some),
                        None => Ok(None),
                    }
                }
            }
        }
    };
}
pub(crate) use handle_with;
