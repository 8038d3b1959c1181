//! The doors for calls of clients, and what a connection allows.

use crate::base::key::Key;
use crate::base::kind::Kind;
use crate::base::time::{Millis, Now};
use crate::ports::answers::wrong_type;
use crate::ports::effects::{Answer, Outcome};
use crate::ports::turn::{Caller, Turn, WrongType};
use crate::run::{activity, enter};
use crate::step::Step;
use crate::step::requests::Call;
use crate::tables::Tables;
use crate::tables::queues::waiter::WaitState;
use crate::value::hold::NO_CLIENT;
use crate::value::resource::Resource;
use alloc::format;
use dlock_wire::reply::ErrorCode;

/// Runs one verb on the key of a call and answers it, unless it repeats a request that is over: then nothing is
/// done.
pub(crate) fn on_request<A: Into<Answer>>(
    tables: &mut Tables,
    turn: &mut Turn<'_>,
    key: &[u8],
    call: Call<'_>,
    verb: impl FnOnce(&mut Step<'_>, &mut Resource) -> A,
) -> Answer {
    let answer = on_call(tables, turn, call.kind, key, |step, resource| {
        step.end_if_expired(resource, |resource| call.may_be_about(resource));
        if call.id.is_some()
            && let Some(outcome) = step.recall(resource, call)
        {
            return outcome.into();
        }
        verb(step, resource).into()
    });
    answer.unwrap_or_else(|_| tables.answer_alone(turn.caller.key(key), call, turn.now).into())
}

/// Marks the connection active, then runs one verb on the key of a call.
pub(crate) fn on_call<R>(
    tables: &mut Tables,
    turn: &mut Turn<'_>,
    kind: Kind,
    key: &[u8],
    verb: impl FnOnce(&mut Step<'_>, &mut Resource) -> R,
) -> Result<R, WrongType> {
    activity::mark_active(tables, turn, turn.caller.client);
    let mut was_unresponsive = false;
    let key = turn.caller.key(key);
    let result = enter::on_key(tables, turn, kind, key, |step, resource| {
        // A grant that expired before this call, and is found only by it, must not mark the connection unresponsive
        // again.
        was_unresponsive = step.tables.connections.mark_active(step.caller.client);
        verb(step, resource)
    });
    if was_unresponsive {
        activity::serve_waiters_of(tables, turn, turn.caller.client);
    }
    result
}

/// [`on_call`] for a verb that answers at once.
pub(crate) fn on_short_call(
    tables: &mut Tables,
    turn: &mut Turn<'_>,
    kind: Kind,
    key: &[u8],
    verb: impl FnOnce(&mut Step<'_>, &mut Resource) -> Outcome,
) -> Answer {
    on_call(tables, turn, kind, key, verb).unwrap_or_else(|_| wrong_type()).into()
}

/// Serves the waiters of a key before a command looks at it, if its queue is dirty.
pub(crate) fn catch_up(tables: &mut Tables, turn: &mut Turn<'_>, key: Key<'_>) {
    let queue = tables.waits.queue_of(key).filter(|&queue| tables.waits.is_dirty(queue));
    if let Some(kind) = queue.and_then(|id| Some(tables.waits.queue(id)?.kind)) {
        // A key of another type has no hold for them; the tick tells them.
        let _ = enter::on_key(tables, turn, kind, key, |step, resource| {
            step.hand_off(resource);
        });
    }
}

/// How a call waits, if it does.
pub(crate) fn wait_state_of(
    now: Now,
    caller: Caller,
    block_ms: Option<Millis>,
    queue_ms: Option<Millis>,
) -> Option<WaitState> {
    match block_ms {
        Some(ms) if caller.may_block => {
            Some(WaitState::Blocked { until: (ms > 0).then(|| now.mono + ms) })
        }
        _ => queue_ms.map(|_| WaitState::Connected),
    }
}

/// BIND and QUEUE need a connection, and a script has none.
pub(crate) fn refused_in_script(
    caller: Caller,
    bind_ms: Option<Millis>,
    queue_ms: Option<Millis>,
) -> Option<Outcome> {
    if caller.client != NO_CLIENT {
        return None;
    }
    let option = bind_ms.map(|_| "BIND").or(queue_ms.map(|_| "QUEUE"))?;
    let text = format!("{option} cannot be used in a script: the connection is unknown there");
    Some(Outcome::fault(ErrorCode::Err, text))
}
