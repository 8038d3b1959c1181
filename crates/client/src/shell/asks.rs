//! What handles ask of servers.

use std::fmt;
use std::time::Duration;

use dlock_wire::request::Request;
use redis::{Cmd, Value};

use super::{Core, Pending};
use crate::base::clock::Moment;
use crate::base::command::command;
use crate::base::error::Error;
use crate::machine::calls::{AskCall, Replies, WaitCall, Waiting};
use crate::machine::slot::Place;

impl Core {
    /// Asks the server that has `key`, for as long as requests without a timeout are tried.
    pub(crate) async fn call<'a>(
        &self,
        key: &[u8],
        request: impl Into<Request<'a>>,
    ) -> Result<Value, Error> {
        self.ask(key, command(request), self.settings.retry_for).await
    }

    /// Asks the server that has `key` until it answers, within that time.
    ///
    /// # Errors
    ///
    /// That of the server, or of the connection to it.
    pub async fn ask(&self, key: &[u8], request: Cmd, within: Duration) -> Result<Value, Error> {
        let place = Place::of(key);
        let replies = self.ask_at(place, request, within)?.replies().await?;
        first(replies).map_err(|error| error.of_key(key))
    }

    /// The servers that have keys, by number and name.
    pub fn servers(&self) -> Vec<(usize, String)> {
        self.inner().machine.servers.with_keys()
    }

    /// The name of the server that has a key.
    pub(crate) fn server_of(&self, key: &[u8]) -> Option<String> {
        let inner = self.inner();
        let servers = &inner.machine.servers;
        let server = servers.of(Place::of(key))?;
        servers.all.get(server).map(|server| server.name.clone())
    }

    /// Resolves when the server that has the key has a connection; an error if it has none in time.
    ///
    /// # Errors
    ///
    /// [`Unavailable`](crate::ErrorKind::Unavailable), as said.
    pub async fn connected(&self, key: &[u8], within: Duration) -> Result<(), Error> {
        let place = Place::of(key);
        let connected = self.reached(|machine| {
            let server =
                machine.servers.of(place).and_then(|server| machine.servers.all.get(server));
            server.is_none_or(|server| server.is_up).then_some(())
        });
        let connected = tokio::time::timeout(within, connected).await;
        connected.map_err(|_| Error::unavailable("no connection in time"))
    }

    /// Asks one server once. Without a connection to it, it waits for one if `is_patient`, and else fails.
    ///
    /// # Errors
    ///
    /// That of the server, or of the connection to it.
    pub async fn ask_once(
        &self,
        server: usize,
        request: Cmd,
        is_patient: bool,
    ) -> Result<Value, Error> {
        let failure = self.with(|machine, _| {
            let server = machine.servers.all.get(server)?;
            server.error.clone().filter(|_| !server.is_up)
        });
        if let Some(error) = failure.filter(|_| !is_patient) {
            return Err(error);
        }
        let within = self.settings.retry_for;
        let call =
            AskCall::new(Place::Server(server), [request], Duration::ZERO, within, Moment::now());
        first(self.begin(call, false)?.replies().await?)
    }

    /// Asks one server, by its number.
    pub(crate) async fn ask_server(
        &self,
        server: usize,
        request: Cmd,
        within: Duration,
    ) -> Result<Value, Error> {
        first(self.ask_at(Place::Server(server), request, within)?.replies().await?)
    }

    fn ask_at(&self, place: Place, request: Cmd, within: Duration) -> Result<Pending, Error> {
        self.begin(AskCall::new(place, [request], within, within, Moment::now()), false)
    }

    /// Repeats a request that waits until its reply is not Null, or the deadline is over: then it is Null. `takes`: it
    /// takes something, which nothing gives back.
    pub(crate) async fn wait(
        &self,
        key: &[u8],
        deadline: Moment,
        takes: bool,
        request: Waiting,
    ) -> Result<Value, Error> {
        let (place, limit) = (Place::of(key), self.settings.retry_for);
        let call = WaitCall::new(place, request, takes, deadline, limit, Moment::now());
        first(self.begin(call, true)?.replies().await?).map_err(|error| error.of_key(key))
    }
}

impl fmt::Debug for Core {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let servers: Vec<_> = self.servers().into_iter().map(|(_, name)| name).collect();
        f.debug_struct("Core").field("servers", &servers).finish_non_exhaustive()
    }
}

/// The only reply.
fn first(replies: Replies) -> Result<Value, Error> {
    replies.values.into_iter().next().unwrap_or(Ok(Value::Nil))
}
