//! DRW: writes INFO.

use dlock_core::view::RwInfo;
use dlock_wire::reply::{info, rw_info};
use dlock_wire::request::Mode;

use super::Fields;
use crate::ffi::Ctx;

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
