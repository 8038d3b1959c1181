//! DFAIR: the rows of DLOCK, with a queue that is part of the key.

use super::command::{Command, Group};
use super::lock;
use crate::request::CommandId;

/// A row of DLOCK for DFAIR.
const fn fair(row: Command, name: &'static str, example: &'static str) -> Command {
    let id = match row.id {
        CommandId::Lock(verb) => CommandId::Fair(verb),
        other => other,
    };
    row.of_family(name, id, Group::Fair, example)
}

pub(super) const ACQUIRE: Command = Command {
    notes: "A place in the queue survives its connection, a restart and a failover: for QUEUE, \
        else for `dlock.fair-grace-ms`. An owner that repeats its request in that time with BLOCK \
        or QUEUE gets its old place. An owner that timed out or was unblocked without QUEUE leaves \
        the queue.",
    ..fair(
        lock::ACQUIRE,
        "DFAIR.ACQUIRE",
        "> DFAIR.ACQUIRE printer worker-1 PX 30000\n\
        (integer) 1767225600123456\n\
        > DFAIR.ACQUIRE printer worker-2 QUEUE 10000\n\
        (nil)\n\
        > DFAIR.POSITION printer worker-2\n\
        (integer) 1",
    )
};

pub(super) const RELEASE: Command =
    fair(lock::RELEASE, "DFAIR.RELEASE", "> DFAIR.RELEASE printer worker-1\n(integer) 0");

pub(super) const RENEW: Command = fair(
    lock::RENEW,
    "DFAIR.RENEW",
    "> DFAIR.RENEW printer worker-1 EX 60\n(integer) 1767225600123456",
);

pub(super) const CHECK: Command = Command {
    notes: "For fencing inside Redis, like DLOCK.CHECK: in a script on the primary, before its \
        first write, it stops the script unless the token is that of the current hold.",
    ..fair(lock::CHECK, "DFAIR.CHECK", "> DFAIR.CHECK printer 1767225600123456\n(integer) 1")
};

pub(super) const FENCE: Command = fair(
    lock::FENCE,
    "DFAIR.FENCE",
    "> DFAIR.FENCE printer worker-1 1767225600999999\n(integer) 1767225600999999",
);

pub(super) const BREAK: Command =
    fair(lock::BREAK, "DFAIR.BREAK", "> DFAIR.BREAK printer\n(integer) 1");

pub(super) const INFO: Command = fair(
    lock::INFO,
    "DFAIR.INFO",
    "> DFAIR.INFO printer\n\
    \x201# \"kind\" => \"dfair\"\n\
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
);

pub(super) const WAITERS: Command = Command {
    notes: "During its grace a place without a connection is listed with the client id 0. Changes \
        nothing. Everything that has expired counts as ended, also on replicas.",
    ..fair(
        lock::WAITERS,
        "DFAIR.WAITERS",
        "> DFAIR.WAITERS printer\n\
        1) 1# \"owner\" => \"worker-2\"\n\
        \x20  2# \"client-id\" => (integer) 0\n\
        \x20  3# \"waiting-ms\" => (integer) 1204\n\
        \x20  4# \"remaining-ms\" => (integer) 3796\n\
        \x20  5# \"label\" => \"\"",
    )
};

pub(super) const POSITION: Command =
    fair(lock::POSITION, "DFAIR.POSITION", "> DFAIR.POSITION printer worker-2\n(integer) 1");

pub(super) const AWAIT: Command =
    fair(lock::AWAIT, "DFAIR.AWAIT", "> DFAIR.AWAIT printer BLOCK 500\n(nil)\n(0.50s)");
