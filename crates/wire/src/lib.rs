//! The protocol of dlock: its commands, their arguments and their replies.
//!
//! Everything here is about text on the wire; nothing here knows what a lock is. One table of
//! commands feeds registration, parsing, `COMMAND DOCS`, the client and the reference page, and
//! the tests of this crate hold them together. The crate is `no_std`, depends on itoa alone, and
//! never reads a clock.
//!
//! | module | contents |
//! |---|---|
//! | [`names`] | limits, channel names, names of keyspace events |
//! | [`table`] | one [`table::Command`] row per command, with its arguments, key use, ACL categories and texts |
//! | [`parse()`] | reads the call of a client, on the server's side |
//! | [`request`] | requests of clients, which [`request::Request::write`] writes on their side |
//! | [`fault`] | what can be wrong with a call |
//! | [`reply`] | replies: one type per shape, written by the server and read by the client; error codes, quoting |
//! | [`permit`] | permit ids as text |
//! | [`message`] | messages on `NOTIFY` channels, written and parsed |
//! | [`mod@reference`] | the generated page `docs/commands.md` |
//!
//! ```
//! use dlock_wire::request::{LockOp, Op, Request};
//! use dlock_wire::table::{CommandId, LockVerb};
//!
//! let id = CommandId::Lock(LockVerb::Acquire);
//! let args: [&[u8]; 4] = [b"orders:7", b"worker-1", b"px", b"30000"];
//! let Ok(Request::Op(Op::Lock(_, LockOp::Acquire(acquire)))) = dlock_wire::parse(id, &args) else {
//!     unreachable!("the call is well formed");
//! };
//! assert_eq!(acquire.lease_ms, Some(30_000));
//! ```
#![no_std]
#![forbid(unsafe_code)]
#![deny(missing_docs)]

extern crate alloc;
#[cfg(test)]
extern crate std;

mod arg;
mod args;
mod cursor;
pub mod fault;
pub mod message;
pub mod names;
mod parse;
pub mod permit;
pub mod reference;
mod repeated;
pub mod reply;
pub mod request;
pub mod table;

pub use parse::{ParseError, parse};

#[cfg(test)]
mod tests;
