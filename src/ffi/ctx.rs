//! The server's context of a running call: flags, replies, replication, events, messages.

use std::ffi::{CStr, c_int};
use std::marker::PhantomData;
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicPtr, Ordering};

use dlock_wire::reply::Sink;
use redis_module::raw;

use super::codes::ok;
use super::name::{Name, OwnedName};
use super::owed::replied;

/// The command that replicas and the AOF replay.
pub(super) const APPLY: &CStr = c"DLOCK.APPLY";

/// A context that lives as long as the module; used only for the log.
static LOG: AtomicPtr<raw::RedisModuleCtx> = AtomicPtr::new(ptr::null_mut());

/// The context of the running call.
#[derive(Clone, Copy)]
pub struct Ctx<'a> {
    raw: NonNull<raw::RedisModuleCtx>,
    life: PhantomData<&'a ()>,
}

/// Level of a log line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Level {
    /// Shown by default.
    Notice,
    /// Always shown.
    Warning,
}

/// State of the server and of the caller, from the context.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Flags(u32);

macro_rules! flags {
    ($($(#[$doc:meta])* $name:ident = $bit:ident;)*) => {
        impl Flags {
            $($(#[$doc])*
            #[inline]
            pub const fn $name(self) -> bool {
                self.0 & raw::$bit != 0
            })*
        }
    };
}

flags! {
    /// The caller is a script.
    lua = REDISMODULE_CTX_FLAGS_LUA;
    /// Inside MULTI/EXEC.
    multi = REDISMODULE_CTX_FLAGS_MULTI;
    /// This server is a primary (a loading one, too).
    primary = REDISMODULE_CTX_FLAGS_MASTER;
    /// This server is a replica.
    replica = REDISMODULE_CTX_FLAGS_SLAVE;
    /// Cluster mode.
    cluster = REDISMODULE_CTX_FLAGS_CLUSTER;
    /// The command came over the replication link.
    replicated = REDISMODULE_CTX_FLAGS_REPLICATED;
    /// Writes go to an append-only file.
    aof = REDISMODULE_CTX_FLAGS_AOF;
    /// An RDB or AOF file is being loaded.
    loading = REDISMODULE_CTX_FLAGS_LOADING;
    /// A replica serves its old data while it loads new.
    async_loading = REDISMODULE_CTX_FLAGS_ASYNC_LOADING;
    /// The caller may not be blocked (MULTI, scripts and modules' calls among others).
    deny_blocking = REDISMODULE_CTX_FLAGS_DENY_BLOCKING;
}

impl<'a> Ctx<'a> {
    /// # Safety
    /// `raw`, unless null, is a context that stays valid for `'a`, on the main thread.
    #[inline]
    pub(super) unsafe fn from_raw(raw: *mut raw::RedisModuleCtx) -> Option<Self> {
        NonNull::new(raw).map(|raw| Self { raw, life: PhantomData })
    }

    #[inline]
    pub(super) fn as_ptr(self) -> *mut raw::RedisModuleCtx {
        self.raw.as_ptr()
    }

    /// State of the server and the caller. Reads the memory counters, so call it once per command.
    #[inline]
    pub fn flags(self) -> Flags {
        // SAFETY: the context is valid for `'a`; so in every method of this type.
        Flags(unsafe { api!(RedisModule_GetContextFlags(self.as_ptr())) }.cast_unsigned())
    }

    /// Id of the caller's connection. In scripts, calls of other modules and replayed commands it is another id.
    #[inline]
    pub fn client_id(self) -> u64 {
        // SAFETY: valid context.
        unsafe { api!(RedisModule_GetClientId(self.as_ptr())) }
    }

    /// The selected database.
    #[inline]
    pub fn db(self) -> u32 {
        // SAFETY: valid context.
        let db = unsafe { api!(RedisModule_GetSelectedDb(self.as_ptr())) };
        u32::try_from(db).unwrap_or(0)
    }

    /// Runs `f` with database `db` selected, then restores the selection; `None` if there is no such database.
    #[inline]
    pub fn with_db<R>(self, db: u32, f: impl FnOnce(Ctx<'a>) -> R) -> Option<R> {
        let before = self.db();
        if before == db {
            return Some(f(self));
        }
        if !self.select(db) {
            return None;
        }
        let _back = Reselect(self, before);
        Some(f(self))
    }

    /// Number of keys in database `db`; `None` if there is no such database.
    pub fn db_size(self, db: u32) -> Option<u64> {
        // SAFETY: valid context.
        self.with_db(db, |ctx| unsafe { api!(RedisModule_DbSize(ctx.as_ptr())) })
    }

    fn select(self, db: u32) -> bool {
        let Ok(db) = c_int::try_from(db) else {
            return false;
        };
        // SAFETY: valid context; the server refuses a number out of range.
        ok(unsafe { api!(RedisModule_SelectDb(self.as_ptr(), db)) })
    }

    // Replies besides those of [`Sink`].

    /// Replies the status `OK`.
    pub fn reply_ok(self) {
        replied(0);
        // SAFETY: valid context, C string literal.
        unsafe { api!(RedisModule_ReplyWithSimpleString(self.as_ptr(), c"OK".as_ptr())) };
    }

    /// Replies an error; `text` begins with its code. Line breaks and zero bytes become spaces.
    pub fn reply_error(self, text: &str) {
        replied(0);
        let mut short = [0_u8; 256];
        let mut long = Vec::new();
        let line: &mut [u8] = if let Some(line) = short.get_mut(..=text.len()) {
            line
        } else {
            long.resize(text.len() + 1, 0);
            &mut long
        };
        for (to, from) in line.iter_mut().zip(text.bytes()) {
            *to = if matches!(from, b'\0' | b'\r' | b'\n') { b' ' } else { from };
        }
        // SAFETY: valid context; `line` ends with the one zero byte that the loop left.
        unsafe { api!(RedisModule_ReplyWithError(self.as_ptr(), line.as_ptr().cast())) };
    }

    /// Closes the caller's connection at the end of this turn.
    pub(super) fn close_client(self) {
        // SAFETY: valid context; the server refuses an unknown id.
        unsafe { api!(RedisModule_DeauthenticateAndCloseClient(self.as_ptr(), self.client_id())) };
    }

    // Effects.

    /// Sends `DLOCK.APPLY key payload` to AOF and replicas, for the selected database.
    ///
    /// Outside a command only when the server accepts a write ([`Ctx::accepts_writes`]) and
    /// [`avoid_replica_traffic`] is false; else the server aborts.
    #[inline]
    pub fn replicate(self, key: Name<'_>, payload: &[u8]) {
        // SAFETY: valid context; a live string, and a buffer with its length, as the format says.
        unsafe {
            api!(RedisModule_Replicate(
                self.as_ptr(),
                APPLY.as_ptr(),
                c"sb".as_ptr(),
                key.as_ptr(),
                payload.as_ptr(),
                payload.len(),
            ))
        };
    }

    /// Tells WATCH and client-side caches that `key` of the selected database has changed.
    #[inline]
    pub fn signal_modified(self, key: Name<'_>) {
        // SAFETY: valid context, live string.
        unsafe { api!(RedisModule_SignalModifiedKey(self.as_ptr(), key.as_ptr())) };
    }

    /// Sends the keyspace event `event` (class `d`) of `key` in the selected database. Other modules may react to it
    /// before this returns, so no [`super::KeyHandle`] may be open.
    #[inline]
    pub fn notify(self, event: &CStr, key: Name<'_>) {
        // SAFETY: valid context, C string, live string.
        unsafe {
            api!(RedisModule_NotifyKeyspaceEvent(
                self.as_ptr(),
                raw::REDISMODULE_NOTIFY_MODULE,
                event.as_ptr(),
                key.as_ptr(),
            ))
        };
    }

    /// Publishes `message` on `channel` to the subscribers of this server and, in a cluster, of the others; with
    /// sharded pub/sub (`is_sharded`) to those that subscribed with SSUBSCRIBE, here and at the replicas of this
    /// server.
    pub fn publish(self, channel: &[u8], message: &[u8], is_sharded: bool) {
        let channel = OwnedName::new(channel);
        let message = OwnedName::new(message);
        let (channel, message) = (channel.name().as_ptr(), message.name().as_ptr());
        // SAFETY: valid context, live strings; the server takes its own references.
        unsafe {
            if is_sharded {
                api!(RedisModule_PublishMessageShard(self.as_ptr(), channel, message));
            } else {
                api!(RedisModule_PublishMessage(self.as_ptr(), channel, message));
            }
        }
    }
}

/// Each call writes one element of a reply.
impl Sink for Ctx<'_> {
    #[inline]
    fn int(&mut self, number: i64) {
        replied(0);
        // SAFETY: valid context.
        unsafe { api!(RedisModule_ReplyWithLongLong(self.as_ptr(), number)) };
    }

    #[inline]
    fn null(&mut self) {
        replied(0);
        // SAFETY: valid context.
        unsafe { api!(RedisModule_ReplyWithNull(self.as_ptr())) };
    }

    #[inline]
    fn bulk(&mut self, bytes: &[u8]) {
        replied(0);
        // SAFETY: valid context; the server copies `bytes`.
        unsafe {
            api!(RedisModule_ReplyWithStringBuffer(
                self.as_ptr(),
                bytes.as_ptr().cast(),
                bytes.len(),
            ))
        };
    }

    fn array(&mut self, len: usize) {
        let len = i64::try_from(len).unwrap_or(i64::MAX);
        replied(len);
        // SAFETY: valid context.
        unsafe { api!(RedisModule_ReplyWithArray(self.as_ptr(), len)) };
    }

    fn map(&mut self, len: usize) {
        let len = i64::try_from(len).unwrap_or(i64::MAX);
        replied(len.saturating_mul(2));
        // SAFETY: valid context.
        unsafe { api!(RedisModule_ReplyWithMap(self.as_ptr(), len)) };
    }
}

struct Reselect<'a>(Ctx<'a>, u32);

impl Drop for Reselect<'_> {
    fn drop(&mut self) {
        self.0.select(self.1);
    }
}

/// True while the server is paused or fails over: replication then aborts it. Try again some 20 ms later.
#[inline]
pub fn avoid_replica_traffic() -> bool {
    // SAFETY: takes nothing.
    unsafe { api!(RedisModule_AvoidReplicaTraffic()) != 0 }
}

/// True if a client with this `id` is connected.
#[inline]
pub fn client_alive(id: u64) -> bool {
    // SAFETY: a null place is allowed: the answer is then only whether the client exists.
    ok(unsafe { api!(RedisModule_GetClientInfoById(ptr::null_mut(), id)) })
}

/// Flags of the server, for callers without a context.
pub(super) fn server_flags() -> Flags {
    // SAFETY: a null context is allowed: the flags of a caller are then left out.
    Flags(unsafe { api!(RedisModule_GetContextFlags(ptr::null_mut())) }.cast_unsigned())
}

/// The context that lives as long as the module; `None` before the module has created it.
pub(super) fn module_ctx<'a>() -> Option<Ctx<'a>> {
    // SAFETY: null, or made by `open_log` and never freed. It is not the caller's context: it serves for what is the
    // module's own, like subscriptions.
    unsafe { Ctx::from_raw(LOG.load(Ordering::Relaxed)) }
}

/// Creates the context that [`log`] uses.
pub(super) fn open_log(ctx: Ctx<'_>) {
    // SAFETY: valid context; the new one is never freed.
    let log = unsafe { api!(RedisModule_GetDetachedThreadSafeContext(ctx.as_ptr())) };
    LOG.store(log, Ordering::Relaxed);
}

/// Writes a line to the server's log.
pub fn log(level: Level, text: &str) {
    let level = match level {
        Level::Notice => c"notice",
        Level::Warning => c"warning",
    };
    let text = super::c_string(text);
    // SAFETY: the context is null, which is allowed, or is never freed; the text is an argument, not the format.
    unsafe {
        api!(RedisModule_Log(
            LOG.load(Ordering::Relaxed),
            level.as_ptr(),
            c"%s".as_ptr(),
            text.as_ptr(),
        ));
    }
}
