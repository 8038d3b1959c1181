//! The guard of an acquired lock, and its view.

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use dlock_client::internal::{Holding, by_the_clock, sleep_until, under};
use dlock_client::{Error, Lost};
use dlock_wire::reply::quote;
use tokio::sync::{mpsc, watch};
use tokio::time::timeout;

use crate::attempt::Standing;
use crate::view::View;

/// A hold of a quorum lock. Release it with [`release`](QuorumGuard::release); dropping it does so in the background,
/// which needs a running runtime.
///
/// While the guard lives, a watchdog renews it on all servers that are part of it (unless the lock has its own
/// lease). A server that lost its hold is not asked again: the lock lives on with the others while they are a
/// majority.
#[must_use = "the lock is released when the guard is dropped"]
#[derive(Debug)]
pub struct QuorumGuard {
    pub(crate) held: QuorumHold,
    pub(crate) wanted: usize,
    pub(crate) timeout: Duration,
    /// Closing it is an order to release, too.
    pub(crate) orders: mpsc::Sender<()>,
}

/// A view of the hold of a quorum lock, for the work under it. It keeps no hold alive.
#[derive(Clone)]
pub struct QuorumHold {
    pub(crate) key: Arc<[u8]>,
    pub(crate) token: u64,
    pub(crate) view: watch::Receiver<View>,
}

impl QuorumHold {
    /// The key that is locked.
    pub fn key(&self) -> &[u8] {
        &self.key
    }

    /// The fencing token, 1 to 2^53 - 1, the same on all servers that are part of the lock, and larger than that of
    /// every earlier holder; see [what it needs](crate::QuorumLock#what-it-needs).
    pub fn token(&self) -> u64 {
        self.token
    }

    /// How long it is certain to last if nothing renews it: what is left of the lease, counted from before the first
    /// request, less 1 % of it and 2 ms. Zero when it is lost.
    pub fn valid_for(&self) -> Duration {
        self.view.borrow().valid_for()
    }

    /// Resolves when the lock is lost: [`Expired`](Lost::Expired) when its time is over by the clock of this machine,
    /// [`Refused`](Lost::Refused) when the servers that still hold it are no majority. Does not resolve
    /// for a lock that is released.
    pub fn lost(&self) -> impl Future<Output = Lost> + Send + 'static {
        let mut view = self.view.clone();
        let clock = self.view.clone();
        let told = async move {
            loop {
                let seen = view.borrow_and_update().clone();
                if let Some(how) = seen.lost() {
                    return how;
                }
                if seen.standing == Standing::Released {
                    std::future::pending::<()>().await;
                }
                tokio::select! {
                    changed = view.changed() => if changed.is_err() {
                        // The driver is gone: nothing renews it.
                        return Lost::Abandoned;
                    },
                    () = sleep_until(seen.until) => {}
                }
            }
        };
        by_the_clock(move || clock.borrow().lost(), told)
    }

    /// How it was lost, if it was.
    pub fn lost_now(&self) -> Option<Lost> {
        self.view.borrow().lost()
    }
}

impl Deref for QuorumGuard {
    type Target = QuorumHold;

    fn deref(&self) -> &QuorumHold {
        &self.held
    }
}

impl QuorumGuard {
    /// Releases it on all servers.
    ///
    /// Waits until a majority has released it, so that other clients can acquire the lock, but at most for the timeout
    /// of one server; then it goes on in the background.
    ///
    /// # Errors
    ///
    /// [`Lost`](dlock_client::ErrorKind::Lost): without the servers that had lost it before, there is no majority.
    /// [`NoQuorum`](dlock_client::ErrorKind::NoQuorum): fewer than a majority said in that time that they released it;
    /// other clients may have to wait until the lease ends.
    /// [`ReleaseUnknown`](dlock_client::ErrorKind::ReleaseUnknown): replies were lost, and too few servers know whether
    /// the lock lasted until then.
    ///
    /// # Cancel safety
    ///
    /// Dropping this future does not stop the release: it goes on in the background.
    pub async fn release(self) -> Result<(), Error> {
        Holding::release(&self).await
    }

    /// A view of the hold, for other tasks. It keeps no hold alive.
    pub fn hold(&self) -> QuorumHold {
        self.held.clone()
    }

    /// Runs the work under the hold, and releases it. When the hold is lost, the work is cancelled: its future is
    /// dropped.
    ///
    /// # Errors
    ///
    /// That of the work, as it is. [`Lost`](dlock_client::ErrorKind::Lost), which says why and whether the work had
    /// finished, whatever that returned. [`ReleaseUnknown`](dlock_client::ErrorKind::ReleaseUnknown) after work that
    /// succeeded: whether the hold lasted until then is not known.
    ///
    /// # Cancel safety
    ///
    /// Dropping this future drops the work and releases the hold in the background.
    pub async fn with<T, E, F>(self, work: impl FnOnce(QuorumHold) -> F) -> Result<T, E>
    where
        F: Future<Output = Result<T, E>>,
        E: From<Error>,
    {
        let hold = self.hold();
        under(&self, || work(hold)).await
    }
}

impl Holding for QuorumGuard {
    fn lost(&self) -> impl Future<Output = Lost> + Send {
        self.held.lost()
    }

    fn lost_now(&self) -> Option<Lost> {
        self.held.lost_now()
    }

    fn lost_keys(&self) -> Vec<Vec<u8>> {
        vec![self.held.key.to_vec()]
    }

    async fn release(&self) -> Result<(), Error> {
        let lost = Holding::lost_now(self);
        // An error: it has been told, or has ended.
        let _ = self.orders.try_send(());
        let wanted = self.wanted;
        let mut view = self.held.view.clone();
        let done = view.wait_for(|view| view.settled || view.tally.is_decided(wanted));
        // An error: the runtime has ended.
        let _ = timeout(self.timeout, done).await;
        let view = self.held.view.borrow();
        view.released(lost, wanted, self.lost_keys())
    }
}

impl fmt::Debug for QuorumHold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("QuorumHold")
            .field("key", &quote(&self.key))
            .field("token", &self.token)
            .field("valid_for", &self.valid_for())
            .field("lost", &self.lost_now())
            .finish_non_exhaustive()
    }
}
