//! Queue entries whose connection is closed. In all queues but those of fair locks they are *deserted*. They keep their
//! order, are granted nothing until their owners ask again, and block no other waiter.
//!
//! A redeployed client can leave thousands of them at the front of a queue. So a queue knows its first entry that is
//! not deserted, and a grant does not walk over the others.

use super::WaitQueues;
use crate::ids::{QueueId, WaiterSlot};
use crate::queues::waiter::{Queue, WaitState, Waiter};
use crate::shares::User;

impl WaitQueues {
    /// Whether a waiter is skipped until its owner asks again because its connection is closed.
    pub fn is_deserted(&self, waiter: &Waiter) -> bool {
        matches!(waiter.wait_state, WaitState::Disconnected { .. })
            && self.queues.get(waiter.queue).is_some_and(Queue::skips_absent)
    }

    /// Number of deserted waiters. O(users).
    pub fn absent(&self) -> usize {
        self.absent.len()
    }

    /// The first deserted waiter of the ACL user that has the most.
    pub(crate) fn absent_of_largest(&self) -> Option<WaiterSlot> {
        self.absent.first_of_largest().map(|(_, slot)| slot)
    }

    /// The deserted waiters of an ACL user.
    pub(crate) fn absent_of(&self, user: User) -> impl Iterator<Item = WaiterSlot> {
        self.absent.of(user).map(|(_, slot)| slot)
    }

    /// The deserted waiters in a queue.
    pub(crate) fn absent_in(&self, queue: QueueId) -> impl Iterator<Item = WaiterSlot> {
        let walk = (!self.absent.is_empty()).then(|| self.walk(queue));
        let deserted = |(_, waiter): &(WaiterSlot, &Waiter)| self.is_deserted(waiter);
        walk.into_iter().flatten().filter(deserted).map(|(slot, _)| slot)
    }

    /// What does not hold, for the invariants of the machine.
    pub(crate) fn broken_share(&self) -> Option<&'static str> {
        let deserted = self.waiters.iter().filter(|(_, waiter)| self.is_deserted(waiter)).count();
        (deserted != self.absent.len()).then_some("each deserted waiter counts for its user")
    }

    /// The waiter in `slot` is not deserted: it may be the first such waiter of its queue.
    pub(super) fn note_present(&mut self, slot: WaiterSlot) {
        let Some(waiter) = self.waiters.get(slot).filter(|waiter| !self.is_deserted(waiter)) else {
            return;
        };
        let (id, seq) = (waiter.queue, waiter.seq);
        let first = self.queues.get(id).and_then(|queue| self.waiters.get(queue.first_present));
        if first.is_none_or(|first| seq < first.seq)
            && let Some(queue) = self.queues.get_mut(id)
        {
            queue.first_present = slot;
        }
        let known =
            self.queues.get(id).and_then(|queue| Some(queue.more.as_ref()?.behind_skipped.0));
        if let Some(behind) = known
            && self.waiters.get(behind).is_none_or(|behind| seq < behind.seq)
        {
            self.forget_passed(id);
        }
    }

    /// All waiters in front of the one in `slot` are skipped. `activations` is the count of connections that became
    /// active again at that moment.
    pub fn note_skipped(&mut self, queue: QueueId, slot: WaiterSlot, activations: u64) {
        if let Some(queue) = self.queues.get_mut(queue) {
            queue.more.get_or_insert_default().behind_skipped = (slot, activations + 1);
        }
    }

    fn forget_passed(&mut self, queue: QueueId) {
        if let Some(more) = self.queues.get_mut(queue).and_then(|queue| queue.more.as_mut()) {
            more.behind_skipped = (WaiterSlot::NONE, 0);
        }
    }

    /// The waiter in `slot` is removed, or deserted from now on: if it was the first that is not, the next such one is.
    /// Each deserted waiter is passed once, unless its owner comes back.
    pub(super) fn pass_first_present(&mut self, slot: WaiterSlot) {
        let Some(waiter) = self.waiters.get(slot) else { return };
        let (id, mut next) = (waiter.queue, waiter.next);
        if let Some(more) = self.queues.get_mut(id).and_then(|queue| queue.more.as_mut())
            && more.behind_skipped.0 == slot
        {
            more.behind_skipped.0 = next;
        }
        if self.queues.get(id).is_none_or(|queue| queue.first_present != slot) {
            return;
        }
        while let Some(waiter) = self.waiters.get(next).filter(|waiter| self.is_deserted(waiter)) {
            next = waiter.next;
        }
        if let Some(queue) = self.queues.get_mut(id) {
            queue.first_present = next;
        }
    }

    /// The waiters of a queue from the first one on that may count, when connections have become active again
    /// `activations` times.
    pub fn walk_counting(
        &self,
        queue: QueueId,
        activations: u64,
    ) -> impl Iterator<Item = (WaiterSlot, &Waiter)> {
        let found = self.queues.get(queue);
        let more = found.and_then(|queue| queue.more.as_ref());
        let known = more.map(|more| more.behind_skipped).filter(|known| known.1 == activations + 1);
        let first = found.map_or(WaiterSlot::NONE, |queue| queue.first_present);
        self.walk_from(known.map_or(first, |(slot, _)| slot))
    }

    /// The waiters of a queue from the first one on that is not deserted.
    pub fn walk_present(&self, queue: QueueId) -> impl Iterator<Item = (WaiterSlot, &Waiter)> {
        let first = self.queues.get(queue).map_or(WaiterSlot::NONE, |queue| queue.first_present);
        self.walk_from(first)
    }
}
