//! The waiters of a call for several keys: one in each queue. One step adds them, and one step removes them.

use crate::effects::{Event, Outcome};
use crate::ids::{GroupId, WaiterSlot};
use crate::kind::Kind;
use crate::machine::Machine;
use crate::queues::waiter::{Demand, NewWaiter, Position, WaitRequest, WaitState};
use crate::state::fair::QueueEntry;
use crate::turn::Turn;
use alloc::collections::BTreeSet;
use alloc::sync::Arc;
use alloc::vec::Vec;
use dlock_wire::request::MAcquire;

impl Machine {
    /// Adds a waiter to every queue and parks the caller.
    pub(crate) fn join_queues(
        &mut self,
        turn: &mut Turn<'_>,
        call: &MAcquire<'_>,
        wait_state: WaitState,
        takes_any: bool,
        kept: Option<GroupId>,
    ) -> Result<Vec<WaiterSlot>, Outcome> {
        if let Some(group) = kept {
            self.keep_waiters(turn, group, call);
        } else {
            let is_new =
                |name: &&[u8]| self.waits.waiter_at(turn.caller.key(name), call.owner).is_none();
            let new: Vec<&[u8]> = call.keys.iter().copied().filter(is_new).collect();
            for name in &new {
                self.has_room(turn.caller.key(name), new.len())?;
            }
            self.evict_all(turn, call);
        }
        let entry =
            |ask| Arc::new(QueueEntry { owner: call.owner.into(), since: turn.now.mono, ask });
        let member = entry(WaitRequest::default());
        let mut members = Vec::with_capacity(call.keys.len());
        for &name in call.keys {
            let key = turn.caller.key(name);
            // The first waiter carries the arguments of the call.
            let (wait_state, entry) = if members.is_empty() {
                let terms = self.terms(&call.for_key(name), Demand::Lock, turn.caller.client);
                (wait_state, entry(terms.to_wait_request()))
            } else {
                (WaitState::GroupMember, member.clone())
            };
            let slot = if let Some(slot) = self.waits.waiter_at(key, call.owner) {
                self.waits.take_over(slot, turn.caller.client, wait_state, entry.ask.clone());
                slot
            } else {
                let new_waiter = NewWaiter {
                    entry,
                    client: turn.caller.client,
                    wait_state,
                    position: Position::Back,
                };
                self.waits.join(key, Kind::Lock, new_waiter)
            };
            self.note_wait_for(turn.keys, key);
            turn.fx.note(key, Event::Wait);
            members.push(slot);
        }
        if let Some(&first) = members.first() {
            turn.fx.parked = self.note_waiter(first);
        }
        self.waits.unite(members.clone(), takes_any);
        Ok(members)
    }

    /// An earlier call is over; its waiters for the keys of this one stay.
    fn keep_waiters(&mut self, turn: &mut Turn<'_>, group: GroupId, call: &MAcquire<'_>) {
        let place = |name: &&[u8]| self.waits.waiter_at(turn.caller.key(name), call.owner);
        let wanted: BTreeSet<WaiterSlot> = call.keys.iter().filter_map(place).collect();
        if let (Some(&name), Some(&slot)) = (call.keys.first(), wanted.first()) {
            self.tell_replaced(turn.caller.key(name), slot, call.reqid, turn.fx);
        }
        self.remove_group(group, |slot| wanted.contains(&slot));
    }

    /// Ends earlier waits of the owner for any of the keys.
    pub(crate) fn evict_all(&mut self, turn: &mut Turn<'_>, call: &MAcquire<'_>) {
        for &name in call.keys {
            let key = turn.caller.key(name);
            if let Some(slot) = self.waits.waiter_at(key, call.owner) {
                self.evict(key, slot, call.reqid, turn.fx);
            }
        }
    }

    /// The same for blocked calls, and for the waiter at the key that is taken.
    pub(crate) fn evict_blocked(&mut self, turn: &mut Turn<'_>, call: &MAcquire<'_>, taken: &[u8]) {
        for &name in call.keys {
            let key = turn.caller.key(name);
            if let Some(slot) = self.waits.waiter_at(key, call.owner)
                && let Some(waiter) = self.waits.get(slot)
                && (name == taken || self.waits.leader(waiter).wait_state.is_parked())
            {
                self.evict(key, slot, call.reqid, turn.fx);
            }
        }
    }
}
