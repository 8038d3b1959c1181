//! Waiters that leave their queues.

use crate::base::ids::{GroupId, WaiterSlot};
use crate::ports::effects::{Effects, Outcome};
use crate::tables::Tables;
use crate::tables::queues::waiter::{WaitState, Waiter};
use crate::value::hold::NO_CLIENT;

impl Tables {
    /// The blocked call in `slot` is over and answered.
    pub(crate) fn stop_waiting(&mut self, slot: WaiterSlot) {
        let Some(waiter) = self.waits.get(slot) else { return };
        let (queue, client) = (waiter.queue, waiter.client);
        if waiter.ask.queue_ms.is_some() {
            self.connections.unpark(client, slot);
            self.waits.set_wait_state(slot, WaitState::Connected);
        } else {
            self.remove_waiter(slot);
        }
        self.waits.mark_dirty(queue);
    }

    /// The BLOCK time of the call in `slot` has elapsed.
    pub(crate) fn time_out(&mut self, slot: WaiterSlot, fx: &mut Effects) {
        let Some(waiter) = self.waits.get(slot) else { return };
        fx.wake(waiter.id, Outcome::Null);
        self.counters.timeouts += 1;
        self.stop_waiting(slot);
    }

    /// Removes a waiter from its queue and its connection; for a call for several keys, all of its waiters. Returns the
    /// waiter that represents the call.
    pub(crate) fn remove_waiter(&mut self, slot: WaiterSlot) -> Option<Waiter> {
        let waiter = self.waits.get(slot)?;
        if waiter.is_grouped() {
            return self.remove_group(waiter.group, |_| false);
        }
        let waiter = self.waits.leave(slot)?;
        if waiter.client != NO_CLIENT {
            self.connections.remove_waiter(waiter.client, slot);
        }
        Some(waiter)
    }

    /// Ends a waiting call for several keys. Removes its waiters, except those that stay. Returns the waiter that
    /// represented the call, unless it stays.
    pub(crate) fn remove_group(
        &mut self,
        group: GroupId,
        stays: impl Fn(WaiterSlot) -> bool,
    ) -> Option<Waiter> {
        let first = *self.waits.group(group)?.members.first()?;
        if let Some(client) = self.waits.get(first).map(|waiter| waiter.client) {
            self.connections.remove_waiter(client, first);
        }
        let mut leader = None;
        for slot in self.waits.disband(group) {
            if stays(slot) {
                continue;
            }
            let Some(waiter) = self.waits.leave(slot) else { continue };
            self.waits.mark_dirty(waiter.queue);
            if slot == first {
                leader = Some(waiter);
            }
        }
        leader
    }
}
