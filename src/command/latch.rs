//! DLATCH: writes INFO.

use dlock_core::view::LatchInfo;
use dlock_wire::reply::latch_info;

use super::Fields;
use crate::ffi::Ctx;

pub(super) fn show(ctx: Ctx<'_>, found: &LatchInfo) {
    Fields::begin(ctx, &latch_info::FIELDS)
        .number(latch_info::COUNT, u64::from(found.count))
        .number(latch_info::INITIAL, u64::from(found.initial))
        .time_left(latch_info::TTL_MS, found.ttl_ms)
        .number(latch_info::WAITERS, found.waiters as u64);
}
