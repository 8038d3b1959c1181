//! DLATCH: translates requests into calls of the machine, and writes INFO.

use dlock_core::store::Store;
use dlock_core::view::LatchInfo;
use dlock_wire::reply::latch_info;
use dlock_wire::request::Request;

use super::{Desk, Fields};
use crate::ffi::Ctx;

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

pub(super) fn show(ctx: Ctx<'_>, found: &LatchInfo) {
    Fields::begin(ctx, &latch_info::FIELDS)
        .number(latch_info::COUNT, u64::from(found.count))
        .number(latch_info::INITIAL, u64::from(found.initial))
        .time_left(latch_info::TTL_MS, found.ttl_ms)
        .number(latch_info::WAITERS, found.waiters as u64);
}
