//! Holders of the keys that have waiters.
//!
//! The tables cover only keys with a queue: taking and releasing a free lock costs nothing here. The machine updates
//! them whenever a queue begins or a hold of its key changes hands. A former holder may stay listed a little longer,
//! but no holder is missing. (One exception: very many readers of a value that comes from elsewhere are listed in
//! portions.)

use super::WaitQueues;
use super::owners::hash_owner;
use crate::buckets::Chain;
use crate::ids::{ALONE, OwnerSlot, QueueId};
use crate::key::Key;
use crate::kind::Kind;
use crate::queues::waiter::Queue;
use crate::slab::{Slab, SlabId};
use crate::state::holds::Holds;
use crate::state::resource::{Body, Resource};
use core::iter::successors;

/// Number of readers that one piece of work lists, of very many.
const NOTED_AT_ONCE: usize = 32;

impl WaitQueues {
    /// Lists the holders of the key of `queue`. New readers since the last call are those that the resource lists as
    /// touched. `is_new_value`: the value is another one than in the last call.
    pub fn note_holders(&mut self, queue: QueueId, resource: &Resource, is_new_value: bool) {
        let Some(found) = self.queues.get(queue) else { return };
        let is_awaited = found.len > 0;
        if !(is_awaited || found.readers().0 > 0 || found.has_readers_to_note())
            || !matches!(found.kind, Kind::Lock | Kind::Fair | Kind::Rw)
            || found.observes
        {
            return;
        }
        if is_awaited {
            let holder = resource.lock().hold();
            let holder = holder.map_or(0, |hold| hash_owner(self.keys, &hold.owner));
            self.set_holder(queue, holder);
        }
        self.note_readers(queue, resource, is_new_value);
    }

    /// Lists some of very many readers; the tick comes back for the others. Until then a deadlock that contains one of
    /// the others is not found.
    fn note_readers(&mut self, queue: QueueId, resource: &Resource, is_new_value: bool) {
        let Body::Rw(rw) = &resource.body else { return };
        let Some(found) = self.queues.get(queue) else { return };
        if is_new_value || (found.readers().0 == 0 && !found.has_readers_to_note()) {
            self.forget_readers(queue);
            if !rw.readers.is_empty()
                && let Some(queue) = self.queues.get_mut(queue)
            {
                queue.more.get_or_insert_default().noted_to = Some(ALONE);
            }
        } else {
            for &id in rw.readers.touched() {
                if let Some(hold) = rw.readers.get(id) {
                    self.add_reader(queue, hash_owner(self.keys, &hold.owner));
                }
            }
        }
        self.note_more_readers(queue, &rw.readers);
    }

    fn note_more_readers(&mut self, queue: QueueId, readers: &Holds) {
        let more = |queues: &Slab<QueueId, Queue>| queues.get(queue)?.more.as_ref()?.noted_to;
        let Some(mut last) = more(&self.queues) else { return };
        let is_long = readers.len() > self.many_readers;
        let mut left = if is_long { self.many_readers.min(NOTED_AT_ONCE) } else { usize::MAX };
        for (id, hold) in readers.after(Some(last)).take(left) {
            self.add_reader(queue, hash_owner(self.keys, &hold.owner));
            (last, left) = (id, left - 1);
        }
        let is_done = left > 0;
        if let Some(more) = self.queues.get_mut(queue).and_then(|queue| queue.more.as_mut()) {
            more.noted_to = (!is_done).then_some(last);
        }
        if !is_done {
            self.mark_dirty(queue);
        }
    }

    /// Keeps a queue without waiters for a key with very many readers, so that the first waiter need not list all of
    /// them. The queue is closed when less than half of them are left, or when the key is gone. `had_many` is the
    /// earlier result of [`WaitQueues::has_many_readers`] for the key.
    pub fn sync_readers(&mut self, key: Key<'_>, resource: &Resource, had_many: bool) {
        let count = resource.others().map_or(0, Holds::len);
        if count >= self.many_readers && resource.kind() == Kind::Rw {
            if self.queue_of(key).is_none() {
                let queue = self.open_queue(key, Kind::Rw);
                self.note_readers(queue, resource, true);
            }
        } else if had_many && let Some(queue) = self.queue_of(key) {
            let has_noted = self.queues.get(queue).is_some_and(|queue| queue.readers().0 > 0);
            if !has_noted || !self.has_many_readers(resource) {
                self.close_if_empty(queue);
            }
        }
    }

    /// A value moved to another key, which has no queue: a queue without waiters, kept for its readers, goes with it.
    pub fn move_readers(&mut self, from: Key<'_>, to: Key<'_>) {
        if let Some(queue) = self.queue_of(from).filter(|&id| self.is_kept_for_readers(id)) {
            self.rename_queue(queue, to);
        }
    }

    /// Whether a queue has no waiters and is kept for the readers of its key.
    pub fn is_kept_for_readers(&self, queue: QueueId) -> bool {
        self.queues.get(queue).is_some_and(|queue| queue.len == 0 && queue.kind == Kind::Rw)
    }

    /// Whether a key has so large a number of readers that it may have a queue without waiters.
    pub fn has_many_readers(&self, resource: &Resource) -> bool {
        let count = resource.others().map_or(0, Holds::len);
        resource.kind() == Kind::Rw && count >= self.many_readers / 2
    }

    /// `owner` no longer reads the key of `queue`.
    pub fn stopped_reading(&mut self, queue: QueueId, owner: &[u8]) {
        let reader = hash_owner(self.keys, owner);
        let more = self.queues.get_mut(queue).and_then(|queue| queue.more.as_mut());
        if more.is_some_and(|more| more.readers.remove(&reader)) {
            self.by_reader.remove(&(reader, queue));
        }
    }

    /// The last waiter left a queue that is kept for the readers of its key.
    pub(super) fn leave_holder(&mut self, queue: QueueId) {
        self.set_holder(queue, 0);
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
        let more = self.queues.get(queue).and_then(|queue| queue.more.as_ref());
        more.is_some_and(|more| more.readers.contains(&hash_owner(self.keys, owner)))
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
            && (self.owner_slot_of(owner).is_some() || self.queues_held_by(owner).next().is_some())
    }

    /// The queues of keys that `owner` holds.
    pub(crate) fn queues_held_by(&self, owner: &[u8]) -> impl Iterator<Item = QueueId> {
        let hash = hash_owner(self.keys, owner);
        let reads = self.by_reader.range((hash, QueueId::FIRST)..=(hash, QueueId::NONE));
        self.held_alone_by(hash).chain(reads.map(|&(_, queue)| queue))
    }

    /// Whether the owner with this hash holds the key of a queue.
    fn is_held_by(&self, queue: QueueId, hash: u64) -> bool {
        self.queues.get(queue).is_some_and(|queue| {
            let reads = || queue.more.as_ref().is_some_and(|more| more.readers.contains(&hash));
            hash != 0 && (queue.holder == hash || reads())
        })
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
        more.noted_to = None;
        let readers = core::mem::take(&mut more.readers);
        if readers.len() > self.many_readers {
            self.former_readers.push_back((id, readers));
            return;
        }
        for reader in readers {
            self.by_reader.remove(&(reader, id));
        }
    }

    /// Removes up to `most` former readers from the table by reader; `false` if there are none. Until then the table
    /// shows waits that do not exist.
    pub fn forget_former_readers(&mut self, most: usize) -> bool {
        let Some((id, readers)) = self.former_readers.front_mut() else { return false };
        let now = self.queues.get(*id).and_then(|queue| queue.more.as_ref());
        let reads = |reader: &u64| now.is_some_and(|more| more.readers.contains(reader));
        for reader in core::iter::from_fn(|| readers.pop_first()).take(most) {
            if !reads(&reader) {
                self.by_reader.remove(&(reader, *id));
            }
        }
        if readers.is_empty() {
            self.former_readers.pop_front();
        }
        true
    }

    /// Whether former readers are left in the table by reader.
    pub fn has_former_readers(&self) -> bool {
        !self.former_readers.is_empty()
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
