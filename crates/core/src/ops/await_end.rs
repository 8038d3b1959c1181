//! AWAIT of a lock: its callers observe a hold, and are answered when it ends.
//!
//! Observers take no place in the queue and are granted nothing. They wait in a queue of their own beside the one of
//! the key, so timeouts, lost connections, UNBLOCK, demotions and moved slots treat them like other blocked calls. All
//! observers of a key observe the same hold. The step that ends the hold answers them, and the next AWAIT begins
//! another queue.

use crate::base::kind::Kind;
use crate::ports::answers::wrong_type;
use crate::ports::effects::{Answer, Outcome};
use crate::ports::turn::Turn;
use crate::run::call::wait_state_of;
use crate::run::keyspace;
use crate::step::index;
use crate::step::wait::nameless;
use crate::tables::Tables;
use crate::value::wait_request::{Demand, WaitRequest};
use crate::view;
use dlock_wire::reply::HoldEnd;
use dlock_wire::request::AwaitEnd;

/// DLOCK.AWAIT and DFAIR.AWAIT (`kind`): waits for the end of the hold in force. Answers at once if there is none,
/// or if it is not the one with TOKEN. Changes no key.
pub(crate) fn await_end(
    tables: &mut Tables,
    turn: &mut Turn<'_>,
    kind: Kind,
    call: &AwaitEnd<'_>,
) -> Answer {
    let key = turn.caller.key(call.key);
    keyspace::check_queue_of(tables, turn, key);
    let lease = tables.regime.lease(turn.now.mono);
    // As in all reading commands, an expired hold has ended here, noticed or not.
    let Ok(found) = view::look_up(tables, turn.keys, kind, key) else {
        return wrong_type().into();
    };
    let held = found.and_then(|resource| tables.in_force(resource, lease).next());
    let held = held.map(|(_, hold, _)| hold.token);
    let observed = held.filter(|held| call.token.is_none_or(|token| token == *held));
    let Some(token) = observed else {
        let how = call.token.map_or(HoldEnd::Free, |token| {
            tables.recent_ends.of(token).unwrap_or(HoldEnd::Unknown)
        });
        let answer = if call.reason { Outcome::Ended(how) } else { Outcome::Count(1) };
        return answer.into();
    };
    let wait_state = wait_state_of(turn.now, turn.caller, call.block_ms, None);
    let Some(wait_state) = wait_state.filter(|_| tables.regime.is_primary()) else {
        return Outcome::Null.into();
    };
    if let Some(former) = tables.waits.observers_of(key)
        && tables.waits.observed(former) != Some(token)
    {
        // The hold that these observe was replaced, and the tick has not come to that.
        tables.end_observed(former, turn.fx);
    }
    if let Err(refusal) = tables.has_room_in(tables.waits.observers_of(key), 1) {
        return refusal.into();
    }
    let ask =
        WaitRequest { demand: Demand::End { with_reason: call.reason }, ..WaitRequest::default() };
    let waiter = nameless(turn.caller.client, wait_state, turn.now.mono, ask);
    let slot = tables.waits.join_observers(key, kind, token, waiter);
    index::note_wait_for(tables, turn.keys, key);
    tables.park(slot)
}
