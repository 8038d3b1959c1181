//! The verbs of count-down latches.

use crate::base::key::Key;
use crate::base::kind::Kind;
use crate::ports::answers::{BROKEN, diverged, wrong_type};
use crate::ports::effects::{Answer, Event, Outcome};
use crate::ports::store::Lookup;
use crate::ports::turn::Turn;
use crate::run::call::wait_state_of;
use crate::run::{call, keyspace};
use crate::step::wait::nameless;
use crate::step::{Step, index};
use crate::tables::Tables;
use crate::value::resource::Body;
use crate::value::spent::LOST_LATCH;
use crate::value::wait_request::{Demand, WaitRequest};
use crate::view;
use dlock_wire::reply::ErrorCode;
use dlock_wire::request::{Await, CountDown, LatchInit};

/// DLATCH.INIT: closes a latch. `count` countdowns open it, and it may have an end. 1 if it closed the latch, 0 if
/// one is closed already.
pub(crate) fn latch_init(tables: &mut Tables, turn: &mut Turn<'_>, call: &LatchInit<'_>) -> Answer {
    let LatchInit { key, count, lease_ms } = *call;
    call::on_short_call(tables, turn, Kind::Latch, key, |step, resource| {
        let Body::Latch(latch) = &mut resource.body else { return wrong_type() };
        if latch.count > 0 {
            return Outcome::Count(0);
        }
        latch.count = count;
        latch.initial = count;
        latch.lease_ms = lease_ms;
        latch.deadline = lease_ms.map(|ms| step.lease + ms);
        step.latch_is_there();
        step.dirty = true;
        Outcome::Count(1)
    })
}

/// DLATCH.COUNTDOWN: the remaining count, 0 for an open or missing latch. At 0 all waiters are answered. A REQID
/// that the latch has seen counts nothing.
pub(crate) fn count_down(tables: &mut Tables, turn: &mut Turn<'_>, call: &CountDown<'_>) -> Answer {
    let CountDown { key, n, reqid } = *call;
    call::on_short_call(tables, turn, Kind::Latch, key, |step, resource| {
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
            step.tables.counters.releases += 1;
        }
        let count = latch.count;
        if count == 0 {
            // One of the same name may have been lost before: by RESTORE the name has a latch again without INIT.
            step.latch_is_there();
            step.open();
        }
        Outcome::Count(u64::from(count))
    })
}

impl Step<'_> {
    /// Forgets that a latch of this name was lost.
    fn latch_is_there(&mut self) {
        if self.tables.find_spent(self.key, LOST_LATCH, self.lease).is_some() {
            self.forget_spent(LOST_LATCH);
        }
    }

    /// Answers all waiters of a latch.
    fn open(&mut self) {
        if let Some(queue) = self.tables.waits.queue_of(self.key)
            && self.tables.waits.queue(queue).is_some_and(|queue| queue.kind == Kind::Latch)
        {
            self.tables.waits.set_opened(queue, self.now.mono);
            self.tables.answer_all(queue, &Outcome::Count(1), self.fx);
        }
    }
}

/// Whether a latch that is not closed was lost before it opened: its absence would look as if it had opened.
fn is_lost_latch(tables: &Tables, turn: &mut Turn<'_>, key: Key<'_>) -> bool {
    // Its time may be over unnoticed.
    let is_overdue = matches!(turn.keys.get(key), Lookup::Here(_));
    let lease = tables.regime.lease(turn.now.mono);
    is_overdue
        || tables.find_spent(key, LOST_LATCH, lease).is_some()
        || turn.keys.has_lost_latch(key)
}

/// DLATCH.AWAIT: 1 if the latch is open or missing; but `BROKEN` if it is remembered as lost, and `DIVERGED` if
/// this server may have missed it. Otherwise the call waits with BLOCK where that is possible (not on a replica),
/// or gets Null. Changes no key.
pub(crate) fn await_latch(tables: &mut Tables, turn: &mut Turn<'_>, call: &Await<'_>) -> Answer {
    let key = turn.caller.key(call.key);
    keyspace::check_queue_of(tables, turn, key);
    let outcome = match view::latch_info(tables, turn.keys, turn.now, key) {
        Err(_) => wrong_type(),
        Ok(None) if is_lost_latch(tables, turn, key) => Outcome::fault(ErrorCode::Broken, BROKEN),
        Ok(None) if tables.regime.divergence.is_any() => diverged(tables.regime.divergence),
        Ok(None) => Outcome::Count(1),
        Ok(Some(_)) => Outcome::Null,
    };
    let wait_state = wait_state_of(turn.now, turn.caller, call.block_ms, None);
    let is_closed = outcome == Outcome::Null;
    let Some(wait_state) = wait_state.filter(|_| is_closed && tables.regime.is_primary()) else {
        return outcome.into();
    };
    // Its end may have passed unnoticed while writes are refused. A client that asks then gets no second message:
    // in the view the latch has ended already.
    debug_assert!(matches!(turn.keys.get(key), Lookup::Here(_)));
    index::note_wait_for(tables, turn.keys, key);
    let ask = WaitRequest { demand: Demand::Open, ..WaitRequest::default() };
    let waiter = nameless(turn.caller.client, wait_state, turn.now.mono, ask);
    tables.park_nameless(Kind::Latch, key, waiter, turn.fx)
}
