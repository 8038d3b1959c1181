//! How holds end.

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
