//! The shared connection to one server, for everything but blocked calls: RESP3, subscribed to the messages about the
//! client's waiters and holds. It reconnects.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use dlock_wire::names::FLUSH_CHANNEL;
use dlock_wire::table::{CommandId, LockVerb};
use redis::aio::{AsyncPushSender, MultiplexedConnection, SendError};
use redis::{AsyncConnectionConfig, PushInfo, PushKind, RedisError, Value};
use tokio::sync::Notify;
use tokio::task::AbortHandle;
use tokio::time::{Instant, sleep, timeout};

use super::opener::Opener;
use super::{Core, Wire};
use crate::base::back_off::BackOff;
use crate::base::dialer::Dial;
use crate::base::error::hints::CONNECTING_TAKES_TOO_LONG;
use crate::base::error::{Error, ErrorKind};
use crate::machine::servers::FLYING;
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

/// See the module.
pub(super) struct Link {
    shared: Arc<Shared>,
    supervisor: AbortHandle,
}

/// What the task that connects has in common with its link.
struct Shared {
    /// Of the server.
    name: String,
    opener: Opener,
    server: usize,
    core: Weak<Core>,
    up: Mutex<Option<Up>>,
    /// The number of the connection that is up, or being opened.
    generation: AtomicU64,
    /// The connection is of no use.
    broken: Notify,
    is_broken: AtomicBool,
    /// There is a connection, or an attempt has failed.
    changed: Arc<Notify>,
}

/// The task that reads the replies of one connection. It ends with this.
struct Reader(AbortHandle);

impl Drop for Reader {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// A connection that is up.
#[derive(Clone)]
struct Up {
    opened: Instant,
    /// What it was opened with, for other connections to the same server.
    dialer: Arc<dyn Dial>,
}

impl Link {
    /// Begins to connect.
    pub(super) fn start(core: &Arc<Core>, server: usize, name: String, opener: Opener) -> Self {
        let shared = Arc::new(Shared {
            name,
            opener,
            server,
            core: Arc::downgrade(core),
            up: Mutex::default(),
            generation: AtomicU64::new(0),
            broken: Notify::new(),
            is_broken: AtomicBool::new(false),
            changed: Arc::default(),
        });
        let supervisor = core.runtime.spawn(shared.clone().supervise()).abort_handle();
        Self { shared, supervisor }
    }

    /// Ends the connection, for good.
    pub(super) fn close(&self) {
        self.supervisor.abort();
        self.shared.set_up(None);
    }

    /// Told after each attempt to connect.
    pub(super) fn changed(&self) -> Arc<Notify> {
        self.shared.changed.clone()
    }

    /// Gives the connection up: it does not answer, or not as a primary.
    pub(super) fn is_broken(&self) {
        self.shared.is_broken();
    }

    /// The server is a replica. Another address may be the primary's by now, or this one may lead to another server. So
    /// the connection is given up; where no Sentinels tell of a new primary, not before `READ_ONLY`.
    pub(super) fn is_read_only(&self) {
        let is_old = self.shared.up().is_some_and(|up| up.opened.elapsed() > READ_ONLY);
        if is_old || self.shared.opener.is_named_by_sentinels() {
            self.shared.is_broken();
        }
    }

    pub(super) fn generation(&self) -> u64 {
        self.shared.generation.load(Ordering::Relaxed)
    }

    /// How to connect to the same server once more, and the number of the connection that is up.
    pub(super) fn dialer(&self) -> Result<(Arc<dyn Dial>, u64), Error> {
        let up = self.shared.up();
        let up = up.ok_or_else(|| Error::unavailable("the connection to the server is lost"))?;
        Ok((up.dialer, self.generation()))
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        self.supervisor.abort();
    }
}

impl Shared {
    fn up(&self) -> Option<Up> {
        self.up.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn set_up(&self, up: Option<Up>) {
        *self.up.lock().unwrap_or_else(PoisonError::into_inner) = up;
    }

    fn is_broken(&self) {
        self.is_broken.store(true, Ordering::Release);
        self.broken.notify_one();
    }

    async fn supervise(self: Arc<Self>) {
        let mut pauses = PAUSES;
        let (mut was_up, mut was_down) = (false, false);
        loop {
            let Some(connect_timeout) =
                self.core.upgrade().map(|core| core.settings.connect_timeout)
            else {
                return;
            };
            self.is_broken.store(false, Ordering::Release);
            let opened = timeout(connect_timeout, self.open()).await;
            let opened =
                opened.unwrap_or_else(|_| Err(Error::unavailable(CONNECTING_TAKES_TOO_LONG)));
            let pauses_now;
            let error = match opened {
                Ok((connection, dialer)) => {
                    telemetry::connected(&self.name, || dialer.address(), !was_up);
                    (was_up, was_down) = (true, false);
                    let (here, opened) = (dialer.address(), Instant::now());
                    self.set_up(Some(Up { opened, dialer }));
                    let Some(reader) = self.connected(connection) else { return };
                    let end = self.while_up(&here).await;
                    drop(reader);
                    telemetry::disconnected(&self.name, end);
                    pauses_now = opened.elapsed() < LASTING;
                    Error::unavailable("the connection to the server is lost").at(&here)
                }
                Err(error) => {
                    let error = error.at(&self.name);
                    telemetry::not_connected(&self.name, &error, !was_down);
                    (was_down, pauses_now) = (true, true);
                    error
                }
            };
            if !self.disconnected(&error) {
                return;
            }
            if pauses_now {
                pauses.pause().await;
            } else {
                pauses.reset();
            }
        }
    }

    /// From now on requests go over this connection. Returns the task that reads the replies; None: the client is gone,
    /// or this server is.
    fn connected(&self, connection: MultiplexedConnection) -> Option<Reader> {
        let (weak, server, core) = (self.core.clone(), self.server, self.core.upgrade()?);
        let reading = std::future::poll_fn(move |context| match weak.upgrade() {
            Some(core) => {
                core.read_replies(server, context, false);
                Poll::Pending
            }
            None => Poll::Ready(()),
        });
        core.inner().wires.get_mut(server)?.opened(connection)?;
        core.with(|machine, now| machine.connected(server, now));
        let reader = Reader(core.runtime.spawn(reading).abort_handle());
        self.changed.notify_waiters();
        Some(reader)
    }

    /// There is no connection. False: the client is gone.
    fn disconnected(&self, error: &Error) -> bool {
        self.set_up(None);
        let Some(core) = self.core.upgrade() else { return false };
        // What came before the end counts.
        core.read_replies(self.server, &mut Context::from_waker(Waker::noop()), true);
        let flying = core.inner().wires.get_mut(self.server).map(Wire::lose).unwrap_or_default();
        core.with(|machine, now| machine.disconnected(self.server, error, flying, now));
        self.changed.notify_waiters();
        true
    }

    async fn open(self: &Arc<Self>) -> Result<(MultiplexedConnection, Arc<dyn Dial>), Error> {
        let Some(core) = self.core.upgrade() else { return Err(Error::closed()) };
        let (connect_timeout, channel) = (core.settings.connect_timeout, core.channel.clone());
        drop(core);
        let dialer = self.opener.dialer().await?;
        let generation = CONNECTIONS.fetch_add(1, Ordering::Relaxed) + 1;
        self.generation.store(generation, Ordering::Relaxed);
        let listener = Listener { shared: Arc::downgrade(self), generation };
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
    async fn while_up(&self, here: &str) -> telemetry::ConnectionEnd {
        let broken = async {
            while !self.is_broken.load(Ordering::Acquire) {
                self.broken.notified().await;
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
    /// Not more: the connection, which has this, is among what is shared.
    shared: Weak<Shared>,
    generation: u64,
}

impl AsyncPushSender for Listener {
    fn send(&self, push: PushInfo) -> Result<(), SendError> {
        let Some(shared) = self.shared.upgrade() else { return Err(SendError) };
        // What an earlier connection still had to say is asked for over the new one.
        if shared.generation.load(Ordering::Relaxed) != self.generation {
            return Ok(());
        }
        if push.kind == PushKind::Disconnection {
            shared.is_broken();
        } else if let (PushKind::Message, [_, Value::BulkString(text)]) =
            (&push.kind, push.data.as_slice())
            && let Some(core) = shared.core.upgrade()
        {
            core.with(|machine, now| machine.message(text, now));
        }
        Ok(())
    }
}
