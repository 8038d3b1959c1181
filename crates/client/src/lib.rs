//! The Rust client of dlock: locks that live in Redis or Valkey.
//!
//! ```
//! # tokio::runtime::Runtime::new().unwrap().block_on(async {
//! # let server = dlock_testing::Server::start();
//! # let url = server.url();
//! let client = dlock_client::Client::connect(&url).await?;
//! let guard = client.lock("orders:7").acquire().await?;
//! println!("ours, with fencing token {}", guard.token());
//! guard.release().await?;
//! # Ok::<(), dlock_client::Error>(()) }).unwrap();
//! ```
//!
//! All decisions are the server's: who is next, what is a re-entry, when a lease is over. This crate asks, waits,
//! keeps holds alive, and tells the holder when a hold is gone.
//!
//! | handle | made by | gives |
//! |---|---|---|
//! | [`Lock`] | [`Client::lock`], [`Client::fair_lock`] | [`Guard`] |
//! | [`RwLock`] | [`Client::rw_lock`] | [`Guard`] |
//! | [`Semaphore`] | [`Client::semaphore`] | [`Permit`] |
//! | [`Latch`] | [`Client::latch`] | |
//! | [`MultiLock`] | [`Client::multi_lock`] | [`MultiGuard`] |
//! | [`AnyLock`] | [`Client::any_lock`], [`Client::striped_lock`] | [`Guard`] |
//! | [`QuorumLock`] | [`QuorumLock::new`], from a client of each server | [`QuorumGuard`] |
//!
//! [`blocking`] has the same without `await`, [`Client::admin`] what operators need.
//!
//! # What to rely on
//!
//! - A hold without a lease of its own is renewed in the background while its guard lives. A process that dies keeps
//!   its locks for one lease ([`ClientBuilder::lease`]), not longer.
//! - A hold that ends by expiry is [lost](Hold::lost) here before it can be somebody else's there: its time is
//!   counted from before the request was sent, on a clock that runs on while the machine is suspended.
//! - No lock can stop a holder that goes on after losing it. Use [`Lock::with`], which cancels the work, and let
//!   whoever receives the work check the [token](Hold::token).
//! - A request whose answer was lost is sent again with the same request id: it never counts twice.
//! - Dropping the future of an acquire leaves the queue; dropping a guard releases it in the background. Both need the
//!   runtime to run on: [`Client::close`] waits for all of it, at the end of a process.
#![forbid(unsafe_code)]
#![deny(missing_docs)]

mod acquire;
pub mod admin;
mod back_off;
pub mod blocking;
mod channel;
mod client;
mod clock;
mod close;
mod command;
mod connect;
mod context;
mod core;
mod deadline;
mod dedicated;
mod error;
mod exchange;
mod gate;
mod guard;
mod hold;
mod hold_ref;
mod hold_state;
mod latch;
mod link;
mod lock;
mod lost;
mod multi;
mod options;
mod quorum;
mod random;
mod registry;
mod route;
mod semaphore;
mod settings;
#[cfg(test)]
mod tests;
mod tracked;
mod url;
mod watchdog;
mod with;

pub use client::Client;
pub use connect::ClientBuilder;
pub use error::{Error, ErrorKind};
pub use guard::{Guard, MultiGuard, Permit};
pub use hold::Hold;
pub use latch::Latch;
pub use lock::{Lock, RwLock};
pub use lost::{Lost, Released};
pub use multi::{AnyLock, MultiLock};
pub use quorum::{QuorumGuard, QuorumLock};
pub use semaphore::Semaphore;
pub use settings::Wait;

/// For [`ClientBuilder::tls`].
#[doc(no_inline)]
pub use redis::{ClientTlsConfig, TlsCertificates};
