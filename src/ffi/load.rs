//! The entry point that loads the module.

use std::ffi::{CStr, c_int};

use redis_module::raw;

use super::args::Args;
use super::codes::{ERR, OK, int, ok};
use super::ctx::{Ctx, Level, log};
use super::host::Host;
use super::{
    alarm, command, config, ctx, datatype, events, guard, host, info, main_thread, rewrite,
};

const NAME: &CStr = c"dlock";
/// What MODULE LIST shows: two digits for each part, so 1.0.0 is 10000.
const MODULE_VERSION: c_int = 10_000 * number(env!("CARGO_PKG_VERSION_MAJOR"))
    + 100 * number(env!("CARGO_PKG_VERSION_MINOR"))
    + number(env!("CARGO_PKG_VERSION_PATCH"));

const LOADED_ALREADY: &str = "dlock cannot be loaded: it is loaded already. Name it once in all configuration files and \
    on the command line (CONFIG REWRITE adds a loadmodule line to the main file); to load another version, restart";

const fn number(text: &str) -> c_int {
    match c_int::from_str_radix(text, 10) {
        Ok(number) => number,
        Err(_) => 0,
    }
}

/// Called by the server, once, on its main thread.
///
/// # Safety
/// Only the server may call it, with a valid context and arguments.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn RedisModule_OnLoad(
    raw_ctx: *mut raw::RedisModuleCtx,
    argv: *mut *mut raw::RedisModuleString,
    count: c_int,
) -> c_int {
    // Nothing may be allocated before this: it fetches the server's functions, the allocator among them.
    // SAFETY: the server's context and a C string.
    let known = unsafe {
        raw::Export_RedisModule_Init(
            raw_ctx,
            NAME.as_ptr(),
            MODULE_VERSION,
            int(raw::REDISMODULE_APIVER_1),
        )
    };
    if !ok(known) {
        // The functions are fetched, but the name is taken. The server ends, or refuses MODULE LOAD. To return OK here
        // without a module crashes it, and a second module of this name gets through only because no server checks.
        log(Level::Warning, LOADED_ALREADY);
        return ERR;
    }
    main_thread::settle();
    guard::call("loading the module", ERR, || {
        // SAFETY: valid during this call, on the main thread. The array of arguments has no command name in front.
        let (ctx, arguments) = unsafe { (Ctx::from_raw(raw_ctx), Args::all(argv, count)) };
        let Some(ctx) = ctx else { return ERR };
        match start(ctx, &arguments) {
            Ok(host) => {
                let (major, minor, patch) = host.version;
                let server = format!("{:?} {major}.{minor}.{patch}", host.server);
                let version = env!("CARGO_PKG_VERSION");
                if !host.is_tried {
                    let line = format!(
                        "dlock {version} is untried on {server}: its tests have not run on this version of the server"
                    );
                    log(Level::Warning, &line);
                }
                log(Level::Notice, &format!("dlock {version} is ready on {server}"));
                OK
            }
            Err(error) => {
                log(Level::Warning, &format!("dlock cannot be loaded: {error}"));
                ERR
            }
        }
    })
}

fn start(ctx: Ctx<'_>, args: &Args<'_>) -> Result<Host, String> {
    let missing = missing();
    if !missing.is_empty() {
        let missing = missing.join(", ");
        return Err(format!("this server is older than Redis 7.0, it lacks {missing}"));
    }
    if !memory_is_aligned() {
        return Err("the memory of this server is aligned to 8 bytes, and dlock needs 16: build the server with jemalloc"
            .to_owned());
    }
    ctx::open_log(ctx);
    let host = host::detect(ctx);
    datatype::register(ctx)?;
    command::register(ctx)?;
    config::register(ctx, args)?;
    info::register(ctx)?;
    // From here on the server calls into the module; steps that can fail come before it where possible.
    crate::dispatch::start(ctx)?;
    events::subscribe(ctx)?;
    alarm::create()?;
    rewrite::create()?;
    // SAFETY: valid context.
    unsafe {
        api!(RedisModule_SetModuleOptions(
            ctx.as_ptr(),
            int(raw::REDISMODULE_OPTIONS_HANDLE_IO_ERRORS
                | raw::REDISMODULE_OPTIONS_HANDLE_REPL_ASYNC_LOAD
                // A refused call opens its key for writing, too; WATCH and client-side caches must not see that.
                | raw::REDISMODULE_OPTION_NO_IMPLICIT_SIGNAL_MODIFIED),
        ));
    }
    Ok(host)
}

/// Whether memory of the server is aligned as the tables of Rust need it. It is not if the server keeps the size of
/// each piece in front of it: without jemalloc, with a C library other than glibc, such as musl.
fn memory_is_aligned() -> bool {
    const ALIGNMENT: usize = 16;
    // SAFETY: `missing` is empty. Nothing reads the memory.
    unsafe {
        let memory = api!(RedisModule_Alloc(ALIGNMENT));
        let is_aligned = memory.addr().is_multiple_of(ALIGNMENT);
        api!(RedisModule_Free(memory));
        is_aligned
    }
}

macro_rules! required {
    ($($name:ident)*) => {
        /// The functions that the module needs and this server lacks.
        fn missing() -> Vec<&'static str> {
            let mut missing = Vec::new();
            // SAFETY: written by `Export_RedisModule_Init` only, before this, on this thread.
            unsafe {
                $(if let None = raw::$name {
                    missing.push(stringify!($name));
                })*
            }
            missing
        }
    };
}

required! {
    RedisModule_Alloc
    RedisModule_ACLCheckChannelPermissions
    RedisModule_ACLCheckCommandPermissions
    RedisModule_ACLCheckKeyPermissions
    RedisModule_AvoidReplicaTraffic
    RedisModule_BlockClient
    RedisModule_BlockedClientDisconnected
    RedisModule_Call
    RedisModule_CallReplyArrayElement
    RedisModule_CallReplyLength
    RedisModule_CallReplyStringPtr
    RedisModule_CloseKey
    RedisModule_CreateCommand
    RedisModule_CreateDataType
    RedisModule_CreateString
    RedisModule_DbSize
    RedisModule_DeauthenticateAndCloseClient
    RedisModule_DeleteKey
    RedisModule_DigestAddStringBuffer
    RedisModule_DigestEndSequence
    RedisModule_EmitAOF
    RedisModule_EventLoopAdd
    RedisModule_Free
    RedisModule_FreeCallReply
    RedisModule_FreeModuleUser
    RedisModule_FreeServerInfo
    RedisModule_FreeString
    RedisModule_GetBlockedClientHandle
    RedisModule_GetBlockedClientPrivateData
    RedisModule_GetClientId
    RedisModule_GetCommand
    RedisModule_GetClientInfoById
    RedisModule_GetContextFlags
    RedisModule_GetCurrentUserName
    RedisModule_GetDbIdFromIO
    RedisModule_GetDbIdFromOptCtx
    RedisModule_GetDetachedThreadSafeContext
    RedisModule_GetExpire
    RedisModule_GetKeyNameFromIO
    RedisModule_GetKeyNameFromOptCtx
    RedisModule_GetModuleUserFromUserName
    RedisModule_GetSelectedDb
    RedisModule_GetServerInfo
    RedisModule_InfoAddFieldULongLong
    RedisModule_InfoAddSection
    RedisModule_IsIOError
    RedisModule_KeyType
    RedisModule_LoadConfigs
    RedisModule_LoadStringBuffer
    RedisModule_Log
    RedisModule_ModuleTypeGetType
    RedisModule_ModuleTypeGetValue
    RedisModule_ModuleTypeSetValue
    RedisModule_NotifyKeyspaceEvent
    RedisModule_OpenKey
    RedisModule_PublishMessage
    RedisModule_PublishMessageShard
    RedisModule_RegisterBoolConfig
    RedisModule_RegisterInfoFunc
    RedisModule_RegisterNumericConfig
    RedisModule_Replicate
    RedisModule_ReplyWithArray
    RedisModule_ReplyWithError
    RedisModule_ReplyWithLongLong
    RedisModule_ReplyWithMap
    RedisModule_ReplyWithNull
    RedisModule_ReplyWithSimpleString
    RedisModule_ReplyWithStringBuffer
    RedisModule_SaveStringBuffer
    RedisModule_SelectDb
    RedisModule_ServerInfoGetFieldC
    RedisModule_SetCommandInfo
    RedisModule_SetDisconnectCallback
    RedisModule_SetExpire
    RedisModule_SetModuleOptions
    RedisModule_SignalModifiedKey
    RedisModule_StringPtrLen
    RedisModule_SubscribeToKeyspaceEvents
    RedisModule_SubscribeToServerEvent
    RedisModule_UnblockClient
}
