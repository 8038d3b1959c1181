//! The end of a queue: all of its waiters get the same answer. The latch has opened, the observed hold has ended, or
//! the key is gone, has another type now, or moved to another node.

use crate::answers::quoted;
use crate::effects::{Effects, Fault, Outcome};
use crate::ids::QueueId;
use crate::queues::waiter::{Demand, Waiter};
use crate::tables::Tables;
use alloc::format;
use dlock_wire::reply::ErrorCode;

impl Tables {
    /// Ends all waits of a queue, and the queue: blocked calls get the answer, queue entries without a call are
    /// removed. O(waiters).
    pub(crate) fn answer_all(&mut self, queue: QueueId, answer: &Outcome, fx: &mut Effects) {
        let Some(found) = self.waits.queue(queue) else { return };
        let opened = found.opened();
        if found.matters_to_value() {
            // If the value is there all the same, it has no queue entries from now on: it may exist only for them.
            let (db, name) = (found.db, found.name.clone());
            self.revisit_later(db, &name);
        }
        for slot in self.waits.waiters_of(queue) {
            let Some(waiter) = self.remove_waiter(slot) else { continue };
            if waiter.wait_state.is_parked() {
                fx.wake(waiter.id, told(&waiter, answer));
                self.counters.grants_after_waiting += u64::from(*answer == Outcome::Count(1));
                if let Some(opened) = opened {
                    self.latency.opened(opened, &waiter);
                }
            }
        }
        self.waits.close_if_empty(queue);
    }
}

/// The form in which one waiter gets the answer to all.
pub(crate) fn told(waiter: &Waiter, answer: &Outcome) -> Outcome {
    match answer {
        Outcome::Ended(_) if waiter.ask.demand == (Demand::End { with_reason: false }) => {
            Outcome::Count(1)
        }
        Outcome::Fault(Fault { code: ErrorCode::Moving, text }) if !waiter.owner.is_empty() => {
            Outcome::fault(ErrorCode::Moving, format!("{}: {text}", quoted(&waiter.owner)))
        }
        _ => answer.clone(),
    }
}
