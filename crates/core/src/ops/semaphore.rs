//! The verbs of semaphores besides ACQUIRE.

use crate::answers::{in_quarantine, too_wide, wrong_type};
use crate::effects::{Event, Outcome};
use crate::hand_off::Verdict;
use crate::ids::{QueueId, WaiterSlot};
use crate::kind::Kind;
use crate::machine::Machine;
use crate::ops::call::wait_state_of;
use crate::ops::wait::nameless;
use crate::queues::waiter::{Demand, WaitRequest};
use crate::requests::{Asks, Call, resized};
use crate::spent::Use;
use crate::state::resource::{Body, Resource};
use crate::state::semaphore::Semaphore;
use crate::turn::{Step, Turn};
use alloc::format;
use alloc::vec::Vec;
use dlock_wire::names::PERMITS_MAX;
use dlock_wire::permit::{self, PermitId};
use dlock_wire::reply::ErrorCode;
use dlock_wire::request::{Drain, Give, Resize, ResizeTo, SemInit, Take};

impl Machine {
    /// DSEM.INIT: makes a semaphore with this number of permits. 1 if it did, 0 if there is one already.
    pub fn sem_init(&mut self, turn: &mut Turn<'_>, call: &SemInit<'_>) {
        self.on_semaphore(turn, call.key, |machine, step, resource| {
            let Some(semaphore) = resource.semaphore_mut() else { return wrong_type() };
            if semaphore.capacity > 0 {
                return Outcome::Count(0);
            }
            semaphore.capacity = call.permits;
            semaphore.is_passing = false;
            machine.capacity_changed(step, resource, call.permits);
            Outcome::Count(1)
        });
    }

    /// DSEM.RESIZE: returns the number of free permits afterwards, negative while more are out. `ERR` if there is no
    /// such semaphore, `LIMIT` for a size outside 1..2^31-1. Waiters that ask for more than the new size get `LIMIT`.
    pub fn resize(&mut self, turn: &mut Turn<'_>, call: &Resize<'_>) {
        let Resize { key, to, reqid } = *call;
        let call = Call::without_owner(reqid, Asks::Resize(to));
        self.on_counted(turn, key, call, |machine, step, resource| {
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
                    crate::answers::quoted(step.key.name),
                    found.capacity
                );
                return Outcome::fault(ErrorCode::Limit, text);
            };
            found.capacity = capacity;
            machine.spend(step, call, resized(to));
            machine.capacity_changed(step, resource, capacity);
            Outcome::Available(resource.available())
        });
    }

    /// DSEM.TAKE: takes permits without owner and lease, or waits for them. Taken, or Null; `LIMIT` for more than the
    /// semaphore has, `QUARANTINE` if only that is in the way.
    pub fn take(&mut self, turn: &mut Turn<'_>, call: &Take<'_>) {
        let request = Call::without_owner(call.reqid, Asks::Take(call.n));
        self.on_request(turn, call.key, request, |machine, step, resource| {
            machine.take_here(step, resource, call)
        });
    }

    /// Returns `None` if the caller is parked.
    fn take_here(
        &mut self,
        step: &mut Step<'_>,
        resource: &mut Resource,
        call: &Take<'_>,
    ) -> Option<Outcome> {
        self.hand_off(step, resource);
        let request = Call::without_owner(call.reqid, Asks::Take(call.n));
        if call.reqid.is_some()
            && let Some(outcome) = self.recall(step, resource, request)
        {
            // A waiting call with the same id was just granted.
            return Some(outcome);
        }
        let demand = Demand::Taken(call.n);
        if let Verdict::Never(text) = self.verdict(step, resource, &[], demand) {
            return Some(Outcome::fault(ErrorCode::Limit, text));
        }
        if self.is_open(step, resource, &[], demand) {
            let Body::Semaphore(semaphore) = &mut resource.body else { return Some(wrong_type()) };
            semaphore.taken += call.n;
            self.spend(step, request, Use::Taken(call.n));
            self.counters.grants_at_once += 1;
            step.dirty = true;
            step.granted = true;
            step.fx.note(step.key, Event::Acquire);
            return Some(Outcome::Taken);
        }
        let Some(wait_state) = wait_state_of(step.now, step.caller, call.block_ms, None) else {
            return Some(self.refuse(step, resource, &[], demand));
        };
        let ask =
            WaitRequest { demand, request: call.reqid.map(Into::into), ..WaitRequest::default() };
        let waiter = nameless(step.caller.client, wait_state, step.now.mono, ask);
        self.park_nameless(Kind::Semaphore, step.key, waiter, step.fx).err()
    }

    /// DSEM.GIVE: returns permits of TAKE and DRAIN. The reply is the number of free permits afterwards; `LIMIT` for
    /// more than were taken, `ERR` if there is no such semaphore.
    pub fn give(&mut self, turn: &mut Turn<'_>, call: &Give<'_>) {
        let Give { key, n, reqid } = *call;
        let call = Call::without_owner(reqid, Asks::Give(n));
        self.on_counted(turn, key, call, |machine, step, resource| {
            let found = match made(step, resource) {
                Ok(found) => found,
                Err(fault) => return fault,
            };
            if found.taken < n {
                let text = format!(
                    "{n} are given back and {} of {} are taken",
                    found.taken,
                    crate::answers::quoted(step.key.name)
                );
                return Outcome::fault(ErrorCode::Limit, text);
            }
            found.taken -= n;
            machine.spend(step, call, Use::Given(n));
            machine.counters.releases += 1;
            step.dirty = true;
            step.fx.note(step.key, Event::Release);
            machine.hand_off(step, resource);
            Outcome::Available(resource.available())
        });
    }

    /// DSEM.DRAIN: takes all free permits, as TAKE does. Returns their number; 0 while there are waiters. `ERR` if
    /// there is no such semaphore, `QUARANTINE` as for TAKE.
    pub fn drain(&mut self, turn: &mut Turn<'_>, call: &Drain<'_>) {
        let Drain { key, reqid } = *call;
        let call = Call::without_owner(reqid, Asks::Drain);
        self.on_counted(turn, key, call, |machine, step, resource| {
            machine.hand_off(step, resource);
            if let Err(fault) = made(step, resource) {
                return fault;
            }
            let left = machine.quarantine_left(step.now.mono);
            if left > 0 && resource.semaphore_mut().is_some_and(|found| found.has(1, None)) {
                return in_quarantine(left);
            }
            let is_open = machine.is_open(step, resource, &[], Demand::Taken(1));
            let found = match made(step, resource) {
                Ok(found) => found,
                Err(fault) => return fault,
            };
            let most = if is_open { found.available().max(0) } else { 0 };
            let n = u32::try_from(most).unwrap_or(0);
            found.taken += n;
            machine.spend(step, call, Use::Drained(n));
            step.dirty |= n > 0;
            if n > 0 {
                step.granted = true;
                machine.counters.grants_at_once += 1;
                step.fx.note(step.key, Event::Acquire);
            }
            Outcome::Count(u64::from(n))
        });
    }

    /// Runs a verb that answers at once.
    pub(crate) fn on_semaphore(
        &mut self,
        turn: &mut Turn<'_>,
        key: &[u8],
        verb: impl FnOnce(&mut Self, &mut Step<'_>, &mut Resource) -> Outcome,
    ) {
        let answer = self.on_call(turn, Kind::Semaphore, key, verb);
        turn.fx.reply = Some(answer.unwrap_or_else(|_| wrong_type()));
    }

    /// Runs a verb that answers at once and may carry REQID.
    fn on_counted(
        &mut self,
        turn: &mut Turn<'_>,
        key: &[u8],
        call: Call<'_>,
        verb: impl FnOnce(&mut Self, &mut Step<'_>, &mut Resource) -> Outcome,
    ) {
        self.on_request(turn, key, call, |machine, step, resource| {
            Some(verb(machine, step, resource))
        });
    }

    /// Waiters that ask for more than there are get `LIMIT`; the others may be granted.
    fn capacity_changed(&mut self, step: &mut Step<'_>, resource: &mut Resource, capacity: u32) {
        step.dirty = true;
        if let Some(queue) = self.waits.queue_of(step.key) {
            self.refuse_wide(step, queue, capacity);
        }
        self.hand_off(step, resource);
    }

    /// Answers `LIMIT` to waiters that ask for more than there are: to some now, and to the others in the tick.
    pub(crate) fn refuse_wide(&mut self, step: &mut Step<'_>, queue: QueueId, capacity: u32) {
        let found = self.waits.queue(queue);
        let found = found.into_iter().flat_map(|queue| queue.wider_than(capacity));
        let mut wide: Vec<(u32, WaiterSlot)> = found.take(self.wide_at_once).collect();
        wide.sort_by_key(|&(_, slot)| self.waits.get(slot).map(|waiter| waiter.seq));
        if wide.len() == self.wide_at_once {
            self.waits.mark_dirty(queue);
        }
        for (n, slot) in wide {
            let text = too_wide(step.key.name, n, capacity);
            self.refuse_waiter(step, slot, &Outcome::fault(ErrorCode::Limit, text));
        }
    }
}

/// The semaphore, unless it exists only for its waiters.
fn made<'r>(step: &Step<'_>, resource: &'r mut Resource) -> Result<&'r mut Semaphore, Outcome> {
    let found = resource.semaphore_mut().filter(|semaphore| semaphore.capacity > 0);
    found.ok_or_else(|| {
        let text = format!("no such semaphore: {}", crate::answers::quoted(step.key.name));
        Outcome::fault(ErrorCode::Err, text)
    })
}

pub(crate) fn not_out(step: &Step<'_>, id: PermitId) -> Outcome {
    let text = permit::text(&id);
    let text = core::str::from_utf8(&text).unwrap_or_default();
    let key = crate::answers::quoted(step.key.name);
    Outcome::fault(ErrorCode::NotHeld, format!("permit {text} of {key} is unknown or has ended"))
}
