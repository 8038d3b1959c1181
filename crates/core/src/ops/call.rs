//! What comes first in every call: what its connection allows, and that the connection is active.

use crate::effects::Outcome;
use crate::key::Key;
use crate::kind::Kind;
use crate::machine::Machine;
use crate::queues::waiter::WaitState;
use crate::state::hold::NO_CLIENT;
use crate::state::resource::Resource;
use crate::time::{Millis, Now};
use crate::turn::{Caller, Step, Turn, WrongType};
use alloc::format;
use dlock_wire::reply::ErrorCode;

impl Machine {
    /// Marks the connection active, then runs one verb on the key of a call.
    pub(crate) fn on_call<R>(
        &mut self,
        turn: &mut Turn<'_>,
        kind: Kind,
        key: &[u8],
        verb: impl FnOnce(&mut Self, &mut Step<'_>, &mut Resource) -> R,
    ) -> Result<R, WrongType> {
        self.mark_active(turn, turn.caller.client);
        let mut was_unresponsive = false;
        let key = turn.caller.key(key);
        let result = self.on_key(turn, kind, key, |machine, step, resource| {
            // A grant that expired before this call, and is found only by it, must not mark the connection unresponsive
            // again.
            was_unresponsive = machine.connections.mark_active(step.caller.client);
            verb(machine, step, resource)
        });
        if was_unresponsive {
            self.serve_waiters_of(turn, turn.caller.client);
        }
        result
    }

    /// Whether waiters of this key may have to be served: an event freed the key, and the tick has not come to it.
    pub fn is_behind(&self, key: Key<'_>) -> bool {
        self.waits.queue_of(key).is_some_and(|queue| self.waits.is_dirty(queue))
    }

    /// Serves the waiters of a key before a command looks at it, if [`Machine::is_behind`].
    pub fn catch_up(&mut self, turn: &mut Turn<'_>, key: Key<'_>) {
        let queue = self.waits.queue_of(key).filter(|&queue| self.waits.is_dirty(queue));
        if let Some(kind) = queue.and_then(|id| Some(self.waits.queue(id)?.kind)) {
            // A key of another type has no hold for them; the tick tells them.
            let _ = self.on_key(turn, kind, key, |machine, step, resource| {
                machine.hand_off(step, resource);
            });
        }
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
