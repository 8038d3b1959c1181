//! The durable state of a fair lock: a lock, and who waits for it.

use crate::bytes::Owner;
use crate::queue::Ask;
use crate::resource::Lock;
use crate::time::Instant;
use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;

/// A lock whose queue is part of the key.
///
/// The places mirror the queue of the key: the machine brings them in line whenever it looks at
/// the key. They outlive the process, the queue does not.
#[derive(Debug)]
pub struct Fair {
    /// The lock.
    pub lock: Lock,
    /// Those who wait, by their sequence number: the order of service.
    /// Boxed, because most queues are short and a node of the map has room for eleven.
    pub places: BTreeMap<u64, Box<Place>>,
    /// Serial number of the queue that `places` mirrors; 0 for none.
    pub mirrors: u64,
    /// Places that came, went or changed since the last record.
    pub touched: Vec<u64>,
    /// Very many places went since the last record: the next one tells the whole state.
    pub is_anew: bool,
}

/// A durable place in a queue.
#[derive(Debug, Clone)]
pub struct Place {
    /// Who waits.
    pub owner: Owner,
    /// Since when.
    pub since: Instant,
    /// For what.
    pub ask: Ask,
}

impl Fair {
    /// One that nobody holds or waits for.
    pub fn free() -> Self {
        let (places, touched) = (BTreeMap::new(), Vec::new());
        Self { lock: Lock::Free, places, mirrors: 0, touched, is_anew: false }
    }

    /// Bytes on the heap.
    pub fn heap_size(&self) -> usize {
        let entry = size_of::<Place>() + 2 * size_of::<u64>();
        let lock = self.lock.hold().map_or(0, crate::hold::Hold::heap_size);
        let rest: usize =
            self.places.values().map(|place| place.owner.heap_size() + place.ask.heap_size()).sum();
        size_of::<Self>() + lock + self.places.len() * entry * 4 / 3 + rest
    }
}
