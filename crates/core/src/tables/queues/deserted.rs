//! Queue entries whose connection is closed. In all queues but those of fair locks they are *deserted*. They keep their
//! order, are granted nothing until their owners ask again, and block no other waiter.

use crate::base::ids::{QueueId, WaiterSlot};
use crate::base::shares::User;
use crate::tables::queues::WaitQueues;
use crate::tables::queues::waiter::{Queue, WaitState, Waiter};

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
}
