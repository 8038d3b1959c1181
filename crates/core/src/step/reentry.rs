//! An ACQUIRE by an owner that already has a hold: a copy, the request of a place that was granted, or a re-entry.

use crate::base::ids::{HoldId, HoldRef};
use crate::ports::answers::{granted, quoted};
use crate::ports::effects::{Event, Outcome};
use crate::step::Step;
use crate::step::requests::misused;
use crate::step::terms::Terms;
use crate::value::hold::{Hold, OPEN_MAX};
use crate::value::resource::Resource;
use crate::value::spent::{RequestKey, Scope};
use crate::value::wait_request::Demand;
use alloc::format;
use dlock_wire::reply::ErrorCode;

impl Step<'_> {
    /// The owner holds it already: see the module documentation.
    pub(crate) fn acquire_again(
        &mut self,
        resource: &mut Resource,
        id: HoldId,
        terms: &Terms<'_>,
    ) -> Outcome {
        let hold_ref = self.tables.leases.hold_ref(resource.key_id, id);
        let answer = resource.change_hold(id, |hold| self.again(hold_ref, hold, terms));
        answer.unwrap_or(Outcome::Null)
    }

    fn again(&mut self, hold_ref: HoldRef, hold: &mut Hold, terms: &Terms<'_>) -> Outcome {
        let Terms { demand, lease_ms, bind_ms, reqid, client, .. } = *terms;
        let is_copy = hold.has_request(reqid);
        if let (Demand::Permits { count, .. }, Some(id)) = (demand, reqid)
            && hold.count != count
        {
            // A client that asked for another number must not take these for its permits.
            let name = RequestKey { scope: Scope::Semaphore, owner: terms.owner, id };
            return misused(self.key, name);
        }
        if is_copy {
            let known = Some((hold_ref.id, hold.token));
            self.tables.in_flight.answered_again(self.key, known, reqid);
        } else if reqid.is_some() || !hold.is_nameless_grant() {
            if terms.no_reentry {
                let text =
                    format!("{} already holds {}", quoted(terms.owner), quoted(self.key.name));
                return Outcome::fault(ErrorCode::Reentry, text);
            }
            if let Some(full) = self.no_room_in(hold, reqid) {
                return full;
            }
            hold.count += 1;
            self.remember(hold, terms);
            self.fx.note(self.key, Event::Acquire);
            self.tables.counters.grants_at_once += 1;
        }
        hold.set_label(terms.label.filter(|_| !is_copy));
        self.tables.follow(hold_ref, hold, bind_ms, client);
        hold.promise(self.lease, lease_ms);
        hold.touch();
        self.dirty = true;
        granted(hold_ref.id, hold.token, demand)
    }

    /// `LIMIT` if a hold cannot be entered once more. A copy does not enter it.
    pub(crate) fn no_room_in(&self, hold: &Hold, reqid: Option<&[u8]>) -> Option<Outcome> {
        let key = quoted(self.key.name);
        let text = if hold.has_request(reqid) {
            return None;
        } else if hold.count == u32::MAX {
            format!("{key} is held {} times already", hold.count)
        } else if reqid.is_some() && hold.request_ids().count() >= OPEN_MAX {
            format!(
                "{key} is held by {OPEN_MAX} requests of {} already. RELEASE them, or all with ALL",
                quoted(&hold.owner)
            )
        } else {
            return None;
        };
        Some(Outcome::fault(ErrorCode::Limit, text))
    }
}
