//! State that only the main thread may access.

use std::cell::{Cell, UnsafeCell};
use std::sync::atomic::{AtomicUsize, Ordering};

/// The thread that loaded the module. A forked child continues in a copy of that thread, which counts as the same
/// thread.
static MAIN: AtomicUsize = AtomicUsize::new(0);

#[inline]
#[allow(
    clippy::cast_possible_truncation,
    reason = "a C long with glibc, a pointer with musl: never more bits than a pointer"
)]
fn current() -> usize {
    // SAFETY: always sound; returns the caller's own handle, which is never 0.
    unsafe { libc::pthread_self() as usize }
}

/// Declares the calling thread the main thread. Called once, by loading.
pub(super) fn settle() {
    MAIN.store(current(), Ordering::Relaxed);
}

/// True on the main thread.
#[inline]
pub(super) fn here() -> bool {
    MAIN.load(Ordering::Relaxed) == current()
}

/// A static cell for state of the main thread.
///
/// One caller at a time can borrow the value, and only on the main thread.
pub struct MainCell<T> {
    lent: Cell<bool>,
    value: UnsafeCell<T>,
}

// SAFETY: both fields are touched only after `here()` has said that this is the main thread, so no two
// threads ever reach them. (Before loading `MAIN` is 0, which is no thread's handle.)
unsafe impl<T> Sync for MainCell<T> {}

impl<T> MainCell<T> {
    /// A cell that holds `value`.
    pub const fn new(value: T) -> Self {
        Self { lent: Cell::new(false), value: UnsafeCell::new(value) }
    }

    /// Lends the value to `f`; `None` on another thread and while it is already lent.
    #[inline]
    pub fn try_with<R>(&self, f: impl FnOnce(&mut T) -> R) -> Option<R> {
        if !here() || self.lent.get() {
            return None;
        }
        self.lent.set(true);
        let _back = Back(&self.lent);
        // SAFETY: `lent` was false and is true until `_back` goes, also when `f` panics; so this is the only
        // reference. Other threads were turned away above.
        Some(f(unsafe { &mut *self.value.get() }))
    }
}

struct Back<'a>(&'a Cell<bool>);

impl Drop for Back<'_> {
    fn drop(&mut self) {
        self.0.set(false);
    }
}
