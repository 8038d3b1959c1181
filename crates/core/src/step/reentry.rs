//! An ACQUIRE by an owner that already has a hold: a copy, the request of a place that was granted, or a re-entry.

use crate::base::ids::{HoldId, HoldRef};
use crate::ports::answers::{granted, quoted};
use crate::ports::effects::{Event, Outcome};
use crate::step::Step;
use crate::step::requests::{Asks, Call, spent_in};
use crate::step::terms::Terms;
use crate::value::hold::{Did, Hold, OPEN_MAX};
use crate::value::resource::Resource;
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
        let is_copy = hold.seen(reqid) == Some(Did::Acquired);
        if let Demand::Permits { count, .. } = demand
            && hold.count != count
        {
            // A client that asked for another number must not take these for its permits.
            return Call::without_owner(reqid, Asks::Acquire).misused(self.key);
        }
        if is_copy {
            self.tables.in_flight.answered_again(self.key, hold_ref.id, hold.token, reqid);
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
            hold.remember(reqid);
            hold.set_label(terms.label);
            self.fx.note(self.key, Event::Acquire);
            self.tables.counters.grants_at_once += 1;
        }
        if let Some(extras) = &mut hold.extras {
            extras.unclaimed = None;
        }
        self.tables.follow(hold_ref, hold, bind_ms, client);
        hold.promise(self.lease, lease_ms);
        hold.answers = hold.answers.saturating_add(1);
        self.dirty = true;
        granted(hold_ref.id, hold.token, demand)
    }

    /// `LIMIT` if a hold cannot be entered once more, `SPENT` if the request is over in it. A copy does not enter it.
    pub(crate) fn no_room_in(&self, hold: &Hold, reqid: Option<&[u8]>) -> Option<Outcome> {
        match (hold.seen(reqid), reqid) {
            (Some(Did::Acquired), _) => return None,
            (Some(_), Some(id)) => return Some(spent_in(self.key, &hold.owner, id)),
            _ => {}
        }
        let key = quoted(self.key.name);
        let text = if hold.count == u32::MAX {
            format!("{key} is held {} times already", hold.count)
        } else if reqid.is_some() && !hold.has_room_for_id() {
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
