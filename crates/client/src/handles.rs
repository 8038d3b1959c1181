//! What users see: clients, locks, guards.

pub(crate) mod client;
mod close;
pub(crate) mod connect;
pub(crate) mod election;
pub(crate) mod guard;
mod handle;
pub(crate) mod latch;
pub(crate) mod lock;
pub(crate) mod multi;
pub(crate) mod owner;
pub(crate) mod semaphore;
pub(crate) mod with;
