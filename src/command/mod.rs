//! From requests to the machine's verbs, and from outcomes to replies.

pub mod lock;

use dlock_core::effects::{Fault, Outcome};

use crate::ffi::Ctx;

/// Writes an outcome.
pub fn reply(ctx: Ctx<'_>, outcome: &Outcome) {
    match outcome {
        // Tokens have 53 bits and counts 32.
        Outcome::Token(number) | Outcome::Count(number) => ctx.reply_int(number.cast_signed()),
        Outcome::Null => ctx.reply_null(),
        Outcome::Fault(Fault { code, text }) => ctx.reply_error(&format!("{code} {text}")),
    }
}
