//! DLOCK.MACQUIRE and similar commands: the rows for several locks at once.

use super::command::{Command, Group, Keys};
use super::{base, errors};
use crate::reply::ErrorCode;
use crate::request::{CommandId, MAcquire, MRelease, MRenew, MultiVerb};

const CHANGE: Command = Command {
    complexity: "O(N log N) with N the number of keys",
    flags: "write",
    acl: &["write", "slow"],
    keys: Keys::Counted,
    ..base::CHANGE.of(Group::Multi)
};

const ACQUIRE: Command =
    Command { flags: base::ACQUIRE.flags, acl: base::ACQUIRE.acl, args: MAcquire::ARGS, ..CHANGE };

pub(super) const MACQUIRE: Command = Command {
    name: "DLOCK.MACQUIRE",
    id: CommandId::Multi(MultiVerb::Acquire),
    summary: "Acquires all of several locks or none, or waits for them.",
    complexity: "O(N log N) with N the number of keys; a call that waits while its owner holds or \
        waits for something else takes up to 1,000 steps to search for a deadlock",
    reply: "- Array of integers: the fencing tokens, in the order of the keys.\n\
        - Null: not granted (in time); nothing was taken.",
    errors: &[
        errors::SPENT,
        errors::DEADLOCK,
        errors::REPLACED,
        errors::TOO_MANY_WAITERS_OR_KEYS,
        errors::QUARANTINE,
        errors::DIVERGED,
        errors::STOPPED,
        errors::UNBLOCKED,
        errors::MOVING,
    ],
    notes: "- The owner re-enters keys that it already holds.\n\
        - A waiting call takes its place in the queue of every key in one step. It is granted when \
        it is first in all of them. So such calls neither deadlock nor starve each other, in any \
        order of their keys. The price: a waiting call keeps free keys closed while it waits for a \
        busy one.\n\
        - Afterwards each key is a separate hold, and each hold remembers the REQID. A late copy \
        gets SPENT as soon as the hold of one of the keys has ended.\n\
        - Earlier waits of the owner for any of the keys get REPLACED. The call keeps their places \
        if one earlier MACQUIRE covered all its keys. Otherwise it goes to the end of every \
        queue.\n\
        - In a cluster all keys must be in one slot.",
    example: "> DLOCK.MACQUIRE 2 account:1 account:2 worker-1 PX 30000\n\
        1) (integer) 1767225600123456\n\
        2) (integer) 1767225600123457\n\
        > DLOCK.MACQUIRE 2 account:3 account:2 worker-2\n\
        (nil)",
    ..ACQUIRE
};

pub(super) const MRELEASE: Command = Command {
    name: "DLOCK.MRELEASE",
    id: CommandId::Multi(MultiVerb::Release),
    summary: "Ends what a MACQUIRE has at several locks.",
    key_flags: base::RELEASE.key_flags,
    args: MRelease::ARGS,
    reply: "- Integer: how many holds were released. Without REQID the call skips keys that the \
        owner does not hold.\n\
        - Null: the call waited, and waits no more.",
    errors: &[errors::LOST, errors::UNKNOWN, errors::TOO_MANY_KEYS],
    notes: "Locks that become free go to their waiters in the same step. With REQID, that of the \
        MACQUIRE or ANYACQUIRE, it does at each key what RELEASE does there, and its reply is the \
        worst of them: LOST (another reason than `expired` first), UNKNOWN, Null, else the number \
        of keys. Copies get the same reply.",
    example: "> DLOCK.MRELEASE 2 account:1 account:2 worker-1\n\
        (integer) 2\n\
        > DLOCK.MRELEASE 2 account:1 account:2 worker-1\n\
        (integer) 0",
    ..CHANGE
};

pub(super) const MRENEW: Command = Command {
    name: "DLOCK.MRENEW",
    id: CommandId::Multi(MultiVerb::Renew),
    summary: "Extends the leases of several locks, all or none.",
    args: MRenew::ARGS,
    reply: "Integer: how many holds were renewed: all of them.",
    errors: &[
        (
            ErrorCode::NotHeld,
            "`owner` does not hold one of the locks; the text names the first. None was renewed.",
        ),
        errors::TOO_MANY_KEYS,
    ],
    notes: "Each lease, and each binding, as RENEW does it.",
    example: "> DLOCK.MRENEW 2 account:1 account:2 worker-1 EX 60\n\
        (integer) 2\n\
        > DLOCK.MRENEW 2 account:1 account:9 worker-1\n\
        (error) NOTHELD …",
    ..CHANGE
};

pub(super) const ANYACQUIRE: Command = Command {
    name: "DLOCK.ANYACQUIRE",
    id: CommandId::Multi(MultiVerb::AnyAcquire),
    summary: "Acquires one of several locks, or waits for the first that becomes free.",
    reply: "- Array of the key and its fencing token.\n- Null: not granted (in time).",
    errors: &[
        errors::SPENT,
        errors::REPLACED,
        errors::TOO_MANY_WAITERS_OR_KEYS,
        errors::QUARANTINE,
        errors::DIVERGED,
        errors::STOPPED,
        errors::UNBLOCKED,
        errors::MOVING,
    ],
    notes: "If the owner already holds one of the keys, the call re-enters it. Otherwise it takes \
        the first free key. Each call starts its search at another key: for striped locks. In a \
        cluster all keys must be in one slot. Waits of ANYACQUIRE are not part of the deadlock \
        search.",
    example: "> DLOCK.ANYACQUIRE 3 stripe:1 stripe:2 stripe:3 worker-1 BLOCK 1000\n\
        1) \"stripe:2\"\n\
        2) (integer) 1767225600123456",
    ..ACQUIRE
};
