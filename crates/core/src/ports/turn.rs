//! The turn: one run of the machine.

use crate::base::key::Key;
use crate::base::time::Now;
use crate::ports::effects::Effects;
use crate::ports::store::Store;
use crate::value::hold::NO_CLIENT;

/// What the machine works with while it runs: the keys, the time, the caller, and the output.
pub struct Turn<'a> {
    /// The keys that may be touched now.
    pub keys: &'a mut dyn Store,
    /// The time; it stands still within a turn.
    pub now: Now,
    /// The client that sent the command; [`Caller::NONE`] outside of commands.
    pub caller: Caller,
    /// All that must happen outside of the machine.
    pub fx: &'a mut Effects,
}

impl<'a> Turn<'a> {
    /// A turn outside of commands.
    pub fn without_caller(keys: &'a mut dyn Store, now: Now, fx: &'a mut Effects) -> Self {
        Self { keys, now, caller: Caller::NONE, fx }
    }
}

/// The caller of an operation, and what the server allows on its connection.
#[derive(Debug, Clone, Copy)]
pub struct Caller {
    /// The connection; [`NO_CLIENT`] in a script, where it is unknown.
    pub client: u64,
    /// Its database.
    pub db: u32,
    /// The server would let this call block: it is in neither MULTI nor a script.
    pub may_block: bool,
}

impl Caller {
    /// No connection.
    pub const NONE: Self = Self { client: NO_CLIENT, db: 0, may_block: false };

    /// The key `name` in the database of the caller.
    pub fn key(self, name: &[u8]) -> Key<'_> {
        Key { db: self.db, name }
    }
}

/// The key changed its type since the call began: `WRONGTYPE`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WrongType;
