//! Grants: the only file in which a hold begins.
//!
//! The caller gets what is free at once ([`Step::grant_caller`]), a waiter what a hand-off finds for it
//! ([`Step::grant_waiter`]), and a call for several keys all of them in one step (`groups::grant_all`). Each hold
//! gets its name in [`Step::name_hold`] and begins in [`begin_hold`]. A TAKE gets permits without a hold.

use crate::base::bytes::Owner;
use crate::base::ids::{ALONE, HoldId, KeyId, WaiterSlot};
use crate::base::kind::Kind;
use crate::base::time::Millis;
use crate::ports::answers::{granted, grants_are_closed, tokens_used_up};
use crate::ports::effects::{Event, Outcome};
use crate::ports::subject::subject;
use crate::step::Step;
use crate::step::observe::token_of;
use crate::step::requests::{Asks, Call, misused};
use crate::step::terms::Terms;
use crate::tables::pending::in_flight::{Given, Part, Taken};
use crate::tables::queues::waiter::{WaitState, Waiter};
use crate::tables::settings::Settings;
use crate::value::hold::{Hold, Unclaimed};
use crate::value::resource::{Body, Resource};
use crate::value::spent::{RequestKey, Use};
use crate::value::wait_request::Demand;
use dlock_wire::message;
use dlock_wire::reply::LogToken;
use dlock_wire::request::Mode;

/// The id of a new hold, and its fencing token; permits have no token.
#[derive(Clone, Copy)]
struct Name {
    id: HoldId,
    token: u64,
}

impl Step<'_> {
    /// Names a new hold. Every hold gets its name here, so no hold begins while grants are closed. An error if they are
    /// closed, or if the tokens are used up.
    fn name_hold(&mut self, demand: Demand) -> Result<Name, Outcome> {
        if !self.tables.regime.may_grant(self.now.mono) {
            debug_assert!(false, "a grant while grants are closed");
            return Err(grants_are_closed());
        }
        if let Demand::Permits { id, .. } = demand {
            return Ok(Name { id: HoldId::from_be_bytes(id), token: 0 });
        }
        let token = self.tables.tokens.take(self.now.wall_us).ok_or_else(tokens_used_up)?;
        let id = if demand == Demand::Rw(Mode::Read) { HoldId::from(token) } else { ALONE };
        Ok(Name { id, token })
    }

    /// A new hold with these terms.
    fn new_hold(&mut self, key_id: KeyId, name: Name, terms: Terms<'_>) -> Hold {
        let count = if let Demand::Permits { count, .. } = terms.demand { count } else { 1 };
        let mut hold = Hold {
            owner: Owner::from(terms.owner),
            token: name.token,
            deadline: self.lease + terms.lease_ms,
            lease_ms: terms.lease_ms,
            since: self.now.mono,
            count,
            answers: 0,
            extras: None,
        };
        self.remember(&mut hold, &terms);
        hold.set_label(terms.label);
        hold.set_notify(terms.notify, terms.reqid);
        if let Some(ms) = terms.bind_ms {
            let hold_ref = self.tables.leases.hold_ref(key_id, name.id);
            self.tables.connections.bind_hold(hold_ref, &mut hold, ms, terms.client);
        }
        hold
    }

    /// The request of `terms` counts in `hold`, so it waits here no longer.
    pub(crate) fn remember(&mut self, hold: &mut Hold, terms: &Terms<'_>) {
        hold.remember(terms.reqid);
        // A copy without BLOCK and QUEUE passes the place of its owner while that is skipped.
        if terms.reqid.is_some()
            && let Some(slot) = self.tables.waits.waiter_at(self.key, terms.owner)
            && let Some(ask) = self.tables.waits.get(slot).map(|waiter| &waiter.ask)
            && (ask.demand.mode(), ask.request.as_deref()) == (terms.demand.mode(), terms.reqid)
        {
            self.tables.evict(self.key, slot, terms.reqid, self.fx);
        }
    }
}

impl Step<'_> {
    /// Grants to the caller what is free; if its owner waits in `place` and goes first, its wait ends with this. The
    /// caller of this function updates the counters.
    pub(crate) fn grant_caller(
        &mut self,
        resource: &mut Resource,
        terms: Terms<'_>,
        place: Option<WaiterSlot>,
    ) -> Outcome {
        let demand = terms.demand;
        let name = match self.name_hold(demand) {
            Ok(name) => name,
            Err(fault) => return fault,
        };
        if let Some(slot) = place {
            let wait = self.tables.waits.get(slot).map(|waiter| waiter.entry.clone());
            self.tables.evict(self.key, slot, terms.reqid, self.fx);
            let wait = wait.filter(|wait| wait.ask.demand.keeps_position_for(demand));
            if let Some(wait) = wait.filter(|wait| wait.since < self.now.mono) {
                self.observe_grant(resource.kind(), &wait, token_of(name.id, name.token));
            }
        }
        let hold = self.new_hold(resource.key_id, name, terms);
        begin_hold(self, resource, name.id, hold);
        if let Some(queue) = self.overtakes {
            self.tables.waits.note_holders(queue, resource, false);
        }
        granted(name.id, name.token, demand)
    }

    /// Grants to a waiter what it waits for; to an ANYACQUIRE, this key.
    pub(crate) fn grant_waiter(&mut self, resource: &mut Resource, slot: WaiterSlot) {
        let Some(demand) = self.tables.waits.get(slot).map(|waiter| waiter.ask.demand) else {
            return;
        };
        if let Demand::Taken(n) = demand {
            self.grant_taken(resource, slot, n);
            return;
        }
        let name = match self.name_hold(demand) {
            Ok(name) => name,
            Err(fault) => return self.refuse_waiter(slot, &fault),
        };
        let Name { id, token } = name;
        let takes_any = self.tables.waits.get(slot).is_some_and(Waiter::is_grouped);
        let Some(waiter) = self.tables.remove_waiter(slot) else { return };
        let mut hold = self.new_hold(resource.key_id, name, waiter.terms());
        let outcome = if takes_any {
            Outcome::Granted { key: self.key.name.to_vec(), token }
        } else {
            granted(id, token, demand)
        };
        if Some(waiter.id) == self.own_waiter {
            self.answer = Some(outcome);
            self.tables.counters.grants_at_once += 1;
            // An owner that was skipped without a connection has waited since its first call.
            if waiter.since < self.now.mono {
                self.observe_grant(resource.kind(), &waiter.entry, token_of(id, token));
            }
        } else {
            self.tables.counters.grants_after_waiting += 1;
            self.observe_grant(resource.kind(), &waiter.entry, token_of(id, token));
            if waiter.wait_state.is_parked() {
                self.fx.wake(waiter.id, outcome);
                let given = Given::Hold { id, token, how: Taken::New };
                self.tables.send(&waiter, [Part::new(resource.kind(), self.key, given)].into());
            } else {
                self.leave_unclaimed(&waiter, id, &mut hold);
            }
        }
        begin_hold(self, resource, id, hold);
    }

    /// Grants to a queue entry without a blocked call, and a message tells the owner. While its connection is open the
    /// grant is a promise like an answer. Without one it is an offer: the lock is kept until the owner asks again.
    fn leave_unclaimed(&mut self, waiter: &Waiter, id: HoldId, hold: &mut Hold) {
        let claim_ms = self.tables.settings.claim_ms(waiter.ask.queue_ms);
        hold.extras_mut().unclaimed = Some(Unclaimed { client: waiter.client });
        let event = if let WaitState::Disconnected { until } = waiter.wait_state {
            // The lease stays: a snapshot of the offer must cover what its owner is promised when it asks again.
            hold.lease_ms = hold.lease_ms.max(claim_ms);
            hold.deadline = until.min(self.lease + claim_ms);
            message::Event::Offered
        } else {
            hold.promise(self.lease, claim_ms);
            message::Event::Granted
        };
        if let Some(subject) = subject(id, hold) {
            self.fx.message(event, self.key, subject);
        }
    }

    /// A call for several keys is first at one of them. Returns `true` if it left the queue.
    pub(crate) fn grant_member(&mut self, resource: &mut Resource, slot: WaiterSlot) -> bool {
        let Some(waiter) = self.tables.waits.get(slot) else { return true };
        if self.tables.waits.group(waiter.group).is_some_and(|group| group.takes_any) {
            self.grant_waiter(resource, slot);
            return true;
        }
        let call = self.tables.waits.leader(waiter).id;
        if self.tables.waits.set_grantable(slot, true) {
            self.tables.pending.ready_groups.push_back(call);
        }
        false
    }
}

impl Settings {
    /// Shortest time that a grant to a place lasts, in milliseconds. (An entry of a fair lock without QUEUE lasts its
    /// grace.)
    pub(crate) fn claim_ms(&self, queue_ms: Option<Millis>) -> Millis {
        queue_ms.unwrap_or(self.fair_grace_ms).min(self.claim_ms)
    }
}

impl Step<'_> {
    /// What another call has done with the request of a waiting TAKE, under the name of the request.
    pub(crate) fn taken_already<'w>(&self, waiter: &'w Waiter) -> Option<(RequestKey<'w>, Use)> {
        let Demand::Taken(n) = waiter.ask.demand else { return None };
        let name = Call::without_owner(waiter.ask.request.as_deref(), Asks::Take(n)).name()?;
        Some((name, self.tables.find_spent(self.key, name, self.lease)?))
    }

    /// Grants a waiting TAKE, also if another call with its request id was carried out meanwhile.
    fn grant_taken(&mut self, resource: &mut Resource, slot: WaiterSlot, n: u32) {
        let Some(waiter) = self.tables.remove_waiter(slot) else { return };
        let request = waiter.ask.request.as_deref();
        let call = Call::without_owner(request, Asks::Take(n));
        let known = self.taken_already(&waiter);
        if let Some((name, used)) = known
            && !call.asks.may_copy(used)
        {
            self.fx.wake(waiter.id, misused(self.key, name));
            return;
        }
        let is_repeat = known.is_some();
        if is_repeat {
            self.tables.in_flight.answered_again(self.key, None, request);
        } else {
            let Body::Semaphore(semaphore) = &mut resource.body else { return };
            semaphore.taken += n;
            self.spend(call, Use::Taken(n));
            self.dirty = true;
            self.granted = true;
            self.fx.note(self.key, Event::Acquire);
        }
        self.fx.wake(waiter.id, Outcome::Taken);
        if !is_repeat {
            self.tables.counters.grants_after_waiting += 1;
            self.observe_grant(Kind::Semaphore, &waiter.entry, LogToken::None);
            self.tables
                .send(&waiter, [Part::new(Kind::Semaphore, self.key, Given::Taken(n))].into());
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
