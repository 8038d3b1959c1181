//! The caller: what its connection allows, and what runs first when it sends a command.

use super::{Foreign, Machine, Role, Slots, Step};
use crate::effects::{Effects, Outcome};
use crate::hold::NO_CLIENT;
use crate::queue::Presence;
use crate::resource::{Kind, Resource};
use crate::store::{Key, Store};
use crate::time::{Millis, Now};
use alloc::format;
use dlock_wire::reply::ErrorCode;

/// The caller of a verb, and what the server allows on its connection.
#[derive(Debug, Clone, Copy)]
pub struct Caller {
    /// The connection; [`NO_CLIENT`] in a script, where it is unknown.
    pub client: u64,
    /// Its database.
    pub db: u32,
    /// The server would let this call block: it is in neither MULTI nor a script.
    pub may_block: bool,
}

impl Caller {
    /// The key `name` in the database of the caller.
    pub fn key(self, name: &[u8]) -> Key<'_> {
        Key { db: self.db, name }
    }
}

impl Machine {
    /// A dlock command came over `client`: its waiters count again if they were skipped.
    pub fn rouse<S: Store>(&mut self, store: &mut S, now: Now, client: u64, fx: &mut Effects) {
        // A grant that expired before this command, and is found only now, must not mark the connection unresponsive
        // again.
        while self.connections.rouse(client) && self.role == Role::Primary {
            self.serve_places_of(store, now, client, fx);
        }
    }

    /// Marks the connection active, then runs one verb on the key of a call.
    pub(super) fn on_call<S: Store, R>(
        &mut self,
        store: &mut S,
        now: Now,
        caller: Caller,
        (kind, key): (Kind, &[u8]),
        fx: &mut Effects,
        verb: impl FnOnce(&mut Self, &mut Step<'_>, &mut Resource) -> R,
    ) -> Result<R, Foreign> {
        self.rouse(store, now, caller.client, fx);
        let mut was_hung = false;
        let key = (kind, caller.key(key));
        let result = self.on_key(store, key, now, fx, |machine, step, resource| {
            // A grant that expired before this call, and is found only by it, must not mark the connection unresponsive
            // again.
            was_hung = machine.connections.rouse(caller.client);
            verb(machine, step, resource)
        });
        if was_hung {
            self.serve_places_of(store, now, caller.client, fx);
        }
        result
    }

    pub(super) fn serve_places_of<S: Store>(
        &mut self,
        store: &mut S,
        now: Now,
        client: u64,
        fx: &mut Effects,
    ) {
        self.stall_places_of(client, false);
        self.work_off_stalled(store, now, fx);
    }

    /// Marks the queues dirty in which a connection has waiters: the first of them now, and the rest in the tick. With
    /// `wide_only` it leaves out queues of locks for one holder.
    pub(super) fn stall_places_of(&mut self, client: u64, wide_only: bool) {
        self.to_stall.retain(|&(other, ..)| other != client);
        self.to_stall.push_front((client, 0, wide_only));
        self.stall_more_places();
    }

    /// Whether some of those queues are left.
    pub(crate) fn has_places_to_stall(&self) -> bool {
        !self.to_stall.is_empty()
    }

    /// Continues with that; `false` if nothing is left.
    pub(super) fn stall_more_places(&mut self) -> bool {
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
pub(super) fn presence_of(
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
pub(super) fn refused_in_script(
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
