//! Waiters left over from a demotion.
//!
//! One step cannot tell a million waiters that this server became a replica. So the demotion sets their tables aside as
//! a whole, and the machine continues with empty ones. From then on no lookup finds, counts or serves a former waiter.
//! The tick answers the blocked former calls, a few at a time, and then frees the tables. A call that ends before its
//! answer (its connection is gone, or an operator unblocks it) is removed by its id or its connection.

use crate::effects::{Effects, Outcome};
use crate::events::answered::told;
use crate::ids::WaiterSlot;
use crate::machine::Machine;
use crate::pending::former::{Former, sent_away};
use crate::portions::PART;
use crate::queues::waiter::WaiterId;
use crate::slab::SlabId;
use crate::state::debris::Debris;
use crate::wheel::Wheel;
use core::mem::take;

impl Machine {
    /// Makes this server a replica. Blocked calls are told to ask elsewhere, queue entries are removed, and leases no
    /// longer end here. O(1); the tick does the rest.
    pub fn demote(&mut self) {
        if !self.regime.demote() {
            return;
        }
        self.pending.former.push_back(Former {
            waits: self.waits.take_all(),
            connections: self.connections.take_all(),
            next: WaiterSlot::FIRST,
        });
        self.pending.ready_groups.clear();
        self.pending.to_mark_dirty.clear();
        self.late = crate::deadlock::LateSearch::default();
        let mut debris = Debris::default();
        let grants = take(&mut self.in_flight).into_values();
        debris.add(grants.flat_map(crate::pending::in_flight::InFlight::into_parts));
        debris.add(take(&mut self.pending.revisit).into_iter());
        debris.add(self.leases.disarm_all().into_iter().flat_map(Wheel::into_parts));
        self.pending.debris.push_back(debris);
    }

    /// Answers some waiters from before a demotion; `false` if there are none.
    pub(crate) fn answer_former(&mut self, fx: &mut Effects) -> bool {
        let Some(former) = self.pending.former.front_mut() else { return false };
        for _ in 0..PART {
            if former.next >= former.waits.slot_bound() {
                break;
            }
            let slot = former.next;
            former.next = slot.following();
            let Some(waiter) = former.waits.strike(slot) else { continue };
            if waiter.wait_state.is_parked() {
                fx.wake(waiter.id, told(&waiter, &sent_away()));
            }
        }
        if former.next >= former.waits.slot_bound()
            && let Some(former) = self.pending.former.pop_front()
        {
            let mut debris = Debris::default();
            former.waits.into_debris(&mut debris);
            former.connections.into_debris(&mut debris);
            self.pending.debris.push_back(debris);
        }
        true
    }

    /// Frees some memory of former tables and of flushed databases; `false` if there is none.
    pub(crate) fn free_some(&mut self) -> bool {
        let Some(first) = self.pending.debris.front_mut() else {
            // Bindings first: another key can get the id of an entry that is free.
            return self.connections.free_some(PART) || self.leases.free_some(PART);
        };
        if !first.free(PART) {
            self.pending.debris.pop_front();
        }
        true
    }

    /// Whether memory of former tables or flushed databases is not freed yet.
    pub(crate) fn has_debris(&self) -> bool {
        !self.pending.debris.is_empty() || self.leases.has_void() || self.connections.has_void()
    }

    /// Whether some waiters from before a demotion have no answer yet.
    pub(crate) fn has_former(&self) -> bool {
        !self.pending.former.is_empty()
    }

    /// The call of a former waiter is over: it gets no answer.
    pub(crate) fn forget_former(&mut self, id: WaiterId) {
        for former in &mut self.pending.former {
            if former.waits.by_id(id).is_some() {
                former.waits.strike(id.slot());
            }
        }
    }

    /// The connection of former waiters is gone, and with it their blocked call.
    pub(crate) fn former_client_gone(&mut self, client: u64) {
        for former in &mut self.pending.former {
            if let Some(slot) = former.call_of(client) {
                former.waits.strike(slot);
            }
        }
    }

    /// Ends the blocked call of a former waiter with this answer. Returns whether there was one.
    pub(crate) fn unblock_former(
        &mut self,
        client: u64,
        outcome: &Outcome,
        fx: &mut Effects,
    ) -> bool {
        let found = self.pending.former.iter_mut().find_map(|former| {
            let waiter = former.waits.strike(former.call_of(client)?)?;
            Some((waiter.id, told(&waiter, outcome)))
        });
        let Some((id, answer)) = found else { return false };
        fx.wake(id, answer);
        true
    }

    /// Whether a blocked call has no answer yet, for tests.
    pub fn owes_answer(&self, id: WaiterId) -> bool {
        let tables = self.pending.former.iter().map(|former| &former.waits);
        let mut tables = tables.chain([&self.waits]);
        tables.any(|waits| waits.by_id(id).is_some_and(|waiter| waiter.wait_state.is_parked()))
    }
}
