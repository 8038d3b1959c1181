//! Queues whose databases were flushed or swapped: each is checked once, by a walk or before an operation on its key.

use crate::base::ids::QueueId;
use crate::base::slab::SlabId;
use crate::tables::portions::PASSED;
use crate::tables::queues::WaitQueues;
use crate::tables::queues::waiter::Queue;
use alloc::collections::{BTreeMap, BTreeSet};

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
    /// The next queue of the walk, which goes around: other changes while it walks do not keep it from any queue.
    next: QueueId,
    /// The end of the queues at the last change, and the number of ids below it that it has not passed since.
    bound: QueueId,
    left: u32,
}

impl Default for Changed {
    fn default() -> Self {
        let first = QueueId::FIRST;
        Self { databases: BTreeMap::new(), next: first, bound: first, left: 0 }
    }
}

impl WaitQueues {
    /// All keys of a database (`None`: of all) are gone. O(1) in the number of queues.
    pub fn flushed(&mut self, db: Option<u32>) {
        let serial = self.last_serial;
        let mut has_queues = false;
        for (&used, _) in self.databases.iter().filter(|&(_, &count)| count > 0) {
            if db.is_none_or(|db| db == used) {
                let change = self.changed.databases.entry(used).or_default();
                (change.flushed, change.last) = (serial, serial);
                has_queues = true;
            }
        }
        if has_queues {
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

    /// No value is in a former home of a database any more.
    pub(crate) fn forget_home(&mut self, home: u32) {
        for change in self.changed.databases.values_mut() {
            change.homes.remove(&home);
        }
    }

    fn begin_checks(&mut self) {
        self.changed.bound = self.queues.bound();
        self.changed.left = self.queues.bound().number();
    }

    /// Whether some queues of changed databases may not be checked.
    pub fn has_unchecked(&self) -> bool {
        !self.changed.databases.is_empty()
    }

    /// Whether the database of a queue has changed and the queue is not checked.
    pub fn is_unchecked(&self, queue: &Queue) -> bool {
        let change = self.changed.databases.get(&queue.db);
        change.is_some_and(|change| queue.serial <= change.last)
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

    /// The next queue to check, a number of ids at a time: the inner `None` says that there may be more. `None` at the
    /// end.
    pub fn next_unchecked(&mut self) -> Option<Option<QueueId>> {
        if !self.has_unchecked() {
            return None;
        }
        for _ in 0..PASSED {
            if self.changed.left == 0 {
                self.changed = Changed::default();
                return Some(None);
            }
            if self.changed.next >= self.changed.bound {
                self.changed.next = QueueId::FIRST;
            }
            let id = self.changed.next;
            if self.queues.get(id).is_some_and(|queue| self.is_unchecked(queue)) {
                return Some(Some(id));
            }
            self.changed.next = id.following();
            self.changed.left -= 1;
        }
        Some(None)
    }
}
