//! The fake server: the machine of the core behind RESP3 on in-memory streams, on tokio's clock. Its public face is the
//! module `testing`.

mod general;
mod glob;
mod info;
mod keys;
mod perform;
mod resp;
mod server;
mod session;
mod state;

pub use self::server::FakeServer;
