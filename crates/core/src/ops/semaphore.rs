//! The verbs of semaphores besides ACQUIRE.

use crate::base::kind::Kind;
use crate::ports::answers::{in_quarantine, wrong_type};
use crate::ports::effects::{Answer, Event, Outcome};
use crate::ports::turn::Turn;
use crate::run::call;
use crate::run::call::wait_state_of;
use crate::step::Step;
use crate::step::hand_off::Verdict;
use crate::step::requests::{Asks, Call, resized};
use crate::step::wait::nameless;
use crate::tables::Tables;
use crate::value::resource::{Body, Resource};
use crate::value::semaphore::Semaphore;
use crate::value::spent::Use;
use crate::value::wait_request::{Demand, WaitRequest};
use alloc::format;
use dlock_wire::names::PERMITS_MAX;
use dlock_wire::permit::{self, PermitId};
use dlock_wire::reply::ErrorCode;
use dlock_wire::request::{Drain, Give, Resize, ResizeTo, SemInit, Take};

/// DSEM.INIT: makes a semaphore with this number of permits. 1 if it did, 0 if there is one already.
pub(crate) fn sem_init(tables: &mut Tables, turn: &mut Turn<'_>, call: &SemInit<'_>) -> Answer {
    call::on_short_call(tables, turn, Kind::Semaphore, call.key, |step, resource| {
        let Some(semaphore) = resource.semaphore_mut() else { return wrong_type() };
        if semaphore.capacity > 0 {
            return Outcome::Count(0);
        }
        semaphore.capacity = call.permits;
        semaphore.is_passing = false;
        step.capacity_changed(resource, call.permits);
        Outcome::Count(1)
    })
}

/// DSEM.RESIZE: returns the number of free permits afterwards, negative while more are out. `ERR` if there is no
/// such semaphore, `LIMIT` for a size outside 1..2^31-1. Waiters that ask for more than the new size get `LIMIT`.
pub(crate) fn resize(tables: &mut Tables, turn: &mut Turn<'_>, call: &Resize<'_>) -> Answer {
    let Resize { key, to, reqid } = *call;
    let request = Call::without_owner(reqid, Asks::Resize(to));
    call::on_request(tables, turn, key, request, |step, resource| {
        let found = match made(step, resource) {
            Ok(found) => found,
            Err(fault) => return fault,
        };
        let size = match to {
            ResizeTo::Absolute(permits) => i64::from(permits),
            ResizeTo::By(delta) => i64::from(found.capacity).saturating_add(delta),
        };
        let size = u32::try_from(size).ok().filter(|size| (1..=PERMITS_MAX).contains(size));
        let Some(capacity) = size else {
            let text = format!(
                "{} has {} permits; it can have 1 to {PERMITS_MAX}",
                crate::ports::answers::quoted(step.key.name),
                found.capacity
            );
            return Outcome::fault(ErrorCode::Limit, text);
        };
        found.capacity = capacity;
        step.spend(request, resized(to));
        step.capacity_changed(resource, capacity);
        Outcome::Available(resource.available())
    })
}

/// DSEM.TAKE: takes permits without owner and lease, or waits for them. Taken, or Null; `LIMIT` for more than the
/// semaphore has, `QUARANTINE` if only that is in the way.
pub(crate) fn take(tables: &mut Tables, turn: &mut Turn<'_>, call: &Take<'_>) -> Answer {
    let request = Call::without_owner(call.reqid, Asks::Take(call.n));
    call::on_request(tables, turn, call.key, request, |step, resource| {
        step.take_here(resource, call)
    })
}

impl Step<'_> {
    fn take_here(&mut self, resource: &mut Resource, call: &Take<'_>) -> Answer {
        self.hand_off(resource);
        let request = Call::without_owner(call.reqid, Asks::Take(call.n));
        if call.reqid.is_some()
            && let Some(outcome) = self.recall(resource, request)
        {
            // A waiting call with the same id was just granted.
            return outcome.into();
        }
        let demand = Demand::Taken(call.n);
        if let Verdict::Never(text) = self.verdict(resource, &[], demand) {
            return Outcome::fault(ErrorCode::Limit, text).into();
        }
        if self.is_open(resource, &[], demand) {
            let Body::Semaphore(semaphore) = &mut resource.body else { return wrong_type().into() };
            semaphore.taken += call.n;
            self.spend(request, Use::Taken(call.n));
            self.tables.counters.grants_at_once += 1;
            self.dirty = true;
            self.granted = true;
            self.fx.note(self.key, Event::Acquire);
            return Outcome::Taken.into();
        }
        let Some(wait_state) = wait_state_of(self.now, self.caller, call.block_ms, None) else {
            return self.refuse(resource, &[], demand).into();
        };
        let ask =
            WaitRequest { demand, request: call.reqid.map(Into::into), ..WaitRequest::default() };
        let waiter = nameless(self.caller.client, wait_state, self.now.mono, ask);
        self.tables.park_nameless(Kind::Semaphore, self.key, waiter, self.fx)
    }
}

/// DSEM.GIVE: returns permits of TAKE and DRAIN. The reply is the number of free permits afterwards; `LIMIT` for
/// more than were taken, `ERR` if there is no such semaphore.
pub(crate) fn give(tables: &mut Tables, turn: &mut Turn<'_>, call: &Give<'_>) -> Answer {
    let Give { key, n, reqid } = *call;
    let request = Call::without_owner(reqid, Asks::Give(n));
    call::on_request(tables, turn, key, request, |step, resource| {
        let found = match made(step, resource) {
            Ok(found) => found,
            Err(fault) => return fault,
        };
        if found.taken < n {
            let text = format!(
                "{n} are given back and {} of {} are taken",
                found.taken,
                crate::ports::answers::quoted(step.key.name)
            );
            return Outcome::fault(ErrorCode::Limit, text);
        }
        found.taken -= n;
        step.spend(request, Use::Given(n));
        step.tables.counters.releases += 1;
        step.dirty = true;
        step.fx.note(step.key, Event::Release);
        step.hand_off(resource);
        Outcome::Available(resource.available())
    })
}

/// DSEM.DRAIN: takes all free permits, as TAKE does. Returns their number; 0 while there are waiters. `ERR` if
/// there is no such semaphore, `QUARANTINE` as for TAKE.
pub(crate) fn drain(tables: &mut Tables, turn: &mut Turn<'_>, call: &Drain<'_>) -> Answer {
    let Drain { key, reqid } = *call;
    let request = Call::without_owner(reqid, Asks::Drain);
    call::on_request(tables, turn, key, request, |step, resource| {
        step.hand_off(resource);
        if let Err(fault) = made(step, resource) {
            return fault;
        }
        let left = step.tables.regime.quarantine_left(step.now.mono);
        if left > 0 && resource.semaphore_mut().is_some_and(|found| found.has(1, None)) {
            return in_quarantine(left);
        }
        let is_open = step.is_open(resource, &[], Demand::Taken(1));
        let found = match made(step, resource) {
            Ok(found) => found,
            Err(fault) => return fault,
        };
        let most = if is_open { found.available().max(0) } else { 0 };
        let n = u32::try_from(most).unwrap_or(0);
        found.taken += n;
        step.spend(request, Use::Drained(n));
        step.dirty |= n > 0;
        if n > 0 {
            step.granted = true;
            step.tables.counters.grants_at_once += 1;
            step.fx.note(step.key, Event::Acquire);
        }
        Outcome::Count(u64::from(n))
    })
}

impl Step<'_> {
    /// Waiters that ask for more than there are get `LIMIT`; the others may be granted.
    fn capacity_changed(&mut self, resource: &mut Resource, capacity: u32) {
        self.dirty = true;
        if let Some(queue) = self.tables.waits.queue_of(self.key) {
            self.refuse_wide(queue, capacity);
        }
        self.hand_off(resource);
    }
}

/// The semaphore, unless it exists only for its waiters.
fn made<'r>(step: &Step<'_>, resource: &'r mut Resource) -> Result<&'r mut Semaphore, Outcome> {
    let found = resource.semaphore_mut().filter(|semaphore| semaphore.capacity > 0);
    found.ok_or_else(|| {
        let text = format!("no such semaphore: {}", crate::ports::answers::quoted(step.key.name));
        Outcome::fault(ErrorCode::Err, text)
    })
}

pub(crate) fn not_out(step: &Step<'_>, id: PermitId) -> Outcome {
    let text = permit::text(&id);
    let text = core::str::from_utf8(&text).unwrap_or_default();
    let key = crate::ports::answers::quoted(step.key.name);
    Outcome::fault(ErrorCode::NotHeld, format!("permit {text} of {key} is unknown or has ended"))
}
