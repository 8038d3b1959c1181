//! What an acquire returns: hold it, watch it, give it back.

use std::fmt;
use std::ops::Deref;
use std::time::Duration;

use dlock_wire::permit;
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

            /// Gives it back, and says what came of it;
            #[doc = concat!("[`Released::Remaining`] says ", $remaining, ".")]
            ///
            /// [`Released::Gone`] means that the hold had ended before; a request whose reply was lost is sent again,
            /// and is never taken for that.
            ///
            /// Dropping this future does not undo the release: it goes on in the background.
            ///
            /// # Errors
            ///
            /// [`Unavailable`](crate::ErrorKind::Unavailable) if no server answered; the hold then ends with its lease.
            pub async fn release(self) -> Result<Released, Error> {
                self.held.release().await
            }

            /// Sets the end of the lease anew, 1 ms to 365 days from now, sooner or later than it was.
            ///
            /// # Errors
            ///
            /// [`NotHeld`](crate::ErrorKind::NotHeld) or [`Lost`](crate::ErrorKind::Lost) if it is gone.
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

/// What those guards pass on that are not themselves a [`Hold`]: they have no single key, owner or token.
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

/// A lock that is held. Give it back with [`release`](Guard::release); dropping it does so in the background, which
/// needs a runtime that runs on: at the end of `main`, release it.
///
/// While the guard lives, a watchdog renews the hold (unless it was given a lease of its own). It ends with the
/// guard, with the client and with the runtime.
#[must_use = "the lock is released when the guard is dropped"]
#[derive(Debug)]
pub struct Guard {
    held: Hold,
}

guard!(Guard, "how many holds this owner still has");

impl Guard {
    /// A view of the hold that can go elsewhere.
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

/// Permits of a semaphore. Give them back with [`release`](Permit::release); dropping does so in the background.
#[must_use = "the permits are given back when this is dropped"]
pub struct Permit {
    held: Hold,
}

guard!(Permit, "how many permits are available afterwards");
watched!(Permit);

impl Permit {
    /// By what name the server knows it: a UUID.
    pub fn permit_id(&self) -> String {
        match &self.held.tracked.hold_ref {
            HoldRef::Permit { permit, .. } => {
                String::from_utf8_lossy(&permit::text(permit)).into_owned()
            }
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

/// Several locks that are held together. It is lost when one of them is. Dropping it gives them back in the
/// background.
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
