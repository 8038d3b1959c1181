//! What comes first in every call: what its connection allows, and that the connection is active.

use crate::effects::Outcome;
use crate::events::activity;
use crate::key::Key;
use crate::kind::Kind;
use crate::queues::WaitQueues;
use crate::queues::waiter::WaitState;
use crate::state::hold::NO_CLIENT;
use crate::state::resource::Resource;
use crate::tables::Tables;
use crate::time::{Millis, Now};
use crate::turn;
use crate::turn::{Caller, Step, Turn, WrongType};
use alloc::format;
use dlock_wire::reply::ErrorCode;

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
    let result = turn::on_key(tables, turn, kind, key, |step, resource| {
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

impl WaitQueues {
    /// Whether waiters of this key may have to be served: an event freed the key, and the tick has not come to it.
    pub fn is_behind(&self, key: Key<'_>) -> bool {
        self.queue_of(key).is_some_and(|queue| self.is_dirty(queue))
    }
}

/// Serves the waiters of a key before a command looks at it, if [`WaitQueues::is_behind`].
pub(crate) fn catch_up(tables: &mut Tables, turn: &mut Turn<'_>, key: Key<'_>) {
    let queue = tables.waits.queue_of(key).filter(|&queue| tables.waits.is_dirty(queue));
    if let Some(kind) = queue.and_then(|id| Some(tables.waits.queue(id)?.kind)) {
        // A key of another type has no hold for them; the tick tells them.
        let _ = turn::on_key(tables, turn, kind, key, |step, resource| {
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
