//! Giving up: an acquire releases what it has, a place or a hold.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::time::{Instant, timeout};

use super::pending::PendingAcquire;
use crate::base::error::Error;
use crate::registry::PendingRequest;
use crate::telemetry;

/// How long giving up may delay the caller, before it goes on in the background.
pub(super) const LEAVE_WITHIN: Duration = Duration::from_millis(250);
/// For this long the server remembers requests.
const MEMORY: Duration = Duration::from_secs(60);

/// Gives an acquire up when it is dropped, unless nothing of it is left.
pub(super) struct GiveUpOnDrop(pub(super) Arc<PendingAcquire>);

impl Drop for GiveUpOnDrop {
    fn drop(&mut self) {
        self.0.clone().give_up();
    }
}

impl PendingRequest for PendingAcquire {
    fn give_up(self: Arc<Self>) {
        if !self.remains.swap(false, Ordering::AcqRel) {
            return;
        }
        let core = self.core.clone();
        let cleanup = core.ctx.gate.cleanup();
        core.ctx.runtime.clone().spawn(async move {
            // Without an answer, the place or hold ends by itself.
            if let Err(error) = self.release().await {
                telemetry::release_failed(self.key(), &error);
                core.ctx.gate.failed();
            }
            drop(cleanup);
        });
    }
}

impl PendingAcquire {
    /// Gives up now. If the server does not answer at once, that goes on in the background.
    pub(super) async fn leave(&self) {
        if let Ok(Ok(())) = timeout(LEAVE_WITHIN, self.release()).await {
            self.remains.store(false, Ordering::Relaxed);
        }
    }

    /// Releases whatever the acquire has, until the server answers or nothing can be left of it.
    async fn release(&self) -> Result<(), Error> {
        let lasts = (self.core.ctx.settings.queue + self.lease).min(MEMORY);
        let until = self.core.ctx.retry_until().max(Instant::now() + lasts);
        match self.core.routes.send(self.key(), self.release_request(), until).await {
            // Whatever it found.
            Err(error) if !error.passes() && !error.is_unanswered() => Ok(()),
            done => done.map(drop),
        }
    }
}
