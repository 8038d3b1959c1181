//! MACQUIRE and similar commands: translates requests into calls of the machine.

use dlock_core::store::Store;
use dlock_wire::request::Request;

use super::Desk;

pub(super) fn write(desk: Desk<'_, impl Store>, request: &Request<'_>) {
    let Desk { machine, store, now, caller, fx } = desk;
    match *request {
        Request::MAcquire(ref call) => machine.macquire(store, now, caller, call, fx),
        Request::AnyAcquire(ref call) => machine.any_acquire(store, now, caller, call, fx),
        Request::MRelease(ref call) => machine.mrelease(store, now, caller, call, fx),
        Request::MRenew(ref call) => machine.mrenew(store, now, caller, call, fx),
        _ => super::misplaced(request),
    }
}
