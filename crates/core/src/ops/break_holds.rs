//! BREAK of every family: an operator ends holds by force.

use crate::base::ids::HoldId;
use crate::base::kind::Kind;
use crate::ports::effects::{Answer, Outcome};
use crate::ports::turn::Turn;
use crate::run::call;
use crate::step::end::End;
use crate::tables::Tables;
use alloc::vec::Vec;
use dlock_wire::request::{OneKey, OnePermit, RwBreak};

/// DLOCK.BREAK and DFAIR.BREAK (`kind`): ends the hold of any owner. 1 if there was one, else 0.
pub(crate) fn break_lock(
    tables: &mut Tables,
    turn: &mut Turn<'_>,
    kind: Kind,
    call: &OneKey<'_>,
) -> Answer {
    call::on_short_call(tables, turn, kind, call.key, |step, resource| {
        if resource.lock().hold().is_none() {
            return Outcome::Count(0);
        }
        step.end_hold(resource, crate::base::ids::ALONE, End::Broken);
        step.hand_off(resource);
        Outcome::Count(1)
    })
}

/// DRW.BREAK: ends all holds, or those of `owner`. Returns their number. All readers stop at once; if there are
/// more than a step ends, the tick does the rest for each of them.
pub(crate) fn rw_break(tables: &mut Tables, turn: &mut Turn<'_>, call: &RwBreak<'_>) -> Answer {
    let owner = call.owner;
    call::on_short_call(tables, turn, Kind::Rw, call.key, |step, resource| {
        let at_once = if owner.is_none() { step.break_readers(resource) } else { 0 };
        let found = resource.holds();
        let found = found.filter(|(_, hold)| owner.is_none_or(|owner| *hold.owner == *owner));
        let found: Vec<HoldId> = found.map(|(id, _)| id).collect();
        for &id in &found {
            step.end_hold(resource, id, End::Broken);
        }
        let count = at_once + found.len();
        if count > 0 {
            step.hand_off(resource);
        }
        Outcome::Count(count as u64)
    })
}

/// DSEM.BREAK: ends a permit by force. 1 if it was out, else 0.
pub(crate) fn sem_break(tables: &mut Tables, turn: &mut Turn<'_>, call: &OnePermit<'_>) -> Answer {
    call::on_short_call(tables, turn, Kind::Semaphore, call.key, |step, resource| {
        let id = HoldId::from_be_bytes(call.permit);
        step.end_if_expired(resource, |_| [id].into());
        if resource.hold(id).is_none() {
            return Outcome::Count(0);
        }
        step.end_hold(resource, id, End::Broken);
        step.hand_off(resource);
        Outcome::Count(1)
    })
}
