//! How holds end.

use std::fmt;

/// How a hold ended without being released.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Lost {
    /// The lease ran out: by the clock of this machine, or by what the server said.
    Expired,
    /// The server does not have it any more: another owner may.
    Refused,
    /// An operator broke it.
    Broken,
    /// Another call of its owner released it.
    Released,
    /// Its key was deleted or overwritten.
    Deleted,
    /// The connection that it was bound to ([`bind`](crate::Lock::bind)) is gone.
    Disconnected,
    /// The database was flushed.
    Flushed,
    /// The client was closed ([`Client::close`](crate::Client::close)), which released it.
    Closed,
    /// The runtime of the client has ended: nothing renews it.
    Abandoned,
    /// It lasted as long as [`max_hold`](crate::Lock::max_hold) lets it.
    MaxHold,
}

impl Lost {
    /// The reason that begins the text of `LOST`.
    pub(crate) fn from_text(text: &str) -> Self {
        match text.split(' ').next() {
            Some("expired") => Self::Expired,
            Some("broken") => Self::Broken,
            Some("deleted") => Self::Deleted,
            Some("disconnected") => Self::Disconnected,
            Some("released") => Self::Released,
            _ => Self::Refused,
        }
    }
}

impl fmt::Display for Lost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Expired => "the lease ran out",
            Self::Refused => "the server refused to renew the hold",
            Self::Broken => "an operator broke the hold",
            Self::Released => "another call of its owner released the hold",
            Self::Deleted => "the key was deleted",
            Self::Disconnected => "the connection that the hold was bound to is gone",
            Self::Flushed => "the database was flushed",
            Self::Closed => "the client was closed",
            Self::Abandoned => "the runtime of the client has ended, and nothing renews the hold",
            Self::MaxHold => "the hold lasted for its max_hold, and the client stopped renewing it",
        })
    }
}
