//! Whether the user may do what the client does: checked when a connection is made, because a lock that cannot be
//! released is found out too late.

use dlock_wire::table::{CommandId, LatchVerb, LockVerb, MultiVerb, RwVerb, SemVerb};
use redis::aio::MultiplexedConnection;
use redis::{RedisError, Value};

use crate::base::error::{Error, ErrorKind};

/// What to tell an operator.
const GRANT: &str =
    "grant the user these rights with ACL SETUSER (see Access in docs/operations.md of dlock)";

/// What a user that acquires needs as well, by family.
const FAMILIES: [[CommandId; 3]; 4] = [
    [
        CommandId::Lock(LockVerb::Acquire),
        CommandId::Lock(LockVerb::Renew),
        CommandId::Lock(LockVerb::Release),
    ],
    [
        CommandId::Fair(LockVerb::Acquire),
        CommandId::Fair(LockVerb::Renew),
        CommandId::Fair(LockVerb::Release),
    ],
    [CommandId::Rw(RwVerb::Acquire), CommandId::Rw(RwVerb::Renew), CommandId::Rw(RwVerb::Release)],
    [
        CommandId::Sem(SemVerb::Acquire),
        CommandId::Sem(SemVerb::Renew),
        CommandId::Sem(SemVerb::Release),
    ],
];

/// Enough to be of use: a user that only looks, or only waits for latches.
const OTHERS: [CommandId; 6] = [
    CommandId::Lock(LockVerb::Info),
    CommandId::Fair(LockVerb::Info),
    CommandId::Rw(RwVerb::Info),
    CommandId::Sem(SemVerb::Info),
    CommandId::Latch(LatchVerb::Info),
    CommandId::Latch(LatchVerb::Await),
];

/// The user may not subscribe to the channels of the client.
pub(super) fn may_not_subscribe(error: RedisError) -> Error {
    let is_refused = error.code() == Some("NOPERM");
    let error = Error::from_redis(error);
    if !is_refused {
        return error;
    }
    error.hint("the client hears of grants on its channels; grant the user `+subscribe &dlock:notify*` (ACL SETUSER)")
}

/// An error of kind Refused for a user that may run no command of dlock, or may acquire what it may not release.
///
/// The server checks the right to a command before the command itself. So the requests are well-formed but refused:
/// they change nothing. The first names no key, because a refused key would be in the ACL log.
pub(super) async fn check_rights(connection: &mut MultiplexedConnection) -> Result<(), Error> {
    let several = CommandId::Multi(MultiVerb::Renew).name();
    let mut ask = redis::pipe();
    ask.cmd(several).arg(0).arg("owner").arg("owner");
    if !is_denied(&replies(connection, &ask, 1).await?, 0, several) {
        return Ok(());
    }
    let commands: Vec<CommandId> = FAMILIES.as_flattened().iter().chain(&OTHERS).copied().collect();
    let mut ask = redis::pipe();
    for command in &commands {
        // The server checks the number of arguments first. Empty ones are refused, or found nowhere.
        ask.cmd(command.name()).arg(vec![""; required(*command)]);
    }
    let replies = replies(connection, &ask, commands.len()).await?;
    let asked = commands.iter().enumerate();
    let denied: Vec<bool> = asked.map(|(n, id)| is_denied(&replies, n, id.name())).collect();
    if denied.iter().all(|denied| *denied) {
        return Err(Error::new(
            ErrorKind::Refused,
            format!("the user may not run the commands of dlock: {GRANT}"),
        ));
    }
    for (family, denied) in FAMILIES.iter().zip(denied.chunks(3)) {
        if denied.first() == Some(&true) {
            continue;
        }
        let missing: Vec<_> = family.iter().zip(denied).filter(|(_, denied)| **denied).collect();
        if !missing.is_empty() {
            let names: Vec<_> = missing.iter().map(|(command, _)| command.name()).collect();
            let text =
                format!("the user may acquire, but may not run {}: {GRANT}", names.join(", "));
            return Err(Error::new(ErrorKind::Refused, text));
        }
    }
    Ok(())
}

/// How many arguments the command has at least.
fn required(command: CommandId) -> usize {
    let words = command.command().map_or(0, |row| row.arity.unsigned_abs());
    usize::try_from(words).map_or(0, |words| words.saturating_sub(1))
}

async fn replies(
    connection: &mut MultiplexedConnection,
    requests: &redis::Pipeline,
    count: usize,
) -> Result<Vec<Value>, Error> {
    connection.send_packed_commands(requests, 0, count).await.map_err(Error::from_redis)
}

/// Whether that reply says that the user may not run the command. NOPERM is also said of keys: only of a command the
/// text has its name.
fn is_denied(replies: &[Value], n: usize, command: &str) -> bool {
    let Some(Value::ServerError(error)) = replies.get(n) else { return false };
    let names = |detail: &str| detail.to_ascii_lowercase().contains(&command.to_ascii_lowercase());
    error.code() == "NOPERM" && error.details().is_some_and(names)
}
