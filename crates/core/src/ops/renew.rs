//! RENEW of every family: the lease is extended.

use crate::base::ids::HoldId;
use crate::base::kind::Kind;
use crate::base::time::Millis;
use crate::ops::semaphore::not_out;
use crate::ports::effects::{Answer, Outcome};
use crate::ports::turn::Turn;
use crate::run::call;
use crate::run::call::refused_in_script;
use crate::step::Step;
use crate::step::holder::{Whose, hold_of, holds_of};
use crate::tables::Tables;
use crate::value::resource::Resource;
use dlock_wire::request::{Mode, Renew, RwRenew, SemRenew};

/// DLOCK.RENEW and DFAIR.RENEW (`kind`): the hold lasts at least PX from now. Without PX or EX it uses the hold's own
/// lease. The reply is the token; `NOTHELD` if the owner does not hold it, or not with TOKEN.
pub(crate) fn renew(
    tables: &mut Tables,
    turn: &mut Turn<'_>,
    kind: Kind,
    call: &Renew<'_>,
) -> Answer {
    renew_hold(tables, turn, kind, None, call)
}

pub(crate) fn renew_hold(
    tables: &mut Tables,
    turn: &mut Turn<'_>,
    kind: Kind,
    mode: Option<Mode>,
    call: &Renew<'_>,
) -> Answer {
    if let Some(fault) = refused_in_script(turn.caller, call.bind_ms, None) {
        return fault.into();
    }
    call::on_short_call(tables, turn, kind, call.key, |step, resource| {
        step.end_if_expired(resource, |resource| holds_of(resource, call.owner));
        let whose = Whose { owner: call.owner, mode, token: call.token };
        match hold_of(step.key, resource, whose) {
            Ok(id) => {
                step.renew_here(resource, id, call.lease_ms, call.bind_ms);
                resource.hold(id).map_or(Outcome::Null, |hold| Outcome::Token(hold.token))
            }
            Err(fault) => fault,
        }
    })
}

impl Step<'_> {
    /// Extends a lease.
    pub(crate) fn renew_here(
        &mut self,
        resource: &mut Resource,
        id: HoldId,
        lease_ms: Option<Millis>,
        bind_ms: Option<Millis>,
    ) {
        let hold_ref = self.tables.leases.hold_ref(resource.key_id, id);
        resource.change_hold(id, |hold| {
            let lease_ms = lease_ms.unwrap_or(hold.lease_ms);
            self.tables.follow(hold_ref, hold, bind_ms, self.caller.client);
            hold.promise(self.lease, lease_ms);
            self.tables.in_flight.renewed(self.key, id, hold.token);
            hold.touch();
        });
        self.dirty = true;
    }
}

/// DRW.RENEW: as DLOCK.RENEW, for the hold of that mode.
pub(crate) fn rw_renew(tables: &mut Tables, turn: &mut Turn<'_>, call: &RwRenew<'_>) -> Answer {
    renew_hold(tables, turn, Kind::Rw, Some(call.mode), &call.renew)
}

/// DSEM.RENEW: extends the lease of a permit. 1; `NOTHELD` if it is unknown or has ended.
pub(crate) fn sem_renew(tables: &mut Tables, turn: &mut Turn<'_>, call: &SemRenew<'_>) -> Answer {
    if let Some(fault) = refused_in_script(turn.caller, call.bind_ms, None) {
        return fault.into();
    }
    call::on_short_call(tables, turn, Kind::Semaphore, call.key, |step, resource| {
        let id = HoldId::from_be_bytes(call.permit);
        step.end_if_expired(resource, |_| [id].into());
        if resource.hold(id).is_none() {
            return not_out(step, call.permit);
        }
        step.renew_here(resource, id, call.lease_ms, call.bind_ms);
        Outcome::Count(1)
    })
}
