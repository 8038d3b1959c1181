//! A hold and its requests: renewals, releases, and the tasks that wait for its loss.

mod release;
pub(crate) mod watchdog;

use std::fmt;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use dlock_wire::reply::quote;
use redis::Cmd;
use tokio::runtime::Handle;

use crate::base::clock::{Moment, by_the_clock, sleep_until};
use crate::base::error::{Error, ErrorKind};
use crate::base::lost::Lost;
use crate::base::replicas::Replicas;
use crate::registry::Core;
use crate::state::hold_state::{Asked, RenewalReply};
use crate::state::tracked::TrackedHold;
use crate::telemetry;

/// How many requests about the parts of one hold travel together.
const AT_ONCE: usize = 128;

/// A view of a hold, for the work that is done under it. Cheap to clone; it keeps no hold alive.
#[derive(Clone)]
pub struct Hold {
    core: Arc<Core>,
    pub(crate) tracked: Arc<TrackedHold>,
}

impl Hold {
    /// The locked key: of several, the first.
    pub fn key(&self) -> &[u8] {
        self.tracked.key()
    }

    /// The owner of the hold.
    pub fn owner(&self) -> &[u8] {
        self.tracked.hold_ref.owner()
    }

    /// The fencing token, 1 to 2^53 - 1: larger than that of every earlier holder. Send it with each write, and let the
    /// receiver refuse tokens smaller than the largest it has seen.
    pub fn token(&self) -> u64 {
        self.tracked.hold_ref.token()
    }

    /// Resolves when the hold is lost: its time is over by the clock of this machine, or the server said that it is
    /// gone. An expired hold is lost here before another client can get it; a hold that an operator breaks is lost as
    /// soon as the message arrives. Does not resolve for a hold that is released.
    pub fn lost(&self) -> impl Future<Output = Lost> + Send + 'static {
        let mut lost = self.tracked.watch_loss();
        let hold = self.clone();
        let clock = self.clone();
        let told = async move {
            loop {
                if let Some(how) = *lost.borrow_and_update() {
                    return how;
                }
                // The client's own runtime may have ended: each task that waits looks at the clock, too.
                let expires = Handle::try_current().is_ok() && !hold.tracked.has_ended();
                let expiry = if expires { hold.tracked.deadline() } else { Moment::NEVER };
                tokio::select! {
                    changed = lost.changed() => if changed.is_err() {
                        std::future::pending::<()>().await;
                    },
                    () = sleep_until(expiry) => {
                        hold.lost_now();
                    }
                }
            }
        };
        by_the_clock(move || clock.lost_now(), told)
    }

    /// How the hold was lost, if it was.
    pub fn lost_now(&self) -> Option<Lost> {
        self.core.registry.lost_now(&self.tracked)
    }

    /// How long the hold is certain to last if nothing renews it and no operator breaks it. Zero once it is lost or
    /// released.
    pub fn valid_for(&self) -> Duration {
        self.lost_now();
        self.tracked.state().valid_for(Moment::now())
    }

    pub(crate) fn new(core: Arc<Core>, tracked: Arc<TrackedHold>) -> Self {
        Self { core, tracked }
    }

    pub(crate) fn core(&self) -> &Arc<Core> {
        &self.core
    }

    pub(crate) fn lose(&self, how: Lost) {
        self.core.registry.lose(&self.tracked, how);
    }

    /// The server said that it does not have these of its keys; `how`: what follows unless a message said more.
    pub(crate) fn lose_keys(&self, how: Lost, keys: Vec<Vec<u8>>) {
        let how = self.tracked.state().hinted().unwrap_or(how);
        self.core.registry.lose_keys(&self.tracked, how, keys);
    }

    /// It was lost before the work under it was done, or there is no such work.
    pub(crate) fn lost_error(&self, how: Lost) -> Error {
        Error::lost(how).of_keys(self.tracked.lost_keys())
    }

    /// Notes what became of a renewal.
    pub(crate) fn end_renewal(&self, asked: Asked, reply: RenewalReply) {
        telemetry::renewed(reply.name());
        let registry = &self.core.registry;
        let (change, renew_by) = {
            let mut state = self.tracked.state();
            (state.end_renewal(Moment::now(), asked, reply), state.renew_by())
        };
        registry.apply(&self.tracked, change);
        registry.renew_by(renew_by);
    }

    /// The requests of a renewal for this lease, all of which must succeed: one for each part.
    pub(crate) fn renewals(&self, lease: Duration) -> Vec<Cmd> {
        let bind = self.tracked.terms().bind;
        self.tracked.hold_ref.parts().iter().map(|part| part.renewal(lease, bind)).collect()
    }

    /// Renews it for this lease, and notes the answer. An error that a part is gone comes before others, and names the
    /// keys of all such parts.
    async fn send_renewal(&self, lease: Duration) -> Result<(), Error> {
        let (routes, until) = (&self.core.routes, self.core.ctx.retry_until());
        let keys = self.tracked.hold_ref.keys();
        self.tracked.state().begin_renewal(Moment::now());
        let requests = self.renewals(lease);
        let parts: Vec<_> = keys.iter().zip(&requests).collect();
        let replies =
            for_each(&parts, |(key, request)| routes.exchange(key, *request, until)).await;
        let (mut sent, mut over, mut gone, mut failed) = (Moment::NEVER, None, Vec::new(), None);
        let parts = self.tracked.hold_ref.parts();
        for ((reply, key), part) in replies.into_iter().zip(&keys).zip(parts) {
            match reply {
                Ok(reply) if reply.value != part.renewed() => {
                    failed = failed.or(Some(Error::protocol(&reply.value)));
                }
                Ok(reply) => {
                    sent = sent.min(reply.sent);
                    // Parts that were written over different connections are confirmed by none.
                    let generation = reply.generation;
                    over = Some(
                        over.map_or(generation, |over| if over == generation { over } else { 0 }),
                    );
                }
                Err(error) if error.is_gone() => {
                    gone.push(key.clone());
                    failed = Some(error);
                }
                Err(error) => failed = failed.or(Some(error)),
            }
        }
        let (reply, done) = match (failed, Replicas::of(&self.core.ctx.settings)) {
            (Some(error), _) if !gone.is_empty() => {
                (RenewalReply::Refused, Err(error.of_just(gone)))
            }
            (Some(error), _) if error.is_unanswered() => (RenewalReply::Unknown, Err(error)),
            (Some(error), _) => (RenewalReply::Refused, Err(error)),
            (None, None) => (RenewalReply::Accepted, Ok(())),
            (None, Some(replicas)) => {
                match routes.confirm(self.key(), over.unwrap_or(0), replicas).await {
                    Ok(found) if found.covers(sent) => (RenewalReply::Accepted, Ok(())),
                    Ok(_) => {
                        let text = "a replica came to the server since";
                        let error = Error::new(ErrorKind::Quarantine, text.to_owned());
                        (RenewalReply::Unconfirmed, Err(error.of_key(self.key())))
                    }
                    Err(error) => (RenewalReply::Unconfirmed, Err(error.of_key(self.key()))),
                }
            }
        };
        self.end_renewal(Asked { sent, lease }, reply);
        done
    }

    /// Renews it now with this lease; a watched hold also from now on.
    pub(crate) async fn renew(&self, lease: Duration) -> Result<(), Error> {
        if let Some(lost) = self.lost_now() {
            return Err(self.lost_error(lost));
        }
        let lease = {
            let mut state = self.tracked.state();
            state.set_lease(lease);
            state.capped_lease(Moment::now(), lease)
        };
        match self.send_renewal(lease).await {
            // It may have expired while the reply was on its way.
            Ok(()) => self.lost_now().map_or(Ok(()), |lost| Err(self.lost_error(lost))),
            Err(error) => {
                if error.is_gone() {
                    self.lose_keys(error.gone(), error.clone().into_keys());
                }
                Err(error)
            }
        }
    }
}

/// Sends a request about each of these, some at a time, and waits for the replies.
async fn for_each<'a, T, F: Future>(these: &'a [T], send: impl Fn(&'a T) -> F) -> Vec<F::Output> {
    if let [only] = these {
        // Nearly always: its future needs no place of its own.
        return vec![send(only).await];
    }
    let mut replies = Vec::with_capacity(these.len());
    for some in these.chunks(AT_ONCE) {
        replies.extend(all(some.iter().map(&send)).await);
    }
    replies
}

/// Drives all of these at the same time, to the end of each. Their requests share the connection, so those to one
/// server travel together.
pub(crate) async fn all<F: Future>(futures: impl IntoIterator<Item = F>) -> Vec<F::Output> {
    let mut running: Vec<_> = futures.into_iter().map(|one| (Box::pin(one), None)).collect();
    std::future::poll_fn(|context| {
        let mut is_done = true;
        for (one, output) in running.iter_mut().filter(|(_, output)| output.is_none()) {
            match one.as_mut().poll(context) {
                Poll::Ready(ready) => *output = Some(ready),
                Poll::Pending => is_done = false,
            }
        }
        if is_done { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
    running.into_iter().filter_map(|(_, output)| output).collect()
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
