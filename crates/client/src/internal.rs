//! What the crates `dlock-admin`, `dlock-quorum` and `dlock-testing-server` need of the client beyond its public API.
//! It is for no other crate: any version may change it.

use std::sync::Arc;
use std::time::Duration;

use dlock_wire::reply::HoldEnd;
use tokio::runtime::Handle;

pub use crate::base::clock::{Moment, by_the_clock, follow_tokio, millis, sleep_until};
pub use crate::base::command::command;
pub use crate::base::dialer::{Dial, Dialed};
use crate::base::error::{Error, ErrorKind};
use crate::base::lost::Lost;
pub use crate::base::options::Options;
pub use crate::base::random::{fraction, name as unique_name};
pub use crate::base::reply::{read, read_or_null, value};
use crate::handles::client::Client;
use crate::handles::connect::ClientBuilder;
use crate::handles::lock::Lock;
pub use crate::handles::with::{Holding, lasted, under, verdict};
use crate::machine::Machine;
pub use crate::shell::Core;

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

/// The time of an acquire is over.
pub fn not_acquired() -> Error {
    Error::not_acquired()
}

/// What is released had ended before.
pub fn lost_by_the_end(reason: Lost) -> Error {
    Error::lost_by_the_end(reason)
}

/// The server knows nothing of what is released.
pub fn release_unknown() -> Error {
    Error::release_unknown()
}

/// The error with the keys that it is about, unless it has some already.
pub fn of_keys(error: Error, keys: Vec<Vec<u8>>) -> Error {
    error.of_keys(keys)
}

/// Reports to `tracing` and `metrics` what becomes of an acquire of a quorum lock.
pub async fn report_acquire<T>(
    key: &[u8],
    token: impl FnOnce(&T) -> u64,
    call: impl Future<Output = Result<Option<T>, Error>>,
) -> Result<Option<T>, Error> {
    crate::telemetry::acquiring(None, key, || None, token, call).await
}

/// The setting [`ClientBuilder::retry_for`].
pub fn retry_for(client: &Client) -> Duration {
    client.core().settings.retry_for
}

/// The setting [`ClientBuilder::lease`].
pub fn lease(client: &Client) -> Duration {
    client.core().settings.lease
}

/// Where the background work of the client runs.
pub fn runtime(client: &Client) -> Handle {
    client.core().runtime.clone()
}

/// While it lives, [`Client::close`] waits for it.
pub struct CloseGuard(Arc<Core>);

impl Drop for CloseGuard {
    fn drop(&mut self) {
        self.0.with(|machine, _| machine.cleaned());
    }
}

/// Something begins that takes or releases; kept until nothing of it is left.
pub fn begin_cleanup(client: &Client) -> CloseGuard {
    let core = client.core().clone();
    core.with(|machine, _| machine.begin_cleanup());
    CloseGuard(core)
}

/// Why nothing can be taken any more, if that is so.
pub fn no_admission(client: &Client) -> Option<Error> {
    client.core().with(|machine, _| machine.no_admission())
}

/// Returns when nothing can be taken any more: the client closes, or its runtime ends.
pub async fn closing(client: &Client) {
    client.core().reached(Machine::no_admission).await;
}

/// Waits until the hold of `lock` with this token has ended, at most `time`. None: it is still in force.
pub async fn await_end(lock: &Lock, token: u64, time: Duration) -> Result<Option<HoldEnd>, Error> {
    let ended = lock.await_end(token, Moment::now().after(time)).await?;
    Ok(ended.map(|ended| ended.how))
}

/// Connects to whatever `dialer` leads to.
pub async fn connect_by(builder: ClientBuilder, dialer: Arc<dyn Dial>) -> Result<Client, Error> {
    builder.connect_by(dialer).await
}
