//! What an acquire returns: a guard that watches and releases the hold.

use std::fmt;
use std::ops::Deref;
use std::time::Duration;

use dlock_wire::permit::PermitText;
use dlock_wire::reply::quote;
use futures_util::future::join_all;

use crate::base::error::Error;
use crate::base::hold_ref::Held;
use crate::base::lost::Lost;
use crate::base::settings::checked_ms;
use crate::handles::with::{Holding, under};
use crate::hold::{Hold, Owning};

/// What every guard can do with its field `held`.
macro_rules! guard {
    ($guard:ident of $hold:ident) => {
        impl Owning for $guard {
            fn new(hold: Hold) -> Self {
                Self { held: hold.into() }
            }

            fn as_hold(&self) -> &Hold {
                self.held.as_hold()
            }
        }

        impl $guard {
            /// Releases it. A request whose reply was lost is sent again, and the server says what the first copy
            /// found.
            ///
            /// # Errors
            ///
            /// [`Lost`](crate::ErrorKind::Lost) if it had ended before: others may have worked under it meanwhile, and
            /// the work should not count. Of several locks one is enough, and the error names those.
            /// [`ReleaseUnknown`](crate::ErrorKind::ReleaseUnknown) if it does not know the hold any more.
            /// [`Unavailable`](crate::ErrorKind::Unavailable) if no server answered; the hold then ends with its lease.
            ///
            /// # Cancel safety
            ///
            /// Dropping this future does not stop the release: it goes on in the background.
            pub async fn release(self) -> Result<(), Error> {
                self.held.as_hold().release().await
            }

            /// Extends the hold so that it lasts for this time from now, 1 ms to 365 days (30 ms at least if the
            /// watchdog renews it). One that lasts longer already is not shortened.
            ///
            /// # Errors
            ///
            /// [`NotHeld`](crate::ErrorKind::NotHeld) or [`Lost`](crate::ErrorKind::Lost) if it is gone.
            ///
            /// # Cancel safety
            ///
            /// Dropping this future does not recall the request.
            pub async fn renew(&self, lease: Duration) -> Result<(), Error> {
                checked_ms("lease", lease)?;
                self.held.as_hold().renew(lease).await
            }

            /// A view of the hold, for other tasks. It keeps no hold alive.
            pub fn hold(&self) -> $hold {
                self.held.clone()
            }

            /// Runs the work under the hold, and releases it. When the hold is lost, the work is cancelled: its future
            /// is dropped.
            ///
            /// # Errors
            ///
            /// That of the work, as it is. [`Lost`](crate::ErrorKind::Lost), which says why and whether the work had
            /// finished, whatever that returned. [`ReleaseUnknown`](crate::ErrorKind::ReleaseUnknown) after work that
            /// succeeded: whether the hold lasted until then is not known.
            ///
            /// # Cancel safety
            ///
            /// Dropping this future drops the work and releases the hold in the background.
            pub async fn with<T, E, F>(self, work: impl FnOnce($hold) -> F) -> Result<T, E>
            where
                F: Future<Output = Result<T, E>>,
                E: From<Error>,
            {
                let tracked = &self.held.as_hold().tracked;
                under(&self, || tracked.report.instrument(work(self.hold()))).await
            }
        }

        impl Deref for $guard {
            type Target = $hold;

            fn deref(&self) -> &$hold {
                &self.held
            }
        }

        impl Holding for $guard {
            fn lost(&self) -> impl Future<Output = Lost> + Send {
                self.held.lost()
            }

            fn lost_now(&self) -> Option<Lost> {
                self.held.lost_now()
            }

            fn lost_keys(&self) -> Vec<Vec<u8>> {
                self.held.as_hold().tracked.lost_keys()
            }

            fn release(&self) -> impl Future<Output = Result<(), Error>> + Send {
                self.held.as_hold().release()
            }
        }

        impl Drop for $guard {
            fn drop(&mut self) {
                self.held.as_hold().release_later();
            }
        }
    };
}

/// A view of a hold that has no single key, owner and token, as [`Hold`] has them.
macro_rules! view {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone)]
        pub struct $name {
            hold: Hold,
        }

        impl $name {
            /// As [`Hold::lost`].
            pub fn lost(&self) -> impl Future<Output = Lost> + Send + 'static {
                self.hold.lost()
            }

            /// As [`Hold::lost_now`].
            pub fn lost_now(&self) -> Option<Lost> {
                self.hold.lost_now()
            }

            /// As [`Hold::valid_for`].
            pub fn valid_for(&self) -> Duration {
                self.hold.valid_for()
            }

            fn as_hold(&self) -> &Hold {
                &self.hold
            }
        }

        impl From<Hold> for $name {
            fn from(hold: Hold) -> Self {
                Self { hold }
            }
        }
    };
}

impl Hold {
    fn as_hold(&self) -> &Self {
        self
    }
}

/// A hold of a lock. Release it with [`release`](Guard::release). Dropping the guard releases it in the background,
/// which needs a running runtime: at the end of `main`, call `release`.
///
/// While the guard lives, a watchdog renews the hold (unless its lease is fixed). It ends with the
/// guard, with the client and with the runtime.
#[must_use = "the lock is released when the guard is dropped"]
#[derive(Debug)]
pub struct Guard {
    held: Hold,
}

guard!(Guard of Hold);

/// Permits of a semaphore. Return them with [`release`](Permit::release); dropping does so in the background.
#[must_use = "the permits are released when this is dropped"]
#[derive(Debug)]
pub struct Permit {
    held: PermitHold,
}

guard!(Permit of PermitHold);

impl Permit {
    /// Releases all of these in one round trip for each server, however many they are.
    ///
    /// # Errors
    ///
    /// The first error, as of [`release`](Permit::release). All permits are released all the same, as far as their
    /// servers answer.
    ///
    /// # Cancel safety
    ///
    /// Dropping this future does not stop the releases: they go on in the background.
    ///
    /// ```
    #[doc = example!()]
    /// use dlock_client::Permit;
    ///
    /// let downloads = client.semaphore("downloads").limit(3);
    /// let mut permits = Vec::new();
    /// for _ in 0..3 {
    ///     permits.push(downloads.acquire().await?);
    /// }
    /// Permit::release_all(permits).await?;
    /// assert_eq!(downloads.available().await?, 3);
    /// # Ok::<(), dlock_client::Error>(()) }).unwrap();
    /// ```
    pub async fn release_all(permits: impl IntoIterator<Item = Self>) -> Result<(), Error> {
        let permits: Vec<Self> = permits.into_iter().collect();
        let releases = permits.iter().map(|permit| permit.held.as_hold().release());
        join_all(releases).await.into_iter().collect()
    }
}

view! {
    /// A view of the hold of permits, for the work under it. It keeps no hold alive.
    PermitHold
}

impl PermitHold {
    /// The key of the semaphore.
    pub fn key(&self) -> &[u8] {
        self.hold.key()
    }

    /// The permit id of the server: a UUID.
    pub fn permit_id(&self) -> String {
        match &self.hold.tracked.hold_ref.held {
            Held::Permit(permit) => PermitText::of(permit).to_string(),
            Held::Lock(..) | Held::Multi(_) => String::new(),
        }
    }
}

impl fmt::Debug for PermitHold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PermitHold")
            .field("key", &quote(self.key()))
            .field("id", &self.permit_id())
            .field("valid_for", &self.valid_for())
            .finish_non_exhaustive()
    }
}

/// A hold of several locks together. It is lost when one of them is. Dropping it releases them in the background.
#[must_use = "the locks are released when the guard is dropped"]
#[derive(Debug)]
pub struct MultiGuard {
    held: MultiHold,
}

guard!(MultiGuard of MultiHold);

view! {
    /// A view of a hold of several locks, for the work under it. It keeps no hold alive.
    MultiHold
}

impl MultiHold {
    /// The fencing tokens, in the order of the keys.
    pub fn tokens(&self) -> &[u64] {
        self.hold.tracked.hold_ref.tokens()
    }
}

impl fmt::Debug for MultiHold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MultiHold")
            .field("tokens", &self.tokens())
            .field("valid_for", &self.valid_for())
            .finish_non_exhaustive()
    }
}
