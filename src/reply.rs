//! Writes outcomes and views to the caller.

use dlock_core::ports::effects::Outcome;
use dlock_core::reply::View;

use crate::ffi::Ctx;

/// Writes an outcome.
pub fn reply(mut ctx: Ctx<'_>, outcome: &Outcome) {
    if let Err(error) = outcome.write(&mut ctx) {
        ctx.reply_error(&error);
    }
}

/// Writes a view.
pub fn show(mut ctx: Ctx<'_>, view: &View) {
    if let Err(error) = view.write(&mut ctx) {
        ctx.reply_error(&error);
    }
}
