//! What the crate `dlock-testing-server` needs of the client beyond its public API. It is for no other crate: any
//! version may change it.

use std::sync::Arc;

pub use crate::base::clock::follow_tokio;
pub use crate::base::dialer::{Dial, Dialed};
use crate::base::error::Error;
use crate::handles::client::Client;
use crate::handles::connect::ClientBuilder;

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
