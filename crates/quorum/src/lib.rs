//! A lock on a majority of several independent servers of dlock, by the Redlock algorithm with fencing tokens.
//!
//! See [`QuorumLock`] for what it promises and what it needs; most applications need [`Client::lock`] instead.
//!
//! [`Client::lock`]: dlock_client::Client::lock
#![forbid(unsafe_code)]
#![deny(missing_docs)]

mod attempt;
#[cfg(feature = "blocking")]
pub mod blocking;
mod driver;
mod guard;
mod lock;
mod tally;
mod view;

pub use crate::guard::{QuorumGuard, QuorumHold};
pub use crate::lock::QuorumLock;
