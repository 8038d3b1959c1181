//! What the crates `dlock-admin` and `dlock-testing-server` need of the client beyond its public API. It is for no
//! other crate: any version may change it.

use std::sync::Arc;
use std::time::Duration;

use dlock_wire::reply::{HoldEnd, Shape};
use dlock_wire::request::Request;
use redis::{Cmd, Value};
use tokio::time::{Instant, timeout_at};

pub use crate::base::clock::follow_tokio;
use crate::base::deadline::Deadline;
pub use crate::base::dialer::{Dial, Dialed};
use crate::base::error::Error;
use crate::base::reply;
use crate::connection::dedicated::SHORT_BLOCK;
use crate::connection::route::Server;
use crate::handles::client::Client;
use crate::handles::connect::ClientBuilder;
use crate::handles::lock::Lock;

/// An error of kind [`Invalid`](crate::ErrorKind::Invalid).
pub fn invalid(text: impl Into<String>) -> Error {
    Error::invalid(text)
}

/// The request as redis-rs sends it.
pub fn command<'a>(request: impl Into<Request<'a>>) -> Cmd {
    crate::base::command::command(request)
}

/// Reads a reply.
pub fn read<T: Shape>(from: Value) -> Result<T, Error> {
    reply::read(from)
}

/// Reads a reply that may be Null.
pub fn read_or_null<T: Shape>(from: Value) -> Result<Option<T>, Error> {
    reply::read_or_null(from)
}

/// The reply without what is particular to redis-rs.
pub fn value(from: Value) -> dlock_wire::reply::Value {
    reply::value(from)
}

/// The setting [`ClientBuilder::retry_for`].
pub fn retry_for(client: &Client) -> Duration {
    client.core().ctx.settings.retry_for
}

/// Asks the server that has `key`, until there is an answer or the time is over.
pub async fn ask(
    client: &Client,
    key: &[u8],
    request: &Cmd,
    within: Duration,
) -> Result<Value, Error> {
    client.core().routes.send(key, request, Instant::now() + within).await
}

/// One server of a client.
#[derive(Clone)]
pub struct ServerRef {
    /// `host:port`, or the name of the primary among Sentinels: no other server of the client has it.
    pub name: String,
    server: Arc<Server>,
}

/// Every primary that has keys.
pub fn servers(client: &Client) -> Vec<ServerRef> {
    let servers = client.core().routes.servers().into_iter();
    servers.map(|server| ServerRef { name: server.name.clone(), server }).collect()
}

/// Learns which servers a cluster has.
pub async fn refresh(client: &Client, within: Duration) -> Result<(), Error> {
    client.core().routes.refresh(Instant::now() + within).await
}

/// Asks one server, whatever its keys. Once: what is asked so changes nothing, or must not be done twice. Without a
/// connection to it, it waits for one if `is_patient`, and else fails.
pub async fn ask_server(
    client: &Client,
    server: &ServerRef,
    request: &Cmd,
    is_patient: bool,
) -> Result<Value, Error> {
    let ctx = &client.core().ctx;
    if let Some(error) = ctx.gate.refusal() {
        return Err(error);
    }
    let (until, link) = (ctx.retry_until(), &server.server.link);
    let late = |_| Error::unavailable("no answer in time");
    let mut live = if is_patient {
        link.live(until).await?
    } else {
        timeout_at(until, link.first()).await.map_err(late)??
    };
    let reply = timeout_at(until, live.send(request)).await.map_err(late)?;
    reply.and_then(Value::extract_error).map_err(Error::from_redis)
}

/// Waits until the hold of `lock` with this token has ended, at most `time`. None: it is still in force.
pub async fn await_end(lock: &Lock, token: u64, time: Duration) -> Result<Option<HoldEnd>, Error> {
    let ended = lock.await_end(token, Deadline::after(time), SHORT_BLOCK).await?;
    Ok(ended.map(|ended| ended.how))
}

/// Connects to whatever `dialer` leads to.
pub async fn connect_by(builder: ClientBuilder, dialer: Arc<dyn Dial>) -> Result<Client, Error> {
    builder.connect_by(dialer).await
}

/// The client that `connect` makes, in a runtime of its own.
#[cfg(feature = "blocking")]
pub fn connect_blocking(
    connect: impl Future<Output = Result<Client, Error>>,
) -> Result<crate::blocking::Client, Error> {
    crate::blocking::Client::connected(connect)
}
