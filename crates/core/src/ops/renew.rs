//! RENEW of every family: a new end of the lease.

use crate::base::ids::HoldId;
use crate::base::kind::Kind;
use crate::base::time::Millis;
use crate::ops::semaphore;
use crate::ops::semaphore::not_out;
use crate::ports::effects::{Answer, Outcome};
use crate::ports::turn::Turn;
use crate::run::call;
use crate::run::call::refused_in_script;
use crate::step::Step;
use crate::step::holder::{Whose, hold_of, holds_of};
use crate::step::reentry::{claim, set_deadline};
use crate::tables::Tables;
use crate::value::resource::Resource;
use dlock_wire::request::{Mode, Renew, RwRenew, SemRenew};

/// DLOCK.RENEW and DFAIR.RENEW (`kind`): sets a new end of the lease, which may be sooner or later. Without PX or
/// EX it uses the hold's own lease. It claims a QUEUE grant. The reply is the token; `NOTHELD` as for RELEASE.
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
    /// Sets a new end of a lease.
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
            if bind_ms.is_some() || hold.unclaimed().is_some() {
                self.tables.follow(hold_ref, hold, bind_ms, self.caller.client);
            }
            if hold.unclaimed().is_some() {
                claim(hold, self, lease_ms);
            } else {
                hold.lease_ms = lease_ms;
                set_deadline(hold, self.lease + lease_ms);
            }
            hold.answers = hold.answers.wrapping_add(1);
        });
        self.dirty = true;
    }
}

/// DRW.RENEW: as DLOCK.RENEW, for the hold of that mode.
pub(crate) fn rw_renew(tables: &mut Tables, turn: &mut Turn<'_>, call: &RwRenew<'_>) -> Answer {
    renew_hold(tables, turn, Kind::Rw, Some(call.mode), &call.renew)
}

/// DSEM.RENEW: sets a new end of the lease of a permit. 1; `NOTHELD` if it is unknown or has ended.
pub(crate) fn sem_renew(tables: &mut Tables, turn: &mut Turn<'_>, call: &SemRenew<'_>) -> Answer {
    if let Some(fault) = refused_in_script(turn.caller, call.bind_ms, None) {
        return fault.into();
    }
    semaphore::on_semaphore(tables, turn, call.key, |step, resource| {
        let id = HoldId::from_be_bytes(call.permit);
        step.end_if_expired(resource, |_| [id].into());
        if resource.hold(id).is_none() {
            return not_out(step, call.permit);
        }
        step.renew_here(resource, id, call.lease_ms, call.bind_ms);
        Outcome::Count(1)
    })
}
