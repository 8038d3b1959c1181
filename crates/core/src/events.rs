//! What happens without a call of a client: to connections, to keys, to this server, and as time passes.

pub(crate) mod activity;
pub(crate) mod answered;
pub(crate) mod disconnect;
pub mod diverged;
pub(crate) mod flush;
pub(crate) mod former;
pub mod keyspace;
pub mod lost;
pub(crate) mod removed;
pub mod replay;
pub mod tick;
pub(crate) mod undelivered;
