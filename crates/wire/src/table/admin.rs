//! Rows that belong to no family.

use super::command::{Access, Command, Group, KeyFlag, Keys};
use crate::args::{APPLY_KEY, LOG_SUBCOMMAND, PAYLOAD, UNBLOCKED};
use crate::reply::LogEntry;
use crate::request::CommandId;

pub(super) const UNBLOCK: Command = Command {
    name: "DLOCK.UNBLOCK",
    id: CommandId::Unblock,
    group: Group::Admin,
    summary: "Ends the blocked call of a connection, or places of closed connections.",
    like: None,
    since: "1.0.0",
    complexity: "O(1); ABSENT-KEY: O(N) with N the length of the queue; ABSENT-USER: O(N log M) with N the number \
        of ended places, and M that of the user",
    arity: 0,
    // Not a write: it must also work while clients are paused. The hand-off that follows waits
    // until the server accepts writes.
    access: Access::Connection,
    flags: "deny-script",
    acl: &["slow", "dangerous"],
    keys: Keys::None,
    key_flags: &[],
    args: &[UNBLOCKED],
    reply: "Integer: 1 if it ended a blocked call of dlock, else 0. ABSENT-KEY and ABSENT-USER: the number of ended \
        places.",
    maps: &[],
    errors: &[],
    notes: "Works for the blocked calls of all dlock commands on every server version. \
        CLIENT UNBLOCK does the same where the server makes that safe (Redis 7.4, Valkey 8), but \
        it stops no client: its error UNBLOCKED means to ask again.\n\
        \n\
        ABSENT-KEY and ABSENT-USER end places that calls with QUEUE left behind when their connection closed. They \
        end at most 10,000: repeat the call until it replies 0. Places in the queues of DFAIR stay. An owner that \
        asks again gets a new place.",
    example: "> DLOCK.UNBLOCK 12\n\
        (integer) 1\n\
        > DLOCK.UNBLOCK 12 ERROR\n\
        (integer) 0\n\
        > DLOCK.UNBLOCK ABSENT-USER batch\n\
        (integer) 0",
};

pub(super) const TRUST: Command = Command {
    name: "DLOCK.TRUST",
    id: CommandId::Trust,
    group: Group::Admin,
    summary: "Lets a diverged server grant again: an operator has compared its locks.",
    like: None,
    since: "1.0.0",
    complexity: "O(N) with N the number of keys that have waiters",
    arity: 0,
    access: Access::Write,
    flags: "write admin deny-script",
    acl: &["admin", "write", "slow", "dangerous"],
    keys: Keys::None,
    key_flags: &[],
    args: &[],
    reply: "Integer: the number of records that the server had refused; 0 if it was not diverged.",
    maps: &[],
    errors: &[],
    notes: "A server that could not read a record of its primary, or of its own file, is diverged: it does not \
        know who holds what, and every call for a grant gets `DIVERGED`. \
        [operations](operations.md#diverged-servers) says how to compare. From this command on the server \
        believes its data. Its replicas and its append-only file learn of it; a replica that refused records \
        itself stays diverged. On a replica the server refuses the command.",
    example: "> DLOCK.TRUST\n\
        (integer) 0",
};

pub(super) const LOG: Command = Command {
    name: "DLOCK.LOG",
    id: CommandId::Log,
    group: Group::Admin,
    summary: "Shows the last notable events: lost holds, deadlocks, slow waits.",
    like: None,
    since: "1.0.0",
    complexity: "GET: O(N) with N the number of entries in the reply; LEN: O(1); RESET: O(N) with N \
        the length of the log",
    arity: 0,
    access: Access::Server,
    // As SLOWLOG: it reads no data, so it also works while the server loads, or follows nobody.
    flags: "admin allow-loading allow-stale",
    acl: &["admin", "slow", "dangerous"],
    keys: Keys::None,
    key_flags: &[],
    args: &[LOG_SUBCOMMAND],
    reply: "GET: Array of maps, newest first. LEN: Integer, the number of entries. RESET: `OK`.",
    maps: &[("", LogEntry::FIELDS)],
    errors: &[],
    notes: "The log is like SLOWLOG: it is in memory only, each server has its own, and a new entry \
        replaces the oldest once there are `dlock.log-max-len` (128; 0 turns the log off). Only the \
        primary writes entries, so the log of a replica grows only after a promotion. \
        Nothing is written to the server's log file. A repeat of one of the last 16 entries replaces that entry: \
        with a new id, the last times and token, and a larger `count`.\n\
        \n\
        | event | what happened |\n\
        |---|---|\n\
        | `expired` | a lease elapsed before RELEASE |\n\
        | `disconnected` | the connection that BIND names closed, and the hold ended |\n\
        | `broken` | an operator ended a hold with BREAK; `text` names the operator's connection, \
        except in scripts |\n\
        | `unclaimed` | a QUEUE grant was not claimed in time |\n\
        | `evicted` | the server evicted the key to free memory: its holder may still work, and others can get the \
        lock; \
        `owner` and `token` are those of its first hold |\n\
        | `deadlock` | an ACQUIRE got `DEADLOCK`; `text` is the cycle, without the keys that the caller may \
        not read |\n\
        | `spent` | a late copy of an ACQUIRE got `SPENT` |\n\
        | `slow-wait` | a wait longer than `dlock.log-wait-ms` (10,000; 0: off) was granted or given \
        up; `text` names a holder it waited for, if one is known |\n\
        | `long-hold` | a hold was released after more than `dlock.log-hold-ms` (0: off) |\n\
        \n\
        Keys, owners and labels are chosen by clients. They come as raw bytes, cut to 128 bytes: \
        quote them before you print them (`dlock` and `redis-cli` do).",
    example: "> DLOCK.LOG RESET\n\
        OK\n\
        > DLOCK.BREAK orders:7\n\
        (integer) 1\n\
        > DLOCK.LOG LEN\n\
        (integer) 1\n\
        > DLOCK.LOG GET 1\n\
        1)  1# \"id\" => (integer) 1\n    \
            2# \"time-ms\" => (integer) 1767225607900\n    \
            3# \"event\" => \"broken\"\n    \
            4# \"kind\" => \"dlock\"\n    \
            5# \"db\" => (integer) 0\n    \
            6# \"key\" => \"orders:7\"\n    \
            7# \"owner\" => \"worker-1\"\n    \
            8# \"label\" => \"\"\n    \
            9# \"token\" => (integer) 1767225600123456\n   \
           10# \"held-ms\" => (integer) 7777\n   \
           11# \"waited-ms\" => (integer) 0\n   \
           12# \"waiters\" => (integer) 0\n   \
           13# \"text\" => \"by client …\n   \
           14# \"count\" => (integer) 1\n   \
           15# \"first-ms\" => (integer) 1767225607900",
};

pub(super) const APPLY: Command = Command {
    name: "DLOCK.APPLY",
    id: CommandId::Apply,
    group: Group::Internal,
    summary: "Replays a change of the primary. Internal: refused to clients.",
    like: None,
    since: "1.0.0",
    complexity: "O(N) with N the length of the payload",
    arity: 0,
    access: Access::Write,
    flags: "write",
    acl: &["write", "slow", "dangerous"],
    keys: Keys::First,
    key_flags: &[KeyFlag::Rw, KeyFlag::Update],
    args: &[APPLY_KEY, PAYLOAD],
    reply: "None that a client sees.",
    maps: &[],
    errors: &[],
    notes: "Replicas and the append-only file get this command in place of the commands above: the \
        effect with its outcome, never the request. This page lists it because statistics of \
        replicas and the append-only file show it.",
    example: "",
};
