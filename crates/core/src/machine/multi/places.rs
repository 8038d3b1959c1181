//! The waiters of a call for several keys: one in each queue. One step adds them, and one step removes them.

use crate::effects::{Effects, Event, Outcome};
use crate::machine::Machine;
use crate::machine::caller::Caller;
use crate::queue::{Ask, Newcomer, Presence, Rank, Want};
use crate::resource::Kind;
use crate::time::Now;
use alloc::collections::BTreeSet;
use alloc::vec::Vec;
use dlock_wire::request::MAcquire;

impl Machine {
    /// Adds a waiter to every queue and parks the caller.
    pub(super) fn stand_in_lines(
        &mut self,
        now: Now,
        caller: Caller,
        call: &MAcquire<'_>,
        (presence, takes_any, kept): (Presence, bool, Option<u32>),
        fx: &mut Effects,
    ) -> Result<Vec<u32>, Outcome> {
        if let Some(group) = kept {
            self.keep_places(group, caller, call, fx);
        } else {
            let is_new = |name: &&[u8]| self.waits.place_at(caller.key(name), call.owner).is_none();
            let new = call.keys.iter().copied().filter(is_new);
            let more = new.clone().count();
            for name in new {
                self.has_room(caller.key(name), more)?;
            }
            self.oust_all(caller, call, fx);
        }
        let mut members = Vec::with_capacity(call.keys.len());
        for &name in call.keys {
            let key = caller.key(name);
            // The first waiter carries the arguments of the call.
            let presence = if members.is_empty() { presence } else { Presence::Member };
            let ask = if members.is_empty() {
                self.ask(&call.for_key(name), Want::Lock)
            } else {
                Ask::default()
            };
            let slot = if let Some(slot) = self.waits.place_at(key, call.owner) {
                self.waits.take_over(slot, caller.client, presence, ask);
                slot
            } else {
                let newcomer = Newcomer {
                    owner: call.owner,
                    client: caller.client,
                    presence,
                    since: now.mono,
                    ask,
                    rank: Rank::Last,
                    counts: !takes_any,
                };
                self.waits.join(key, Kind::Lock, newcomer)
            };
            fx.note(key, Event::Wait);
            members.push(slot);
        }
        if let Some(&first) = members.first() {
            self.connections.add_place(caller.client, first, true);
            fx.parked = self.waits.get(first).map(|waiter| waiter.id);
        }
        self.waits.unite(members.clone(), takes_any);
        Ok(members)
    }

    /// An earlier call is over; its waiters for the keys of this one stay.
    fn keep_places(&mut self, group: u32, caller: Caller, call: &MAcquire<'_>, fx: &mut Effects) {
        let place = |name: &&[u8]| self.waits.place_at(caller.key(name), call.owner);
        let wanted: BTreeSet<u32> = call.keys.iter().filter_map(place).collect();
        if let (Some(&name), Some(&slot)) = (call.keys.first(), wanted.first()) {
            self.tell_replaced(caller.key(name), slot, fx);
        }
        self.dissolve(group, |slot| wanted.contains(&slot));
    }

    /// Ends earlier waits of the owner for any of the keys.
    pub(super) fn oust_all(&mut self, caller: Caller, call: &MAcquire<'_>, fx: &mut Effects) {
        for &name in call.keys {
            let key = caller.key(name);
            if let Some(slot) = self.waits.place_at(key, call.owner) {
                self.oust(key, slot, fx);
            }
        }
    }

    /// The same for blocked calls, and for the waiter at the key that is taken.
    pub(super) fn oust_blocked(
        &mut self,
        caller: Caller,
        call: &MAcquire<'_>,
        taken: &[u8],
        fx: &mut Effects,
    ) {
        for &name in call.keys {
            let key = caller.key(name);
            if let Some(slot) = self.waits.place_at(key, call.owner)
                && let Some(waiter) = self.waits.get(slot)
                && (name == taken || self.waits.leader(waiter).presence.is_parked())
            {
                self.oust(key, slot, fx);
            }
        }
    }
}
