//! A module for one bench: two commands that make the same calls into the server as an uncontended `DLOCK.ACQUIRE`
//! and `DLOCK.RELEASE`, without any decision. Their cost is the lower bound for any lock that is a module, has a key
//! type, and is replicated. It is no lock, and it is not shipped.
//!
//! Per pair, in this order: read the arguments, the caller's flags and id, and the clock for each command; open, set
//! and close the key; open, delete and close it; allocate the value once. For each command: signal WATCH, replicate a
//! record, send a keyspace event, and reply an Integer. Names, record and value have the sizes of dlock's.

use std::ffi::{CStr, c_int, c_void};
use std::mem::MaybeUninit;
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};

use dlock_core::value::resource::Resource;
use redis_module::raw;

#[global_allocator]
static ALLOCATOR: redis_module::alloc::RedisAlloc = redis_module::alloc::RedisAlloc;

const OK: c_int = 0;
const ERR: c_int = 1;

/// As long as dlock's name of the same command, because the server looks it up for each record.
const APPLY: &CStr = c"FLOOR.APPLY";

/// Length of dlock's record of a grant to an owner of 36 bytes.
const GRANTED: [u8; 58] = [0; 58];

/// Length of its record of a release.
const RELEASED: [u8; 3] = [0; 3];

/// A value of the size of dlock's; always empty.
type Value = MaybeUninit<Resource>;

static TYPE: AtomicPtr<raw::RedisModuleType> = AtomicPtr::new(ptr::null_mut());

type Context = *mut raw::RedisModuleCtx;
type Text = *mut raw::RedisModuleString;

/// Calls a function of the server. Ends the command if the server lacks it; loading has already checked that.
macro_rules! api {
    ($name:ident ( $($arg:expr),* $(,)? )) => {
        match raw::$name {
            Some(function) => function($($arg),*),
            None => return ERR,
        }
    };
}

/// Called by the server, once.
///
/// # Safety
/// Only the server may call it, with a valid context.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn RedisModule_OnLoad(
    ctx: Context,
    _argv: *mut Text,
    _count: c_int,
) -> c_int {
    let version = raw::REDISMODULE_APIVER_1.cast_signed();
    // SAFETY: valid context, C strings, and methods that the server copies.
    unsafe {
        if raw::Export_RedisModule_Init(ctx, c"floor".as_ptr(), 1, version) != OK {
            return ERR;
        }
        let mut methods = methods();
        let name = c"floor-mtx".as_ptr();
        let kind = api!(RedisModule_CreateDataType(ctx, name, 1, &raw mut methods));
        if kind.is_null() {
            return ERR;
        }
        TYPE.store(kind, Ordering::Relaxed);
        let no_signal = raw::REDISMODULE_OPTION_NO_IMPLICIT_SIGNAL_MODIFIED.cast_signed();
        api!(RedisModule_SetModuleOptions(ctx, no_signal));
    }
    let commands: [(&CStr, &CStr, Entry); 3] = [
        (c"FLOOR.ACQUIRE", c"write deny-oom", acquire),
        (c"FLOOR.RELEASE", c"write fast", release),
        (APPLY, c"write", apply),
    ];
    for (name, flags, entry) in commands {
        let (name, flags) = (name.as_ptr(), flags.as_ptr());
        // SAFETY: valid context, C strings that the server copies, an entry with the signature of the server.
        let made =
            unsafe { api!(RedisModule_CreateCommand(ctx, name, Some(entry), flags, 1, 1, 1)) };
        if made != OK {
            return ERR;
        }
    }
    OK
}

type Entry = unsafe extern "C" fn(Context, *mut Text, c_int) -> c_int;

/// Reads the inputs of dlock's decisions; returns their sum so that the compiler keeps the reads.
///
/// # Safety
/// `argv` holds `count` live strings.
unsafe fn look(ctx: Context, argv: *mut Text, count: c_int) -> c_int {
    let mut seen = 0;
    for at in 1..usize::try_from(count).unwrap_or(0) {
        let mut length = 0;
        // SAFETY: by the contract; `at` is below `count`.
        unsafe {
            let start = api!(RedisModule_StringPtrLen(*argv.add(at), &raw mut length));
            seen += length + usize::from(start.is_null());
        }
    }
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: valid context, and a place for the time.
    unsafe {
        seen += usize::from(api!(RedisModule_GetSelectedDb(ctx)) < 0);
        seen += usize::from(api!(RedisModule_GetContextFlags(ctx)) == 0);
        seen += usize::from(api!(RedisModule_GetClientId(ctx)) == 0);
        libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut time);
    }
    c_int::from(seen == 0 || time.tv_sec == 0)
}

/// Opens the key and looks up a value of ours.
///
/// # Safety
/// Valid context, live string.
unsafe fn open(ctx: Context, name: Text) -> *mut raw::RedisModuleKey {
    let mode = (raw::REDISMODULE_READ | raw::REDISMODULE_WRITE).cast_signed();
    // SAFETY: by the contract.
    unsafe { raw::RedisModule_OpenKey.map_or(ptr::null_mut(), |open| open(ctx, name, mode)) }
}

/// Signals, replicates and publishes a change, and replies to the caller.
///
/// # Safety
/// Valid context, live string.
unsafe fn tell(ctx: Context, name: Text, payload: &[u8], event: &CStr, reply: i64) -> c_int {
    let event_class = raw::REDISMODULE_NOTIFY_MODULE;
    // SAFETY: by the contract; C strings, and a buffer with its length, as the format says.
    unsafe {
        api!(RedisModule_SignalModifiedKey(ctx, name));
        api!(RedisModule_Replicate(
            ctx,
            APPLY.as_ptr(),
            c"sb".as_ptr(),
            name,
            payload.as_ptr(),
            payload.len(),
        ));
        api!(RedisModule_NotifyKeyspaceEvent(ctx, event_class, event.as_ptr(), name));
        api!(RedisModule_ReplyWithLongLong(ctx, reply))
    }
}

/// `FLOOR.ACQUIRE key …`: sets the key.
unsafe extern "C" fn acquire(ctx: Context, argv: *mut Text, count: c_int) -> c_int {
    // SAFETY: the server's context and arguments; an open key is closed once; the value is of the registered type.
    unsafe {
        if count < 2 || look(ctx, argv, count) != OK {
            return ERR;
        }
        let name = *argv.add(1);
        let key = open(ctx, name);
        if api!(RedisModule_ModuleTypeGetType(key)).is_null() {
            api!(RedisModule_KeyType(key));
        }
        let value = Box::into_raw(Box::new(Value::uninit()));
        let kind = TYPE.load(Ordering::Relaxed);
        api!(RedisModule_ModuleTypeSetValue(key, kind, value.cast()));
        api!(RedisModule_CloseKey(key));
        tell(ctx, name, &GRANTED, c"dlock.acquire", 1_795_384_683_574_012)
    }
}

/// `FLOOR.RELEASE key …`: deletes the key.
unsafe extern "C" fn release(ctx: Context, argv: *mut Text, count: c_int) -> c_int {
    // SAFETY: the server's context and arguments; an open key is closed once.
    unsafe {
        if count < 2 || look(ctx, argv, count) != OK {
            return ERR;
        }
        let name = *argv.add(1);
        let key = open(ctx, name);
        if !api!(RedisModule_ModuleTypeGetType(key)).is_null() {
            api!(RedisModule_ModuleTypeGetValue(key));
        }
        api!(RedisModule_DeleteKey(key));
        api!(RedisModule_CloseKey(key));
        tell(ctx, name, &RELEASED, c"dlock.release", 0)
    }
}

/// The record for a replica. Nothing here is ever replicated to one.
unsafe extern "C" fn apply(ctx: Context, _argv: *mut Text, _count: c_int) -> c_int {
    // SAFETY: valid context, C string.
    unsafe { api!(RedisModule_ReplyWithSimpleString(ctx, c"OK".as_ptr())) }
}

fn methods() -> raw::RedisModuleTypeMethods {
    raw::RedisModuleTypeMethods {
        version: u64::from(raw::REDISMODULE_TYPE_METHOD_VERSION),
        rdb_load: Some(load),
        rdb_save: Some(save),
        aof_rewrite: Some(rewrite),
        mem_usage: None,
        digest: None,
        free: Some(free),
        aux_load: None,
        aux_save: None,
        aux_save_triggers: 0,
        free_effort: None,
        unlink: None,
        copy: None,
        defrag: None,
        mem_usage2: None,
        free_effort2: Some(free_effort),
        unlink2: Some(unlink),
        copy2: None,
        aux_save2: None,
    }
}

/// The server calls these three without a check for null; nothing is saved or loaded here.
unsafe extern "C" fn load(_io: *mut raw::RedisModuleIO, _encoding: c_int) -> *mut c_void {
    ptr::null_mut()
}

unsafe extern "C" fn save(_io: *mut raw::RedisModuleIO, _value: *mut c_void) {}

unsafe extern "C" fn rewrite(_io: *mut raw::RedisModuleIO, _key: Text, _value: *mut c_void) {}

unsafe extern "C" fn free(value: *mut c_void) {
    // SAFETY: made by `acquire`, and the server has let it go.
    drop(unsafe { Box::from_raw(value.cast::<Value>()) });
}

unsafe extern "C" fn free_effort(
    _key: *mut raw::RedisModuleKeyOptCtx,
    _value: *const c_void,
) -> usize {
    1
}

/// dlock reads the name of each removed value; so does this.
unsafe extern "C" fn unlink(key: *mut raw::RedisModuleKeyOptCtx, _value: *const c_void) {
    let (Some(name), Some(db), Some(bytes)) = (unsafe {
        // SAFETY: pointers that loading has set, read on the main thread.
        (
            raw::RedisModule_GetKeyNameFromOptCtx,
            raw::RedisModule_GetDbIdFromOptCtx,
            raw::RedisModule_StringPtrLen,
        )
    }) else {
        return;
    };
    let mut length = 0;
    // SAFETY: `key` is valid during this call, and so is the name.
    unsafe {
        db(key);
        bytes(name(key), &raw mut length);
    }
}
