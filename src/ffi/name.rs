//! Key names as the server's own strings.

use std::marker::PhantomData;
use std::ptr::NonNull;

use redis_module::raw;

/// A borrowed string of the server.
#[derive(Clone, Copy)]
pub struct Name<'a> {
    raw: NonNull<raw::RedisModuleString>,
    life: PhantomData<&'a ()>,
}

impl<'a> Name<'a> {
    /// # Safety
    /// `raw`, unless null, is a live string and stays one, unmodified, for `'a`.
    #[inline]
    pub(super) unsafe fn from_raw(raw: *mut raw::RedisModuleString) -> Option<Self> {
        NonNull::new(raw).map(|raw| Self { raw, life: PhantomData })
    }

    #[inline]
    pub(super) fn as_ptr(self) -> *mut raw::RedisModuleString {
        self.raw.as_ptr()
    }

    /// The bytes of the string.
    #[inline]
    pub fn bytes(self) -> &'a [u8] {
        let mut length = 0;
        // SAFETY: by the contract of `from_raw` the string is live and unmodified for `'a`, and so are its bytes.
        unsafe {
            let start = api!(RedisModule_StringPtrLen(self.as_ptr(), &raw mut length));
            std::slice::from_raw_parts(start.cast(), length)
        }
    }
}

/// A string of the server, owned by the module.
pub struct OwnedName(NonNull<raw::RedisModuleString>);

impl OwnedName {
    /// Copies `bytes` into a new string.
    pub fn new(bytes: &[u8]) -> Self {
        // SAFETY: a null context is allowed: the string is then freed by its owner, here in `drop`.
        let raw = unsafe {
            api!(RedisModule_CreateString(std::ptr::null_mut(), bytes.as_ptr().cast(), bytes.len()))
        };
        match NonNull::new(raw) {
            Some(raw) => Self(raw),
            None => super::missing("a string"),
        }
    }

    /// A string that the server has handed over; `None` if it is null.
    ///
    /// # Safety
    /// `raw`, unless null, is a live string without another owner.
    pub(super) unsafe fn from_raw(raw: *mut raw::RedisModuleString) -> Option<Self> {
        NonNull::new(raw).map(Self)
    }

    /// Borrows the string.
    pub fn name(&self) -> Name<'_> {
        Name { raw: self.0, life: PhantomData }
    }
}

impl Drop for OwnedName {
    fn drop(&mut self) {
        // SAFETY: made by `new` without a context, owned here, freed once.
        unsafe {
            api!(RedisModule_FreeString(std::ptr::null_mut(), self.0.as_ptr()));
        }
    }
}
