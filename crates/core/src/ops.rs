//! What clients ask for: one operation a file.

pub(crate) mod acquire;
pub(crate) mod latch;
pub(crate) mod multi;
pub(crate) mod reentry;
pub(crate) mod release;
pub(crate) mod requests;
pub(crate) mod rw;
pub(crate) mod semaphore;
pub(crate) mod wait;
