//! Blocked calls: a client that waits for its answer.

use std::ffi::{c_int, c_void};
use std::ptr::{self, NonNull};

use dlock_wire::reply::Sink;
use redis_module::raw;

use crate::numbers::NumberMap;
use crate::parking::Delivery;

use super::codes::OK;
use super::ctx::Ctx;
use super::main_thread::MainCell;
use super::{guard, host, owed};

/// Id of a blocked call, unique in the process, so that a late notice cannot name a later call. (The server reuses
/// the addresses of its handles.)
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct CallId(u64);

/// The calls of the handles that the server has not freed, by address. A callback looks its call up at once, while
/// the handle is alive; no other code knows addresses.
#[derive(Default)]
struct Handles {
    last: u64,
    calls: NumberMap<usize, CallId>,
}

static HANDLES: MainCell<Option<Handles>> = MainCell::new(None);

impl Handles {
    /// Runs `f` with the table. `f` must not call back into this table.
    fn with<R>(f: impl FnOnce(&mut Self) -> R) -> Option<R> {
        HANDLES.try_with(|handles| f(handles.get_or_insert_default()))
    }

    /// A new id.
    fn next(&mut self) -> CallId {
        self.last += 1;
        CallId(self.last)
    }

    /// Forgets a handle that the server is about to free.
    fn forget(handle: usize) {
        Self::with(|handles| handles.calls.remove(&handle));
    }

    /// The call of a live handle. `None` if the module has dropped it.
    fn call(handle: usize) -> Option<CallId> {
        Self::with(|handles| handles.calls.get(&handle).copied()).flatten()
    }
}

/// A client that the module has blocked. To unblock it consumes this value, so that it happens exactly once.
///
/// If it is dropped unused, the client (if still connected) gets an error.
#[must_use]
pub struct Blocked {
    handle: NonNull<raw::RedisModuleBlockedClient>,
    call: CallId,
}

/// Kept by the server for an unblocked handle until it settles it.
struct Answer {
    handle: usize,
    delivery: Delivery,
}

impl Blocked {
    /// Blocks the caller, without a timeout: the module times every wait itself. `None` if the server refuses (in
    /// MULTI, scripts and calls of modules, for example); the caller must then be answered.
    pub fn block(ctx: Ctx<'_>) -> Option<Self> {
        // To block some of these callers would abort the server.
        let flags = ctx.flags();
        if flags.deny_blocking() || flags.multi() || flags.lua() {
            return None;
        }
        let call = Handles::with(Handles::next)?;
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
        owed::replied(0);
        Handles::with(|handles| handles.calls.insert(handle.as_ptr().addr(), call));
        Some(Self { handle, call })
    }

    /// The id of this call in callbacks.
    #[inline]
    pub fn call(&self) -> CallId {
        self.call
    }

    /// Hands the answer over. `parking::reply` writes it before the event loop sleeps again. Then, or if the client
    /// disconnects first, `parking::settled` gets `delivery` back.
    pub fn unblock(self, delivery: Delivery) {
        let blocked = std::mem::ManuallyDrop::new(self);
        let answer = Box::new(Answer { handle: blocked.handle.as_ptr().addr(), delivery });
        // SAFETY: a handle that has not been unblocked, and `self` is used up without its drop. The table keeps
        // the handle until `free_private_data`, before which the server does not free it.
        unsafe {
            let private_data = Box::into_raw(answer).cast();
            api!(RedisModule_UnblockClient(blocked.handle.as_ptr(), private_data));
        }
    }

    /// Drops a handle whose client has disconnected or was answered by the server.
    pub fn unblock_gone(self) {
        drop(self);
    }
}

impl Drop for Blocked {
    fn drop(&mut self) {
        // Without private data, no callback says when the server frees the handle.
        Handles::forget(self.handle.as_ptr().addr());
        // SAFETY: a handle that has not been unblocked: `unblock` skips this.
        unsafe { api!(RedisModule_UnblockClient(self.handle.as_ptr(), ptr::null_mut())) };
    }
}

type Reply = unsafe extern "C" fn(
    *mut raw::RedisModuleCtx,
    *mut *mut raw::RedisModuleString,
    c_int,
) -> c_int;

/// The call was unblocked and its client is connected: writes the answer.
unsafe extern "C" fn reply(
    ctx: *mut raw::RedisModuleCtx,
    _argv: *mut *mut raw::RedisModuleString,
    _argc: c_int,
) -> c_int {
    // SAFETY: the server's context, valid during this call, on the main thread.
    if let Some(ctx) = unsafe { Ctx::from_raw(ctx) } {
        guard::answer("answering a blocked call", ctx, || {
            // SAFETY: the private data is null or what `unblock` passed; it is freed after this call.
            let answer = unsafe {
                api!(RedisModule_GetBlockedClientPrivateData(ctx.as_ptr()))
                    .cast::<Answer>()
                    .as_ref()
            };
            match answer {
                Some(answer) => crate::parking::reply(ctx, &answer.delivery),
                None => ctx.reply_error("ERR internal error, please report"),
            }
        });
    }
    OK
}

/// CLIENT UNBLOCK ended the wait. The server will not call `disconnected`.
unsafe extern "C" fn timed_out(
    ctx: *mut raw::RedisModuleCtx,
    _argv: *mut *mut raw::RedisModuleString,
    _argc: c_int,
) -> c_int {
    // SAFETY: the server's context, valid during this call, on the main thread.
    if let Some(mut ctx) = unsafe { Ctx::from_raw(ctx) } {
        guard::answer("unblocking a call", ctx, || {
            ctx.null();
            // SAFETY: valid context of a blocked client, whose handle is alive: the server frees none that was not
            // unblocked.
            let handle = unsafe { api!(RedisModule_GetBlockedClientHandle(ctx.as_ptr())) };
            if let Some(call) = Handles::call(handle.addr()) {
                crate::parking::unblocked(call);
            }
        });
    }
    OK
}

/// Called once for each `unblock`, after `reply` or instead of it.
unsafe extern "C" fn free_private_data(ctx: *mut raw::RedisModuleCtx, private_data: *mut c_void) {
    guard::call("settling a blocked call", (), || {
        // SAFETY: the server's context is valid during this call; the private data comes from `unblock` and is
        // passed here once.
        let (disconnected, answer) = unsafe {
            (
                api!(RedisModule_BlockedClientDisconnected(ctx)) != 0,
                Box::from_raw(private_data.cast::<Answer>()),
            )
        };
        // The server frees the handle right after this.
        Handles::forget(answer.handle);
        crate::parking::settled(&answer.delivery, disconnected);
    });
}

/// The connection is closing, or the server has answered the call with an error. Also called for handles that were
/// unblocked in this turn of the loop. The handle is alive during this call, and may be freed before the notice is
/// processed.
unsafe extern "C" fn disconnected(
    _ctx: *mut raw::RedisModuleCtx,
    handle: *mut raw::RedisModuleBlockedClient,
) {
    guard::call("the end of a connection", (), || {
        if let Some(call) = Handles::call(handle.addr()) {
            crate::parking::disconnected(call);
        }
    });
}
