//! Keys and what they hold.

use std::cell::UnsafeCell;
use std::marker::PhantomData;
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering};

use redis_module::raw;

use super::Value;
use super::ctx::Ctx;
use super::datatype::{self, TypeIndex};
use super::load::{int, ok};
use super::main_thread;
use super::name::Name;

/// A value as the server keeps it: exactly ours, so that a held lock costs no byte more.
#[repr(transparent)]
pub(super) struct Stored(UnsafeCell<Value>);

/// The value that an open [`KeyHandle`] has lent out; null while none has. One at a time is enough: an operation
/// closes one key before it opens the next.
static LENT: AtomicPtr<Stored> = AtomicPtr::new(ptr::null_mut());
/// The server has freed the lent value: the handle frees it in the end.
static ORPHAN: AtomicBool = AtomicBool::new(false);

/// The server may free a value on another thread.
const _: () = can_be_sent::<Value>();
const fn can_be_sent<T: Send + 'static>() {}

impl Stored {
    /// A new value in the form in which the server keeps it.
    pub(super) fn boxed(value: Value) -> *mut Stored {
        Box::into_raw(Box::new(Stored(UnsafeCell::new(value))))
    }

    /// Looks at a value that the server passes to a callback; `None` while a handle has lent it out (then another
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
            let Stored(value) = *unsafe { Box::from_raw(raw) };
            let value = value.into_inner();
            if main_thread::here() && crate::persist::is_large(&value) {
                drop(crate::keyspace::freed(Box::new(value)));
            }
        } else if main_thread::here() {
            ORPHAN.store(true, Ordering::Relaxed);
        }
        // Freed in the background while lent: the main thread may be using it. It stays for ever, which costs its
        // memory; no known server does it.
    }
}

/// How a key is opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// For commands that change nothing.
    Read,
    /// For the others. Closing such a handle tells WATCH and client-side caches that the key has changed.
    Write,
}

/// What an open key holds.
pub enum Content<'a> {
    /// Nothing.
    Missing,
    /// A value of a type that is not ours.
    Foreign,
    /// One of ours and which type it has.
    Here(TypeIndex, &'a mut Value),
}

/// An open key of the database that was selected when it was opened.
///
/// Opening one while another one that holds a value of ours is open is a mistake that panics.
pub struct KeyHandle<'a> {
    raw: *mut raw::RedisModuleKey,
    mode: Mode,
    content: Held,
    life: PhantomData<Ctx<'a>>,
}

#[derive(Clone, Copy)]
enum Held {
    Missing,
    Foreign,
    Ours(TypeIndex, NonNull<Stored>),
}

impl<'a> KeyHandle<'a> {
    /// Opens `name` in the selected database.
    #[inline]
    pub fn open(ctx: Ctx<'a>, name: Name<'_>, mode: Mode) -> Self {
        let bits = match mode {
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
                    Held::Foreign
                };
            }
            let Some(index) = datatype::index_of(kind) else {
                return Held::Foreign;
            };
            let value = api!(RedisModule_ModuleTypeGetValue(self.raw));
            NonNull::new(value.cast()).map_or(Held::Foreign, |value| Held::Ours(index, value))
        }
    }

    #[inline]
    fn lend(&mut self) {
        if let Held::Ours(_, stored) = self.content {
            if !LENT.load(Ordering::Relaxed).is_null() {
                // Not this handle's loan: it must not be given back by it.
                self.content = Held::Foreign;
                super::broken("a key was opened while another one was open");
            }
            LENT.store(stored.as_ptr(), Ordering::Relaxed);
        }
    }

    /// Ends the loan; a value that the server has freed meanwhile is freed now.
    #[inline]
    fn give_back(&mut self) {
        if let Held::Ours(_, stored) = self.content {
            self.content = Held::Missing;
            LENT.store(ptr::null_mut(), Ordering::Release);
            // Only this thread writes it, so it needs no exchange.
            if ORPHAN.load(Ordering::Relaxed) {
                ORPHAN.store(false, Ordering::Relaxed);
                // SAFETY: the server has let it go, which only marks a lent value, and this was its only loan.
                drop(unsafe { Box::from_raw(stored.as_ptr()) });
            }
        }
    }

    /// What the key holds.
    #[inline]
    pub fn content(&mut self) -> Content<'_> {
        match self.content {
            Held::Missing => Content::Missing,
            Held::Foreign => Content::Foreign,
            Held::Ours(index, stored) => {
                // SAFETY: lent to this handle alone, and `&mut self` makes this the only reference.
                let value = unsafe { &mut *(*stored.as_ptr()).0.get() };
                Content::Here(index, value)
            }
        }
    }

    /// Puts a value of type `index` under the key, whatever it held, and takes away its time to live. False (and
    /// nothing done) on a handle opened for reading or for a type that is not registered.
    #[must_use]
    pub fn set(&mut self, index: TypeIndex, value: Value) -> bool {
        let Some(kind) = datatype::raw_type(index) else {
            return false;
        };
        if self.mode == Mode::Read || self.raw.is_null() {
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
            NonNull::new(stored).map_or(Held::Foreign, |stored| Held::Ours(index, stored));
        self.lend();
        true
    }

    /// Removes the key, whatever it held. False on a handle opened for reading.
    pub fn delete(&mut self) -> bool {
        if self.mode == Mode::Read || self.raw.is_null() {
            return false;
        }
        self.give_back();
        self.content = Held::Missing;
        // SAFETY: a key open for writing; the loan has ended, so its value may be freed.
        ok(unsafe { api!(RedisModule_DeleteKey(self.raw)) })
    }

    /// What is left of a time to live that somebody set on the key, in milliseconds of the wall clock.
    #[inline]
    pub fn expire_ms(&self) -> Option<u64> {
        if self.raw.is_null() {
            return None;
        }
        // SAFETY: an open key.
        let left = unsafe { api!(RedisModule_GetExpire(self.raw)) };
        u64::try_from(left).ok()
    }

    /// Takes away a time to live. True if there was one.
    #[inline]
    pub fn clear_expire(&mut self) -> bool {
        if self.mode == Mode::Read || self.expire_ms().is_none() {
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
