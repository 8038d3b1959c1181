//! The durable state of a fair lock: a lock and its queue entries.

use crate::base::bytes::Owner;
use crate::base::time::Instant;
use crate::value::lock::Lock;
use crate::value::wait_request::WaitRequest;
use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use alloc::vec::Vec;

/// A lock whose queue is part of the key.
///
/// The entries mirror the queue of the key: the machine updates them whenever it opens the key. They outlive the
/// process, the queue does not.
#[derive(Debug)]
pub struct Fair {
    /// The lock.
    pub lock: Lock,
    /// The queue entries by sequence number, in order of service. The waiters of this server share them: an entry is
    /// never changed once it has a waiter.
    pub entries: BTreeMap<u64, Arc<QueueEntry>>,
    /// Serial number of the queue that `entries` mirrors; 0 for none.
    pub mirrors: u64,
    /// Sequence numbers of entries that came, left or changed since the last record.
    pub touched: Vec<u64>,
}

/// The part of a waiter that a fair lock saves: its durable queue entry.
#[derive(Debug, Clone)]
pub struct QueueEntry {
    /// The owner that waits.
    pub owner: Owner,
    /// Start of the wait.
    pub since: Instant,
    /// The arguments of its call.
    pub ask: WaitRequest,
}

impl Fair {
    /// A lock without holder and queue entries.
    pub fn free() -> Self {
        let (entries, touched) = (BTreeMap::new(), Vec::new());
        Self { lock: Lock::Free, entries, mirrors: 0, touched }
    }

    /// Bytes on the heap, extrapolated from `samples` entries.
    pub fn heap_size(&self, samples: usize) -> usize {
        // The reference counts, and the place in the map.
        let entry = size_of::<QueueEntry>() + 4 * size_of::<u64>();
        let lock = self.lock.hold().map_or(0, crate::value::hold::Hold::heap_size);
        let rest = self.entries.values().map(|e| e.owner.heap_size() + e.ask.heap_size());
        let entries = self.entries.len() * entry * 10 / 9;
        size_of::<Self>() + lock + entries + crate::value::sampled(rest, samples)
    }
}
