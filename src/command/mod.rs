//! Translates requests into calls of the machine, and outcomes and views into replies.
//!
//! Code that the families share is here; each family has a file for the rest.

mod latch;
mod lock;
mod multi;
mod rw;
mod semaphore;

use dlock_core::effects::{Effects, Fault, Outcome};
use dlock_core::machine::{Caller, Foreign, Machine};
use dlock_core::resource::Kind;
use dlock_core::store::{Key, Store};
use dlock_core::time::Now;
use dlock_wire::reply::{ErrorCode, Info, PermitInfo, Shape, Sink, WaiterInfo, quote};
use dlock_wire::request::Request;
use dlock_wire::table::CommandId;

use crate::ffi::Ctx;

/// The parts that execute a request.
pub struct Desk<'a, S> {
    /// The lock rules.
    pub machine: &'a mut Machine,
    /// The keys.
    pub store: &'a mut S,
    /// The current time.
    pub now: Now,
    /// The client that sent the request.
    pub caller: Caller,
    /// Receives the effects.
    pub fx: &'a mut Effects,
}

/// The family whose keys a command is about; `None` for commands of all families.
fn kind_of(id: CommandId) -> Option<Kind> {
    match id {
        CommandId::Lock(_) | CommandId::Multi(_) => Some(Kind::Lock),
        CommandId::Fair(_) => Some(Kind::Fair),
        CommandId::Rw(_) => Some(Kind::Rw),
        CommandId::Sem(_) => Some(Kind::Semaphore),
        CommandId::Latch(_) => Some(Kind::Latch),
        CommandId::Unblock | CommandId::Apply => None,
    }
}

/// Executes a request that writes, or AWAIT.
pub fn write(desk: Desk<'_, impl Store>, id: CommandId, request: &Request<'_>) {
    match (kind_of(id), *request) {
        (None, Request::Unblock { client, error }) => {
            let Desk { machine, store, now, fx, .. } = desk;
            machine.unblock(store, now, (client, error), fx);
        }
        (Some(kind), Request::Cancel { key, owner, reqid }) => {
            let Desk { machine, store, now, caller, fx } = desk;
            machine.cancel(store, now, caller, (kind, key, owner, reqid), fx);
        }
        _ => match id {
            CommandId::Lock(_) => lock::write(desk, Kind::Lock, request),
            CommandId::Fair(_) => lock::write(desk, Kind::Fair, request),
            CommandId::Rw(_) => rw::write(desk, request),
            CommandId::Sem(_) => semaphore::write(desk, request),
            CommandId::Latch(_) => latch::write(desk, request),
            CommandId::Multi(_) => multi::write(desk, request),
            CommandId::Unblock | CommandId::Apply => misplaced(request),
        },
    }
}

/// A request that its family does not have: the parser never creates one.
fn misplaced(request: &Request<'_>) {
    debug_assert!(false, "not a writing request of this family: {request:?}");
}

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
    store: &mut impl Store,
    now: Now,
    db: u32,
    id: CommandId,
    request: &Request<'_>,
) -> Option<Result<View, Foreign>> {
    let kind = kind_of(id)?;
    Some(match *request {
        Request::Info { key: name } => {
            machine.info(store, now, kind, Key { db, name }).map(View::Info)
        }
        Request::Check { key: name, token } => {
            machine.is_current(store, now, (kind, Key { db, name }), token).map(|is_current| {
                if is_current { View::Current } else { View::Stale(stale(kind, name, token)) }
            })
        }
        Request::Waiters { key: name, count } => {
            let most =
                count.map_or(usize::MAX, |count| usize::try_from(count).unwrap_or(usize::MAX));
            machine.waiters(store, now, (kind, Key { db, name }), most).map(View::Waiters)
        }
        Request::Position { key: name, owner } => {
            let position = machine.position(store, now, (kind, Key { db, name }), owner);
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
