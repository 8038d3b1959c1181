//! The key types: one per family of locks, all with the same callbacks.

use dlock_core::base::kind::Kind;
use redis_module::raw;
use std::ffi::{CStr, c_int, c_void};
use std::marker::PhantomData;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering};

use super::codes::{ERR, OK};
use super::ctx::{Ctx, server_flags};
use super::guard;
use super::key::Stored;
use super::name::Name;

/// Names of the key types in RDB files, nine characters each, in the order of `Kind`. Append only.
pub const TYPES: &[&CStr] = &[c"dlock-mtx", c"dlock-fif", c"dlock-rwl", c"dlock-sem", c"dlock-cdl"];

const _: () = assert!(TYPES.len() == Kind::ALL.len());

/// Index in [`TYPES`]: the number of the value's `Kind`.
pub type TypeIndex = usize;

/// Version of the encoding in RDB files and DUMP payloads.
const ENCODING: c_int = 1;

/// The types of this process, in the order of [`TYPES`].
static REGISTERED: [AtomicPtr<raw::RedisModuleType>; TYPES.len()] =
    [const { AtomicPtr::new(ptr::null_mut()) }; TYPES.len()];

/// The source of a value that is being loaded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Origin {
    /// RESTORE, MIGRATE or a moving slot: into the live data set.
    Restore,
    /// A file or a full synchronization: into an empty data set.
    Loading,
    /// A full synchronization into a second data set, while the first one is still there.
    AsyncLoading,
}

/// The registered type at `index`.
#[inline]
pub(super) fn raw_type(index: TypeIndex) -> Option<*mut raw::RedisModuleType> {
    let kind = REGISTERED.get(index)?.load(Ordering::Relaxed);
    (!kind.is_null()).then_some(kind)
}

/// The position of a registered type of ours.
#[inline]
pub(super) fn index_of(kind: *mut raw::RedisModuleType) -> Option<TypeIndex> {
    REGISTERED.iter().position(|ours| ptr::eq(ours.load(Ordering::Relaxed), kind))
}

/// Registers all types. Only while the module is loading.
pub(super) fn register(ctx: Ctx<'_>) -> Result<(), String> {
    for (index, (name, slot)) in TYPES.iter().zip(&REGISTERED).enumerate() {
        let mut methods = methods(index);
        // SAFETY: valid context, C string, and methods that the server copies.
        let kind = unsafe {
            api!(RedisModule_CreateDataType(
                ctx.as_ptr(),
                name.as_ptr(),
                ENCODING,
                &raw mut methods
            ))
        };
        if kind.is_null() {
            return Err(format!("the server refuses the key type {}", name.to_string_lossy()));
        }
        slot.store(kind, Ordering::Relaxed);
    }
    Ok(())
}

fn methods(index: TypeIndex) -> raw::RedisModuleTypeMethods {
    // Data outside keys is saved once, with the first type.
    let aux = index == 0;
    raw::RedisModuleTypeMethods {
        version: u64::from(raw::REDISMODULE_TYPE_METHOD_VERSION),
        rdb_load: LOADERS.get(index).copied(),
        rdb_save: Some(rdb_save),
        aof_rewrite: Some(aof_rewrite),
        mem_usage: None,
        digest: Some(digest),
        free: Some(free),
        aux_load: aux.then_some(aux_load as AuxLoad),
        aux_save: aux.then_some(aux_save as AuxSave),
        aux_save_triggers: if aux { AFTER_RDB } else { 0 },
        free_effort: None,
        unlink: None,
        // Without this callback COPY is refused, as it must be: a hold belongs to one key.
        copy: None,
        defrag: None,
        mem_usage2: Some(mem_usage),
        free_effort2: Some(free_effort),
        unlink2: Some(unlink),
        copy2: None,
        aux_save2: aux.then_some(aux_save2 as AuxSave),
    }
}

const AFTER_RDB: c_int = 2;

type Load = unsafe extern "C" fn(*mut raw::RedisModuleIO, c_int) -> *mut c_void;
type AuxLoad = unsafe extern "C" fn(*mut raw::RedisModuleIO, c_int, c_int) -> c_int;
type AuxSave = unsafe extern "C" fn(*mut raw::RedisModuleIO, c_int);

/// The server passes a loader neither its type nor a context, so there is one function for each.
const LOADERS: [Load; 5] =
    [rdb_load::<0>, rdb_load::<1>, rdb_load::<2>, rdb_load::<3>, rdb_load::<4>];

const _: () = assert!(TYPES.len() <= LOADERS.len());

/// A second data set is being loaded while the first one still exists.
static ASIDE: AtomicBool = AtomicBool::new(false);

/// The load of a second data set begins or ends.
pub(super) fn note_load_aside(begins: bool) {
    ASIDE.store(begins, Ordering::Relaxed);
}

/// Whether the data being loaded will replace another data set when it is complete. The context flags say so only if
/// that other one is still served meanwhile.
pub(super) fn loads_aside() -> bool {
    ASIDE.load(Ordering::Relaxed)
}

/// The source of the data being loaded.
fn origin() -> Origin {
    if loads_aside() {
        Origin::AsyncLoading
    } else if server_flags().loading() {
        Origin::Loading
    } else {
        Origin::Restore
    }
}

unsafe extern "C" fn rdb_load<const INDEX: TypeIndex>(
    io: *mut raw::RedisModuleIO,
    encoding: c_int,
) -> *mut c_void {
    guard::call("loading a key", ptr::null_mut(), || {
        let origin = origin();
        // SAFETY: `io` is valid during this call, and so is the key's name.
        let (name, db) = unsafe {
            let name = api!(RedisModule_GetKeyNameFromIO(io));
            (Name::from_raw(name.cast_mut()), api!(RedisModule_GetDbIdFromIO(io)))
        };
        // SAFETY: `io` is valid during this call.
        let payload = unsafe { Loaded::read(io) };
        let payload = payload.ok_or_else(|| "the data end in the middle of it".to_owned());
        let value = payload.and_then(|payload| {
            let name = name.map(Name::bytes);
            let db = u32::try_from(db).ok();
            crate::persist::load(INDEX, encoding, payload.bytes(), name, db, origin)
        });
        match value {
            Ok(value) => Stored::boxed(value).cast(),
            Err(why) => {
                crate::persist::log_refusal(origin, &why);
                ptr::null_mut()
            }
        }
    })
}

unsafe extern "C" fn rdb_save(io: *mut raw::RedisModuleIO, value: *mut c_void) {
    guard::call("saving a key", (), || {
        // SAFETY: a value of our type, on the main thread or its copy in a forked child; `io` is valid.
        unsafe {
            let bytes = Stored::view(value.cast()).map(crate::persist::save).unwrap_or_default();
            save_bytes(io, &bytes);
        }
    });
}

unsafe extern "C" fn aof_rewrite(
    io: *mut raw::RedisModuleIO,
    key: *mut raw::RedisModuleString,
    value: *mut c_void,
) {
    guard::call("rewriting a key", (), || {
        // SAFETY: a value of our type, on the main thread or its copy in a forked child; `io` and `key` are valid,
        // and the arguments are what the format says.
        unsafe {
            let Some(value) = Stored::view(value.cast()) else {
                return;
            };
            let payload = crate::persist::rewrite(value);
            api!(RedisModule_EmitAOF(
                io,
                super::ctx::APPLY.as_ptr(),
                c"sb".as_ptr(),
                key,
                payload.as_ptr(),
                payload.len(),
            ));
        }
    });
}

/// May run on a background thread of the server.
unsafe extern "C" fn free(value: *mut c_void) {
    guard::call("freeing a key", (), || {
        // SAFETY: a value of our type that the server has let go.
        unsafe { Stored::free(value.cast()) };
    });
}

unsafe extern "C" fn digest(digest: *mut raw::RedisModuleDigest, value: *mut c_void) {
    guard::call("the digest of a key", (), || {
        // SAFETY: a value of our type, on the main thread; `digest` is valid during this call.
        unsafe {
            let Some(value) = Stored::view(value.cast()) else {
                return;
            };
            for part in crate::persist::digest(value) {
                api!(RedisModule_DigestAddStringBuffer(digest, part.as_ptr().cast(), part.len()));
            }
            api!(RedisModule_DigestEndSequence(digest));
        }
    });
}

unsafe extern "C" fn mem_usage(
    _key: *mut raw::RedisModuleKeyOptCtx,
    value: *const c_void,
    samples: usize,
) -> usize {
    guard::call("the size of a key", 0, || {
        // SAFETY: a value of our type, on the main thread.
        let value = unsafe { Stored::view(value.cast()) };
        size_of::<Stored>() + value.map_or(0, |value| crate::persist::memory(value, samples))
    })
}

/// Never zero, which would mean "free it in the background", and never more than 64: above that the server may do the
/// same. So memory falls with each evicted key, and the server evicts no other keys in its place. (The server still
/// frees the values of a flushed database in the background.)
unsafe extern "C" fn free_effort(
    _key: *mut raw::RedisModuleKeyOptCtx,
    _value: *const c_void,
) -> usize {
    1
}

unsafe extern "C" fn unlink(key: *mut raw::RedisModuleKeyOptCtx, value: *const c_void) {
    guard::call("unlinking a key", (), || {
        // SAFETY: `key` is valid during this call, and so is the key's name; a value of our type, on the main thread.
        unsafe {
            let name = api!(RedisModule_GetKeyNameFromOptCtx(key));
            let db = u32::try_from(api!(RedisModule_GetDbIdFromOptCtx(key))).unwrap_or(0);
            if let Some(name) = Name::from_raw(name.cast_mut()) {
                crate::keyspace::unlinked(db, name.bytes(), Stored::view(value.cast()));
            }
        }
    });
}

/// For servers before 7.2, which announce the module's part in the file even if it is empty: then something must be
/// saved, or no server could load the file.
unsafe extern "C" fn aux_save(io: *mut raw::RedisModuleIO, _when: c_int) {
    guard::call("saving what is not in keys", (), || {
        let mut is_empty = true;
        // SAFETY: `io` is valid during this call; so in the other functions here.
        let put = |bytes: &[u8]| unsafe {
            is_empty = false;
            save_bytes(io, bytes);
        };
        crate::persist::aux_save(put);
        super::rewrite::is_complete();
        if is_empty {
            // SAFETY: as above.
            unsafe { save_bytes(io, &[]) };
        }
    });
}

/// For newer servers: a file in which nothing was saved can be loaded without the module.
unsafe extern "C" fn aux_save2(io: *mut raw::RedisModuleIO, _when: c_int) {
    guard::call("saving what is not in keys", (), || {
        // SAFETY: `io` is valid during this call.
        crate::persist::aux_save(|bytes| unsafe { save_bytes(io, bytes) });
        super::rewrite::is_complete();
    });
}

unsafe extern "C" fn aux_load(
    io: *mut raw::RedisModuleIO,
    _encoding: c_int,
    _when: c_int,
) -> c_int {
    guard::call("loading what is not in keys", ERR, || {
        let mut strings = Strings { io, life: PhantomData };
        if crate::persist::aux_load(&mut strings, origin()) { OK } else { ERR }
    })
}

/// The strings of the module's own part of a file.
pub struct Strings<'a> {
    io: *mut raw::RedisModuleIO,
    life: PhantomData<&'a ()>,
}

impl Strings<'_> {
    /// The next string; `None` at the end, or if the file is damaged or cannot be read.
    pub fn next(&mut self) -> Option<Loaded> {
        // SAFETY: made by `aux_load` only, whose `io` is valid as long as this is lent.
        unsafe { Loaded::read(self.io) }
    }
}

/// # Safety
/// `io` is valid and open for saving.
unsafe fn save_bytes(io: *mut raw::RedisModuleIO, bytes: &[u8]) {
    // SAFETY: by the contract; the server copies the bytes.
    unsafe {
        api!(RedisModule_SaveStringBuffer(io, bytes.as_ptr().cast(), bytes.len()));
    }
}

/// A string read from an RDB stream.
pub struct Loaded {
    start: *mut c_void,
    len: usize,
}

impl Loaded {
    /// # Safety
    /// `io` is valid and open for loading.
    unsafe fn read(io: *mut raw::RedisModuleIO) -> Option<Self> {
        let mut len = 0;
        // SAFETY: by the contract.
        let (start, failed) = unsafe {
            let start = api!(RedisModule_LoadStringBuffer(io, &raw mut len));
            (start.cast::<c_void>(), api!(RedisModule_IsIOError(io)) != 0)
        };
        if start.is_null() {
            return None;
        }
        let loaded = Self { start, len };
        (!failed).then_some(loaded)
    }

    /// Its bytes.
    pub fn bytes(&self) -> &[u8] {
        // SAFETY: `len` bytes that belong to this value until it is dropped.
        unsafe { std::slice::from_raw_parts(self.start.cast(), self.len) }
    }
}

impl Drop for Loaded {
    fn drop(&mut self) {
        // SAFETY: allocated by the server for us, freed once.
        unsafe { api!(RedisModule_Free(self.start)) };
    }
}
