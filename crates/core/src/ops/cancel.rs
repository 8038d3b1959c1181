//! CANCEL of every family: a waiter leaves, or returns a grant that it has not claimed.

use crate::base::ids::HoldId;
use crate::base::kind::Kind;
use crate::ports::effects::{Answer, Outcome};
use crate::ports::turn::Turn;
use crate::run::call;
use crate::step::Step;
use crate::step::end::End;
use crate::step::giving_up::GivesUp;
use crate::step::requests::{Asks, Call};
use crate::tables::Tables;
use crate::value::hold::Hold;
use crate::value::resource::Resource;
use crate::value::spent::Use;
use alloc::vec::Vec;
use dlock_wire::request::Cancel;

/// CANCEL of DLOCK, DFAIR, DRW and DSEM (`kind`): the owner leaves the queue (its blocked call is answered Null),
/// or returns an unclaimed grant. 1 if it did either, else 0. The request that REQID names is over afterwards, even
/// if it has not arrived yet.
pub(crate) fn cancel(
    tables: &mut Tables,
    turn: &mut Turn<'_>,
    kind: Kind,
    call: &Cancel<'_>,
) -> Answer {
    let Cancel { key, owner, reqid: id } = *call;
    let call = Call { kind, mode: None, owner, id, asks: Asks::Cancel };
    call::on_request(tables, turn, key, call, |step, resource| {
        if id.is_none() {
            step.tables.in_flight.cancel_on_the_way(step.key, resource, owner, None);
        }
        let left = step.cancel_here(resource, owner);
        step.spend(call, Use::Cancelled(u32::from(left)));
        if left {
            step.hand_off(resource);
        }
        Outcome::Count(u64::from(left)).into()
    })
}

impl Step<'_> {
    /// Returns whether the owner left the queue or returned an unclaimed grant. The caller hands off.
    fn cancel_here(&mut self, resource: &mut Resource, owner: &[u8]) -> bool {
        if let Some(slot) = self.tables.waits.waiter_at(self.key, owner) {
            self.observe_giving_up_here(resource, slot, GivesUp::Cancelled);
            if let Some(waiter) = self.tables.remove_waiter(slot)
                && waiter.wait_state.is_parked()
            {
                self.fx.wake(waiter.id, Outcome::Null);
            }
            return true;
        }
        // An owner can have thousands of permits: do not walk over the claimed ones.
        let found: Vec<HoldId> = match resource.others() {
            Some(holds) if resource.kind() == Kind::Semaphore => {
                holds.all_to_claim(owner).collect()
            }
            _ => {
                let unclaimed = |(_, hold): &(HoldId, &Hold)| hold.unclaimed().is_some();
                resource.holds_of(owner).filter(unclaimed).map(|(id, _)| id).collect()
            }
        };
        for &id in &found {
            self.end_hold(resource, id, End::Returned);
        }
        !found.is_empty()
    }
}
