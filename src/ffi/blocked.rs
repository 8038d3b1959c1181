//! Blocked calls: a client that waits for its answer.

use std::ffi::{c_int, c_void};
use std::ptr::{self, NonNull};

use redis_module::raw;

use crate::parking::Delivery;

use super::ctx::Ctx;
use super::guard;
use super::host;
use super::load::OK;

/// A client that has been blocked by us. Using it up is the only way to unblock it, so that happens exactly once.
///
/// Dropped unused, it answers the client with an error (if it still is there).
#[must_use]
pub struct Blocked(NonNull<raw::RedisModuleBlockedClient>);

impl Blocked {
    /// Blocks the caller, without a timeout: every wait is timed by the module's own clock. `None` if that cannot be
    /// (MULTI, scripts, modules' calls, and what else the server refuses); the caller has then to be answered.
    pub fn block(ctx: Ctx<'_>) -> Option<Self> {
        // Some of these would abort the server.
        let flags = ctx.flags();
        if flags.deny_blocking() || flags.multi() || flags.lua() {
            return None;
        }
        let unblockable = host::host().is_some_and(|host| host.client_unblock_is_sound);
        let timeout = unblockable.then_some(timed_out as Reply);
        // SAFETY: valid context; the callbacks know the private data that `unblock` passes.
        let handle = unsafe {
            api!(RedisModule_BlockClient(
                ctx.as_ptr(),
                Some(reply),
                timeout,
                Some(free_private_data),
                0
            ))
        };
        let handle = NonNull::new(handle)?;
        // SAFETY: a fresh handle.
        unsafe {
            api!(RedisModule_SetDisconnectCallback(handle.as_ptr(), Some(disconnected)));
        }
        guard::replied(0);
        Some(Self(handle))
    }

    /// Names this handle in the callbacks. Unique among the handles whose call has not been settled.
    #[inline]
    pub fn id(&self) -> usize {
        self.0.as_ptr().addr()
    }

    /// Hands the answer over. It is written, by `parking::reply`, before the event loop sleeps again; then, or if
    /// the client goes before that, `parking::settled` gets `delivery` back.
    pub fn unblock(self, delivery: Box<Delivery>) {
        self.end(Box::into_raw(delivery).cast());
    }

    /// Lets go of a handle whose client has gone or has been answered by the server.
    pub fn unblock_gone(self) {
        self.end(ptr::null_mut());
    }

    fn end(self, private_data: *mut c_void) {
        let handle = std::mem::ManuallyDrop::new(self);
        // SAFETY: a handle that has not been unblocked, and `self` is used up.
        unsafe { api!(RedisModule_UnblockClient(handle.0.as_ptr(), private_data)) };
    }
}

impl Drop for Blocked {
    fn drop(&mut self) {
        // SAFETY: a handle that has not been unblocked: the ways that do skip this.
        unsafe { api!(RedisModule_UnblockClient(self.0.as_ptr(), ptr::null_mut())) };
    }
}

type Reply = unsafe extern "C" fn(
    *mut raw::RedisModuleCtx,
    *mut *mut raw::RedisModuleString,
    c_int,
) -> c_int;

/// The handle was used up and its client is there: answer it.
unsafe extern "C" fn reply(
    ctx: *mut raw::RedisModuleCtx,
    _argv: *mut *mut raw::RedisModuleString,
    _argc: c_int,
) -> c_int {
    // SAFETY: the server's context, valid during this call, on the main thread.
    if let Some(ctx) = unsafe { Ctx::from_raw(ctx) } {
        guard::answer("answering a blocked call", ctx, || {
            // SAFETY: the private data is null or what `unblock` passed; it is freed after this call.
            let delivery = unsafe {
                api!(RedisModule_GetBlockedClientPrivateData(ctx.as_ptr()))
                    .cast::<Delivery>()
                    .as_ref()
            };
            match delivery {
                Some(delivery) => crate::parking::reply(ctx, delivery),
                None => ctx.reply_error("ERR internal error, please report"),
            }
        });
    }
    OK
}

/// CLIENT UNBLOCK ended the wait. The disconnect callback will not be called.
unsafe extern "C" fn timed_out(
    ctx: *mut raw::RedisModuleCtx,
    _argv: *mut *mut raw::RedisModuleString,
    _argc: c_int,
) -> c_int {
    // SAFETY: the server's context, valid during this call, on the main thread.
    if let Some(ctx) = unsafe { Ctx::from_raw(ctx) } {
        guard::answer("unblocking a call", ctx, || {
            ctx.reply_null();
            // SAFETY: valid context of a blocked client.
            let handle = unsafe { api!(RedisModule_GetBlockedClientHandle(ctx.as_ptr())) };
            crate::parking::unblocked(handle.addr());
        });
    }
    OK
}

/// Comes once for each `unblock`, after `reply` or instead of it.
unsafe extern "C" fn free_private_data(ctx: *mut raw::RedisModuleCtx, private_data: *mut c_void) {
    guard::call("settling a blocked call", (), || {
        // SAFETY: the server's context is valid during this call; the private data comes from `unblock` and is
        // passed here once.
        let (disconnected, delivery) = unsafe {
            (
                api!(RedisModule_BlockedClientDisconnected(ctx)) != 0,
                Box::from_raw(private_data.cast::<Delivery>()),
            )
        };
        crate::parking::settled(&delivery, disconnected);
    });
}

/// The connection is going, or the server has answered the call with an error. Also comes for handles that were
/// used up in this turn of the loop.
unsafe extern "C" fn disconnected(
    _ctx: *mut raw::RedisModuleCtx,
    handle: *mut raw::RedisModuleBlockedClient,
) {
    guard::call("the end of a connection", (), || {
        crate::parking::disconnected(handle.addr());
    });
}
