//! Arguments that several commands take, each described once.

use super::{Arg, ArgKind, Bounds};
use crate::names::{
    BIND_MAX_MS, BLOCK_MAX_MS, CHANNEL_MAX, COUNT_MAX, KEYS_MAX, LABEL_MAX, LEASE_MAX_MS,
    LEASE_MAX_S, LEASE_MIN_MS, OWNER_MAX, QUEUE_MAX_MS, QUEUE_MIN_MS, REQID_MAX, TOKEN_MAX,
    TOKEN_MIN,
};

const TOKENS: Bounds = Bounds::number(TOKEN_MIN, TOKEN_MAX, "");

/// The lock.
pub(super) const KEY: Arg = Arg::plain("key", ArgKind::Key, Bounds::Any, "The lock.");

/// The owner.
pub(super) const OWNER: Arg = Arg::plain(
    "owner",
    ArgKind::String,
    Bounds::bytes(1, OWNER_MAX),
    "The owner: one name per logical task, for example a UUID.",
);

/// The fencing token that the command checks or sets.
pub(super) const TOKEN: Arg = Arg::plain("token", ArgKind::Integer, TOKENS, "A fencing token.");

/// `TOKEN token`: a condition.
pub(super) const IF_TOKEN: Arg = Arg::option(
    "TOKEN",
    "token",
    ArgKind::Integer,
    TOKENS,
    "Only if the hold has this fencing token.",
);

/// The lease of a new hold.
pub(super) const NEW_LEASE: Arg = Arg::choice("lease", "Default: `dlock.default-lease-ms`.", LEASE);

/// The lease of a hold that is renewed.
pub(super) const HOLD_LEASE: Arg =
    Arg::choice("lease", "Counted from now. Default: the lease of the hold.", LEASE);

/// How many keys follow.
pub(super) const NUMKEYS: Arg = Arg::plain(
    "numkeys",
    ArgKind::Integer,
    Bounds::number(1, KEYS_MAX as u64, ""),
    "The number of keys that follow.",
);

/// Several locks.
pub(super) const KEYS: Arg = Arg {
    multiple: true,
    ..Arg::plain("key", ArgKind::Key, Bounds::Any, "The locks, no key twice.")
};

/// `PX milliseconds` or `EX seconds`.
pub(super) const LEASE: &[Arg] = &[
    Arg::part(
        "PX",
        "milliseconds",
        ArgKind::Integer,
        Bounds::number(LEASE_MIN_MS, LEASE_MAX_MS, "ms"),
        "How long the hold lasts without renewal.",
    ),
    Arg::part(
        "EX",
        "seconds",
        ArgKind::Integer,
        Bounds::number(1, LEASE_MAX_S, "s"),
        "The same in seconds.",
    ),
];

/// `BLOCK milliseconds`.
pub(super) const BLOCK: Arg = Arg::option(
    "BLOCK",
    "milliseconds",
    ArgKind::Integer,
    Bounds::number(0, BLOCK_MAX_MS, "ms"),
    "Wait at most this long on this connection (0: forever).",
);

/// `QUEUE milliseconds`.
pub(super) const QUEUE: Arg = Arg::option(
    "QUEUE",
    "milliseconds",
    ArgKind::Integer,
    Bounds::number(QUEUE_MIN_MS, QUEUE_MAX_MS, "ms"),
    "Wait in the queue without blocking the connection. The place survives the connection for this \
     time. The owner must claim a grant within this time, at most within `dlock.claim-ms`.",
);

/// `NOTIFY channel` or `SNOTIFY channel`.
pub(super) const NOTIFY: Arg = Arg::choice(
    "messages",
    "With QUEUE the default is NOTIFY with `dlock:notify:<owner>`.",
    &[
        Arg::part(
            "NOTIFY",
            "channel",
            ArgKind::String,
            Bounds::bytes(1, CHANNEL_MAX),
            "The channel of messages about this place and hold.",
        ),
        Arg::part(
            "SNOTIFY",
            "shard-channel",
            ArgKind::String,
            Bounds::bytes(1, CHANNEL_MAX),
            "The same with sharded pub/sub: listen with SSUBSCRIBE.",
        ),
    ],
);

/// `REQID id`.
pub(super) const REQID: Arg = Arg::option(
    "REQID",
    "id",
    ArgKind::String,
    Bounds::bytes(1, REQID_MAX),
    "Identifies this request: a repeat of it counts nothing.",
);

/// `REQID id` of another request.
pub(super) const CANCELLED: Arg = Arg::option(
    "REQID",
    "id",
    ArgKind::String,
    Bounds::bytes(1, REQID_MAX),
    "The id of the request to cancel: no copy of it waits or is granted afterwards.",
);

/// `BIND milliseconds`.
pub(super) const BIND: Arg = Arg::option(
    "BIND",
    "milliseconds",
    ArgKind::Integer,
    Bounds::number(0, BIND_MAX_MS, "ms"),
    "When this connection closes, shorten the lease to this (0: the hold ends at once).",
);

/// `LABEL text`.
pub(super) const LABEL: Arg = Arg::option(
    "LABEL",
    "text",
    ArgKind::String,
    Bounds::bytes(0, LABEL_MAX),
    "Shown by INFO and WAITERS; changes nothing else.",
);

/// `COUNT count`.
pub(super) const COUNT: Arg = Arg::option(
    "COUNT",
    "count",
    ArgKind::Integer,
    Bounds::number(1, COUNT_MAX, ""),
    "List at most this many places from the front of the queue. Default: all.",
);
