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
use crate::base::error::Error;
use crate::base::hold_ref::HoldRef;
use crate::base::lost::Lost;
use crate::base::replicas::Replicas;
use crate::connection::link::events::Events as _;
use crate::registry::Core;
use crate::state::hold_state::{InflightRenewal, RenewalReply};
use crate::state::tracked::{TrackedHold, shared_lease};
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

    /// It is lost, because these of its keys are.
    pub(crate) fn lose_keys(&self, how: Lost, keys: Vec<Vec<u8>>) {
        self.core.registry.lose_keys(&self.tracked, how, keys);
    }

    /// It was lost before the work under it was done, or there is no such work.
    pub(crate) fn lost_error(&self, how: Lost) -> Error {
        Error::lost(how).of_keys(self.tracked.lost_keys())
    }

    /// Its connection was lost, which was alive at `alive`, perhaps before the registry knew the hold.
    pub(crate) fn unbind(&self, alive: Moment) {
        let registry = &self.core.registry;
        registry.unbind(&self.tracked, alive);
        for sibling in self.siblings() {
            registry.unbind(&sibling, alive);
        }
        registry.renew_now();
    }

    /// A copy of a request for this lease may bind it to a connection that does not count.
    pub(crate) fn stray(&self, lease: Duration, sent: Moment) {
        for sibling in self.siblings() {
            sibling.state().add_stray(lease, sent);
        }
        self.tracked.state().add_stray(lease, sent);
        self.unbind(sent);
    }

    /// The lease of holds without a lease of their own.
    fn usual_lease(&self) -> Duration {
        self.core.ctx.settings.lease
    }

    /// The shared connection to its server that is up; 0: none.
    fn connection(&self) -> u64 {
        self.core.routes.connection(self.key())
    }

    /// The reply to a renewal, or none.
    pub(crate) fn end_renewal(&self, renewal: InflightRenewal, reply: RenewalReply) {
        // Read before the state is locked: if the connection is lost in between, the state counts that.
        let up = self.core.routes.pulse(self.key());
        telemetry::renewed(reply.name());
        let (change, renew_at) = {
            let mut state = self.tracked.state();
            (state.end_renewal(renewal, reply, up), state.renew_at(self.usual_lease()))
        };
        self.core.registry.apply(&self.tracked, change);
        self.core.registry.renew_by(renew_at);
        if reply.is_accepted() || reply == RenewalReply::Unconfirmed {
            // A sibling may have been granted after this renewal was sent.
            self.core.registry.not_after(&self.siblings(), renewal.until());
        }
        if matches!(reply, RenewalReply::Unknown | RenewalReply::AcceptedCopy) {
            for sibling in self.siblings() {
                sibling.state().add_stray(renewal.lease(), renewal.sent());
            }
        }
    }

    /// The other guards of the same hold of the server. An owner that no other task acts for has none.
    fn siblings(&self) -> Vec<Arc<TrackedHold>> {
        if self.tracked.terms().own_name {
            return Vec::new();
        }
        self.core.registry.holds.siblings(&self.tracked)
    }

    /// What the watchdog sends over that connection, all of which must succeed: a renewal, or, for a hold that it does
    /// not renew, a request that binds it again for the rest of its lease.
    pub(crate) fn watchdog_renewal(&self, over: u64) -> Renewal {
        let lease = if self.tracked.terms().watched {
            let lease = self.tracked.terms().lease;
            let lease = self.tracked.state().capped_lease(Moment::now(), lease);
            shared_lease(lease, &self.siblings())
        } else {
            self.tracked.state().rest_of_lease(Moment::now())
        };
        self.renewal(lease, over)
    }

    /// Begins a renewal over that connection (0: unknown).
    fn renewal(&self, lease: Duration, over: u64) -> Renewal {
        let (inflight, change) = self.tracked.state().begin_renewal(Moment::now(), lease, over);
        self.core.registry.apply(&self.tracked, change);
        self.core.registry.not_after(&self.siblings(), inflight.until());
        let (terms, hold) = (self.tracked.terms(), &self.tracked.hold_ref);
        let requests = hold.parts().iter().map(|part| part.renewal(lease, terms.bind)).collect();
        Renewal { requests, inflight }
    }

    /// Sends requests of which each has to succeed, one for each part. Whether one of them was sent more than once, or
    /// answered by another node than the one that has the slot. An
    /// error that a part is gone comes before others, and names the keys of all such parts.
    async fn send_all(&self, requests: &[Cmd]) -> Result<bool, Error> {
        let (routes, until) = (&self.core.routes, self.core.ctx.retry_until());
        let keys = self.tracked.hold_ref.keys();
        let sent: Vec<_> = keys.iter().zip(requests).collect();
        let replies = for_each(&sent, |(key, request)| routes.exchange(key, *request, until)).await;
        let (mut repeated, mut gone, mut failed) = (false, Vec::new(), None);
        for (reply, key) in replies.into_iter().zip(&keys) {
            match reply {
                Ok(reply) => repeated |= reply.repeated || reply.asked,
                Err(error) if error.is_gone() => {
                    gone.push(key.clone());
                    failed = Some(error);
                }
                Err(error) => failed = failed.or(Some(error)),
            }
        }
        match failed {
            None => Ok(repeated),
            Some(error) if gone.is_empty() => Err(error),
            Some(error) => Err(error.of_just(gone)),
        }
    }

    /// As [`Hold::send_all`], and notes the reply to the renewal.
    async fn send_renewal(&self, renewal: Renewal) -> Result<(), Error> {
        let Renewal { requests, inflight } = renewal;
        let over = self.connection();
        let sent = self.send_all(&requests).await;
        let confirmed = match (&sent, Replicas::of(&self.core.ctx.settings)) {
            (Ok(false), Some(replicas)) => {
                self.core.routes.confirm(self.key(), over, replicas).await.map(drop)
            }
            // Which of the servers that got a copy accepted it is not known.
            (Ok(true), Some(_)) => Err(Error::unavailable("the renewal was sent twice")),
            _ => Ok(()),
        };
        let reply = match &sent {
            Ok(false) if confirmed.is_err() => RenewalReply::Unconfirmed,
            Ok(true) if confirmed.is_err() => RenewalReply::Unknown,
            Ok(false) => RenewalReply::Accepted,
            Ok(true) => RenewalReply::AcceptedCopy,
            Err(error) if error.is_refusal() && !error.is_repeated() && requests.len() == 1 => {
                RenewalReply::Refused
            }
            Err(_) => RenewalReply::Unknown,
        };
        self.end_renewal(inflight, reply);
        sent?;
        confirmed.map_err(|error| error.of_key(self.key()))
    }

    /// The requests that tell whether its parts are gone, and change nothing. None: there are none.
    pub(crate) fn checks(&self) -> Option<Vec<Cmd>> {
        self.tracked.hold_ref.parts().iter().map(HoldRef::check).collect()
    }

    /// The server said that it is gone, which may mean that it has moved: asks, and loses it only if it has not.
    pub(crate) async fn verify(self, how: Lost) {
        let sent = if self.tracked.is_watched() {
            self.send_renewal(self.watchdog_renewal(self.connection())).await
        } else {
            let Some(checks) = self.checks() else { return self.lose(how) };
            self.send_all(&checks).await.map(drop)
        };
        match sent {
            Err(error) if error.is_gone() => self.lose_keys(how, error.into_keys()),
            // Held, or unknown: then its deadline stays.
            Ok(()) | Err(_) => {}
        }
    }

    /// Renews it now with this lease; a watched hold also from now on.
    pub(crate) async fn renew(&self, lease: Duration) -> Result<(), Error> {
        if let Some(lost) = self.lost_now() {
            return Err(self.lost_error(lost));
        }
        let (lease, renew_at) = {
            let mut state = self.tracked.state();
            state.set_lease(lease);
            (state.capped_lease(Moment::now(), lease), state.renew_at(self.usual_lease()))
        };
        self.core.registry.renew_by(renew_at);
        match self.send_renewal(self.renewal(lease, self.connection())).await {
            // It may have expired while the reply was on its way.
            Ok(()) => self.lost_now().map_or(Ok(()), |lost| Err(self.lost_error(lost))),
            Err(error) => {
                if error.is_gone() {
                    self.lose_keys(Lost::Refused, error.clone().into_keys());
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

/// A renewal that has begun and is to be sent.
pub(crate) struct Renewal {
    pub(crate) requests: Vec<Cmd>,
    pub(crate) inflight: InflightRenewal,
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
