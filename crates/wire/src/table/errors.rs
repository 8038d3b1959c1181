//! Errors that several commands return, each described once.

use crate::reply::ErrorCode;

type Described = (ErrorCode, &'static str);

pub(super) const SPENT: Described = (
    ErrorCode::Spent,
    "The request with this REQID was executed and its hold has ended, or CANCEL named it. Nothing \
     was granted. A new request needs a new REQID.",
);

pub(super) const LOST: Described = (
    ErrorCode::Spent,
    "An earlier copy of this request found no hold: it was lost before. Nothing was changed.",
);

pub(super) const MISUSED_ID: Described = (
    ErrorCode::Err,
    "The REQID belongs to another request for this key: to another command, or to another number \
     of permits. Nothing was changed.",
);

pub(super) const DEADLOCK: Described =
    (ErrorCode::Deadlock, "Waiting would close a cycle of waiting owners; the text names it.");

pub(super) const REPLACED: Described = (
    ErrorCode::Replaced,
    "A later ACQUIRE of the same owner took over the place of this blocked call.",
);

pub(super) const TOO_MANY_WAITERS: Described =
    (ErrorCode::Limit, "`dlock.max-waiters-per-key` or `dlock.max-waiters` is reached.");

pub(super) const TOO_MANY_WAITERS_OR_READERS: Described = (
    ErrorCode::Limit,
    "`dlock.max-waiters-per-key`, `dlock.max-waiters` or, for a new reader, `dlock.max-holds-per-key` is reached.",
);

pub(super) const TOO_MANY_WAITERS_OR_KEYS: Described = (
    ErrorCode::Limit,
    "The call has more keys than `dlock.max-keys-per-call`, or `dlock.max-waiters-per-key` or `dlock.max-waiters` is \
     reached.",
);

pub(super) const QUARANTINE: Described =
    (ErrorCode::Quarantine, "The server is in its restart quarantine, and the call does not wait.");

pub(super) const DIVERGED: Described = (
    ErrorCode::Diverged,
    "The server could not read records of its primary or its file, so it grants nothing. The text says what it \
     refused, and what an operator can do.",
);

pub(super) const UNBLOCKED: Described = (
    ErrorCode::Unblocked,
    "An operator ended the wait. (A server that becomes a replica may also reply this; then it \
     closes the connection.)",
);

pub(super) const MOVING: Described = (
    ErrorCode::Moving,
    "The wait ended because this server became a replica, the slot moved, or (in a cluster) the \
     key was deleted. Retry; the reply tells where.",
);

pub(super) const NO_SEMAPHORE: Described = (
    ErrorCode::Err,
    "There is no such semaphore, or the REQID belongs to another request for it. Nothing was \
     changed.",
);

pub(super) const NOT_A_PERMIT: Described =
    (ErrorCode::NotHeld, "The permit is unknown or has expired. Nothing was changed.");
