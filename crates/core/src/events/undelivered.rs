//! Grants in flight to a parked caller. Its connection may close before they arrive.

use crate::base::ids::WaiterId;
use crate::base::key::Key;
use crate::ports::turn::Turn;
use crate::run::{enter, groups};
use crate::step::requests::{Asks, Call};
use crate::step::take_back::Grant;
use crate::tables::Tables;
use crate::tables::pending::in_flight::Given;
use crate::value::resource::Body;

/// The connection of a parked caller went away before its grant could be sent.
///
/// The grant is taken back, by the id of its request, and handed off: not if that was released since, or if a copy
/// of it was answered. Other requests of the owner in the hold stay. A hold that is known to the owner by another
/// answer stays. With QUEUE the entry returns to its position, without a connection. A grant of a fair lock stays, as
/// an offer.
pub(crate) fn undelivered(tables: &mut Tables, turn: &mut Turn<'_>, waiter: WaiterId) {
    let Some(grant) = tables.in_flight.remove(waiter) else { return };
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
                    if let Body::Semaphore(semaphore) = &mut resource.body {
                        semaphore.taken -= n.min(semaphore.taken);
                    }
                    step.dirty |= n > 0;
                    if let Some(name) = Call::without_owner(request, Asks::Take(n)).name() {
                        step.forget_spent(name);
                    }
                    step.hand_off(resource);
                }
                Given::Hold { id, token, how } => {
                    let (is_renewed, stays) = (part.is_renewed, &grant.stays);
                    step.take_back(resource, &Grant { id, token, how, request, is_renewed, stays });
                }
            }
            step.ends_at_most = step.tables.wide_at_once;
            step.end_by_itself(resource);
        });
    }
    groups::grant_ready_groups(tables, turn);
}
