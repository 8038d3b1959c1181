//! The queues: lookup by key, opening, closing, and pending work.

use crate::base::buckets::Chain;
use crate::base::bytes::Name;
use crate::base::hash::HashKeys;
use crate::base::ids::{QueueId, WaiterSlot};
use crate::base::key::Key;
use crate::base::kind::Kind;
use crate::base::slab::{Slab, SlabId};
use crate::base::time::Instant;
use crate::tables::portions::PASSED;
use crate::tables::queues::WaitQueues;
use crate::tables::queues::waiter::Queue;
use alloc::vec::Vec;
use core::hash::{BuildHasher, Hash, Hasher};

impl WaitQueues {
    /// The queue of `key`, if there is one. It can be empty: then the key has not been checked since the last waiter
    /// left.
    pub fn queue_of(&self, key: Key<'_>) -> Option<QueueId> {
        self.find_queue(key, false)
    }

    /// The queue of waiters, or of observers, of `key`.
    pub(super) fn find_queue(&self, key: Key<'_>, observes: bool) -> Option<QueueId> {
        if self.by_key.is_empty() {
            return None;
        }
        let is_same = |queue: &Queue| queue.observes == observes && queue.key() == key;
        let same = |id| self.queues.get(id).is_some_and(is_same);
        // A call looks its key up several times, and comparing costs less than hashing.
        let last = self.last_found.get();
        if same(last) {
            return Some(last);
        }
        let next = |id| self.queues.get(id).map_or(QueueId::NONE, |queue| queue.next_by_key);
        let found = self.by_key.find(hash_key(self.keys, key), same, next);
        self.last_found.set(found.unwrap_or(last));
        found
    }

    /// The next lookup is for the key of this queue: it is compared before any is hashed.
    pub fn expect(&self, id: QueueId) {
        self.last_found.set(id);
    }

    /// The queue under `id`.
    pub fn queue(&self, id: QueueId) -> Option<&Queue> {
        self.queues.get(id)
    }

    /// One above the largest id of a queue: the bound for a walk by id.
    pub fn queue_bound(&self) -> QueueId {
        self.queues.bound()
    }

    /// All queues.
    pub fn queues(&self) -> impl Iterator<Item = (QueueId, &Queue)> {
        self.queues.iter()
    }

    /// The length of the longest queue.
    pub fn longest(&self) -> usize {
        self.lengths.longest()
    }

    pub(super) fn add_queue(&mut self, key: Key<'_>, kind: Kind, observes: bool) -> QueueId {
        self.last_serial += 1;
        *self.databases.entry(key.db).or_default() += 1;
        let id = self.queues.insert(Queue {
            kind,
            db: key.db,
            name: Name::from(key.name),
            len: 0,
            serial: self.last_serial,
            observes,
            head: WaiterSlot::NONE,
            tail: WaiterSlot::NONE,
            holder: 0,
            of_holder: (QueueId::NONE, QueueId::NONE),
            next_by_key: QueueId::NONE,
            next_by_holder: QueueId::NONE,
            more: None,
        });
        let mut queues = ByKey { keys: self.keys, queues: &mut self.queues };
        self.by_key.insert(&mut queues, hash_key(self.keys, key), id);
        id
    }

    /// Gives a queue a serial number that none had before.
    pub fn renew_serial(&mut self, id: QueueId) -> u64 {
        self.last_serial += 1;
        if let Some(queue) = self.queues.get_mut(id) {
            queue.serial = self.last_serial;
        }
        self.last_serial
    }

    pub(super) fn close_queue(&mut self, id: QueueId) {
        self.forget_holders(id);
        let Some(queue) = self.queues.get(id) else { return };
        let hash = hash_key(self.keys, queue.key());
        self.by_key.remove(&mut ByKey { keys: self.keys, queues: &mut self.queues }, hash, id);
        self.remove_queue(id);
        self.dirty_queues.remove(&id);
    }

    fn remove_queue(&mut self, id: QueueId) {
        if let Some(queue) = self.queues.remove(id)
            && let Some(count) = self.databases.get_mut(&queue.db)
        {
            *count -= 1;
        }
    }

    /// Number of queues of keys in this database.
    pub fn queues_in(&self, db: u32) -> usize {
        self.databases.get(&db).copied().unwrap_or(0)
    }

    /// The latch that the waiters of a queue await has opened.
    pub fn set_opened(&mut self, id: QueueId, at: Instant) {
        if let Some(queue) = self.queues.get_mut(id) {
            queue.more.get_or_insert_default().opened = Some(at);
        }
    }

    /// Removes a queue that is empty.
    pub fn close_if_empty(&mut self, id: QueueId) {
        if self.queues.get(id).is_some_and(|queue| queue.len == 0) {
            self.close_queue(id);
        }
    }

    /// Marks `queue` dirty.
    pub fn mark_dirty(&mut self, queue: QueueId) {
        if self.queues.get(queue).is_some() {
            self.dirty_queues.insert(queue);
        }
    }

    /// Whether a queue is dirty: some of its waiters may have to be served.
    pub fn is_dirty(&self, queue: QueueId) -> bool {
        self.dirty_queues.contains(&queue) || self.all_dirty.contains(&queue)
    }

    /// Marks all queues dirty.
    pub fn mark_all_dirty(&mut self) {
        self.all_dirty = QueueId::FIRST..self.queues.bound();
    }

    /// The next dirty queue.
    pub fn next_dirty(&mut self) -> Option<QueueId> {
        let noted = self.dirty_queues.first().copied();
        // Ids without a queue are skipped, a number of them at a time: the next call continues.
        for _ in 0..PASSED {
            let id = self.all_dirty.start;
            if self.all_dirty.is_empty() || noted.is_some_and(|noted| noted < id) {
                break;
            }
            self.all_dirty.start = id.following();
            if noted == Some(id) {
                break;
            }
            if self.queues.get(id).is_some() {
                return Some(id);
            }
        }
        self.dirty_queues.pop_first()
    }

    /// Whether any queue is dirty.
    pub fn has_dirty(&self) -> bool {
        !self.dirty_queues.is_empty() || !self.all_dirty.is_empty()
    }

    /// Notes that a waiter of a durable queue came, left or changed.
    pub(super) fn mark_unsaved(&mut self, slot: WaiterSlot) {
        let Some(waiter) = self.waiters.get(slot) else { return };
        if let Some(queue) = self.queues.get_mut(waiter.queue)
            && queue.is_durable()
        {
            queue.more.get_or_insert_default().unsaved.push((waiter.seq, slot));
        }
    }

    /// Whether a durable queue changed since [`WaitQueues::take_unsaved`].
    pub fn is_unsaved(&self, queue: QueueId) -> bool {
        self.queues.get(queue).is_some_and(Queue::is_unsaved)
    }

    /// The changes of a durable queue since the last call.
    pub fn take_unsaved(&mut self, queue: QueueId) -> Vec<(u64, WaiterSlot)> {
        let Some(queue) = self.queues.get_mut(queue) else { return Vec::new() };
        let unsaved = queue.more.as_mut().map(|more| core::mem::take(&mut more.unsaved));
        queue.trim();
        unsaved.unwrap_or_default()
    }
}

/// The queues as entries of the table by key.
struct ByKey<'a> {
    keys: HashKeys,
    queues: &'a mut Slab<QueueId, Queue>,
}

impl Chain for ByKey<'_> {
    type Id = QueueId;

    fn hash(&self, id: QueueId) -> u64 {
        self.queues.get(id).map_or(0, |queue| hash_key(self.keys, queue.key()))
    }

    fn next(&self, id: QueueId) -> QueueId {
        self.queues.get(id).map_or(QueueId::NONE, |queue| queue.next_by_key)
    }

    fn set_next(&mut self, id: QueueId, next: QueueId) {
        if let Some(queue) = self.queues.get_mut(id) {
            queue.next_by_key = next;
        }
    }
}

fn hash_key(keys: HashKeys, key: Key<'_>) -> u64 {
    let mut hasher = keys.build_hasher();
    key.db.hash(&mut hasher);
    hasher.write(key.name);
    hasher.finish()
}

impl WaitQueues {
    /// Whether waiters of this key may have to be served: an event freed the key, and the tick has not come to it.
    pub fn is_behind(&self, key: Key<'_>) -> bool {
        self.queue_of(key).is_some_and(|queue| self.is_dirty(queue))
    }
}
