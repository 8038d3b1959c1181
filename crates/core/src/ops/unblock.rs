//! UNBLOCK: an operator ends a blocked call.

use crate::effects::Outcome;
use crate::machine::Machine;
use crate::observe::GivesUp;
use crate::portions::Slots;
use crate::shares::User;
use crate::turn::Turn;
use dlock_wire::reply::ErrorCode;
use dlock_wire::request::{EndAbsent, Unblock};

/// Largest number of places that one call ends.
const MOST_ENDED: usize = 10_000;

impl Machine {
    /// DLOCK.UNBLOCK ABSENT-KEY and ABSENT-USER: ends waiters whose connection is closed. Returns their number. They
    /// block no others, so nothing is handed off.
    pub fn end_absent(&mut self, turn: &mut Turn<'_>, call: EndAbsent<'_>) {
        let some: Slots = match call {
            EndAbsent::At(name) => {
                let queue = self.waits.queue_of(turn.caller.key(name)).into_iter();
                queue.flat_map(|queue| self.waits.absent_in(queue)).take(MOST_ENDED).collect()
            }
            EndAbsent::Of(name) => {
                self.waits.absent_of(User::named(name)).take(MOST_ENDED).collect()
            }
        };
        for &slot in &some {
            self.remove_waiter(slot);
        }
        turn.fx.reply = Some(Outcome::Count(some.len() as u64));
    }

    /// DLOCK.UNBLOCK: ends the blocked call of a connection with Null or `UNBLOCKED`. Returns whether there was one.
    pub fn unblock(&mut self, turn: &mut Turn<'_>, call: Unblock) {
        let outcome = if call.error {
            Outcome::fault(ErrorCode::Unblocked, "an operator ended this call (DLOCK.UNBLOCK)")
        } else {
            Outcome::Null
        };
        let blocked = self.connections.blocked_call(call.client);
        let Some(waiter) = blocked.and_then(|id| self.waits.by_id(id)) else {
            let was_former = self.unblock_former(call.client, &outcome, turn.fx);
            turn.fx.reply = Some(Outcome::Count(u64::from(was_former)));
            return;
        };
        let slot = waiter.id.slot();
        turn.fx.wake(waiter.id, outcome);
        self.observe_giving_up(turn.keys, turn.now, slot, GivesUp::Unblocked);
        self.stop_waiting(slot);
        self.drain_dirty(turn);
        turn.fx.reply = Some(Outcome::Count(1));
    }
}
