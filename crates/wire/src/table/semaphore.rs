//! DSEM: the rows of the semaphore.

use super::command::{Command, Group};
use super::{base, errors, lock};
use crate::args::{COUNT, OWNER, SEMAPHORE};
use crate::reply::{ErrorCode, PermitInfo, SemInfo};
use crate::request::{
    CommandId, Drain, Give, OnePermit, Resize, SemAcquire, SemInit, SemRelease, SemRenew, SemVerb,
    Take,
};

const TOO_WIDE: &str = "The number is above the capacity, or `dlock.max-waiters-per-key` or \
    `dlock.max-waiters` is reached. RESIZE and INIT also send this error to waiters for too many \
    permits.";

const TOO_WIDE_OR_MANY: &str = "The number is above the capacity, or `dlock.max-holds-per-key`, \
    `dlock.max-waiters-per-key` or `dlock.max-waiters` is reached. RESIZE and INIT also send this \
    error to waiters for too many permits.";

pub(super) const INIT: Command = Command {
    name: "DSEM.INIT",
    id: CommandId::Sem(SemVerb::Init),
    summary: "Creates a semaphore.",
    complexity: "O(1), plus O(1) for each waiter that it answers",
    args: SemInit::ARGS,
    reply: "Integer: 1 if it was created, 0 if there already is one, which does not change.",
    notes: "It stays until it is deleted. Existing waiters are served in order of arrival. A \
        waiter for more permits than the capacity gets LIMIT.",
    example: "> DSEM.INIT licences 10\n\
        (integer) 1\n\
        > DSEM.INIT licences 20\n\
        (integer) 0",
    ..base::INIT.of(Group::Semaphore)
};

pub(super) const RESIZE: Command = Command {
    name: "DSEM.RESIZE",
    id: CommandId::Sem(SemVerb::Resize),
    summary: "Changes the number of permits.",
    complexity: "O(N) with N the number of waiters that it answers",
    flags: "write",
    acl: &["write", "slow"],
    args: Resize::ARGS,
    reply: "Integer: how many permits are available afterwards; negative while more are out than \
        the capacity.",
    errors: &[
        errors::NO_SEMAPHORE,
        (ErrorCode::Limit, "BY leaves the range of 1 to 2147483647 permits. Nothing was changed."),
    ],
    notes: "Permits that are out stay out. A waiter for more permits than the new capacity gets \
        LIMIT.",
    example: "> DSEM.RESIZE licences 12\n\
        (integer) 12\n\
        > DSEM.RESIZE licences BY -2\n\
        (integer) 10",
    ..base::CHANGE.of(Group::Semaphore)
};

pub(super) const ACQUIRE: Command = Command {
    name: "DSEM.ACQUIRE",
    id: CommandId::Sem(SemVerb::Acquire),
    summary: "Takes permits with an owner and a lease, or waits for them.",
    args: SemAcquire::ARGS,
    reply: "- Bulk string: the permit id, a UUID. One id stands for all permits of the call.\n\
        - Null: not granted (in time). With QUEUE the owner now has a place in the queue.",
    errors: &[
        errors::SPENT,
        errors::REPLACED,
        (ErrorCode::Limit, TOO_WIDE_OR_MANY),
        errors::QUARANTINE,
        errors::DIVERGED,
        errors::STOPPED,
        errors::UNBLOCKED,
        errors::MOVING,
        errors::MISUSED_ID,
    ],
    notes: "- Waiters are served in order of arrival, also for COUNT above 1: narrow requests do \
        not overtake a wide request at the head.\n\
        - Each call takes new permits; an owner may have any number. A copy with the same REQID \
        replies with the same permit id, takes nothing, and extends the lease. When the request is \
        over, a copy gets SPENT.\n\
        - **A missing semaphore** has no permits. Callers with BLOCK or QUEUE wait until it is \
        created; LIMIT creates it.\n\
        - **A grant to a place** (the owner waited with QUEUE) lasts PX, or min(QUEUE, \
        `dlock.claim-ms`) if that is longer. A copy of its request gets the permit id; another \
        request takes other permits.\n\
        - A waiter that repeats its request with a larger COUNT moves to the end of the queue.\n\
        - A permit returns by itself when its lease ends.\n\
        - Inside MULTI/EXEC and in scripts BLOCK does not wait. In scripts BIND and QUEUE are \
        refused.",
    example: "> DSEM.ACQUIRE licences worker-1 PX 30000\n\
        \"0192f0c1-5a3e-7c44-9d3b-2f1a6c8e4b70\"\n\
        > DSEM.ACQUIRE licences worker-2 COUNT 10\n\
        (nil)\n\
        > DSEM.ACQUIRE licences worker-2 COUNT 11\n\
        (error) LIMIT …",
    ..base::ACQUIRE.of(Group::Semaphore)
};

pub(super) const RELEASE: Command = Command {
    name: "DSEM.RELEASE",
    id: CommandId::Sem(SemVerb::Release),
    summary: "Ends what an ACQUIRE has: its permits, its place or its blocked call.",
    complexity: "O(1), plus O(1) for each waiter that gets permits; with ALL, O(log N) for each of \
        the permits",
    args: SemRelease::ARGS,
    reply: "- Integer: how many permits are available afterwards.\n\
        - Null: the request waited, and waits no more. A blocked call gets Null, too.",
    errors: &[
        errors::NOT_A_PERMIT,
        errors::LOST,
        errors::UNKNOWN,
        (ErrorCode::Err, "REQID and ALL exclude each other; without them a permit id is needed."),
    ],
    notes: "**With an owner and REQID**, that of the ACQUIRE, it ends what that request has and \
        nothing else. Afterwards copies of the ACQUIRE get SPENT, and copies of the RELEASE the \
        reply of the first.\n\n\
        **With a permit id** it returns those permits. A repeat gets NOTHELD, and whether the \
        permit had ended before the first copy is not known.",
    example: "> DSEM.RELEASE licences 0192f0c1-5a3e-7c44-9d3b-2f1a6c8e4b70\n\
        (integer) 10\n\
        > DSEM.RELEASE licences 0192f0c1-5a3e-7c44-9d3b-2f1a6c8e4b70\n\
        (error) NOTHELD …",
    ..base::RELEASE.of(Group::Semaphore)
};

pub(super) const RENEW: Command = Command {
    name: "DSEM.RENEW",
    id: CommandId::Sem(SemVerb::Renew),
    summary: "Extends the lease: the permit lasts at least PX from now.",
    args: SemRenew::ARGS,
    reply: "Integer 1.",
    errors: &[errors::NOT_A_PERMIT],
    notes: "A lease that ends later stays. A bound permit that is renewed without BIND is bound no more.",
    example: "> DSEM.RENEW licences 0192f0c1-5a3e-7c44-9d3b-2f1a6c8e4b70 EX 60\n(integer) 1",
    ..base::CHANGE.of(Group::Semaphore)
};

pub(super) const TAKE: Command = Command {
    name: "DSEM.TAKE",
    id: CommandId::Sem(SemVerb::Take),
    summary: "Takes permits without an owner or a lease, or waits for them.",
    args: Take::ARGS,
    reply: "- Integer 1: taken.\n- Null: not granted (in time).",
    errors: &[
        (ErrorCode::Limit, TOO_WIDE),
        errors::QUARANTINE,
        errors::DIVERGED,
        errors::STOPPED,
        errors::UNBLOCKED,
        errors::MOVING,
        errors::MISUSED_ID,
    ],
    notes: "For counting without owners: GIVE returns the permits, from any connection. They stay \
        out when their client crashes; permits with a lease do not. TAKE waits in the same queue \
        as ACQUIRE, and overtakes no waiter there. If there is no semaphore, a call with BLOCK \
        waits until it is created. A repeat with the same REQID takes nothing and replies 1. The \
        server remembers the ids of TAKE, GIVE, DRAIN and RESIZE for `dlock.request-memory-ms`, \
        even if the semaphore is deleted meanwhile. Each call needs its own id.",
    example: "> DSEM.TAKE licences 3\n\
        (integer) 1\n\
        > DSEM.TAKE licences 8\n\
        (nil)",
    ..base::ACQUIRE.of(Group::Semaphore)
};

pub(super) const GIVE: Command = Command {
    name: "DSEM.GIVE",
    id: CommandId::Sem(SemVerb::Give),
    summary: "Returns permits of TAKE and DRAIN.",
    complexity: "O(1), plus O(1) for each waiter that gets permits",
    args: Give::ARGS,
    reply: "Integer: how many permits are available afterwards.",
    errors: &[
        (
            ErrorCode::Limit,
            "The number is larger than what TAKE and DRAIN took. Nothing was \
            changed.",
        ),
        errors::NO_SEMAPHORE,
    ],
    notes: "A repeat with the same REQID counts nothing.",
    example: "> DSEM.GIVE licences 3\n\
        (integer) 10\n\
        > DSEM.GIVE licences\n\
        (error) LIMIT …",
    ..base::CHANGE.of(Group::Semaphore)
};

pub(super) const DRAIN: Command = Command {
    name: "DSEM.DRAIN",
    id: CommandId::Sem(SemVerb::Drain),
    summary: "Takes all available permits.",
    args: Drain::ARGS,
    reply: "Integer: how many permits it took. A repeat with the same REQID takes nothing and gets \
        the same reply.",
    errors: &[errors::NO_SEMAPHORE, errors::QUARANTINE, errors::DIVERGED],
    notes: "The permits have no owner and no lease; GIVE returns them. DRAIN takes none while a \
        client waits for permits.",
    example: "> DSEM.DRAIN licences\n\
        (integer) 10\n\
        > DSEM.DRAIN licences\n\
        (integer) 0",
    ..base::CHANGE.of(Group::Semaphore)
};

pub(super) const BREAK: Command = Command {
    name: "DSEM.BREAK",
    id: CommandId::Sem(SemVerb::Break),
    summary: "Ends a permit by force.",
    complexity: "O(1), plus O(1) for each waiter that gets permits",
    args: OnePermit::ARGS,
    reply: "Integer: 1 if the permit was out, else 0.",
    notes: "The waiters get the returned permits. BREAK does not stop the former holder: its later \
        RELEASE and RENEW get NOTHELD.",
    example: "> DSEM.BREAK licences 0192f0c1-5a3e-7c44-9d3b-2f1a6c8e4b70\n(integer) 1",
    ..base::BREAK.of(Group::Semaphore)
};

pub(super) const INFO: Command = Command {
    name: "DSEM.INFO",
    id: CommandId::Sem(SemVerb::Info),
    summary: "Shows the capacity of a semaphore and the use of its permits.",
    args: &[SEMAPHORE],
    reply: "Map, or Null if nothing is there:",
    maps: &[("", SemInfo::FIELDS)],
    notes: "Changes nothing. Everything that has expired counts as ended, also on replicas.",
    example: "> DSEM.INFO licences\n\
        1# \"capacity\" => (integer) 10\n\
        2# \"available\" => (integer) 6\n\
        3# \"leased\" => (integer) 1\n\
        4# \"taken\" => (integer) 3\n\
        5# \"waiters\" => (integer) 0",
    ..base::SHOW.of(Group::Semaphore)
};

pub(super) const PERMITS: Command = Command {
    name: "DSEM.PERMITS",
    id: CommandId::Sem(SemVerb::Permits),
    summary: "Lists the permits that are out with an owner and a lease.",
    args: &[SEMAPHORE],
    complexity: "O(N) with N the number of listed permits",
    reply: "Array of maps, empty if no permit is out:",
    maps: &[("", PermitInfo::FIELDS)],
    notes: "Changes nothing. Everything that has expired counts as ended, also on replicas.",
    example: "> DSEM.PERMITS licences\n\
        1) 1# \"id\" => \"0192f0c1-5a3e-7c44-9d3b-2f1a6c8e4b70\"\n\
        \x20  2# \"owner\" => \"worker-1\"\n\
        \x20  3# \"count\" => (integer) 1\n\
        \x20  4# \"ttl-ms\" => (integer) 27814\n\
        \x20  5# \"held-ms\" => (integer) 2186\n\
        \x20  6# \"label\" => \"\"\n\
        \x20  7# \"bound-client\" => (integer) 0",
    ..base::LIST.of(Group::Semaphore)
};

pub(super) const WAITERS: Command = Command {
    args: &[SEMAPHORE, COUNT],
    notes: "The owner of a waiting TAKE is empty. Changes nothing. Everything that has expired \
        counts as ended, also on replicas.",
    ..lock::WAITERS.of_family(
        "DSEM.WAITERS",
        CommandId::Sem(SemVerb::Waiters),
        Group::Semaphore,
        "> DSEM.WAITERS licences COUNT 10\n\
        1) 1# \"owner\" => \"worker-2\"\n\
        \x20  2# \"client-id\" => (integer) 12\n\
        \x20  3# \"waiting-ms\" => (integer) 1204\n\
        \x20  4# \"remaining-ms\" => (integer) 3796\n\
        \x20  5# \"label\" => \"\"",
    )
};

pub(super) const POSITION: Command = Command {
    args: &[SEMAPHORE, OWNER],
    notes: "0 means that the owner has a permit and does not wait for more. Changes nothing. \
        Everything that has expired counts as ended, also on replicas.",
    ..lock::POSITION.of_family(
        "DSEM.POSITION",
        CommandId::Sem(SemVerb::Position),
        Group::Semaphore,
        "> DSEM.POSITION licences worker-2\n(integer) 1",
    )
};
