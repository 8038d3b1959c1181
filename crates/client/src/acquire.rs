//! How a lock or permit is asked for, waited for, and given back when nobody wants it any more.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use dlock_wire::names::BLOCK_MAX_MS;
use dlock_wire::permit;
use dlock_wire::request::{Acquire, Mode, Release, Request, RwAcquire, RwRelease, SemAcquire};
use dlock_wire::table::{CommandId, LockVerb, RwVerb, SemVerb};
use redis::{Cmd, Value};
use tokio::time::{Instant, timeout};

use crate::clock::Moment;
use crate::config::Wait;
use crate::core::{Core, command};
use crate::error::{Error, ErrorKind};
use crate::held::{Grip, Held, Terms, certain, lock_command, millis};
use crate::options::{Options, Replicas, lease_ms};
use crate::private::{self, Private, Seat, Tries};
use crate::registry::Entered;
use crate::route::Server;

/// How long giving up may keep the caller, before it goes on in the background.
const LEAVE_WITHIN: Duration = Duration::from_millis(250);

/// What is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum What {
    Lock { fair: bool },
    Rw(Mode),
    Permit { count: u32, limit: Option<u32> },
}

/// How long somebody is ready to wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Patience {
    /// Not at all.
    None,
    /// Until then.
    Until(Instant),
    /// As long as it takes.
    Forever,
}

impl Patience {
    pub(crate) fn of(time: Duration) -> Self {
        // Further than tokio's clock reaches is for ever.
        Instant::now().checked_add(time).map_or(Self::Forever, Self::Until)
    }

    pub(crate) fn is_over(self) -> bool {
        match self {
            Self::None => true,
            Self::Until(end) => end <= Instant::now(),
            Self::Forever => false,
        }
    }

    /// When it ends, but not after `time` from now.
    pub(crate) fn end_within(self, time: Duration) -> Instant {
        let soon = Instant::now() + time;
        match self {
            Self::Until(end) => end.min(soon),
            Self::None | Self::Forever => soon,
        }
    }

    /// As an argument of BLOCK, cut to `most`.
    pub(crate) fn block_ms(self, most: Duration) -> u64 {
        match self {
            Self::None => 1,
            Self::Until(end) => {
                millis(end.saturating_duration_since(Instant::now()).min(most)).max(1)
            }
            Self::Forever => millis(most).clamp(1, BLOCK_MAX_MS),
        }
    }
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

/// How one request waits.
#[derive(Debug, Clone, Copy)]
enum How {
    Now,
    Queue,
    Block(u64),
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

/// Asks for it. None: not granted in time.
pub(crate) async fn acquire(
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
    let ask = Ask {
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
    };
    lease_ms(ask.lease)?;
    if !ask.own_name {
        // An earlier acquire of this owner that nobody waits for any more must not take this one's place with it.
        core.registry.undone(key, &ask.owner).await;
    }
    let flushes = core.registry.flushes();
    let tied_to = ask.connection();
    let entered = core.registry.enter(key, &ask.owner);
    let undo = Undo(Some(ask));
    let Some(ask) = &undo.0 else { return Ok(None) };
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

/// Takes back what an acquire may have done that nobody waits for any more.
struct Undo(Option<Ask>);

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
    /// The command that asks, waiting as said.
    fn request(&self, how: How) -> Cmd {
        let settings = &self.core.settings;
        let mut acquire = Acquire::new(&self.key, &self.owner);
        acquire.lease_ms = Some(millis(self.lease));
        acquire.notify = Some(self.core.registry.channel());
        acquire.reqid = Some(self.reqid.as_bytes());
        acquire.no_reentry = self.options.no_reentry;
        acquire.bind_ms = self.options.bind.map(millis);
        acquire.label = self.options.label.as_deref();
        match how {
            How::Now => {}
            How::Queue => acquire.queue_ms = Some(settings.queue_ms()),
            How::Block(ms) => {
                acquire.block_ms = Some(ms);
                // The place outlives the end of the call, so that the next call does not begin at the end.
                acquire.queue_ms = Some(settings.queue_ms());
            }
        }
        match self.what {
            What::Lock { fair } => {
                command(lock_command(fair, LockVerb::Acquire), &Request::Acquire(acquire))
            }
            What::Rw(mode) => {
                let acquire = RwAcquire { acquire, mode };
                command(CommandId::Rw(RwVerb::Acquire), &Request::RwAcquire(acquire))
            }
            What::Permit { count, limit } => {
                let acquire = SemAcquire { acquire, count, limit };
                command(CommandId::Sem(SemVerb::Acquire), &Request::SemAcquire(acquire))
            }
        }
    }

    /// Which of the shared connections to the server of its key is up; 0: none.
    fn connection(&self) -> u64 {
        self.core.routes.server_of(&self.key).map_or(0, |server| server.link.generation())
    }

    fn id(reply: &Value) -> Result<Option<Id>, Error> {
        let id = match reply {
            Value::Nil => return Ok(None),
            Value::Int(token) => u64::try_from(*token).ok().map(Id::Token),
            Value::BulkString(text) => permit::parse(text).map(Id::Permit),
            _ => None,
        };
        id.map(Some).ok_or_else(|| Error::protocol(reply))
    }

    fn granted(&self, reply: &Value, sent: Moment) -> Result<Option<Granted>, Error> {
        let granted = |id| Granted { id, sent, lasts: self.lease, unclaimed: false };
        Ok(Self::id(reply)?.map(granted))
    }

    fn grip(&self, id: Id) -> Grip {
        let (key, owner) = (self.key.clone(), self.owner.clone());
        match (self.what, id) {
            (What::Lock { fair }, Id::Token(token)) => Grip::Lock { fair, key, owner, token },
            (What::Rw(mode), Id::Token(token)) => Grip::Rw { mode, key, owner, token },
            (_, Id::Permit(permit)) => Grip::Permit { key, permit },
            // `id` lets no token through for a semaphore.
            (What::Permit { .. }, Id::Token(_)) => Grip::Permit { key, permit: [0; 16] },
        }
    }

    fn hold(&self, granted: &Granted) -> Arc<Held> {
        let terms = Terms {
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
        let reply = self.core.send(&self.key, &self.request(how), until).await;
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

    /// With a place in the queue, told by a message when it is our turn.
    async fn queue(
        &self,
        patience: Patience,
        entered: &Entered<'_>,
    ) -> Result<Option<Granted>, Error> {
        let core = &self.core;
        let again = core.settings.queue / 2;
        loop {
            let server = core.routes.server_of(&self.key);
            let generation = server.as_ref().map_or(0, |server| server.link.generation());
            let sent = Moment::now();
            let until = match patience {
                // However short the wait: the server is given time to say no.
                Patience::Until(end) => end.max(Instant::now() + LEAVE_WITHIN),
                _ => core.patience(),
            };
            let reply = self.send(How::Queue, until).await?;
            self.asked.store(true, Ordering::Relaxed);
            if let Some(granted) = self.granted(&reply, sent)? {
                return Ok(Some(granted));
            }
            // Not ours when this was answered. From here on, a message can say that it is.
            let end = patience.end_within(again);
            // A message that is here by now may have come before the answer: of a grant that had lapsed by then.
            let mut after_answer = false;
            loop {
                if let Some(id) = entered.take_grant() {
                    match self.announced(&id, sent, after_answer).await? {
                        Some(granted) => return Ok(Some(granted)),
                        None => break,
                    }
                }
                tokio::select! {
                    biased;
                    () = entered.news() => after_answer = true,
                    () = self.place_lost(server.as_ref(), generation) => break,
                    () = tokio::time::sleep_until(end) => break,
                }
            }
            if patience.is_over() {
                return Ok(self.leave().await);
            }
        }
    }

    /// Returns when the connection over which we asked was replaced by another one, or the key has moved away.
    async fn place_lost(&self, server: Option<&Arc<Server>>, generation: u64) {
        match server {
            Some(server) => tokio::select! {
                () = server.link.replaced(generation) => {}
                () = self.core.routes.left(&self.key, server) => {}
            },
            None => tokio::time::sleep(Duration::from_millis(50)).await,
        }
    }

    /// A message said that it is our turn. The grant was made after the server answered our last request, which was
    /// sent at `asked`, and it lasts for QUEUE from then on: so long we are certain without asking. That is so if the
    /// message came `after_answer`.
    async fn announced(
        &self,
        id: &[u8],
        asked: Moment,
        after_answer: bool,
    ) -> Result<Option<Granted>, Error> {
        let settings = &self.core.settings;
        let id = match self.what {
            What::Permit { .. } => permit::parse(id).map(Id::Permit),
            _ => std::str::from_utf8(id).ok().and_then(|id| id.parse().ok()).map(Id::Token),
        };
        let Some(id) = id else { return Ok(None) };
        let granted = Granted { id, sent: asked, lasts: settings.queue, unclaimed: true };
        let certain_for = asked.after(certain(settings.queue)).since(Moment::now());
        // Half a QUEUE has passed at most since we asked, unless this process was held up.
        // A message about a named owner may be an old one, of an earlier hold of the same name.
        if after_answer
            && self.watched
            && self.own_name
            && self.options.bind.is_none()
            && certain_for >= settings.queue / 3
        {
            return Ok(Some(granted));
        }
        // Else it is claimed before it counts; that also begins a lease of its own, and makes a tie.
        self.claim(id).await
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

    /// Gives up waiting. A grant that was made in the last moment is given back by it.
    ///
    /// If the server does not answer at once, that goes on in the background.
    async fn leave(&self) -> Option<Granted> {
        if let Ok(Ok(_)) = timeout(LEAVE_WITHIN, self.cancel()).await {
            self.pending.store(false, Ordering::Relaxed);
        }
        None
    }

    async fn cancel(&self) -> Result<Value, Error> {
        let (key, owner) = (&*self.key, &*self.owner);
        let id = match self.what {
            What::Lock { fair } => lock_command(fair, LockVerb::Cancel),
            What::Rw(_) => CommandId::Rw(RwVerb::Cancel),
            What::Permit { .. } => CommandId::Sem(SemVerb::Cancel),
        };
        self.core.call(key, id, &Request::Cancel { key, owner }, self.core.patience()).await
    }

    /// With a blocked call over a private connection.
    async fn block(&self, patience: Patience) -> Result<Option<Granted>, Error> {
        let mut tries = Tries::new(patience);
        // When the first request was sent whose outcome is not known: its grant may be the one that a later answer
        // repeats.
        let mut first = None;
        let mut place = Seat::default();
        loop {
            let slice = patience.block_ms(self.core.settings.queue);
            let sent = *first.get_or_insert_with(Moment::now);
            let request = [self.request(How::Block(slice))];
            match private::one(self.ask(patience, &request, slice, &mut place).await) {
                Ok(reply) => {
                    tries.answered();
                    self.asked.store(true, Ordering::Relaxed);
                    match self.granted(&reply, sent)? {
                        Some(granted) => {
                            if let Some(granted) = self.settle(granted).await? {
                                return Ok(Some(granted));
                            }
                        }
                        None if patience.is_over() => return Ok(self.leave().await),
                        None => {}
                    }
                    first = None;
                }
                Err(error) => tries.after(self.note(error), &self.core).await?,
            }
        }
    }

    /// Over a private connection.
    async fn ask(
        &self,
        patience: Patience,
        commands: &[Cmd],
        slice: u64,
        seat: &mut Seat,
    ) -> Result<Vec<Value>, Error> {
        let private = Private::open(&self.core, &self.key, patience, seat).await?;
        self.pending.store(true, Ordering::Relaxed);
        private.ask(commands, Some(slice)).await
    }

    /// A grant that came over a private connection after a wait: its lease began somewhere between our asking and
    /// now. If we asked long ago, or the tie is to be to the shared connection, it begins anew.
    async fn settle(&self, granted: Granted) -> Result<Option<Granted>, Error> {
        let waited = Moment::now().since(granted.sent);
        if self.options.bind.is_none() && waited < self.lease / 4 {
            return Ok(Some(granted));
        }
        self.claim(granted.id).await
    }

    /// Until so many replicas have it.
    async fn replicated(
        &self,
        replicas: Replicas,
        patience: Patience,
    ) -> Result<Option<Granted>, Error> {
        let mut tries = Tries::new(patience);
        let mut first = None;
        let mut place = Seat::default();
        loop {
            let slice = patience.block_ms(self.core.settings.queue);
            let (how, slice) =
                if patience == Patience::None { (How::Now, 0) } else { (How::Block(slice), slice) };
            let timeout_ms = millis(replicas.timeout).max(1);
            let wait = if replicas.on_disk {
                redis::cmd("WAITAOF").arg(1).arg(replicas.wanted).arg(timeout_ms).clone()
            } else {
                redis::cmd("WAIT").arg(replicas.wanted).arg(timeout_ms).clone()
            };
            let sent = *first.get_or_insert_with(Moment::now);
            let limit = slice.saturating_add(timeout_ms);
            let answer = self.ask(patience, &[self.request(how), wait], limit, &mut place).await;
            let (reply, acknowledged) = match private::two(answer) {
                Ok(replies) => replies,
                Err(error) => {
                    tries.after(self.note(error), &self.core).await?;
                    continue;
                }
            };
            tries.answered();
            let Some(granted) = self.granted(&reply, sent)? else {
                if patience == Patience::None && !self.asked.load(Ordering::Relaxed) {
                    self.pending.store(false, Ordering::Relaxed);
                }
                if patience.is_over() {
                    return Ok(if patience == Patience::None { None } else { self.leave().await });
                }
                first = None;
                continue;
            };
            let got = acknowledgements(&acknowledged?);
            if got < replicas.wanted {
                return Err(Error::new(
                    ErrorKind::Replicas { acknowledged: got, wanted: replicas.wanted },
                    format!(
                        "{got} of {} replicas have the grant: it was given back",
                        replicas.wanted
                    ),
                ));
            }
            if let Some(granted) = self.settle(granted).await? {
                return Ok(Some(granted));
            }
        }
    }

    /// Leaves the queue, and gives back what may have been granted to a request whose answer nobody saw.
    async fn undo(&self) {
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

    async fn release(&self, release: Release<'_>, until: Instant) -> Result<Value, Error> {
        let (id, request) = match self.what {
            What::Lock { fair } => {
                (lock_command(fair, LockVerb::Release), Request::Release(release))
            }
            What::Rw(mode) => {
                (CommandId::Rw(RwVerb::Release), Request::RwRelease(RwRelease { release, mode }))
            }
            What::Permit { .. } => return Err(Error::invalid("permits are released by their id")),
        };
        self.core.call(&self.key, id, &request, until).await
    }
}

/// How many replicas WAIT or WAITAOF counted.
fn acknowledgements(reply: &Value) -> u32 {
    let count = match reply {
        Value::Int(count) => *count,
        Value::Array(local_and_replicas) => match local_and_replicas.as_slice() {
            [Value::Int(1..), Value::Int(count)] => *count,
            _ => 0,
        },
        _ => 0,
    };
    u32::try_from(count).unwrap_or(0)
}
