//! Several locks at once: all of them, or any one.
//!
//! A waiting call has a waiter in the queue of each key; one step adds all of them. It takes all keys at the moment
//! when it is first in every queue. All such calls have the same order in all queues they share. So they cannot wait
//! for each other in a cycle, and none is overtaken.

pub(crate) mod grantable;
pub(crate) mod look;
mod waiters;

use crate::answers::{grants_are_closed, tokens_used_up, wrong_type};
use crate::effects::Outcome;
use crate::holder::{Whose, hold_of};
use crate::ids::ALONE;
use crate::kind::Kind;
use crate::machine::Machine;
use crate::ops::call::wait_state_of;
use crate::queues::waiter::Demand;
use crate::requests::{Asks, Call};
use crate::spent::Use;
use crate::store::Lookup;
use crate::turn::Turn;
use alloc::vec::Vec;
use dlock_wire::reply::ErrorCode;
use dlock_wire::request::{MAcquire, MRelease, MRenew, Release};
use look::{KeyState, Snapshot, refuse, refuse_any};

impl Machine {
    /// DLOCK.MACQUIRE: all keys or none. The tokens in key order, or Null.
    ///
    /// For each key it does what [`Machine::acquire`] does: it re-enters keys that the owner holds. With BLOCK the call
    /// waits until it is first in the queues of all keys it does not hold. Earlier waits of the owner for any of them
    /// are answered `REPLACED`.
    pub fn macquire(&mut self, turn: &mut Turn<'_>, call: &MAcquire<'_>) {
        turn.fx.reply = self.take_all(turn, call);
        self.observe_refusal_of_all(turn, call);
    }

    /// DLOCK.ANYACQUIRE: one of the keys, as key and token, or Null. It prefers a key whose hold has seen REQID, then a
    /// key that the owner holds (a re-entry), then the first free key. The search for a free key starts one key further
    /// with each call. With BLOCK the call waits for the first key that becomes free.
    pub fn any_acquire(&mut self, turn: &mut Turn<'_>, call: &MAcquire<'_>) {
        turn.fx.reply = self.take_any(turn, call);
        self.observe_refusal_of_all(turn, call);
    }

    fn observe_refusal_of_all(&mut self, turn: &Turn<'_>, call: &MAcquire<'_>) {
        if let Some(first) = call.keys.first() {
            let key = turn.caller.key(first);
            self.observe_refusal(turn, Kind::Lock, key, call.owner, call.label);
        }
    }

    /// Returns `None` if the caller is parked.
    fn take_all(&mut self, turn: &mut Turn<'_>, call: &MAcquire<'_>) -> Option<Outcome> {
        let (states, kept) = match self.inspect_all(turn, call, false) {
            Ok(Snapshot { refusal: Some(refusal), .. }) | Err(refusal) => return Some(refusal),
            Ok(Snapshot { each, kept, .. }) => (each, kept),
        };
        let wait_state = wait_state_of(turn.now, turn.caller, call.block_ms, None);
        if states.iter().all(|state| state.can_be_taken()) {
            let fresh = states.iter().filter(|state| **state == KeyState::Open).count();
            if !self.tokens.has(fresh, turn.now.wall_us) {
                return Some(tokens_used_up());
            }
            if wait_state.is_some() {
                self.evict_all(turn, call);
            }
            self.counters.grants_at_once += u64::from(fresh > 0);
            let taken = self.take_each(turn, call);
            return Some(taken.map_or_else(|fault| fault, Outcome::Tokens));
        }
        let Some(wait_state) = wait_state else { return Some(refuse(self, turn.now, &states)) };
        if self.settings.deadlock_detection && kept.is_none() {
            let caller = turn.caller;
            let keys = call.keys.iter().map(|name| caller.key(name));
            if let Some(cycle) = self.cycle_of_all(turn, keys, call.owner) {
                self.counters.deadlocks_refused += 1;
                return Some(Outcome::fault(ErrorCode::Deadlock, cycle));
            }
        }
        let members = match self.join_queues(turn, call, wait_state, false, kept) {
            Ok(members) => members,
            Err(fault) => return Some(fault),
        };
        for (&slot, state) in members.iter().zip(&states) {
            self.waits.set_grantable(slot, state.can_be_taken());
        }
        self.note_holders_of_all(turn, call);
        None
    }

    fn take_any(&mut self, turn: &mut Turn<'_>, call: &MAcquire<'_>) -> Option<Outcome> {
        let found = match self.inspect_all(turn, call, true) {
            Ok(found) => found,
            Err(fault) => return Some(fault),
        };
        let Snapshot { each: states, kept, refusal } = found;
        if refusal.is_some() && !states.contains(&KeyState::Seen) {
            return refusal;
        }
        let start = self.any_start % states.len().max(1);
        self.any_start = self.any_start.wrapping_add(1);
        let first = |wanted: KeyState| states.iter().position(|state| *state == wanted);
        let open = (start..states.len()).chain(0..start);
        let open = || open.clone().find(|&at| states.get(at) == Some(&KeyState::Open));
        let chosen = first(KeyState::Seen).or_else(|| first(KeyState::Held)).or_else(open);
        let wait_state = wait_state_of(turn.now, turn.caller, call.block_ms, None);
        if let Some(&name) = chosen.and_then(|at| call.keys.get(at)) {
            let is_new = chosen.and_then(|at| states.get(at)) == Some(&KeyState::Open);
            if is_new && !self.tokens.has(1, turn.now.wall_us) {
                return Some(tokens_used_up());
            }
            if wait_state.is_some() {
                self.evict_blocked(turn, call, name);
            }
            let keys = [name];
            let one = MAcquire { keys: &keys, ..*call };
            self.counters.grants_at_once += u64::from(is_new);
            return Some(match self.take_each(turn, &one).as_deref() {
                Ok(&[token]) => Outcome::Granted { key: name.to_vec(), token },
                Ok(_) => grants_are_closed(),
                Err(fault) => fault.clone(),
            });
        }
        let Some(wait_state) = wait_state else { return Some(refuse_any(self, turn.now, &states)) };
        let waits = self.join_queues(turn, call, wait_state, true, kept);
        self.note_holders_of_all(turn, call);
        waits.err()
    }

    /// Takes every key, all of which were found free. If one is not free after all, returns those already taken.
    fn take_each(&mut self, turn: &mut Turn<'_>, call: &MAcquire<'_>) -> Result<Vec<u64>, Outcome> {
        let mut done = Vec::with_capacity(call.keys.len());
        for &name in call.keys {
            let key = turn.caller.key(name);
            let terms = self.terms(&call.for_key(name), Demand::Lock, turn.caller.client);
            let outcome = self.on_key(turn, Kind::Lock, key, |machine, step, resource| {
                machine.take_one(step, resource, terms)
            });
            let Ok((Outcome::Token(token), how)) = outcome else {
                debug_assert!(false, "a key that was there to be taken a moment ago");
                return Err(self.give_back_all(turn, &done));
            };
            done.push((key, token, how));
        }
        Ok(done.into_iter().map(|(_, token, _)| token).collect())
    }

    /// Tells the holders of the keys to the queues that begin with this call.
    fn note_holders_of_all(&mut self, turn: &mut Turn<'_>, call: &MAcquire<'_>) {
        for &name in call.keys {
            if let Some(queue) = self.waits.queue_of(turn.caller.key(name))
                && self.waits.queue(queue).is_some_and(|queue| queue.holder == 0)
                && let Lookup::Here(resource) = turn.keys.get(turn.caller.key(name))
            {
                self.waits.note_holders(queue, resource, false);
            }
        }
    }

    /// DLOCK.MRELEASE: one hold less of every key that the owner holds; the others are skipped. Returns the number of
    /// held keys. A repeated REQID releases nothing and gets the same answer.
    pub fn mrelease(&mut self, turn: &mut Turn<'_>, call: &MRelease<'_>) {
        if let Err(fault) = self.are_locks(turn, call.keys) {
            turn.fx.reply = Some(fault);
            return;
        }
        self.mark_active(turn, turn.caller.client);
        let one = |name| Release { reqid: call.reqid, ..Release::new(name, call.owner) };
        let (owner, id, asks) = (call.owner, call.reqid, Asks::Release);
        let request = Call { kind: Kind::Lock, mode: None, owner, id, asks };
        if call.reqid.is_some() {
            let caller = turn.caller;
            let mut misused = |name: &&[u8]| self.refuse_misuse(turn, caller.key(name), request);
            if let Some(fault) = call.keys.iter().find_map(&mut misused) {
                turn.fx.reply = Some(fault);
                return;
            }
        }
        let mut released = 0;
        for &name in call.keys {
            let key = turn.caller.key(name);
            let answer = self.on_key(turn, Kind::Lock, key, |machine, step, resource| {
                if call.reqid.is_some()
                    && let Some(outcome) = machine.recall(step, resource, request)
                {
                    return outcome;
                }
                let outcome = machine.release_here(step, resource, None, &one(name));
                if let Outcome::Fault(_) = outcome {
                    // A late copy must not release what the owner takes after this.
                    machine.spend(step, request, Use::PassedOver);
                }
                outcome
            });
            released += u64::from(matches!(answer, Ok(Outcome::Count(_))));
        }
        turn.fx.reply = Some(Outcome::Count(released));
    }

    /// DLOCK.MRENEW: renews all of them and returns their number. `NOTHELD` names the first key that is not held; then
    /// none is renewed.
    pub fn mrenew(&mut self, turn: &mut Turn<'_>, call: &MRenew<'_>) {
        if let Err(fault) = self.are_locks(turn, call.keys) {
            turn.fx.reply = Some(fault);
            return;
        }
        self.mark_active(turn, turn.caller.client);
        let whose = Whose { owner: call.owner, mode: None, token: None };
        for &name in call.keys {
            let key = turn.caller.key(name);
            let held = self.on_key(turn, Kind::Lock, key, |_, step, resource| {
                hold_of(step.key, resource, whose).map(|_| ())
            });
            if let Err(fault) = held.unwrap_or_else(|_| Err(wrong_type())) {
                turn.fx.reply = Some(fault);
                return;
            }
        }
        for &name in call.keys {
            let key = turn.caller.key(name);
            // The loop before has checked that all are held.
            let _ = self.on_key(turn, Kind::Lock, key, |machine, step, resource| {
                machine.renew_here(step, resource, ALONE, call.lease_ms, None);
            });
        }
        turn.fx.reply = Some(Outcome::Count(call.keys.len() as u64));
    }

    /// `WRONGTYPE` if any of the keys is not a lock.
    fn are_locks(&self, turn: &mut Turn<'_>, keys: &[&[u8]]) -> Result<(), Outcome> {
        let is_lock = |name: &&[u8]| match turn.keys.get(turn.caller.key(name)) {
            Lookup::Missing => !self.is_awaited_as_another(Kind::Lock, turn.caller.key(name)),
            Lookup::Here(resource) => resource.kind() == Kind::Lock,
            Lookup::WrongType | Lookup::Elsewhere | Lookup::OutOfReach => false,
        };
        if keys.iter().all(is_lock) { Ok(()) } else { Err(wrong_type()) }
    }
}
