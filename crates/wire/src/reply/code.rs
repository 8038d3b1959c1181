//! Error codes.

use core::fmt;

/// First word of an error. Clients decide by it; the rest of the text is for people.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ErrorCode {
    /// The owner (with that token) does not hold the lock.
    NotHeld,
    /// The request is over: its hold has ended, or its RELEASE came first.
    Spent,
    /// Of a RELEASE: the hold of the request had ended before; the second word says how.
    Lost,
    /// Of a RELEASE: the server knows nothing of the request.
    Unknown,
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
    /// The server could not read what its primary or its file said, and grants nothing.
    Diverged,
    /// An operator ended the wait: the caller should not ask again.
    Stopped,
    /// The server ended the wait; the caller may ask again.
    Unblocked,
    /// The wait ended because the key is, or may be, on another server.
    Moving,
    /// Any other error in the call.
    Err,
    /// The key holds a value of another type.
    WrongType,
    /// The server is a replica.
    ReadOnly,
    /// The cluster is down, as this server sees it.
    ClusterDown,
    /// The user lost the right to the command, or to its key, while the call waited.
    NoPerm,
}

impl ErrorCode {
    /// All codes.
    pub const ALL: [Self; 20] = [
        Self::NotHeld,
        Self::Spent,
        Self::Lost,
        Self::Unknown,
        Self::Reentry,
        Self::Stale,
        Self::Deadlock,
        Self::Replaced,
        Self::Limit,
        Self::Broken,
        Self::Quarantine,
        Self::Diverged,
        Self::Stopped,
        Self::Unblocked,
        Self::Moving,
        Self::Err,
        Self::WrongType,
        Self::ReadOnly,
        Self::ClusterDown,
        Self::NoPerm,
    ];

    /// The word on the wire.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::NotHeld => "NOTHELD",
            Self::Spent => "SPENT",
            Self::Lost => "LOST",
            Self::Unknown => "UNKNOWN",
            Self::Reentry => "REENTRY",
            Self::Stale => "STALE",
            Self::Deadlock => "DEADLOCK",
            Self::Replaced => "REPLACED",
            Self::Limit => "LIMIT",
            Self::Broken => "BROKEN",
            Self::Quarantine => "QUARANTINE",
            Self::Diverged => "DIVERGED",
            Self::Stopped => "STOPPED",
            Self::Unblocked => "UNBLOCKED",
            Self::Moving => "MOVING",
            Self::Err => "ERR",
            Self::WrongType => "WRONGTYPE",
            Self::ReadOnly => "READONLY",
            Self::ClusterDown => "CLUSTERDOWN",
            Self::NoPerm => "NOPERM",
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
