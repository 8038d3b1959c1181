//! Rows that belong to no family.

use super::args::{APPLY_KEY, CLIENT_ID, ERROR, PAYLOAD};
use super::{Access, Command, CommandId, Group, KeyFlag, Keys};

pub(super) const UNBLOCK: Command = Command {
    name: "DLOCK.UNBLOCK",
    id: CommandId::Unblock,
    group: Group::Admin,
    summary: "Ends the blocked call of a connection.",
    like: None,
    since: "0.1.0",
    complexity: "O(1)",
    arity: 0,
    // Not a write: it must also work while clients are paused. The hand-off that follows waits
    // until the server accepts writes.
    access: Access::Connection,
    flags: "deny-script",
    acl: &["slow", "dangerous"],
    keys: Keys::None,
    key_flags: &[],
    args: &[CLIENT_ID, ERROR],
    reply: "Integer: 1 if it ended a blocked call of dlock, else 0.",
    maps: &[],
    errors: &[],
    notes: "Works for the blocked calls of all dlock commands on every server version. \
        CLIENT UNBLOCK does the same where the server makes that safe (Redis 7.4, Valkey 8).",
    example: "> DLOCK.UNBLOCK 12\n\
        (integer) 1\n\
        > DLOCK.UNBLOCK 12 ERROR\n\
        (integer) 0",
};

pub(super) const APPLY: Command = Command {
    name: "DLOCK.APPLY",
    id: CommandId::Apply,
    group: Group::Internal,
    summary: "Replays a change of the primary. Internal: refused to clients.",
    like: None,
    since: "0.1.0",
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
