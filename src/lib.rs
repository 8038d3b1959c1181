//! The server module of dlock: the shell that Redis and Valkey load.
//!
//! The rules about locks are in `dlock-core`; this crate carries them out inside the server. The
//! way of a call: [`dispatch`] reads it and asks the machine, [`perform`] does what the machine
//! says. What the server does by itself (a client that goes away, a key that is deleted) is noted
//! in [`inbox`] and looked at by [`tick`] or before the next dlock command.
// Nothing here is public: a server loads it. Its documentation is for those who work on it.
#![allow(rustdoc::private_intra_doc_links)]
#![deny(missing_docs)]
#![deny(unsafe_code)]

mod cluster;
mod command;
mod config;
mod dispatch;
#[allow(unsafe_code, missing_docs)]
mod ffi;
mod inbox;
mod info;
mod keyspace;
mod numbers;
mod parking;
mod perform;
mod permit_id;
mod persist;
mod shell;
mod tick;
