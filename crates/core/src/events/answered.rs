//! Queues whose waiters all get the same answer. The latch has opened, or the key is gone, has another type now, or
//! moved to another node.
//!
//! A queue can have very many waiters. So the queue leaves its key and keeps its answer, and the tick answers the
//! waiters, a few at a time. New waiters find another queue under the key, or none.

use crate::answers::quoted;
use crate::effects::{Effects, Fault, Outcome};
use crate::ids::{QueueId, WaiterSlot};
use crate::machine::Machine;
use crate::portions::{LEAVE_AT_ONCE, Slots, WEIGHT_AT_ONCE};
use crate::queues::waiter::{Demand, Queue, Waiter};
use alloc::format;
use dlock_wire::reply::ErrorCode;

impl Machine {
    /// Ends all waits of a queue: blocked calls get the answer, queue entries without a call are removed. The first
    /// waiters are served at once, unless this step has done enough; the tick serves the others.
    pub(crate) fn answer_all(&mut self, queue: QueueId, answer: Outcome, fx: &mut Effects) {
        let Some(found) = self.waits.queue(queue).filter(|queue| queue.is_live()) else { return };
        if found.matters_to_value() {
            // If the value is there all the same, it has no queue entries from now on: it may exist only for them.
            let (db, name) = (found.db, found.name.clone());
            self.revisit_later(db, &name);
        }
        self.answer_first(queue, answer, self.wide_at_once, fx);
    }

    /// [`Machine::answer_all`] for a live queue: at most this number of waiters are served at once.
    pub(crate) fn answer_first(
        &mut self,
        queue: QueueId,
        answer: Outcome,
        most: usize,
        fx: &mut Effects,
    ) {
        self.waits.set_answered(queue);
        let most = if fx.weight() < WEIGHT_AT_ONCE { most } else { 0 };
        if self.answer_some(queue, &answer, most, fx) {
            self.pending.answered.insert(queue, answer);
        }
    }

    /// Continues with that; `false` if nothing is left.
    pub(crate) fn answer_more(&mut self, fx: &mut Effects) -> bool {
        let Some((queue, answer)) = self.pending.answered.pop_first() else { return false };
        if self.answer_some(queue, &answer, LEAVE_AT_ONCE, fx) {
            self.pending.answered.insert(queue, answer);
        }
        true
    }

    /// Returns whether any waiters are left. The queue is removed with its last waiter: while its number is in the
    /// list, no other queue may get the number.
    fn answer_some(
        &mut self,
        queue: QueueId,
        answer: &Outcome,
        most: usize,
        fx: &mut Effects,
    ) -> bool {
        let some: Slots = self.waits.walk_all(queue).map(|(slot, _)| slot).take(most).collect();
        for slot in some {
            if self.waits.get(slot).is_some_and(|waiter| self.waits.is_gone(waiter)) {
                // The call is over; only this queue entry of it is left.
                self.waits.leave(slot);
            } else {
                self.answer_one(slot, answer, fx);
            }
        }
        self.waits.close_if_empty(queue);
        self.waits.queue(queue).is_some()
    }

    /// Whether waiters have an answer that is not sent yet.
    pub(crate) fn has_answered(&self) -> bool {
        !self.pending.answered.is_empty()
    }

    /// The answer that a waiter has already, if it is not sent yet.
    pub(crate) fn answer_of(&self, waiter: &Waiter) -> Option<Outcome> {
        self.pending.answered.get(&waiter.queue).map(|answer| told(waiter, answer))
    }

    pub(crate) fn answer_one(&mut self, slot: WaiterSlot, answer: &Outcome, fx: &mut Effects) {
        let queue = self.waits.get(slot).and_then(|waiter| self.waits.queue(waiter.queue));
        let opened = queue.and_then(Queue::opened);
        let Some(waiter) = self.remove_waiter(slot) else { return };
        if waiter.wait_state.is_parked() {
            fx.wake(waiter.id, told(&waiter, answer));
            self.counters.grants_after_waiting += u64::from(*answer == Outcome::Count(1));
            if let Some(opened) = opened {
                self.latency.opened(opened, &waiter);
            }
        }
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
