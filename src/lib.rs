//! The server module of dlock: the shell that Redis and Valkey load.
//!
//! The lock rules are in `dlock-core`; this crate applies them inside the server. [`dispatch`] parses a call, [`turn`]
//! passes it to the machine, [`perform`] carries out the effects. Events of the server (a disconnected client, a
//! deleted key) are noted in [`inbox`]. The next turn processes them, of the loop ([`tick`]) or of a dlock command.
// Nothing here is public: a server loads it. Its documentation is for contributors.
#![allow(rustdoc::private_intra_doc_links)]
#![deny(missing_docs)]
#![deny(unsafe_code)]

mod cluster;
mod config;
mod dispatch;
#[allow(unsafe_code, missing_docs)]
mod ffi;
mod inbox;
mod info;
mod keyspace;
mod notices;
mod numbers;
mod parking;
mod perform;
mod permit_id;
mod persist;
mod reply;
mod round;
mod shell;
mod slot;
mod tick;
mod tried;
mod turn;
mod work;
