//! The durable state of a fair lock: a lock and its queue entries.

use crate::bytes::Owner;
use crate::ids::{QueueId, WaiterSlot};
use crate::queues::waiter::{HashKeys, WaitRequest};
use crate::state::hold::owner_hash;
use crate::state::lock::Lock;
use crate::time::{Instant, LeaseInstant};
use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::sync::Arc;
use alloc::vec::Vec;
use hashbrown::HashMap;

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
    /// The entries that are not waiters yet, while very many are adopted.
    pub backlog: Option<Box<Backlog>>,
    /// Very many entries left since the last record: the next one carries the whole state.
    pub needs_whole_record: bool,
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

/// From this number of entries on, they are found by an index.
const INDEX_FROM: usize = 512;

/// The entries of a loaded value that are not waiters yet. The machine adopts them in portions, in order.
#[derive(Debug)]
pub struct Backlog {
    /// The queue in which they wait. Valid while the value mirrors this queue.
    pub(crate) queue: QueueId,
    /// All entries below this sequence number are waiters.
    pub(crate) next: u64,
    /// Entries above this one came later, as waiters.
    pub(crate) end: u64,
    /// Number of entries that are not waiters yet.
    pub(crate) left: usize,
    /// Entries that were adopted out of order, because their owners asked again.
    pub(crate) early: BTreeSet<u64>,
    /// The waiter of the last entry that was adopted in order.
    pub(crate) last: WaiterSlot,
    /// Sequence numbers by hash of the owner, once a command asked for an owner.
    pub(crate) by_owner: HashMap<u64, u64, HashKeys>,
    /// Start of all graces.
    pub(crate) from: LeaseInstant,
}

impl Backlog {
    /// Its entries, in order.
    pub(crate) fn entries<'f>(
        &'f self,
        fair: &'f Fair,
    ) -> impl Iterator<Item = (u64, &'f Arc<QueueEntry>)> {
        let is_left = |seq: &u64| *seq <= self.end && !self.early.contains(seq);
        let rest = fair.entries.range(self.next..).map(|(seq, entry)| (*seq, entry));
        rest.take_while(|(seq, _)| *seq <= self.end).filter(move |(seq, _)| is_left(seq))
    }

    /// The entry of an owner.
    pub(crate) fn find(&mut self, fair: &Fair, owner: &[u8]) -> Option<(u64, Arc<QueueEntry>)> {
        // To walk over few entries costs less than the index.
        if self.by_owner.is_empty() && self.left > INDEX_FROM {
            let owners: Vec<(u64, u64)> =
                self.entries(fair).map(|(seq, entry)| (owner_hash(&entry.owner), seq)).collect();
            self.by_owner.extend(owners);
        }
        let known = self.by_owner.get(&owner_hash(owner)).copied();
        let is_left = |seq: &u64| *seq >= self.next && !self.early.contains(seq);
        let found = known.filter(is_left).and_then(|seq| Some((seq, fair.entries.get(&seq)?)));
        let found = found.filter(|(_, entry)| *entry.owner == *owner);
        // Two owners can have one hash.
        let is_listed = known.is_none() && !self.by_owner.is_empty();
        let found = found.or_else(|| {
            if is_listed {
                return None;
            }
            self.entries(fair).find(|(_, entry)| *entry.owner == *owner)
        });
        found.map(|(seq, entry)| (seq, entry.clone()))
    }

    /// The first entry that may not be a waiter yet.
    pub(crate) fn next_of(&self, fair: &Fair) -> Option<(u64, Arc<QueueEntry>)> {
        let (&seq, entry) = fair.entries.range(self.next..).next()?;
        (seq <= self.end).then(|| (seq, entry.clone()))
    }
}

impl Fair {
    /// A lock without holder and queue entries.
    pub fn free() -> Self {
        let (entries, touched) = (BTreeMap::new(), Vec::new());
        Self {
            lock: Lock::Free,
            entries,
            mirrors: 0,
            touched,
            backlog: None,
            needs_whole_record: false,
        }
    }

    /// Bytes on the heap, extrapolated from `samples` entries.
    pub fn heap_size(&self, samples: usize) -> usize {
        // The reference counts, and the place in the map.
        let entry = size_of::<QueueEntry>() + 4 * size_of::<u64>();
        let lock = self.lock.hold().map_or(0, crate::state::hold::Hold::heap_size);
        let rest = self.entries.values().map(|e| e.owner.heap_size() + e.ask.heap_size());
        let entries = self.entries.len() * entry * 10 / 9;
        size_of::<Self>() + lock + entries + super::sampled(rest, samples)
    }
}
