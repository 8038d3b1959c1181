//! Holders of the keys that have waiters.
//!
//! The tables cover only keys with a queue: taking and releasing a free lock costs nothing here. The machine updates
//! them whenever a queue begins or a hold of its key changes hands. A former holder may stay listed a little longer,
//! but no holder is missing, except of a key with very many readers: the tick lists those, and searches for cycles
//! once more.

use crate::base::buckets::Chain;
use crate::base::ids::{OwnerSlot, QueueId};
use crate::base::kind::Kind;
use crate::base::slab::{Slab, SlabId};
use crate::tables::portions::{AT_ONCE, LISTED_AT_ONCE};
use crate::tables::queues::WaitQueues;
use crate::tables::queues::owners::hash_owner;
use crate::tables::queues::waiter::Queue;
use crate::value::resource::{Body, Resource};
use crate::value::rw::RwLock;
use core::iter::successors;

impl WaitQueues {
    /// Lists the holders of the key of `queue`. New readers since the last call are those that the resource lists as
    /// touched. `is_new_value`: the value is another one than in the last call.
    pub fn note_holders(&mut self, queue: QueueId, resource: &Resource, is_new_value: bool) {
        let Some(found) = self.queues.get(queue) else { return };
        if found.len == 0
            || !matches!(found.kind, Kind::Lock | Kind::Fair | Kind::Rw)
            || found.observes
        {
            return;
        }
        let holder = resource.lock().hold();
        let holder = holder.map_or(0, |hold| hash_owner(self.keys, &hold.owner));
        self.set_holder(queue, holder);
        self.note_readers(queue, resource, is_new_value);
    }

    /// Lists the readers: for the first waiter and for a new value some of them at once, and the tick the others.
    fn note_readers(&mut self, queue: QueueId, resource: &Resource, is_new_value: bool) {
        let Body::Rw(rw) = &resource.body else { return };
        let Some(found) = self.queues.get(queue) else { return };
        if is_new_value || (found.readers().0 == 0 && !self.is_unlisted(queue)) {
            self.forget_readers(queue);
            self.unlisted.insert(queue, None);
            self.list_readers(queue, rw, LISTED_AT_ONCE);
        } else {
            for hold in rw.readers.touched().iter().filter_map(|&id| rw.readers.get(id)) {
                self.add_reader(queue, hash_owner(self.keys, &hold.owner));
            }
        }
    }

    /// Lists up to `most` of the readers that are not listed yet.
    pub(crate) fn list_readers(&mut self, queue: QueueId, rw: &RwLock, most: usize) {
        let Some(mut last) = self.unlisted.remove(&queue) else { return };
        let mut rest = rw.readers.after(last);
        for (id, hold) in rest.by_ref().take(most) {
            self.add_reader(queue, hash_owner(self.keys, &hold.owner));
            last = Some(id);
        }
        if rest.next().is_some() {
            self.unlisted.insert(queue, last);
        }
    }

    /// A queue some of whose readers are not listed yet.
    pub(crate) fn next_unlisted(&self) -> Option<QueueId> {
        self.unlisted.first_key_value().map(|(&queue, _)| queue)
    }

    /// Whether some of the readers of the key of `queue` are not listed yet.
    pub(crate) fn is_unlisted(&self, queue: QueueId) -> bool {
        self.unlisted.contains_key(&queue)
    }

    /// Whether there are readers to list or to forget.
    pub(crate) fn has_unsettled_readers(&self) -> bool {
        !self.unlisted.is_empty() || !self.forgotten.is_empty()
    }

    /// `owner` no longer reads the key of `queue`.
    pub fn stopped_reading(&mut self, queue: QueueId, owner: &[u8]) {
        let reader = hash_owner(self.keys, owner);
        let more = self.queues.get_mut(queue).and_then(|queue| queue.more.as_mut());
        if more.is_some_and(|more| more.readers.remove(&reader)) {
            self.by_reader.remove(&(reader, queue));
        }
    }

    /// The key of `queue` is gone.
    pub fn forget_holders(&mut self, queue: QueueId) {
        self.forget_readers(queue);
        self.set_holder(queue, 0);
    }

    /// Whether `owner` is listed as a holder of the key of `queue`.
    pub(crate) fn knows_holder(&self, queue: QueueId, owner: &[u8]) -> bool {
        self.is_held_by(queue, hash_owner(self.keys, owner))
    }

    /// Whether `owner` holds the key of `queue` exclusively, or as its writer.
    pub(crate) fn is_sole_holder(&self, queue: QueueId, owner: &[u8]) -> bool {
        let holder = self.queues.get(queue).map_or(0, |queue| queue.holder);
        holder != 0 && holder == hash_owner(self.keys, owner)
    }

    /// Whether `owner` reads the key of `queue`.
    pub(crate) fn is_reader(&self, queue: QueueId, owner: &[u8]) -> bool {
        self.reads(queue, hash_owner(self.keys, owner))
    }

    /// Whether the key of `queue` has an exclusive holder or a writer; and that owner, if it waits anywhere.
    pub(crate) fn sole_holder(&self, queue: QueueId) -> (bool, Option<&[u8]>) {
        let holder = self.queues.get(queue).map_or(0, |queue| queue.holder);
        (holder != 0, self.owner_with(holder))
    }

    /// The exclusive holder, or writer, of the key of `queue`, if it waits anywhere.
    pub(crate) fn holder_slot(&self, queue: QueueId) -> Option<OwnerSlot> {
        self.owner_slot_with(self.queues.get(queue)?.holder)
    }

    /// The first reader of the key of `queue` whose hash is at least `from`: its hash, and itself if it waits anywhere.
    pub(crate) fn reader_from(
        &self,
        queue: QueueId,
        from: u64,
    ) -> Option<(u64, Option<OwnerSlot>)> {
        let more = self.queues.get(queue)?.more.as_ref()?;
        let &hash = more.readers.range(from..).next()?;
        Some((hash, self.owner_slot_with(hash)))
    }

    /// The number of readers of the key of `queue`, and those of them that wait anywhere.
    pub(crate) fn readers_of(&self, queue: QueueId) -> (usize, impl Iterator<Item = &[u8]>) {
        let readers = self.queues.get(queue).map(Queue::readers);
        let count = readers.as_ref().map_or(0, |(count, _)| *count);
        let hashes = readers.into_iter().flat_map(|(_, hashes)| hashes);
        (count, hashes.filter_map(|hash| self.owner_with(hash)))
    }

    /// Whether any owner can be waiting for `owner`, as far as this is known in O(1).
    pub fn can_be_awaited(&self, owner: &[u8]) -> bool {
        !self.waiters.is_empty()
            && (self.owner_slot_of(owner).is_some()
                || self.queues_held_by(owner).next().is_some()
                || !self.unlisted.is_empty())
    }

    /// The queues of keys that `owner` holds.
    pub(crate) fn queues_held_by(&self, owner: &[u8]) -> impl Iterator<Item = QueueId> {
        let hash = hash_owner(self.keys, owner);
        let reads = self.by_reader.range((hash, QueueId::FIRST)..=(hash, QueueId::NONE));
        let reads = reads.map(|&(_, queue)| queue).filter(move |&queue| self.reads(queue, hash));
        self.held_alone_by(hash).chain(reads)
    }

    fn reads(&self, queue: QueueId, hash: u64) -> bool {
        let more = self.queues.get(queue).and_then(|queue| queue.more.as_ref());
        more.is_some_and(|more| more.readers.contains(&hash))
    }

    /// Whether the owner with this hash holds the key of a queue.
    fn is_held_by(&self, queue: QueueId, hash: u64) -> bool {
        let holder = self.queues.get(queue).map_or(0, |queue| queue.holder);
        hash != 0 && (holder == hash || self.reads(queue, hash))
    }

    fn held_alone_by(&self, hash: u64) -> impl Iterator<Item = QueueId> {
        let next = |&id: &QueueId| self.queues.get(id).map(|queue| queue.of_holder.1);
        successors(self.first_of(hash), next).take_while(|&id| id != QueueId::NONE)
    }

    /// Whether each queue whose key has an exclusive holder is in the list of that holder.
    pub(crate) fn lists_of_holders_are_whole(&self) -> bool {
        let holder_of = |id: QueueId| self.queues.get(id).map_or(0, |queue| queue.holder);
        let rightly_listed = |first: QueueId| {
            let holder = holder_of(first);
            self.held_alone_by(holder).filter(|&id| holder_of(id) == holder).count()
        };
        let is_first = |queue: &Queue| queue.holder != 0 && queue.of_holder.0 == QueueId::NONE;
        let firsts = || self.queues.iter().filter(|(_, queue)| is_first(queue)).map(|(id, _)| id);
        let listed: usize = firsts().map(rightly_listed).sum();
        listed == self.queues.iter().filter(|(_, queue)| queue.holder != 0).count()
            && self.by_holder.len() == firsts().count()
    }

    fn first_of(&self, holder: u64) -> Option<QueueId> {
        let is_its = |id| self.queues.get(id).is_some_and(|queue: &Queue| queue.holder == holder);
        let next = |id| self.queues.get(id).map_or(QueueId::NONE, |queue| queue.next_by_holder);
        self.by_holder.find(holder, is_its, next)
    }

    fn set_holder(&mut self, id: QueueId, holder: u64) {
        let Some(old) = self.queues.get(id).map(|queue| queue.holder) else { return };
        if old == holder {
            return;
        }
        if old != 0 {
            self.unlink_holder(id, old);
        }
        if holder != 0 {
            self.changes += 1;
            self.link_holder(id, holder);
        }
    }

    /// Puts the queue at the head of the list of its holder.
    fn link_holder(&mut self, id: QueueId, holder: u64) {
        let next = self.first_of(holder);
        if let Some(next) = next {
            self.by_holder.remove(&mut ByHolder(&mut self.queues), holder, next);
        }
        let next = next.unwrap_or(QueueId::NONE);
        if let Some(next) = self.queues.get_mut(next) {
            next.of_holder.0 = id;
        }
        if let Some(queue) = self.queues.get_mut(id) {
            queue.holder = holder;
            queue.of_holder = (QueueId::NONE, next);
        }
        self.by_holder.insert(&mut ByHolder(&mut self.queues), holder, id);
    }

    /// Removes the queue from that list.
    fn unlink_holder(&mut self, id: QueueId, holder: u64) {
        let Some(queue) = self.queues.get_mut(id) else { return };
        queue.holder = 0;
        let (before, next) =
            core::mem::replace(&mut queue.of_holder, (QueueId::NONE, QueueId::NONE));
        if let Some(next) = self.queues.get_mut(next) {
            next.of_holder.0 = before;
        }
        if let Some(before) = self.queues.get_mut(before) {
            before.of_holder.1 = next;
        } else {
            let mut queues = ByHolder(&mut self.queues);
            self.by_holder.remove(&mut queues, holder, id);
            if next != QueueId::NONE {
                self.by_holder.insert(&mut queues, holder, next);
            }
        }
    }

    fn add_reader(&mut self, id: QueueId, reader: u64) {
        let Some(queue) = self.queues.get_mut(id) else { return };
        if queue.more.get_or_insert_default().readers.insert(reader) {
            self.by_reader.insert((reader, id));
            self.changes += 1;
        }
    }

    /// The key of a queue has no readers any more.
    pub(crate) fn forget_readers(&mut self, id: QueueId) {
        let Some(more) = self.queues.get_mut(id).and_then(|queue| queue.more.as_mut()) else {
            return;
        };
        self.unlisted.remove(&id);
        self.forgotten.push((id, core::mem::take(&mut more.readers)));
        self.forget_some_readers();
    }

    /// Forgets some of the readers of former queues and values; `false` if there are none. Until then searches pass
    /// them over.
    pub(crate) fn forget_some_readers(&mut self) -> bool {
        let Some((queue, mut readers)) = self.forgotten.pop() else { return false };
        for _ in 0..AT_ONCE {
            let Some(reader) = readers.pop_first() else { return true };
            // The number may be that of another queue by now, or the owner may read the key again.
            if !self.reads(queue, reader) {
                self.by_reader.remove(&(reader, queue));
            }
        }
        self.forgotten.push((queue, readers));
        true
    }
}

/// The queues as entries of the table by holder.
struct ByHolder<'a>(&'a mut Slab<QueueId, Queue>);

impl Chain for ByHolder<'_> {
    type Id = QueueId;

    fn hash(&self, id: QueueId) -> u64 {
        self.0.get(id).map_or(0, |queue| queue.holder)
    }

    fn next(&self, id: QueueId) -> QueueId {
        self.0.get(id).map_or(QueueId::NONE, |queue| queue.next_by_holder)
    }

    fn set_next(&mut self, id: QueueId, next: QueueId) {
        if let Some(queue) = self.0.get_mut(id) {
            queue.next_by_holder = next;
        }
    }
}
