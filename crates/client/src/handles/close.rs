//! Closing.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, timeout, timeout_at};

use crate::base::error::Error;
use crate::base::lost::Lost;
use crate::handles::client::Client;
use crate::hold::Hold;
use crate::registry::Core;

/// How long a closing client waits for tasks to poll the calls that they wait for.
const POLLED_WITHIN: Duration = Duration::from_millis(100);

impl Client {
    /// Closes this client with all its clones and handles: for the end of a process, so that no other client has
    /// to wait until its leases end.
    ///
    /// - Acquires and waits under way end with [`Closed`](crate::ErrorKind::Closed), and leave their queues.
    ///   So do all later ones.
    /// - Holds whose guards still live are released; [`Hold::lost`](crate::Hold::lost) resolves with
    ///   [`Lost::Closed`] before that, work under `with` is cancelled, and
    ///   [`Guard::release`](crate::Guard::release) finds it [`Gone`](crate::Released::Gone). A quorum lock is released
    ///   on all its servers as soon as one of its clients is closed.
    /// - Then the connections end. Any other call fails with [`Closed`](crate::ErrorKind::Closed) from then on.
    ///
    /// It takes about a round trip, and no longer than [`response_timeout`](crate::ClientBuilder::response_timeout).
    /// Calls for latches and for several locks wait on dedicated connections, which end when their futures are polled
    /// or dropped; those that are neither within 100 ms are not waited for.
    ///
    /// Closing twice is fine: each call returns when the client is closed, with the same outcome.
    ///
    /// # Errors
    ///
    /// [`Unavailable`](crate::ErrorKind::Unavailable): a server did not confirm every release in time; the client is
    /// closed, and what is left there ends with its lease. [`Closed`](crate::ErrorKind::Closed): the runtime in which
    /// the client was connected has ended.
    ///
    /// # Cancel safety
    ///
    /// Dropping this future stops nothing: the client goes on closing in the background.
    ///
    /// ```
    #[doc = example!()]
    /// use dlock_client::{ErrorKind, Lost};
    ///
    /// let guard = client.lock("orders:7").acquire().await?;
    /// client.close().await?;
    /// assert_eq!(guard.lost_now(), Some(Lost::Closed));
    /// let late = client.lock("orders:7").acquire().await;
    /// assert_eq!(late.unwrap_err().kind(), ErrorKind::Closed);
    /// # Ok::<(), dlock_client::Error>(()) }).unwrap();
    /// ```
    pub async fn close(&self) -> Result<(), Error> {
        let core = self.core();
        let gate = &core.ctx.gate;
        if gate.begin_to_close() {
            core.ctx.runtime.spawn(release_all(core.clone()));
        }
        gate.shut().await;
        match gate.refusal() {
            Some(error) if !gate.is_closed() => Err(error),
            _ if gate.has_failed() => Err(Error::unavailable(
                "closed before the server confirmed every release: the rest ends with its lease",
            )),
            _ => Ok(()),
        }
    }
}

/// Gives acquires up, releases holds, and ends the connections.
async fn release_all(core: Arc<Core>) {
    let limit = Instant::now() + core.ctx.settings.response_timeout;
    let gate = &core.ctx.gate;
    for request in core.registry.waiters.requests() {
        request.give_up();
    }
    for tracked in core.registry.holds.unreleased() {
        let hold = Hold::new(core.clone(), tracked);
        hold.lose(Lost::Closed);
        hold.release_later();
    }
    // A call on a dedicated connection ends when its future is polled.
    let _ = timeout(POLLED_WITHIN, gate.no_calls()).await;
    if timeout_at(limit, gate.clean()).await.is_err() {
        gate.failed();
    }
    gate.close();
    core.routes.close();
}
