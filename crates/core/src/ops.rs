//! What clients ask for: one operation a file.

pub(crate) mod acquire;
mod await_end;
mod break_holds;
pub(crate) mod call;
mod cancel;
mod fence;
pub(crate) mod latch;
pub(crate) mod multi;
pub(crate) mod reentry;
mod release;
mod renew;
mod rw;
pub(crate) mod semaphore;
mod unblock;
pub(crate) mod wait;
