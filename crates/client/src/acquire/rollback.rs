//! Giving up: the acquire leaves the queue, and releases what it was granted.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use tokio::time::timeout;

use super::pending::{Grant, LEAVE_WITHIN, PendingAcquire, WaitRequest};
use crate::base::error::Error;
use crate::registry::PendingRequest;
use crate::telemetry;

/// Rolls an acquire back when it is dropped.
pub(super) struct RollbackOnDrop(pub(super) Arc<PendingAcquire>);

impl Drop for RollbackOnDrop {
    fn drop(&mut self) {
        self.0.clone().roll_back();
    }
}

impl PendingRequest for PendingAcquire {
    fn is_request(&self, id: &[u8]) -> bool {
        self.reqid.as_bytes() == id
    }

    fn roll_back(self: Arc<Self>) {
        if !self.may_remain.swap(false, Ordering::AcqRel) {
            return;
        }
        let core = self.core.clone();
        // Another acquire of the same named owner waits for this: CANCEL would end its wait, too.
        let is_shared = !self.terms.own_name && !self.target.is_several();
        let waiters = &core.registry.waiters;
        let rollback = is_shared.then(|| waiters.begin_rollback(self.key(), &self.owner));
        let cleanup = core.ctx.gate.cleanup();
        core.ctx.runtime.clone().spawn(async move {
            // Without an answer, the waiter or hold ends by itself, after its lease.
            if let Err(error) = self.cancel_and_release().await
                && error.is_unanswered()
            {
                telemetry::release_failed(self.key(), &error);
                core.ctx.gate.failed();
            }
            drop((rollback, cleanup));
        });
    }
}

impl PendingAcquire {
    /// Leaves the queue. CANCEL also releases a grant of the last moment.
    ///
    /// If the server does not answer at once, a rollback goes on in the background.
    pub(super) async fn leave(&self) -> Option<Grant> {
        if let Ok(Ok(_)) = timeout(LEAVE_WITHIN, self.cancel()).await {
            self.may_remain.store(false, Ordering::Relaxed);
        }
        None
    }

    /// Leaves the queue, and releases what may have been granted to a request whose answer was lost. An error may mean
    /// that there was nothing to release.
    ///
    /// A blocked call may still be under way over its dedicated connection: it is cancelled first. Then its request id
    /// is over, at the first of several keys, which refuses all of it.
    pub(super) async fn cancel_and_release(&self) -> Result<(), Error> {
        let routes = &self.core.routes;
        let cancelled = self.cancel().await;
        let until = self.core.ctx.retry_until();
        if self.terms.own_name
            && let Some(release) = self.release_all()
        {
            // Whatever this owner holds is of this acquire.
            routes.send(self.key(), release, until).await?;
            return cancelled.map(drop);
        }
        // Other tasks may act for the owner: only what this request was granted. The same request again says what that
        // is, and counts nothing.
        let sent = self.sent_now();
        let reply = routes.send(self.key(), self.draft(WaitRequest::Now), until).await?;
        if let Some(grant) = self.granted(reply, sent)? {
            self.track(grant).release_later();
        }
        cancelled.map(drop)
    }
}
