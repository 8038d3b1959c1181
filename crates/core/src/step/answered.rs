//! The end of a queue: all of its waiters get the same answer. The latch has opened, the observed hold has ended, or
//! the key is gone, has another type now, or moved to another node.

use crate::base::ids::QueueId;
use crate::ports::answers::quoted;
use crate::ports::effects::{Effects, Fault, Outcome};
use crate::tables::Tables;
use crate::tables::pending::Pending;
use crate::tables::queues::waiter::Waiter;
use crate::value::wait_request::Demand;
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

impl Tables {
    /// Ends all waits of a queue: blocked calls get the error, queue entries without a call are removed.
    pub(crate) fn reject_queue(
        &mut self,
        queue: QueueId,
        code: ErrorCode,
        text: &str,
        fx: &mut Effects,
    ) {
        self.answer_all(queue, &Outcome::fault(code, text), fx);
    }
}

impl Pending {
    /// Ends the blocked call of a former waiter with this answer. Returns whether there was one.
    pub(crate) fn unblock_former(
        &mut self,
        client: u64,
        outcome: &Outcome,
        fx: &mut Effects,
    ) -> bool {
        let found = self.former.iter_mut().find_map(|former| {
            let waiter = former.waits.strike(former.call_of(client)?)?;
            Some((waiter.id, told(&waiter, outcome)))
        });
        let Some((id, answer)) = found else { return false };
        fx.wake(id, answer);
        true
    }
}
