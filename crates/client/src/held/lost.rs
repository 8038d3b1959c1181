//! How holds end.

use crate::error::{Error, ErrorKind};

/// How a hold ended without being released.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Lost {
    /// The lease ran out: by the clock of this machine, or by what the server said.
    Expired,
    /// The server refused to renew it: it is not ours any more.
    Refused,
    /// An operator broke it.
    Broken,
    /// Its key was deleted or overwritten.
    Deleted,
    /// The connection that it was tied to ([`bind`](crate::Lock::bind)) is gone.
    Disconnected,
    /// The database was flushed.
    Flushed,
    /// The client was closed ([`Client::close`](crate::Client::close)), which released it.
    Closed,
    /// The runtime of the client has ended: nobody renews it any more.
    Abandoned,
}

/// What [`Guard::release`](crate::Guard::release) found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Released {
    /// Given back. The number of holds that this owner still has (of several locks: how many were released; of a
    /// semaphore: the permits that are available now, which may be negative after it was made smaller).
    Remaining(i64),
    /// Given back by an earlier copy of the request, whose reply was lost. How many remain is unknown.
    Already,
    /// There was nothing to give back: it had ended before.
    Gone,
}

impl Error {
    /// The hold was lost before the work under it was done, or no work is known.
    pub(crate) fn lost(reason: Lost) -> Self {
        let text = match reason {
            Lost::Expired => "the lease ran out",
            Lost::Refused => "the server refused to renew the hold",
            Lost::Broken => "an operator broke the hold",
            Lost::Deleted => "the key was deleted",
            Lost::Disconnected => "the connection that the hold was tied to is gone",
            Lost::Flushed => "the database was flushed",
            Lost::Closed => "the client was closed",
            Lost::Abandoned => "the runtime of the client has ended, and nobody renews the hold",
        };
        Self::new(ErrorKind::Lost { reason, finished: false }, text)
    }

    /// The work under the hold was done, but the hold may have ended before that.
    pub(crate) fn lost_by_the_end(reason: Lost) -> Self {
        let text = format!("{} (the work had finished)", Self::lost(reason).text());
        Self::new(ErrorKind::Lost { reason, finished: true }, text)
    }
}
