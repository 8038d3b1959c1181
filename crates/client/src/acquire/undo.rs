//! Giving up: the place in the queue is left, and a grant that nobody wants any more is given back.

use std::sync::atomic::Ordering;
use std::time::Duration;

use dlock_wire::request::Release;
use tokio::time::timeout;

use super::words::How;
use super::{Ask, Granted, What};
use crate::clock::Moment;

/// How long giving up may keep the caller, before it goes on in the background.
pub(super) const LEAVE_WITHIN: Duration = Duration::from_millis(250);

/// Takes back what an acquire may have done that nobody waits for any more.
pub(super) struct Undo(pub(super) Option<Ask>);

impl Drop for Undo {
    fn drop(&mut self) {
        if let Some(ask) = self.0.take().filter(|ask| ask.pending.load(Ordering::Relaxed)) {
            let runtime = ask.core.runtime.clone();
            let undoing =
                (!ask.own_name).then(|| ask.core.registry.begin_undo(&ask.key, &ask.owner));
            // Errors: the place or hold ends by itself, after its lease.
            runtime.spawn(async move {
                ask.undo().await;
                drop(undoing);
            });
        }
    }
}

impl Ask {
    /// Gives up waiting. A grant that was made in the last moment is given back by it.
    ///
    /// If the server does not answer at once, that goes on in the background.
    pub(super) async fn leave(&self) -> Option<Granted> {
        if let Ok(Ok(_)) = timeout(LEAVE_WITHIN, self.cancel()).await {
            self.pending.store(false, Ordering::Relaxed);
        }
        None
    }

    /// Leaves the queue, and gives back what may have been granted to a request whose answer nobody saw.
    pub(super) async fn undo(&self) {
        let core = &self.core;
        let _ = self.cancel().await;
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
            let _ = self.release(release, until).await;
            return;
        }
        let sent = Moment::now();
        let Ok(reply) = core.send(key, &self.request(How::Now), until).await else { return };
        if let Ok(Some(granted)) = self.granted(&reply, sent) {
            self.hold(&granted).give_back_later();
        }
    }
}
