//! Queues whose databases were flushed or swapped: each is checked once, by a walk or before an operation on its key.

use super::WaitQueues;
use crate::ids::QueueId;
use crate::queues::waiter::Queue;
use crate::slab::SlabId;
use alloc::collections::{BTreeMap, BTreeSet};

/// Number of queue ids that one piece of the walk passes.
const PASSED_AT_ONCE: usize = 4_096;

/// A database that changed as a whole.
#[derive(Debug, Default)]
struct Change {
    /// The largest serial number of a queue at its last flush; 0 without.
    flushed: u64,
    /// The same, at its last flush or swap.
    last: u64,
    /// The homes that it had before swaps: a value whose waiters are here is in one of them.
    homes: BTreeSet<u32>,
}

/// The databases that changed as a whole, until all of their queues are checked.
#[derive(Debug)]
pub(super) struct Changed {
    databases: BTreeMap<u32, Change>,
    /// The next queue of the walk, and the end of the queues at the last change.
    next: QueueId,
    bound: QueueId,
    /// Queues that were checked before the walk came to them.
    seen: BTreeSet<QueueId>,
}

impl Default for Changed {
    fn default() -> Self {
        Self {
            databases: BTreeMap::new(),
            next: QueueId::FIRST,
            bound: QueueId::FIRST,
            seen: BTreeSet::new(),
        }
    }
}

impl WaitQueues {
    /// All keys of a database (`None`: of all) are gone. O(1) in the number of queues.
    pub fn flushed(&mut self, db: Option<u32>) {
        let used = self.databases.iter().filter(|&(_, &count)| count > 0).map(|(&db, _)| db);
        let flushed: BTreeSet<u32> = used.filter(|used| db.is_none_or(|db| db == *used)).collect();
        for &db in &flushed {
            let serial = self.last_serial;
            let change = self.changed.databases.entry(db).or_default();
            (change.flushed, change.last) = (serial, serial);
        }
        if !flushed.is_empty() {
            self.begin_checks();
        }
    }

    /// A database that had this home was swapped. O(1) in the number of queues.
    pub fn swapped(&mut self, db: u32, home: u32) {
        if self.queues_in(db) > 0 {
            let change = self.changed.databases.entry(db).or_default();
            change.last = self.last_serial;
            change.homes.insert(home);
            self.begin_checks();
        }
    }

    fn begin_checks(&mut self) {
        self.changed.next = QueueId::FIRST;
        self.changed.bound = self.queues.bound();
        self.changed.seen.clear();
    }

    /// Whether some queues of changed databases may not be checked.
    pub fn has_unchecked(&self) -> bool {
        !self.changed.databases.is_empty()
    }

    /// Whether the database of a queue has changed and the queue is not checked.
    pub fn is_unchecked(&self, id: QueueId, queue: &Queue) -> bool {
        self.has_unchecked()
            && self.changed.databases.get(&queue.db).is_some_and(|it| queue.serial <= it.last)
            && id >= self.changed.next
            && !self.changed.seen.contains(&id)
    }

    /// Whether the value of an unchecked queue was flushed.
    pub fn is_flushed(&self, queue: &Queue) -> bool {
        let change = self.changed.databases.get(&queue.db);
        change.is_some_and(|change| queue.serial <= change.flushed)
    }

    /// The homes that may have the former value of an unchecked queue.
    pub fn former_homes(&self, queue: &Queue) -> impl Iterator<Item = u32> {
        let change = self.changed.databases.get(&queue.db);
        change.into_iter().flat_map(|change| change.homes.iter().copied())
    }

    /// A queue is being checked. The same flush does not concern its later waiters.
    pub fn set_checked(&mut self, id: QueueId) {
        if self.queues.get(id).is_some_and(|queue| self.is_flushed(queue)) {
            self.renew_serial(id);
        } else if id >= self.changed.next {
            self.changed.seen.insert(id);
        }
    }

    /// The next queue to check, a number of ids at a time: the inner `None` says that there may be more. `None` at the
    /// end.
    pub fn next_unchecked(&mut self) -> Option<Option<QueueId>> {
        if !self.has_unchecked() {
            return None;
        }
        for _ in 0..PASSED_AT_ONCE {
            let id = self.changed.next;
            if id >= self.changed.bound {
                self.changed = Changed::default();
                return Some(None);
            }
            if self.queues.get(id).is_some_and(|queue| self.is_unchecked(id, queue)) {
                return Some(Some(id));
            }
            self.changed.next = id.following();
            self.changed.seen.remove(&id);
        }
        Some(None)
    }
}
