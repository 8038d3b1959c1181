//! An ACQUIRE by an owner that already has a hold: a resent call, a claim, or a re-entry.

use crate::effects::{Event, Outcome};
use crate::hand_off::granted;
use crate::machine::{Grip, Machine, quoted};
use crate::ops::acquire::Asked;
use crate::ops::requests::{Asks, Call};
use crate::queues::waiter::Want;
use crate::state::hold::{Did, Hold};
use crate::state::holds::{ALONE, HoldId};
use crate::state::resource::{Body, Resource};
use crate::time::{LeaseInstant, Millis};
use crate::turn::Step;
use alloc::format;
use dlock_wire::reply::ErrorCode;
use dlock_wire::request::Acquire;

impl Machine {
    /// The owner holds it already: the call is a resent call, a claim, or a re-entry.
    pub(crate) fn acquire_again(
        &mut self,
        step: &mut Step<'_>,
        resource: &mut Resource,
        id: HoldId,
        asked: Asked<'_>,
    ) -> Outcome {
        let grip = (resource.entry, id);
        let answer = resource.change_hold(id, |hold| self.again(step, grip, hold, asked));
        answer.unwrap_or(Outcome::Null)
    }

    fn again(
        &mut self,
        step: &mut Step<'_>,
        grip: Grip,
        hold: &mut Hold,
        asked: Asked<'_>,
    ) -> Outcome {
        let call = asked.call;
        let lease_ms = self.lease_of(call);
        let is_repeat = hold.seen(call.reqid).is_some();
        if let Want::Permits { count, .. } = asked.want
            && hold.count != count
        {
            // A client that asked for another number must not take these for its permits.
            return Call::without_owner(call.reqid, Asks::Acquire).misused(step.key);
        }
        if hold.unclaimed().is_some() {
            if !is_repeat {
                hold.remember(call.reqid, Did::Acquire);
                self.dress(grip, hold, step.caller.client, call);
            }
            self.follow(grip, hold, call.bind_ms, step.caller.client);
            claim(hold, step, lease_ms);
        } else if is_repeat {
            self.follow(grip, hold, call.bind_ms, step.caller.client);
            self.answered_again(step.key, (grip.1, hold.token), call.reqid);
        } else if call.no_reentry {
            let text = format!("{} already holds {}", quoted(call.owner), quoted(call.key));
            return Outcome::fault(ErrorCode::Reentry, text);
        } else {
            let Some(count) = hold.count.checked_add(1) else {
                let text = format!("{} is held {} times already", quoted(call.key), hold.count);
                return Outcome::fault(ErrorCode::Limit, text);
            };
            hold.count = count;
            hold.remember(call.reqid, Did::Acquire);
            self.dress(grip, hold, step.caller.client, call);
            let deadline = step.lease + lease_ms;
            if deadline > hold.deadline {
                set_deadline(hold, deadline);
                hold.lease_ms = lease_ms;
            }
            step.fx.note(step.key, Event::Acquire);
            self.counters.grants_at_once += 1;
        }
        hold.answers = hold.answers.wrapping_add(1);
        step.dirty = true;
        granted(grip.1, hold.token, asked.want)
    }
}

/// The hold of the owner that a call re-enters, claims or repeats.
pub(crate) fn own_hold(resource: &Resource, call: &Acquire<'_>, want: Want) -> Option<HoldId> {
    match (&resource.body, want) {
        (Body::Rw(rw), Want::Rw(mode)) => rw.find(call.owner, mode),
        (Body::Semaphore(semaphore), Want::Permits { count, .. }) => {
            let permits = &semaphore.permits;
            let repeated = call.reqid.and_then(|id| permits.by_request(call.owner, id));
            let repeated = repeated.map(|(id, _)| id);
            repeated.or_else(|| permits.to_claim(call.owner, count))
        }
        _ => resource.lock().hold().filter(|hold| *hold.owner == *call.owner).map(|_| ALONE),
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
        && let Some(tie) = &mut extras.tie
    {
        let until = tie.orphan_until.unwrap_or(deadline);
        tie.cut = until < deadline;
        hold.deadline = deadline.min(until);
    }
}
