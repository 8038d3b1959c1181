//! How a lock or permit is asked for, waited for, and given back when nobody wants it any more.

mod blocked;
mod patience;
mod queue;
mod undo;
mod words;

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use dlock_wire::permit;
use dlock_wire::request::Mode;
use redis::Value;
use tokio::time::{Instant, timeout};

pub(crate) use self::patience::Patience;
use self::undo::{LEAVE_WITHIN, Undo};
use self::words::How;
use crate::clock::Moment;
use crate::config::Wait;
use crate::core::Core;
use crate::error::{Error, ErrorKind};
use crate::held::{Held, LeaseTerms, certain};
use crate::options::{Options, lease_ms};

/// What is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum What {
    Lock { fair: bool },
    Rw(Mode),
    Permit { count: u32, limit: Option<u32> },
}

/// One acquire of one owner: all its requests carry the same request id.
pub(crate) struct Ask {
    core: Arc<Core>,
    what: What,
    key: Arc<[u8]>,
    owner: Arc<[u8]>,
    /// Nobody else acts for this owner.
    own_name: bool,
    reqid: String,
    lease: Duration,
    watched: bool,
    options: Options,
    /// Something of it may be left on the server: a place, or a grant that nobody has seen.
    pending: AtomicBool,
    /// A request of it was sent before, and not refused outright.
    asked: AtomicBool,
}

/// A grant, before it is a hold.
struct Granted {
    id: Id,
    /// When the request was sent that begins the lease.
    sent: Moment,
    /// As long as the hold lasts from then on.
    lasts: Duration,
    unclaimed: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Id {
    Token(u64),
    Permit(permit::PermitId),
}

/// How long after its request was used up an acquire begins again.
pub(crate) const SPENT: Duration = Duration::from_millis(5);

/// Asks for it. None: not granted in time.
pub(crate) async fn acquire(
    core: &Arc<Core>,
    what: What,
    key: &Arc<[u8]>,
    options: &Options,
    patience: Patience,
) -> Result<Option<Arc<Held>>, Error> {
    let gate = &core.registry.gate;
    let _call = gate.call();
    loop {
        let attempt = pin!(attempt(core, what, key, options, patience));
        match gate.admit(attempt).await {
            // A copy of the request was granted, and that hold ended before its answer came: nothing is held, and the
            // same request id is never granted again.
            Err(error) if error.kind() == ErrorKind::Spent => tokio::time::sleep(SPENT).await,
            outcome => return outcome,
        }
    }
}

/// As [`acquire`], with one request id.
async fn attempt(
    core: &Arc<Core>,
    what: What,
    key: &Arc<[u8]>,
    options: &Options,
    patience: Patience,
) -> Result<Option<Arc<Held>>, Error> {
    options.check()?;
    if key.is_empty() {
        return Err(Error::invalid("key must not be empty"));
    }
    let ask = Arc::new(Ask {
        core: core.clone(),
        what,
        key: key.clone(),
        owner: options.owner(),
        own_name: options.owner.is_none(),
        reqid: crate::random::name(),
        lease: options.lease.unwrap_or(core.settings.lease),
        watched: options.lease.is_none(),
        options: options.clone(),
        pending: AtomicBool::new(false),
        asked: AtomicBool::new(false),
    });
    lease_ms(ask.lease)?;
    if !ask.own_name {
        // An earlier acquire of this owner that nobody waits for any more must not take this one's place with it.
        core.registry.undone(key, &ask.owner).await;
    }
    let flushes = core.registry.flushes();
    let tied_to = ask.connection();
    let entered = core.registry.enter(key, &ask.owner, Arc::downgrade(&ask));
    let undo = Undo(ask);
    let ask = &undo.0;
    // What is seldom needed is kept out of every waiting task: there may be a hundred thousand.
    let granted = match (options.replicas, patience) {
        (Some(replicas), patience) => Box::pin(ask.replicated(replicas, patience)).await,
        (None, Patience::None) => ask.now().await,
        (None, patience) => match options.wait.unwrap_or(core.settings.wait) {
            Wait::Queue => ask.queue(patience, &entered).await,
            Wait::Blocking => Box::pin(ask.block(patience)).await,
        },
    };
    let granted = match granted {
        Ok(granted) => granted,
        Err(error) => {
            if matches!(error.kind(), ErrorKind::Replicas { .. }) {
                // Who is told that it was given back may rely on it; the rest goes on in the background.
                let _ = timeout(LEAVE_WITHIN, Box::pin(ask.undo())).await;
            }
            return Err(error);
        }
    };
    let Some(mut granted) = granted else { return Ok(None) };
    if core.registry.flushes() != flushes {
        // Flushed before or after the grant? The server knows.
        match Box::pin(ask.claim(granted.id)).await? {
            Some(claimed) => granted = claimed,
            None => return Ok(None),
        }
    }
    let held = ask.hold(&granted);
    ask.pending.store(false, Ordering::Relaxed);
    if options.bind.is_some() && (tied_to == 0 || tied_to != ask.connection()) {
        // Perhaps tied to a connection that is gone: whoever cuts holds may have come by too early to see this one.
        held.untied(granted.sent);
        core.registry.renew_now.notify_one();
    }
    if let Some(how) = entered.ended(&held) {
        held.is_said_to_be_lost(how);
    }
    Ok(Some(held))
}

impl Ask {
    /// Whether that is the id of its requests.
    pub(crate) fn is_request(&self, id: &[u8]) -> bool {
        self.reqid.as_bytes() == id
    }

    /// Which of the shared connections to the server of its key is up; 0: none.
    fn connection(&self) -> u64 {
        self.core.routes.server_of(&self.key).map_or(0, |server| server.link.generation())
    }

    fn hold(&self, granted: &Granted) -> Arc<Held> {
        let terms = LeaseTerms {
            lease: self.lease,
            watched: self.watched,
            bind: self.options.bind,
            unclaimed: granted.unclaimed,
            own_name: self.own_name,
        };
        let deadline = granted.sent.after(certain(granted.lasts));
        Held::new(&self.core, self.grip(granted.id), terms, deadline)
    }

    /// Sends the request over the shared connection.
    async fn send(&self, how: How, until: Instant) -> Result<Value, Error> {
        self.pending.store(true, Ordering::Relaxed);
        let reply = self.core.send(&self.key, self.draft(how), until).await;
        reply.map_err(|error| self.note(error))
    }

    /// Where the server refused the only copy of the first request, nothing of it is left there.
    fn note(&self, error: Error) -> Error {
        let first = !self.asked.swap(true, Ordering::Relaxed);
        if first && error.is_refusal() {
            self.pending.store(false, Ordering::Relaxed);
        }
        error
    }

    /// Without waiting.
    async fn now(&self) -> Result<Option<Granted>, Error> {
        let sent = Moment::now();
        let reply = self.send(How::Now, self.core.patience()).await?;
        let granted = self.granted(&reply, sent)?;
        self.pending.store(false, Ordering::Relaxed);
        Ok(granted)
    }

    /// Begins the lease anew. None: the grant has lapsed.
    async fn claim(&self, id: Id) -> Result<Option<Granted>, Error> {
        let renewal = self.grip(id).renewal(self.lease, self.options.bind);
        let sent = Moment::now();
        match self.core.send(&self.key, &renewal, self.core.patience()).await {
            Ok(_) => Ok(Some(Granted { id, sent, lasts: self.lease, unclaimed: false })),
            Err(error) if error.kind() == ErrorKind::NotHeld => Ok(None),
            Err(error) => Err(error),
        }
    }
}
