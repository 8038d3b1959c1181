//! The Rust client of dlock: locks that live in Redis or Valkey.
//!
//! # Five minutes
//!
//! Start a server with the module (`valkey-server --loadmodule libdlock.so`), connect, and protect some work:
//!
//! ```
//! # tokio::runtime::Runtime::new().unwrap().block_on(async {
//! # let server = dlock_testing::Server::start();
//! # let url = server.url();
//! # async fn write_report(token: u64) -> Result<u64, dlock_client::Error> { Ok(token) }
//! use dlock_client::{Client, ErrorKind};
//! use std::time::Duration;
//!
//! let client = Client::connect(&url).await?; // "redis://127.0.0.1:6379/"
//!
//! // Waits in the queue. The client renews the lock while the guard lives.
//! let guard = client.lock("orders:7").acquire().await?;
//! println!("acquired with fencing token {}", guard.token());
//! guard.release().await?;
//!
//! // Does not wait, or waits for a while: None means "not granted", and is no error.
//! if let Some(guard) = client.lock("orders:7").try_acquire().await? {
//!     assert!(client.lock("orders:7").acquire_timeout(Duration::from_millis(20)).await?.is_none());
//!     guard.release().await?;
//! }
//!
//! // Cancels the work when the lock is lost under it. The token lets the receiver refuse late writes.
//! let done = client.lock("report").with(|hold| async move { write_report(hold.token()).await }).await;
//! match done {
//!     Ok(_) => println!("written"),
//!     Err(error) if matches!(error.kind(), ErrorKind::Lost { .. }) => println!("lost: {error}"),
//!     Err(error) => return Err(error),
//! }
//! client.close().await?;
//! # Ok::<(), dlock_client::Error>(()) }).unwrap();
//! ```
//!
//! # Choose a primitive
//!
//! | to | use | made by | gives |
//! |---|---|---|---|
//! | let one owner at a time work on something | [`Lock`] | [`Client::lock`] | [`Guard`] |
//! | the same, with a queue that survives restarts and failovers | [`Lock`] | [`Client::fair_lock`] | [`Guard`] |
//! | let many read or one write | [`RwLock`] | [`Client::rw_lock`] | [`Guard`] |
//! | let at most *n* work at a time | [`Semaphore`] | [`Client::semaphore`] | [`Permit`] |
//! | wait until *n* things have happened | [`Latch`] | [`Client::latch`] | |
//! | lock several keys together, without deadlock | [`MultiLock`] | [`Client::multi_lock`] | [`MultiGuard`] |
//! | lock any one of several keys | [`AnyLock`] | [`Client::any_lock`], [`Client::striped_lock`] | [`Guard`] |
//! | survive the loss of a server without replicas | `QuorumLock` of the crate `dlock-quorum` | | |
//!
//! Handles of [`Client::new_owner`] share an owner: re-entry and deadlock detection work across the locks of a task.
//! [`blocking`] has the same without `await`. The crate `dlock-admin` is for operators, and `dlock-testing-server` is
//! for unit tests.
//!
//! # Guarantees
//!
//! The server makes all decisions: the order of the queue, re-entry, the end of a lease. The client sends requests,
//! waits, renews holds, and tells the holder when a hold is lost.
//!
//! - The client renews a hold without its own lease in the background while its guard lives. After a process dies, its
//!   locks stay held for one lease ([`ClientBuilder::lease`]).
//! - An expired hold is [lost](Hold::lost) here before another client can acquire the lock: its time counts from before
//!   the request was sent, on a clock that continues while the machine is suspended.
//! - No lock can stop a holder that works on after losing it. Use [`Lock::with`], which cancels the work, and let the
//!   receiver of the work check the [token](Hold::token).
//! - A request whose reply was lost is sent again with the same request id: it counts once.
//! - Dropping the future of an acquire leaves the queue; dropping a guard releases it in the background. Both need a
//!   running runtime: at the end of a process, [`Client::close`] waits for them.
//!
//! # Traces
//!
//! With the feature `tracing`, each acquire is a span `dlock.acquire`, and each hold a span `dlock.hold`, within the
//! span of the caller. Work that [`Lock::with`] runs is inside the span of its hold. Names are those of OpenTelemetry's
//! database conventions where it has some. A quorum lock reports its acquires (`dlock.kind="quorum"`), not its holds. A
//! wait of 250 ms, printed by `tracing-subscriber` (broken into lines here, without time and target):
//!
//! ```text
//! INFO handler:dlock.acquire{otel.kind="client" db.system.name="redis" db.operation.name="DLOCK.ACQUIRE"
//!   dlock.kind="lock" dlock.key="\"door\"" server.address="127.0.0.1:6379" dlock.token=1795433239297107
//!   dlock.outcome="granted" dlock.wait_s=0.251}: close
//! INFO handler:dlock.hold{db.system.name="redis" dlock.kind="lock" dlock.key="\"door\"" dlock.owner="\"bob\""
//!   dlock.token=1795433239297107 dlock.outcome="released" dlock.hold_s=2.0}: close
//! ```
//!
//! | event | level |
//! |---|---|
//! | `hold lost: …` with the reason, inside the span of the hold | warn |
//! | `late renewal`: less than half of the lease was left when it was sent; on time it is two thirds | warn |
//! | `a release in the background failed…`: the hold lasts until its lease ends | warn |
//! | `the connection is lost`, `the server does not answer`, `cannot connect` (later attempts: debug) | warn |
//! | `connected again`, `failover: the Sentinels name another primary`, `slots have moved to another server` | info |
//!
//! # Metrics
//!
//! With the feature `metrics`, the client counts to the recorder of the process: acquires by outcome, wait and hold
//! times, holds, losses by reason, renewals, reconnects. `describe_metrics` documents each of them. Labels never
//! contain keys or owners.
#![forbid(unsafe_code)]
#![deny(missing_docs)]
#![warn(clippy::missing_errors_doc)]

#[macro_use]
mod base;

mod acquire;
#[cfg(feature = "blocking")]
pub mod blocking;
mod handles;
mod hold;
#[doc(hidden)]
pub mod internal;
mod machine;
mod shell;
mod telemetry;
#[cfg(test)]
mod tests;

pub use base::error::{Error, ErrorKind};
pub use base::lost::Lost;
pub use base::settings::Wait;
#[cfg(feature = "tls-rustls")]
pub use base::tls::TlsCertificates;
pub use handles::client::Client;
pub use handles::connect::ClientBuilder;
pub use handles::election::{Election, Leader, Leaders, Leadership};
pub use handles::guard::{Guard, MultiGuard, MultiHold, Permit, PermitHold};
pub use handles::latch::Latch;
pub use handles::lock::{Lock, Once, RwLock};
pub use handles::multi::{AnyLock, MultiLock};
pub use handles::owner::Owner;
pub use handles::semaphore::Semaphore;
pub use hold::Hold;
#[cfg(feature = "metrics")]
pub use telemetry::describe::describe_metrics;

#[doc(inline)]
pub use dlock_wire::reply::HolderInfo;

/// The version of redis-rs whose types this crate takes.
#[cfg(feature = "redis")]
#[doc(no_inline)]
pub use redis;
