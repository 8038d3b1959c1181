//! Guards for threads.

use std::sync::Arc;
use std::time::Duration;

use dlock_wire::request::Mode;
use futures_util::future::join_all;

use super::background::Background;
use crate::base::error::Error;
use crate::base::lost::Lost;
use crate::handles::with::{Holding, lasted, verdict};

/// How long dropping a guard may block.
const RELEASE_WITHIN: Duration = Duration::from_secs(1);

/// What every guard can do.
macro_rules! guard {
    ($(#[$doc:meta])* $name:ident) => {
        wrapper! {
            $(#[$doc])*
            #[must_use = "the hold is released when this is dropped"]
            $name
        }

        impl $name {
            #[doc = waiting_as!($name::release)]
            pub fn release(self) -> Result<(), Error> {
                self.background.run(Holding::release(&self.inner))?
            }

            /// Runs the work under the hold, and releases it. Nothing can cancel the work of a thread: ask `lost_now`
            /// before each step that needs the lock.
            ///
            /// # Errors
            ///
            /// That of the work, as it is. [`Lost`](crate::ErrorKind::Lost) if the hold was over before the work was,
            /// whatever that returned. [`ReleaseUnknown`](crate::ErrorKind::ReleaseUnknown) after work that succeeded:
            /// whether the hold lasted until then is not known.
            pub fn with<T, E: From<Error>>(
                self,
                work: impl FnOnce(&Self) -> Result<T, E>,
            ) -> Result<T, E> {
                let done = work(&self);
                lasted(&self.inner)?;
                verdict(done, self.release())
            }

            /// How the hold was lost, if it was. Ask before each step that needs the lock.
            pub fn lost_now(&self) -> Option<Lost> {
                self.inner.lost_now()
            }

            /// Waits until the hold is lost, but no longer than `time`. None: it is not lost.
            ///
            /// # Errors
            ///
            /// [`Invalid`](crate::ErrorKind::Invalid) in asynchronous code.
            pub fn wait_lost(&self, time: Duration) -> Result<Option<Lost>, Error> {
                self.background.run(async { tokio::time::timeout(time, self.inner.lost()).await.ok() })
            }

            /// How long the hold is certain to last; zero when it is lost.
            pub fn valid_for(&self) -> Duration {
                self.inner.valid_for()
            }
        }

        impl Drop for $name {
            fn drop(&mut self) {
                // The release ends here: the background may end with this handle. After an error, the lease ends the
                // hold. Inside a runtime, dropping `inner` releases it in the background.
                let release = async {
                    let _ = tokio::time::timeout(RELEASE_WITHIN, Holding::release(&self.inner)).await;
                };
                let _ = self.background.run(release);
            }
        }
    };
}

guard! {
    /// As [`crate::Guard`].
    Guard
}
waits!(Guard: renew(lease: Duration) -> ());

impl Guard {
    #[doc = waiting_as!(Guard::upgrade)]
    pub fn upgrade(self) -> Result<Self, Error> {
        self.in_mode(Mode::Write)
    }

    #[doc = waiting_as!(Guard::downgrade)]
    pub fn downgrade(self) -> Result<Self, Error> {
        self.in_mode(Mode::Read)
    }

    fn in_mode(self, mode: Mode) -> Result<Self, Error> {
        let inner = self.background.run(self.inner.in_mode(mode))??;
        Ok(Self { inner, background: self.background.clone() })
    }
}
reads!(Guard as Hold: key -> &[u8], owner -> &[u8], token -> u64);

guard! {
    /// As [`crate::Permit`].
    Permit
}
waits!(Permit: renew(lease: Duration) -> ());
reads!(Permit as PermitHold: key -> &[u8], permit_id -> String);

impl Permit {
    /// As [`crate::Permit::release_all`].
    ///
    /// # Errors
    ///
    /// As there, and [`Invalid`](crate::ErrorKind::Invalid) in asynchronous code.
    pub fn release_all(permits: impl IntoIterator<Item = Self>) -> Result<(), Error> {
        let permits: Vec<Self> = permits.into_iter().collect();
        let Some(first) = permits.first() else { return Ok(()) };
        let releases = permits.iter().map(|permit| Holding::release(&permit.inner));
        first.background.run(join_all(releases))?.into_iter().collect()
    }
}

guard! {
    /// As [`crate::MultiGuard`].
    MultiGuard
}
waits!(MultiGuard: renew(lease: Duration) -> ());
reads!(MultiGuard as MultiHold: tokens -> &[u64]);
