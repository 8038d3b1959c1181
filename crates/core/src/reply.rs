//! Outcomes and views as replies, for whatever writes them to a connection.

use crate::base::key::Key;
use crate::base::kind::Kind;
use crate::base::time::Now;
use crate::ports::effects::{Fault, Outcome};
use crate::ports::store::Store;
use crate::ports::turn::WrongType;
use crate::tables::Tables;
use crate::view;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use dlock_wire::reply::{ErrorCode, Info, PermitInfo, Shape, Sink, WaiterInfo, quote};
use dlock_wire::request::{Check, LatchRead, LockRead, Read, RwRead, SemRead};

/// The result of a reading request.
#[derive(Debug)]
pub enum View {
    /// CHECK of a current token.
    Current,
    /// CHECK of another token: the error.
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
pub(crate) fn read(
    tables: &Tables,
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
            view::info(tables, store, now, kind, of(call.key)).map(View::Info)
        }
        Read::Lock(_, LockRead::Check(Check { key, token }))
        | Read::Rw(RwRead::Check(Check { key, token })) => {
            view::is_current(tables, store, now, kind, of(key), token).map(|is_current| {
                if is_current { View::Current } else { View::Stale(stale(kind, key, token)) }
            })
        }
        Read::Lock(_, LockRead::Waiters(call))
        | Read::Rw(RwRead::Waiters(call))
        | Read::Sem(SemRead::Waiters(call))
        | Read::Latch(LatchRead::Waiters(call)) => {
            let most = call.count.and_then(|count| usize::try_from(count).ok());
            let most = most.unwrap_or(usize::MAX);
            view::waiters(tables, store, now, kind, of(call.key), most).map(View::Waiters)
        }
        Read::Lock(_, LockRead::Position(call))
        | Read::Rw(RwRead::Position(call))
        | Read::Sem(SemRead::Position(call)) => {
            let position = view::position(tables, store, now, kind, of(call.key), call.owner);
            position.map(|position| View::Position(position.map(|position| position as u64)))
        }
        Read::Sem(SemRead::Permits(call)) => {
            view::permits(tables, store, now, of(call.key)).map(View::Permits)
        }
    }
}

fn stale(kind: Kind, key: &[u8], token: u64) -> String {
    // A read-write lock can have several holds.
    let whose = if kind == Kind::Rw { "a hold" } else { "the hold" };
    format!("{} token {token} is not that of {whose} on {}", ErrorCode::Stale, quote(key))
}

impl Outcome {
    /// Writes it as a reply. `Err`: the text of an error reply; nothing was written.
    #[inline]
    pub fn write(&self, to: &mut impl Sink) -> Result<(), String> {
        match self {
            Self::Token(number) | Self::Count(number) => number.write(to),
            Self::Ended(how) => how.write(to),
            Self::Tokens(tokens) => tokens.write(to),
            Self::Granted { key, token } => (key.clone(), *token).write(to),
            Self::Permit(id) => id.write(to),
            Self::Taken => 1_u64.write(to),
            Self::Available(number) => number.write(to),
            Self::Null => to.null(),
            Self::Fault(Fault { code, text }) => return Err(format!("{code} {text}")),
        }
        Ok(())
    }
}

impl View {
    /// Writes it as a reply. `Err`: the text of an error reply; nothing was written.
    pub fn write(&self, to: &mut impl Sink) -> Result<(), String> {
        match self {
            Self::Current => 1_u64.write(to),
            Self::Stale(text) => return Err(text.clone()),
            Self::Info(None) | Self::Position(None) => to.null(),
            Self::Info(Some(info)) => info.write(to),
            Self::Permits(rows) => rows.write(to),
            Self::Waiters(rows) => rows.write(to),
            Self::Position(Some(position)) => position.write(to),
        }
        Ok(())
    }
}
