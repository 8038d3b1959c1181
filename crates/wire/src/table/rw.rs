//! DRW: the rows of the read-write lock.

use super::command::{Command, Group};
use super::{base, errors, lock};
use crate::reply::{ErrorCode, HolderInfo, RwInfo};
use crate::request::{CommandId, RwAcquire, RwBreak, RwRelease, RwRenew, RwVerb};

const NOT_HELD: (ErrorCode, &str) = (
    ErrorCode::NotHeld,
    "`owner` does not hold the lock in that mode, or holds it with another token. Nothing was \
     changed.",
);

pub(super) const ACQUIRE: Command = Command {
    name: "DRW.ACQUIRE",
    id: CommandId::Rw(RwVerb::Acquire),
    summary: "Acquires or re-enters the lock for reading or writing, or waits for it.",
    complexity: "O(1); a call that waits while its owner holds or waits for something else takes \
        up to 1,000 steps to search for a deadlock",
    args: RwAcquire::ARGS,
    reply: "- Integer: the fencing token of the hold of that mode. A re-entry keeps the token of \
        its hold.\n\
        - Null: not granted (in time). With QUEUE the owner now has a place in the queue.",
    errors: &[
        errors::SPENT,
        (
            ErrorCode::Deadlock,
            "Waiting would close a cycle of waiting owners, and the text names it. Or this is a \
             second upgrade from READ to WRITE while the first one waits (also with deadlock \
             detection off).",
        ),
        errors::REPLACED,
        errors::TOO_MANY_WAITERS_OR_READERS,
        errors::QUARANTINE,
        errors::DIVERGED,
        errors::STOPPED,
        errors::UNBLOCKED,
        errors::MOVING,
    ],
    notes: "- **READ** is granted while no other owner writes and no writer waits. A reader that \
        arrives while a writer waits queues behind it. Adjacent readers in the queue are granted \
        together.\n\
        - **WRITE** is granted while no other owner holds the lock.\n\
        - **Re-entry**: an owner that holds the mode gets one more hold and the same token, even \
        while others wait. Each answer promises that the hold lasts at least PX from when the \
        request was sent.\n\
        - **Downgrade**: the writer also acquires READ, and then releases WRITE.\n\
        - **Upgrade**: a reader that requests WRITE gets it at once if it is the only reader. \
        Otherwise it waits in front of all other waiters, and keeps that place if its READ \
        lapses.\n\
        - **A grant to a place** (the owner waited with QUEUE) lasts PX, or min(QUEUE, \
        `dlock.claim-ms`) if that is longer. A copy of its request gets the token.\n\
        - A waiter that repeats its request with the other mode moves to the end of the queue.\n\
        - Inside MULTI/EXEC and in scripts BLOCK does not wait. In scripts BIND and QUEUE are \
        refused.",
    example: "> DRW.ACQUIRE catalog worker-1 READ PX 30000\n\
        (integer) 1767225600123456\n\
        > DRW.ACQUIRE catalog worker-2 READ\n\
        (integer) 1767225600123457\n\
        > DRW.ACQUIRE catalog worker-3 WRITE\n\
        (nil)",
    ..base::ACQUIRE.of(Group::Rw)
};

pub(super) const RELEASE: Command = Command {
    name: "DRW.RELEASE",
    id: CommandId::Rw(RwVerb::Release),
    summary: "Ends what an ACQUIRE of a mode has: its hold, its place or its blocked call.",
    args: RwRelease::ARGS,
    reply: "- Integer: how many holds of the owner remain in that mode; 0: it no longer holds the \
        lock in that mode.\n\
        - Null: it waited for that mode, and waits no more. A blocked call gets Null, too.",
    errors: &[
        NOT_HELD,
        errors::LOST,
        errors::UNKNOWN,
        (
            ErrorCode::Err,
            "REQID and ALL exclude each other, and DELAY needs WRITE. Nothing was changed.",
        ),
    ],
    complexity: "O(1), plus O(1) for each reader that gets the lock",
    notes: "A lock that becomes free goes to the waiters in the same step, or stays closed for \
        DELAY. With and without REQID it does what DLOCK.RELEASE does, for that mode. Each mode \
        has its own request ids.",
    example: "> DRW.RELEASE catalog worker-1 READ\n\
        (integer) 0\n\
        > DRW.RELEASE catalog worker-1 WRITE\n\
        (error) NOTHELD …",
    ..base::RELEASE.of(Group::Rw)
};

pub(super) const RENEW: Command = Command {
    name: "DRW.RENEW",
    id: CommandId::Rw(RwVerb::Renew),
    summary: "Extends the lease of a mode: it lasts at least PX from now.",
    args: RwRenew::ARGS,
    reply: "Integer: the fencing token of the hold.",
    errors: &[NOT_HELD],
    notes: "Each mode has its own lease. A lease that ends later stays. A bound hold that is renewed \
        without BIND is bound no more.",
    example: "> DRW.RENEW catalog worker-1 READ EX 60\n(integer) 1767225600123456",
    ..base::CHANGE.of(Group::Rw)
};

pub(super) const BREAK: Command = Command {
    name: "DRW.BREAK",
    id: CommandId::Rw(RwVerb::Break),
    summary: "Ends holds by force: all, or those of one owner.",
    complexity: "O(N) with N the number of broken holds",
    args: RwBreak::ARGS,
    reply: "Integer: how many holds were broken. A mode that an owner holds several times counts \
        once.",
    notes: "The waiters get the lock, or after a write hold it stays closed for \
        `dlock.lock-delay-ms`. BREAK does not stop the former holders: their later RELEASE and \
        RENEW get NOTHELD, and their tokens are stale.",
    example: "> DRW.BREAK catalog worker-2\n\
        (integer) 1\n\
        > DRW.BREAK catalog\n\
        (integer) 0",
    ..base::BREAK.of(Group::Rw)
};

pub(super) const CHECK: Command = Command {
    summary: "Checks whether a fencing token is that of a current hold.",
    notes: "Accepts the token of any hold in force, of a reader or of the writer. In a script on \
        the primary, before its first write, it stops the script unless the token is current.",
    ..lock::CHECK.of_family(
        "DRW.CHECK",
        CommandId::Rw(RwVerb::Check),
        Group::Rw,
        "> DRW.CHECK catalog 1767225600123456\n(integer) 1",
    )
};

pub(super) const INFO: Command = Command {
    name: "DRW.INFO",
    id: CommandId::Rw(RwVerb::Info),
    summary: "Shows the holders of the lock, and its mode.",
    complexity: "O(N) with N the number of readers",
    reply: "Map, or Null if nothing is there:",
    maps: &[("", RwInfo::FIELDS), ("Each hold is a map:", HolderInfo::FIELDS)],
    notes: "Changes nothing. Everything that has expired counts as ended, also on replicas.",
    example: "> DRW.INFO catalog\n\
        1# \"kind\" => \"drw\"\n\
        2# \"mode\" => \"read\"\n\
        3# \"writer\" => (nil)\n\
        4# \"readers\" =>\n\
        \x20  1) 1# \"owner\" => \"worker-1\"\n\
        \x20     2# \"token\" => (integer) 1767225600123456\n\
        \x20     3# \"holds\" => (integer) 1\n\
        \x20     4# \"lease-ms\" => (integer) 30000\n\
        \x20     5# \"ttl-ms\" => (integer) 27814\n\
        \x20     6# \"held-ms\" => (integer) 2186\n\
        \x20     7# \"label\" => \"\"\n\
        \x20     8# \"bound-client\" => (integer) 0\n\
        5# \"waiters\" => (integer) 1",
    ..base::LIST.of(Group::Rw)
};

pub(super) const WAITERS: Command = lock::WAITERS.of_family(
    "DRW.WAITERS",
    CommandId::Rw(RwVerb::Waiters),
    Group::Rw,
    "> DRW.WAITERS catalog COUNT 10\n\
    1) 1# \"owner\" => \"worker-3\"\n\
    \x20  2# \"client-id\" => (integer) 12\n\
    \x20  3# \"waiting-ms\" => (integer) 1204\n\
    \x20  4# \"remaining-ms\" => (integer) 3796\n\
    \x20  5# \"label\" => \"\"",
);

pub(super) const POSITION: Command = lock::POSITION.of_family(
    "DRW.POSITION",
    CommandId::Rw(RwVerb::Position),
    Group::Rw,
    "> DRW.POSITION catalog worker-3\n(integer) 1",
);
