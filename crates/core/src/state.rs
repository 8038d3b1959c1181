//! The durable half: the value of a key, plain owned data.

pub(crate) mod debris;
pub mod fair;
pub mod hold;
pub mod holds;
pub mod latch;
pub mod lock;
pub mod resource;
pub mod rw;
pub mod semaphore;
