//! Several locks at once: all of them, or any one.
//!
//! A call that waits has a place in the queue of each key, taken in one step. It takes all of them
//! at the moment when it is first everywhere; since all such calls stand in the same order in all
//! queues they share, none waits for another in a circle and none is overtaken.

use super::acquire::{
    Asked, Caller, in_quarantine, own_hold, presence_of, refused_in_script, tokens_used_up,
};
use super::holder::{Whose, hold_of};
use super::in_flight::{Given, Part};
use super::{Machine, Step, wrong_type};
use crate::effects::{Effects, Event, Outcome};
use crate::hold::Notify;
use crate::holds::ALONE;
use crate::queue::{Newcomer, Presence, Rank, Waiter, WaiterId, Want};
use crate::resource::{Kind, Lock, Resource};
use crate::store::{Key, Slot, Store};
use crate::time::Now;
use alloc::vec::Vec;
use dlock_wire::reply::ErrorCode;
use dlock_wire::request::{Acquire, MAcquire, MRelease, MRenew, Release};

/// How one key looks to a call for several.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Look {
    /// Its owner has it, and the hold has seen the request id.
    Seen,
    /// Its owner has it.
    Held,
    /// It can be had.
    Open,
    /// It cannot be had now; with `true`, because of a quarantine alone.
    Closed(bool),
}

/// What is about places that the owner has already.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Own {
    /// The call does not wait: they stand in its way as those of others do.
    Counts,
    /// The call takes over the places of an earlier one.
    Stays,
    /// They go when the call waits or is granted.
    Goes,
}

impl Look {
    fn can_be_taken(self) -> bool {
        !matches!(self, Self::Closed(_))
    }
}

impl Machine {
    /// DLOCK.MACQUIRE: all keys or none. The tokens in key order, or Null.
    ///
    /// Each key on its own is as [`Machine::acquire`] says: keys that the owner holds are entered
    /// again. With BLOCK the call waits until it is first in the queues of all keys it does not
    /// hold; earlier waits of the owner for any of them are answered `REPLACED`.
    pub fn macquire<S: Store>(
        &mut self,
        store: &mut S,
        now: Now,
        caller: Caller,
        call: &MAcquire<'_>,
        fx: &mut Effects,
    ) {
        fx.reply = self.take_all(store, now, caller, call, fx);
    }

    /// DLOCK.ANYACQUIRE: one of the keys, as key and token, or Null: one whose hold has seen REQID,
    /// else one that the owner holds (a re-entry), else the first free one, from a start that moves
    /// on with each call. With BLOCK it waits for the first to become free.
    pub fn any_acquire<S: Store>(
        &mut self,
        store: &mut S,
        now: Now,
        caller: Caller,
        call: &MAcquire<'_>,
        fx: &mut Effects,
    ) {
        fx.reply = self.take_any(store, now, caller, call, fx);
    }

    /// `None`: the caller is parked.
    fn take_all<S: Store>(
        &mut self,
        store: &mut S,
        now: Now,
        caller: Caller,
        call: &MAcquire<'_>,
        fx: &mut Effects,
    ) -> Option<Outcome> {
        let (looks, kept) = match self.look_at_all(store, now, caller, (call, false), fx) {
            Ok(found) => found,
            Err(fault) => return Some(fault),
        };
        let presence = presence_of(now, caller, call.block_ms, None);
        if looks.iter().all(|look| look.can_be_taken()) {
            let fresh = looks.iter().filter(|look| **look == Look::Open).count();
            if !self.tokens.has(fresh, now.wall_us) {
                return Some(tokens_used_up());
            }
            if presence.is_some() {
                self.oust_all(caller, call, fx);
            }
            self.counters.grants_at_once += u64::from(fresh > 0);
            return Some(Outcome::Tokens(self.take_each(store, now, caller, call, fx)));
        }
        let Some(presence) = presence else { return Some(refuse(self, now, &looks)) };
        if self.settings.deadlock_detection
            && kept.is_none()
            && let Some(circle) = self.circle_of_all(
                store,
                now,
                call.keys.iter().map(|name| caller.key(name)),
                call.owner,
            )
        {
            self.counters.deadlocks_refused += 1;
            return Some(Outcome::fault(ErrorCode::Deadlock, circle));
        }
        let members = match self.stand_in_lines(now, caller, call, (presence, false, kept), fx) {
            Ok(members) => members,
            Err(fault) => return Some(fault),
        };
        for (&slot, look) in members.iter().zip(&looks) {
            self.waits.set_ready(slot, look.can_be_taken());
        }
        self.note_holders_of_all(store, caller, call);
        None
    }

    fn take_any<S: Store>(
        &mut self,
        store: &mut S,
        now: Now,
        caller: Caller,
        call: &MAcquire<'_>,
        fx: &mut Effects,
    ) -> Option<Outcome> {
        let (looks, kept) = match self.look_at_all(store, now, caller, (call, true), fx) {
            Ok(found) => found,
            Err(fault) => return Some(fault),
        };
        let start = self.any_start % looks.len().max(1);
        self.any_start = self.any_start.wrapping_add(1);
        let first = |wanted: Look| looks.iter().position(|look| *look == wanted);
        let open = (start..looks.len()).chain(0..start);
        let open = || open.clone().find(|&at| looks.get(at) == Some(&Look::Open));
        let chosen = first(Look::Seen).or_else(|| first(Look::Held)).or_else(open);
        let presence = presence_of(now, caller, call.block_ms, None);
        if let Some(&name) = chosen.and_then(|at| call.keys.get(at)) {
            let is_new = chosen.and_then(|at| looks.get(at)) == Some(&Look::Open);
            if is_new && !self.tokens.has(1, now.wall_us) {
                return Some(tokens_used_up());
            }
            if presence.is_some() {
                self.oust_blocked(caller, call, name, fx);
            }
            let keys = [name];
            let one = MAcquire { keys: &keys, ..*call };
            self.counters.grants_at_once += u64::from(is_new);
            let token = self.take_each(store, now, caller, &one, fx).pop()?;
            return Some(Outcome::Granted { key: name.to_vec(), token });
        }
        let Some(presence) = presence else { return Some(refuse_any(self, now, &looks)) };
        let waits = self.stand_in_lines(now, caller, call, (presence, true, kept), fx);
        self.note_holders_of_all(store, caller, call);
        waits.err()
    }

    /// Tells the queues that begin with this call who holds their keys.
    fn note_holders_of_all<S: Store>(
        &mut self,
        store: &mut S,
        caller: Caller,
        call: &MAcquire<'_>,
    ) {
        for &name in call.keys {
            if let Some(queue) = self.waits.queue_of(caller.key(name))
                && self.waits.queue(queue).is_some_and(|queue| queue.len == 1)
                && let Slot::Here(resource) = store.get(caller.key(name))
            {
                self.waits.note_holders(queue, resource, false);
            }
        }
    }

    /// How each key looks to the call, and which earlier call of the owner leaves it its places. A
    /// key of another type is an error before anything is taken.
    fn look_at_all<S: Store>(
        &mut self,
        store: &mut S,
        now: Now,
        caller: Caller,
        (call, takes_any): (&MAcquire<'_>, bool),
        fx: &mut Effects,
    ) -> Result<(Vec<Look>, Option<u32>), Outcome> {
        if let Some(fault) = refused_in_script(caller, call.bind_ms, None) {
            return Err(fault);
        }
        self.rouse(store, now, caller.client, fx);
        if call.block_ms.is_none() || !caller.may_block {
            return Ok((self.look_at_each(store, now, caller, (call, Own::Counts), fx)?, None));
        }
        if let Some(kept) = self.group_kept_by(now, caller, call, takes_any) {
            let looks = self.look_at_each(store, now, caller, (call, Own::Stays), fx)?;
            if self.waits.group(kept).is_some() {
                return Ok((looks, Some(kept)));
            }
            // It was granted, or is over, and its places are gone.
        }
        Ok((self.look_at_each(store, now, caller, (call, Own::Goes), fx)?, None))
    }

    fn look_at_each<S: Store>(
        &mut self,
        store: &mut S,
        now: Now,
        caller: Caller,
        (call, own): (&MAcquire<'_>, Own),
        fx: &mut Effects,
    ) -> Result<Vec<Look>, Outcome> {
        let mut looks = Vec::with_capacity(call.keys.len());
        for &name in call.keys {
            let key = (Kind::Lock, caller.key(name));
            let look = self.on_key(store, key, now, fx, |machine, step, resource| {
                machine.hand_on(step, resource);
                machine.look_at_one(step, resource, call.for_key(name), own)
            });
            looks.push(look.map_err(|_| wrong_type())?);
        }
        Ok(looks)
    }

    fn look_at_one(
        &self,
        step: &Step<'_>,
        resource: &Resource,
        call: Acquire<'_>,
        own: Own,
    ) -> Look {
        if own_hold(resource, &call, Want::Lock).is_some() {
            let hold = resource.lock().hold();
            let has_seen = hold.is_some_and(|hold| hold.has_seen(call.reqid));
            return match has_seen {
                true => Look::Seen,
                // It cannot be entered once more; only a value that was restored is held so often.
                false if hold.is_some_and(|hold| hold.count == u32::MAX) => Look::Closed(false),
                false => Look::Held,
            };
        }
        let is_free = matches!(resource.lock(), Lock::Free);
        if self.quarantine_left(step.now.mono) > 0 {
            return Look::Closed(resource.lock().hold().is_none());
        }
        let queue = self.waits.queue_of(step.key).filter(|_| is_free);
        let mut waiting = queue.into_iter().flat_map(|queue| self.waits.walk(queue));
        let first = waiting.find(|(_, waiter)| match own {
            Own::Goes if *waiter.owner == *call.owner => false,
            Own::Counts | Own::Goes | Own::Stays => !self.is_passed_over(waiter),
        });
        let is_first = match first {
            None => true,
            Some((_, waiter)) => own == Own::Stays && *waiter.owner == *call.owner,
        };
        if is_free && is_first { Look::Open } else { Look::Closed(false) }
    }

    /// Takes every key, all of which are there to be taken.
    fn take_each<S: Store>(
        &mut self,
        store: &mut S,
        now: Now,
        caller: Caller,
        call: &MAcquire<'_>,
        fx: &mut Effects,
    ) -> Vec<u64> {
        let mut tokens = Vec::with_capacity(call.keys.len());
        for &name in call.keys {
            let call = call.for_key(name);
            let key = (Kind::Lock, caller.key(name));
            let outcome = self.on_key(store, key, now, fx, |machine, step, resource| {
                machine.take_one(step, resource, caller, &call)
            });
            let token = match outcome {
                Ok((Outcome::Token(token), _)) => token,
                _ => 0,
            };
            debug_assert!(token > 0, "a key that was there to be taken a moment ago");
            tokens.push(token);
        }
        tokens
    }

    /// Takes a key that is there to be taken; whether its owner had it already.
    fn take_one(
        &mut self,
        step: &mut Step<'_>,
        resource: &mut Resource,
        caller: Caller,
        call: &Acquire<'_>,
    ) -> (Outcome, bool) {
        let asked = Asked { call, want: Want::Lock, presence: None };
        if let Some(id) = own_hold(resource, call, Want::Lock) {
            return (self.acquire_again(step, resource, id, caller, asked), true);
        }
        step.overtakes = self.waits.queue_of(step.key);
        (self.grant_caller(step, resource, caller, asked), false)
    }

    /// The earlier call of the owner for several keys, if it waits with a place for every key of
    /// this one.
    fn group_kept_by(
        &self,
        now: Now,
        caller: Caller,
        call: &MAcquire<'_>,
        takes_any: bool,
    ) -> Option<u32> {
        let place = |name: &&[u8]| {
            let queue = self.waits.queue_of(caller.key(name))?;
            self.waits.get(self.waits.place_of(queue, call.owner)?)
        };
        let first = place(call.keys.first()?)?;
        let lease = self.clock.at(now.mono);
        let group = (!self.waits.is_over(first, now.mono, lease)).then_some(first.group)?;
        self.waits.group(group).filter(|group| group.takes_any == takes_any)?;
        let all = call.keys.iter().all(|name| place(name).is_some_and(|w| w.group == group));
        all.then_some(group)
    }

    /// Earlier waits of the owner for any of the keys are over.
    fn oust_all(&mut self, caller: Caller, call: &MAcquire<'_>, fx: &mut Effects) {
        for &name in call.keys {
            let key = caller.key(name);
            let queue = self.waits.queue_of(key);
            if let Some(slot) = queue.and_then(|queue| self.waits.place_of(queue, call.owner)) {
                self.oust(key, slot, fx);
            }
        }
    }

    /// The same for those that are blocked, and for the place at the key that is taken.
    fn oust_blocked(
        &mut self,
        caller: Caller,
        call: &MAcquire<'_>,
        taken: &[u8],
        fx: &mut Effects,
    ) {
        for &name in call.keys {
            let key = caller.key(name);
            let queue = self.waits.queue_of(key);
            let place = queue.and_then(|queue| self.waits.place_of(queue, call.owner));
            if let Some(slot) = place
                && let Some(waiter) = self.waits.get(slot)
                && (name == taken || self.waits.leader(waiter).presence.is_parked())
            {
                self.oust(key, slot, fx);
            }
        }
    }

    /// Takes a place in every queue and parks the caller.
    fn stand_in_lines(
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
            let is_new = |name: &&[u8]| self.place_of(caller.key(name), call.owner).is_none();
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
            // The first place carries what the call asked for.
            let presence = if members.is_empty() { presence } else { Presence::Member };
            let ask = if members.is_empty() {
                self.ask(&call.for_key(name), Want::Lock)
            } else {
                crate::queue::Ask::default()
            };
            let queue = self.waits.queue_of(key);
            let own = queue.and_then(|queue| self.waits.place_of(queue, call.owner));
            let slot = if let Some(slot) = own {
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

    /// An earlier call is over, and its places for the keys of this one stay.
    fn keep_places(&mut self, group: u32, caller: Caller, call: &MAcquire<'_>, fx: &mut Effects) {
        let place = |name: &&[u8]| {
            let queue = self.waits.queue_of(caller.key(name))?;
            self.waits.place_of(queue, call.owner)
        };
        let wanted: alloc::collections::BTreeSet<u32> =
            call.keys.iter().filter_map(place).collect();
        if let (Some(&name), Some(&slot)) = (call.keys.first(), wanted.first()) {
            self.tell_replaced(caller.key(name), slot, fx);
        }
        self.dissolve(group, |slot| wanted.contains(&slot));
    }

    /// It is the turn of a call for several keys at one of them. `true` if it left the queue.
    pub(super) fn grant_member(
        &mut self,
        step: &mut Step<'_>,
        resource: &mut Resource,
        slot: u32,
    ) -> bool {
        let Some(waiter) = self.waits.get(slot) else { return true };
        if self.waits.group(waiter.group).is_some_and(|group| group.takes_any) {
            self.grant_any(step, resource, slot);
            return true;
        }
        let call = self.waits.leader(waiter).id;
        if self.waits.set_ready(slot, true) {
            self.ripe.push_back(call);
        }
        false
    }

    /// ANYACQUIRE has found its key.
    fn grant_any(&mut self, step: &mut Step<'_>, resource: &mut Resource, slot: u32) {
        let Some(token) = self.tokens.take(step.now.wall_us) else {
            self.refuse_waiter(step, slot, &tokens_used_up());
            return;
        };
        let Some(waiter) = self.forget_place(slot) else { return };
        let hold = super::hand_on::hold_for(&waiter, step, token);
        let key = step.key;
        step.fx.wake(waiter.id, Outcome::Granted { key: key.name.to_vec(), token });
        let given = Given::Hold { id: ALONE, token, entered: false };
        self.send(&waiter, [Part::new(Kind::Lock, key, given)].into());
        self.counters.grants_after_waiting += 1;
        if hold.tied_to() != crate::hold::NO_CLIENT && resource.entry != crate::lease::NO_ENTRY {
            self.connections.tie(hold.tied_to(), resource.entry, ALONE);
        }
        resource.put_hold(ALONE, hold);
        step.dirty = true;
        step.granted = true;
        step.fx.note(key, Event::Acquire);
    }

    /// The owner does not hold a key any more that its call for several counted on.
    pub(super) fn no_longer_ready(&mut self, key: Key<'_>, owner: &[u8]) {
        if self.waits.has_groups()
            && let Some(queue) = self.waits.queue_of(key)
            && let Some(slot) = self.waits.place_of(queue, owner)
            && self.waits.get(slot).is_some_and(Waiter::is_grouped)
        {
            self.waits.set_ready(slot, false);
        }
    }

    /// Grants the calls for several keys that may have all of them now. What becomes ripe through
    /// that waits for its turn here, however long a chain they make.
    pub(super) fn grant_what_is_ripe<S: Store>(
        &mut self,
        store: &mut S,
        now: Now,
        fx: &mut Effects,
    ) {
        if core::mem::replace(&mut self.is_granting, true) {
            return;
        }
        while let Some(call) = self.ripe.pop_front() {
            self.grant_all(store, now, call, fx);
        }
        self.is_granting = false;
    }

    fn grant_all<S: Store>(&mut self, store: &mut S, now: Now, call: WaiterId, fx: &mut Effects) {
        let group = self.waits.by_id(call).map(|waiter| waiter.group);
        let Some(group) = group.and_then(|group| self.waits.group(group)) else { return };
        let members = group.members.clone();
        let mut names = Vec::with_capacity(members.len());
        let mut fresh = 0;
        for &slot in &members {
            let Some(waiter) = self.waits.get(slot) else { return };
            let (queue, owner) = (waiter.queue, waiter.owner.clone());
            let Some(found) = self.waits.queue(queue) else { return };
            let (db, name) = (found.db, found.name.clone());
            let key = Key { db, name: &name };
            // Looked at once more: other commands may have done something to any of the keys.
            let look =
                self.on_key(
                    store,
                    (Kind::Lock, key),
                    now,
                    fx,
                    |machine, _, resource| match resource.lock() {
                        Lock::Held(hold) if *hold.owner == *owner && hold.count < u32::MAX => {
                            Look::Held
                        }
                        Lock::Free if machine.first_in(queue) == Some(slot) => Look::Open,
                        _ => Look::Closed(false),
                    },
                );
            if self.waits.by_id(call).is_none() {
                return;
            }
            fresh += usize::from(look == Ok(Look::Open));
            if !look.is_ok_and(Look::can_be_taken) {
                self.waits.set_ready(slot, false);
                self.waits.stall(queue);
                return;
            }
            names.push((db, name));
        }
        let Some(waiter) = self.waits.by_id(call) else { return };
        if !self.tokens.has(fresh, now.wall_us) {
            let id = waiter.id;
            if self.forget_place(call.slot()).is_some() {
                fx.wake(id, tokens_used_up());
            }
            return;
        }
        let Some(waiter) = self.forget_place(call.slot()) else { return };
        let mut tokens = Vec::with_capacity(names.len());
        let mut parts = Vec::with_capacity(names.len());
        for (db, name) in &names {
            let key = Key { db: *db, name };
            let caller = Caller { client: waiter.client, db: *db, may_block: false };
            let call = as_call(&waiter, name);
            let outcome =
                self.on_key(store, (Kind::Lock, key), now, fx, |machine, step, resource| {
                    machine.take_one(step, resource, caller, &call)
                });
            let Ok((Outcome::Token(token), entered)) = outcome else {
                debug_assert!(false, "a key that was there to be taken a moment ago");
                continue;
            };
            tokens.push(token);
            let given = Given::Hold { id: ALONE, token, entered };
            parts.push(Part::new(Kind::Lock, key, given));
        }
        self.counters.grants_after_waiting += 1;
        fx.wake(waiter.id, Outcome::Tokens(tokens));
        self.send(&waiter, parts);
    }

    /// DLOCK.MRELEASE: one hold less of every key that the owner holds; the others are passed over.
    /// How many there were. A REQID that a hold has seen counts nothing there, and counts here.
    pub fn mrelease<S: Store>(
        &mut self,
        store: &mut S,
        now: Now,
        caller: Caller,
        call: &MRelease<'_>,
        fx: &mut Effects,
    ) {
        if let Err(fault) = self.are_locks(store, caller, call.keys) {
            fx.reply = Some(fault);
            return;
        }
        self.rouse(store, now, caller.client, fx);
        let mut released = 0;
        for &name in call.keys {
            let one = Release { reqid: call.reqid, ..Release::new(name, call.owner) };
            let key = (Kind::Lock, caller.key(name));
            let answer = self.on_key(store, key, now, fx, |machine, step, resource| {
                machine.release_here(step, resource, caller, None, &one)
            });
            released += u64::from(matches!(answer, Ok(Outcome::Count(_))));
        }
        fx.reply = Some(Outcome::Count(released));
    }

    /// DLOCK.MRENEW: renews all of them. How many; `NOTHELD` names the first that is not held, and
    /// none is renewed.
    pub fn mrenew<S: Store>(
        &mut self,
        store: &mut S,
        now: Now,
        caller: Caller,
        call: &MRenew<'_>,
        fx: &mut Effects,
    ) {
        if let Err(fault) = self.are_locks(store, caller, call.keys) {
            fx.reply = Some(fault);
            return;
        }
        self.rouse(store, now, caller.client, fx);
        let whose = Whose { owner: call.owner, mode: None, token: None };
        for &name in call.keys {
            let key = (Kind::Lock, caller.key(name));
            let held = self.on_key(store, key, now, fx, |_, step, resource| {
                hold_of(step.key, resource, whose).map(|_| ())
            });
            if let Err(fault) = held.unwrap_or_else(|_| Err(wrong_type())) {
                fx.reply = Some(fault);
                return;
            }
        }
        for &name in call.keys {
            let key = (Kind::Lock, caller.key(name));
            // All are held, as the loop before has seen.
            let _ = self.on_key(store, key, now, fx, |machine, step, resource| {
                machine.renew_here(step, resource, ALONE, caller, (call.lease_ms, None));
            });
        }
        fx.reply = Some(Outcome::Count(call.keys.len() as u64));
    }

    /// `WRONGTYPE` if any of the keys is no lock.
    fn are_locks<S: Store>(
        &self,
        store: &mut S,
        caller: Caller,
        keys: &[&[u8]],
    ) -> Result<(), Outcome> {
        let is_lock = |name: &&[u8]| match store.get(caller.key(name)) {
            Slot::Missing => !self.is_awaited_as_another(Kind::Lock, caller.key(name)),
            Slot::Here(resource) => resource.kind() == Kind::Lock,
            Slot::Foreign => false,
        };
        if keys.iter().all(is_lock) { Ok(()) } else { Err(wrong_type()) }
    }
}

/// The answer to a call for any key that does not wait.
fn refuse_any(machine: &Machine, now: Now, looks: &[Look]) -> Outcome {
    if looks.contains(&Look::Closed(true)) {
        return in_quarantine(machine.quarantine_left(now.mono));
    }
    Outcome::Null
}

/// The answer to a call for all keys that does not wait.
fn refuse(machine: &Machine, now: Now, looks: &[Look]) -> Outcome {
    let closed = |look: &&Look| !look.can_be_taken();
    if looks.iter().filter(closed).all(|look| *look == Look::Closed(true)) {
        return in_quarantine(machine.quarantine_left(now.mono));
    }
    Outcome::Null
}

/// The call for one key that a waiter stands for.
fn as_call<'a>(waiter: &'a Waiter, name: &'a [u8]) -> Acquire<'a> {
    let ask = &waiter.ask;
    Acquire {
        lease_ms: Some(ask.lease_ms),
        notify: match &ask.notify {
            Notify::Channel(name) => Some(name),
            Notify::Silent | Notify::Owner => None,
        },
        reqid: ask.request.as_deref(),
        bind_ms: ask.bind_ms,
        label: Some(&ask.label),
        ..Acquire::new(name, &waiter.owner)
    }
}
