//! How holds end.

/// How a hold ended without being released.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Lost {
    /// The lease ran out: by the clock of this machine, or by what the server said.
    Expired,
    /// The server refused to renew it: another owner may have it.
    Refused,
    /// An operator broke it.
    Broken,
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
}

/// What [`Guard::release`](crate::Guard::release) found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Released {
    /// Released. The number of holds that this owner still has (of several locks: how many were released; of a
    /// semaphore: the permits that are available now, which may be negative after it was made smaller).
    Remaining(i64),
    /// Released by an earlier copy of the request, whose reply was lost. How many remain is unknown.
    Already,
    /// There was nothing to release: it had ended before.
    Gone,
}
