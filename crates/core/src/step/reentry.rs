//! An ACQUIRE by an owner that already has a hold: a resent call, a claim, or a re-entry.

use crate::base::ids::{HoldId, HoldRef};
use crate::base::time::{LeaseInstant, Millis};
use crate::ports::answers::{granted, quoted};
use crate::ports::effects::{Event, Outcome};
use crate::step::Step;
use crate::step::requests::{Asks, Call};
use crate::step::terms::Terms;
use crate::value::hold::{Did, Hold};
use crate::value::resource::Resource;
use crate::value::wait_request::Demand;
use alloc::format;
use dlock_wire::reply::ErrorCode;

impl Step<'_> {
    /// The owner holds it already: the call is a resent call, a claim, or a re-entry.
    pub(crate) fn acquire_again(
        &mut self,
        resource: &mut Resource,
        id: HoldId,
        terms: Terms<'_>,
    ) -> Outcome {
        let hold_ref = self.tables.leases.hold_ref(resource.key_id, id);
        let answer = resource.change_hold(id, |hold| self.again(hold_ref, hold, terms));
        answer.unwrap_or(Outcome::Null)
    }

    fn again(&mut self, hold_ref: HoldRef, hold: &mut Hold, terms: Terms<'_>) -> Outcome {
        let Terms { demand, lease_ms, bind_ms, reqid, client, .. } = terms;
        let is_repeat = hold.seen(reqid).is_some();
        if let Demand::Permits { count, .. } = demand
            && hold.count != count
        {
            // A client that asked for another number must not take these for its permits.
            return Call::without_owner(reqid, Asks::Acquire).misused(self.key);
        }
        if hold.unclaimed().is_some() {
            if !is_repeat {
                hold.remember(reqid, Did::Acquire);
                self.tables.apply_options(hold_ref, hold, terms);
            }
            self.tables.follow(hold_ref, hold, bind_ms, client);
            claim(hold, self, lease_ms);
        } else if is_repeat {
            self.tables.follow(hold_ref, hold, bind_ms, client);
            self.tables.in_flight.answered_again(self.key, hold_ref.id, hold.token, reqid);
        } else if terms.no_reentry {
            let text = format!("{} already holds {}", quoted(terms.owner), quoted(self.key.name));
            return Outcome::fault(ErrorCode::Reentry, text);
        } else {
            let Some(count) = hold.count.checked_add(1) else {
                let text =
                    format!("{} is held {} times already", quoted(self.key.name), hold.count);
                return Outcome::fault(ErrorCode::Limit, text);
            };
            hold.count = count;
            hold.remember(reqid, Did::Acquire);
            self.tables.apply_options(hold_ref, hold, terms);
            let deadline = self.lease + lease_ms;
            if deadline > hold.deadline {
                set_deadline(hold, deadline);
                hold.lease_ms = lease_ms;
            }
            self.fx.note(self.key, Event::Acquire);
            self.tables.counters.grants_at_once += 1;
        }
        hold.answers = hold.answers.wrapping_add(1);
        self.dirty = true;
        granted(hold_ref.id, hold.token, demand)
    }
}

/// The owner claims a QUEUE grant: its lease starts.
pub(crate) fn claim(hold: &mut Hold, step: &Step<'_>, lease_ms: Millis) {
    hold.extras_mut().unclaimed = None;
    hold.lease_ms = lease_ms;
    set_deadline(hold, step.lease + lease_ms);
}

/// Sets a new end of a hold. An orphan that was not bound again cannot outlive its grace.
pub(crate) fn set_deadline(hold: &mut Hold, deadline: LeaseInstant) {
    hold.deadline = deadline;
    if let Some(extras) = &mut hold.extras
        && let Some(binding) = &mut extras.binding
    {
        let until = binding.orphan_until.unwrap_or(deadline);
        binding.is_shortened = until < deadline;
        hold.deadline = deadline.min(until);
    }
}
