//! What the server answers: error codes, the field names of maps, and how bytes are quoted in texts.

use alloc::string::String;
use core::fmt::{self, Write};

/// How many bytes of a key, an owner or an option an error text shows.
pub const QUOTE_MAX: usize = 64;

/// First word of an error. Clients decide by it; the text after it is for people.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ErrorCode {
    /// The owner (with that token) does not hold this.
    NotHeld,
    /// The request was carried out before, and its hold has ended; or it was cancelled.
    Spent,
    /// The owner holds it already, and `NOREENTRY` was given.
    Reentry,
    /// The token is not the one of the current hold.
    Stale,
    /// Waiting would close a circle of owners that wait for each other.
    Deadlock,
    /// A later call of the same owner for the same key took over the place.
    Replaced,
    /// A limit is reached: waiters, permits.
    Limit,
    /// What was waited for ended without being reached.
    Broken,
    /// The server has just started and grants nothing yet.
    Quarantine,
    /// An operator ended the wait.
    Unblocked,
    /// The wait ended because the key is, or may be, on another server now.
    Moving,
    /// Anything else that is wrong with the call.
    Err,
    /// The key holds a value of another type.
    WrongType,
    /// The server is a replica.
    ReadOnly,
}

impl ErrorCode {
    /// All codes.
    pub const ALL: [Self; 14] = [
        Self::NotHeld,
        Self::Spent,
        Self::Reentry,
        Self::Stale,
        Self::Deadlock,
        Self::Replaced,
        Self::Limit,
        Self::Broken,
        Self::Quarantine,
        Self::Unblocked,
        Self::Moving,
        Self::Err,
        Self::WrongType,
        Self::ReadOnly,
    ];

    /// The word on the wire.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::NotHeld => "NOTHELD",
            Self::Spent => "SPENT",
            Self::Reentry => "REENTRY",
            Self::Stale => "STALE",
            Self::Deadlock => "DEADLOCK",
            Self::Replaced => "REPLACED",
            Self::Limit => "LIMIT",
            Self::Broken => "BROKEN",
            Self::Quarantine => "QUARANTINE",
            Self::Unblocked => "UNBLOCKED",
            Self::Moving => "MOVING",
            Self::Err => "ERR",
            Self::WrongType => "WRONGTYPE",
            Self::ReadOnly => "READONLY",
        }
    }

    /// The code of an error text such as `NOTHELD owner "a" does not hold "k"`: its first word,
    /// in exactly this spelling. None for words that dlock does not use.
    pub fn from_text(text: &str) -> Option<Self> {
        let word = text.split([' ', '\r', '\n']).next()?;
        Self::ALL.into_iter().find(|code| code.as_str() == word)
    }
}

impl fmt::Display for ErrorCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Fields of the map that `DLOCK.INFO` and `DFAIR.INFO` answer, and the kinds of keys.
pub mod info {
    /// Which family the key belongs to, for example [`KIND_LOCK`].
    pub const KIND: &str = "kind";
    /// Owner of the hold; empty when nobody holds it.
    pub const OWNER: &str = "owner";
    /// Fencing token of the hold.
    pub const TOKEN: &str = "token";
    /// How often the owner holds it; 0 when nobody does.
    pub const HOLDS: &str = "holds";
    /// Length of the lease, in milliseconds.
    pub const LEASE_MS: &str = "lease-ms";
    /// What is left of the lease, in milliseconds.
    pub const TTL_MS: &str = "ttl-ms";
    /// How long it has been held, in milliseconds.
    pub const HELD_MS: &str = "held-ms";
    /// Label of the hold.
    pub const LABEL: &str = "label";
    /// Client id of the connection that the hold is tied to; 0 for none.
    pub const BOUND_CLIENT: &str = "bound-client";
    /// Length of the queue.
    pub const WAITERS: &str = "waiters";

    /// All fields, in the order of the answer.
    pub const FIELDS: [&str; 10] =
        [KIND, OWNER, TOKEN, HOLDS, LEASE_MS, TTL_MS, HELD_MS, LABEL, BOUND_CLIENT, WAITERS];

    /// Value of [`KIND`] for a DLOCK key.
    pub const KIND_LOCK: &str = "dlock";
    /// Value of [`KIND`] for a DFAIR key.
    pub const KIND_FAIR: &str = "dfair";
    /// Value of [`KIND`] for a DRW key.
    pub const KIND_RW: &str = "drw";
    /// What a DSEM key is called where kinds are named.
    pub const KIND_SEM: &str = "dsem";
    /// What a DLATCH key is called where kinds are named.
    pub const KIND_LATCH: &str = "dlatch";
}

/// Fields of the map that `DRW.INFO` answers.
pub mod rw_info {
    /// Which family the key belongs to: [`KIND_RW`](super::info::KIND_RW).
    pub const KIND: &str = "kind";
    /// How it is held: [`MODE_FREE`], [`MODE_READ`] or [`MODE_WRITE`].
    pub const MODE: &str = "mode";
    /// The write hold, a map of [`holder`](super::holder) fields; Null when there is none.
    pub const WRITER: &str = "writer";
    /// The read holds, an array of maps of [`holder`](super::holder) fields.
    pub const READERS: &str = "readers";
    /// Length of the queue.
    pub const WAITERS: &str = "waiters";

    /// All fields, in the order of the answer.
    pub const FIELDS: [&str; 5] = [KIND, MODE, WRITER, READERS, WAITERS];

    /// Value of [`MODE`] when nobody holds it.
    pub const MODE_FREE: &str = "free";
    /// Value of [`MODE`] when there are read holds only.
    pub const MODE_READ: &str = "read";
    /// Value of [`MODE`] when there is a write hold.
    pub const MODE_WRITE: &str = "write";
}

/// Fields of the maps that `DRW.INFO` shows holds with.
pub mod holder {
    /// Who holds it.
    pub const OWNER: &str = "owner";
    /// Fencing token of the hold.
    pub const TOKEN: &str = "token";
    /// How often the owner holds it in this mode.
    pub const HOLDS: &str = "holds";
    /// Length of the lease, in milliseconds.
    pub const LEASE_MS: &str = "lease-ms";
    /// What is left of the lease, in milliseconds.
    pub const TTL_MS: &str = "ttl-ms";
    /// How long it has been held, in milliseconds.
    pub const HELD_MS: &str = "held-ms";
    /// Label of the hold.
    pub const LABEL: &str = "label";
    /// Client id of the connection that the hold is tied to; 0 for none.
    pub const BOUND_CLIENT: &str = "bound-client";

    /// All fields, in the order of the answer.
    pub const FIELDS: [&str; 8] =
        [OWNER, TOKEN, HOLDS, LEASE_MS, TTL_MS, HELD_MS, LABEL, BOUND_CLIENT];
}

/// Fields of the map that `DSEM.INFO` answers.
pub mod sem_info {
    /// How many permits there are.
    pub const CAPACITY: &str = "capacity";
    /// How many of them can be had; negative while more are out than there are.
    pub const AVAILABLE: &str = "available";
    /// How many are out with an owner and a lease.
    pub const LEASED: &str = "leased";
    /// How many are out by TAKE and DRAIN.
    pub const TAKEN: &str = "taken";
    /// Length of the queue.
    pub const WAITERS: &str = "waiters";

    /// All fields, in the order of the answer.
    pub const FIELDS: [&str; 5] = [CAPACITY, AVAILABLE, LEASED, TAKEN, WAITERS];
}

/// Fields of the maps that `DSEM.PERMITS` answers.
pub mod permit {
    /// The permit id.
    pub const ID: &str = "id";
    /// Who has it.
    pub const OWNER: &str = "owner";
    /// How many permits it is.
    pub const COUNT: &str = "count";
    /// What is left of the lease, in milliseconds.
    pub const TTL_MS: &str = "ttl-ms";
    /// How long it has been out, in milliseconds.
    pub const HELD_MS: &str = "held-ms";
    /// Label of the permit.
    pub const LABEL: &str = "label";
    /// Client id of the connection that the permit is tied to; 0 for none.
    pub const BOUND_CLIENT: &str = "bound-client";

    /// All fields, in the order of the answer.
    pub const FIELDS: [&str; 7] = [ID, OWNER, COUNT, TTL_MS, HELD_MS, LABEL, BOUND_CLIENT];
}

/// Fields of the map that `DLATCH.INFO` answers.
pub mod latch_info {
    /// What remains to be counted down.
    pub const COUNT: &str = "count";
    /// What it began with.
    pub const INITIAL: &str = "initial";
    /// What is left of its time, in milliseconds; -1 when no end is set.
    pub const TTL_MS: &str = "ttl-ms";
    /// How many calls wait for it.
    pub const WAITERS: &str = "waiters";

    /// All fields, in the order of the answer.
    pub const FIELDS: [&str; 4] = [COUNT, INITIAL, TTL_MS, WAITERS];
}

/// Fields of the maps that the `WAITERS` command of every family answers.
pub mod waiter {
    /// Who waits; empty for calls without an owner (`DSEM.TAKE`, `DLATCH.AWAIT`).
    pub const OWNER: &str = "owner";
    /// Client id of the connection that waits; 0 when nobody is connected.
    pub const CLIENT_ID: &str = "client-id";
    /// How long it has waited, in milliseconds.
    pub const WAITING_MS: &str = "waiting-ms";
    /// How long it will still wait, in milliseconds.
    pub const REMAINING_MS: &str = "remaining-ms";
    /// Label of the place.
    pub const LABEL: &str = "label";

    /// All fields, in the order of the answer.
    pub const FIELDS: [&str; 5] = [OWNER, CLIENT_ID, WAITING_MS, REMAINING_MS, LABEL];
}

/// `bytes` as `redis-cli` shows them, in double quotes. Only the first [`QUOTE_MAX`] bytes are
/// shown; when that cuts, `...` follows the closing quote.
///
/// ```
/// use dlock_wire::reply::quote;
/// assert_eq!(quote(b"a\"b\n\xff"), r#""a\"b\n\xff""#);
/// ```
pub fn quote(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len().min(QUOTE_MAX) + 5);
    // Writing to a String cannot fail.
    let _ = write_quoted(&mut text, bytes, '"');
    text
}

/// [`quote`] into any writer, between `mark`s, which are escaped inside.
pub(crate) fn write_quoted(out: &mut impl Write, bytes: &[u8], mark: char) -> fmt::Result {
    out.write_char(mark)?;
    for &byte in bytes.iter().take(QUOTE_MAX) {
        match byte {
            b'\\' => out.write_str("\\\\")?,
            b'\n' => out.write_str("\\n")?,
            b'\r' => out.write_str("\\r")?,
            b'\t' => out.write_str("\\t")?,
            0x07 => out.write_str("\\a")?,
            0x08 => out.write_str("\\b")?,
            b' '..=b'~' => {
                if char::from(byte) == mark {
                    out.write_char('\\')?;
                }
                out.write_char(char::from(byte))?;
            }
            _ => write!(out, "\\x{byte:02x}")?,
        }
    }
    out.write_char(mark)?;
    if bytes.len() > QUOTE_MAX {
        out.write_str("...")?;
    }
    Ok(())
}
