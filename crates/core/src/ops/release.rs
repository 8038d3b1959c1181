//! RELEASE of every family: what a request has ends, and the hand-off.

use crate::base::ids::{ALONE, HoldId, WaiterSlot};
use crate::base::key::Key;
use crate::base::kind::Kind;
use crate::ops::semaphore::not_out;
use crate::ports::answers::quoted;
use crate::ports::effects::{Answer, Event, Outcome};
use crate::ports::turn::Turn;
use crate::run::call;
use crate::step::Step;
use crate::step::end::End;
use crate::step::giving_up::GivesUp;
use crate::step::holder::{Whose, hold_of, holds_of};
use crate::step::requests::{Asks, Call, hold_with, unknown};
use crate::tables::Tables;
use crate::value::resource::Resource;
use crate::value::spent::{Loss, RequestKey, Scope, Use};
use crate::value::wait_request::Demand;
use alloc::format;
use alloc::vec::Vec;
use dlock_wire::permit::{self, PermitId};
use dlock_wire::reply::ErrorCode;
use dlock_wire::request::{Mode, Release, RwRelease, SemRelease};

/// DLOCK.RELEASE and DFAIR.RELEASE (`kind`).
///
/// With REQID, that of the ACQUIRE, it ends what that request has, and nothing else:
///
/// | the request had | reply |
/// |---|---|
/// | a hold | the number of counts left |
/// | a place, or a blocked call, which gets Null | Null |
/// | a hold that had ended otherwise | `LOST` with the reason |
/// | nothing that is known, or a hold with another token than TOKEN | `UNKNOWN` |
///
/// Afterwards the request is over: copies of its ACQUIRE get `SPENT`, copies of the RELEASE the same reply.
///
/// Without REQID one count goes, first one without an id, else that of the youngest id; with ALL all of them and the
/// wait of the owner. An owner that holds nothing but waits leaves the queue (Null). `NOTHELD` if it does neither, or
/// does not hold it with TOKEN.
///
/// At 0 the lock goes to the first waiter in the same step, or stays closed for DELAY.
pub(crate) fn release(
    tables: &mut Tables,
    turn: &mut Turn<'_>,
    kind: Kind,
    call: &Release<'_>,
) -> Answer {
    release_hold(tables, turn, kind, None, call)
}

/// DRW.RELEASE: as DLOCK.RELEASE, for the hold of that mode.
pub(crate) fn rw_release(tables: &mut Tables, turn: &mut Turn<'_>, call: &RwRelease<'_>) -> Answer {
    if call.mode == Mode::Read && call.release.delay_ms.is_some() {
        return Outcome::fault(ErrorCode::Err, "DELAY needs WRITE: other readers may be there")
            .into();
    }
    release_hold(tables, turn, Kind::Rw, Some(call.mode), &call.release)
}

fn release_hold(
    tables: &mut Tables,
    turn: &mut Turn<'_>,
    kind: Kind,
    mode: Option<Mode>,
    call: &Release<'_>,
) -> Answer {
    if let Some(fault) = names_both(call.all, call.reqid) {
        return fault.into();
    }
    call::on_request(tables, turn, call.key, request_of(kind, mode, call), |step, resource| {
        step.release_here(resource, mode, call, false)
    })
}

/// `ERR` if a RELEASE names one request and all.
fn names_both(all: bool, id: Option<&[u8]>) -> Option<Outcome> {
    let is_both = all && id.is_some();
    is_both.then(|| {
        Outcome::fault(ErrorCode::Err, "REQID names one request, so it does not go with ALL")
    })
}

/// The request that a RELEASE names.
pub(crate) fn request_of<'a>(kind: Kind, mode: Option<Mode>, call: &Release<'a>) -> Call<'a> {
    Call { kind, mode, owner: call.owner, id: call.reqid, asks: Asks::Release }
}

impl Tables {
    /// The place or blocked call of a request with an id, which waits for `key`.
    pub(crate) fn waits_with(&self, key: Key<'_>, request: Call<'_>) -> Option<WaiterSlot> {
        let slot = self.waits_in(key, request)?;
        let leader = self.waits.leader(self.waits.get(slot)?);
        (leader.ask.request.as_deref() == request.id).then_some(slot)
    }

    /// The place or blocked call of an owner, in this mode of a read-write lock.
    fn waits_in(&self, key: Key<'_>, request: Call<'_>) -> Option<WaiterSlot> {
        let slot = self.waits.waiter_at(key, request.owner)?;
        let demand = self.waits.get(slot)?.ask.demand;
        request.mode.is_none_or(|mode| demand == Demand::Rw(mode)).then_some(slot)
    }
}

impl Step<'_> {
    /// Ends what a request has, or one count or all of the owner. `has_waited`: the request waited for this key until
    /// its wait ended at another one.
    pub(crate) fn release_here(
        &mut self,
        resource: &mut Resource,
        mode: Option<Mode>,
        call: &Release<'_>,
        has_waited: bool,
    ) -> Outcome {
        let request = request_of(resource.kind(), mode, call);
        let Some(name) = request.name() else {
            let whose = Whose { owner: call.owner, mode, token: call.token };
            let holds = hold_of(self.key, resource, whose).is_ok();
            match self.tables.waits_in(self.key, request) {
                Some(slot) if !holds && call.token.is_none() => {
                    return self.give_up(resource, request, slot);
                }
                // First: the lock must not go to the owner that gives it up.
                Some(slot) if holds && call.all => self.leave(resource, request, slot),
                _ => {}
            }
            return self.release_counted(resource, mode, call);
        };
        let waits = self.tables.waits_with(self.key, request);
        if let Some((hold, found)) = hold_with(resource, name) {
            let is_it = call.token.is_none_or(|token| token == found.token);
            // Another hold than the one that was meant ends quietly.
            let delay_ms = call.delay_ms.filter(|_| is_it);
            let call = Release { done: call.done && is_it, delay_ms, ..*call };
            let left = self.end_count(resource, hold, &call);
            // A MACQUIRE that holds this key may wait for others: its wait ends at all.
            if let Some(slot) = waits {
                self.leave(resource, request, slot);
            }
            if left == 0 || waits.is_some() {
                self.hand_off(resource);
            }
            if is_it {
                return self.released(resource, request, left);
            }
        } else if let Some(slot) = waits {
            return self.give_up(resource, request, slot);
        } else if has_waited {
            self.spend(request, Use::Waited);
            return Outcome::Null;
        }
        self.spend(request, Use::Unknown);
        unknown(self.key, name)
    }

    /// The answer to a RELEASE that ended a count of a hold, or permits: that many are `left`, or free.
    fn released(&mut self, resource: &Resource, request: Call<'_>, left: u32) -> Outcome {
        if resource.kind() != Kind::Semaphore {
            self.spend(request, Use::Released(left));
            return Outcome::Count(u64::from(left));
        }
        let available = resource.available();
        // Negative while more permits are out than there are. Both bounds fit.
        let answer = i32::try_from(available).unwrap_or_default();
        self.spend(request, Use::Released(answer.cast_unsigned()));
        Outcome::Available(available)
    }

    /// A RELEASE without an id: one count less, or with ALL none left.
    pub(crate) fn release_counted(
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
        let left = self.end_count(resource, id, call);
        if left == 0 {
            self.hand_off(resource);
        }
        Outcome::Count(u64::from(left))
    }

    /// One count less of a hold, or with ALL and for permits none left: that of the request, which the caller notes;
    /// without an id one without an id, else that of the youngest. Returns the number of counts left. The caller hands
    /// off.
    fn end_count(&mut self, resource: &mut Resource, hold_id: HoldId, call: &Release<'_>) -> u32 {
        let ends = call.all || resource.kind() == Kind::Semaphore;
        let mut overtaken = None;
        let left = resource.change_hold(hold_id, |hold| {
            let is_last = ends || hold.count == 1;
            if call.reqid.is_none() && !is_last && hold.count as usize == hold.request_ids().count()
            {
                overtaken = hold.request_ids().last().map(Vec::from);
            }
            hold.forget(call.reqid.or(overtaken.as_deref()));
            if is_last {
                // What the other ids get, if there are any, comes with the end of the hold.
                return 0;
            }
            hold.count -= 1;
            hold.touch();
            hold.count
        });
        self.dirty = true;
        let left = left.unwrap_or(0);
        if left == 0 {
            self.end_hold(resource, hold_id, if call.done { End::Done } else { End::Released });
            if let Some(ms) = call.delay_ms.filter(|_| hold_id == ALONE) {
                self.close(resource, ms);
            }
            return 0;
        }
        self.fx.note(self.key, Event::Release);
        self.tables.counters.releases += 1;
        let scope = Scope::of_hold(resource.kind(), hold_id);
        if let (Some(scope), Some(id)) = (scope, overtaken) {
            let name = RequestKey { scope, owner: call.owner, id: &id };
            self.note_spent(name, Use::Lost(Loss::Released));
        }
        left
    }

    /// A wait ends: a blocked call gets Null. Its request is over.
    fn give_up(&mut self, resource: &mut Resource, request: Call<'_>, slot: WaiterSlot) -> Outcome {
        self.leave(resource, request, slot);
        self.hand_off(resource);
        Outcome::Null
    }

    /// The same. The caller hands off.
    fn leave(&mut self, resource: &Resource, request: Call<'_>, slot: WaiterSlot) {
        self.observe_giving_up_here(resource, slot, GivesUp::Released);
        let leader = self.tables.waits.get(slot).map(|waiter| self.tables.waits.leader(waiter));
        let id = leader.and_then(|waiter| waiter.ask.request.clone());
        if let Some(waiter) = self.tables.remove_waiter(slot)
            && waiter.wait_state.is_parked()
        {
            self.fx.wake(waiter.id, Outcome::Null);
        }
        self.spend(Call { id: id.as_deref(), ..request }, Use::Waited);
    }
}

/// DSEM.RELEASE: as DLOCK.RELEASE for the permits of a request, or of all requests of an owner. Without either it
/// returns the permits of a permit id. The reply is the number of free permits afterwards; `NOTHELD` if the permit is
/// unknown or has ended.
pub(crate) fn sem_release(
    tables: &mut Tables,
    turn: &mut Turn<'_>,
    call: &SemRelease<'_>,
) -> Answer {
    if let Some(fault) = names_both(call.all, call.reqid) {
        return fault.into();
    }
    let (kind, mode, asks) = (Kind::Semaphore, None, Asks::Release);
    let request = Call { kind, mode, owner: call.holder, id: call.reqid, asks };
    let permit = permit::parse(call.holder);
    call::on_request(tables, turn, call.key, request, |step, resource| {
        let names_owner = call.all || call.reqid.is_some();
        let out = permit.map(HoldId::from_be_bytes).filter(|id| resource.hold(*id).is_some());
        match (names_owner, permit, out) {
            (true, _, Some(_)) => {
                Outcome::fault(ErrorCode::Err, "REQID and ALL need the owner, not a permit id")
            }
            (true, ..) if call.all => step.release_owner(resource, request),
            (true, ..) => {
                let named = Release { reqid: call.reqid, ..Release::new(call.key, call.holder) };
                step.release_here(resource, None, &named, false)
            }
            (false, Some(permit), _) => step.release_permit(resource, permit, request),
            (false, None, _) => {
                let holder = quoted(call.holder);
                let text = format!(
                    "{holder} is no permit id (a UUID). With an owner, RELEASE needs REQID id, or ALL"
                );
                Outcome::fault(ErrorCode::Err, text)
            }
        }
    })
}

impl Step<'_> {
    fn release_permit(
        &mut self,
        resource: &mut Resource,
        permit: PermitId,
        request: Call<'_>,
    ) -> Outcome {
        let hold = HoldId::from_be_bytes(permit);
        self.end_if_expired(resource, |_| [hold].into());
        if resource.hold(hold).is_none() {
            return not_out(self, permit);
        }
        self.end_hold(resource, hold, End::Released);
        self.hand_off(resource);
        self.released(resource, request, 0)
    }

    fn release_owner(&mut self, resource: &mut Resource, request: Call<'_>) -> Outcome {
        self.end_if_expired(resource, |resource| holds_of(resource, request.owner));
        let permits = holds_of(resource, request.owner);
        for &hold in &permits {
            self.end_hold(resource, hold, End::Released);
        }
        let waits = self.tables.waits.waiter_at(self.key, request.owner);
        let left = waits.map(|slot| self.give_up(resource, request, slot));
        self.hand_off(resource);
        match left {
            _ if !permits.is_empty() => Outcome::Available(resource.available()),
            Some(left) => left,
            None => {
                let (owner, key) = (quoted(request.owner), quoted(self.key.name));
                let text = format!("{owner} has no permits of {key} and does not wait for any");
                Outcome::fault(ErrorCode::NotHeld, text)
            }
        }
    }
}
