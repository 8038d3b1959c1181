//! Connections that are closed: their waiters have a grace or leave, and their bound holds end soon.

use crate::base::ids::{ALONE, HoldId, WaiterSlot};
use crate::base::time::LeaseInstant;
use crate::step::Step;
use crate::step::end::End;
use crate::step::giving_up::GivesUp;
use crate::tables::Tables;
use crate::tables::portions::AT_ONCE;
use crate::tables::queues::waiter::{Queue, WaitState};
use crate::value::hold::{Hold, NO_CLIENT};
use crate::value::resource::Resource;
use alloc::vec::Vec;

/// Number of waiters that the end of bound holds may serve in one step. After that, the step leaves the other holds to
/// the tick.
const SERVED_BY_SHORTENING: usize = AT_ONCE;

impl Step<'_> {
    /// Processes a waiter whose connection is closed, before the tick reaches it.
    pub(crate) fn process_disconnect_of(&mut self, resource: &Resource, slot: WaiterSlot) -> bool {
        let Some(waiter) = self.tables.waits.get(slot) else { return false };
        let client = waiter.client;
        let Some(at) = self.tables.connections.gone_at(client) else { return false };
        self.observe_giving_up_here(resource, slot, GivesUp::Disconnected);
        self.tables.connections.remove_waiter(client, slot);
        lose_connection(self.tables, slot, at);
        true
    }
}

/// The waiter in `slot` has lost its connection: it is removed, or has a grace. (It is not checked again while it
/// is skipped, so the waiters behind it are served.)
pub(crate) fn lose_connection(tables: &mut Tables, slot: WaiterSlot, lease: LeaseInstant) {
    let Some(waiter) = tables.waits.get(slot) else { return };
    let (queue, client) = (waiter.queue, waiter.client);
    let is_fair = tables.waits.queue(queue).is_some_and(Queue::is_durable);
    match waiter.ask.queue_ms.or(is_fair.then_some(tables.settings.fair_grace_ms)) {
        Some(ms) => {
            tables.connections.unpark(client, slot);
            tables.waits.set_wait_state(slot, WaitState::Disconnected { until: lease + ms });
        }
        None => {
            tables.remove_waiter(slot);
        }
    }
    tables.waits.mark_dirty(queue);
}

impl Step<'_> {
    /// Shortens the leases of a key's holds whose connections are closed: a step shortens some of them, and the
    /// tick the others.
    pub(crate) fn shorten_all_gone(&mut self, resource: &mut Resource) {
        let gone_at = |id: HoldId| {
            let hold = resource.hold(id)?;
            Some((id, self.tables.connections.gone_at(hold.bound_to())?))
        };
        let most = self.tables.wide_at_once;
        let mut gone: Vec<(HoldId, LeaseInstant)> = gone_at(ALONE).into_iter().collect();
        if let Some(others) = resource.others() {
            // Walk over the shorter list: the holds, or the closed connections.
            if others.len() < self.tables.connections.departed() {
                gone.extend(others.iter().filter_map(|(id, _)| gone_at(id)).take(most));
            } else {
                let entry = (self.tables.leases.home(self.key.db), resource.key_id);
                let bindings = self.tables.connections.departed_bindings(entry);
                gone.extend(bindings.filter(|(id, _)| *id != ALONE).take(most));
            }
        }
        for (id, at) in gone {
            // Each of them hands off. The tick continues with the rest.
            if self.served >= SERVED_BY_SHORTENING {
                return;
            }
            self.shorten(resource, id, at);
        }
    }

    /// Shortens the lease of a hold if its connection is closed, before a call on this hold.
    pub(crate) fn shorten_if_gone(&mut self, resource: &mut Resource, id: HoldId) {
        let client = resource.hold(id).map(Hold::bound_to);
        if let Some(at) = client.and_then(|client| self.tables.connections.gone_at(client)) {
            self.shorten(resource, id, at);
        }
    }

    /// Shortens the lease of a hold whose connection closed at `at`; ends the hold if no time is left.
    pub(crate) fn shorten(&mut self, resource: &mut Resource, id: HoldId, at: LeaseInstant) {
        // Another connection may have bound it, or its lease may be shortened already.
        let Some(hold) = resource.hold(id) else { return };
        let is_gone = self.tables.connections.gone_at(hold.bound_to()).is_some();
        let Some(binding) = hold.binding().filter(|_| is_gone) else { return };
        if self.tables.in_flight.is_on_the_way(self.key, id, hold.token, binding.client) {
            // It is rolled back, not shortened.
            return;
        }
        let hold_ref = self.tables.leases.hold_ref(resource.key_id, id);
        self.tables.connections.unbind_hold(hold_ref, hold);
        let end = at + binding.ms;
        let is_shortened = end < hold.deadline;
        resource.change_hold(id, |hold| {
            if let Some(binding) = hold.extras_mut().binding.as_mut() {
                binding.client = NO_CLIENT;
                binding.is_shortened = is_shortened;
            }
            if is_shortened {
                hold.deadline = end;
            }
        });
        if !is_shortened {
            return;
        }
        self.dirty = true;
        if end <= self.lease {
            self.end_hold(resource, id, End::Disconnected);
            self.hand_off(resource);
        }
    }
}
