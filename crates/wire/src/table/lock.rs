//! DLOCK: the rows of the re-entrant lock.

use super::command::Command;
use super::{base, errors};
use crate::reply::{ErrorCode, LockInfo, WaiterInfo};
use crate::request::{
    Acquire, AwaitEnd, Check, CommandId, Fence, FindPosition, ListWaiters, LockVerb, Release, Renew,
};

const NOT_HELD: (ErrorCode, &str) = (
    ErrorCode::NotHeld,
    "`owner` does not hold the lock, or holds it with another token. Nothing was changed.",
);

pub(super) const ACQUIRE: Command = Command {
    name: "DLOCK.ACQUIRE",
    id: CommandId::Lock(LockVerb::Acquire),
    summary: "Acquires or re-enters the lock, or waits for it.",
    complexity: "O(1); a call that waits while its owner holds or waits for something else takes \
        up to 1,000 steps to search for a deadlock",
    args: Acquire::ARGS,
    reply: "- Integer: the fencing token of the hold. A re-entry keeps the token of its hold.\n\
        - Null: not granted (in time). With QUEUE the owner now has a place in the queue.",
    errors: &[
        errors::SPENT,
        (ErrorCode::Reentry, "`owner` already holds the lock, and NOREENTRY was given."),
        errors::DEADLOCK,
        errors::REPLACED,
        errors::FULL,
        errors::QUARANTINE,
        errors::DIVERGED,
        errors::STOPPED,
        errors::UNBLOCKED,
        errors::MOVING,
    ],
    notes: "- **A promise**: an answer with a token says that the hold lasts at least PX from when the request was \
        sent. Nothing shortens that.\n\
        - **Free lock**: granted; the owner has 1 hold.\n\
        - **Held by the same owner**: one more hold, the same token. Its channel of messages stays.\n\
        - **Held by another owner**: Null at once, or a wait with BLOCK or QUEUE. Waiters are \
        served in order of arrival.\n\
        - **A copy with the same REQID** replies with the token again and counts nothing while the hold lasts; it \
        extends the hold like any other request. All copies have the same PX. When the request is over, a late copy \
        gets SPENT.\n\
        - **A grant to a place** (the owner waited with QUEUE) lasts PX, or min(QUEUE, `dlock.claim-ms`) if that is \
        longer. A message tells its owner, and a copy of the request gets the token. An ACQUIRE with another \
        REQID enters the hold once more.\n\
        - **BLOCK with QUEUE**: the call blocks; when it times out the reply is Null and the place \
        stays.\n\
        - Inside MULTI/EXEC and in scripts BLOCK does not wait. In scripts BIND and QUEUE are \
        refused.",
    example: "> DLOCK.ACQUIRE orders:7 worker-1 PX 30000\n\
        (integer) 1767225600123456\n\
        > DLOCK.ACQUIRE orders:7 worker-2\n\
        (nil)\n\
        > DLOCK.ACQUIRE orders:7 worker-2 BLOCK 500\n\
        (nil)\n\
        (0.50s)\n\
        > DLOCK.ACQUIRE orders:7 worker-1 NOREENTRY\n\
        (error) REENTRY …",
    ..base::ACQUIRE
};

pub(super) const RELEASE: Command = Command {
    name: "DLOCK.RELEASE",
    id: CommandId::Lock(LockVerb::Release),
    summary: "Ends what an ACQUIRE has: its hold, its place or its blocked call.",
    args: Release::ARGS,
    reply: "- Integer: how many holds of the owner remain; 0: it no longer holds the lock.\n\
        - Null: it waited, and waits no more. A blocked call gets Null, too.",
    errors: &[NOT_HELD, errors::LOST, errors::UNKNOWN, errors::ID_AND_ALL],
    notes: "With the last hold the lock goes to the first waiter in the same step. It is not free \
        in between, and the server wakes only that waiter. With DELAY it stays closed for that time \
        instead (until DEL, not until BREAK); with holds left DELAY is ignored.\n\n\
        **With REQID**, that of the ACQUIRE, it ends what that request has and nothing else, whether \
        it holds, waits, or has not arrived yet. Afterwards copies of the ACQUIRE get SPENT, and \
        copies of the RELEASE the same reply, for `dlock.request-memory-ms`. So giving up and \
        releasing are one command, which may be repeated.\n\n\
        **Without REQID** one hold ends: one without an id, else that of the youngest REQID, whose \
        RELEASE then gets LOST released. An owner that holds nothing but waits leaves the queue \
        (Null). A repeat may end the next hold: an owner uses one of both forms.",
    example: "> DLOCK.RELEASE orders:7 worker-1\n\
        (integer) 0\n\
        > DLOCK.RELEASE orders:7 worker-1\n\
        (error) NOTHELD …\n\
        > DLOCK.ACQUIRE orders:7 worker-1 REQID try-1\n\
        (integer) 1767225600123457\n\
        > DLOCK.RELEASE orders:7 worker-1 REQID try-1\n\
        (integer) 0\n\
        > DLOCK.RELEASE orders:7 worker-1 REQID try-2\n\
        (error) UNKNOWN …",
    ..base::RELEASE
};

pub(super) const RENEW: Command = Command {
    name: "DLOCK.RENEW",
    id: CommandId::Lock(LockVerb::Renew),
    summary: "Extends the lease: the hold lasts at least PX from now.",
    args: Renew::ARGS,
    reply: "Integer: the fencing token of the hold.",
    errors: &[NOT_HELD],
    notes: "A lease that ends later stays. A bound hold that is renewed without BIND is bound no more.",
    example: "> DLOCK.RENEW orders:7 worker-1 EX 60\n(integer) 1767225600123456",
    ..base::CHANGE
};

pub(super) const CHECK: Command = Command {
    name: "DLOCK.CHECK",
    id: CommandId::Lock(LockVerb::Check),
    summary: "Checks whether a fencing token is that of the current hold.",
    args: Check::ARGS,
    reply: "Integer 1.",
    errors: &[(ErrorCode::Stale, "The token is not that of a hold in force.")],
    notes: "For fencing inside Redis: in a script on the primary, before its first write, \
        `redis.call('DLOCK.CHECK', KEYS[1], token)` stops the script unless the token is that of \
        the current hold. It is of no use in MULTI, where an error does not stop the rest.",
    example: "> DLOCK.CHECK orders:7 1767225600123456\n\
        (integer) 1\n\
        > DLOCK.CHECK orders:7 5\n\
        (error) STALE …",
    ..base::SHOW
};

pub(super) const FENCE: Command = Command {
    name: "DLOCK.FENCE",
    id: CommandId::Lock(LockVerb::Fence),
    summary: "Raises the fencing token of a hold.",
    args: Fence::ARGS,
    reply: "Integer: the token of the hold afterwards.",
    errors: &[
        NOT_HELD,
        (
            ErrorCode::Err,
            "The token is above max(last token, wall clock + `dlock.max-token-lead-ms`).",
        ),
    ],
    notes: "For clients that lock several independent servers and need one token for all of them: \
        the largest of their tokens. Afterwards TOKEN and CHECK require the new token, and later \
        grants of this server get larger ones.",
    example: "> DLOCK.FENCE orders:7 worker-1 1767225600999999\n(integer) 1767225600999999",
    ..base::CHANGE
};

pub(super) const BREAK: Command = Command {
    name: "DLOCK.BREAK",
    id: CommandId::Lock(LockVerb::Break),
    summary: "Ends the hold of any owner by force.",
    reply: "Integer: 1 if a hold was broken, 0 if there was none.",
    notes: "All holds of the owner end. The first waiter gets the lock, or it stays closed for \
        `dlock.lock-delay-ms`. BREAK does not stop the former holder: its later RELEASE and RENEW \
        get NOTHELD, and its token is stale.",
    example: "> DLOCK.BREAK orders:7\n\
        (integer) 1\n\
        > DLOCK.BREAK orders:7\n\
        (integer) 0",
    ..base::BREAK
};

pub(super) const INFO: Command = Command {
    name: "DLOCK.INFO",
    id: CommandId::Lock(LockVerb::Info),
    summary: "Shows the holder of the lock.",
    reply: "Map, or Null if nothing is there:",
    maps: &[("", LockInfo::FIELDS)],
    notes: "Changes nothing. Everything that has expired counts as ended, also on replicas.",
    example: "> DLOCK.INFO orders:7\n\
        \x201# \"kind\" => \"dlock\"\n\
        \x202# \"owner\" => \"worker-1\"\n\
        \x203# \"token\" => (integer) 1767225600123456\n\
        \x204# \"holds\" => (integer) 1\n\
        \x205# \"lease-ms\" => (integer) 30000\n\
        \x206# \"ttl-ms\" => (integer) 27814\n\
        \x207# \"held-ms\" => (integer) 2186\n\
        \x208# \"label\" => \"\"\n\
        \x209# \"bound-client\" => (integer) 0\n\
        10# \"waiters\" => (integer) 1\n\
        11# \"observers\" => (integer) 0\n\
        12# \"reserved-for\" => \"\"",
    ..base::SHOW
};

pub(super) const WAITERS: Command = Command {
    name: "DLOCK.WAITERS",
    id: CommandId::Lock(LockVerb::Waiters),
    summary: "Lists the waiters in queue order.",
    complexity: "O(N) with N the number of listed places",
    args: ListWaiters::ARGS,
    reply: "Array of maps in queue order, empty without waiters:",
    maps: &[("", WaiterInfo::FIELDS)],
    notes: "Changes nothing. Everything that has expired counts as ended, also on replicas.",
    example: "> DLOCK.WAITERS orders:7 COUNT 10\n\
        1) 1# \"owner\" => \"worker-2\"\n\
        \x20  2# \"client-id\" => (integer) 12\n\
        \x20  3# \"waiting-ms\" => (integer) 1204\n\
        \x20  4# \"remaining-ms\" => (integer) 3796\n\
        \x20  5# \"label\" => \"\"",
    ..base::LIST
};

pub(super) const POSITION: Command = Command {
    name: "DLOCK.POSITION",
    id: CommandId::Lock(LockVerb::Position),
    summary: "Shows the position of an owner in the queue.",
    complexity: "O(N) with N the number of places in front of the owner",
    args: FindPosition::ARGS,
    reply: "- Integer: 0 for the holder, 1 for the first in the queue, and so on. An owner that \
        both holds and waits gets its position in the queue.\n\
        - Null: the owner neither holds nor waits.",
    notes: "Changes nothing. Everything that has expired counts as ended, also on replicas.",
    example: "> DLOCK.POSITION orders:7 worker-1\n\
        (integer) 0\n\
        > DLOCK.POSITION orders:7 worker-2\n\
        (integer) 1",
    ..base::LIST
};

pub(super) const AWAIT: Command = Command {
    name: "DLOCK.AWAIT",
    id: CommandId::Lock(LockVerb::Await),
    summary: "Waits for the end of the hold in force.",
    flags: "readonly blocking",
    acl: &["read", "slow", "blocking"],
    args: AwaitEnd::ARGS,
    reply: "- Integer 1: the hold has ended, or it was not in force when the command came.\n\
        - Null: the hold is in force, or still in force when the time elapsed.\n\
        - With REASON a string in place of 1: how the hold ended. `done` (a RELEASE with DONE); \
        `released`; `returned` (a \
        grant that could not be delivered); `expired`; `unclaimed`; `disconnected` (BIND); `broken`; `deleted` (or \
        renamed, or overwritten); `free` (without TOKEN: nobody held the lock); `unknown` (the \
        hold with TOKEN is not in force, and the server does not remember it).",
    errors: &[errors::TOO_MANY_WAITERS, errors::STOPPED, errors::UNBLOCKED, errors::MOVING],
    notes: "Observers take no place in the queue and are granted nothing. All of them are \
        answered when the hold ends, even if the lock goes to the next waiter in the same step. A \
        re-entry does not begin another hold, and FENCE does not end one.\n\n\
        The server remembers how the last 1,024 holds ended, until it restarts: for an AWAIT with \
        TOKEN that comes too late.\n\n\
        Changes nothing. Inside MULTI/EXEC, in scripts and on replicas it does not wait.",
    example: "> DLOCK.AWAIT orders:7 BLOCK 500\n\
        (nil)\n\
        (0.50s)\n\
        > DLOCK.AWAIT orders:8 REASON\n\
        \"free\"",
    ..base::SHOW
};
