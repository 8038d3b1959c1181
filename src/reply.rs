//! Translates outcomes and views into replies.

use dlock_core::effects::{Fault, Outcome};
use dlock_core::key::Key;
use dlock_core::kind::Kind;
use dlock_core::machine::Machine;
use dlock_core::store::Store;
use dlock_core::time::Now;
use dlock_core::turn::WrongType;
use dlock_wire::reply::{ErrorCode, Info, PermitInfo, Shape, Sink, WaiterInfo, quote};
use dlock_wire::request::{Check, LatchRead, LockRead, Read, RwRead, SemRead};

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

/// Executes a reading request in database `db`.
pub fn read(
    machine: &Machine,
    store: &mut dyn Store,
    now: Now,
    db: u32,
    read: &Read<'_>,
) -> Result<View, WrongType> {
    let kind = Kind::from(read);
    let of = |name| Key { db, name };
    match *read {
        Read::Lock(_, LockRead::Info(call))
        | Read::Rw(RwRead::Info(call))
        | Read::Sem(SemRead::Info(call))
        | Read::Latch(LatchRead::Info(call)) => {
            machine.info(store, now, kind, of(call.key)).map(View::Info)
        }
        Read::Lock(_, LockRead::Check(Check { key, token }))
        | Read::Rw(RwRead::Check(Check { key, token })) => {
            machine.is_current(store, now, kind, of(key), token).map(|is_current| {
                if is_current { View::Current } else { View::Stale(stale(kind, key, token)) }
            })
        }
        Read::Lock(_, LockRead::Waiters(call))
        | Read::Rw(RwRead::Waiters(call))
        | Read::Sem(SemRead::Waiters(call))
        | Read::Latch(LatchRead::Waiters(call)) => {
            let most = call.count.and_then(|count| usize::try_from(count).ok());
            let most = most.unwrap_or(usize::MAX);
            machine.waiters(store, now, kind, of(call.key), most).map(View::Waiters)
        }
        Read::Lock(_, LockRead::Position(call))
        | Read::Rw(RwRead::Position(call))
        | Read::Sem(SemRead::Position(call)) => {
            let position = machine.position(store, now, kind, of(call.key), call.owner);
            position.map(|position| View::Position(position.map(|position| position as u64)))
        }
        Read::Sem(SemRead::Permits(call)) => {
            machine.permits(store, now, of(call.key)).map(View::Permits)
        }
    }
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
