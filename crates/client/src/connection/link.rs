//! The shared connection to one server, for everything but blocked calls: RESP3, subscribed to the messages about the
//! client's waiters and holds. It reconnects, and wakes the tasks that wait for a connection.

pub(crate) mod events;
pub(crate) mod live;
pub(crate) mod opener;
pub(crate) mod pool;
mod rights;
pub(crate) mod shard;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use dlock_wire::names::FLUSH_CHANNEL;
use dlock_wire::table::{CommandId, LockVerb};
use redis::aio::{AsyncPushSender, MultiplexedConnection, SendError};
use redis::{AsyncConnectionConfig, PushInfo, PushKind, Value};
use tokio::sync::watch;
use tokio::task::AbortHandle;
use tokio::time::{Instant, timeout, timeout_at};

use self::events::Events;
use self::live::Live;
use self::opener::Opener;
use self::rights::{check_rights, may_not_subscribe};
use self::shard::{Before, Shard};
use crate::base::back_off::BackOff;
use crate::base::clock::Moment;
use crate::base::context::Context;
use crate::base::error::hints::CONNECTING_TAKES_TOO_LONG;
use crate::base::error::{Error, ErrorKind};
use crate::base::pulse::{ConnectionEnd, Pulse};
use crate::telemetry;

/// Between two attempts to connect.
const PAUSES: BackOff = BackOff::new(Duration::from_millis(5), Duration::from_millis(500));
/// How long a connection to a replica lasts at least.
const READ_ONLY: Duration = Duration::from_secs(1);
/// How often a connection on which nothing else happens is asked whether it is still there.
const HEARTBEAT: Duration = Duration::from_secs(3);
/// Interval at which the client asks Sentinels for the primary. A primary that was replaced in order continues as if
/// nothing had happened, for seconds.
const ASK_SENTINELS: Duration = Duration::from_secs(1);

/// Counts the shared connections of this process: none has the number of another, not even of one to another server.
static CONNECTIONS: AtomicU64 = AtomicU64::new(0);

#[derive(Clone)]
enum State {
    Down(Option<Error>),
    Up(Box<Live>),
}

pub(crate) struct Link {
    shared: Arc<Shared>,
    supervisor: AbortHandle,
}

struct Shared {
    /// Of the server.
    name: String,
    opener: Opener,
    ctx: Arc<Context>,
    events: Arc<dyn Events>,
    state: watch::Sender<State>,
    /// The latest connection that a task reported broken.
    broken: watch::Sender<u64>,
    /// The latest of our connections.
    generation: AtomicU64,
    /// The rights of the user were checked: once, because what the user may not do is in the ACL log afterwards.
    may_work: AtomicBool,
    /// What is known of the shard channel of the connection before.
    before: Arc<Mutex<Before>>,
}

impl Link {
    /// Begins to connect. Inside a tokio runtime.
    pub(crate) fn new(
        name: String,
        opener: Opener,
        ctx: Arc<Context>,
        events: Arc<dyn Events>,
    ) -> Self {
        let shared = Arc::new(Shared {
            name,
            opener,
            ctx,
            events,
            state: watch::Sender::new(State::Down(None)),
            broken: watch::Sender::new(0),
            generation: AtomicU64::new(0),
            may_work: AtomicBool::new(false),
            before: Arc::default(),
        });
        let runtime = shared.ctx.runtime.clone();
        let supervisor = runtime.spawn(shared.clone().supervise()).abort_handle();
        Self { shared, supervisor }
    }

    /// Ends the connection, for good.
    pub(crate) fn close(&self) {
        self.supervisor.abort();
        // The connection ends with its last handle.
        self.shared.state.send_replace(State::Down(Some(Error::closed())));
    }

    /// The connection, as soon as there is one.
    pub(crate) async fn live(&self, until: Instant) -> Result<Live, Error> {
        if let State::Up(live) = &*self.shared.state.borrow()
            && live.is_usable()
        {
            return Ok(Live::clone(live));
        }
        let mut state = self.shared.state.subscribe();
        let is_up = |state: &State| matches!(state, State::Up(live) if live.is_usable());
        let up = timeout_at(until, state.wait_for(is_up));
        let gate = &self.shared.ctx.gate;
        tokio::select! {
            biased;
            () = gate.shut() => if let Some(error) = gate.refusal() {
                return Err(error);
            },
            up = up => if let Ok(Ok(state)) = up
                && let State::Up(live) = &*state
            {
                return Ok(Live::clone(live));
            },
        }
        match &*self.shared.state.borrow() {
            State::Down(Some(error)) => Err(error.clone()),
            State::Up(_) | State::Down(None) => Err(Error::unavailable("no connection in time")),
        }
    }

    /// The connection, or why the first attempt to get one failed.
    pub(crate) async fn first(&self) -> Result<Live, Error> {
        let mut state = self.shared.state.subscribe();
        match state.wait_for(|state| !matches!(state, State::Down(None))).await.as_deref() {
            Ok(State::Up(live)) => Ok(Live::clone(live)),
            Ok(State::Down(Some(error))) => Err(error.clone()),
            Ok(State::Down(None)) | Err(_) => Err(Error::unavailable("no connection")),
        }
    }

    /// The address that the connection goes to; None: none is up.
    pub(crate) fn address(&self) -> Option<String> {
        match &*self.shared.state.borrow() {
            State::Up(live) => Some(live.dialer.address()),
            State::Down(_) => None,
        }
    }

    /// Which of its connections is up; 0: none.
    pub(crate) fn generation(&self) -> u64 {
        match &*self.shared.state.borrow() {
            State::Up(live) => live.generation,
            State::Down(_) => 0,
        }
    }

    /// Returns when another connection than that one is up.
    pub(crate) async fn replaced(&self, generation: u64) {
        let mut state = self.shared.state.subscribe();
        let newer =
            |state: &State| matches!(state, State::Up(live) if live.generation != generation);
        if state.wait_for(newer).await.is_err() {
            std::future::pending::<()>().await;
        }
    }

    /// Returns when that connection is no longer the one that is up, whether or not there is another one.
    pub(crate) async fn left(&self, generation: u64) {
        let mut state = self.shared.state.subscribe();
        let other =
            |state: &State| !matches!(state, State::Up(live) if live.generation == generation);
        // An error: the link is gone, and its connection with it.
        let _ = state.wait_for(other).await;
    }

    /// Gives up that connection, if it is still the one that is up: it does not answer, or not as a primary.
    pub(crate) fn report_broken(&self, generation: u64) {
        self.shared.report_broken(generation);
    }

    /// The server behind that connection is a replica. Another address may be the primary's by now, or this one may
    /// lead to another server. So it is given up; where no Sentinels tell of a new primary, not before `READ_ONLY`.
    pub(crate) fn report_read_only(&self, generation: u64) {
        let is_old = match &*self.shared.state.borrow() {
            State::Up(live) => live.opened.elapsed() > READ_ONLY,
            State::Down(_) => false,
        };
        if self.shared.opener.is_named_by_sentinels() || is_old {
            self.shared.report_broken(generation);
        }
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        self.supervisor.abort();
        self.shared.state.send_replace(State::Down(None));
    }
}

impl Shared {
    async fn supervise(self: Arc<Self>) {
        let mut pauses = PAUSES;
        let (mut was_up, mut was_down) = (false, false);
        // A server that is learnt of while the client closes is not connected to.
        while self.ctx.gate.refusal().is_none() {
            let opened = timeout(self.ctx.settings.connect_timeout, self.open()).await;
            match opened.unwrap_or_else(|_| Err(Error::unavailable(CONNECTING_TAKES_TOO_LONG))) {
                Ok(live) => {
                    pauses.reset();
                    telemetry::connected(&self.name, || live.dialer.address(), !was_up);
                    (was_up, was_down) = (true, false);
                    self.state.send_replace(State::Up(Box::new(live.clone())));
                    self.events.renew_now();
                    let end = self.while_up(&live).await;
                    telemetry::disconnected(&self.name, end);
                    self.state.send_replace(State::Down(Some(Error::unavailable(
                        "the connection to the server is lost",
                    ))));
                }
                Err(error) => {
                    let error = error.at(&self.name);
                    telemetry::not_connected(&self.name, &error, !was_down);
                    was_down = true;
                    self.state.send_replace(State::Down(Some(error)));
                    pauses.pause().await;
                }
            }
        }
    }

    fn report_broken(&self, generation: u64) {
        self.broken.send_if_modified(|broken| {
            let newer = generation > *broken;
            *broken = generation.max(*broken);
            newer
        });
    }

    async fn open(self: &Arc<Self>) -> Result<Live, Error> {
        let dialer = self.opener.dialer().await?;
        let generation = CONNECTIONS.fetch_add(1, Ordering::Relaxed) + 1;
        self.generation.store(generation, Ordering::Relaxed);
        let shard = self.opener.is_cluster_node().then(|| Arc::new(Shard::new(&self.before)));
        let listener = Listener { shared: Arc::downgrade(self), generation, shard: shard.clone() };
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(self.ctx.settings.connect_timeout))
            .set_response_timeout(None)
            .set_push_sender(listener);
        let sent = Moment::now();
        let mut connection = dialer.open(&config).await.map_err(Error::from_redis)?;
        if !has_module(&mut connection).await? {
            let text = format!(
                "the dlock module is not loaded in the server {}: start the server with `--loadmodule libdlock.so`, \
                 or run MODULE LOAD",
                self.name
            );
            return Err(Error::new(ErrorKind::NoModule, text));
        }
        let channels = [self.ctx.channels.plain(), FLUSH_CHANNEL.as_bytes()];
        connection.subscribe(&channels[..]).await.map_err(may_not_subscribe)?;
        if !self.may_work.load(Ordering::Relaxed) {
            check_rights(&mut connection).await?;
            self.may_work.store(true, Ordering::Relaxed);
        }
        let (pulse, confirmations) = (Pulse::new(sent), Arc::default());
        let opened = Instant::now();
        let live = Live { connection, generation, opened, dialer, pulse, shard, confirmations };
        if let Some(shard) = &live.shard
            && let Some(channel) = shard.before()
        {
            // Holds of before have that channel.
            match live.subscribe(&channel).await {
                Ok(()) => shard.resumed(channel),
                // Another one is chosen when it is needed.
                Err(error) if error.code().is_some() => {}
                Err(error) => return Err(Error::from_redis(error)),
            }
        }
        Ok(live)
    }

    /// Returns when Sentinels name another primary than the one that we are connected to.
    async fn replaced_by_sentinels(&self, live: &Live) {
        if !self.opener.is_named_by_sentinels() {
            std::future::pending::<()>().await;
        }
        let here = live.dialer.address();
        loop {
            tokio::time::sleep(ASK_SENTINELS).await;
            let named = timeout(self.ctx.settings.connect_timeout, self.opener.dialer());
            if let Ok(Ok(named)) = named.await
                && named.address() != here
            {
                return;
            }
        }
    }

    /// Returns when the connection is lost, or was reported to be.
    async fn while_up(&self, live: &Live) -> ConnectionEnd {
        let mut broken = self.broken.subscribe();
        tokio::select! {
            _ = broken.wait_for(|broken| *broken >= live.generation) => ConnectionEnd::Broken,
            () = self.replaced_by_sentinels(live) => ConnectionEnd::Replaced,
            () = self.silent(live.clone()) => ConnectionEnd::Silent,
        }
    }

    /// Returns when the server does not answer a PING, sent when the registry needs the connection and nothing else was
    /// answered for a while.
    async fn silent(&self, mut live: Live) {
        loop {
            tokio::time::sleep(HEARTBEAT).await;
            let quiet_for = Moment::now().since(live.pulse.alive());
            if !self.events.needs_heartbeat() || quiet_for < HEARTBEAT {
                continue;
            }
            let (sent, ping) = (Moment::now(), redis::cmd("PING"));
            let answer = timeout(self.ctx.settings.response_timeout, live.send(&ping)).await;
            if !matches!(answer, Ok(Ok(_))) {
                return;
            }
            live.pulse.answered(sent);
        }
    }
}

/// Whether the server knows our commands. One that does not let its user ask is believed to.
async fn has_module(connection: &mut MultiplexedConnection) -> Result<bool, Error> {
    let mut ask = redis::cmd("COMMAND");
    ask.arg("INFO").arg(CommandId::Lock(LockVerb::Acquire).name());
    match connection.send_packed_command(&ask).await.and_then(Value::extract_error) {
        Ok(Value::Array(known)) => Ok(known.iter().any(|command| *command != Value::Nil)),
        Ok(_) => Ok(true),
        Err(error) if error.code().is_some() => Ok(true),
        Err(error) => Err(Error::from_redis(error)),
    }
}

/// Hears what the server says without being asked, in the order in which it says it, replies included.
struct Listener {
    /// Not more: the connection, which has this, is among what is shared.
    shared: Weak<Shared>,
    generation: u64,
    shard: Option<Arc<Shard>>,
}

impl AsyncPushSender for Listener {
    fn send(&self, push: PushInfo) -> Result<(), SendError> {
        let is_end = push.kind == PushKind::SUnsubscribe;
        if is_end && let Some(shard) = &self.shard {
            // First of all, and whether or not the link is still there: the replies are mixed up from here on.
            shard.ended();
        }
        let Some(shared) = self.shared.upgrade() else { return Err(SendError) };
        if is_end || push.kind == PushKind::Disconnection {
            shared.report_broken(self.generation);
        } else if let (PushKind::Message | PushKind::SMessage, [_, Value::BulkString(text)]) =
            (&push.kind, push.data.as_slice())
            && shared.generation.load(Ordering::Relaxed) == self.generation
        {
            // What an earlier connection still had to say is asked for over the new one.
            shared.events.message(text);
        }
        Ok(())
    }
}
