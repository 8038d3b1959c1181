//! What comes first in every call: what its connection allows, and that the connection is active.

use crate::effects::Outcome;
use crate::kind::Kind;
use crate::machine::Machine;
use crate::queues::waiter::Presence;
use crate::state::hold::NO_CLIENT;
use crate::state::resource::Resource;
use crate::time::{Millis, Now};
use crate::turn::{Caller, Foreign, Step, Turn};
use alloc::format;
use dlock_wire::reply::ErrorCode;

impl Machine {
    /// Marks the connection active, then runs one verb on the key of a call.
    pub(crate) fn on_call<R>(
        &mut self,
        turn: &mut Turn<'_>,
        (kind, key): (Kind, &[u8]),
        verb: impl FnOnce(&mut Self, &mut Step<'_>, &mut Resource) -> R,
    ) -> Result<R, Foreign> {
        self.mark_active(turn, turn.caller.client);
        let mut was_hung = false;
        let key = (kind, turn.caller.key(key));
        let result = self.on_key(turn, key, |machine, step, resource| {
            // A grant that expired before this call, and is found only by it, must not mark the connection unresponsive
            // again.
            was_hung = machine.connections.rouse(step.caller.client);
            verb(machine, step, resource)
        });
        if was_hung {
            self.serve_places_of(turn, turn.caller.client);
        }
        result
    }
}

/// How a call waits, if it does.
pub(crate) fn presence_of(
    now: Now,
    caller: Caller,
    block_ms: Option<Millis>,
    queue_ms: Option<Millis>,
) -> Option<Presence> {
    match block_ms {
        Some(ms) if caller.may_block => {
            Some(Presence::Parked { until: (ms > 0).then(|| now.mono + ms) })
        }
        _ => queue_ms.map(|_| Presence::Queued),
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
