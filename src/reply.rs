//! Translates outcomes and views into replies.

use dlock_core::effects::{Fault, Outcome};
use dlock_core::key::Key;
use dlock_core::kind::Kind;
use dlock_core::machine::Machine;
use dlock_core::op::family_of;
use dlock_core::store::Store;
use dlock_core::time::Now;
use dlock_core::turn::WrongType;
use dlock_wire::reply::{ErrorCode, Info, PermitInfo, Shape, Sink, WaiterInfo, quote};
use dlock_wire::request::Request;
use dlock_wire::table::CommandId;

use crate::ffi::Ctx;

/// The result of a reading request.
pub enum View {
    /// CHECK of a current token.
    Current,
    /// CHECK of another token.
    Stale(String),
    /// INFO; `None` if the key does not exist.
    Info(Option<Info>),
    /// PERMITS.
    Permits(Vec<PermitInfo>),
    /// WAITERS.
    Waiters(Vec<WaiterInfo>),
    /// POSITION; `None` for an owner that neither holds nor waits.
    Position(Option<u64>),
}

/// Executes a reading request in database `db`. `None` for other requests.
pub fn read(
    machine: &Machine,
    store: &mut dyn Store,
    now: Now,
    db: u32,
    id: CommandId,
    request: &Request<'_>,
) -> Option<Result<View, WrongType>> {
    let kind = family_of(id)?;
    Some(match *request {
        Request::Info { key: name } => {
            machine.info(store, now, kind, Key { db, name }).map(View::Info)
        }
        Request::Check { key: name, token } => {
            machine.is_current(store, now, kind, Key { db, name }, token).map(|is_current| {
                if is_current { View::Current } else { View::Stale(stale(kind, name, token)) }
            })
        }
        Request::Waiters { key: name, count } => {
            let most =
                count.map_or(usize::MAX, |count| usize::try_from(count).unwrap_or(usize::MAX));
            machine.waiters(store, now, kind, Key { db, name }, most).map(View::Waiters)
        }
        Request::Position { key: name, owner } => {
            let position = machine.position(store, now, kind, Key { db, name }, owner);
            position.map(|position| View::Position(position.map(|position| position as u64)))
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
pub fn reply(mut ctx: Ctx<'_>, outcome: &Outcome) {
    let to = &mut ctx;
    match outcome {
        Outcome::Token(number) | Outcome::Count(number) => number.write(to),
        Outcome::Tokens(tokens) => tokens.write(to),
        Outcome::Granted { key, token } => (key.clone(), *token).write(to),
        Outcome::Permit(id) => id.write(to),
        Outcome::Taken => 1_u64.write(to),
        Outcome::Available(number) => number.write(to),
        Outcome::Null => to.null(),
        Outcome::Fault(Fault { code, text }) => ctx.reply_error(&format!("{code} {text}")),
    }
}

/// Writes a view.
pub fn show(mut ctx: Ctx<'_>, view: &View) {
    let to = &mut ctx;
    match view {
        View::Current => 1_u64.write(to),
        View::Stale(text) => ctx.reply_error(&format!("{} {text}", ErrorCode::Stale)),
        View::Info(None) | View::Position(None) => to.null(),
        View::Info(Some(info)) => info.write(to),
        View::Permits(rows) => rows.write(to),
        View::Waiters(rows) => rows.write(to),
        View::Position(Some(position)) => position.write(to),
    }
}
