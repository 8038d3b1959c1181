//! A hold: whether it is certain, and how it is renewed and released.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use dlock_wire::reply::quote;
use redis::Value;
use tokio::runtime::Handle;

use crate::base::clock::{Moment, by_the_clock, sleep_until};
use crate::base::error::{Error, ErrorKind};
use crate::base::lost::Lost;
use crate::base::options::Options;
use crate::base::replicas::Replicas;
use crate::base::settings::check_renewed;
use crate::machine::calls::{AskCall, Replies};
use crate::machine::hold_state::{Asked, HoldState, RenewalReply, Verdict};
use crate::machine::tracked::TrackedHold;
use crate::shell::Core;

/// A view of a hold, for the work that is done under it. Cheap to clone; it keeps no hold alive.
#[derive(Clone)]
pub struct Hold {
    pub(crate) core: Arc<Core>,
    pub(crate) tracked: Arc<TrackedHold>,
    /// What it was acquired with.
    pub(crate) options: Arc<Options>,
}

/// Owns a hold: dropping it releases that.
pub(crate) trait Owning {
    fn new(hold: Hold) -> Self;

    fn as_hold(&self) -> &Hold;
}

impl Hold {
    /// The locked key: of several, the first.
    pub fn key(&self) -> &[u8] {
        self.tracked.hold_ref.key()
    }

    /// The owner of the hold.
    pub fn owner(&self) -> &[u8] {
        &self.tracked.hold_ref.owner
    }

    /// The fencing token, 1 to 2^53 - 1: larger than that of every earlier holder. Send it with each write, and let the
    /// receiver refuse tokens smaller than the largest it has seen.
    pub fn token(&self) -> u64 {
        self.tracked.hold_ref.token()
    }

    /// Resolves when the hold is lost: its time is over by the clock of this machine, or the server said that it is
    /// gone. An expired hold is lost here before another client can get it; a hold that an operator breaks is lost as
    /// soon as the message arrives. Does not resolve for a hold that is released.
    ///
    /// The time of a hold counts from before its request was sent, less 1 % and 2 ms for clocks that run at different
    /// rates. It goes on while the machine is suspended (`CLOCK_BOOTTIME`). After a suspend this resolves within a
    /// quarter of a second; [`lost_now`](Self::lost_now) and [`valid_for`](Self::valid_for) notice at once.
    pub fn lost(&self) -> impl Future<Output = Lost> + Send + 'static {
        let (hold, clock) = (self.clone(), self.clone());
        let lost = async move {
            loop {
                let told = hold.tracked.told.notified();
                if let Some(how) = hold.tracked.look(HoldState::lost) {
                    return how;
                }
                // The client's own runtime may have ended: each task that waits looks at the clock, too.
                let expires = Handle::try_current().is_ok();
                let deadline = |state: &HoldState| {
                    if state.has_ended() || !expires { Moment::NEVER } else { state.deadline() }
                };
                tokio::select! {
                    () = told => {}
                    () = sleep_until(hold.tracked.look(deadline)) => {
                        hold.lost_now();
                    }
                }
            }
        };
        by_the_clock(move || clock.lost_now(), lost)
    }

    /// How the hold was lost, if it was.
    pub fn lost_now(&self) -> Option<Lost> {
        self.tracked.lost_now()
    }

    /// How long the hold is certain to last if nothing renews it and no operator breaks it. Zero once it is lost or
    /// released.
    pub fn valid_for(&self) -> Duration {
        self.lost_now();
        self.tracked.look(|state| state.valid_for(Moment::now()))
    }

    /// It was lost before the work under it was done, or there is no such work.
    pub(crate) fn lost_error(&self, how: Lost) -> Error {
        Error::lost(how).of_keys(self.tracked.lost_keys())
    }

    /// Renews it now with this lease; a watched hold also from now on.
    pub(crate) async fn renew(&self, lease: Duration) -> Result<(), Error> {
        if let Some(lost) = self.lost_now() {
            return Err(self.lost_error(lost));
        }
        let (tracked, now) = (&self.tracked, Moment::now());
        if tracked.terms().watched {
            check_renewed(lease)?;
        }
        let mut asks = lease;
        tracked.change(|state| {
            state.set_lease(lease);
            asks = state.capped_lease(now, lease);
            state.begin_renewal(now)
        });
        let requests = tracked.hold_ref.renewals(asks, tracked.terms().bind);
        let settings = &self.core.settings;
        let (limit, replicas) = (settings.retry_for, Replicas::of(settings));
        let call = AskCall::new(tracked.place, requests, limit, limit, now).confirmed_by(replicas);
        let Replies { values, confirmed, sent } = self.core.begin(call, false)?.replies().await?;
        let asked = Asked { sent, lease: asks };
        let renewed = if tracked.hold_ref.have_renewed(&values) {
            tracked.settle(asked, values, Replicas::confirm(replicas, confirmed, sent))
        } else {
            tracked.renewed(asked, RenewalReply::Unknown);
            Err(Error::unavailable("a reply of another request"))
        };
        let at = tracked.look(|state| state.renew_by().unwrap_or(Moment::NEVER));
        self.core.with(|machine, _| machine.look_at(at.min(tracked.look(HoldState::deadline))));
        renewed?;
        // It may have expired while the reply was on its way.
        self.lost_now().map_or(Ok(()), |lost| Err(self.lost_error(lost)))
    }

    /// Releases it, once. Dropping this future does not stop the release.
    ///
    /// A lost hold is released too: our clock does not decide whether the server's hold is over, and of several locks
    /// perhaps only one is gone.
    pub(crate) async fn release(&self) -> Result<(), Error> {
        let lost = self.lost_now();
        let Some(call) = self.core.begin_release(&self.tracked) else {
            let lost = Error::lost_by_the_end(lost.unwrap_or(Lost::Closed));
            return Err(lost.of_keys(self.tracked.hold_ref.keys()));
        };
        match call {
            Ok(call) => self.released(call.replies().await?),
            // A loss that was told stays one.
            Err(error) => Err(lost.map_or(error, |how| {
                Error::lost_by_the_end(how).of_keys(self.tracked.lost_keys())
            })),
        }
    }

    /// Releases it in the background, if no release has begun.
    pub(crate) fn release_later(&self) {
        if !self.tracked.look(HoldState::is_released) {
            self.core.with(|machine, now| machine.release_later(&self.tracked, now));
        }
    }

    /// What the replies to its release say.
    fn released(&self, replies: Replies) -> Result<(), Error> {
        let (mut lost, mut failed) = (None, None);
        let (mut gone, mut unknown) = (Vec::new(), Vec::new());
        for (reply, key) in replies.values.into_iter().zip(self.tracked.hold_ref.keys.iter()) {
            let answer = match reply {
                Ok(Value::Int(_)) => Verdict::Released,
                Ok(_) => Verdict::Unknown,
                Err(error) => match error.kind() {
                    ErrorKind::Lost { reason, .. } => Verdict::Lost(reason),
                    ErrorKind::ReleaseUnknown
                    | ErrorKind::NotHeld
                    | ErrorKind::Spent
                    | ErrorKind::WrongType => Verdict::Unknown,
                    _ => {
                        failed = failed.or(Some(error));
                        continue;
                    }
                },
            };
            match self.tracked.look(|state| state.released(answer)) {
                Verdict::Released => {}
                Verdict::Lost(how) => {
                    lost = Some(how);
                    gone.push(key.to_vec());
                }
                Verdict::Unknown => unknown.push(key.to_vec()),
            }
        }
        // A loss that was told stays one, whatever the parts say now.
        if let Some(how) = self.tracked.look(HoldState::lost) {
            return Err(Error::lost_by_the_end(how).of_keys(self.tracked.lost_keys()));
        }
        match (lost, failed) {
            (Some(how), _) => Err(Error::lost_by_the_end(how).of_keys(gone)),
            _ if !unknown.is_empty() => Err(Error::release_unknown().of_keys(unknown)),
            (None, Some(error)) => Err(error.of_key(self.key())),
            (None, None) => Ok(()),
        }
    }
}

impl fmt::Debug for Hold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Hold")
            .field("key", &quote(self.key()))
            .field("owner", &quote(self.owner()))
            .field("token", &self.token())
            .field("valid_for", &self.valid_for())
            .field("lost", &self.lost_now())
            .finish()
    }
}
