//! DRW: translates requests into calls of the machine.

use dlock_core::store::Store;
use dlock_wire::request::Request;

use super::Desk;

pub(super) fn write(desk: Desk<'_, impl Store>, request: &Request<'_>) {
    let Desk { machine, store, now, caller, fx } = desk;
    match *request {
        Request::RwAcquire(ref call) => machine.rw_acquire(store, now, caller, call, fx),
        Request::RwRelease(ref call) => machine.rw_release(store, now, caller, call, fx),
        Request::RwRenew(ref call) => machine.rw_renew(store, now, caller, call, fx),
        Request::RwBreak { key, owner } => machine.rw_break(store, now, caller, (key, owner), fx),
        _ => super::misplaced(request),
    }
}
