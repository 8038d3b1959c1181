//! The caller: what its connection allows, and what runs first when it sends a command.

use crate::effects::Outcome;
use crate::machine::{Machine, Role, Slots};
use crate::queues::waiter::Presence;
use crate::state::hold::NO_CLIENT;
use crate::state::resource::{Kind, Resource};
use crate::time::{Millis, Now};
use crate::turn::{Caller, Foreign, Step, Turn};
use alloc::format;
use dlock_wire::reply::ErrorCode;

impl Machine {
    /// A dlock command came over `client`: its waiters count again if they were skipped.
    pub fn mark_active(&mut self, turn: &mut Turn<'_>, client: u64) {
        // A grant that expired before this command, and is found only now, must not mark the connection unresponsive
        // again.
        while self.connections.rouse(client) && self.role == Role::Primary {
            self.serve_places_of(turn, client);
        }
    }

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

    pub(crate) fn serve_places_of(&mut self, turn: &mut Turn<'_>, client: u64) {
        self.stall_places_of(client, false);
        self.work_off_stalled(turn);
    }

    /// Marks the queues dirty in which a connection has waiters: the first of them now, and the rest in the tick. With
    /// `wide_only` it leaves out queues of locks for one holder.
    pub(crate) fn stall_places_of(&mut self, client: u64, wide_only: bool) {
        self.to_stall.retain(|&(other, ..)| other != client);
        self.to_stall.push_front((client, 0, wide_only));
        self.stall_more_places();
    }

    /// Whether some of those queues are left.
    pub(crate) fn has_places_to_stall(&self) -> bool {
        !self.to_stall.is_empty()
    }

    /// Continues with that; `false` if nothing is left.
    pub(crate) fn stall_more_places(&mut self) -> bool {
        let Some((client, from, wide_only)) = self.to_stall.pop_front() else { return false };
        let Some(connection) = self.connections.get(client) else { return true };
        let mut places = connection.places.range(from..).copied();
        let some: Slots = places.by_ref().take(self.wide_at_once).collect();
        if let Some(next) = places.next() {
            self.to_stall.push_back((client, next, wide_only));
        }
        for slot in some {
            let Some(queue) = self.waits.get(slot).map(|waiter| waiter.queue) else { continue };
            let kind = self.waits.queue(queue).map(|queue| queue.kind);
            if !wide_only || matches!(kind, Some(Kind::Rw | Kind::Semaphore)) {
                self.waits.stall(queue);
            }
        }
        true
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
