//! The arguments of all commands, each described once. Parser, writer, `COMMAND DOCS` and reference page read these
//! rows; [`crate::request`] says which command takes which.

use crate::arg::{Arg, ArgKind, Bounds};
use crate::names::{
    BIND_MAX_MS, BLOCK_MAX_MS, CHANNEL_MAX, CLIENT_ID_MAX, COUNT_MAX, KEYS_MAX, LABEL_MAX,
    LATCH_MAX, LEASE_MAX_MS, LEASE_MAX_S, LEASE_MIN_MS, OWNER_MAX, PERMITS_MAX, QUEUE_MAX_MS,
    QUEUE_MIN_MS, REQID_MAX, TOKEN_MAX, TOKEN_MIN,
};

const TOKENS: Bounds = Bounds::number(TOKEN_MIN, TOKEN_MAX, "");
const PERMIT_COUNTS: Bounds = Bounds::number(1, PERMITS_MAX as u64, "");
const LATCH_COUNTS: Bounds = Bounds::number(1, LATCH_MAX as u64, "");

/// The lock.
pub(crate) const KEY: Arg = Arg::plain("key", ArgKind::Key, Bounds::Any, "The lock.");

/// The semaphore.
pub(crate) const SEMAPHORE: Arg = Arg { summary: "The semaphore.", ..KEY };

/// The latch.
pub(crate) const LATCH: Arg = Arg { summary: "The latch.", ..KEY };

/// The owner.
pub(crate) const OWNER: Arg = Arg::plain(
    "owner",
    ArgKind::String,
    Bounds::bytes(1, OWNER_MAX),
    "The owner: one name per logical task, for example a UUID.",
);

/// The owner whose holds BREAK ends.
pub(crate) const BROKEN_OWNER: Arg =
    Arg { optional: true, summary: "The owner of the holds. Default: all owners.", ..OWNER };

/// The mode of a read-write lock.
pub(crate) const MODE: Arg = Arg {
    optional: false,
    ..Arg::choice(
        "mode",
        "One of the two is required.",
        &[
            Arg::word("READ", "read", "Shared with other readers."),
            Arg::word("WRITE", "write", "Exclusive."),
        ],
    )
};

/// The fencing token that the command checks or sets.
pub(crate) const TOKEN: Arg = Arg::plain("token", ArgKind::Integer, TOKENS, "A fencing token.");

/// The fencing token that FENCE sets.
pub(crate) const NEW_TOKEN: Arg =
    Arg { summary: "The new token of the hold; a larger current token stays.", ..TOKEN };

/// `TOKEN token`: a condition.
pub(crate) const IF_TOKEN: Arg = Arg::option(
    "TOKEN",
    "token",
    ArgKind::Integer,
    TOKENS,
    "Only if the hold has this fencing token.",
);

/// `TOKEN token`: the hold to observe.
pub(crate) const OBSERVED: Arg = Arg {
    summary: "The hold to observe. Default: the hold in force at the time of the call.",
    ..IF_TOKEN
};

/// The lease of a new hold.
pub(crate) const NEW_LEASE: Arg = Arg::choice("lease", "Default: `dlock.default-lease-ms`.", LEASE);

/// The lease of a hold that is renewed.
pub(crate) const HOLD_LEASE: Arg =
    Arg::choice("lease", "Counted from now. Default: the lease of the hold.", LEASE);

/// The lease of a permit that is renewed.
pub(crate) const PERMIT_LEASE: Arg =
    Arg::choice("lease", "Counted from now. Default: the lease of the permit.", LEASE);

/// The time limit of a latch.
pub(crate) const LATCH_LEASE: Arg =
    Arg::choice("lease", "Default: until it opens or is deleted.", LATCH_TIMES);

const LATCH_TIMES: &[Arg] = &[
    Arg { summary: "How long it may stay closed.", ..LEASE[0] },
    Arg { summary: "The same in seconds.", ..LEASE[1] },
];

/// How many keys follow.
pub(crate) const NUMKEYS: Arg = Arg::plain(
    "numkeys",
    ArgKind::Integer,
    Bounds::number(1, KEYS_MAX as u64, ""),
    "The number of keys that follow.",
);

/// Several locks.
pub(crate) const KEYS: Arg = Arg {
    multiple: true,
    ..Arg::plain("key", ArgKind::Key, Bounds::Any, "The locks, no key twice.")
};

/// `PX milliseconds` or `EX seconds`.
const LEASE: &[Arg] = &[
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
pub(crate) const BLOCK: Arg = Arg::option(
    "BLOCK",
    "milliseconds",
    ArgKind::Integer,
    Bounds::number(0, BLOCK_MAX_MS, "ms"),
    "Wait at most this long on this connection (0: forever).",
);

/// `QUEUE milliseconds`.
pub(crate) const QUEUE: Arg = Arg::option(
    "QUEUE",
    "milliseconds",
    ArgKind::Integer,
    Bounds::number(QUEUE_MIN_MS, QUEUE_MAX_MS, "ms"),
    "Wait in the queue without blocking the connection. The place survives the connection for this \
     time. A grant lasts PX, or this time (at most `dlock.claim-ms`) if that is longer.",
);

/// `NOTIFY channel` or `SNOTIFY channel`.
pub(crate) const NOTIFY: Arg = Arg::choice(
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
pub(crate) const REQID: Arg = Arg::option(
    "REQID",
    "id",
    ArgKind::String,
    Bounds::bytes(1, REQID_MAX),
    "Identifies this request: a copy of it counts nothing, and RELEASE with it ends what it has.",
);

/// `REQID id` of an ACQUIRE.
pub(crate) const OF_ACQUIRE: Arg = Arg {
    summary: "The REQID of the ACQUIRE: ends what that request has, and nothing else.",
    ..REQID
};

/// `DELAY milliseconds`.
pub(crate) const DELAY: Arg = Arg::option(
    "DELAY",
    "milliseconds",
    ArgKind::Integer,
    Bounds::number(LEASE_MIN_MS, LEASE_MAX_MS, "ms"),
    "If the lock becomes free with this, keep it closed for this time.",
);

/// `BIND milliseconds`.
pub(crate) const BIND: Arg = Arg::option(
    "BIND",
    "milliseconds",
    ArgKind::Integer,
    Bounds::number(0, BIND_MAX_MS, "ms"),
    "When this connection closes, shorten the lease to this (0: the hold ends at once). The hold is \
     bound as long as every ACQUIRE and RENEW for it has BIND; the largest time counts.",
);

/// `BIND milliseconds` of a renewal.
pub(crate) const BIND_AGAIN: Arg = Arg {
    summary: "A bound hold stays bound, to this connection; the largest time counts. Without BIND it is \
              bound no more; an unbound hold stays unbound.",
    ..BIND
};

/// `LABEL text`.
pub(crate) const LABEL: Arg = Arg::option(
    "LABEL",
    "text",
    ArgKind::String,
    Bounds::bytes(0, LABEL_MAX),
    "Shown by INFO and WAITERS; changes nothing else.",
);

/// `COUNT count`.
pub(crate) const COUNT: Arg = Arg::option(
    "COUNT",
    "count",
    ArgKind::Integer,
    Bounds::number(1, COUNT_MAX, ""),
    "List at most this many places from the front of the queue. Default: all.",
);

/// `NOREENTRY`.
pub(crate) const NOREENTRY: Arg = Arg::flag("NOREENTRY", "noreentry", "Refuse a re-entry.");

/// `REASON`.
pub(crate) const REASON: Arg =
    Arg::flag("REASON", "reason", "Reply with how the hold ended. Default: with 1.");

/// `ALL` holds of a lock.
pub(crate) const ALL: Arg =
    Arg::flag("ALL", "all", "End all holds and the wait of the owner. Not with REQID.");

/// `DONE`.
pub(crate) const DONE: Arg = Arg::flag(
    "DONE",
    "done",
    "The work under the hold is done: if the hold ends, AWAIT with REASON says so to its observers.",
);

/// `ALL` holds of one mode.
pub(crate) const ALL_OF_MODE: Arg =
    Arg { summary: "End all holds and the wait of the owner in that mode. Not with REQID.", ..ALL };

/// `ALL` permits of an owner.
pub(crate) const ALL_PERMITS: Arg =
    Arg { summary: "End all permits and the wait of the owner. Not with REQID.", ..ALL };

/// `COUNT count` permits.
pub(crate) const WIDTH: Arg =
    Arg::option("COUNT", "count", ArgKind::Integer, PERMIT_COUNTS, "How many permits. Default: 1.");

/// `LIMIT permits`.
pub(crate) const LIMIT: Arg = Arg::option(
    "LIMIT",
    "permits",
    ArgKind::Integer,
    PERMIT_COUNTS,
    "If there is no semaphore, create it with this many permits. It is removed when its last \
     permit is back and no client waits. An existing one does not change.",
);

/// The number of permits of a semaphore.
pub(crate) const PERMITS: Arg =
    Arg::plain("permits", ArgKind::Integer, PERMIT_COUNTS, "The number of permits.");

/// `BY delta`: a change of the number of permits.
pub(crate) const BY: Arg = Arg::part(
    "BY",
    "delta",
    ArgKind::Integer,
    Bounds::Number { min: -(PERMITS_MAX as i64), max: PERMITS_MAX as i64, unit: "" },
    "How many more permits, or fewer if negative.",
);

/// The new number of permits.
pub(crate) const SIZE: Arg =
    Arg { optional: false, ..Arg::choice("size", "One of the two is required.", &[PERMITS, BY]) };

/// A permit id.
pub(crate) const PERMIT_ID: Arg = Arg::plain(
    "permit-id",
    ArgKind::String,
    Bounds::Uuid,
    "The permit id from the reply of DSEM.ACQUIRE.",
);

/// Whose permits RELEASE ends.
pub(crate) const HOLDER: Arg = Arg::plain(
    "holder",
    ArgKind::String,
    Bounds::bytes(1, OWNER_MAX),
    "With REQID or ALL the owner; without them a permit id.",
);

/// How many permits to take or give.
pub(crate) const N: Arg = Arg {
    optional: true,
    ..Arg::plain("n", ArgKind::Integer, PERMIT_COUNTS, "How many permits. Default: 1.")
};

/// The count of a latch.
pub(crate) const LATCH_COUNT: Arg =
    Arg::plain("count", ArgKind::Integer, LATCH_COUNTS, "The number of steps that open it.");

/// How many steps to count down.
pub(crate) const STEPS: Arg = Arg {
    optional: true,
    ..Arg::plain("n", ArgKind::Integer, LATCH_COUNTS, "How many steps. Default: 1.")
};

/// A connection.
pub(crate) const CLIENT_ID: Arg = Arg::plain(
    "client-id",
    ArgKind::Integer,
    Bounds::number(1, CLIENT_ID_MAX, ""),
    "The id of the connection, as in CLIENT ID and CLIENT LIST.",
);

/// `ERROR`.
pub(crate) const ERROR: Arg =
    Arg::flag("ERROR", "error", "Answer the call with the error STOPPED. Default: with Null.");

/// A key whose absent places end. Not a key of the command: it changes no value.
pub(crate) const ABSENT_KEY: Arg = Arg {
    token: Some("ABSENT-KEY"),
    ..Arg::plain(
        "key",
        ArgKind::String,
        Bounds::Any,
        "End places of this key in the selected database.",
    )
};

/// A user whose absent places end.
pub(crate) const ABSENT_USER: Arg = Arg {
    token: Some("ABSENT-USER"),
    ..Arg::plain("user", ArgKind::String, Bounds::Any, "End places of this ACL user.")
};

/// What UNBLOCK ends.
pub(crate) const UNBLOCKED: Arg = Arg {
    optional: false,
    ..Arg::choice(
        "what",
        "One of the three is required.",
        &[Arg::block("call", "Ends a blocked call.", &[CLIENT_ID, ERROR]), ABSENT_KEY, ABSENT_USER],
    )
};

/// `GET`: show the newest entries of the log.
pub(crate) const LOG_GET: Arg = Arg::word("GET", "get", "Returns the newest entries.");

/// How many entries GET returns.
pub(crate) const LOG_COUNT: Arg = Arg {
    optional: true,
    ..Arg::plain(
        "count",
        ArgKind::Integer,
        Bounds::Number { min: -1, max: i64::MAX, unit: "" },
        "How many entries GET returns at most. -1: all. Default: 10.",
    )
};

/// `LEN`: show the length of the log.
pub(crate) const LOG_LEN: Arg = Arg::word("LEN", "len", "Returns the number of entries.");

/// `RESET`: clear the log.
pub(crate) const LOG_RESET: Arg = Arg::word("RESET", "reset", "Removes all entries.");

/// What to do with the log.
pub(crate) const LOG_SUBCOMMAND: Arg = Arg {
    optional: false,
    ..Arg::choice(
        "subcommand",
        "One of the three is required.",
        &[
            Arg::block("get", "Returns the newest entries.", &[LOG_GET, LOG_COUNT]),
            LOG_LEN,
            LOG_RESET,
        ],
    )
};

/// The key of a record. It may be empty: commands name no such key, but RENAME can give a lock that name.
pub(crate) const APPLY_KEY: Arg = Arg::plain("key", ArgKind::Key, Bounds::Any, "The changed key.");

/// A record.
pub(crate) const PAYLOAD: Arg =
    Arg::plain("payload", ArgKind::String, Bounds::Any, "The record, in the module's own format.");
