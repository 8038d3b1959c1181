//! The durable half: the value of a key, plain owned data.

pub mod fair;
pub mod hold;
pub mod holds;
pub mod latch;
pub mod resource;
pub mod rw;
pub mod semaphore;
