//! What a handle acquires, and an acquire under way.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use dlock_wire::reply::quote;
use redis::Value;
use tokio::time::Instant;

use crate::base::clock::{Moment, certain, millis};
use crate::base::deadline::Deadline;
use crate::base::error::{Error, ErrorKind};
use crate::base::hold_ref::HoldRef;
use crate::base::options::Options;
use crate::base::replicas::{Replicas, quarantine_ms};
use crate::base::target::{Keys, Target};
use crate::connection::exchange::Reply;
use crate::hold::Hold;
use crate::registry::Core;
use crate::state::hold_state::{Asked, LeaseTerms};

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
    /// That all copies of the request ask for.
    pub(super) lease: Duration,
    /// Of the hold that it asks for.
    pub(super) terms: LeaseTerms,
    pub(super) options: Options,
    /// Something of it may be left on the server: a place, or a grant whose reply was lost.
    pub(super) remains: AtomicBool,
}

/// A grant, before it is a hold.
pub(super) struct Grant {
    pub(super) hold: HoldRef,
    /// The request that makes it certain.
    pub(super) granted: Asked,
    /// When the hold began, at the earliest.
    pub(super) begun: Moment,
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

/// Pause before a connection is opened in place of one whose replies are wrong.
const AFTER_WRONG_REPLY: Duration = Duration::from_millis(50);

impl PendingAcquire {
    /// `queues`: a waiter that dies with its place costs the others the lease that it asked for, so that is short. The
    /// first renewal asks for all of it.
    pub(super) fn new(handle: &Handle, queues: bool) -> Self {
        let Handle { core, target, keys, options } = handle;
        let lease = options.lease_within(&core.ctx.settings);
        Self {
            core: core.clone(),
            target: *target,
            keys: keys.clone(),
            owner: options.owner(),
            reqid: crate::base::random::name(),
            lease: if queues { lease.min(core.ctx.settings.queue) } else { lease },
            terms: LeaseTerms {
                lease,
                ends_by: None,
                watched: options.is_watched(),
                bind: options.bind,
            },
            options: options.clone(),
            remains: AtomicBool::new(false),
        }
    }

    /// How many replicas must have the grant.
    pub(super) fn replicas(&self) -> Option<Replicas> {
        let all = Replicas::of(&self.core.ctx.settings);
        let checks_quarantine = all.is_some();
        let own = self.options.replicas.map(|own| Replicas { checks_quarantine, ..own });
        // The larger number: an option does not weaken the setting.
        let found = own.filter(|own| all.is_none_or(|all| own.wanted >= all.wanted)).or(all);
        found.map(|found| Replicas { lease: self.terms.lease, ..found })
    }

    pub(super) fn key(&self) -> &[u8] {
        self.keys.first()
    }

    /// Sends the request over the shared connection.
    pub(super) async fn send(&self, wait: WaitRequest, until: Instant) -> Result<Reply, Error> {
        let before = self.remains.swap(true, Ordering::Relaxed);
        let routes = &self.core.routes;
        let mut reply = routes.exchange(self.key(), self.draft(wait), until).await;
        let mut is_first = true;
        // The replies of that connection are those to other requests.
        while let Ok(found) = &reply
            && !is_grant(&found.value)
            && Instant::now() < until
        {
            if let Some(server) = routes.server_of(self.key()) {
                server.link.report_broken(found.generation);
            }
            is_first = false;
            tokio::time::sleep(AFTER_WRONG_REPLY).await;
            reply = routes.exchange(self.key(), self.draft(wait), until).await;
        }
        let leaves_nothing = match &reply {
            Ok(reply) => {
                let is_answer = reply.value == Value::Nil && is_first && !reply.repeated;
                matches!(wait, WaitRequest::Now) && is_answer
            }
            Err(error) => error.is_refusal(),
        };
        if leaves_nothing {
            self.remains.store(before, Ordering::Relaxed);
        }
        reply
    }

    /// Without waiting.
    pub(super) async fn now(&self) -> Result<Option<Grant>, Error> {
        let reply = self.send(WaitRequest::Now, self.core.ctx.retry_until()).await?;
        self.granted(reply.value, reply.sent)
    }

    /// Whether the grant is to be renewed before it counts: less than half of its time is left, replicas have to
    /// confirm it, or nothing else will renew it and it was asked for less than its lease.
    pub(super) fn is_short(&self, grant: &Grant) -> bool {
        let span = certain(self.terms.promised(grant.granted.lease));
        let left = grant.granted.sent.after(span).since(Moment::now());
        let is_partial = !self.terms.watched && grant.granted.lease < self.terms.lease;
        left < span / 2 || is_partial || (self.replicas().is_some() && !grant.is_confirmed)
    }

    /// Renews a grant, and waits until replicas have it.
    ///
    /// # Errors
    ///
    /// It does not count, and is released. `Spent`: begin again. `Replicas`: too few have it. `Quarantine`: its server
    /// is in quarantine by now.
    pub(super) async fn renewed(&self, grant: Grant) -> Result<Grant, Error> {
        let lease = self.terms.lease;
        let renewal = grant.hold.renewal(lease, self.terms.bind);
        let (routes, until) = (&self.core.routes, self.core.ctx.retry_until());
        let reply = match routes.exchange(self.key(), &renewal, until).await {
            Err(error) if error.is_gone() => return Err(Error::spent()),
            reply => reply?,
        };
        if let Some(replicas) = self.replicas() {
            match routes.confirm(self.key(), reply.generation, replicas).await {
                Ok(found) if found.grants(reply.sent) => {}
                Ok(_) => return Err(self.in_quarantine().await),
                Err(error) if error.kind() == ErrorKind::Unavailable => {
                    return Err(self.unconfirmed(Error::spent()).await);
                }
                Err(error) => return Err(self.unconfirmed(error).await),
            }
        }
        Ok(Grant { granted: Asked { sent: reply.sent, lease }, is_confirmed: true, ..grant })
    }

    /// An error for a lease that outlives the quarantine of the server: the belief in it could outlive a failover.
    pub(super) async fn require_quarantine(&self, deadline: Deadline) -> Result<(), Error> {
        let (lease, safe) = (millis(self.terms.lease), &self.core.ctx.safe_lease_ms);
        if lease <= safe.load(Ordering::Relaxed) {
            return Ok(());
        }
        let mut info = redis::cmd("INFO");
        info.arg("dlock_keys");
        let until = deadline.within(self.core.ctx.settings.retry_for);
        let info = self.core.routes.send(self.key(), &info, until).await?;
        // A server that does not tell is believed.
        let length = quarantine_ms(&info, "length")?.unwrap_or(u64::MAX);
        safe.store(length, Ordering::Relaxed);
        if lease <= length {
            return Ok(());
        }
        let text = format!(
            "a lease of {lease} ms is above the server's dlock.restart-quarantine-ms {length}"
        );
        Err(Error::invalid(text))
    }

    /// Releases a grant that came before the quarantine of its server.
    pub(super) async fn in_quarantine(&self) -> Error {
        let text = "a replica came to the server, which grants nothing new for a while";
        self.unconfirmed(Error::new(ErrorKind::Quarantine, text.to_owned())).await
    }

    /// Releases a grant that does not count.
    pub(super) async fn unconfirmed(&self, error: Error) -> Error {
        self.leave().await;
        error.of_key(self.key())
    }

    /// The hold of a grant.
    pub(super) fn track(&self, grant: Grant) -> Hold {
        let max_hold = self.options.max_hold_within(&self.core.ctx.settings);
        let ends_by = max_hold.map(|max_hold| grant.begun.after(max_hold));
        let terms = LeaseTerms { ends_by, ..self.terms };
        let reqid = self.reqid.clone();
        let tracked = self.core.registry.track(grant.hold, terms, grant.granted, reqid);
        Hold::new(self.core.clone(), tracked)
    }
}

/// Whether it has tokens or permit ids, or is Null.
pub(super) fn is_grant(reply: &Value) -> bool {
    match reply {
        Value::Int(token) => *token > 0,
        Value::Array(items) => items.iter().all(is_grant),
        reply => matches!(reply, Value::Nil | Value::BulkString(_)),
    }
}
