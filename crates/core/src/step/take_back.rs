//! Grants that are taken back: their answer did not arrive, or a call for several keys could not get all.

use crate::base::ids::HoldId;
use crate::base::key::Key;
use crate::base::kind::Kind;
use crate::base::time::Millis;
use crate::ports::subject::subject;
use crate::step::Step;
use crate::step::end::End;
use crate::tables::pending::in_flight::{Kept, Stays, Taken};
use crate::tables::queues::waiter::{NewWaiter, Position, WaitState};
use crate::value::hold::{NO_CLIENT, Unclaimed};
use crate::value::resource::Resource;
use dlock_wire::message::Event;

/// What a grant did to one hold, and what is left if it is taken back.
pub(crate) struct Grant<'a> {
    pub id: HoldId,
    /// The fencing token; 0 for permits.
    pub token: u64,
    pub how: Taken,
    pub request: Option<&'a [u8]>,
    /// A RENEW of the hold was answered since.
    pub is_renewed: bool,
    pub stays: &'a Stays,
}

impl Step<'_> {
    /// Takes back a grant, as its request has it: the owner has not learnt of it. The caller notes that a copy was not
    /// answered since.
    pub(crate) fn take_back(&mut self, resource: &mut Resource, grant: &Grant<'_>) {
        let Grant { id, token, how, request, is_renewed, stays } = *grant;
        let Some(hold) = resource.hold(id).filter(|hold| hold.token == token) else { return };
        // The count of a permit is its size.
        let is_counted = resource.kind() != Kind::Semaphore;
        let counts = match request {
            Some(_) => hold.has_request(request),
            None => !is_counted || hold.count as usize > hold.request_ids().count(),
        };
        if !counts || how == Taken::Known {
            // Its RELEASE came first, or it gave the owner nothing that another call had not given.
            return;
        }
        if is_counted && hold.count > 1 {
            resource.change_hold(id, |hold| {
                hold.count -= 1;
                // The next copy is counted.
                hold.forget(request);
            });
            self.dirty = true;
            return;
        }
        match how {
            Taken::Entered if !is_renewed => {
                // The owner has released the hold as often as it knows to have entered it: only this grant is left.
                resource.change_hold(id, |hold| hold.forget(request));
                self.end_hold(resource, id, End::Released);
            }
            Taken::New if hold.answers == 0 => match stays {
                Stays::Grant(claim_ms) => return self.offer(resource, id, *claim_ms),
                Stays::Nothing => self.end_hold(resource, id, End::Returned),
                Stays::Entry(kept) => {
                    self.end_hold(resource, id, End::Returned);
                    self.put_back(resource, kept);
                }
            },
            // The owner knows the hold by another answer.
            _ => return,
        }
        self.hand_off(resource);
    }

    /// The grant of a fair lock stays as an offer: the same as for an entry that had no connection when it was granted.
    fn offer(&mut self, resource: &mut Resource, id: HoldId, claim_ms: Millis) {
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
            if let Some(subject) = subject(id, hold) {
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
