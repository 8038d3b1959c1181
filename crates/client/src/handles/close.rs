//! Closing.

use std::sync::Arc;

use tokio::time::timeout;

use crate::base::error::Error;
use crate::handles::client::Client;
use crate::machine::Machine;
use crate::shell::Core;

impl Client {
    /// Closes this client with all its clones and handles: for the end of a process, so that no other client has
    /// to wait until its leases end.
    ///
    /// - Acquires and waits under way end with [`Closed`](crate::ErrorKind::Closed), and leave their queues.
    ///   So do all later ones.
    /// - Holds whose guards still live are released; [`Hold::lost`](crate::Hold::lost) resolves with
    ///   [`Lost::Closed`](crate::Lost::Closed) before that, work under `with` is cancelled, and
    ///   [`Guard::release`](crate::Guard::release) says [`Lost`](crate::ErrorKind::Lost). A quorum lock is released on
    ///   all its servers as soon as one of its clients is closed.
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
        if core.with(Machine::close) {
            core.runtime.spawn(end(core.clone()));
        }
        core.reached(Machine::refusal).await;
        core.with(|machine, _| machine.closed())
    }
}

/// Waits for what is released, at most for the time that a reply may take, and ends every connection.
async fn end(core: Arc<Core>) {
    let clean = core.reached(|machine| machine.is_clean().then_some(()));
    let _ = timeout(core.settings.response_timeout, clean).await;
    core.with(Machine::shut);
    core.disconnect();
}
