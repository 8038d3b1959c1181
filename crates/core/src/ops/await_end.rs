//! AWAIT of a lock: its callers observe a hold, and are answered when it ends.
//!
//! Observers take no place in the queue and are granted nothing. They wait in a queue of their own beside the one of
//! the key, so timeouts, lost connections, UNBLOCK, demotions and moved slots treat them like other blocked calls. All
//! observers of a key observe the same hold. The step that ends the hold answers them, and the next AWAIT begins
//! another queue.

use crate::answers::wrong_type;
use crate::effects::{Effects, Outcome};
use crate::events::flush;
use crate::events::keyspace::GONE;
use crate::ids::QueueId;
use crate::key::Key;
use crate::kind::Kind;
use crate::ops::call::wait_state_of;
use crate::ops::wait::nameless;
use crate::queues::waiter::{Demand, WaitRequest};
use crate::store::Lookup;
use crate::tables::Tables;
use crate::turn::Turn;
use crate::turn::index;
use crate::view;
use dlock_wire::reply::{ErrorCode, HoldEnd};
use dlock_wire::request::AwaitEnd;

/// DLOCK.AWAIT and DFAIR.AWAIT (`kind`): waits for the end of the hold in force. Answers at once if there is none,
/// or if it is not the one with TOKEN. Changes no key.
pub(crate) fn await_end(tables: &mut Tables, turn: &mut Turn<'_>, kind: Kind, call: &AwaitEnd<'_>) {
    let key = turn.caller.key(call.key);
    flush::check_queue_of(tables, turn, key);
    let lease = tables.regime.lease(turn.now.mono);
    // As in all reading commands, an expired hold has ended here, noticed or not.
    let Ok(found) = view::look_up(tables, turn.keys, kind, key) else {
        turn.fx.reply = Some(wrong_type());
        return;
    };
    let held = found.and_then(|resource| tables.in_force(resource, lease).next());
    let held = held.map(|(_, hold, _)| hold.token);
    let observed = held.filter(|held| call.token.is_none_or(|token| token == *held));
    let Some(token) = observed else {
        let how = call.token.map_or(HoldEnd::Free, |token| {
            tables.recent_ends.of(token).unwrap_or(HoldEnd::Unknown)
        });
        let answer = if call.reason { Outcome::Ended(how) } else { Outcome::Count(1) };
        turn.fx.reply = Some(answer);
        return;
    };
    let wait_state = wait_state_of(turn.now, turn.caller, call.block_ms, None);
    let Some(wait_state) = wait_state.filter(|_| tables.regime.is_primary()) else {
        turn.fx.reply = Some(Outcome::Null);
        return;
    };
    if let Some(former) = tables.waits.observers_of(key)
        && tables.waits.observed(former) != Some(token)
    {
        // The hold that these observe was replaced, and the tick has not come to that.
        tables.end_observed(former, turn.fx);
    }
    if let Err(refusal) = tables.has_room_in(tables.waits.observers_of(key), 1) {
        turn.fx.reply = Some(refusal);
        return;
    }
    let ask =
        WaitRequest { demand: Demand::End { with_reason: call.reason }, ..WaitRequest::default() };
    let waiter = nameless(turn.caller.client, wait_state, turn.now.mono, ask);
    let slot = tables.waits.join_observers(key, kind, token, waiter);
    index::note_wait_for(tables, turn.keys, key);
    turn.fx.parked = tables.note_waiter(slot);
}

impl Tables {
    /// The hold of a lock has ended.
    pub(crate) fn tell_observers(
        &mut self,
        key: Key<'_>,
        token: u64,
        how: HoldEnd,
        fx: &mut Effects,
    ) {
        self.recent_ends.note(token, how);
        if let Some(observers) = self.waits.observers_of(key) {
            if self.waits.observed(observers) == Some(token) {
                self.answer_all(observers, &Outcome::Ended(how), fx);
            } else {
                self.end_observed(observers, fx);
            }
        }
    }
}

/// After a change of the key that is no operation of ours: tells the observers if the hold is not there any more.
pub(crate) fn inspect_observers(tables: &mut Tables, turn: &mut Turn<'_>, id: QueueId) {
    let Some(queue) = tables.waits.queue(id) else { return };
    let is_same = |token| Some(token) == tables.waits.observed(id);
    match turn.keys.get(queue.key()) {
        Lookup::Here(resource)
            if resource.kind() == queue.kind
                && resource.lock().hold().is_some_and(|hold| is_same(hold.token)) => {}
        Lookup::Missing if tables.settings.cluster => {
            tables.reject_queue(id, ErrorCode::Moving, GONE, turn.fx);
        }
        Lookup::Here(_) | Lookup::Missing | Lookup::WrongType => tables.end_observed(id, turn.fx),
        Lookup::Elsewhere => tables.reject_queue(id, ErrorCode::Moving, GONE, turn.fx),
        Lookup::OutOfReach => tables.waits.mark_dirty(id),
    }
}

impl Tables {
    /// The hold that these observe is not there any more.
    fn end_observed(&mut self, observers: QueueId, fx: &mut Effects) {
        let token = self.waits.observed(observers);
        let how = token.and_then(|token| self.recent_ends.of(token));
        self.answer_all(observers, &Outcome::Ended(how.unwrap_or(HoldEnd::Deleted)), fx);
    }
}
