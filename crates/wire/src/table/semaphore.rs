//! DSEM: the rows of the semaphore.

use super::args::{
    BIND, BLOCK, CANCELLED, COUNT, KEY, LABEL, LEASE, NEW_LEASE, NOTIFY, OWNER, QUEUE, REQID,
};
use super::{
    Access, Arg, ArgKind, Bounds, Command, CommandId, Group, KeyFlag, SemVerb, acl, errors, lock,
};
use crate::names::PERMITS_MAX;
use crate::reply::ErrorCode;

const BASE: Command = Command { group: Group::Semaphore, args: &[SEMAPHORE], ..lock::BASE };

const SEMAPHORE: Arg = Arg { summary: "The semaphore.", ..KEY };

const PERMIT_COUNTS: Bounds = Bounds::number(1, PERMITS_MAX as u64, "");

const PERMITS_OF_INIT: Arg =
    Arg::plain("permits", ArgKind::Integer, PERMIT_COUNTS, "How many permits there are.");

const PERMIT_ID: Arg =
    Arg::plain("permit-id", ArgKind::String, Bounds::Uuid, "What DSEM.ACQUIRE answered.");

const N: Arg = Arg {
    optional: true,
    ..Arg::plain("n", ArgKind::Integer, PERMIT_COUNTS, "How many permits; without it 1.")
};

const TOO_WIDE: &str = "The number is above the capacity (RESIZE and INIT give this to who waits \
    for too many), or `dlock.max-waiters-per-key` or `dlock.max-waiters` is reached.";

pub(super) const INIT: Command = Command {
    name: "DSEM.INIT",
    id: CommandId::Sem(SemVerb::Init),
    summary: "Makes a semaphore.",
    complexity: "O(1), and O(1) for each waiter that is answered by it",
    arity: 3,
    access: Access::Write,
    flags: "write deny-oom fast",
    acl: acl::WRITE_FAST,
    key_flags: &[KeyFlag::Rw, KeyFlag::Insert],
    args: &[SEMAPHORE, PERMITS_OF_INIT],
    reply: "Integer: 1 if it was made, 0 if there is one already; that one is left as it is.",
    notes: "It stays until it is deleted. Who waits for it already is served in order of arrival; \
        who waits for more permits than there are gets LIMIT.",
    example: "> DSEM.INIT licences 10\n\
        (integer) 1\n\
        > DSEM.INIT licences 20\n\
        (integer) 0",
    ..BASE
};

pub(super) const RESIZE: Command = Command {
    name: "DSEM.RESIZE",
    id: CommandId::Sem(SemVerb::Resize),
    summary: "Changes the number of permits.",
    complexity: "O(N) with N the waiters that are answered by it",
    arity: -3,
    access: Access::Write,
    flags: "write",
    acl: acl::WRITE_SLOW,
    key_flags: &[KeyFlag::Rw, KeyFlag::Access, KeyFlag::Update],
    args: &[
        SEMAPHORE,
        Arg {
            optional: false,
            ..Arg::choice(
                "size",
                "One of the two must be given.",
                &[
                    PERMITS_OF_INIT,
                    Arg::part(
                        "BY",
                        "delta",
                        ArgKind::Integer,
                        Bounds::Number {
                            min: -(PERMITS_MAX as i64),
                            max: PERMITS_MAX as i64,
                            unit: "",
                        },
                        "How many more, or fewer when negative.",
                    ),
                ],
            )
        },
        REQID,
    ],
    reply: "Integer: how many permits can be had afterwards; negative while more are out than \
        there are.",
    errors: &[
        errors::NO_SEMAPHORE,
        (ErrorCode::Limit, "BY leaves the range of 1 to 2147483647 permits. Nothing was changed."),
    ],
    notes: "Permits that are out stay with those who have them. Who waits for more permits than \
        there are now gets LIMIT.",
    example: "> DSEM.RESIZE licences 12\n\
        (integer) 12\n\
        > DSEM.RESIZE licences BY -2\n\
        (integer) 10",
    ..BASE
};

pub(super) const ACQUIRE: Command = Command {
    name: "DSEM.ACQUIRE",
    id: CommandId::Sem(SemVerb::Acquire),
    summary: "Takes permits with an owner and a lease, or waits for them.",
    arity: -3,
    access: Access::Write,
    flags: "write deny-oom blocking",
    acl: acl::WRITE_BLOCKING,
    key_flags: &[KeyFlag::Rw, KeyFlag::Access, KeyFlag::Update],
    args: &[
        SEMAPHORE,
        OWNER,
        Arg::option(
            "COUNT",
            "count",
            ArgKind::Integer,
            PERMIT_COUNTS,
            "How many permits; without it 1.",
        ),
        Arg::option(
            "LIMIT",
            "permits",
            ArgKind::Integer,
            PERMIT_COUNTS,
            "If there is no semaphore, make it with so many permits; it goes when its last permit \
             is back and nobody waits. One that is there stays as it is.",
        ),
        NEW_LEASE,
        BLOCK,
        QUEUE,
        NOTIFY,
        REQID,
        BIND,
        LABEL,
    ],
    reply: "- Bulk string: the permit id, a UUID. One id stands for all permits of the call.\n\
        - Null: not granted (in time). With QUEUE the owner has a place in the queue now.",
    errors: &[
        errors::SPENT,
        errors::REPLACED,
        (ErrorCode::Limit, TOO_WIDE),
        errors::QUARANTINE,
        errors::UNBLOCKED,
        errors::MOVING,
    ],
    notes: "- Waiters are served in order of arrival, also for COUNT above 1: a wide request at \
        the head is not overtaken by narrow ones.\n\
        - Each call takes new permits; an owner may have any number. A repeat with the same REQID \
        answers the same permit id and takes nothing; when the permit is back, it gets SPENT.\n\
        - **No semaphore**: it has no permits. Callers with BLOCK or QUEUE wait until it is made; \
        LIMIT makes it.\n\
        - **A grant that is ready** for this owner (it waited with QUEUE) is claimed by an ACQUIRE \
        of the same COUNT.\n\
        - Who waits and asks again for a larger COUNT goes to the end of the queue.\n\
        - A permit whose lease runs out comes back by itself.\n\
        - Inside MULTI/EXEC and in scripts BLOCK does not wait. In scripts BIND and QUEUE are \
        refused.",
    example: "> DSEM.ACQUIRE licences worker-1 PX 30000\n\
        \"0192f0c1-5a3e-7c44-9d3b-2f1a6c8e4b70\"\n\
        > DSEM.ACQUIRE licences worker-2 COUNT 10\n\
        (nil)\n\
        > DSEM.ACQUIRE licences worker-2 COUNT 11\n\
        (error) LIMIT …",
    ..BASE
};

pub(super) const RELEASE: Command = Command {
    name: "DSEM.RELEASE",
    id: CommandId::Sem(SemVerb::Release),
    summary: "Gives back what ACQUIRE gave.",
    complexity: "O(1), and O(1) for each waiter that gets permits by it",
    arity: 3,
    access: Access::Write,
    flags: "write fast",
    acl: acl::WRITE_FAST,
    key_flags: &[KeyFlag::Rw, KeyFlag::Access, KeyFlag::Delete],
    args: &[SEMAPHORE, PERMIT_ID],
    reply: "Integer: how many permits can be had afterwards.",
    errors: &[errors::NOT_A_PERMIT],
    notes: "A repeat says NOTHELD: who resends a RELEASE takes that for success.",
    example: "> DSEM.RELEASE licences 0192f0c1-5a3e-7c44-9d3b-2f1a6c8e4b70\n\
        (integer) 10\n\
        > DSEM.RELEASE licences 0192f0c1-5a3e-7c44-9d3b-2f1a6c8e4b70\n\
        (error) NOTHELD …",
    ..BASE
};

pub(super) const RENEW: Command = Command {
    name: "DSEM.RENEW",
    id: CommandId::Sem(SemVerb::Renew),
    summary: "Sets the end of the lease anew, counted from now.",
    arity: -3,
    access: Access::Write,
    flags: "write fast",
    acl: acl::WRITE_FAST,
    key_flags: &[KeyFlag::Rw, KeyFlag::Access, KeyFlag::Update],
    args: &[
        SEMAPHORE,
        PERMIT_ID,
        Arg::choice("lease", "It is counted from now. Without a lease: the permit's own.", LEASE),
        BIND,
    ],
    reply: "Integer 1.",
    errors: &[errors::NOT_A_PERMIT],
    notes: "The end may be sooner or later than before. Without BIND the tie to a connection stays \
        as it is. RENEW also claims a grant that a QUEUE place got.",
    example: "> DSEM.RENEW licences 0192f0c1-5a3e-7c44-9d3b-2f1a6c8e4b70 EX 60\n(integer) 1",
    ..BASE
};

pub(super) const TAKE: Command = Command {
    name: "DSEM.TAKE",
    id: CommandId::Sem(SemVerb::Take),
    summary: "Takes permits that belong to nobody and have no lease, or waits for them.",
    arity: -2,
    access: Access::Write,
    flags: "write deny-oom blocking",
    acl: acl::WRITE_BLOCKING,
    key_flags: &[KeyFlag::Rw, KeyFlag::Access, KeyFlag::Update],
    args: &[SEMAPHORE, N, BLOCK, REQID],
    reply: "- Integer 1: taken.\n- Null: not granted (in time).",
    errors: &[
        (ErrorCode::Limit, TOO_WIDE),
        errors::QUARANTINE,
        errors::UNBLOCKED,
        errors::MOVING,
        errors::MISUSED_ID,
    ],
    notes: "For counting without owners: GIVE brings them back, from any connection. They stay \
        out when who took them crashes; permits with a lease do not. Waits in the same queue as \
        ACQUIRE, and overtakes nobody there. If there is no semaphore, a call with BLOCK waits \
        until it is made. A repeat with the same REQID takes nothing and answers 1; the ids of \
        TAKE, GIVE, DRAIN and RESIZE are known for `dlock.request-memory-ms`, also if the \
        semaphore was deleted since. Each call has an id of its own.",
    example: "> DSEM.TAKE licences 3\n\
        (integer) 1\n\
        > DSEM.TAKE licences 8\n\
        (nil)",
    ..BASE
};

pub(super) const GIVE: Command = Command {
    name: "DSEM.GIVE",
    id: CommandId::Sem(SemVerb::Give),
    summary: "Gives back what TAKE and DRAIN took.",
    complexity: "O(1), and O(1) for each waiter that gets permits by it",
    arity: -2,
    access: Access::Write,
    flags: "write fast",
    acl: acl::WRITE_FAST,
    key_flags: &[KeyFlag::Rw, KeyFlag::Access, KeyFlag::Update],
    args: &[SEMAPHORE, N, REQID],
    reply: "Integer: how many permits can be had afterwards.",
    errors: &[
        (ErrorCode::Limit, "It is more than TAKE and DRAIN took. Nothing was changed."),
        errors::NO_SEMAPHORE,
    ],
    notes: "A repeat with the same REQID counts nothing.",
    example: "> DSEM.GIVE licences 3\n\
        (integer) 10\n\
        > DSEM.GIVE licences\n\
        (error) LIMIT …",
    ..BASE
};

pub(super) const DRAIN: Command = Command {
    name: "DSEM.DRAIN",
    id: CommandId::Sem(SemVerb::Drain),
    summary: "Takes all permits that can be had.",
    arity: -2,
    access: Access::Write,
    flags: "write fast",
    acl: acl::WRITE_FAST,
    key_flags: &[KeyFlag::Rw, KeyFlag::Access, KeyFlag::Update],
    args: &[SEMAPHORE, REQID],
    reply: "Integer: how many it took. A repeat with the same REQID takes nothing and answers the \
        same.",
    errors: &[errors::NO_SEMAPHORE, errors::QUARANTINE],
    notes: "What it took belongs to nobody and has no lease; GIVE brings it back. While somebody \
        waits for permits it takes none.",
    example: "> DSEM.DRAIN licences\n\
        (integer) 10\n\
        > DSEM.DRAIN licences\n\
        (integer) 0",
    ..BASE
};

pub(super) const BREAK: Command = Command {
    name: "DSEM.BREAK",
    id: CommandId::Sem(SemVerb::Break),
    summary: "Ends a permit by force.",
    complexity: "O(1), and O(1) for each waiter that gets permits by it",
    arity: 3,
    access: Access::Write,
    flags: "write",
    acl: acl::WRITE_DANGEROUS,
    key_flags: &[KeyFlag::Rw, KeyFlag::Delete],
    args: &[SEMAPHORE, PERMIT_ID],
    reply: "Integer: 1 if the permit was out, else 0.",
    notes: "Those who wait get what comes back. The former holder is not stopped: its later \
        RELEASE and RENEW say NOTHELD.",
    example: "> DSEM.BREAK licences 0192f0c1-5a3e-7c44-9d3b-2f1a6c8e4b70\n(integer) 1",
    ..BASE
};

pub(super) const INFO: Command = Command {
    name: "DSEM.INFO",
    id: CommandId::Sem(SemVerb::Info),
    summary: "Shows how many permits there are and where they are.",
    reply: "Map, or Null if nothing is there:\n\n\
        | field | meaning |\n\
        |---|---|\n\
        | `capacity` | how many permits there are; 0 when the semaphore is waited for but not made |\n\
        | `available` | how many can be had; negative while more are out than there are |\n\
        | `leased` | how many are out by ACQUIRE |\n\
        | `taken` | how many are out by TAKE and DRAIN |\n\
        | `waiters` | length of the queue |",
    notes: "Changes nothing. Answers as if everything that is due had ended, also on replicas.",
    example: "> DSEM.INFO licences\n\
        1# \"capacity\" => (integer) 10\n\
        2# \"available\" => (integer) 6\n\
        3# \"leased\" => (integer) 1\n\
        4# \"taken\" => (integer) 3\n\
        5# \"waiters\" => (integer) 0",
    ..BASE
};

pub(super) const PERMITS: Command = Command {
    name: "DSEM.PERMITS",
    id: CommandId::Sem(SemVerb::Permits),
    summary: "Lists the permits that are out with an owner and a lease.",
    complexity: "O(N) with N the permits listed",
    flags: "readonly",
    acl: acl::READ_SLOW,
    reply: "Array of maps, empty if none is out:\n\n\
        | field | meaning |\n\
        |---|---|\n\
        | `id` | the permit id |\n\
        | `owner` | who has it |\n\
        | `count` | how many permits it stands for |\n\
        | `ttl-ms` | what is left of the lease |\n\
        | `held-ms` | how long it has been out |\n\
        | `label` | LABEL of the permit |\n\
        | `bound-client` | id of the connection that BIND ties it to; 0 for none |",
    notes: "Changes nothing. Answers as if everything that is due had ended, also on replicas.",
    example: "> DSEM.PERMITS licences\n\
        1) 1# \"id\" => \"0192f0c1-5a3e-7c44-9d3b-2f1a6c8e4b70\"\n\
        \x20  2# \"owner\" => \"worker-1\"\n\
        \x20  3# \"count\" => (integer) 1\n\
        \x20  4# \"ttl-ms\" => (integer) 27814\n\
        \x20  5# \"held-ms\" => (integer) 2186\n\
        \x20  6# \"label\" => \"\"\n\
        \x20  7# \"bound-client\" => (integer) 0",
    ..BASE
};

pub(super) const WAITERS: Command = Command {
    args: &[SEMAPHORE, COUNT],
    notes: "The owner of a waiting TAKE is empty. Changes nothing. Answers as if everything that \
        is due had ended, also on replicas.",
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
        Answers as if everything that is due had ended, also on replicas.",
    ..lock::POSITION.of_family(
        "DSEM.POSITION",
        CommandId::Sem(SemVerb::Position),
        Group::Semaphore,
        "> DSEM.POSITION licences worker-2\n(integer) 1",
    )
};

pub(super) const CANCEL: Command = Command {
    args: &[SEMAPHORE, OWNER, CANCELLED],
    ..lock::CANCEL.of_family(
        "DSEM.CANCEL",
        CommandId::Sem(SemVerb::Cancel),
        Group::Semaphore,
        "> DSEM.CANCEL licences worker-2\n(integer) 1",
    )
};
