//! Waiters left over from a demotion.
//!
//! One step cannot tell a million waiters that this server became a replica. So the demotion sets their tables aside as
//! a whole, and the machine continues with empty ones. From then on no lookup finds, counts or serves a former waiter.
//! The tick answers the blocked former calls, a few at a time, and then frees the tables. A call that ends before its
//! answer (its connection is gone, or an operator unblocks it) is removed by its id or its connection.

use crate::base::ids::WaiterSlot;
use crate::base::slab::SlabId;
use crate::base::wheel::Wheel;
use crate::ports::effects::Effects;
use crate::step::answered::told;
use crate::tables::Tables;
use crate::tables::pending::former::{Former, sent_away};
use crate::tables::portions::PART;
use crate::value::debris::Debris;
use core::mem::take;

/// Makes this server a replica. Blocked calls are told to ask elsewhere, queue entries are removed, and leases no
/// longer end here. O(1); the tick does the rest.
pub(crate) fn demote(tables: &mut Tables) {
    if !tables.regime.demote() {
        return;
    }
    tables.pending.former.push_back(Former {
        waits: tables.waits.take_all(),
        connections: tables.connections.take_all(),
        next: WaiterSlot::FIRST,
    });
    tables.pending.ready_groups.clear();
    tables.pending.to_mark_dirty.clear();
    tables.late = crate::tables::late_search::LateSearch::default();
    let mut debris = Debris::default();
    debris.add(tables.in_flight.take_all().flat_map(|grant| grant.parts));
    debris.add(take(&mut tables.pending.revisit).into_iter());
    debris.add(tables.leases.disarm_all().into_iter().flat_map(Wheel::into_parts));
    tables.pending.debris.push_back(debris);
}

/// Answers some waiters from before a demotion; `false` if there are none.
pub(crate) fn answer_former(tables: &mut Tables, fx: &mut Effects) -> bool {
    let Some(former) = tables.pending.former.front_mut() else { return false };
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
        && let Some(former) = tables.pending.former.pop_front()
    {
        let mut debris = Debris::default();
        former.waits.into_debris(&mut debris);
        former.connections.into_debris(&mut debris);
        tables.pending.debris.push_back(debris);
    }
    true
}

/// Frees some memory of former tables and of flushed databases; `false` if there is none.
pub(crate) fn free_some(tables: &mut Tables) -> bool {
    let Some(first) = tables.pending.debris.front_mut() else {
        // Bindings first: another key can get the id of an entry that is free.
        return tables.connections.free_some(PART) || tables.leases.free_some(PART);
    };
    if !first.free(PART) {
        tables.pending.debris.pop_front();
    }
    true
}
