//! What an acquire returns: a guard that watches and releases the hold.

use std::fmt;
use std::ops::Deref;
use std::time::Duration;

use dlock_wire::permit::PermitText;
use dlock_wire::reply::quote;

use crate::error::Error;
use crate::hold::Hold;
use crate::hold_ref::HoldRef;
use crate::lost::{Lost, Released};
use crate::settings::lease_ms;
use crate::with::Holding;

/// What every guard can do with its field `held`.
macro_rules! guard {
    ($guard:ident, $remaining:literal) => {
        impl $guard {
            pub(crate) fn new(held: Hold) -> Self {
                Self { held }
            }

            /// Releases it;
            #[doc = concat!("[`Released::Remaining`] says ", $remaining, ".")]
            ///
            /// [`Released::Gone`] means that the hold had ended before; a request whose reply was lost is sent again,
            /// and is never taken for that.
            ///
            /// # Errors
            ///
            /// [`Unavailable`](crate::ErrorKind::Unavailable) if no server answered; the hold then ends with its lease.
            ///
            /// # Cancel safety
            ///
            /// Dropping this future does not stop the release: it goes on in the background.
            pub async fn release(self) -> Result<Released, Error> {
                self.held.release().await
            }

            /// Sets the end of the lease, 1 ms to 365 days from now; it may be sooner or later than before.
            ///
            /// # Errors
            ///
            /// [`NotHeld`](crate::ErrorKind::NotHeld) or [`Lost`](crate::ErrorKind::Lost) if it is gone.
            ///
            /// # Cancel safety
            ///
            /// Dropping this future does not recall the request. The hold counts for the shorter of both leases then.
            pub async fn renew(&self, lease: Duration) -> Result<(), Error> {
                lease_ms(lease)?;
                self.held.renew(lease).await
            }
        }

        impl Holding for $guard {
            fn lost(&self) -> impl Future<Output = Lost> + Send {
                self.held.lost()
            }

            fn lost_now(&self) -> Option<Lost> {
                self.held.lost_now()
            }

            fn release(&self) -> impl Future<Output = Result<Released, Error>> + Send {
                self.held.release()
            }
        }

        impl Drop for $guard {
            fn drop(&mut self) {
                self.held.release_later();
            }
        }
    };
}

/// Methods of guards that are no [`Hold`]: they have no single key, owner or token.
macro_rules! watched {
    ($guard:ident) => {
        impl $guard {
            /// As [`Hold::lost`].
            pub fn lost(&self) -> impl Future<Output = Lost> + Send + 'static {
                self.held.lost()
            }

            /// As [`Hold::lost_now`].
            pub fn lost_now(&self) -> Option<Lost> {
                self.held.lost_now()
            }

            /// As [`Hold::valid_for`].
            pub fn valid_for(&self) -> Duration {
                self.held.valid_for()
            }
        }
    };
}

/// A hold of a lock. Release it with [`release`](Guard::release). Dropping the guard releases it in the background,
/// which needs a running runtime: at the end of `main`, call `release`.
///
/// While the guard lives, a watchdog renews the hold (unless it has its own lease). It ends with the
/// guard, with the client and with the runtime.
#[must_use = "the lock is released when the guard is dropped"]
#[derive(Debug)]
pub struct Guard {
    held: Hold,
}

guard!(Guard, "how many holds this owner still has");

impl Guard {
    /// The work under it is done: its release tells observers.
    pub(crate) fn set_done(&self) {
        self.held.tracked.set_done();
    }

    /// A view of the hold, for other tasks.
    pub fn hold(&self) -> Hold {
        self.held.clone()
    }
}

impl Deref for Guard {
    type Target = Hold;

    fn deref(&self) -> &Hold {
        &self.held
    }
}

/// Permits of a semaphore. Return them with [`release`](Permit::release); dropping does so in the background.
#[must_use = "the permits are released when this is dropped"]
pub struct Permit {
    held: Hold,
}

guard!(Permit, "how many permits are available afterwards");
watched!(Permit);

impl Permit {
    /// The permit id of the server: a UUID.
    pub fn permit_id(&self) -> String {
        match &self.held.tracked.hold_ref {
            HoldRef::Permit { permit, .. } => PermitText::of(permit).to_string(),
            _ => String::new(),
        }
    }
}

impl fmt::Debug for Permit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Permit")
            .field("key", &quote(self.held.key()))
            .field("id", &self.permit_id())
            .field("valid_for", &self.valid_for())
            .finish_non_exhaustive()
    }
}

/// A hold of several locks together. It is lost when one of them is. Dropping it releases them in the background.
#[must_use = "the locks are released when the guard is dropped"]
pub struct MultiGuard {
    held: Hold,
}

guard!(MultiGuard, "how many locks were released");
watched!(MultiGuard);

impl MultiGuard {
    /// The fencing tokens, in the order of the keys.
    pub fn tokens(&self) -> &[u64] {
        match &self.held.tracked.hold_ref {
            HoldRef::Multi { tokens, .. } => tokens,
            _ => &[],
        }
    }
}

impl fmt::Debug for MultiGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MultiGuard")
            .field("tokens", &self.tokens())
            .field("valid_for", &self.valid_for())
            .finish_non_exhaustive()
    }
}
