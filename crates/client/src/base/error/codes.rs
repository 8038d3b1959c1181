//! What the code of an error means.

use std::time::Duration;

use dlock_wire::reply::ErrorCode;

use super::{Error, ErrorKind};
use crate::base::lost::Lost;

impl Error {
    /// Whether the server said, of a renewal, that the hold is gone.
    pub(crate) fn is_gone(&self) -> bool {
        matches!(self.kind(), ErrorKind::NotHeld | ErrorKind::WrongType)
    }

    /// How a hold was lost whose renewal the server answered so.
    pub(crate) fn gone(&self) -> Lost {
        if self.kind() == ErrorKind::WrongType { Lost::Deleted } else { Lost::Refused }
    }

    /// Whether the same request may succeed later, or elsewhere. The codes that end it are a closed list.
    pub(crate) fn passes(&self) -> bool {
        use ErrorKind::{Quarantine, Server, Unavailable, Unblocked};
        matches!(self.kind(), Quarantine | Server | Unavailable | Unblocked)
    }

    /// Whether a client that gets this while it opens a connection need not try again.
    pub(crate) fn ends_opening(&self) -> bool {
        use ErrorKind::{Closed, NoModule, Refused};
        matches!(self.kind(), Closed | NoModule | Refused)
    }

    /// The second word of the server's text in milliseconds: of `QUARANTINE`, how long it lasts yet.
    pub(crate) fn time_left(&self) -> Duration {
        let word = self.text().split(' ').nth(1).and_then(|word| word.parse().ok());
        word.map_or(Duration::ZERO, Duration::from_millis)
    }
}

pub(super) fn kind_of(error: &redis::RedisError) -> ErrorKind {
    let Some(code) = error.code() else {
        return match error.kind() {
            redis::ErrorKind::AuthenticationFailed => ErrorKind::Refused,
            redis::ErrorKind::InvalidClientConfig => ErrorKind::Invalid,
            // A reply that broke off, or is none; and what is also said while the primary does not answer.
            redis::ErrorKind::Parse
            | redis::ErrorKind::MasterNameNotFoundBySentinel
            | redis::ErrorKind::NoValidReplicasFoundBySentinel => ErrorKind::Unavailable,
            _ if error.is_io_error() || error.is_timeout() || error.is_connection_dropped() => {
                ErrorKind::Unavailable
            }
            _ => ErrorKind::Protocol,
        };
    };
    match ErrorCode::from_text(code) {
        Some(ErrorCode::NotHeld) => ErrorKind::NotHeld,
        Some(ErrorCode::Lost) => {
            let reason = Lost::from_text(error.detail().unwrap_or_default());
            ErrorKind::Lost { reason, finished: true }
        }
        Some(ErrorCode::Unknown) => ErrorKind::ReleaseUnknown,
        Some(ErrorCode::Spent) => ErrorKind::Spent,
        Some(ErrorCode::Reentry) => ErrorKind::Reentry,
        Some(ErrorCode::Stale) => ErrorKind::Stale,
        Some(ErrorCode::Deadlock) => ErrorKind::Deadlock,
        Some(ErrorCode::Replaced) => ErrorKind::Replaced,
        Some(ErrorCode::Limit) => ErrorKind::Limit,
        Some(ErrorCode::Broken) => ErrorKind::Broken,
        Some(ErrorCode::Quarantine) => ErrorKind::Quarantine,
        Some(ErrorCode::Diverged) => ErrorKind::Diverged,
        Some(ErrorCode::Stopped) => ErrorKind::Stopped,
        Some(ErrorCode::Unblocked) => ErrorKind::Unblocked,
        Some(ErrorCode::WrongType) => ErrorKind::WrongType,
        Some(ErrorCode::ReadOnly | ErrorCode::Moving | ErrorCode::ClusterDown) => {
            ErrorKind::Unavailable
        }
        Some(ErrorCode::NoPerm) => ErrorKind::Refused,
        Some(ErrorCode::Err) => ErrorKind::Invalid,
        // Those of the server itself.
        None => match code {
            "NOAUTH" | "WRONGPASS" => ErrorKind::Refused,
            "LOADING" | "MASTERDOWN" | "TRYAGAIN" | "MOVED" | "ASK" | "NOREPLICAS" | "MISCONF"
            | "BUSY" => ErrorKind::Unavailable,
            "CROSSSLOT" => ErrorKind::Invalid,
            _ => ErrorKind::Server,
        },
    }
}
