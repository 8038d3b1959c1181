//! Walks along a queue, in order of service.

use super::WaitQueues;
use crate::ids::{QueueId, WaiterSlot};
use crate::queues::waiter::Waiter;

impl WaitQueues {
    /// The waiters of a queue in order of service.
    pub fn walk(&self, queue: QueueId) -> impl Iterator<Item = (WaiterSlot, &Waiter)> {
        self.walk_from(self.queues.get(queue).map_or(WaiterSlot::NONE, |queue| queue.head))
    }

    /// The same with the waiters that are gone.
    pub(crate) fn walk_all(&self, queue: QueueId) -> impl Iterator<Item = (WaiterSlot, &Waiter)> {
        self.walk_all_from(self.queues.get(queue).map_or(WaiterSlot::NONE, |queue| queue.head))
    }

    /// Whether a queue has waiters.
    pub fn has_waiters(&self, queue: QueueId) -> bool {
        self.walk(queue).next().is_some()
    }

    /// Number of waiters in a queue. O(1), except while gone waiters are not removed: then it walks along the queue.
    pub fn len_of(&self, queue: QueueId) -> usize {
        match self.gone {
            0 => self.queues.get(queue).map_or(0, |queue| queue.len),
            _ => self.walk(queue).count(),
        }
    }

    /// The waiter in `slot` and those behind it.
    pub(super) fn walk_from(
        &self,
        slot: WaiterSlot,
    ) -> impl Iterator<Item = (WaiterSlot, &Waiter)> {
        self.walk_all_from(slot).filter(|(_, waiter)| !self.is_gone(waiter))
    }

    fn walk_all_from(&self, slot: WaiterSlot) -> impl Iterator<Item = (WaiterSlot, &Waiter)> {
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
        let ahead = core::iter::from_fn(move || {
            let waiter = self.waiters.get(at)?;
            at = waiter.prev;
            Some(waiter)
        });
        ahead.filter(|waiter| !self.is_gone(waiter))
    }
}
