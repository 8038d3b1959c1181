//! Releases of a hold.

use tokio::time::Instant;

use super::{Hold, for_each};
use crate::base::clock::Moment;
use crate::base::error::{Error, ErrorKind};
use crate::base::hold_ref::HoldRef;
use crate::base::lost::{Lost, Released};
use crate::base::reply::read;
use crate::state::hold_state::{ReleaseReply, Verdict};
use crate::telemetry;

impl Hold {
    /// Releases it, once. Dropping this future does not stop the release.
    ///
    /// A lost hold is released too: our clock does not decide whether the server's hold is over, and of several locks
    /// perhaps only one is gone.
    pub(crate) async fn release(&self) -> Result<Released, Error> {
        let lost = self.lost_now();
        if !self.core.registry.begin_release(&self.tracked) {
            let keys = self.tracked.hold_ref.keys();
            return Ok(Released::Gone { reason: lost.unwrap_or(Lost::Closed), keys });
        }
        let _cleanup = self.core.ctx.gate.cleanup();
        let mut rest = InBackground(Some(self.clone()));
        let released = self.send_release().await;
        rest.0 = None;
        released
    }

    /// Releases it in the background, if no release has begun.
    pub(crate) fn release_later(&self) {
        if self.core.registry.begin_release(&self.tracked) {
            self.clone().send_release_later();
        }
    }

    /// Sends the release in the background. One that was sent before has the same request id.
    fn send_release_later(self) {
        let cleanup = self.core.ctx.gate.cleanup();
        self.core.ctx.runtime.clone().spawn(async move {
            // No caller gets the error; the lease ends by itself.
            if let Err(error) = self.send_release().await
                && error.kind() != ErrorKind::ReleaseUnknown
            {
                telemetry::release_failed(self.key(), &error);
                self.core.ctx.gate.failed();
            }
            drop(cleanup);
        });
    }

    /// Releases each part. Those to one server travel together.
    async fn send_release(&self) -> Result<Released, Error> {
        let hold = &self.tracked.hold_ref;
        let until = self.core.ctx.retry_until();
        let replies = for_each(&hold.parts(), |part| self.release_part(part, until)).await;
        let (mut left, mut reason, mut gone, mut unknown, mut failed) =
            (0, None, Vec::new(), Vec::new(), None);
        for (reply, key) in replies.into_iter().zip(hold.keys()) {
            match reply {
                Ok((Verdict::Released, n)) => left += n,
                Ok((Verdict::Lost(how), _)) => {
                    reason = Some(how);
                    gone.push(key);
                }
                Ok((Verdict::Unknown, _)) => unknown.push(key),
                Err(error) => failed = failed.or(Some(error)),
            }
        }
        match (reason, failed, hold) {
            (Some(reason), ..) => Ok(Released::Gone { reason, keys: gone }),
            _ if !unknown.is_empty() => Err(Error::release_unknown().of_keys(unknown)),
            (None, Some(error), _) => Err(error),
            (None, None, HoldRef::Permit { .. }) => Ok(Released::Available(left)),
            (None, None, _) => Ok(Released::Remaining(left.unsigned_abs())),
        }
    }

    /// Releases one part: what that found, and what the server counts afterwards.
    async fn release_part(&self, part: &HoldRef, until: Instant) -> Result<(Verdict, i64), Error> {
        let id = Some(self.tracked.release_id());
        let Some(request) = part.release(id, self.tracked.is_done()) else {
            return Err(Error::invalid("several locks are released one by one"));
        };
        let up = self.core.routes.connection(part.key());
        let (reply, left) = match self.core.routes.exchange(part.key(), &request, until).await {
            Ok(reply) => (ReleaseReply::Released, read(reply.value)?),
            Err(error) => (ReleaseReply::of(&error, up).ok_or(error)?, 0),
        };
        let state = self.tracked.state();
        Ok((state.released(Moment::now(), state.alive(), reply), left))
    }
}

/// Goes on with a release that no task waits for any more: with the same request id, so it counts once.
struct InBackground(Option<Hold>);

impl Drop for InBackground {
    fn drop(&mut self) {
        if let Some(hold) = self.0.take() {
            hold.send_release_later();
        }
    }
}
