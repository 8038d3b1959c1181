//! What an acquire returns: hold it, watch it, give it back.

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use dlock_wire::permit;
use dlock_wire::reply::quote;

use crate::error::Error;
use crate::held::{Grip, Held, Lost, Released};
use crate::options::lease_ms;
use crate::with::{Holding, under};

/// A view of a hold, for the work that is done under it. Cheap to clone; keeps nothing alive.
#[derive(Clone)]
pub struct Hold(Arc<Held>);

impl Hold {
    /// The key that is locked: of several, the first.
    pub fn key(&self) -> &[u8] {
        self.0.key()
    }

    /// Who holds it.
    pub fn owner(&self) -> &[u8] {
        match &self.0.grip {
            Grip::Lock { owner, .. } | Grip::Rw { owner, .. } | Grip::Multi { owner, .. } => owner,
            Grip::Permit { .. } => &[],
        }
    }

    /// The fencing token, 1 to 2^53 - 1: larger than that of every earlier holder. Send it along with what you
    /// write, and let the receiver refuse smaller ones than it has seen.
    pub fn token(&self) -> u64 {
        match &self.0.grip {
            Grip::Lock { token, .. } | Grip::Rw { token, .. } => *token,
            Grip::Multi { tokens, .. } => tokens.first().copied().unwrap_or(0),
            Grip::Permit { .. } => 0,
        }
    }

    /// Resolves when the hold is lost: its time is over by the clock of this machine, or the server said that it is
    /// gone. That is never after another client can have it by expiry; a hold that an operator breaks is lost as soon
    /// as the client hears of it. Does not resolve for a hold that is released.
    pub fn lost(&self) -> impl Future<Output = Lost> + Send + 'static {
        self.0.lost()
    }

    /// How it was lost, if it was.
    pub fn lost_now(&self) -> Option<Lost> {
        self.0.lost_now()
    }

    /// How long it is certain to last, if nothing renews it and nobody breaks it. Zero when it is lost.
    pub fn valid_for(&self) -> Duration {
        self.0.valid_for()
    }
}

impl fmt::Debug for Hold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Hold")
            .field("key", &quote(self.key()))
            .field("owner", &quote(self.owner()))
            .field("token", &self.token())
            .field("valid_for", &self.valid_for())
            .field("lost", &self.lost_now())
            .finish()
    }
}

/// What every guard can do with its field `held`.
macro_rules! guard {
    ($guard:ident, $remaining:literal) => {
        impl $guard {
            pub(crate) fn new(held: Arc<Held>) -> Self {
                Self { held: Hold(held) }
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
                release(&self.held.0).await
            }

            /// Sets the end of the lease anew, 1 ms to 365 days from now, sooner or later than it was.
            ///
            /// # Errors
            ///
            /// [`NotHeld`](crate::ErrorKind::NotHeld) or [`Lost`](crate::ErrorKind::Lost) if it is gone.
            pub async fn renew(&self, lease: Duration) -> Result<(), Error> {
                lease_ms(lease)?;
                self.held.0.renew(lease).await
            }
        }

        impl Holding for $guard {
            fn lost(&self) -> impl Future<Output = Lost> + Send {
                self.held.0.lost()
            }

            fn lost_now(&self) -> Option<Lost> {
                self.held.0.lost_now()
            }

            fn give_back(&self) -> impl Future<Output = Result<Released, Error>> + Send {
                release(&self.held.0)
            }
        }

        impl Drop for $guard {
            fn drop(&mut self) {
                self.held.0.clone().give_back_later();
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

    pub(crate) async fn with<T, F>(self, work: impl FnOnce(Hold) -> F) -> Result<T, Error>
    where
        F: Future<Output = T>,
    {
        under(&self, || work(self.hold())).await
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
        match &self.held.0.grip {
            Grip::Permit { permit, .. } => {
                String::from_utf8_lossy(&permit::text(permit)).into_owned()
            }
            _ => String::new(),
        }
    }

    pub(crate) async fn with<T, F>(self, work: impl FnOnce() -> F) -> Result<T, Error>
    where
        F: Future<Output = T>,
    {
        under(&self, work).await
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
        match &self.held.0.grip {
            Grip::Multi { tokens, .. } => tokens,
            _ => &[],
        }
    }
}

impl MultiGuard {
    pub(crate) async fn with<T, F>(self, work: impl FnOnce(Vec<u64>) -> F) -> Result<T, Error>
    where
        F: Future<Output = T>,
    {
        under(&self, || work(self.tokens().to_vec())).await
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

async fn release(held: &Arc<Held>) -> Result<Released, Error> {
    if !held.may_give_back() {
        return Ok(Released::Gone);
    }
    let _cleanup = held.core.registry.gate.cleanup();
    let mut rest = InBackground(Some(held.clone()));
    let released = held.give_back().await;
    rest.0 = None;
    released
}

/// Goes on with a release that nobody waits for any more: with the same request id, so it counts once.
struct InBackground(Option<Arc<Held>>);

impl Drop for InBackground {
    fn drop(&mut self) {
        if let Some(held) = self.0.take() {
            held.give_back_in_background();
        }
    }
}
