//! The arguments of a running command.

use std::ffi::c_int;
use std::marker::PhantomData;
use std::mem::MaybeUninit;
use std::ptr;

use redis_module::raw;

use super::name::Name;

/// More arguments than this cost one allocation.
const INLINE: usize = 24;

/// The arguments after the command's name; index 0 is the first of them.
#[derive(Clone, Copy)]
pub struct Args<'a> {
    argv: *mut *mut raw::RedisModuleString,
    len: usize,
    life: PhantomData<&'a ()>,
}

/// No arguments.
impl Default for Args<'_> {
    fn default() -> Self {
        Self { argv: ptr::null_mut(), len: 0, life: PhantomData }
    }
}

impl<'a> Args<'a> {
    /// # Safety
    /// `argv` holds `count` live strings that stay, unmodified, for `'a`.
    #[inline]
    pub(super) unsafe fn from_raw(argv: *mut *mut raw::RedisModuleString, count: c_int) -> Self {
        match usize::try_from(count) {
            Ok(count) if count > 0 => Self {
                // SAFETY: there is at least one string, so one past it is inside or just past the array.
                argv: unsafe { argv.add(1) },
                len: count - 1,
                life: PhantomData,
            },
            _ => Self { argv, len: 0, life: PhantomData },
        }
    }

    /// All of `argv`, for callers whose array has no command name in front.
    ///
    /// # Safety
    /// As for [`Args::from_raw`].
    pub(super) unsafe fn all(argv: *mut *mut raw::RedisModuleString, count: c_int) -> Self {
        Self { argv, len: usize::try_from(count).unwrap_or(0), life: PhantomData }
    }

    /// The server's own string of argument `index`, to open keys and send events without a copy.
    #[inline]
    pub fn name(&self, index: usize) -> Option<Name<'a>> {
        if index >= self.len {
            return None;
        }
        // SAFETY: `index` is in bounds and the strings live for `'a`, by the contract of `from_raw`.
        unsafe { Name::from_raw(*self.argv.add(index)) }
    }

    /// `count` strings from argument `first` on, for a call of the server; null if there are fewer.
    pub(super) fn strings(&self, first: usize, count: usize) -> *mut *mut raw::RedisModuleString {
        if first.checked_add(count).is_none_or(|end| end > self.len) {
            return ptr::null_mut();
        }
        // SAFETY: `first` is at most `len`, so this is inside or just past the array.
        unsafe { self.argv.add(first) }
    }

    /// Lends all arguments as byte slices to `f`. Without allocation if there are at most [`INLINE`].
    #[inline]
    pub fn with_slices<R>(&self, f: impl FnOnce(&[&'a [u8]]) -> R) -> R {
        let bytes = |index| self.name(index).map_or(&[][..], Name::bytes);
        if self.len > INLINE {
            let all: Vec<&'a [u8]> = (0..self.len).map(bytes).collect();
            return f(&all);
        }
        let mut few = [const { MaybeUninit::<&'a [u8]>::uninit() }; INLINE];
        for (index, slot) in few.iter_mut().enumerate().take(self.len) {
            slot.write(bytes(index));
        }
        // SAFETY: the first `len` slots, at most all of them, were written above.
        f(unsafe { std::slice::from_raw_parts(few.as_ptr().cast(), self.len) })
    }
}
