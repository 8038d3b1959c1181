//! Releases of a hold.

use super::Hold;
use crate::error::{Error, ErrorKind};
use crate::exchange::Reply;
use crate::hold_ref::HoldRef;
use crate::lost::Released;
use crate::reply::read;
use crate::telemetry;

impl Hold {
    /// Releases it, once. Dropping this future does not stop the release.
    ///
    /// A lost hold is released too: our clock does not decide whether the server's hold is over, and of several locks
    /// perhaps only one is gone.
    pub(crate) async fn release(&self) -> Result<Released, Error> {
        if !self.core.registry.begin_release(&self.tracked) {
            return Ok(Released::Gone);
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
            if let Err(error) = self.send_release().await {
                telemetry::release_failed(self.key(), &error);
                self.core.ctx.gate.failed();
            }
            drop(cleanup);
        });
    }

    /// A copy of a request that got no answer, and now finds nothing, is a success: either the first copy released the
    /// hold, or the hold ended between the copies. Both are after everything that was done under it.
    async fn send_release(&self) -> Result<Released, Error> {
        let hold = &self.tracked.hold_ref;
        let own_name = self.tracked.terms().own_name;
        let is_several = matches!(hold, HoldRef::Multi { .. });
        if is_several && !own_name {
            return self.release_by_token().await;
        }
        let reqid = (!own_name).then(|| self.tracked.release_id());
        let request = hold.release(reqid, self.tracked.is_done());
        let until = self.core.ctx.retry_until();
        match self.core.routes.exchange(self.key(), &request, until).await {
            Ok(Reply { value, repeated }) => Ok(match read(value)? {
                0 if is_several && repeated => Released::Already,
                0 if is_several => Released::Gone,
                remaining => Released::Remaining(remaining),
            }),
            Err(error) if error.kind() == ErrorKind::NotHeld && error.is_repeated() => {
                Ok(match hold {
                    // The owner holds nothing with this token any more.
                    HoldRef::Lock { .. } => Released::Remaining(0),
                    HoldRef::Permit { .. } | HoldRef::Multi { .. } => Released::Already,
                })
            }
            Err(error) if error.kind() == ErrorKind::NotHeld => Ok(Released::Gone),
            Err(error) => Err(error),
        }
    }

    /// Several locks, one by one.
    async fn release_by_token(&self) -> Result<Released, Error> {
        let mut released = 0;
        for lock in self.tracked.hold_ref.by_token() {
            let release = lock.release(Some(self.tracked.release_id()), self.tracked.is_done());
            let until = self.core.ctx.retry_until();
            match self.core.routes.exchange(lock.key(), &release, until).await {
                Ok(_) => released += 1,
                Err(error) if error.kind() == ErrorKind::NotHeld => {
                    released += i64::from(error.is_repeated());
                }
                Err(error) => return Err(error),
            }
        }
        Ok(if released == 0 { Released::Gone } else { Released::Remaining(released) })
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
