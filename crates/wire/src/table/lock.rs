//! DLOCK: the rows of the re-entrant lock.

use super::args::{
    BIND, BLOCK, CANCELLED, COUNT, HOLD_LEASE, IF_TOKEN, KEY, LABEL, NEW_LEASE, NOTIFY, OWNER,
    QUEUE, REQID, TOKEN,
};
use super::{Access, Arg, Command, CommandId, Group, KeyFlag, Keys, LockVerb, acl, errors};
use crate::reply::ErrorCode;

const NOT_HELD: (ErrorCode, &str) = (
    ErrorCode::NotHeld,
    "`owner` does not hold the lock, or not with that TOKEN. Nothing was changed.",
);

/// What most commands of all families have in common.
pub(super) const BASE: Command = Command {
    name: "",
    id: CommandId::Lock(LockVerb::Info),
    group: Group::Lock,
    summary: "",
    like: None,
    since: "0.1.0",
    complexity: "O(1)",
    arity: 2,
    access: Access::Read,
    flags: "readonly fast",
    acl: acl::READ_FAST,
    keys: Keys::First,
    key_flags: &[KeyFlag::Ro, KeyFlag::Access],
    args: &[KEY],
    reply: "",
    errors: &[],
    notes: "",
    example: "",
};

pub(super) const ACQUIRE: Command = Command {
    name: "DLOCK.ACQUIRE",
    id: CommandId::Lock(LockVerb::Acquire),
    summary: "Takes the lock, takes it once more, or waits for it.",
    complexity: "O(1); a call that waits while its owner holds or waits for something else \
        takes up to some 16,000 looks in search of a deadlock",
    arity: -3,
    access: Access::Write,
    flags: "write deny-oom blocking",
    acl: acl::WRITE_BLOCKING,
    key_flags: &[KeyFlag::Rw, KeyFlag::Access, KeyFlag::Update],
    args: &[
        KEY,
        OWNER,
        NEW_LEASE,
        BLOCK,
        QUEUE,
        NOTIFY,
        REQID,
        Arg::flag("NOREENTRY", "noreentry", "Refuse to hold the lock twice."),
        BIND,
        LABEL,
    ],
    reply: "- Integer: the fencing token of the hold. A re-entry keeps the token of its hold.\n\
        - Null: not granted (in time). With QUEUE the owner has a place in the queue now.",
    errors: &[
        errors::SPENT,
        (ErrorCode::Reentry, "`owner` holds the lock already and NOREENTRY was given."),
        errors::DEADLOCK,
        errors::REPLACED,
        errors::TOO_MANY_WAITERS,
        errors::QUARANTINE,
        errors::UNBLOCKED,
        errors::MOVING,
        errors::MISUSED_ID,
    ],
    notes: "- **Free**: granted, the owner has 1 hold.\n\
        - **Held by the same owner**: one hold more, the same token. The lease is extended if \
        the new one ends later, never shortened.\n\
        - **Held by another owner**: Null at once, or a wait with BLOCK or QUEUE. Waiters are \
        served in order of arrival.\n\
        - **A repeat with the same REQID** answers the token again and counts nothing while the \
        hold lasts. When it has ended, a late copy gets SPENT.\n\
        - **A grant that is ready** for this owner (it waited with QUEUE) is claimed by any \
        ACQUIRE, whatever its other options: the token is answered and the lease starts. A claim is not a re-entry.\n\
        - **BLOCK with QUEUE**: the call blocks; when it times out the reply is Null and the \
        place stays.\n\
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
    ..BASE
};

pub(super) const RELEASE: Command = Command {
    name: "DLOCK.RELEASE",
    id: CommandId::Lock(LockVerb::Release),
    summary: "Gives back one hold, or all.",
    arity: -3,
    access: Access::Write,
    flags: "write fast",
    acl: acl::WRITE_FAST,
    key_flags: &[KeyFlag::Rw, KeyFlag::Access, KeyFlag::Delete],
    args: &[
        KEY,
        OWNER,
        Arg::flag("ALL", "all", "Give back all holds of the owner, not one."),
        IF_TOKEN,
        REQID,
    ],
    reply: "Integer: how many holds of the owner remain; 0: it holds the lock no more.",
    errors: &[NOT_HELD, errors::MISUSED_ID],
    notes: "With the last hold the lock goes to the first waiter in the same step: it is not \
        free in between, and only that waiter is woken.\n\n\
        A repeat with the same REQID is answered the same and counts nothing, even if another owner holds the \
        lock by then. Without REQID, or after `dlock.request-memory-ms`, a repeat of the last \
        RELEASE says NOTHELD, or releases the next hold of the same owner.",
    example: "> DLOCK.RELEASE orders:7 worker-1\n\
        (integer) 0\n\
        > DLOCK.RELEASE orders:7 worker-1\n\
        (error) NOTHELD …",
    ..BASE
};

pub(super) const RENEW: Command = Command {
    name: "DLOCK.RENEW",
    id: CommandId::Lock(LockVerb::Renew),
    summary: "Sets the end of the lease anew, counted from now.",
    arity: -3,
    access: Access::Write,
    flags: "write fast",
    acl: acl::WRITE_FAST,
    key_flags: &[KeyFlag::Rw, KeyFlag::Access, KeyFlag::Update],
    args: &[KEY, OWNER, HOLD_LEASE, IF_TOKEN, BIND],
    reply: "Integer: the fencing token of the hold.",
    errors: &[NOT_HELD],
    notes: "The end may be sooner or later than before. Without BIND the tie to a connection \
        stays as it is. \
        RENEW also claims a grant that a QUEUE place got.",
    example: "> DLOCK.RENEW orders:7 worker-1 EX 60\n(integer) 1767225600123456",
    ..BASE
};

pub(super) const CHECK: Command = Command {
    name: "DLOCK.CHECK",
    id: CommandId::Lock(LockVerb::Check),
    summary: "Tells whether a fencing token is the one of the current hold.",
    arity: 3,
    args: &[KEY, TOKEN],
    reply: "Integer 1.",
    errors: &[(ErrorCode::Stale, "The token is not that of a hold in force.")],
    notes: "For fencing inside Redis: in a script on the primary, before its first write, \
        `redis.call('DLOCK.CHECK', KEYS[1], token)` stops the script unless the token is the \
        current hold's. \
        In MULTI it is of no use: there an error does not stop the rest.",
    example: "> DLOCK.CHECK orders:7 1767225600123456\n\
        (integer) 1\n\
        > DLOCK.CHECK orders:7 5\n\
        (error) STALE …",
    ..BASE
};

pub(super) const FENCE: Command = Command {
    name: "DLOCK.FENCE",
    id: CommandId::Lock(LockVerb::Fence),
    summary: "Raises the fencing token of a hold.",
    arity: 4,
    access: Access::Write,
    flags: "write fast",
    acl: acl::WRITE_FAST,
    key_flags: &[KeyFlag::Rw, KeyFlag::Access, KeyFlag::Update],
    args: &[
        KEY,
        OWNER,
        Arg { summary: "What the hold's token is raised to; a larger one stays.", ..TOKEN },
    ],
    reply: "Integer: the token of the hold now.",
    errors: &[
        NOT_HELD,
        (
            ErrorCode::Err,
            "The token is above max(last token, wall clock + `dlock.max-token-lead-ms`).",
        ),
    ],
    notes: "For clients that lock several independent servers and want one token for all of \
        them: the largest of the tokens they got. \
        Afterwards TOKEN and CHECK want the new token, and later grants of this server get \
        larger ones.",
    example: "> DLOCK.FENCE orders:7 worker-1 1767225600999999\n(integer) 1767225600999999",
    ..BASE
};

pub(super) const BREAK: Command = Command {
    name: "DLOCK.BREAK",
    id: CommandId::Lock(LockVerb::Break),
    summary: "Ends the hold by force, whoever has it.",
    access: Access::Write,
    flags: "write",
    acl: acl::WRITE_DANGEROUS,
    key_flags: &[KeyFlag::Rw, KeyFlag::Delete],
    reply: "Integer: 1 if a hold was broken, 0 if there was none.",
    notes: "All holds of the owner end and the first waiter gets the lock, or it stays closed \
        for `dlock.lock-delay-ms`. \
        The former holder is not stopped: its later RELEASE and RENEW say NOTHELD, its token is \
        stale.",
    example: "> DLOCK.BREAK orders:7\n\
        (integer) 1\n\
        > DLOCK.BREAK orders:7\n\
        (integer) 0",
    ..BASE
};

pub(super) const INFO: Command = Command {
    name: "DLOCK.INFO",
    id: CommandId::Lock(LockVerb::Info),
    summary: "Shows who holds the lock.",
    reply: "Map, or Null if nothing is there:\n\n\
        | field | meaning |\n\
        |---|---|\n\
        | `kind` | which family: `dlock` or `dfair` |\n\
        | `owner` | who holds it; empty when nobody does (there is a queue, or the lock is \
        closed by `dlock.lock-delay-ms`) |\n\
        | `token` | fencing token of the hold |\n\
        | `holds` | how often the owner holds it; 0 when nobody does |\n\
        | `lease-ms` | length of the lease |\n\
        | `ttl-ms` | what is left of it |\n\
        | `held-ms` | how long the owner has held it |\n\
        | `label` | LABEL of the hold |\n\
        | `bound-client` | id of the connection that BIND ties it to; 0 for none |\n\
        | `waiters` | length of the queue |",
    notes: "Changes nothing. Answers as if everything that is due had ended, also on replicas.",
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
        10# \"waiters\" => (integer) 1",
    ..BASE
};

pub(super) const WAITERS: Command = Command {
    name: "DLOCK.WAITERS",
    id: CommandId::Lock(LockVerb::Waiters),
    summary: "Lists the queue, the first to be served first.",
    complexity: "O(N) with N the places listed",
    arity: -2,
    flags: "readonly",
    acl: acl::READ_SLOW,
    args: &[KEY, COUNT],
    reply: "Array of maps in queue order, empty if nobody waits:\n\n\
        | field | meaning |\n\
        |---|---|\n\
        | `owner` | who waits |\n\
        | `client-id` | id of the connection that waits; 0: nobody is connected |\n\
        | `waiting-ms` | how long it has waited |\n\
        | `remaining-ms` | how long it will still wait; -1: no end is set |\n\
        | `label` | LABEL of the place |",
    notes: "Changes nothing. Answers as if everything that is due had ended, also on replicas.",
    example: "> DLOCK.WAITERS orders:7 COUNT 10\n\
        1) 1# \"owner\" => \"worker-2\"\n\
        \x20  2# \"client-id\" => (integer) 12\n\
        \x20  3# \"waiting-ms\" => (integer) 1204\n\
        \x20  4# \"remaining-ms\" => (integer) 3796\n\
        \x20  5# \"label\" => \"\"",
    ..BASE
};

pub(super) const POSITION: Command = Command {
    name: "DLOCK.POSITION",
    id: CommandId::Lock(LockVerb::Position),
    summary: "Tells where an owner stands in the queue.",
    complexity: "O(N) with N the places in front of the owner",
    arity: 3,
    flags: "readonly",
    acl: acl::READ_SLOW,
    args: &[KEY, OWNER],
    reply: "- Integer: 0 for the holder, 1 for the first in the queue, and so on. An owner that \
        both holds and waits is told its place.\n\
        - Null: it neither holds nor waits.",
    notes: "Changes nothing. Answers as if everything that is due had ended, also on replicas.",
    example: "> DLOCK.POSITION orders:7 worker-1\n\
        (integer) 0\n\
        > DLOCK.POSITION orders:7 worker-2\n\
        (integer) 1",
    ..BASE
};

pub(super) const CANCEL: Command = Command {
    name: "DLOCK.CANCEL",
    id: CommandId::Lock(LockVerb::Cancel),
    summary: "Leaves the queue, or gives back a grant that was not claimed.",
    arity: -3,
    access: Access::Write,
    flags: "write fast",
    acl: acl::WRITE_FAST,
    key_flags: &[KeyFlag::Rw, KeyFlag::Access, KeyFlag::Delete],
    args: &[KEY, OWNER, CANCELLED],
    errors: &[errors::MISUSED_ID],
    reply: "Integer: 1 if the owner left the queue or gave back an unclaimed grant, else 0. A \
        hold that was claimed is not touched.",
    notes: "A blocked call of that owner, on whatever connection, is answered Null. With REQID, a \
        copy of the ACQUIRE that comes later gets SPENT, also if CANCEL answered 0 because the \
        ACQUIRE had not come yet; and a copy of the CANCEL leaves later requests of the owner \
        alone.",
    example: "> DLOCK.CANCEL orders:7 worker-2\n\
        (integer) 1\n\
        > DLOCK.CANCEL orders:7 worker-2\n\
        (integer) 0",
    ..BASE
};
