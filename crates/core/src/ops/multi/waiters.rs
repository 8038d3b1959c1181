//! The waiters of a call for several keys: one in each queue. One step adds them, and one step removes them.

use crate::base::ids::{GroupId, WaiterSlot};
use crate::base::kind::Kind;
use crate::ports::effects::{Answer, Event, Outcome};
use crate::ports::turn::Turn;
use crate::step::index;
use crate::tables::Tables;
use crate::tables::queues::waiter::{NewWaiter, Position, WaitState};
use crate::value::fair::QueueEntry;
use crate::value::wait_request::{Demand, WaitRequest};
use alloc::collections::BTreeSet;
use alloc::sync::Arc;
use alloc::vec::Vec;
use dlock_wire::request::MAcquire;

/// Adds a waiter to every queue. Returns the answer to the caller, which is parked, and the waiters.
pub(crate) fn join_queues(
    tables: &mut Tables,
    turn: &mut Turn<'_>,
    call: &MAcquire<'_>,
    wait_state: WaitState,
    takes_any: bool,
    kept: Option<GroupId>,
) -> Result<(Answer, Vec<WaiterSlot>), Outcome> {
    if let Some(group) = kept {
        keep_waiters(tables, turn, group, call);
    } else {
        let is_new =
            |name: &&[u8]| tables.waits.waiter_at(turn.caller.key(name), call.owner).is_none();
        let new: Vec<&[u8]> = call.keys.iter().copied().filter(is_new).collect();
        for name in &new {
            tables.has_room(turn.caller.key(name), new.len())?;
        }
        evict_all(tables, turn, call);
    }
    let entry = |ask| Arc::new(QueueEntry { owner: call.owner.into(), since: turn.now.mono, ask });
    let member = entry(WaitRequest::default());
    let mut members = Vec::with_capacity(call.keys.len());
    for &name in call.keys {
        let key = turn.caller.key(name);
        // The first waiter carries the arguments of the call.
        let (wait_state, entry) = if members.is_empty() {
            let terms =
                tables.settings.terms(&call.for_key(name), Demand::Lock, turn.caller.client);
            (wait_state, entry(terms.to_wait_request()))
        } else {
            (WaitState::GroupMember, member.clone())
        };
        let slot = if let Some(slot) = tables.waits.waiter_at(key, call.owner) {
            tables.waits.take_over(slot, turn.caller.client, wait_state, entry.ask.clone());
            slot
        } else {
            let new_waiter = NewWaiter {
                entry,
                client: turn.caller.client,
                wait_state,
                position: Position::Back,
            };
            tables.waits.join(key, Kind::Lock, new_waiter)
        };
        index::note_wait_for(tables, turn.keys, key);
        turn.fx.note(key, Event::Wait);
        members.push(slot);
    }
    let answer = members.first().map_or(Answer::Now(Outcome::Null), |&first| tables.park(first));
    tables.waits.unite(members.clone(), takes_any);
    Ok((answer, members))
}

/// An earlier call is over; its waiters for the keys of this one stay.
fn keep_waiters(tables: &mut Tables, turn: &mut Turn<'_>, group: GroupId, call: &MAcquire<'_>) {
    let place = |name: &&[u8]| tables.waits.waiter_at(turn.caller.key(name), call.owner);
    let wanted: BTreeSet<WaiterSlot> = call.keys.iter().filter_map(place).collect();
    if let (Some(&name), Some(&slot)) = (call.keys.first(), wanted.first()) {
        tables.tell_replaced(turn.caller.key(name), slot, call.reqid, turn.fx);
    }
    tables.remove_group(group, |slot| wanted.contains(&slot));
}

/// Ends earlier waits of the owner for any of the keys.
pub(crate) fn evict_all(tables: &mut Tables, turn: &mut Turn<'_>, call: &MAcquire<'_>) {
    for &name in call.keys {
        let key = turn.caller.key(name);
        if let Some(slot) = tables.waits.waiter_at(key, call.owner) {
            tables.evict(key, slot, call.reqid, turn.fx);
        }
    }
}

/// The same for blocked calls, and for the waiter at the key that is taken.
pub(crate) fn evict_blocked(
    tables: &mut Tables,
    turn: &mut Turn<'_>,
    call: &MAcquire<'_>,
    taken: &[u8],
) {
    for &name in call.keys {
        let key = turn.caller.key(name);
        if let Some(slot) = tables.waits.waiter_at(key, call.owner)
            && let Some(waiter) = tables.waits.get(slot)
            && (name == taken || tables.waits.leader(waiter).wait_state.is_parked())
        {
            tables.evict(key, slot, call.reqid, turn.fx);
        }
    }
}
