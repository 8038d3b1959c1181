//! DLATCH: translates requests into calls of the machine.

use dlock_core::store::Store;
use dlock_wire::request::Request;

use super::Desk;

pub(super) fn write(desk: Desk<'_, impl Store>, request: &Request<'_>) {
    let Desk { machine, store, now, caller, fx } = desk;
    match *request {
        Request::LatchInit { key, count, lease_ms } => {
            machine.latch_init(store, now, caller, (key, count, lease_ms), fx);
        }
        Request::CountDown { key, n, reqid } => {
            machine.count_down(store, now, caller, (key, n, reqid), fx);
        }
        Request::Await { key, block_ms } => {
            machine.await_latch(store, now, caller, (key, block_ms), fx);
        }
        _ => super::misplaced(request),
    }
}
