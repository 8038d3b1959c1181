//! Errors that several commands return, each described once.

use crate::reply::ErrorCode;

type Described = (ErrorCode, &'static str);

pub(super) const SPENT: Described = (
    ErrorCode::Spent,
    "The request with this REQID is over: its hold has ended, or its RELEASE came first. Nothing was granted. A new \
     request needs a new REQID.",
);

pub(super) const LOST: Described = (
    ErrorCode::Lost,
    "`LOST reason …`: the hold of the request had ended before. The reason: `expired`, `broken`, `deleted` (or \
     overwritten, or evicted), `disconnected` (BIND), or `released` (by a RELEASE without its id).",
);

pub(super) const UNKNOWN: Described = (
    ErrorCode::Unknown,
    "This server knows nothing that the request has, or its hold has another token than TOKEN; if that stands, the \
     count of the request in it has ended.",
);

pub(super) const ID_AND_ALL: Described =
    (ErrorCode::Err, "REQID and ALL exclude each other. Nothing was changed.");

pub(super) const MISUSED_ID: Described = (
    ErrorCode::Err,
    "The REQID belongs to another request for this key: to another command, or to another number \
     of permits. Nothing was changed.",
);

pub(super) const DEADLOCK: Described =
    (ErrorCode::Deadlock, "Waiting would close a cycle of waiting owners; the text names it.");

pub(super) const REPLACED: Described = (
    ErrorCode::Replaced,
    "Another ACQUIRE of the same owner took over the place of this blocked call. (A copy of the same request takes it \
     over, too: then this call gets Null.)",
);

pub(super) const FULL: Described = (
    ErrorCode::Limit,
    "`dlock.max-waiters-per-key` or `dlock.max-waiters` is reached, or the hold has 64 requests with ids that are not \
     released.",
);

pub(super) const TOO_MANY_WAITERS: Described =
    (ErrorCode::Limit, "`dlock.max-waiters-per-key` or `dlock.max-waiters` is reached.");

pub(super) const TOO_MANY_WAITERS_OR_READERS: Described = (
    ErrorCode::Limit,
    "`dlock.max-waiters-per-key`, `dlock.max-waiters` or, for a new reader, `dlock.max-holds-per-key` is reached, or \
     the hold has 64 requests with ids that are not released.",
);

pub(super) const TOO_MANY_KEYS: Described = (
    ErrorCode::Limit,
    "The call has more keys than `dlock.max-keys-per-call` and than 4096. Nothing was done: split the call.",
);

pub(super) const TOO_MANY_WAITERS_OR_KEYS: Described = (
    ErrorCode::Limit,
    "The call has more keys than `dlock.max-keys-per-call`, or `dlock.max-waiters-per-key` or `dlock.max-waiters` is \
     reached, or a hold has 64 requests with ids that are not released.",
);

pub(super) const QUARANTINE: Described = (
    ErrorCode::Quarantine,
    "`QUARANTINE ms …`: the server grants nothing for this time, and the call does not wait.",
);

pub(super) const DIVERGED: Described = (
    ErrorCode::Diverged,
    "The server could not read records of its primary or its file, so it grants nothing. The text says what it \
     refused, and what an operator can do.",
);

pub(super) const UNBLOCKED: Described = (
    ErrorCode::Unblocked,
    "The server ended the wait (CLIENT UNBLOCK, or it becomes a replica). Ask again.",
);

pub(super) const STOPPED: Described =
    (ErrorCode::Stopped, "An operator ended the wait with DLOCK.UNBLOCK. Do not ask again.");

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
