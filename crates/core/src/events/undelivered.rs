//! Grants in flight to a parked caller. Its connection may close before they arrive.

use crate::bytes::Name;
use crate::end::End;
use crate::ids::{ALONE, HoldId};
use crate::key::{Key, Swap};
use crate::kind::Kind;
use crate::ops::multi::grantable;
use crate::pending::in_flight::GrantsInFlight;
use crate::pending::in_flight::{Given, InFlight, Kept, Part, Stays, Taken};
use crate::queues::waiter::{NewWaiter, Position, WaitState, Waiter, WaiterId};
use crate::requests::{Asks, Call};
use crate::spent::Use;
use crate::state::hold::{NO_CLIENT, Unclaimed};
use crate::state::resource::{Body, Resource};
use crate::tables::Tables;
use crate::turn;
use crate::turn::{Step, Turn};
use alloc::boxed::Box;
use alloc::vec::Vec;
use dlock_wire::message::Event;

impl Tables {
    /// Notes the grants that the answer to a parked call carries.
    pub(crate) fn send(&mut self, waiter: &Waiter, parts: Vec<Part>) {
        let stays = self.stays(waiter, parts.first());
        let request = waiter.ask.request.clone();
        let grant = InFlight { client: waiter.client, request, is_cancelled: false, stays, parts };
        self.in_flight.grants.insert(waiter.id, grant);
    }

    fn stays(&self, waiter: &Waiter, part: Option<&Part>) -> Stays {
        match (part, waiter.ask.queue_ms) {
            (Some(part), queue_ms) if part.kind == Kind::Fair => {
                Stays::Grant(self.settings.claim_ms(queue_ms))
            }
            (Some(part), Some(queue_ms)) => Stays::Entry(Box::new(Kept {
                db: part.db,
                name: part.name.clone(),
                entry: waiter.entry.clone(),
                queue_ms,
                seq: waiter.seq,
            })),
            _ => Stays::Nothing,
        }
    }
}

impl GrantsInFlight {
    /// The answer to a parked caller cannot come back undelivered any more.
    pub(crate) fn delivered(&mut self, waiter: WaiterId) {
        self.grants.remove(&waiter);
    }

    /// A resent call was answered with this hold: the grant that it repeats needs no rollback any more.
    pub(crate) fn answered_again(
        &mut self,
        key: Key<'_>,
        id: HoldId,
        token: u64,
        request: Option<&[u8]>,
    ) {
        let repeated = |grant: &&mut InFlight| grant.request.as_deref() == request;
        for grant in self.grants.values_mut().filter(repeated) {
            for part in grant.parts.iter_mut().filter(|part| part.is_of(key, id, token)) {
                part.is_known = true;
            }
        }
    }

    /// The same for a resent TAKE.
    pub(crate) fn taken_again(&mut self, key: Key<'_>, request: Option<&[u8]>) {
        let repeated = |grant: &&mut InFlight| grant.request.as_deref() == request;
        for grant in self.grants.values_mut().filter(repeated) {
            for part in grant.parts.iter_mut().filter(|part| part.is_at(key)) {
                part.is_known = true;
            }
        }
    }

    /// The owner of a key's holds cancels its requests, or with `request` only that one. A grant in flight has been
    /// claimed, so it stays. But if it does not arrive, its queue entry is not restored.
    pub(crate) fn cancel_on_the_way(
        &mut self,
        key: Key<'_>,
        resource: &Resource,
        owner: &[u8],
        request: Option<&[u8]>,
    ) {
        let is_his = |part: &Part| match part.given {
            Given::Hold { id, token, .. } if part.is_at(key) => {
                resource.hold(id).is_some_and(|hold| hold.token == token && *hold.owner == *owner)
            }
            Given::Hold { .. } | Given::Taken(_) => false,
        };
        let asked =
            |grant: &&mut InFlight| request.is_none() || grant.request.as_deref() == request;
        for grant in self.grants.values_mut().filter(asked) {
            grant.is_cancelled |= grant.parts.iter().any(is_his);
        }
    }
}

impl Tables {
    /// FENCE raised the token of a hold: from now on the new token identifies it.
    pub(crate) fn raised(&mut self, key: Key<'_>, from: u64, to: u64) {
        self.waits.raise_observed(key, from, to);
        for part in self.in_flight.grants.values_mut().flat_map(|grant| &mut grant.parts) {
            if part.is_of(key, ALONE, from)
                && let Given::Hold { token, .. } = &mut part.given
            {
                *token = to;
            }
        }
    }
}

impl GrantsInFlight {
    /// A semaphore is gone. Permits of a TAKE in flight must not be returned to a new semaphore under the same name.
    pub(crate) fn forget_taken(&mut self, mut is_gone: impl FnMut(Key<'_>) -> bool) {
        for part in self.grants.values_mut().flat_map(|grant| &mut grant.parts) {
            let key = Key { db: part.db, name: &part.name };
            if let Given::Taken(_) = part.given
                && is_gone(key)
            {
                // Its request is still rolled back if the answer does not arrive.
                part.given = Given::Taken(0);
            }
        }
    }

    /// A value moved to another key: grants in flight to its holders belong there.
    pub(crate) fn readdress(&mut self, from: Key<'_>, to: Key<'_>) {
        for part in self.grants.values_mut().flat_map(|grant| &mut grant.parts) {
            if part.is_at(from) {
                part.db = to.db;
                part.name = Name::from(to.name);
            }
        }
    }

    /// Two databases were swapped, and the holds with them.
    pub(crate) fn swap(&mut self, swap: Swap) {
        for part in self.grants.values_mut().flat_map(|grant| &mut grant.parts) {
            part.db = swap.target_of(part.db);
        }
    }

    /// The grants in flight to `client`, oldest first.
    pub(crate) fn on_the_way_to(&self, client: u64) -> Vec<WaiterId> {
        let found = self.grants.iter().filter(|(_, grant)| grant.client == client);
        let mut found: Vec<WaiterId> = found.map(|(&waiter, _)| waiter).collect();
        found.sort_unstable();
        found
    }
}

/// The connection of a parked caller went away before its grant could be sent.
///
/// The grant is rolled back and handed off. If the owner got an answer for this hold on another connection since,
/// only the undelivered count is rolled back; if that answer was to the same request, nothing is. With QUEUE the
/// entry returns to its position, without a connection. A grant of a fair lock stays unclaimed. Nothing is kept of
/// a cancelled request, and its id is over.
pub(crate) fn undelivered(tables: &mut Tables, turn: &mut Turn<'_>, waiter: WaiterId) {
    let Some(grant) = tables.in_flight.grants.remove(&waiter) else { return };
    if !tables.regime.is_primary() {
        return;
    }
    let request = grant.request.as_deref();
    for part in grant.parts.iter().filter(|part| !part.is_known) {
        let key = Key { db: part.db, name: &part.name };
        // Expired holds end after this: a hold of which its owner never heard has not been carried out. A key of
        // another type has nothing to roll back.
        let _ = turn::on_key_alone(tables, turn, part.kind, key, 0, |step, resource| {
            match part.given {
                Given::Taken(n) => {
                    give_back(step, resource, n);
                    step.unspend(Call::without_owner(request, Asks::Take(n)));
                    step.hand_off(resource);
                }
                Given::Hold { id, token, how } => {
                    step.take_back(resource, id, token, how, &grant);
                }
            }
            step.ends_at_most = step.tables.wide_at_once;
            step.end_by_itself(resource);
        });
    }
    grantable::grant_ready_groups(tables, turn);
}

impl GrantsInFlight {
    /// Whether a hold is in flight to `client`: if that connection is gone, the grant is rolled back.
    pub(crate) fn is_on_the_way(&self, key: Key<'_>, id: HoldId, token: u64, client: u64) -> bool {
        let grants = self.grants.values().filter(|grant| grant.client == client);
        let mut parts = grants.flat_map(|grant| &grant.parts);
        parts.any(|part| !part.is_known && part.is_of(key, id, token))
    }
}

impl Step<'_> {
    fn take_back(
        &mut self,
        resource: &mut Resource,
        id: HoldId,
        token: u64,
        how: Taken,
        grant: &InFlight,
    ) {
        let Some(hold) = resource.hold(id).filter(|hold| hold.token == token) else { return };
        let request = grant.request.as_deref();
        if grant.is_cancelled {
            let (kind, owner) = (resource.kind(), hold.owner.clone());
            let call = Call { kind, mode: None, owner: &owner, id: request, asks: Asks::Cancel };
            self.spend(call, Use::Cancelled(0));
        }
        if how == Taken::Known {
            // It gave the owner nothing that another call had not given.
            return;
        }
        let is_known = how == Taken::Entered || hold.answers != 0;
        if is_known && id_is_counted(resource) && hold.count > 1 {
            resource.change_hold(id, |hold| {
                hold.count -= 1;
                // The next copy is counted.
                hold.forget(request);
            });
            self.dirty = true;
            return;
        }
        if how == Taken::Entered {
            // The owner has released the hold as often as it knows to have entered it: only this grant is left.
            resource.change_hold(id, |hold| hold.forget(request));
            self.end_hold(resource, id, End::Released);
            self.hand_off(resource);
            return;
        }
        if is_known {
            return;
        }
        let claim_ms = match &grant.stays {
            Stays::Grant(claim_ms) if !grant.is_cancelled => *claim_ms,
            stays => {
                self.end_hold(resource, id, End::Returned);
                if let Stays::Entry(kept) = stays
                    && !grant.is_cancelled
                {
                    self.put_back(resource, kept);
                }
                self.hand_off(resource);
                return;
            }
        };
        // The same result as for an entry that had no connection when it was granted.
        let hold_ref = self.tables.leases.hold_ref(resource.key_id, id);
        let end = self.lease + claim_ms;
        let told = resource.change_hold(id, |hold| {
            self.tables.connections.unbind_hold(hold_ref, hold);
            let extras = hold.extras_mut();
            extras.unclaimed = Some(Unclaimed { client: NO_CLIENT, claim_ms });
            if let Some(binding) = &mut extras.binding {
                binding.client = NO_CLIENT;
                binding.is_shortened = false;
            }
            hold.deadline = end;
            crate::subject::subject(id, hold)
        });
        self.dirty = true;
        if let Some(subject) = told.flatten() {
            self.fx.message(Event::Granted, self.key, subject);
        }
    }

    /// Puts a queue entry back where it was before its grant, now without a connection. Not if the owner has asked
    /// again meanwhile. Not if the hold was moved either: waiters stay with the old name.
    fn put_back(&mut self, resource: &Resource, kept: &Kept) {
        let key = Key { db: kept.db, name: &kept.name };
        if key != self.key
            || self.tables.waits.waiter_at(key, &kept.entry.owner).is_some()
            || self.tables.has_room(key, 1).is_err()
        {
            return;
        }
        let new_waiter = NewWaiter {
            entry: kept.entry.clone(),
            client: NO_CLIENT,
            wait_state: WaitState::Disconnected { until: self.lease + kept.queue_ms },
            position: Position::Restored(kept.seq),
        };
        self.tables.waits.join(key, resource.kind(), new_waiter);
        self.note_holders(resource);
    }
}

/// Whether the count of a hold says how often it was entered. (For a permit it is the size.)
fn id_is_counted(resource: &Resource) -> bool {
    resource.kind() != Kind::Semaphore
}

/// Returns permits whose TAKE could not be answered.
fn give_back(step: &mut Step<'_>, resource: &mut Resource, n: u32) {
    let Body::Semaphore(semaphore) = &mut resource.body else { return };
    semaphore.taken -= n.min(semaphore.taken);
    step.dirty |= n > 0;
}
