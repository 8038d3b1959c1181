//! A server of dlock for unit tests, inside the test's own process.
//!
//! [`FakeServer`] decides with the same state machine as the module. Clients talk to it over the same protocol, but
//! through memory instead of a socket. So a test needs no Redis, and nothing outlives it.
//!
//! Its clock is tokio's, and from the first [`FakeServer`] on also that of all clients of the process. Each runtime has
//! its own time: tests in other threads are not affected. A client of a real server measures something else than before
//! only while its own runtime's clock is paused, or the machine is suspended.
//!
//! Under `tokio::time::pause` a test steps time:
//!
//! - `tokio::time::sleep` goes from timer to timer, and renewals and expiries happen when they are due;
//! - `tokio::time::advance` jumps, like a machine that was suspended: leases that end meanwhile are lost.
//!
//! ```
//! # tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap().block_on(async {
//! use std::time::Duration;
//! use dlock_testing_server::FakeServer;
//!
//! let server = FakeServer::start();
//! let (alice, bob) = (server.client().await?, server.client().await?);
//!
//! let guard = alice.lock("report").acquire().await?;
//! // An hour of renewals, in no time.
//! tokio::time::sleep(Duration::from_hours(1)).await;
//! assert!(bob.lock("report").try_acquire().await?.is_none());
//!
//! // The server is gone for longer than the lease.
//! server.set_unavailable(true);
//! guard.lost().await;
//! server.set_unavailable(false);
//! assert!(bob.lock("report").acquire().await?.token() > guard.token());
//! # Ok::<(), dlock_client::Error>(()) }).unwrap();
//! ```
//!
//! The fake is one primary without replicas, users or a disk. It has the commands of dlock, and of the others those
//! that `dlock-client` sends.

#![forbid(unsafe_code)]
#![deny(missing_docs)]

mod general;
mod glob;
mod info;
mod keys;
mod perform;
mod resp;
mod server;
mod session;
mod state;

use std::sync::Arc;

use dlock_client::{Client, ClientBuilder, Error, internal};

pub use crate::server::FakeServer;

impl FakeServer {
    /// A client with the default settings.
    ///
    /// # Errors
    ///
    /// As [`Client::connect`].
    ///
    /// # Cancel safety
    ///
    /// As [`Client::connect`].
    pub async fn client(&self) -> Result<Client, Error> {
        self.connect(Client::builder()).await
    }

    /// A client with these settings.
    ///
    /// # Errors
    ///
    /// As [`Client::connect`].
    ///
    /// # Cancel safety
    ///
    /// As [`Client::connect`].
    pub async fn connect(&self, settings: ClientBuilder) -> Result<Client, Error> {
        internal::connect_by(settings, Arc::new(self.clone())).await
    }

    /// A client without `await`. It has a runtime of its own, whose clock is that of the machine: not for tests that
    /// step time.
    ///
    /// # Errors
    ///
    /// As [`blocking::Client::connect`](dlock_client::blocking::Client::connect).
    #[cfg(feature = "blocking")]
    pub fn blocking_client(&self) -> Result<dlock_client::blocking::Client, Error> {
        dlock_client::blocking::Client::connected(self.client())
    }
}
