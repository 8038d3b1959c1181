//! Releases of a hold.

use redis::Value;
use tokio::time::Instant;

use super::{Hold, for_each};
use crate::base::error::{Error, ErrorKind};
use crate::base::hold_ref::HoldRef;
use crate::base::lost::{Lost, Released};
use crate::state::hold_state::Verdict;
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

    /// Sends the release in the background, perhaps again.
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
            let (answer, n) = match reply {
                Ok(answer) => answer,
                Err(error) => {
                    failed = failed.or(Some(error));
                    continue;
                }
            };
            match answer {
                Verdict::Released => left += n,
                Verdict::Lost(how) => {
                    reason = Some(how);
                    gone.push(key);
                }
                Verdict::Unknown => unknown.push(key),
            }
        }
        // A loss that was told stays one, whatever the parts say now.
        let told = self.tracked.state().lost();
        if let Some(reason) = told.or(reason) {
            let keys = if told.is_some() { self.tracked.lost_keys() } else { gone };
            return Ok(Released::Gone { reason, keys });
        }
        match (failed, hold) {
            _ if !unknown.is_empty() => Err(Error::release_unknown().of_keys(unknown)),
            (Some(error), _) => Err(error),
            (None, HoldRef::Permit { .. }) => Ok(Released::Available(left)),
            (None, _) => Ok(Released::Remaining(left.unsigned_abs())),
        }
    }

    /// Releases one part: what that found, and what the server counts afterwards.
    async fn release_part(&self, part: &HoldRef, until: Instant) -> Result<(Verdict, i64), Error> {
        let Some(request) = part.release(self.tracked.reqid(), self.tracked.is_done()) else {
            return Err(Error::invalid("several locks are released one by one"));
        };
        let (answer, left) = match self.core.routes.send(part.key(), &request, until).await {
            Ok(Value::Int(left)) => (Verdict::Released, left),
            Ok(_) => (Verdict::Unknown, 0),
            Err(error) => match error.kind() {
                ErrorKind::Lost { reason, .. } => (Verdict::Lost(reason), 0),
                ErrorKind::ReleaseUnknown
                | ErrorKind::NotHeld
                | ErrorKind::Spent
                | ErrorKind::WrongType => (Verdict::Unknown, 0),
                _ => return Err(error),
            },
        };
        Ok((self.tracked.state().released(answer), left))
    }
}

/// Goes on with a release that no task waits for any more. Its copies count once.
struct InBackground(Option<Hold>);

impl Drop for InBackground {
    fn drop(&mut self) {
        if let Some(hold) = self.0.take() {
            hold.send_release_later();
        }
    }
}
