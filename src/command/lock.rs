//! DLOCK: what each request asks the machine, and how views are written.

use dlock_core::effects::Effects;
use dlock_core::machine::{Caller, Foreign, Machine};
use dlock_core::store::Store;
use dlock_core::time::Now;
use dlock_core::view::{LockInfo, WaiterInfo};
use dlock_wire::reply::{ErrorCode, info, quote, waiter};
use dlock_wire::request::Request;

use crate::ffi::Ctx;

/// Asks the machine for what a writing request wants.
pub fn write(
    machine: &mut Machine,
    store: &mut impl Store,
    now: Now,
    caller: Caller,
    request: &Request<'_>,
    fx: &mut Effects,
) {
    match *request {
        Request::Acquire(ref call) => machine.acquire(store, now, caller, call, fx),
        Request::Release(ref call) => machine.release(store, now, caller, call, fx),
        Request::Renew(ref call) => machine.renew(store, now, caller, call, fx),
        Request::Fence { key, owner, token } => {
            machine.fence(store, now, caller, (key, owner, token), fx);
        }
        Request::Break { key } => machine.break_lock(store, now, caller, key, fx),
        Request::Cancel { key, owner } => machine.cancel(store, now, caller, (key, owner), fx),
        Request::Unblock { client, error } => machine.unblock(store, now, (client, error), fx),
        Request::Check { .. }
        | Request::Info { .. }
        | Request::Waiters { .. }
        | Request::Position { .. }
        | Request::Apply { .. } => debug_assert!(false, "not a writing request"),
    }
}

/// What a reading request is answered.
pub enum View {
    /// CHECK of the current token.
    Current,
    /// CHECK of another token.
    Stale(String),
    /// INFO; `None` when nothing is there.
    Info(Option<LockInfo>),
    /// WAITERS.
    Waiters(Vec<WaiterInfo>),
    /// POSITION; `None` for who neither holds nor waits.
    Position(Option<usize>),
}

/// Looks at what a reading request asks for. `None` for other requests.
pub fn read(
    machine: &Machine,
    store: &mut impl Store,
    now: Now,
    caller: Caller,
    request: &Request<'_>,
) -> Option<Result<View, Foreign>> {
    Some(match *request {
        Request::Check { key, token } => {
            machine.is_current(store, now, caller.key(key), token).map(|is_current| {
                if is_current {
                    View::Current
                } else {
                    View::Stale(format!("token {token} is not that of the hold on {}", quote(key)))
                }
            })
        }
        Request::Info { key } => machine.lock_info(store, now, caller.key(key)).map(View::Info),
        Request::Waiters { key, count } => {
            let most =
                count.map_or(usize::MAX, |count| usize::try_from(count).unwrap_or(usize::MAX));
            machine.waiters(store, now, caller.key(key), most).map(View::Waiters)
        }
        Request::Position { key, owner } => {
            machine.position(store, now, caller.key(key), owner).map(View::Position)
        }
        _ => return None,
    })
}

/// Writes a view.
pub fn reply(ctx: Ctx<'_>, view: &View) {
    match view {
        View::Current => ctx.reply_int(1),
        View::Stale(text) => ctx.reply_error(&format!("{} {text}", ErrorCode::Stale)),
        View::Info(None) | View::Position(None) => ctx.reply_null(),
        View::Info(Some(found)) => reply_info(ctx, found),
        View::Waiters(rows) => {
            ctx.reply_array(rows.len());
            for row in rows {
                reply_waiter(ctx, row);
            }
        }
        View::Position(Some(position)) => ctx.reply_int(number(*position as u64)),
    }
}

fn reply_info(ctx: Ctx<'_>, found: &LockInfo) {
    ctx.reply_map(info::FIELDS.len());
    ctx.reply_key(info::KIND);
    ctx.reply_bulk(info::KIND_LOCK.as_bytes());
    ctx.reply_key(info::OWNER);
    ctx.reply_bulk(&found.owner);
    for (field, value) in [
        (info::TOKEN, found.token),
        (info::HOLDS, u64::from(found.holds)),
        (info::LEASE_MS, found.lease_ms),
        (info::TTL_MS, found.ttl_ms),
        (info::HELD_MS, found.held_ms),
    ] {
        ctx.reply_key(field);
        ctx.reply_int(number(value));
    }
    ctx.reply_key(info::LABEL);
    ctx.reply_bulk(&found.label);
    ctx.reply_key(info::BOUND_CLIENT);
    ctx.reply_int(number(found.bound_client));
    ctx.reply_key(info::WAITERS);
    ctx.reply_int(number(found.waiters as u64));
}

fn reply_waiter(ctx: Ctx<'_>, row: &WaiterInfo) {
    ctx.reply_map(waiter::FIELDS.len());
    ctx.reply_key(waiter::OWNER);
    ctx.reply_bulk(&row.owner);
    ctx.reply_key(waiter::CLIENT_ID);
    ctx.reply_int(number(row.client));
    ctx.reply_key(waiter::WAITING_MS);
    ctx.reply_int(number(row.waiting_ms));
    ctx.reply_key(waiter::REMAINING_MS);
    // -1 as in PTTL: it does not end by itself.
    ctx.reply_int(row.remaining_ms.map_or(-1, number));
    ctx.reply_key(waiter::LABEL);
    ctx.reply_bulk(&row.label);
}

fn number(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}
