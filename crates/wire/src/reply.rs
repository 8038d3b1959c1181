//! Replies of the server: error codes, the field names of maps, and how bytes are quoted in texts.

use alloc::string::String;
use core::fmt::{self, Write};

/// Most bytes of a key, an owner or an option that an error text shows.
pub const QUOTE_MAX: usize = 64;

/// First word of an error. Clients decide by it; the rest of the text is for people.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ErrorCode {
    /// The owner (with that token) does not hold the lock.
    NotHeld,
    /// The request was executed before and its hold has ended, or it was cancelled.
    Spent,
    /// The owner already holds the lock, and `NOREENTRY` was given.
    Reentry,
    /// The token is not that of the current hold.
    Stale,
    /// Waiting would close a cycle of owners that wait for each other.
    Deadlock,
    /// A later call of the same owner for the same key took over the place in the queue.
    Replaced,
    /// A limit is reached: waiters, permits.
    Limit,
    /// The latch was deleted, or its time ended, before it opened.
    Broken,
    /// The server has just started and grants nothing yet.
    Quarantine,
    /// An operator ended the wait.
    Unblocked,
    /// The wait ended because the key is, or may be, on another server.
    Moving,
    /// Any other error in the call.
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

    /// The code of an error text such as `NOTHELD owner "a" does not hold "k"`: its first word, in exactly this
    /// spelling. None for other words.
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

/// Fields of the map in the reply of `DLOCK.INFO` and `DFAIR.INFO`, and the kinds of keys.
pub mod info {
    /// Which family the key belongs to, for example [`KIND_LOCK`].
    pub const KIND: &str = "kind";
    /// Owner of the hold; empty if the lock is free.
    pub const OWNER: &str = "owner";
    /// Fencing token of the hold.
    pub const TOKEN: &str = "token";
    /// Number of holds of the owner; 0 if the lock is free.
    pub const HOLDS: &str = "holds";
    /// Length of the lease, in milliseconds.
    pub const LEASE_MS: &str = "lease-ms";
    /// Remaining time of the lease, in milliseconds.
    pub const TTL_MS: &str = "ttl-ms";
    /// Time since the grant, in milliseconds.
    pub const HELD_MS: &str = "held-ms";
    /// Label of the hold.
    pub const LABEL: &str = "label";
    /// Client id of the connection that the hold is bound to; 0 for none.
    pub const BOUND_CLIENT: &str = "bound-client";
    /// Length of the queue.
    pub const WAITERS: &str = "waiters";

    /// All fields, in the order of the reply.
    pub const FIELDS: [&str; 10] =
        [KIND, OWNER, TOKEN, HOLDS, LEASE_MS, TTL_MS, HELD_MS, LABEL, BOUND_CLIENT, WAITERS];

    /// Value of [`KIND`] for a DLOCK key.
    pub const KIND_LOCK: &str = "dlock";
    /// Value of [`KIND`] for a DFAIR key.
    pub const KIND_FAIR: &str = "dfair";
    /// Value of [`KIND`] for a DRW key.
    pub const KIND_RW: &str = "drw";
    /// Name of DSEM keys in lists of kinds.
    pub const KIND_SEM: &str = "dsem";
    /// Name of DLATCH keys in lists of kinds.
    pub const KIND_LATCH: &str = "dlatch";
}

/// Fields of the map in the reply of `DRW.INFO`.
pub mod rw_info {
    /// Which family the key belongs to: [`KIND_RW`](super::info::KIND_RW).
    pub const KIND: &str = "kind";
    /// Mode of the lock: [`MODE_FREE`], [`MODE_READ`] or [`MODE_WRITE`].
    pub const MODE: &str = "mode";
    /// The write hold, a map of [`holder`](super::holder) fields; Null when there is none.
    pub const WRITER: &str = "writer";
    /// The read holds, an array of maps of [`holder`](super::holder) fields.
    pub const READERS: &str = "readers";
    /// Length of the queue.
    pub const WAITERS: &str = "waiters";

    /// All fields, in the order of the reply.
    pub const FIELDS: [&str; 5] = [KIND, MODE, WRITER, READERS, WAITERS];

    /// Value of [`MODE`] if the lock is free.
    pub const MODE_FREE: &str = "free";
    /// Value of [`MODE`] if there are read holds only.
    pub const MODE_READ: &str = "read";
    /// Value of [`MODE`] if there is a write hold.
    pub const MODE_WRITE: &str = "write";
}

/// Fields of the maps that describe holds in `DRW.INFO`.
pub mod holder {
    /// The holder.
    pub const OWNER: &str = "owner";
    /// Fencing token of the hold.
    pub const TOKEN: &str = "token";
    /// Number of holds of the owner in this mode.
    pub const HOLDS: &str = "holds";
    /// Length of the lease, in milliseconds.
    pub const LEASE_MS: &str = "lease-ms";
    /// Remaining time of the lease, in milliseconds.
    pub const TTL_MS: &str = "ttl-ms";
    /// Time since the grant, in milliseconds.
    pub const HELD_MS: &str = "held-ms";
    /// Label of the hold.
    pub const LABEL: &str = "label";
    /// Client id of the connection that the hold is bound to; 0 for none.
    pub const BOUND_CLIENT: &str = "bound-client";

    /// All fields, in the order of the reply.
    pub const FIELDS: [&str; 8] =
        [OWNER, TOKEN, HOLDS, LEASE_MS, TTL_MS, HELD_MS, LABEL, BOUND_CLIENT];
}

/// Fields of the map in the reply of `DSEM.INFO`.
pub mod sem_info {
    /// The capacity: number of permits.
    pub const CAPACITY: &str = "capacity";
    /// Number of available permits; negative while more are out than the capacity.
    pub const AVAILABLE: &str = "available";
    /// Number of permits that are out with an owner and a lease.
    pub const LEASED: &str = "leased";
    /// Number of permits that are out by TAKE and DRAIN.
    pub const TAKEN: &str = "taken";
    /// Length of the queue.
    pub const WAITERS: &str = "waiters";

    /// All fields, in the order of the reply.
    pub const FIELDS: [&str; 5] = [CAPACITY, AVAILABLE, LEASED, TAKEN, WAITERS];
}

/// Fields of the maps in the reply of `DSEM.PERMITS`.
pub mod permit {
    /// The permit id.
    pub const ID: &str = "id";
    /// Owner of the permit.
    pub const OWNER: &str = "owner";
    /// Number of permits under this id.
    pub const COUNT: &str = "count";
    /// Remaining time of the lease, in milliseconds.
    pub const TTL_MS: &str = "ttl-ms";
    /// Time since the grant, in milliseconds.
    pub const HELD_MS: &str = "held-ms";
    /// Label of the permit.
    pub const LABEL: &str = "label";
    /// Client id of the connection that the permit is bound to; 0 for none.
    pub const BOUND_CLIENT: &str = "bound-client";

    /// All fields, in the order of the reply.
    pub const FIELDS: [&str; 7] = [ID, OWNER, COUNT, TTL_MS, HELD_MS, LABEL, BOUND_CLIENT];
}

/// Fields of the map in the reply of `DLATCH.INFO`.
pub mod latch_info {
    /// The remaining count.
    pub const COUNT: &str = "count";
    /// The initial count.
    pub const INITIAL: &str = "initial";
    /// Remaining time in milliseconds; -1 if the latch has no time limit.
    pub const TTL_MS: &str = "ttl-ms";
    /// Number of waiting calls.
    pub const WAITERS: &str = "waiters";

    /// All fields, in the order of the reply.
    pub const FIELDS: [&str; 4] = [COUNT, INITIAL, TTL_MS, WAITERS];
}

/// Fields of the maps that the `WAITERS` command of every family answers.
pub mod waiter {
    /// Owner that waits; empty for calls without an owner (`DSEM.TAKE`, `DLATCH.AWAIT`).
    pub const OWNER: &str = "owner";
    /// Client id of the connection that waits; 0 if there is none.
    pub const CLIENT_ID: &str = "client-id";
    /// Time waited so far, in milliseconds.
    pub const WAITING_MS: &str = "waiting-ms";
    /// Remaining time of the wait, in milliseconds.
    pub const REMAINING_MS: &str = "remaining-ms";
    /// Label of the waiter.
    pub const LABEL: &str = "label";

    /// All fields, in the order of the reply.
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
