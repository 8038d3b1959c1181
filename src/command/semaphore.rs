//! DSEM: writes INFO and PERMITS.

use dlock_core::view::{PermitInfo, SemInfo};
use dlock_wire::permit::text as id_text;
use dlock_wire::reply::{permit, sem_info};

use super::Fields;
use crate::ffi::Ctx;

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
