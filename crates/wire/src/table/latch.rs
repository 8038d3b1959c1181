//! DLATCH: the rows of the count-down latch.

use super::command::{Command, Group};
use super::{base, errors, lock};
use crate::args::{COUNT, LATCH};
use crate::reply::{ErrorCode, LatchInfo};
use crate::request::{Await, CommandId, CountDown, LatchInit, LatchVerb};

pub(super) const INIT: Command = Command {
    name: "DLATCH.INIT",
    id: CommandId::Latch(LatchVerb::Init),
    summary: "Closes a latch that opens after a number of steps.",
    args: LatchInit::ARGS,
    reply: "Integer: 1 if it was set, 0 if there is a latch that is still closed, which does not \
        change.",
    notes: "If its time ends before it opens, it is removed and its waiters get BROKEN.",
    example: "> DLATCH.INIT ready 3\n\
        (integer) 1\n\
        > DLATCH.INIT ready 5\n\
        (integer) 0",
    ..base::INIT.of(Group::Latch)
};

pub(super) const COUNTDOWN: Command = Command {
    name: "DLATCH.COUNTDOWN",
    id: CommandId::Latch(LatchVerb::CountDown),
    summary: "Counts the latch down; at 0 it opens.",
    complexity: "O(1), plus O(N) with N the number of waiters when it opens",
    // It may grow the value: the latch remembers every request id.
    flags: "write deny-oom fast",
    args: CountDown::ARGS,
    reply: "Integer: the remaining count; 0 for an open or missing latch.",
    notes: "At 0 the server answers all waiters and removes the key. A step beyond 0 ends at 0. A \
        repeat with the same REQID counts nothing; a latch remembers all ids until it opens.",
    example: "> DLATCH.COUNTDOWN ready\n\
        (integer) 2\n\
        > DLATCH.COUNTDOWN ready 2 REQID worker-1\n\
        (integer) 0",
    ..base::CHANGE.of(Group::Latch)
};

pub(super) const AWAIT: Command = Command {
    name: "DLATCH.AWAIT",
    id: CommandId::Latch(LatchVerb::Await),
    summary: "Checks whether the latch is open, or waits until it is.",
    flags: "readonly blocking",
    acl: &["read", "slow", "blocking"],
    args: Await::ARGS,
    reply: "- Integer 1: the latch is open or missing.\n\
        - Null: the latch is closed, or still closed when the time elapsed.",
    errors: &[
        (
            ErrorCode::Broken,
            "The key was deleted or flushed, or its time ended before it opened. Except after a flush, also to \
            calls that come later, for `dlock.request-memory-ms` or until the next INIT.",
        ),
        (ErrorCode::Diverged, "The latch is missing, and the server may have missed it."),
        errors::TOO_MANY_WAITERS,
        errors::STOPPED,
        errors::UNBLOCKED,
        errors::MOVING,
    ],
    notes: "Changes nothing. Inside MULTI/EXEC, in scripts and on replicas it does not wait.",
    example: "> DLATCH.AWAIT ready\n\
        (nil)\n\
        > DLATCH.AWAIT ready BLOCK 5000\n\
        (integer) 1",
    ..base::SHOW.of(Group::Latch)
};

pub(super) const INFO: Command = Command {
    name: "DLATCH.INFO",
    id: CommandId::Latch(LatchVerb::Info),
    summary: "Shows the count of the latch.",
    args: &[LATCH],
    reply: "Map, or Null for an open or missing latch:",
    maps: &[("", LatchInfo::FIELDS)],
    notes: "Changes nothing. Everything that has expired counts as ended, also on replicas.",
    example: "> DLATCH.INFO ready\n\
        1# \"count\" => (integer) 2\n\
        2# \"initial\" => (integer) 3\n\
        3# \"ttl-ms\" => (integer) -1\n\
        4# \"waiters\" => (integer) 1",
    ..base::SHOW.of(Group::Latch)
};

pub(super) const WAITERS: Command = Command {
    args: &[LATCH, COUNT],
    summary: "Lists the waiters in order of arrival.",
    notes: "Owner and label of a waiting AWAIT are empty. Changes nothing. Everything that has \
        expired counts as ended, also on replicas.",
    ..lock::WAITERS.of_family(
        "DLATCH.WAITERS",
        CommandId::Latch(LatchVerb::Waiters),
        Group::Latch,
        "> DLATCH.WAITERS ready\n\
        1) 1# \"owner\" => \"\"\n\
        \x20  2# \"client-id\" => (integer) 12\n\
        \x20  3# \"waiting-ms\" => (integer) 1204\n\
        \x20  4# \"remaining-ms\" => (integer) 3796\n\
        \x20  5# \"label\" => \"\"",
    )
};
