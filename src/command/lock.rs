//! DLOCK and DFAIR: writes INFO.
use dlock_core::kind::Kind;
use dlock_core::view::LockInfo;
use dlock_wire::reply::info;

use super::Fields;
use crate::ffi::Ctx;

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
