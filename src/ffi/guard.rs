//! The guard around every call from the server: it stops panics before they reach the server.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};

use super::ctx::{Ctx, Level, log};
use super::owed;

static PANICS: AtomicU64 = AtomicU64::new(0);

/// Panics caught since the module was loaded.
pub fn panics() -> u64 {
    PANICS.load(Ordering::Relaxed)
}

/// Runs `f`. Counts and logs a panic and returns `fallback` for it.
#[inline]
pub(super) fn call<R>(what: &str, fallback: R, f: impl FnOnce() -> R) -> R {
    match catch_unwind(AssertUnwindSafe(f)) {
        Ok(value) => value,
        Err(payload) => {
            caught(what, payload);
            fallback
        }
    }
}

/// Runs `f`, which answers the client of `ctx` exactly once. After a panic the client gets an error. If a part of its
/// reply is already written, its connection is closed, because the error could be taken for the rest of that reply.
#[inline]
pub(super) fn answer(what: &str, ctx: Ctx<'_>, f: impl FnOnce()) {
    let outer = owed::replace(1);
    if let Err(payload) = catch_unwind(AssertUnwindSafe(f)) {
        caught(what, payload);
        match owed::left() {
            0 => {}
            1 => ctx.reply_error("ERR internal error, please report"),
            _ => ctx.close_client(),
        }
    }
    owed::replace(outer);
}

#[cold]
fn caught(what: &str, payload: Box<dyn std::any::Any + Send>) {
    PANICS.fetch_add(1, Ordering::Relaxed);
    let text = payload
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| payload.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("no text");
    let line = format!("internal error in {what}, please report: {text}");
    // The drop of a panic payload may panic, too.
    let _ = catch_unwind(AssertUnwindSafe(move || drop(payload)));
    let _ = catch_unwind(AssertUnwindSafe(|| log(Level::Warning, &line)));
}
