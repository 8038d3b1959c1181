//! The codes of the server's functions.

use std::ffi::c_int;

/// The server's code for success.
pub(super) const OK: c_int = 0;
/// The server's code for failure.
pub(super) const ERR: c_int = 1;

/// True if a call into the server succeeded.
#[inline]
pub(super) const fn ok(answer: c_int) -> bool {
    answer == OK
}

/// A constant of the server's header, in the type of its functions.
#[inline]
pub(super) const fn int(bits: u32) -> c_int {
    bits.cast_signed()
}
