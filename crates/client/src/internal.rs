//! What the crates `dlock-admin`, `dlock-quorum` and `dlock-testing-server` need of the client beyond its public API.
//! It is for no other crate: any version may change it.

use std::sync::Arc;
use std::time::Duration;

use dlock_wire::reply::{HoldEnd, Shape};
use dlock_wire::request::Request;
use redis::{Cmd, Value};
use tokio::runtime::Handle;
use tokio::time::{Instant, timeout_at};

pub use crate::base::clock::{Moment, by_the_clock, follow_tokio, millis, sleep_until};
pub use crate::base::deadline::Deadline;
pub use crate::base::dialer::{Dial, Dialed};
use crate::base::error::{Error, ErrorKind};
use crate::base::gate::Counted;
use crate::base::options::Options;
pub use crate::base::random::{fraction, name as unique_name};
use crate::base::reply;
use crate::connection::dedicated::SHORT_BLOCK;
use crate::connection::route::Server;
use crate::handles::client::Client;
use crate::handles::connect::ClientBuilder;
use crate::handles::lock::Lock;
pub use crate::handles::with::{Holding, lasted, under, verdict};

/// An error of kind [`Invalid`](crate::ErrorKind::Invalid).
pub fn invalid(text: impl Into<String>) -> Error {
    Error::invalid(text)
}

/// An error of that kind.
pub fn error(kind: ErrorKind, text: impl Into<String>) -> Error {
    Error::new(kind, text)
}

/// The client was closed.
pub fn closed() -> Error {
    Error::closed()
}

/// The runtime of the client has ended.
pub fn abandoned() -> Error {
    Error::abandoned()
}

/// The server knows nothing of what is released.
pub fn release_unknown() -> Error {
    Error::release_unknown()
}

/// The error with the keys that it is about, unless it has some already.
pub fn of_keys(error: Error, keys: Vec<Vec<u8>>) -> Error {
    error.of_keys(keys)
}

/// An error for options out of range.
pub fn check_options(
    lease: Option<Duration>,
    max_hold: Option<Duration>,
    label: Option<&Arc<[u8]>>,
) -> Result<(), Error> {
    Options { lease, max_hold, label: label.cloned(), ..Options::default() }.check()
}

/// Reports to `tracing` and `metrics` what becomes of an acquire of a quorum lock.
pub async fn report_acquire<T>(
    key: &[u8],
    token: impl FnOnce(&T) -> u64,
    call: impl Future<Output = Result<Option<T>, Error>>,
) -> Result<Option<T>, Error> {
    crate::telemetry::acquiring(None, key, || None, token, call).await
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

/// The setting [`ClientBuilder::lease`].
pub fn lease(client: &Client) -> Duration {
    client.core().ctx.settings.lease
}

/// Where the background work of the client runs.
pub fn runtime(client: &Client) -> Handle {
    client.core().ctx.runtime.clone()
}

/// While it lives, [`Client::close`] waits for it.
pub struct CloseGuard(#[expect(dead_code, reason = "only its drop counts")] Counted);

/// A call that may take something begins; kept until nothing of it is left.
pub fn begin_call(client: &Client) -> CloseGuard {
    CloseGuard(client.core().ctx.gate.call())
}

/// A release begins; kept until it is done.
pub fn begin_cleanup(client: &Client) -> CloseGuard {
    CloseGuard(client.core().ctx.gate.cleanup())
}

/// Why nothing can be taken any more, if that is so.
pub fn no_admission(client: &Client) -> Option<Error> {
    client.core().ctx.gate.no_admission()
}

/// Returns when nothing can be taken any more: the client closes, or its runtime ends.
pub async fn closing(client: &Client) {
    client.core().ctx.gate.closing().await;
}

/// Returns when the server that has `key` has a connection; an error if it has none in time.
pub async fn connected(client: &Client, key: &[u8], within: Duration) -> Result<(), Error> {
    let Some(server) = client.core().routes.server_of(key) else { return Ok(()) };
    server.link.live(Instant::now() + within).await.map(drop)
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

/// Blocks this thread until the work is done, in the runtime of `client`. Error Invalid in asynchronous code.
#[cfg(feature = "blocking")]
pub fn run_blocking<T>(
    client: &crate::blocking::Client,
    work: impl Future<Output = T>,
) -> Result<T, Error> {
    client.run(work)
}

/// The asynchronous client behind a blocking one.
#[cfg(feature = "blocking")]
pub fn without_blocking(client: &crate::blocking::Client) -> Client {
    client.inner().clone()
}
