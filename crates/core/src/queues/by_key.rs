//! The queues: lookup by key, opening, closing, and pending work.

use super::WaitQueues;
use super::owners::{ByOwner, hash_waiter};
use crate::buckets::Chain;
use crate::bytes::Name;
use crate::ids::{QueueId, WaiterSlot};
use crate::key::Key;
use crate::kind::Kind;
use crate::queues::waiter::{HashKeys, Queue};
use crate::slab::{Slab, SlabId};
use crate::time::Instant;
use alloc::vec::Vec;
use core::hash::{BuildHasher, Hash, Hasher};

/// Number of queue ids checked in the search for the next dirty queue.
const LOOKS_AT_ONCE: usize = 4_096;

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
        // A call looks its key up several times, and comparing costs less than hashing. A queue that has ended with its
        // key still has that name.
        let last = self.last_found.get();
        if same(last) && self.queues.get(last).is_some_and(Queue::is_live) {
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

    /// All queues, without those that are [dropped](WaitQueues::drop_queue).
    pub fn queues(&self) -> impl Iterator<Item = (QueueId, &Queue)> {
        self.queues.iter().filter(|(_, queue)| !queue.is_dropped)
    }

    /// The length of the longest queue, including gone waiters that are not removed yet.
    pub fn longest(&self) -> usize {
        self.lengths.longest()
    }

    pub(super) fn open_queue(&mut self, key: Key<'_>, kind: Kind) -> QueueId {
        self.add_queue(key, kind, false)
    }

    pub(super) fn add_queue(&mut self, key: Key<'_>, kind: Kind, observes: bool) -> QueueId {
        self.last_serial += 1;
        *self.databases.entry(key.db).or_default() += 1;
        let id = self.queues.insert(Queue {
            kind,
            db: key.db,
            name: Name::from(key.name),
            len: 0,
            calls: 0,
            is_dropped: false,
            first_present: WaiterSlot::NONE,
            serial: self.last_serial,
            is_answered: false,
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
        self.set_backlog(id, 0);
        self.forget_holders(id);
        let Some(queue) = self.queues.get(id) else { return };
        let hash = hash_key(self.keys, queue.key());
        self.by_key.remove(&mut ByKey { keys: self.keys, queues: &mut self.queues }, hash, id);
        self.remove_queue(id);
        self.dirty_queues.remove(&id);
    }

    /// Makes a queue the one of another key, which has none.
    pub(super) fn rename_queue(&mut self, id: QueueId, key: Key<'_>) {
        let Some(queue) = self.queues.get(id) else { return };
        let hash = hash_key(self.keys, queue.key());
        *self.databases.entry(queue.db).or_default() -= 1;
        *self.databases.entry(key.db).or_default() += 1;
        self.by_key.remove(&mut ByKey { keys: self.keys, queues: &mut self.queues }, hash, id);
        if let Some(queue) = self.queues.get_mut(id) {
            (queue.db, queue.name) = (key.db, Name::from(key.name));
        }
        let mut queues = ByKey { keys: self.keys, queues: &mut self.queues };
        self.by_key.insert(&mut queues, hash_key(self.keys, key), id);
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

    /// All waiters have their answer. The queue is no longer found by its key, and its waiters block no others.
    pub fn set_answered(&mut self, id: QueueId) {
        self.set_backlog(id, 0);
        self.forget_holders(id);
        let Some(queue) = self.queues.get_mut(id) else { return };
        queue.is_answered = true;
        if let Some(more) = &mut queue.more {
            // No value mirrors the queue now.
            (more.unsaved, more.untold) = (Vec::new(), WaiterSlot::NONE);
        }
        let hash = hash_key(self.keys, queue.key());
        self.by_key.remove(&mut ByKey { keys: self.keys, queues: &mut self.queues }, hash, id);
        self.dirty_queues.remove(&id);
    }

    /// Removes a queue that is empty.
    pub fn close_if_empty(&mut self, id: QueueId) {
        if self.queues.get(id).is_some_and(|queue| queue.len == 0 && !queue.is_dropped) {
            self.close_queue(id);
        }
    }

    /// Removes a queue that is empty and was kept for the readers of its key.
    pub fn close_if_unused(&mut self, id: QueueId) {
        if self.queues.get(id).is_some_and(|queue| queue.kind == Kind::Rw) {
            self.close_if_empty(id);
        }
    }

    /// Marks `queue` dirty.
    pub fn mark_dirty(&mut self, queue: QueueId) {
        if self.queues.get(queue).is_some_and(Queue::is_live) {
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
        for _ in 0..LOOKS_AT_ONCE {
            let id = self.all_dirty.start;
            if self.all_dirty.is_empty() || noted.is_some_and(|noted| noted < id) {
                break;
            }
            self.all_dirty.start = id.following();
            if noted == Some(id) {
                break;
            }
            if self.queues.get(id).is_some_and(Queue::is_live) {
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
            && queue.is_live()
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

    /// Gives changes back that [`WaitQueues::take_unsaved`] took.
    pub fn put_unsaved(&mut self, queue: QueueId, unsaved: Vec<(u64, WaiterSlot)>) {
        if !unsaved.is_empty()
            && let Some(queue) = self.queues.get_mut(queue)
        {
            queue.more.get_or_insert_default().unsaved = unsaved;
        }
    }

    /// A value begins to mirror a durable queue: all waiters have to be copied to it.
    pub fn tell_all(&mut self, queue: QueueId) {
        if let Some(queue) = self.queues.get_mut(queue)
            && queue.head != WaiterSlot::NONE
        {
            queue.more.get_or_insert_default().untold = queue.head;
        }
    }

    /// The next waiter to copy to the value.
    pub fn next_untold(&mut self, queue: QueueId) -> Option<WaiterSlot> {
        let queue = self.queues.get_mut(queue)?;
        let more = queue.more.as_mut()?;
        let slot = more.untold;
        let Some(waiter) = self.waiters.get(slot) else {
            queue.trim();
            return None;
        };
        more.untold = waiter.next;
        Some(slot)
    }

    /// The waiter in `slot` leaves, so it need not be copied any more.
    pub(super) fn pass_untold(&mut self, slot: WaiterSlot) {
        if let Some(waiter) = self.waiters.get(slot)
            && let Some(more) =
                self.queues.get_mut(waiter.queue).and_then(|queue| queue.more.as_mut())
            && more.untold == slot
        {
            more.untold = waiter.next;
        }
    }

    /// Drops the waiters of this queue together with its key; they are too many for one step. From now on it is not the
    /// queue of its key: the next waiter begins another one. [`WaitQueues::next_dropped`] drains it.
    pub fn drop_queue(&mut self, id: QueueId) {
        self.set_backlog(id, 0);
        self.forget_holders(id);
        let Some(queue) = self.queues.get_mut(id) else { return };
        queue.is_dropped = true;
        queue.more = None;
        let hash = hash_key(self.keys, queue.key());
        self.by_key.remove(&mut ByKey { keys: self.keys, queues: &mut self.queues }, hash, id);
        self.dirty_queues.remove(&id);
        self.dropped.push_back(id);
    }

    /// [`WaitQueues::drop_queue`] except for some of its waiters: they keep their order in a new queue of the key.
    pub fn move_out(&mut self, id: QueueId, stay: &[WaiterSlot]) {
        let Some(queue) = self.queues.get(id) else { return };
        let (kind, db, name) = (queue.kind, queue.db, queue.name.clone());
        self.drop_queue(id);
        if !stay.is_empty() {
            let new = self.open_queue(Key { db, name: &name }, kind);
            for &slot in stay {
                self.move_to(slot, new);
            }
        }
    }

    /// A waiter of a dropped queue; `None` when none is left.
    pub fn next_dropped(&mut self) -> Option<WaiterSlot> {
        while let Some(&id) = self.dropped.front() {
            // Its id is not used again before it is removed here.
            if let Some(queue) = self.queues.get(id).filter(|queue| queue.len > 0) {
                return Some(queue.head);
            }
            self.dropped.pop_front();
            self.remove_queue(id);
        }
        None
    }

    /// Whether any dropped queue has waiters.
    pub fn has_dropped(&self) -> bool {
        !self.dropped.is_empty()
    }

    /// The dropped queues.
    pub fn dropped(&self) -> impl Iterator<Item = (QueueId, &Queue)> {
        self.dropped.iter().filter_map(|&id| Some((id, self.queues.get(id)?)))
    }

    /// Moves a waiter to the end of another queue of the same key: the call behind it continues.
    pub fn move_to(&mut self, slot: WaiterSlot, to: QueueId) {
        self.count_out(slot);
        self.pass_first_present(slot);
        self.pass_untold(slot);
        let Some(waiter) = self.waiters.get(slot) else { return };
        let (from, prev, next) = (waiter.queue, waiter.prev, waiter.next);
        let entry = waiter.entry.clone();
        let owner = &entry.owner;
        self.unlink_from(slot, from, prev, next);
        let mut waiters = ByOwner { keys: self.keys, waiters: &mut self.waiters };
        if !owner.is_empty() {
            self.by_owner.remove(&mut waiters, hash_waiter(self.keys, from, owner), slot);
        }
        let tail = self.queues.get(to).map_or(WaiterSlot::NONE, |queue| queue.tail);
        if let Some(waiter) = self.waiters.get_mut(slot) {
            waiter.queue = to;
            waiter.prev = tail;
            waiter.next = WaiterSlot::NONE;
        }
        if let Some(last) = self.waiters.get_mut(tail) {
            last.next = slot;
        }
        if let Some(queue) = self.queues.get_mut(to) {
            if tail == WaiterSlot::NONE {
                queue.head = slot;
            }
            queue.tail = slot;
            self.lengths.grow(queue.len);
            queue.len += 1;
        }
        if !owner.is_empty() {
            let mut waiters = ByOwner { keys: self.keys, waiters: &mut self.waiters };
            self.by_owner.insert(&mut waiters, hash_waiter(self.keys, to, owner), slot);
        }
        self.count_in(slot);
        self.note_present(slot);
        self.mark_unsaved(slot);
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
