//! What connections report about the client's waiters and holds, and ask about them.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;

use crate::base::clock::Moment;
use crate::base::pulse::Pulse;
use crate::state::tracked::TrackedHold;

/// The registry, as connections and routes know it.
pub(crate) trait Events: Send + Sync {
    /// Holds may be close to their end, or have lost their binding: the watchdog renews now.
    fn renew_now(&self);

    /// The connection to `server` is lost.
    fn disconnected(&self, server: &str, lost: &Pulse);

    /// The server published `text` on one of the client's channels.
    fn message(&self, text: &[u8]);

    /// Whether a connection that dies silently must be noticed before the next renewal.
    fn needs_heartbeat(&self) -> bool;

    /// How often a connection is probed that a hold is bound to; None: no hold is bound, or for so long that the
    /// heartbeat will do.
    fn probe_every(&self) -> watch::Receiver<Option<Duration>>;

    /// Every hold that is bound to a connection.
    fn bound(&self) -> Vec<Arc<TrackedHold>>;

    /// The connection that the hold is bound to no longer counts. It was alive at `alive`.
    fn unbind(&self, hold: &TrackedHold, alive: Moment);
}
