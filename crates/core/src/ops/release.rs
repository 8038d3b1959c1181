//! RELEASE of every family: one hold less, and the hand-off.

use crate::base::ids::HoldId;
use crate::base::kind::Kind;
use crate::ops::semaphore::not_out;
use crate::ports::effects::{Answer, Event, Outcome};
use crate::ports::turn::Turn;
use crate::run::call;
use crate::step::Step;
use crate::step::end::End;
use crate::step::holder::{Whose, hold_of};
use crate::step::reentry::claim;
use crate::step::requests::{Asks, Call};
use crate::tables::Tables;
use crate::value::hold::Did;
use crate::value::resource::Resource;
use crate::value::spent::Use;
use dlock_wire::reply::ErrorCode;
use dlock_wire::request::{Mode, Release, RwRelease, SemRelease};

/// DLOCK.RELEASE and DFAIR.RELEASE (`kind`): one hold less, or with ALL none left. The reply counts what remains.
/// At 0 the lock goes to the first waiter in the same step.
///
/// `NOTHELD` if the owner does not hold it, or not with TOKEN. A repeated REQID of a RELEASE counts nothing and
/// gets the same answer, even if the hold has ended since; `SPENT` where that was `NOTHELD`.
pub(crate) fn release(
    tables: &mut Tables,
    turn: &mut Turn<'_>,
    kind: Kind,
    call: &Release<'_>,
) -> Answer {
    release_hold(tables, turn, kind, None, call)
}

pub(crate) fn release_hold(
    tables: &mut Tables,
    turn: &mut Turn<'_>,
    kind: Kind,
    mode: Option<Mode>,
    call: &Release<'_>,
) -> Answer {
    let request = releases(kind, mode, call);
    call::on_request(tables, turn, call.key, request, |step, resource| {
        let outcome = step.release_here(resource, mode, call);
        if matches!(&outcome, Outcome::Fault(fault) if fault.code == ErrorCode::NotHeld) {
            // A later copy must not release the owner's next hold.
            step.spend(request, Use::PassedOver);
        }
        outcome.into()
    })
}

impl Step<'_> {
    pub(crate) fn release_here(
        &mut self,
        resource: &mut Resource,
        mode: Option<Mode>,
        call: &Release<'_>,
    ) -> Outcome {
        let whose = Whose { owner: call.owner, mode, token: call.token };
        let id = match hold_of(self.key, resource, whose) {
            Ok(id) => id,
            Err(fault) => return fault,
        };
        let hold_ref = self.tables.leases.hold_ref(resource.key_id, id);
        let mut answer = None;
        let remaining = resource.change_hold(id, |hold| {
            if let Some(did) = hold.seen(call.reqid) {
                if let Did::Release(said) = did {
                    answer = Some(said);
                }
                self.tables.follow(hold_ref, hold, None, self.caller.client);
                if hold.unclaimed().is_some() {
                    let lease_ms = hold.lease_ms;
                    claim(hold, self, lease_ms);
                }
            } else if !call.all && hold.count > 1 {
                hold.count -= 1;
                hold.remember(call.reqid, Did::Release(hold.count));
                self.fx.note(self.key, Event::Release);
                self.tables.counters.releases += 1;
            } else {
                return 0;
            }
            hold.answers = hold.answers.wrapping_add(1);
            self.dirty = true;
            hold.count
        });
        match remaining {
            Some(0) | None => {
                self.end_hold(resource, id, if call.done { End::Done } else { End::Released });
                self.spend(releases(resource.kind(), mode, call), Use::Released(0));
                self.hand_off(resource);
                Outcome::Count(0)
            }
            Some(remaining) => Outcome::Count(u64::from(answer.unwrap_or(remaining))),
        }
    }
}

/// DRW.RELEASE: as DLOCK.RELEASE, for the hold of that mode.
pub(crate) fn rw_release(tables: &mut Tables, turn: &mut Turn<'_>, call: &RwRelease<'_>) -> Answer {
    release_hold(tables, turn, Kind::Rw, Some(call.mode), &call.release)
}

/// DSEM.RELEASE: returns a permit. The reply is the number of free permits afterwards; `NOTHELD` if the permit is
/// unknown or has ended. REQID as for a lock.
pub(crate) fn sem_release(
    tables: &mut Tables,
    turn: &mut Turn<'_>,
    call: &SemRelease<'_>,
) -> Answer {
    // The permit takes the place of the owner: an id stands for one request about one permit.
    let (owner, asks) = (&call.permit[..], Asks::Release);
    let request = Call { kind: Kind::Semaphore, mode: None, owner, id: call.reqid, asks };
    call::on_request(tables, turn, call.key, request, |step, resource| {
        let id = HoldId::from_be_bytes(call.permit);
        step.end_if_expired(resource, |_| [id].into());
        if resource.hold(id).is_none() {
            step.spend(request, Use::PassedOver);
            return not_out(step, call.permit).into();
        }
        step.end_hold(resource, id, End::Released);
        step.hand_off(resource);
        let available = resource.available();
        step.spend(request, Use::Released(u32::try_from(available).unwrap_or(0)));
        Outcome::Available(available).into()
    })
}

/// What a RELEASE does to a hold in `mode`.
fn releases<'a>(kind: Kind, mode: Option<Mode>, call: &Release<'a>) -> Call<'a> {
    Call { kind, mode, owner: call.owner, id: call.reqid, asks: Asks::Release }
}
