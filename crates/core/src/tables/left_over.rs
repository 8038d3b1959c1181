//! Work left to later turns, where it touches several tables.

use crate::base::ids::{WaiterId, WaiterSlot};
use crate::base::key::Key;
use crate::base::kind::Kind;
use crate::base::slab::SlabId;
use crate::tables::Tables;
use crate::tables::portions::Slots;
use crate::value::spent::{Print, RequestKey, Use};

impl Tables {
    /// Marks the queues dirty in which a connection has waiters: the first of them now, and the rest in the tick. With
    /// `wide_only` it leaves out queues of locks for one holder.
    pub(crate) fn mark_queues_dirty(&mut self, client: u64, wide_only: bool) {
        self.pending.to_mark_dirty.retain(|&(other, ..)| other != client);
        self.pending.to_mark_dirty.push_front((client, WaiterSlot::FIRST, wide_only));
        self.mark_more_dirty();
    }

    /// Continues with that; `false` if nothing is left.
    pub(crate) fn mark_more_dirty(&mut self) -> bool {
        let Some((client, from, wide_only)) = self.pending.to_mark_dirty.pop_front() else {
            return false;
        };
        let Some(connection) = self.connections.get(client) else { return true };
        let mut waiters = connection.waiters.range(from..).copied();
        let some: Slots = waiters.by_ref().take(self.wide_at_once).collect();
        if let Some(next) = waiters.next() {
            self.pending.to_mark_dirty.push_back((client, next, wide_only));
        }
        for slot in some {
            let Some(queue) = self.waits.get(slot).map(|waiter| waiter.queue) else { continue };
            let kind = self.waits.queue(queue).map(|queue| queue.kind);
            if !wide_only || matches!(kind, Some(Kind::Rw | Kind::Semaphore)) {
                self.waits.mark_dirty(queue);
            }
        }
        true
    }

    /// Notes a value under this key for `revisit_one`: it is found although databases are swapped before.
    pub(crate) fn revisit_later(&mut self, db: u32, name: &[u8]) {
        self.pending.revisit.push_back((self.leases.home(db), name.to_vec()));
    }

    /// Whether memory of former tables or flushed databases is not freed yet.
    pub(crate) fn has_debris(&self) -> bool {
        !self.pending.debris.is_empty() || self.leases.has_void() || self.connections.has_void()
    }

    /// Whether a blocked call has no answer yet, for tests.
    pub fn owes_answer(&self, id: WaiterId) -> bool {
        let tables = self.pending.former.iter().map(|former| &former.waits);
        let mut tables = tables.chain([&self.waits]);
        tables.any(|waits| waits.by_id(id).is_some_and(|waiter| waiter.wait_state.is_parked()))
    }

    /// Number of values for whose holds something is left to do, and one for memory that is not freed.
    pub fn removed_values(&self) -> usize {
        self.pending.deleted.len() + self.pending.broken.len() + usize::from(self.has_debris())
    }

    /// What a request did to a broken reader.
    pub(crate) fn find_broken(&self, key: Key<'_>, name: RequestKey<'_>) -> Option<Use> {
        let broken = self.pending.broken.iter().filter(|broken| broken.key() == key);
        broken.filter(|_| self.settings.remembers_requests()).find_map(|broken| broken.find(name))
    }

    /// The requests of all broken readers, by fingerprint.
    pub(crate) fn requests_of_broken(&self) -> impl Iterator<Item = (Print, Use)> {
        let broken = self.pending.broken.iter().filter(|_| self.settings.remembers_requests());
        broken.flat_map(|broken| broken.requests(self.spent.prints()))
    }
}
