//! Counts the reply elements of the running call. After a panic the guard knows from this whether it may still answer.

use std::sync::atomic::{AtomicI64, Ordering};

/// Reply elements that the running call still owes its client: 1 at the start, 0 when the reply is complete. Written
/// by the main thread only.
static OWED: AtomicI64 = AtomicI64::new(0);

/// How many elements the running call still owes.
#[inline]
pub(super) fn left() -> i64 {
    OWED.load(Ordering::Relaxed)
}

/// Begins the count of a call, or returns to that of the outer one. Returns the count before.
#[inline]
pub(super) fn replace(elements: i64) -> i64 {
    let before = left();
    OWED.store(elements, Ordering::Relaxed);
    before
}

/// Counts a reply element that announces `elements` nested ones.
#[inline]
pub(super) fn replied(elements: i64) {
    replace(left() + elements - 1);
}
