//! DLOCK and DFAIR: translates requests into calls of the machine, and writes INFO.

use dlock_core::resource::Kind;
use dlock_core::store::Store;
use dlock_core::view::LockInfo;
use dlock_wire::reply::info;
use dlock_wire::request::Request;

use super::{Desk, Fields};
use crate::ffi::Ctx;

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

pub(super) fn show(ctx: Ctx<'_>, kind: Kind, found: &LockInfo) {
    let kind = if kind == Kind::Fair { info::KIND_FAIR } else { info::KIND_LOCK };
    Fields::begin(ctx, &info::FIELDS)
        .text(info::KIND, kind.as_bytes())
        .text(info::OWNER, &found.owner)
        .number(info::TOKEN, found.token)
        .number(info::HOLDS, u64::from(found.holds))
        .number(info::LEASE_MS, found.lease_ms)
        .number(info::TTL_MS, found.ttl_ms)
        .number(info::HELD_MS, found.held_ms)
        .text(info::LABEL, &found.label)
        .number(info::BOUND_CLIENT, found.bound_client)
        .number(info::WAITERS, found.waiters as u64);
}
