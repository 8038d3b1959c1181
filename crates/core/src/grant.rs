//! Grants: the only file in which a hold begins.
//!
//! The caller gets what is free at once ([`Machine::grant_caller`]), a waiter what a hand-off finds for it
//! ([`Machine::grant_waiter`]), and a call for several keys all of them in one step ([`Machine::grant_all`]). Each hold
//! gets its name in [`Machine::name_hold`] and begins in [`begin_hold`]. A TAKE gets permits without a hold.

use crate::answers::{granted, grants_are_closed, tokens_used_up};
use crate::bytes::Owner;
use crate::effects::{Event, Outcome};
use crate::ids::{ALONE, HoldId, HoldRef, KeyId, WaiterSlot};
use crate::kind::Kind;
use crate::machine::Machine;
use crate::observe::token_of;
use crate::pending::in_flight::{Given, Part, Taken};
use crate::queues::waiter::{Demand, WaitState, Waiter};
use crate::requests::{Asks, Call};
use crate::spent::Use;
use crate::state::hold::{Did, Hold, Unclaimed};
use crate::state::resource::{Body, Resource};
use crate::subject::subject;
use crate::terms::Terms;
use crate::time::Millis;
use crate::turn::Step;
use dlock_wire::message;
use dlock_wire::reply::LogToken;
use dlock_wire::request::Mode;

/// The id of a new hold, and its fencing token; permits have no token.
#[derive(Clone, Copy)]
struct Name {
    id: HoldId,
    token: u64,
}

impl Machine {
    /// Names a new hold. Every hold gets its name here, so no hold begins while grants are closed. An error if they are
    /// closed, or if the tokens are used up.
    fn name_hold(&mut self, step: &Step<'_>, demand: Demand) -> Result<Name, Outcome> {
        if !self.regime.may_grant(step.now.mono) {
            debug_assert!(false, "a grant while grants are closed");
            return Err(grants_are_closed());
        }
        if let Demand::Permits { id, .. } = demand {
            return Ok(Name { id: HoldId::from_be_bytes(id), token: 0 });
        }
        let token = self.tokens.take(step.now.wall_us).ok_or_else(tokens_used_up)?;
        let id = if demand == Demand::Rw(Mode::Read) { HoldId::from(token) } else { ALONE };
        Ok(Name { id, token })
    }

    /// A new hold with these terms.
    fn new_hold(&mut self, step: &Step<'_>, key_id: KeyId, name: Name, terms: Terms<'_>) -> Hold {
        let count = if let Demand::Permits { count, .. } = terms.demand { count } else { 1 };
        let mut hold = Hold {
            owner: Owner::from(terms.owner),
            token: name.token,
            deadline: step.lease + terms.lease_ms,
            lease_ms: terms.lease_ms,
            since: step.now.mono,
            count,
            answers: 0,
            extras: None,
        };
        hold.remember(terms.reqid, Did::Acquire);
        self.apply_options(self.leases.hold_ref(key_id, name.id), &mut hold, terms);
        hold
    }

    /// Applies the options of a call to a hold: label, channel, binding.
    pub(crate) fn apply_options(&mut self, hold_ref: HoldRef, hold: &mut Hold, terms: Terms<'_>) {
        if let Some(label) = terms.label.filter(|label| !label.is_empty() || hold.extras.is_some())
        {
            hold.extras_mut().label = label.into();
        }
        hold.set_notify(terms.notify, terms.reqid);
        if let Some(ms) = terms.bind_ms {
            self.bind(hold_ref, hold, ms, terms.client);
        }
    }

    /// Grants to the caller what is free. The caller of this function updates the counters.
    pub(crate) fn grant_caller(
        &mut self,
        step: &mut Step<'_>,
        resource: &mut Resource,
        terms: Terms<'_>,
    ) -> Outcome {
        let demand = terms.demand;
        let name = match self.name_hold(step, demand) {
            Ok(name) => name,
            Err(fault) => return fault,
        };
        let hold = self.new_hold(step, resource.key_id, name, terms);
        begin_hold(step, resource, name.id, hold);
        if let Some(queue) = step.overtakes {
            self.waits.note_holders(queue, resource, false);
        }
        granted(name.id, name.token, demand)
    }

    /// Grants to a waiter what it waits for; to an ANYACQUIRE, this key.
    pub(crate) fn grant_waiter(
        &mut self,
        step: &mut Step<'_>,
        resource: &mut Resource,
        slot: WaiterSlot,
    ) {
        let Some(demand) = self.waits.get(slot).map(|waiter| waiter.ask.demand) else { return };
        if let Demand::Taken(n) = demand {
            self.grant_taken(step, resource, slot, n);
            return;
        }
        let name = match self.name_hold(step, demand) {
            Ok(name) => name,
            Err(fault) => return self.refuse_waiter(step, slot, &fault),
        };
        let Name { id, token } = name;
        let takes_any = self.waits.get(slot).is_some_and(Waiter::is_grouped);
        let Some(waiter) = self.remove_waiter(slot) else { return };
        let mut hold = self.new_hold(step, resource.key_id, name, waiter.terms());
        let outcome = if takes_any {
            Outcome::Granted { key: step.key.name.to_vec(), token }
        } else {
            granted(id, token, demand)
        };
        if Some(waiter.id) == step.own_waiter {
            step.answer = Some(outcome);
            self.counters.grants_at_once += 1;
            // An owner that was skipped without a connection has waited since its first call.
            if waiter.since < step.now.mono {
                self.observe_grant(step, resource.kind(), &waiter.entry, token_of(id, token));
            }
        } else {
            self.counters.grants_after_waiting += 1;
            self.observe_grant(step, resource.kind(), &waiter.entry, token_of(id, token));
            if waiter.wait_state.is_parked() {
                step.fx.wake(waiter.id, outcome);
                let given = Given::Hold { id, token, how: Taken::New };
                self.send(&waiter, [Part::new(resource.kind(), step.key, given)].into());
            } else {
                self.leave_unclaimed(step, &waiter, id, &mut hold);
            }
        }
        begin_hold(step, resource, id, hold);
    }

    /// Grants to a queue entry without a blocked call: the grant stays unclaimed, and a message tells the owner.
    fn leave_unclaimed(
        &mut self,
        step: &mut Step<'_>,
        waiter: &Waiter,
        id: HoldId,
        hold: &mut Hold,
    ) {
        let claim_ms = self.claim_ms(waiter.ask.queue_ms);
        let end = step.lease + claim_ms;
        hold.extras_mut().unclaimed = Some(Unclaimed { client: waiter.client, claim_ms });
        hold.deadline = match waiter.wait_state {
            WaitState::Disconnected { until } => end.min(until),
            WaitState::Blocked { .. } | WaitState::GroupMember | WaitState::Connected => end,
        };
        if let Some(subject) = subject(id, hold) {
            step.fx.message(message::Event::Granted, step.key, subject);
        }
    }

    /// Time in which a grant must be claimed, in milliseconds. (An entry of a fair lock without QUEUE lasts its grace.)
    pub(crate) fn claim_ms(&self, queue_ms: Option<Millis>) -> Millis {
        queue_ms.unwrap_or(self.settings.fair_grace_ms).min(self.settings.claim_ms)
    }

    /// Whether another call has carried out the request of a waiting TAKE.
    pub(crate) fn has_been_taken(&self, step: &Step<'_>, waiter: &Waiter) -> bool {
        matches!(waiter.ask.demand, Demand::Taken(_))
            && self.taken_by(step, waiter.ask.request.as_deref()).is_some()
    }

    /// Grants a waiting TAKE, also if another call with its request id was carried out meanwhile.
    fn grant_taken(
        &mut self,
        step: &mut Step<'_>,
        resource: &mut Resource,
        slot: WaiterSlot,
        n: u32,
    ) {
        let Some(waiter) = self.remove_waiter(slot) else { return };
        let request = waiter.ask.request.as_deref();
        let call = Call::without_owner(request, Asks::Take(n));
        let known = self.taken_by(step, request);
        let is_repeat = known.is_some();
        if known.is_some_and(|used| !call.asks.may_copy(used)) {
            if waiter.wait_state.is_parked() {
                step.fx.wake(waiter.id, call.misused(step.key));
            }
            return;
        }
        if is_repeat {
            self.taken_again(step.key, request);
        } else {
            let Body::Semaphore(semaphore) = &mut resource.body else { return };
            semaphore.taken += n;
            self.spend(step, call, Use::Taken(n));
            step.dirty = true;
            step.granted = true;
            step.fx.note(step.key, Event::Acquire);
        }
        step.fx.wake(waiter.id, Outcome::Taken);
        if !is_repeat {
            self.counters.grants_after_waiting += 1;
            self.observe_grant(step, Kind::Semaphore, &waiter.entry, LogToken::None);
            self.send(&waiter, [Part::new(Kind::Semaphore, step.key, Given::Taken(n))].into());
        }
    }
}

/// The hold begins.
fn begin_hold(step: &mut Step<'_>, resource: &mut Resource, id: HoldId, hold: Hold) {
    resource.put_hold(id, hold);
    step.dirty = true;
    step.granted = true;
    step.fx.note(step.key, Event::Acquire);
}
