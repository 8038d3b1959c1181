//! What a handle acquires, and an acquire under way.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use dlock_wire::reply::quote;
use redis::Value;
use tokio::time::{Instant, timeout};

use crate::base::clock::{Moment, certain};
use crate::base::error::{Error, ErrorKind};
use crate::base::hold_ref::HoldRef;
use crate::base::options::Options;
use crate::base::pulse::Pulse;
use crate::base::replicas::{Confirmed, Replicas};
use crate::base::target::{Keys, Target};
use crate::connection::exchange::{Reply, Sent};
use crate::hold::Hold;
use crate::registry::Core;
use crate::state::hold_state::LeaseTerms;
use crate::state::tracked::shared_lease;

/// How long giving up may delay the caller, before it goes on in the background.
pub(super) const LEAVE_WITHIN: Duration = Duration::from_millis(250);

/// What a handle acquires, and how.
#[derive(Clone)]
pub(crate) struct Handle {
    pub(crate) core: Arc<Core>,
    pub(crate) target: Target,
    pub(crate) keys: Keys,
    pub(crate) options: Options,
}

impl Handle {
    pub(crate) fn new(core: &Arc<Core>, target: Target, keys: Keys) -> Self {
        Self { core: core.clone(), target, keys, options: Options::default() }
    }

    /// What `Debug` shows of the handle of that name.
    pub(crate) fn debug(&self, name: &str, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let keys = self.keys.all();
        let shown: Vec<_> = keys.iter().take(8).map(|key| quote(key)).collect();
        f.debug_struct(name)
            .field("keys", &shown)
            .field("of", &keys.len())
            .field("target", &self.target)
            .field("options", &self.options)
            .finish_non_exhaustive()
    }
}

/// One acquire of one owner: all its requests carry the same request id.
pub(crate) struct PendingAcquire {
    pub(super) core: Arc<Core>,
    pub(super) target: Target,
    pub(super) keys: Keys,
    pub(super) owner: Arc<[u8]>,
    pub(super) reqid: String,
    /// Of the hold that it asks for.
    pub(super) terms: LeaseTerms,
    pub(super) options: Options,
    /// Something of it may be left on the server: a waiter, or a grant whose reply was lost.
    pub(super) may_remain: AtomicBool,
    /// A copy of it may bind what it was granted to another connection than the one that counts.
    pub(super) is_stray: AtomicBool,
    /// A request of it was sent before, and not refused outright.
    pub(super) was_sent: AtomicBool,
}

/// A grant, before it is a hold.
pub(super) struct Grant {
    pub(super) hold: HoldRef,
    /// The request that begins the lease, and the connection to which a binding binds.
    pub(super) sent: Sent,
    /// The shared connection over which the server last wrote it; 0: another one.
    pub(super) written_over: u64,
    /// How long the hold lasts after that request was sent.
    pub(super) lasts: Duration,
    /// A message announced it, and no renewal has claimed it.
    pub(super) unclaimed: bool,
    /// As many replicas have it as it needs.
    pub(super) is_confirmed: bool,
}

/// How a request waits.
#[derive(Debug, Clone, Copy)]
pub(super) enum WaitRequest {
    Now,
    Queue,
    /// On a dedicated connection, for this number of milliseconds.
    Block(u64),
}

impl PendingAcquire {
    pub(super) fn new(handle: &Handle) -> Self {
        let Handle { core, target, keys, options } = handle;
        Self {
            core: core.clone(),
            target: *target,
            keys: keys.clone(),
            owner: options.owner(),
            reqid: crate::base::random::name(),
            terms: LeaseTerms {
                lease: options.lease_within(&core.ctx.settings),
                ends_by: None,
                watched: options.is_watched(),
                bind: options.bind,
                unclaimed: false,
                own_name: options.owner.is_none(),
            },
            options: options.clone(),
            may_remain: AtomicBool::new(false),
            is_stray: AtomicBool::new(false),
            was_sent: AtomicBool::new(false),
        }
    }

    /// How many replicas must have the grant.
    pub(super) fn replicas(&self) -> Option<Replicas> {
        let all = Replicas::of(&self.core.ctx.settings);
        let checks_quarantine = all.is_some();
        let own = self.options.replicas.map(|own| Replicas { checks_quarantine, ..own });
        // The larger number: an option does not weaken the setting.
        own.filter(|own| all.is_none_or(|all| own.wanted >= all.wanted)).or(all)
    }

    pub(super) fn key(&self) -> &[u8] {
        self.keys.first()
    }

    /// A request is about to be sent, not over the shared connection.
    pub(super) fn sent_now(&self) -> Sent {
        Sent { at: Moment::now(), over: self.core.routes.pulse(self.key()) }
    }

    /// Whether the shared connection that was up then still is.
    pub(super) fn is_up(&self, sent: &Sent) -> bool {
        let over = sent.generation();
        over != 0 && over == self.core.routes.connection(self.key())
    }

    /// Sends the request over the shared connection.
    pub(super) async fn send(
        &self,
        wait: WaitRequest,
        until: Instant,
    ) -> Result<(Value, Sent), Error> {
        self.may_remain.store(true, Ordering::Relaxed);
        let reply = self.core.routes.exchange(self.key(), self.draft(wait), until).await;
        reply.map(|reply| self.answered(reply)).map_err(|error| self.note(error))
    }

    fn answered(&self, reply: Reply) -> (Value, Sent) {
        if reply.repeated || reply.asked {
            self.is_stray.store(true, Ordering::Relaxed);
        }
        (reply.value, reply.sent)
    }

    /// Where the server refused the only copy of the first request, nothing of it is left there.
    pub(super) fn note(&self, error: Error) -> Error {
        let is_first = !self.was_sent.swap(true, Ordering::Relaxed);
        // Where a later request of the owner took its place, CANCEL would end the wait of that one.
        if (is_first && error.is_refusal()) || error.kind() == ErrorKind::Replaced {
            self.may_remain.store(false, Ordering::Relaxed);
        }
        error
    }

    /// Without waiting.
    pub(super) async fn now(&self) -> Result<Option<Grant>, Error> {
        let (reply, sent) = self.send(WaitRequest::Now, self.core.ctx.retry_until()).await?;
        let grant = self.granted(reply, sent)?;
        if grant.is_none() {
            self.may_remain.store(false, Ordering::Relaxed);
        }
        Ok(grant)
    }

    /// The database was flushed since `flushes` were counted: before or after the grant? The server knows. None: after.
    pub(super) async fn verify(
        &self,
        mut grant: Grant,
        flushes: &mut u64,
    ) -> Result<Option<Grant>, Error> {
        loop {
            let now = self.core.registry.flushes();
            if now == *flushes {
                return Ok(Some(grant));
            }
            *flushes = now;
            match self.claim(grant).await? {
                Some(claimed) => grant = claimed,
                None => return Ok(None),
            }
        }
    }

    /// Waits until replicas have the grant, over the connection that wrote it. None: it has lapsed.
    ///
    /// # Errors
    ///
    /// The grant was released. `Replicas`: too few have it. `Quarantine`: its server is in quarantine by now. `Spent`:
    /// the connection was lost before; begin again.
    pub(super) async fn confirm(
        &self,
        mut grant: Grant,
        replicas: Replicas,
    ) -> Result<Option<Grant>, Error> {
        if grant.written_over == 0 {
            match self.claim(grant).await? {
                Some(claimed) => grant = claimed,
                None => return Ok(None),
            }
        }
        match self.core.routes.confirm(self.key(), grant.written_over, replicas).await {
            Ok(Confirmed { in_quarantine: false }) => {
                grant.is_confirmed = true;
                Ok(Some(grant))
            }
            Ok(Confirmed { in_quarantine: true }) => Err(self.in_quarantine().await),
            Err(error) if error.kind() == ErrorKind::Unavailable => Err(self.begin_again().await),
            Err(error) => Err(self.unconfirmed(error).await),
        }
    }

    /// Releases a grant that came before the quarantine of its server.
    pub(super) async fn in_quarantine(&self) -> Error {
        let text = "a replica came to the server, which grants nothing new for a while";
        self.unconfirmed(Error::new(ErrorKind::Quarantine, text.to_owned())).await
    }

    /// Releases a grant. The error makes the caller begin again.
    async fn begin_again(&self) -> Error {
        let text = "the connection was lost before replicas had the grant";
        self.unconfirmed(Error::new(ErrorKind::Spent, text.to_owned())).await
    }

    /// Releases a grant that does not count. What is left of that goes on in the background.
    pub(super) async fn unconfirmed(&self, error: Error) -> Error {
        if let Ok(Ok(())) = timeout(LEAVE_WITHIN, self.cancel_and_release()).await {
            self.may_remain.store(false, Ordering::Relaxed);
        }
        error.of_key(self.key())
    }

    /// Renews a grant: its lease begins again, and it is bound to the shared connection. None: it has lapsed.
    ///
    /// Other guards of a named owner may share the hold: it is not renewed for less than they count on.
    pub(super) async fn claim(&self, grant: Grant) -> Result<Option<Grant>, Error> {
        let Grant { hold, sent: before, .. } = grant;
        let registry = &self.core.registry;
        let sharing = if self.terms.own_name { Vec::new() } else { registry.holds.sharing(&hold) };
        let lease = shared_lease(self.terms.lease, &sharing);
        let renewal = hold.renewal(lease, self.terms.bind);
        registry.not_after(&sharing, Moment::now().after(certain(lease)));
        let until = self.core.ctx.retry_until();
        let reply = self.core.routes.exchange(self.key(), &renewal, until).await;
        match reply.map(|reply| self.answered(reply)) {
            Ok((_, mut sent)) => {
                let written_over = sent.generation();
                if matches!(hold, HoldRef::Multi { .. }) {
                    // MRENEW binds nothing.
                    sent.over = before.over;
                }
                Ok(Some(Grant { written_over, ..self.granted_hold(hold, sent) }))
            }
            Err(error) if error.kind() == ErrorKind::NotHeld => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// A grant whose lease begins with the request that was answered.
    pub(super) fn granted_hold(&self, hold: HoldRef, sent: Sent) -> Grant {
        Grant {
            hold,
            written_over: sent.generation(),
            sent,
            lasts: self.terms.lease,
            unclaimed: false,
            is_confirmed: false,
        }
    }

    /// The hold of a grant.
    pub(super) fn track(&self, grant: Grant) -> Hold {
        let max_hold = self.options.max_hold_within(&self.core.ctx.settings);
        let ends_by = max_hold.map(|max_hold| grant.sent.at.after(max_hold));
        let terms = LeaseTerms { unclaimed: grant.unclaimed, ends_by, ..self.terms };
        let deadline = grant.sent.at.after(certain(grant.lasts));
        let Grant { hold, sent, .. } = grant;
        let pulse = sent.over.clone().unwrap_or_else(|| Pulse::new(0, sent.at));
        // New, and as secret as the id of the acquire; random bytes of the kernel would cost more.
        let release_id = [&self.reqid, "r"].concat();
        let tracked = self.core.registry.track(hold, terms, deadline, &pulse, release_id);
        let hold = Hold::new(self.core.clone(), tracked);
        if self.is_stray.load(Ordering::Relaxed) && hold.tracked.bind().is_some() {
            hold.stray(terms.lease, sent.at);
        }
        hold
    }
}
