//! `DLOCK.LOG GET`.

use alloc::vec::Vec;
use core::fmt;
use core::time::Duration;

use super::Kind;
use super::shape::{Shape, Sink, Unreadable, Value, map};
use crate::permit::PermitText;

/// Most bytes of each string of a [`LogEntry`]; the server cuts longer ones.
pub const LOG_STRING_MAX: usize = 128;

map! {
    /// A notable event: an entry of the log that `DLOCK.LOG` shows. Its strings are raw bytes, chosen by clients and
    /// cut to [`LOG_STRING_MAX`] bytes: quote them ([`quote`](super::quote)) before they go to a terminal or a file.
    LogEntry {
        "id" => id: u64, "number of the entry; numbers rise and never repeat within one server process";
        "time-ms" => time: Duration, "when it happened last, in milliseconds since 1970";
        "event" => event: LogEvent, "what happened, as in the table of events";
        "kind" => kind: Kind, "the family: `dlock`, `dfair`, `drw`, `dsem` or `dlatch`";
        "db" => db: u64, "number of the database";
        "key" => key: Vec<u8>, "the key; of a call for several keys, the first";
        "owner" => owner: Vec<u8>,
            "the owner of the hold or call that the entry is about; empty for a call without an owner";
        "label" => label: Vec<u8>, "LABEL of that hold or call";
        "token" => token: LogToken,
            "fencing token of the hold (Integer), or its permit id (Bulk); 0 if nothing was granted";
        "held-ms" => held: Duration, "how long the hold lasted; 0 without a hold that ended";
        "waited-ms" => waited: Duration, "how long the call waited, for `slow-wait`; else 0";
        "waiters" => waiters: u64, "length of the queue of the key at that moment";
        "text" => text: Vec<u8>, "details for people; names in it are quoted";
        "count" => count: u64, "how often it happened: repeats that are equal except for times, token and queue are one entry";
        "first-ms" => first: Duration, "when it happened first, in milliseconds since 1970";
    }
}

/// The kind of a [`LogEntry`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum LogEvent {
    /// A lease elapsed before its owner released the hold.
    Expired,
    /// The connection that a hold was bound to closed, and the hold ended.
    Disconnected,
    /// An operator broke a hold.
    Broken,
    /// A grant to a place in the queue was not claimed in time.
    Unclaimed,
    /// The server evicted the key, with its holds, to free memory.
    Evicted,
    /// A call was refused because it would have closed a cycle of waiting owners.
    Deadlock,
    /// A late copy of a request whose hold had ended was refused.
    Spent,
    /// A wait was longer than `dlock.log-wait-ms`, whether it was granted or given up.
    SlowWait,
    /// A hold was released after more than `dlock.log-hold-ms`.
    LongHold,
}

impl LogEvent {
    /// All of them.
    pub const ALL: [Self; 9] = [
        Self::Expired,
        Self::Disconnected,
        Self::Broken,
        Self::Unclaimed,
        Self::Evicted,
        Self::Deadlock,
        Self::Spent,
        Self::SlowWait,
        Self::LongHold,
    ];

    /// The word on the wire.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Expired => "expired",
            Self::Disconnected => "disconnected",
            Self::Broken => "broken",
            Self::Unclaimed => "unclaimed",
            Self::Evicted => "evicted",
            Self::Deadlock => "deadlock",
            Self::Spent => "spent",
            Self::SlowWait => "slow-wait",
            Self::LongHold => "long-hold",
        }
    }
}

impl fmt::Display for LogEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl Shape for LogEvent {
    fn write(&self, to: &mut impl Sink) {
        to.bulk(self.as_str().as_bytes());
    }

    fn read(what: &'static str, from: Value) -> Result<Self, Unreadable> {
        let word = Vec::<u8>::read(what, from)?;
        let found = Self::ALL.into_iter().find(|event| event.as_str().as_bytes() == word);
        found.ok_or(Unreadable::Odd(what, Value::Bytes(word)))
    }
}

/// The hold that a [`LogEntry`] is about.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub enum LogToken {
    /// Nothing was granted.
    #[default]
    None,
    /// A fencing token.
    Token(u64),
    /// A permit id.
    Permit(PermitText),
}

impl Shape for LogToken {
    fn write(&self, to: &mut impl Sink) {
        match self {
            Self::None => to.int(0),
            Self::Token(token) => token.write(to),
            Self::Permit(permit) => permit.write(to),
        }
    }

    fn read(what: &'static str, from: Value) -> Result<Self, Unreadable> {
        Ok(match from {
            Value::Int(0) => Self::None,
            Value::Int(_) => Self::Token(u64::read(what, from)?),
            other => Self::Permit(PermitText::read(what, other)?),
        })
    }
}

impl fmt::Display for LogToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::None => f.write_str("0"),
            Self::Token(token) => write!(f, "{token}"),
            Self::Permit(permit) => write!(f, "{permit}"),
        }
    }
}
