//! The shared connection to one server, for everything but blocked calls: RESP3, subscribed to the messages about the
//! client's waiters and holds. It reconnects.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::task::{Wake, Waker};
use std::time::Duration;

use dlock_wire::names::FLUSH_CHANNEL;
use dlock_wire::table::{CommandId, LockVerb};
use redis::aio::{AsyncPushSender, MultiplexedConnection, SendError};
use redis::{AsyncConnectionConfig, PushInfo, PushKind, RedisError, Value};
use tokio::task::AbortHandle;
use tokio::time::{Instant, sleep, timeout};

use super::blocked::Idle;
use super::opener::Opener;
use super::{Core, Flying, Signals};
use crate::base::back_off::BackOff;
use crate::base::dialer::Dial;
use crate::base::error::hints::CONNECTING_TAKES_TOO_LONG;
use crate::base::error::{Error, ErrorKind};
use crate::machine::servers::{FLYING, Flight};
use crate::telemetry;

/// Between two attempts to connect.
const PAUSES: BackOff = BackOff::new(Duration::from_millis(5), Duration::from_millis(500));
/// After a connection that lasted that long, the next attempt is at once.
const LASTING: Duration = Duration::from_secs(1);
/// How long a connection to a replica lasts at least.
const READ_ONLY: Duration = Duration::from_secs(1);
/// Interval at which the client asks Sentinels for the primary. A primary that was replaced in order continues as if
/// nothing had happened, for seconds.
const ASK_SENTINELS: Duration = Duration::from_secs(1);

/// Counts the shared connections of this process: none has the number of another, not even of one to another server.
static CONNECTIONS: AtomicU64 = AtomicU64::new(0);

/// The connections to one server.
pub(super) struct Wire {
    supervisor: AbortHandle,
    /// Sentinels name the server, and may name another one later.
    is_named: bool,
    /// The number of the shared connection that is up, or being opened. None: there will be none.
    generation: Option<u64>,
    pub(super) up: Option<Up>,
    /// What is on its way. Replies come in this order.
    pub(super) flying: VecDeque<(Flight, Flying)>,
    /// Reads the replies that have come.
    pub(super) reader: Waker,
    /// Connections for calls that block, at rest.
    pub(super) idle: Vec<Idle>,
}

/// A shared connection that is up.
pub(super) struct Up {
    pub(super) shared: MultiplexedConnection,
    /// What it was opened with, for other connections to the same server.
    dialer: Arc<dyn Dial>,
    opened: Instant,
    /// It is to be given up.
    is_stale: bool,
}

/// Reads the replies of the server of that number as soon as they have come, in the task that received them.
struct Reader(Weak<Core>, usize);

impl Wake for Reader {
    fn wake(self: Arc<Self>) {
        if let Some(core) = self.0.upgrade() {
            core.act(|inner, now| inner.read(self.1, now));
        }
    }
}

/// What connects to one server, again and again.
struct Supervisor {
    /// Of the server.
    name: String,
    opener: Opener,
    server: usize,
    core: Weak<Core>,
    signals: Arc<Signals>,
}

impl Wire {
    /// Begins to connect.
    pub(super) fn start(core: &Arc<Core>, server: usize, name: String, opener: Opener) -> Self {
        let (weak, signals) = (Arc::downgrade(core), core.signals.clone());
        let is_named = opener.is_named_by_sentinels();
        let supervisor = Supervisor { name, opener, server, core: weak.clone(), signals };
        Self {
            supervisor: core.runtime.spawn(supervisor.supervise()).abort_handle(),
            is_named,
            generation: Some(0),
            up: None,
            flying: VecDeque::new(),
            reader: Arc::new(Reader(weak, server)).into(),
            idle: Vec::new(),
        }
    }

    /// For good. Returns what was on its way.
    pub(super) fn close(&mut self) -> Vec<Flight> {
        self.supervisor.abort();
        self.generation = None;
        self.lose()
    }

    /// Its connections are lost. Returns what was on its way.
    pub(super) fn lose(&mut self) -> Vec<Flight> {
        self.up = None;
        self.idle.clear();
        std::mem::take(&mut self.flying).into_iter().map(|(flight, _)| flight).collect()
    }

    /// The server is a replica. Another address may be the primary's by now, or this one may lead to another server. So
    /// the connection is given up; where no Sentinels tell of a new primary, not before `READ_ONLY`. True: it is now.
    pub(super) fn is_read_only(&mut self) -> bool {
        self.idle.clear();
        let up = self.up.as_mut().filter(|up| self.is_named || up.opened.elapsed() > READ_ONLY);
        up.is_some_and(|up| !std::mem::replace(&mut up.is_stale, true))
    }

    /// Why nothing can be asked.
    pub(super) fn lost(&self) -> Error {
        let error = Error::unavailable("the connection to the server is lost");
        match &self.up {
            Some(up) => error.at(&up.dialer.address()),
            None => error,
        }
    }

    /// Whether that is the connection that is up, or being opened, or was the last one.
    pub(super) fn is(&self, generation: u64) -> bool {
        self.generation == Some(generation)
    }

    /// Whether that connection is up.
    pub(super) fn is_up(&self, generation: u64) -> bool {
        self.is(generation) && self.up.is_some()
    }

    /// The number of the connection that is up, and how to connect to the same server once more.
    pub(super) fn dialer(&self) -> Option<(u64, Arc<dyn Dial>)> {
        Some((self.generation?, self.up.as_ref()?.dialer.clone()))
    }
}

impl Drop for Wire {
    fn drop(&mut self) {
        self.supervisor.abort();
    }
}

impl Supervisor {
    async fn supervise(self) {
        let mut pauses = PAUSES;
        let (mut was_up, mut was_down) = (false, false);
        while let Some(core) = self.core.upgrade() {
            let connect_timeout = core.settings.connect_timeout;
            drop(core);
            let generation = CONNECTIONS.fetch_add(1, Ordering::Relaxed) + 1;
            let opened = timeout(connect_timeout, self.open(generation)).await;
            let opened =
                opened.unwrap_or_else(|_| Err(Error::unavailable(CONNECTING_TAKES_TOO_LONG)));
            let pauses_now = match opened {
                Ok((shared, dialer)) => {
                    telemetry::connected(&self.name, || dialer.address(), !was_up);
                    (was_up, was_down) = (true, false);
                    let (here, opened) = (dialer.address(), Instant::now());
                    let up = Up { shared, dialer, opened, is_stale: false };
                    if self.connected(generation, up) {
                        let end = self.while_up(generation, &here).await;
                        // The client may have ended it.
                        let core = self.core.upgrade();
                        if core.is_some_and(|core| core.broken(self.server, generation)) {
                            telemetry::disconnected(&self.name, end);
                        }
                    }
                    opened.elapsed() < LASTING
                }
                Err(error) if error.kind() == ErrorKind::Closed => return,
                Err(error) => {
                    let error = error.at(&self.name);
                    telemetry::not_connected(&self.name, &error, !was_down);
                    was_down = true;
                    if let Some(core) = self.core.upgrade() {
                        core.with(|machine, now| {
                            machine.disconnected(self.server, &error, Vec::new(), now);
                        });
                    }
                    true
                }
            };
            if pauses_now {
                pauses.pause().await;
            } else {
                pauses.reset();
            }
        }
    }

    /// From now on requests go over this connection. False: the client is gone, or this is not the one it wants.
    fn connected(&self, generation: u64, up: Up) -> bool {
        let Some(core) = self.core.upgrade() else { return false };
        core.act(|inner, now| {
            let wire = inner.wires.get_mut(self.server);
            let Some(wire) = wire.filter(|wire| wire.is(generation)) else {
                return false;
            };
            wire.up = Some(up);
            inner.machine.connected(self.server, now);
            true
        })
    }

    async fn open(&self, generation: u64) -> Result<(MultiplexedConnection, Arc<dyn Dial>), Error> {
        let dialer = self.opener.dialer().await?;
        let Some(core) = self.core.upgrade() else { return Err(Error::closed()) };
        let (connect_timeout, channel) = (core.settings.connect_timeout, core.channel.clone());
        {
            let mut inner = core.inner();
            let wire = inner.wires.get_mut(self.server);
            let wanted = wire.and_then(|wire| wire.generation.as_mut());
            *wanted.ok_or_else(Error::closed)? = generation;
        }
        drop(core);
        let listener = Listener { core: self.core.clone(), server: self.server, generation };
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(connect_timeout))
            .set_response_timeout(None)
            // What is sent is polled once: none may wait for a place in the buffer.
            .set_pipeline_buffer_size(FLYING)
            .set_push_sender(listener);
        let mut connection = dialer.open(&config).await.map_err(Error::from_redis)?;
        if !has_module(&mut connection).await? {
            let text = format!(
                "the dlock module is not loaded in the server {}: start the server with `--loadmodule libdlock.so`, \
                 or run MODULE LOAD",
                self.name
            );
            return Err(Error::new(ErrorKind::NoModule, text));
        }
        let channels = [&*channel, FLUSH_CHANNEL.as_bytes()];
        connection.subscribe(&channels[..]).await.map_err(may_not_subscribe)?;
        Ok((connection, dialer))
    }

    /// Returns when the connection is lost, or of no use.
    async fn while_up(&self, generation: u64, here: &str) -> telemetry::ConnectionEnd {
        let broken = async {
            loop {
                let changed = self.signals.changed.notified();
                let is_sound = |core: Arc<Core>| {
                    let inner = core.inner();
                    let wire = inner.wires.get(self.server);
                    let up = wire.filter(|wire| wire.is_up(generation));
                    up.and_then(|wire| wire.up.as_ref()).is_some_and(|up| !up.is_stale)
                };
                if !self.core.upgrade().is_some_and(is_sound) {
                    return;
                }
                changed.await;
            }
        };
        tokio::select! {
            () = broken => telemetry::ConnectionEnd::Broken,
            () = self.replaced_by_sentinels(here) => telemetry::ConnectionEnd::Replaced,
        }
    }

    /// Returns when Sentinels name another primary than the one that we are connected to.
    async fn replaced_by_sentinels(&self, here: &str) {
        if !self.opener.is_named_by_sentinels() {
            std::future::pending::<()>().await;
        }
        loop {
            sleep(ASK_SENTINELS).await;
            if let Ok(Ok(named)) = timeout(ASK_SENTINELS * 3, self.opener.dialer()).await
                && named.address() != here
            {
                return;
            }
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

/// The error for a user that may not listen to the channels of the client.
fn may_not_subscribe(error: RedisError) -> Error {
    let is_denied = error.code() == Some("NOPERM");
    let error = Error::from_redis(error);
    if is_denied {
        error.hint("the client hears of grants on its channels; grant the user `+subscribe &dlock:notify*` (ACL SETUSER)")
    } else {
        error
    }
}

/// Hears what the server says without being asked.
struct Listener {
    core: Weak<Core>,
    server: usize,
    generation: u64,
}

impl AsyncPushSender for Listener {
    fn send(&self, push: PushInfo) -> Result<(), SendError> {
        let Some(core) = self.core.upgrade() else { return Err(SendError) };
        if push.kind == PushKind::Disconnection {
            core.broken(self.server, self.generation);
        } else if let (PushKind::Message, [_, Value::BulkString(text)]) =
            (&push.kind, push.data.as_slice())
        {
            core.act(|inner, now| {
                // What an earlier connection still had to say is asked for over the new one.
                if inner.wires.get(self.server).is_some_and(|wire| wire.is(self.generation)) {
                    inner.machine.message(text, now);
                }
            });
        }
        Ok(())
    }
}
