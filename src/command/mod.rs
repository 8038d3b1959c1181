//! Translates outcomes and views into replies.
//!
//! Code that the families share is here; each family has a file for the rest.

mod latch;
mod lock;
mod rw;
mod semaphore;

use dlock_core::effects::{Fault, Outcome};
use dlock_core::key::Key;
use dlock_core::kind::Kind;
use dlock_core::machine::Machine;
use dlock_core::op::family_of;
use dlock_core::store::Store;
use dlock_core::time::Now;
use dlock_core::turn::Foreign;
use dlock_core::view::{HolderInfo, LatchInfo, LockInfo, PermitInfo, RwInfo, SemInfo, WaiterInfo};
use dlock_wire::permit;
use dlock_wire::reply::{ErrorCode, holder, quote, waiter};
use dlock_wire::request::Request;
use dlock_wire::table::CommandId;

use crate::ffi::Ctx;

/// The result of a reading request.
pub enum View {
    /// CHECK of a current token.
    Current,
    /// CHECK of another token.
    Stale(String),
    /// INFO of DLOCK or DFAIR; `None`, here and below, if the key does not exist.
    Lock(Kind, Option<LockInfo>),
    /// INFO of DRW.
    Rw(Option<RwInfo>),
    /// INFO of DSEM.
    Semaphore(Option<SemInfo>),
    /// INFO of DLATCH.
    Latch(Option<LatchInfo>),
    /// PERMITS.
    Permits(Vec<PermitInfo>),
    /// WAITERS.
    Waiters(Vec<WaiterInfo>),
    /// POSITION; `None` for an owner that neither holds nor waits.
    Position(Option<usize>),
}

/// Executes a reading request in database `db`. `None` for other requests.
pub fn read(
    machine: &Machine,
    store: &mut dyn Store,
    now: Now,
    db: u32,
    id: CommandId,
    request: &Request<'_>,
) -> Option<Result<View, Foreign>> {
    let kind = family_of(id)?;
    Some(match *request {
        Request::Info { key: name } => {
            let key = Key { db, name };
            match kind {
                Kind::Lock | Kind::Fair => {
                    machine.lock_info(store, now, kind, key).map(|found| View::Lock(kind, found))
                }
                Kind::Rw => machine.rw_info(store, now, key).map(View::Rw),
                Kind::Semaphore => machine.sem_info(store, now, key).map(View::Semaphore),
                Kind::Latch => machine.latch_info(store, now, key).map(View::Latch),
            }
        }
        Request::Check { key: name, token } => {
            machine.is_current(store, now, kind, Key { db, name }, token).map(|is_current| {
                if is_current { View::Current } else { View::Stale(stale(kind, name, token)) }
            })
        }
        Request::Waiters { key: name, count } => {
            let most =
                count.map_or(usize::MAX, |count| usize::try_from(count).unwrap_or(usize::MAX));
            machine.waiters(store, now, (kind, Key { db, name }), most).map(View::Waiters)
        }
        Request::Position { key: name, owner } => {
            machine.position(store, now, (kind, Key { db, name }), owner).map(View::Position)
        }
        Request::Permits { key: name } => {
            machine.permits(store, now, Key { db, name }).map(View::Permits)
        }
        _ => return None,
    })
}

fn stale(kind: Kind, key: &[u8], token: u64) -> String {
    // A read-write lock can have several holds.
    let whose = if kind == Kind::Rw { "a hold" } else { "the hold" };
    format!("token {token} is not that of {whose} on {}", quote(key))
}

/// Writes an outcome.
pub fn reply(ctx: Ctx<'_>, outcome: &Outcome) {
    match outcome {
        // Tokens have 53 bits and counts 32.
        Outcome::Token(number) | Outcome::Count(number) => ctx.reply_int(number.cast_signed()),
        Outcome::Tokens(tokens) => {
            ctx.reply_array(tokens.len());
            for token in tokens {
                ctx.reply_int(token.cast_signed());
            }
        }
        Outcome::Granted { key, token } => {
            ctx.reply_array(2);
            ctx.reply_bulk(key);
            ctx.reply_int(token.cast_signed());
        }
        Outcome::Permit(id) => ctx.reply_bulk(&permit::text(id)),
        Outcome::Taken => ctx.reply_int(1),
        Outcome::Available(number) => ctx.reply_int(*number),
        Outcome::Null => ctx.reply_null(),
        Outcome::Fault(Fault { code, text }) => ctx.reply_error(&format!("{code} {text}")),
    }
}

/// Writes a view.
pub fn show(ctx: Ctx<'_>, view: &View) {
    match view {
        View::Current => ctx.reply_int(1),
        View::Stale(text) => ctx.reply_error(&format!("{} {text}", ErrorCode::Stale)),
        View::Lock(_, None)
        | View::Rw(None)
        | View::Semaphore(None)
        | View::Latch(None)
        | View::Position(None) => ctx.reply_null(),
        View::Lock(kind, Some(found)) => lock::show(ctx, *kind, found),
        View::Rw(Some(found)) => rw::show(ctx, found),
        View::Semaphore(Some(found)) => semaphore::show(ctx, found),
        View::Latch(Some(found)) => latch::show(ctx, found),
        View::Permits(rows) => show_rows(ctx, rows, semaphore::show_permit),
        View::Waiters(rows) => show_rows(ctx, rows, show_waiter),
        View::Position(Some(position)) => ctx.reply_int(number(*position as u64)),
    }
}

fn show_rows<R>(ctx: Ctx<'_>, rows: &[R], show_row: impl Fn(Ctx<'_>, &R)) {
    ctx.reply_array(rows.len());
    for row in rows {
        show_row(ctx, row);
    }
}

fn show_waiter(ctx: Ctx<'_>, row: &WaiterInfo) {
    Fields::begin(ctx, &waiter::FIELDS)
        .text(waiter::OWNER, &row.owner)
        .number(waiter::CLIENT_ID, row.client)
        .number(waiter::WAITING_MS, row.waiting_ms)
        .time_left(waiter::REMAINING_MS, row.remaining_ms)
        .text(waiter::LABEL, &row.label);
}

/// Writes a hold as a nested map.
fn show_holder(ctx: Ctx<'_>, found: &HolderInfo) {
    Fields::begin(ctx, &holder::FIELDS)
        .text(holder::OWNER, &found.owner)
        .number(holder::TOKEN, found.token)
        .number(holder::HOLDS, u64::from(found.holds))
        .number(holder::LEASE_MS, found.lease_ms)
        .number(holder::TTL_MS, found.ttl_ms)
        .number(holder::HELD_MS, found.held_ms)
        .text(holder::LABEL, &found.label)
        .number(holder::BOUND_CLIENT, found.bound_client);
}

/// A map reply in progress; fields follow the order of its `FIELDS`.
#[derive(Clone, Copy)]
struct Fields<'a>(Ctx<'a>);

impl<'a> Fields<'a> {
    /// Announces a map of these fields.
    fn begin(ctx: Ctx<'a>, fields: &[&str]) -> Self {
        ctx.reply_map(fields.len());
        Self(ctx)
    }

    /// Writes the name of the next field; the caller writes its value.
    fn field(self, name: &str) -> Self {
        self.0.reply_key(name);
        self
    }

    fn text(self, name: &str, value: &[u8]) -> Self {
        self.field(name).0.reply_bulk(value);
        self
    }

    fn signed(self, name: &str, value: i64) -> Self {
        self.field(name).0.reply_int(value);
        self
    }

    fn number(self, name: &str, value: u64) -> Self {
        self.signed(name, number(value))
    }

    /// Milliseconds; -1, as in PTTL, for a value without an end.
    fn time_left(self, name: &str, value: Option<u64>) -> Self {
        self.signed(name, value.map_or(-1, number))
    }
}

fn number(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}
