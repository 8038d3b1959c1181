//! What clients ask for: one operation a file.

pub(crate) mod acquire;
pub(crate) mod await_end;
pub(crate) mod break_holds;
pub(crate) mod call;
pub(crate) mod cancel;
pub(crate) mod fence;
pub(crate) mod latch;
pub(crate) mod multi;
pub(crate) mod reentry;
pub(crate) mod release;
pub(crate) mod renew;
pub(crate) mod rw;
pub(crate) mod semaphore;
pub(crate) mod unblock;
pub(crate) mod wait;
