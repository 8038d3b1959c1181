//! Support for the integration tests: real servers that never outlive the test, raw connections that show every byte
//! of a reply, and waiting for states instead of sleeping.
//!
//! A test reads like this:
//!
//! ```no_run
//! use dlock_testing::{Reply as _, SOON, Server};
//!
//! let server = Server::start();
//! let mut holder = server.client();
//! let token = holder.cmd(&["DLOCK.ACQUIRE", "k", "a"]).int();
//! let mut waiter = server.block(&["DLOCK.ACQUIRE", "k", "b", "BLOCK", "0"]);
//! holder.cmd(&["DLOCK.RELEASE", "k", "a"]);
//! assert!(waiter.expect_reply(SOON).int() > token);
//! waiter.client().cmd(&["DLOCK.RELEASE", "k", "b"]);
//! server.left_over_check();
//! ```
//!
//! The environment can change two things: `DLOCK_SERVER` names the server binary (default `redis-server`),
//! `DLOCK_MODULE` an existing build of the module (default: cargo builds it, once per test binary).
//!
//! A test that depends on the version of the server names it, independent of `DLOCK_SERVER`:
//! `Server::of("redis-8.2").start()`. `scripts/servers` knows the names, and `make test-deps` fetches these servers.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::missing_panics_doc,
    clippy::should_implement_trait,
    clippy::return_self_not_must_use,
    reason = "a test that cannot go on stops here and says why"
)]

mod client;
mod cluster;
mod dice;
mod family;
mod kind;
mod module;
mod port;
mod process;
mod proxy;
mod resp;
mod sentinel;
mod server;
pub mod table;
mod tap;
mod tls;
mod value;
mod wait;
mod wallclock;

pub use self::{
    client::{Blocked, Client, Heard, Subscription, words},
    cluster::Nodes,
    dice::Dice,
    family::Family,
    kind::{Binary, Kind},
    module::{
        Profile, cargo, of_commit as module_of_commit, other as other_module, path as module_path,
    },
    process::Guarded,
    proxy::{Cut, Fault, Proxy, Seen, Traffic, Trigger, Way, wire::Wire},
    resp::{encode, frame_len},
    sentinel::{SentinelSetup, Sentinels},
    server::{Server, Setup},
    tap::ReplicaTap,
    tls::Tls,
    value::Reply,
    wait::{LIMIT, SOON, each, wait_until},
    wallclock::WallClock,
};

/// The client library of the harness, for [`args!`].
pub use redis;

/// The arguments of a call as byte strings, from any mix of text, bytes and numbers:
/// `args!["DLOCK.ACQUIRE", key, b"\xff", "PX", 5000]`.
#[macro_export]
macro_rules! args {
    ($($arg:expr),* $(,)?) => {{
        let mut all: Vec<Vec<u8>> = Vec::new();
        $($crate::redis::ToRedisArgs::write_redis_args(&$arg, &mut all);)*
        all
    }};
}
