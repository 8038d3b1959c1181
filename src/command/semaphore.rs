//! DSEM: translates requests into calls of the machine, and writes INFO and PERMITS.

use dlock_core::effects::Outcome;
use dlock_core::store::Store;
use dlock_core::view::{PermitInfo, SemInfo};
use dlock_wire::permit::text as id_text;
use dlock_wire::reply::{ErrorCode, permit, sem_info};
use dlock_wire::request::Request;

use super::{Desk, Fields};
use crate::ffi::Ctx;
use crate::permit_id;

pub(super) fn write(desk: Desk<'_, impl Store>, request: &Request<'_>) {
    let Desk { machine, store, now, caller, fx } = desk;
    match *request {
        Request::SemInit { key, permits } => {
            machine.sem_init(store, now, caller, (key, permits), fx);
        }
        Request::Resize { key, to, reqid } => {
            machine.resize(store, now, caller, (key, to, reqid), fx);
        }
        Request::SemAcquire(ref call) => match permit_id::next() {
            Ok(permit) => machine.sem_acquire(store, now, caller, (call, permit), fx),
            Err(error) => fx.reply = Some(Outcome::fault(ErrorCode::Err, error)),
        },
        Request::SemRelease { key, permit } => {
            machine.sem_release(store, now, caller, (key, permit), fx);
        }
        Request::SemRenew(ref call) => machine.sem_renew(store, now, caller, call, fx),
        Request::Take(ref call) => machine.take(store, now, caller, call, fx),
        Request::Give { key, n, reqid } => machine.give(store, now, caller, (key, n, reqid), fx),
        Request::Drain { key, reqid } => machine.drain(store, now, caller, (key, reqid), fx),
        Request::SemBreak { key, permit } => {
            machine.sem_break(store, now, caller, (key, permit), fx);
        }
        _ => super::misplaced(request),
    }
}

pub(super) fn show(ctx: Ctx<'_>, found: &SemInfo) {
    Fields::begin(ctx, &sem_info::FIELDS)
        .number(sem_info::CAPACITY, u64::from(found.capacity))
        .signed(sem_info::AVAILABLE, found.available)
        .number(sem_info::LEASED, found.leased)
        .number(sem_info::TAKEN, u64::from(found.taken))
        .number(sem_info::WAITERS, found.waiters as u64);
}

pub(super) fn show_permit(ctx: Ctx<'_>, found: &PermitInfo) {
    Fields::begin(ctx, &permit::FIELDS)
        .text(permit::ID, &id_text(&found.id))
        .text(permit::OWNER, &found.owner)
        .number(permit::COUNT, u64::from(found.count))
        .number(permit::TTL_MS, found.ttl_ms)
        .number(permit::HELD_MS, found.held_ms)
        .text(permit::LABEL, &found.label)
        .number(permit::BOUND_CLIENT, found.bound_client);
}
