//! Who holds the keys that somebody waits for.
//!
//! Kept only for keys with a queue: whoever takes a free lock, and gives it back, pays nothing for
//! it. The machine says so whenever a queue begins or a hold of its key changes hands; somebody who
//! holds no more may be noted a little longer, but nobody who holds is missing.

use super::Waits;
use super::owners::hash_owner;
use crate::resource::{Body, Kind, Resource};

impl Waits {
    /// Notes who holds the key of `queue`. Readers that came since the last time are those that the
    /// resource lists as touched; `anew`, if it is not the value that it was then.
    pub fn note_holders(&mut self, queue: u32, resource: &Resource, anew: bool) {
        let Some(found) = self.queues.get(queue) else { return };
        if found.len == 0 || !matches!(found.kind, Kind::Lock | Kind::Fair | Kind::Rw) {
            return;
        }
        let holder = resource.lock().hold().map_or(0, |hold| hash_owner(self.keys, &hold.owner));
        self.set_holder(queue, holder);
        let Body::Rw(rw) = &resource.body else { return };
        let known = self.queues.get(queue).map_or(0, |queue| queue.readers().0);
        if anew || known == 0 {
            self.forget_readers(queue);
            for (_, hold) in rw.readers.iter() {
                self.add_reader(queue, hash_owner(self.keys, &hold.owner));
            }
        } else {
            for &id in rw.readers.touched() {
                if let Some(hold) = rw.readers.get(id) {
                    self.add_reader(queue, hash_owner(self.keys, &hold.owner));
                }
            }
        }
    }

    /// `owner` does not read the key of `queue` any more.
    pub fn stopped_reading(&mut self, queue: u32, owner: &[u8]) {
        let reader = hash_owner(self.keys, owner);
        let more = self.queues.get_mut(queue).and_then(|queue| queue.more.as_mut());
        if more.is_some_and(|more| more.readers.remove(&reader)) {
            self.unlink_reader(queue, reader);
        }
    }

    /// There is nothing under the key of `queue`.
    pub fn forget_holders(&mut self, queue: u32) {
        self.forget_readers(queue);
        self.set_holder(queue, 0);
    }

    /// Whether `owner` is noted as one who holds the key of `queue`.
    pub(crate) fn knows_holder(&self, queue: u32, owner: &[u8]) -> bool {
        let hash = hash_owner(self.keys, owner);
        let known = self.queues.get(queue);
        known.is_some_and(|queue| {
            queue.holder == hash || queue.readers().1.any(|reader| reader == hash)
        })
    }

    /// The queues of keys that the owner with this hash holds.
    pub(super) fn held_by(&self, hash: u64) -> impl Iterator<Item = u32> {
        let alone = self.by_holder.iter_hash(hash).copied();
        let alone = alone.filter(move |&id| self.queues.get(id).is_some_and(|q| q.holder == hash));
        let reads = self.by_reader.iter_hash(hash).filter(move |&&(reader, _)| reader == hash);
        alone.chain(reads.map(|&(_, queue)| queue))
    }

    fn set_holder(&mut self, id: u32, holder: u64) {
        let Some(queue) = self.queues.get_mut(id) else { return };
        let old = core::mem::replace(&mut queue.holder, holder);
        if old == holder {
            return;
        }
        if old != 0 {
            if let Ok(entry) = self.by_holder.find_entry(old, |&other| other == id) {
                entry.remove();
            }
            self.holds_no_more(id, old);
        }
        if holder != 0 {
            let queues = &self.queues;
            self.by_holder
                .insert_unique(holder, id, |&id| queues.get(id).map_or(0, |queue| queue.holder));
            self.came_to_hold(id, holder);
        }
    }

    fn add_reader(&mut self, id: u32, reader: u64) {
        let Some(queue) = self.queues.get_mut(id) else { return };
        if !queue.more.get_or_insert_default().readers.insert(reader) {
            return;
        }
        self.by_reader.insert_unique(reader, (reader, id), |&(reader, _)| reader);
        self.came_to_hold(id, reader);
    }

    fn forget_readers(&mut self, id: u32) {
        let Some(more) = self.queues.get_mut(id).and_then(|queue| queue.more.as_mut()) else {
            return;
        };
        for reader in core::mem::take(&mut more.readers) {
            self.unlink_reader(id, reader);
        }
    }

    fn unlink_reader(&mut self, id: u32, reader: u64) {
        if let Ok(entry) = self.by_reader.find_entry(reader, |&known| known == (reader, id)) {
            entry.remove();
        }
    }
}
