//! Walks along a queue, from the front.

use crate::base::ids::{QueueId, WaiterSlot};
use crate::tables::portions::Slots;
use crate::tables::queues::WaitQueues;
use crate::tables::queues::waiter::Waiter;

impl WaitQueues {
    /// The waiters of a queue, from the front.
    pub fn walk(&self, queue: QueueId) -> impl Iterator<Item = (WaiterSlot, &Waiter)> {
        self.walk_from(self.queues.get(queue).map_or(WaiterSlot::NONE, |queue| queue.head))
    }

    /// The waiters of a queue behind the one in `slot`; all of them if there is none.
    pub(crate) fn walk_behind(
        &self,
        queue: QueueId,
        slot: WaiterSlot,
    ) -> impl Iterator<Item = (WaiterSlot, &Waiter)> {
        let head = self.queues.get(queue).map_or(WaiterSlot::NONE, |queue| queue.head);
        self.walk_from(self.waiters.get(slot).map_or(head, |waiter| waiter.next))
    }

    /// Number of waiters in a queue.
    pub fn len_of(&self, queue: QueueId) -> usize {
        self.queues.get(queue).map_or(0, |queue| queue.len)
    }

    /// The waiter in `slot` and those behind it.
    pub(super) fn walk_from(
        &self,
        slot: WaiterSlot,
    ) -> impl Iterator<Item = (WaiterSlot, &Waiter)> {
        let mut slot = slot;
        core::iter::from_fn(move || {
            let here = slot;
            let waiter = self.waiters.get(here)?;
            slot = waiter.next;
            Some((here, waiter))
        })
    }

    /// The waiters in front of the one in `slot`, the nearest first.
    pub fn ahead_of(&self, slot: WaiterSlot) -> impl Iterator<Item = &Waiter> {
        let mut at = self.waiters.get(slot).map_or(WaiterSlot::NONE, |waiter| waiter.prev);
        core::iter::from_fn(move || {
            let waiter = self.waiters.get(at)?;
            at = waiter.prev;
            Some(waiter)
        })
    }

    /// All waiters of `queue`.
    pub(crate) fn waiters_of(&self, queue: QueueId) -> Slots {
        self.walk(queue).map(|(slot, _)| slot).collect()
    }
}
