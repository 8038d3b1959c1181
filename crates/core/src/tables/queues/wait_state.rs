//! The wait state of a waiter, with its deadlines and its id.

use crate::base::ids::{WaiterId, WaiterSlot};
use crate::base::slab::SlabId;
use crate::tables::queues::WaitQueues;
use crate::tables::queues::waiter::WaitState;
use crate::value::fair::QueueEntry;
use crate::value::hold::NO_CLIENT;
use crate::value::wait_request::WaitRequest;
use alloc::sync::Arc;

impl WaitQueues {
    /// Changes the wait state of a waiter. If it had a blocked call, that call is over, and the waiter gets a new id.
    pub fn set_wait_state(&mut self, slot: WaiterSlot, wait_state: WaitState) {
        self.count_out(slot);
        if let Some(waiter) = self.waiters.get_mut(slot) {
            waiter.wait_state = wait_state;
            if matches!(wait_state, WaitState::Disconnected { .. }) {
                waiter.client = NO_CLIENT;
            }
        }
        self.count_in(slot);
        self.new_id(slot);
        self.arm(slot);
    }

    /// Gives a waiter to a later call of the same owner.
    pub fn take_over(
        &mut self,
        slot: WaiterSlot,
        client: u64,
        wait_state: WaitState,
        ask: WaitRequest,
    ) {
        self.count_out(slot);
        if let Some(waiter) = self.waiters.get_mut(slot) {
            waiter.client = client;
            let (owner, since) = (waiter.owner.clone(), waiter.since);
            waiter.entry = Arc::new(QueueEntry { owner, since, ask });
        }
        self.count_in(slot);
        self.mark_unsaved(slot);
        self.set_wait_state(slot, wait_state);
    }

    pub(super) fn arm(&mut self, slot: WaiterSlot) {
        self.timeouts.disarm(slot);
        self.graces.disarm(slot);
        match self.waiters.get(slot).map(|waiter| waiter.wait_state) {
            Some(WaitState::Blocked { until: Some(until) }) => self.timeouts.arm(slot, until.0),
            Some(WaitState::Disconnected { until }) => self.graces.arm(slot, until.0),
            Some(
                WaitState::Blocked { until: None } | WaitState::GroupMember | WaitState::Connected,
            )
            | None => {}
        }
    }

    pub(super) fn new_id(&mut self, slot: WaiterSlot) {
        self.calls = self.calls.wrapping_add(1);
        self.changes += 1;
        if let Some(waiter) = self.waiters.get_mut(slot) {
            waiter.id = WaiterId(u64::from(self.calls) << 32 | u64::from(slot.number()));
        }
    }
}
