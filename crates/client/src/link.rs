//! The one connection that everything but blocked calls goes over: RESP3, shared by all tasks, subscribed to what
//! the server says about our places and holds. It mends itself; whoever waits for it is told.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use dlock_wire::names::FLUSH_CHANNEL;
use redis::aio::{AsyncPushSender, MultiplexedConnection, SendError};
use redis::{AsyncConnectionConfig, ProtocolVersion, PushInfo, PushKind, Value};
use tokio::sync::{Notify, watch};
use tokio::task::AbortHandle;
use tokio::time::{Instant, timeout, timeout_at};

use crate::config::Settings;
use crate::error::Error;
use crate::registry::Registry;
use crate::route::Opener;

/// The first pause between two attempts to connect; it doubles up to [`PAUSE_MAX`].
const PAUSE_MIN: Duration = Duration::from_millis(5);
const PAUSE_MAX: Duration = Duration::from_millis(500);
/// How often a connection on which nothing else happens is asked whether it is still there.
const HEARTBEAT: Duration = Duration::from_secs(3);
/// How often Sentinels are asked who is primary: one that was replaced in order goes on as if nothing were, for seconds.
const ASK_SENTINELS: Duration = Duration::from_secs(1);

/// A connection that was up when it was handed out.
#[derive(Clone)]
pub(crate) struct Live {
    pub(crate) connection: MultiplexedConnection,
    /// Which of the link's connections this is: 1, 2, 3, …
    pub(crate) generation: u64,
    /// What it was opened with, for private connections to the same server.
    pub(crate) client: Arc<redis::Client>,
}

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
    opener: Opener,
    settings: Arc<Settings>,
    registry: Arc<Registry>,
    state: watch::Sender<State>,
    broken: Notify,
    generation: AtomicU64,
    /// Of the generation that is up: whether anything was answered since the last heartbeat.
    answered: AtomicU64,
}

impl Link {
    /// Begins to connect. Inside a tokio runtime.
    pub(crate) fn new(opener: Opener, settings: Arc<Settings>, registry: Arc<Registry>) -> Self {
        let shared = Arc::new(Shared {
            opener,
            settings,
            registry,
            state: watch::Sender::new(State::Down(None)),
            broken: Notify::new(),
            generation: AtomicU64::new(0),
            answered: AtomicU64::new(0),
        });
        let supervisor = tokio::spawn(shared.clone().supervise()).abort_handle();
        Self { shared, supervisor }
    }

    /// The connection, as soon as there is one.
    pub(crate) async fn live(&self, until: Instant) -> Result<Live, Error> {
        if let State::Up(live) = &*self.shared.state.borrow() {
            return Ok(Live::clone(live));
        }
        let mut state = self.shared.state.subscribe();
        let up = timeout_at(until, state.wait_for(|state| matches!(state, State::Up(_)))).await;
        if let Ok(Ok(state)) = up
            && let State::Up(live) = &*state
        {
            return Ok(Live::clone(live));
        }
        match &*self.shared.state.borrow() {
            State::Up(live) => Ok(Live::clone(live)),
            State::Down(Some(error)) => Err(error.clone()),
            State::Down(None) => Err(Error::unavailable("no connection in time")),
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

    /// Gives up that connection, if it is still the one that is up: it does not answer, or not as a primary.
    pub(crate) fn report_broken(&self, generation: u64) {
        if self.generation() == generation {
            self.shared.broken.notify_one();
        }
    }

    /// Notes that the connection lives.
    pub(crate) fn answered(&self) {
        self.shared.answered.store(1, Ordering::Relaxed);
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        self.supervisor.abort();
        // The connection ends with its last handle.
        self.shared.state.send_replace(State::Down(None));
    }
}

impl Shared {
    async fn supervise(self: Arc<Self>) {
        let mut pause = PAUSE_MIN;
        loop {
            let opened = timeout(self.settings.connect_timeout, self.open()).await;
            match opened.unwrap_or_else(|_| Err(Error::unavailable("connecting takes too long"))) {
                Ok(live) => {
                    pause = PAUSE_MIN;
                    self.state.send_replace(State::Up(Box::new(live.clone())));
                    self.registry.connected();
                    self.while_up(live).await;
                    self.state.send_replace(State::Down(Some(Error::unavailable(
                        "the connection to the server is lost",
                    ))));
                    self.registry.disconnected();
                }
                Err(error) => {
                    self.state.send_replace(State::Down(Some(error)));
                    // Some of us at a time, when thousands of clients lost the same server.
                    tokio::time::sleep(pause.mul_f64(0.5 + crate::random::fraction())).await;
                    pause = (pause * 2).min(PAUSE_MAX);
                }
            }
        }
    }

    async fn open(self: &Arc<Self>) -> Result<Live, Error> {
        let client = self.opener.client(ProtocolVersion::RESP3).await?;
        let generation = self.generation.fetch_add(1, Ordering::Relaxed) + 1;
        // A lost notification of an earlier connection must not end this one.
        let _ = timeout(Duration::ZERO, self.broken.notified()).await;
        let listener = Listener { shared: Arc::downgrade(self), generation };
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(self.settings.connect_timeout))
            .set_response_timeout(None)
            .set_push_sender(listener);
        let mut connection = client.get_multiplexed_async_connection_with_config(&config).await?;
        connection.subscribe(&[self.registry.channel(), FLUSH_CHANNEL.as_bytes()][..]).await?;
        Ok(Live { connection, generation, client: Arc::new(client) })
    }

    /// Returns when Sentinels name another primary than the one that we are connected to.
    async fn replaced_by_sentinels(&self, live: &Live) {
        if !self.opener.is_named_by_sentinels() {
            std::future::pending::<()>().await;
        }
        let here = live.client.get_connection_info().addr().to_string();
        loop {
            tokio::time::sleep(ASK_SENTINELS).await;
            let named =
                timeout(self.settings.connect_timeout, self.opener.client(ProtocolVersion::RESP3));
            if let Ok(Ok(named)) = named.await
                && named.get_connection_info().addr().to_string() != here
            {
                return;
            }
        }
    }

    /// Returns when the connection is lost, or was reported to be.
    async fn while_up(&self, mut live: Live) {
        loop {
            tokio::select! {
                () = self.broken.notified() => return,
                () = self.replaced_by_sentinels(&live) => return,
                () = tokio::time::sleep(HEARTBEAT) => {
                    if self.answered.swap(0, Ordering::Relaxed) == 0 {
                        let ping = redis::cmd("PING");
                        let answer = live.connection.send_packed_command(&ping);
                        if !matches!(timeout(self.settings.response_timeout, answer).await, Ok(Ok(_))) {
                            return;
                        }
                    }
                }
            }
        }
    }
}

/// Hears what the server says without being asked, in the order in which it says it, replies included.
struct Listener {
    /// Not more: the connection, which has this, is among what is shared.
    shared: Weak<Shared>,
    generation: u64,
}

impl AsyncPushSender for Listener {
    fn send(&self, push: PushInfo) -> Result<(), SendError> {
        let Some(shared) = self.shared.upgrade() else { return Err(SendError) };
        match (&push.kind, push.data.as_slice()) {
            (PushKind::Disconnection, _)
                if shared.generation.load(Ordering::Relaxed) == self.generation =>
            {
                shared.broken.notify_one();
            }
            (PushKind::Message, [_, Value::BulkString(text)]) => shared.registry.hear(text),
            _ => {}
        }
        Ok(())
    }
}

/// Private connections, for calls that block theirs. As many as the limit allows; those at rest are used again.
pub(crate) struct Pool {
    idle: Mutex<Vec<MultiplexedConnection>>,
    settings: Arc<Settings>,
}

impl Pool {
    pub(crate) fn new(settings: Arc<Settings>) -> Self {
        Self { idle: Mutex::default(), settings }
    }

    /// One at rest (which may have died in the meantime), or a new one. A place in the limit is the caller's business.
    pub(crate) async fn take(&self, live: &Live) -> Result<MultiplexedConnection, Error> {
        if let Some(connection) = self.idle().pop() {
            return Ok(connection);
        }
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(self.settings.connect_timeout))
            .set_response_timeout(None);
        Ok(live.client.get_multiplexed_async_connection_with_config(&config).await?)
    }

    /// Puts one back that is not blocked and works.
    pub(crate) fn give_back(&self, connection: MultiplexedConnection) {
        self.idle().push(connection);
    }

    /// Closes those at rest: their server is gone.
    pub(crate) fn clear(&self) {
        self.idle().clear();
    }

    fn idle(&self) -> std::sync::MutexGuard<'_, Vec<MultiplexedConnection>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
