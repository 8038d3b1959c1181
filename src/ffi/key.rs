//! Keys and their values.

use std::cell::UnsafeCell;
use std::marker::PhantomData;
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering};

use redis_module::raw;

use super::codes::{int, ok};
use super::ctx::Ctx;
use super::datatype::{self, TypeIndex};
use super::name::Name;
use super::{Value, main_thread};

/// A value as the server stores it, without any overhead for a held lock.
#[repr(transparent)]
pub(super) struct Stored(UnsafeCell<Value>);

/// The value lent out by an open [`KeyHandle`]; null if there is none. One is enough: an operation closes one key
/// before it opens the next.
static LENT: AtomicPtr<Stored> = AtomicPtr::new(ptr::null_mut());
/// The server has freed the lent value: the handle frees it when it closes.
static ORPHAN: AtomicBool = AtomicBool::new(false);

/// The server may free a value on another thread.
const _: () = can_be_sent::<Value>();
const fn can_be_sent<T: Send + 'static>() {}

impl Stored {
    /// A new value in the form in which the server keeps it.
    pub(super) fn boxed(value: Value) -> *mut Stored {
        Box::into_raw(Box::new(Stored(UnsafeCell::new(value))))
    }

    /// Snapshot at a value that the server passes to a callback; `None` while a handle has lent it out (then another
    /// module acts on the key in the middle of our call).
    ///
    /// # Safety
    /// `raw` comes from [`Stored::boxed`], is not freed during `'a`, and this is the main thread.
    #[inline]
    pub(super) unsafe fn view<'a>(raw: *const Stored) -> Option<&'a Value> {
        if ptr::eq(LENT.load(Ordering::Relaxed), raw) {
            return None;
        }
        // SAFETY: alive by the contract; not lent, so there is no other reference.
        Some(unsafe { &*(*raw).0.get() })
    }

    /// Frees a value that the server has let go. May run on a background thread of the server.
    ///
    /// # Safety
    /// `raw` comes from [`Stored::boxed`] and the server will not use it again.
    pub(super) unsafe fn free(raw: *mut Stored) {
        if !ptr::eq(LENT.load(Ordering::Acquire), raw) {
            // SAFETY: no handle has it and the server has let it go: this is the last owner.
            drop(unsafe { Box::from_raw(raw) });
        } else if main_thread::here() {
            ORPHAN.store(true, Ordering::Relaxed);
        }
        // Freed in the background while lent: the main thread may be using it. It is leaked; no known server does
        // this.
    }
}

/// How a key is opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// For a look between commands: the server neither counts it, nor removes an expired key. (Redis 7.0 removes one,
    /// except while clients are paused.)
    Peek,
    /// For commands that change nothing.
    Read,
    /// For all other commands. Closing such a handle tells WATCH and client-side caches that the key has changed.
    Write,
}

/// Content of an open key.
pub enum Content<'a> {
    /// Nothing.
    Missing,
    /// A value of a type that is not ours.
    WrongType,
    /// A value of ours, with its type.
    Here(TypeIndex, &'a mut Value),
}

/// An open key of the database that was selected when it was opened.
///
/// Panics if it is opened while another handle has lent out a value of ours.
pub struct KeyHandle<'a> {
    raw: *mut raw::RedisModuleKey,
    mode: Mode,
    content: Held,
    life: PhantomData<Ctx<'a>>,
}

#[derive(Clone, Copy)]
enum Held {
    Missing,
    WrongType,
    Ours(TypeIndex, NonNull<Stored>),
}

impl<'a> KeyHandle<'a> {
    /// Opens `name` in the selected database.
    #[inline]
    pub fn open(ctx: Ctx<'a>, name: Name<'_>, mode: Mode) -> Self {
        let bits = match mode {
            Mode::Peek => {
                raw::REDISMODULE_READ
                    | raw::REDISMODULE_OPEN_KEY_NOTOUCH
                    | raw::REDISMODULE_OPEN_KEY_NONOTIFY
                    | raw::REDISMODULE_OPEN_KEY_NOSTATS
                    | raw::REDISMODULE_OPEN_KEY_NOEXPIRE
            }
            Mode::Read => raw::REDISMODULE_READ,
            Mode::Write => raw::REDISMODULE_READ | raw::REDISMODULE_WRITE,
        };
        // SAFETY: valid context and string; the server takes its own reference to the string.
        let raw = unsafe { api!(RedisModule_OpenKey(ctx.as_ptr(), name.as_ptr(), int(bits))) };
        let mut handle = Self { raw, mode, content: Held::Missing, life: PhantomData };
        handle.content = handle.look();
        handle.lend();
        handle
    }

    #[inline]
    fn look(&self) -> Held {
        if self.raw.is_null() {
            return Held::Missing;
        }
        // SAFETY: an open key. The value of a key of our type comes from `Stored::boxed`.
        unsafe {
            let kind = api!(RedisModule_ModuleTypeGetType(self.raw));
            if kind.is_null() {
                let kind = api!(RedisModule_KeyType(self.raw));
                return if i64::from(kind) == raw::REDISMODULE_KEYTYPE_EMPTY as i64 {
                    Held::Missing
                } else {
                    Held::WrongType
                };
            }
            let Some(index) = datatype::index_of(kind) else {
                return Held::WrongType;
            };
            let value = api!(RedisModule_ModuleTypeGetValue(self.raw));
            NonNull::new(value.cast()).map_or(Held::WrongType, |value| Held::Ours(index, value))
        }
    }

    #[inline]
    fn lend(&mut self) {
        if let Held::Ours(_, stored) = self.content {
            if !LENT.load(Ordering::Relaxed).is_null() {
                // Another handle has lent it: this one must not end that loan.
                self.content = Held::WrongType;
                super::broken("a key was opened while another one was open");
            }
            LENT.store(stored.as_ptr(), Ordering::Relaxed);
        }
    }

    /// Ends the loan, and frees the value if the server has freed it meanwhile.
    #[inline]
    fn give_back(&mut self) {
        if let Held::Ours(_, stored) = self.content {
            self.content = Held::Missing;
            LENT.store(ptr::null_mut(), Ordering::Release);
            // Only this thread writes the flag, so no exchange is needed.
            if ORPHAN.load(Ordering::Relaxed) {
                ORPHAN.store(false, Ordering::Relaxed);
                // SAFETY: the server has let it go, which only marks a lent value, and this was its only loan.
                drop(unsafe { Box::from_raw(stored.as_ptr()) });
            }
        }
    }

    /// The content of the key.
    #[inline]
    pub fn content(&mut self) -> Content<'_> {
        match self.content {
            Held::Missing => Content::Missing,
            Held::WrongType => Content::WrongType,
            Held::Ours(index, stored) => {
                // SAFETY: lent to this handle alone, and `&mut self` makes this the only reference.
                let value = unsafe { &mut *(*stored.as_ptr()).0.get() };
                Content::Here(index, value)
            }
        }
    }

    /// Stores a value of type `index` under the key, replaces any other value, and removes its time to live. Returns
    /// false and does nothing on a handle opened for reading or for a type that is not registered.
    #[must_use]
    pub fn set(&mut self, index: TypeIndex, value: Value) -> bool {
        let Some(kind) = datatype::raw_type(index) else {
            return false;
        };
        if self.mode != Mode::Write || self.raw.is_null() {
            return false;
        }
        self.give_back();
        let stored = Stored::boxed(value);
        // SAFETY: a key open for writing, a registered type, and a value in that type's form.
        if !ok(unsafe { api!(RedisModule_ModuleTypeSetValue(self.raw, kind, stored.cast())) }) {
            // SAFETY: made above and refused by the server.
            drop(unsafe { Box::from_raw(stored) });
            return false;
        }
        self.content =
            NonNull::new(stored).map_or(Held::WrongType, |stored| Held::Ours(index, stored));
        self.lend();
        true
    }

    /// Removes the key with any value. False on a handle opened for reading.
    pub fn delete(&mut self) -> bool {
        if self.mode != Mode::Write || self.raw.is_null() {
            return false;
        }
        self.give_back();
        self.content = Held::Missing;
        // SAFETY: a key open for writing; the loan has ended, so its value may be freed.
        ok(unsafe { api!(RedisModule_DeleteKey(self.raw)) })
    }

    /// Remaining time to live that a client has set on the key, in milliseconds of the wall clock.
    #[inline]
    pub fn expire_ms(&self) -> Option<u64> {
        if self.raw.is_null() {
            return None;
        }
        // SAFETY: an open key.
        let left = unsafe { api!(RedisModule_GetExpire(self.raw)) };
        u64::try_from(left).ok()
    }

    /// Removes a time to live. True if there was one.
    #[inline]
    pub fn clear_expire(&mut self) -> bool {
        if self.mode != Mode::Write || self.expire_ms().is_none() {
            return false;
        }
        // SAFETY: a key open for writing.
        ok(unsafe { api!(RedisModule_SetExpire(self.raw, i64::from(raw::REDISMODULE_NO_EXPIRE))) })
    }
}

impl Drop for KeyHandle<'_> {
    #[inline]
    fn drop(&mut self) {
        self.give_back();
        if !self.raw.is_null() {
            // SAFETY: an open key, closed once.
            unsafe { api!(RedisModule_CloseKey(self.raw)) };
        }
    }
}
