//! DLOCK and DFAIR: translates requests into calls of the machine.

use dlock_core::resource::Kind;
use dlock_core::store::Store;
use dlock_wire::request::Request;

use super::Desk;

pub(super) fn write(desk: Desk<'_, impl Store>, kind: Kind, request: &Request<'_>) {
    let Desk { machine, store, now, caller, fx } = desk;
    match *request {
        Request::Acquire(ref call) => machine.acquire(store, now, caller, (kind, call), fx),
        Request::Release(ref call) => machine.release(store, now, caller, (kind, call), fx),
        Request::Renew(ref call) => machine.renew(store, now, caller, (kind, call), fx),
        Request::Fence { key, owner, token } => {
            machine.fence(store, now, caller, (kind, key, owner, token), fx);
        }
        Request::Break { key } => machine.break_lock(store, now, caller, (kind, key), fx),
        _ => super::misplaced(request),
    }
}
