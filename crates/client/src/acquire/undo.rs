//! Giving up: the place in the queue is left, and a grant that nobody wants any more is given back.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use dlock_wire::request::Release;
use tokio::time::timeout;

use super::words::How;
use super::{Ask, Granted, What};
use crate::clock::Moment;
use crate::error::Error;

/// How long giving up may keep the caller, before it goes on in the background.
pub(super) const LEAVE_WITHIN: Duration = Duration::from_millis(250);

/// Takes back what an acquire may have done that nobody waits for any more.
pub(super) struct Undo(pub(super) Arc<Ask>);

impl Drop for Undo {
    fn drop(&mut self) {
        self.0.clone().take_back();
    }
}

impl Ask {
    /// Takes back in the background what this acquire may have done. The acquire sends nothing more.
    pub(crate) fn take_back(self: Arc<Self>) {
        if !self.pending.swap(false, Ordering::AcqRel) {
            return;
        }
        let registry = &self.core.registry;
        let undoing = (!self.own_name).then(|| registry.begin_undo(&self.key, &self.owner));
        let cleanup = registry.gate.cleanup();
        let runtime = self.core.runtime.clone();
        runtime.spawn(async move {
            // Else the place or hold ends by itself, after its lease.
            if self.undo().await.is_err_and(|error| error.is_unanswered()) {
                self.core.registry.gate.failed();
            }
            drop((undoing, cleanup));
        });
    }

    /// Gives up waiting. A grant that was made in the last moment is given back by it.
    ///
    /// If the server does not answer at once, that goes on in the background.
    pub(super) async fn leave(&self) -> Option<Granted> {
        if let Ok(Ok(_)) = timeout(LEAVE_WITHIN, self.cancel()).await {
            self.pending.store(false, Ordering::Relaxed);
        }
        None
    }

    /// Leaves the queue, and gives back what may have been granted to a request whose answer nobody saw. An error may be
    /// that there was nothing to give back.
    pub(super) async fn undo(&self) -> Result<(), Error> {
        let core = &self.core;
        let cancelled = self.cancel().await;
        let until = core.patience();
        let (key, owner) = (&*self.key, &*self.owner);
        // For an owner that is only ours, all is to be given back. For one that others act for, only what this
        // request was given: asking once more with its id says what that is, and counts nothing.
        let release = match self.what {
            What::Permit { .. } => None,
            _ if !self.own_name => None,
            _ => Some(Release { all: true, ..Release::new(key, owner) }),
        };
        if let Some(release) = release {
            self.release(release, until).await?;
            return cancelled.map(drop);
        }
        let sent = Moment::now();
        let reply = core.send(key, self.draft(How::Now), until).await?;
        if let Some(granted) = self.granted(&reply, sent)? {
            self.hold(&granted).give_back_later();
        }
        cancelled.map(drop)
    }
}
