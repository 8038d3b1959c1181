//! What happens without a call of a client: to connections, to keys, to this server, and as time passes.

pub(crate) mod disconnect;
pub mod diverged;
pub(crate) mod former;
pub mod replay;
pub mod tick;
pub(crate) mod undelivered;
