//! Grants in flight to a parked caller. Its connection may close before they arrive.

use crate::base::ids::WaiterId;
use crate::base::key::Key;
use crate::base::kind::Kind;
use crate::ports::turn::Turn;
use crate::run::{enter, groups};
use crate::step::Step;
use crate::step::end::End;
use crate::step::requests::{Asks, Call};
use crate::tables::Tables;
use crate::tables::pending::in_flight::{Given, InFlight, Kept, Part, Stays, Taken};
use crate::tables::queues::waiter::{NewWaiter, Position, WaitState};
use crate::value::hold::{Did, NO_CLIENT, Unclaimed};
use crate::value::resource::{Body, Resource};
use dlock_wire::message::Event;

/// The connection of a parked caller went away before its grant could be sent.
///
/// The grant is taken back, by the id of its request, and handed off: not if that was released since, or if a copy
/// of it was answered. Other requests of the owner in the hold stay. A hold that is known to the owner by another
/// answer stays. With QUEUE the entry returns to its position, without a connection. A grant of a fair lock stays, as
/// an offer.
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
        let _ = enter::on_key_alone(tables, turn, part.kind, key, 0, |step, resource| {
            match part.given {
                Given::Taken(n) => {
                    give_back(step, resource, n);
                    step.unspend(Call::without_owner(request, Asks::Take(n)));
                    step.hand_off(resource);
                }
                Given::Hold { .. } => step.take_back(resource, part, &grant),
            }
            step.ends_at_most = step.tables.wide_at_once;
            step.end_by_itself(resource);
        });
    }
    groups::grant_ready_groups(tables, turn);
}

impl Step<'_> {
    fn take_back(&mut self, resource: &mut Resource, part: &Part, grant: &InFlight) {
        let Given::Hold { id, token, how } = part.given else { return };
        let Some(hold) = resource.hold(id).filter(|hold| hold.token == token) else { return };
        let request = grant.request.as_deref();
        if how == Taken::Known {
            // It gave the owner nothing that another call had not given.
            return;
        }
        let counts = match request {
            Some(_) => hold.seen(request) == Some(Did::Acquired),
            None => !id_is_counted(resource) || hold.count as usize > hold.open_ids(),
        };
        if !counts {
            // Its RELEASE came first.
            return;
        }
        let is_known = how == Taken::Entered || hold.answers != 0;
        if id_is_counted(resource) && hold.count > 1 {
            resource.change_hold(id, |hold| {
                hold.count -= 1;
                // The next copy is counted.
                hold.forget(request);
            });
            self.dirty = true;
            return;
        }
        if how == Taken::Entered && part.is_renewed {
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
            Stays::Grant(claim_ms) => *claim_ms,
            stays => {
                self.end_hold(resource, id, End::Returned);
                if let Stays::Entry(kept) = stays {
                    self.put_back(resource, kept);
                }
                self.hand_off(resource);
                return;
            }
        };
        // The same result as for an entry that had no connection when it was granted.
        let hold_ref = self.tables.leases.hold_ref(resource.key_id, id);
        let end = self.lease + claim_ms;
        resource.change_hold(id, |hold| {
            self.tables.connections.unbind_hold(hold_ref, hold);
            let extras = hold.extras_mut();
            extras.unclaimed = Some(Unclaimed { client: NO_CLIENT });
            if let Some(binding) = &mut extras.binding {
                binding.client = NO_CLIENT;
                binding.is_shortened = false;
            }
            hold.lease_ms = hold.lease_ms.max(claim_ms);
            hold.deadline = end;
            if let Some(subject) = crate::ports::subject::subject(id, hold) {
                self.fx.message(Event::Offered, self.key, subject);
            }
        });
        self.dirty = true;
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
