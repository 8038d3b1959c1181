//! The durable state of a count-down latch.

use crate::base::time::{LeaseInstant, Millis};
use alloc::boxed::Box;
use alloc::collections::BTreeSet;
use alloc::vec::Vec;

/// A latch that is closed. An open one has no key.
#[derive(Debug, Default)]
pub struct Latch {
    /// Countdowns left; 0 when it is open and about to be removed.
    pub count: u32,
    /// The count at the start.
    pub initial: u32,
    /// Its lease, if it has one, in milliseconds: a promoted replica gives it in full.
    pub lease_ms: Option<Millis>,
    /// End of its lease; see [`Hold::deadline`](crate::value::hold::Hold::deadline) for a latch without an entry.
    pub deadline: Option<LeaseInstant>,
    /// Every request id that counted.
    pub requests: BTreeSet<Box<[u8]>>,
    /// Request ids that came since the last record.
    pub requests_new: Vec<Box<[u8]>>,
}

impl Latch {
    /// Bytes on the heap, itself included, extrapolated from `samples` requests.
    pub fn heap_size(&self, samples: usize) -> usize {
        let ids = crate::value::sampled(self.requests.iter().map(|id| id.len()), samples);
        size_of::<Self>() + self.requests.len() * size_of::<Box<[u8]>>() * 4 / 3 + ids
    }
}
