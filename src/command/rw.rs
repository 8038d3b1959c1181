//! DRW: translates requests into calls of the machine, and writes INFO.

use dlock_core::store::Store;
use dlock_core::view::RwInfo;
use dlock_wire::reply::{info, rw_info};
use dlock_wire::request::{Mode, Request};

use super::{Desk, Fields};
use crate::ffi::Ctx;

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

pub(super) fn show(ctx: Ctx<'_>, found: &RwInfo) {
    let mode = match found.mode {
        None => rw_info::MODE_FREE,
        Some(Mode::Read) => rw_info::MODE_READ,
        Some(Mode::Write) => rw_info::MODE_WRITE,
    };
    let fields = Fields::begin(ctx, &rw_info::FIELDS)
        .text(rw_info::KIND, info::KIND_RW.as_bytes())
        .text(rw_info::MODE, mode.as_bytes())
        .field(rw_info::WRITER);
    match &found.writer {
        Some(writer) => super::show_holder(ctx, writer),
        None => ctx.reply_null(),
    }
    fields.field(rw_info::READERS);
    super::show_rows(ctx, &found.readers, super::show_holder);
    fields.number(rw_info::WAITERS, found.waiters as u64);
}
