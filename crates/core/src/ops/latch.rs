//! The verbs of count-down latches.

use crate::answers::{diverged, wrong_type};
use crate::effects::{Event, Outcome};
use crate::key::Key;
use crate::kind::Kind;
use crate::machine::Machine;
use crate::ops::call::wait_state_of;
use crate::ops::wait::nameless;
use crate::queues::waiter::{Demand, WaitRequest};
use crate::requests::LOST_LATCH;
use crate::spent::Use;
use crate::state::resource::{Body, Resource};
use crate::store::Lookup;
use crate::turn::{Step, Turn};
use dlock_wire::reply::ErrorCode;
use dlock_wire::request::{Await, CountDown, LatchInit};

/// Why waiters get `BROKEN`.
pub(crate) const BROKEN: &str = "the latch was deleted or its time ended before it was open";

impl Machine {
    /// DLATCH.INIT: closes a latch. `count` countdowns open it, and it may have an end. 1 if it closed the latch, 0 if
    /// one is closed already.
    pub fn latch_init(&mut self, turn: &mut Turn<'_>, call: &LatchInit<'_>) {
        let LatchInit { key, count, lease_ms } = *call;
        let answer = self.on_call(turn, Kind::Latch, key, |machine, step, resource| {
            let Body::Latch(latch) = &mut resource.body else { return wrong_type() };
            if latch.count > 0 {
                return Outcome::Count(0);
            }
            latch.count = count;
            latch.initial = count;
            latch.lease_ms = lease_ms;
            latch.deadline = lease_ms.map(|ms| step.lease + ms);
            machine.latch_is_there(step);
            step.dirty = true;
            Outcome::Count(1)
        });
        turn.fx.reply = Some(answer.unwrap_or_else(|_| wrong_type()));
    }

    /// DLATCH.COUNTDOWN: the remaining count, 0 for an open or missing latch. At 0 all waiters are answered. A REQID
    /// that the latch has seen counts nothing.
    pub fn count_down(&mut self, turn: &mut Turn<'_>, call: &CountDown<'_>) {
        let CountDown { key, n, reqid } = *call;
        let answer = self.on_call(turn, Kind::Latch, key, |machine, step, resource| {
            let Body::Latch(latch) = &mut resource.body else { return wrong_type() };
            if latch.count == 0 {
                return Outcome::Count(0);
            }
            step.dirty = true;
            if reqid.is_none_or(|id| !latch.requests.contains(id)) {
                latch.count -= n.min(latch.count);
                if let Some(id) = reqid {
                    latch.requests.insert(id.into());
                    latch.requests_new.push(id.into());
                }
                step.fx.note(step.key, Event::Release);
                machine.counters.releases += 1;
            }
            let count = latch.count;
            if count == 0 {
                // One of the same name may have been lost before: by RESTORE the name has a latch again without INIT.
                machine.latch_is_there(step);
                machine.open(step);
            }
            Outcome::Count(u64::from(count))
        });
        turn.fx.reply = Some(answer.unwrap_or_else(|_| wrong_type()));
    }

    /// Forgets that a latch of this name was lost.
    fn latch_is_there(&mut self, step: &mut Step<'_>) {
        if self.find_spent(step.key, LOST_LATCH, step.lease).is_some() {
            self.forget_spent(step, LOST_LATCH);
        }
    }

    /// Answers all waiters of a latch.
    fn open(&mut self, step: &mut Step<'_>) {
        if let Some(queue) = self.waits.queue_of(step.key)
            && self.waits.queue(queue).is_some_and(|queue| queue.kind == Kind::Latch)
        {
            self.waits.set_opened(queue, step.now.mono);
            self.answer_all(queue, &Outcome::Count(1), step.fx);
        }
    }

    /// The time of a latch ended before it was open.
    pub(crate) fn expire_latch(&mut self, step: &mut Step<'_>, resource: &mut Resource) {
        let Body::Latch(latch) = &mut resource.body else { return };
        **latch = crate::state::latch::Latch::default();
        self.note_spent(step, LOST_LATCH, Use::PassedOver);
        step.dirty = true;
        step.fx.note(step.key, Event::Expire);
        self.counters.expiries += 1;
        if let Some(queue) = self.waits.queue_of(step.key) {
            self.reject_queue(queue, ErrorCode::Broken, BROKEN, step.fx);
        }
    }

    /// Whether a latch that is not closed was lost before it opened: its absence would look as if it had opened.
    fn is_lost_latch(&self, turn: &mut Turn<'_>, key: Key<'_>) -> bool {
        // Its time may be over unnoticed.
        let is_overdue = matches!(turn.keys.get(key), Lookup::Here(_));
        let lease = self.regime.lease(turn.now.mono);
        is_overdue
            || self.find_spent(key, LOST_LATCH, lease).is_some()
            || turn.keys.has_lost_latch(key)
    }

    /// DLATCH.AWAIT: 1 if the latch is open or missing; but `BROKEN` if it is remembered as lost, and `DIVERGED` if
    /// this server may have missed it. Otherwise the call waits with BLOCK where that is possible (not on a replica),
    /// or gets Null. Changes no key.
    pub fn await_latch(&mut self, turn: &mut Turn<'_>, call: &Await<'_>) {
        let key = turn.caller.key(call.key);
        self.check_queue_of(turn, key);
        turn.fx.reply = match self.latch_info(turn.keys, turn.now, key) {
            Err(_) => Some(wrong_type()),
            Ok(None) if self.is_lost_latch(turn, key) => {
                Some(Outcome::fault(ErrorCode::Broken, BROKEN))
            }
            Ok(None) if self.regime.divergence.is_any() => Some(diverged(self.regime.divergence)),
            Ok(None) => Some(Outcome::Count(1)),
            Ok(Some(_)) => Some(Outcome::Null),
        };
        let wait_state = wait_state_of(turn.now, turn.caller, call.block_ms, None);
        let is_closed = turn.fx.reply == Some(Outcome::Null);
        let Some(wait_state) = wait_state.filter(|_| is_closed && self.regime.is_primary()) else {
            return;
        };
        // Its end may have passed unnoticed while writes are refused. A client that asks then gets no second message:
        // in the view the latch has ended already.
        debug_assert!(matches!(turn.keys.get(key), Lookup::Here(_)));
        self.note_wait_for(turn.keys, key);
        let ask = WaitRequest { demand: Demand::Open, ..WaitRequest::default() };
        let waiter = nameless(turn.caller.client, wait_state, turn.now.mono, ask);
        turn.fx.reply = self.park_nameless(Kind::Latch, key, waiter, turn.fx).err();
    }
}
