//! UNBLOCK: an operator ends a blocked call.

use crate::base::shares::User;
use crate::ports::effects::{Answer, Outcome};
use crate::ports::turn::Turn;
use crate::run::drain;
use crate::step::giving_up;
use crate::step::giving_up::GivesUp;
use crate::tables::Tables;
use crate::tables::portions::Slots;
use dlock_wire::reply::ErrorCode;
use dlock_wire::request::{EndAbsent, Unblock};

/// Largest number of places that one call ends.
const MOST_ENDED: usize = 10_000;

/// DLOCK.UNBLOCK ABSENT-KEY and ABSENT-USER: ends waiters whose connection is closed. Returns their number. They
/// block no others, so nothing is handed off.
pub(crate) fn end_absent(tables: &mut Tables, turn: &mut Turn<'_>, call: EndAbsent<'_>) -> Answer {
    let some: Slots = match call {
        EndAbsent::At(name) => {
            let queue = tables.waits.queue_of(turn.caller.key(name)).into_iter();
            queue.flat_map(|queue| tables.waits.absent_in(queue)).take(MOST_ENDED).collect()
        }
        EndAbsent::Of(name) => tables.waits.absent_of(User::named(name)).take(MOST_ENDED).collect(),
    };
    for &slot in &some {
        tables.remove_waiter(slot);
    }
    Outcome::Count(some.len() as u64).into()
}

/// DLOCK.UNBLOCK: ends the blocked call of a connection with Null or `STOPPED`. Returns whether there was one.
pub(crate) fn unblock(tables: &mut Tables, turn: &mut Turn<'_>, call: Unblock) -> Answer {
    let outcome = if call.error {
        Outcome::fault(ErrorCode::Stopped, "an operator ended this call (DLOCK.UNBLOCK)")
    } else {
        Outcome::Null
    };
    let blocked = tables.connections.blocked_call(call.client);
    let Some(waiter) = blocked.and_then(|id| tables.waits.by_id(id)) else {
        let was_former = tables.pending.unblock_former(call.client, &outcome, turn.fx);
        return Outcome::Count(u64::from(was_former)).into();
    };
    let slot = waiter.id.slot();
    turn.fx.wake(waiter.id, outcome);
    giving_up::observe_giving_up(tables, turn.keys, turn.now, slot, GivesUp::Unblocked);
    tables.stop_waiting(slot);
    drain::drain_dirty(tables, turn);
    Outcome::Count(1).into()
}
