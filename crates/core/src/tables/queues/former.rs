//! Wait tables that are set aside as a whole.

use crate::base::ids::WaiterSlot;
use crate::tables::queues::WaitQueues;
use crate::tables::queues::waiter::{Queue, Waiter};
use crate::value::debris::Debris;
use core::iter::once;

impl WaitQueues {
    /// Takes all waiters away. New ids and serial numbers do not repeat the old ones.
    #[must_use]
    pub fn take_all(&mut self) -> Self {
        let mut fresh = Self::new(self.keys);
        fresh.calls = self.calls;
        fresh.last_seq = self.last_seq;
        fresh.last_serial = self.last_serial;
        core::mem::replace(self, fresh)
    }

    /// One above the largest slot of a waiter.
    pub fn slot_bound(&self) -> WaiterSlot {
        self.waiters.bound()
    }

    /// Removes a waiter from tables that were set aside. These tables are not consistent any more, but the remaining
    /// waiters are still found by slot and id.
    pub fn strike(&mut self, slot: WaiterSlot) -> Option<Waiter> {
        self.waiters.remove(slot)
    }

    /// The remains of tables without waiters, to be freed piece by piece.
    pub(crate) fn into_debris(self, debris: &mut Debris) {
        debris.add(self.waiters.into_values());
        debris.add(self.queues.into_values().flat_map(|mut queue: Queue| {
            let more = queue.more.take().map(|more| *more).unwrap_or_default();
            let readers = more.readers.into_iter().map(drop);
            readers.chain(more.wide.into_iter().map(drop)).chain(once(()))
        }));
        debris.add(self.groups.into_values());
        debris.add(self.owners.into_values());
        debris.add(self.plural.into_iter());
        debris.add(self.by_reader.into_iter());
        debris.add(self.forgotten.into_iter().flat_map(|(_, readers)| readers));
        debris.add(self.absent.into_items());
        debris.add(self.dirty_queues.into_iter());
        debris.add(self.timeouts.into_parts());
        debris.add(self.graces.into_parts());
    }
}
