//! The fake server: its state, and the connections to it.

use std::fmt;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use dlock_client::internal::{Dial, Dialed, follow_tokio};
use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, ProtocolVersion, RedisConnectionInfo, RedisResult};
use tokio::sync::{Notify, mpsc};

use crate::session;
use crate::state::State;

/// The bytes that are under way in each direction before their sender waits.
const IN_FLIGHT: usize = 64 * 1024;

/// A lock server in this process. Clones are the same server; it lives as long as one of them or a client does.
///
/// See the [crate].
#[derive(Clone)]
pub struct FakeServer {
    pub(crate) shared: Arc<Shared>,
}

pub(crate) struct Shared {
    state: Mutex<State>,
    /// The next alarm has changed, or whether the server runs.
    pub(crate) changed: Notify,
}

impl FakeServer {
    /// A server without keys.
    ///
    /// From now on, all clients of this process, also those of real servers, measure time by tokio's clock. It differs
    /// from the system's only while a test has paused it, and while the machine is suspended.
    pub fn start() -> Self {
        follow_tokio();
        let shared = Shared { state: Mutex::new(State::new()), changed: Notify::new() };
        Self { shared: Arc::new(shared) }
    }

    /// Closes all connections. Clients reconnect at once.
    pub fn kill_connections(&self) {
        self.with(State::kill_connections);
    }

    /// Closes all connections, and refuses new ones until it is called with `false`. Leases run on.
    pub fn set_unavailable(&self, is_unavailable: bool) {
        self.with(|state| {
            state.is_unavailable = is_unavailable;
            if is_unavailable {
                state.kill_connections();
            }
        });
    }

    /// Closes all connections and loses all keys, as a restart of a server that saves nothing. Tokens still rise.
    pub fn restart(&self) {
        self.with(State::restart);
    }

    /// Answers nothing and ends nothing, until it is called with `false`: a server that hangs. Connections stay open.
    pub fn set_frozen(&self, is_frozen: bool) {
        self.with(|state| state.is_frozen = is_frozen);
        self.shared.changed.notify_waiters();
    }

    /// The number of replicas that acknowledge a grant; at first none. See
    /// [`Lock::replicas`](dlock_client::Lock::replicas).
    pub fn set_replicas(&self, replicas: u32) {
        self.with(|state| state.replicas = replicas);
    }

    /// Ends all holds of `key` by force, as an operator does. Returns their number.
    pub fn break_lock(&self, key: impl AsRef<[u8]>) -> u64 {
        self.with(|state| state.break_holds(key.as_ref()))
    }

    /// Removes `key`, as an operator or a flush does. Returns whether it existed.
    pub fn delete(&self, key: impl AsRef<[u8]>) -> bool {
        self.with(|state| state.delete(0, key.as_ref()))
    }

    /// The number of open connections.
    pub fn connections(&self) -> usize {
        self.with(|state| state.connections.len())
    }

    /// Carries out one command in the name of no connection, as a script does: it cannot block. Returns the reply in
    /// RESP3.
    pub fn command<T: AsRef<[u8]>>(&self, words: &[T]) -> Vec<u8> {
        let words: Vec<&[u8]> = words.iter().map(AsRef::as_ref).collect();
        self.with(|state| state.command(&words))
    }

    /// Opens a connection as redis-rs does.
    async fn accept(&self, config: &AsyncConnectionConfig) -> RedisResult<MultiplexedConnection> {
        let (ours, theirs) = tokio::io::duplex(IN_FLIGHT);
        let (to_client, replies) = mpsc::unbounded_channel();
        let Some(id) = self.with(|state| state.connect(to_client)) else {
            let text = "the fake server is unavailable";
            return Err(io::Error::new(io::ErrorKind::ConnectionRefused, text).into());
        };
        tokio::spawn(session::serve(self.clone(), id, ours, replies));
        let info = RedisConnectionInfo::default().set_protocol(ProtocolVersion::RESP3);
        let (connection, driver) =
            MultiplexedConnection::new_with_config(&info, theirs, config.clone()).await?;
        // Ends with the last handle of the connection.
        tokio::spawn(driver);
        Ok(connection)
    }

    /// Runs one step, after all that is due by now. Connections learn of a new alarm.
    pub(crate) fn with<T>(&self, step: impl FnOnce(&mut State) -> T) -> T {
        let mut state = self.state();
        let alarm = state.alarm();
        state.catch_up();
        let done = step(&mut state);
        state.catch_up();
        if state.alarm() != alarm {
            self.shared.changed.notify_waiters();
        }
        done
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.shared.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Dial for FakeServer {
    fn open<'a>(&'a self, config: &'a AsyncConnectionConfig) -> Dialed<'a> {
        Box::pin(self.accept(config))
    }

    fn address(&self) -> String {
        "fake".to_owned()
    }
}

impl fmt::Debug for FakeServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FakeServer").finish_non_exhaustive()
    }
}
