//! Hand-off: who is next.
//!
//! # Order of service
//!
//! - A queue is served from its front, in the order in which its owners began to wait. An owner that asks again keeps
//!   its place.
//! - The first waiter that cannot be granted ends the hand-off: a request for one permit does not overtake one for
//!   three, and a reader does not overtake a writer. Readers, and requests for permits, are granted one after the other
//!   until one has to wait.
//! - A waiter that does not count ([`Tables::counts`]) is passed, and keeps its place.
//! - A call for several keys takes them when it is first at each of them that it does not hold. All such calls have the
//!   same order in all queues that they share.
//! - A new call hands off before it looks at the key, and then waits behind the first waiter that counts, whatever is
//!   free. Two go first: the reader that upgrades, of which a lock has one, and the writer that also reads.
//!
//! # Why nobody starves
//!
//! Each grant takes a waiter from the front. In front of it come only one upgrade, and owners who were there before and
//! whose grant could not be delivered (without a connection, so passed). Each hold ends: by its owner, by its lease, or
//! with its connection. Each end of a hold hands off in the same step, or marks the queue dirty for the tick, and the
//! tick comes back until no queue is dirty. So a waiter that counts moves forward until it is first. It waits for as
//! long as owners in front of it renew, or do not give back what they took with DSEM.TAKE, which has no lease; and one
//! whose connection lets its grants end unclaimed is passed until it sends a command. Owners that wait for each other
//! are a matter of [`crate::deadlock`].

use crate::base::ids::{QueueId, WaiterSlot};
use crate::base::kind::Kind;
use crate::ports::answers::{in_quarantine, too_wide, wrong_type};
use crate::ports::effects::Outcome;
use crate::step::Step;
use crate::step::giving_up::GivesUp;
use crate::tables::Tables;
use crate::tables::queues::waiter::{Queue, WaitState, Waiter};
use crate::value::lock::Lock;
use crate::value::resource::{Body, Resource};
use crate::value::wait_request::Demand;
use alloc::string::String;
use alloc::vec::Vec;
use dlock_wire::reply::ErrorCode;
use dlock_wire::request::Mode;

/// Whether a key can grant a demand.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// It can be granted now.
    Yes,
    /// Not now.
    No,
    /// Never: the text of the `LIMIT` error.
    Never(String),
}

impl Step<'_> {
    /// Hands the resource off to the waiters that it now admits, in order of service.
    pub(crate) fn hand_off(&mut self, resource: &mut Resource) {
        if self.is_away {
            return;
        }
        let kind = resource.kind();
        let is_lock = matches!(kind, Kind::Lock | Kind::Fair);
        if is_lock && !matches!(resource.lock(), Lock::Free) {
            if matches!(resource.lock(), Lock::Closed { .. }) {
                self.note_holders(resource);
            }
            return;
        }
        let Some(queue) = self.tables.waits.queue_of(self.key) else { return };
        if !self.tables.regime.may_grant(self.now.mono) {
            // Deadlock searches must not take the owner that released it for its holder.
            self.tables.waits.note_holders(queue, resource, false);
            // After a quarantine the machine checks all queues.
            if !self.tables.regime.accepts_writes() {
                self.tables.waits.mark_dirty(queue);
            }
            return;
        }
        if self.tables.waits.queue(queue).is_some_and(|queue| queue.kind != kind) {
            self.tables.answer_all(queue, &wrong_type(), self.fx);
            return;
        }
        self.hand_off_to(queue, resource);
        if let Body::Semaphore(semaphore) = &resource.body
            && semaphore.capacity > 0
        {
            self.refuse_wide(queue, semaphore.capacity);
        }
        self.tables.waits.note_holders(queue, resource, false);
    }

    /// Tells the queue of a key, if there is one, its current holders.
    pub(crate) fn note_holders(&mut self, resource: &Resource) {
        if let Some(queue) = self.tables.waits.queue_of(self.key) {
            self.tables.waits.note_holders(queue, resource, false);
        }
    }

    fn hand_off_to(&mut self, queue: QueueId, resource: &mut Resource) {
        let is_lock = matches!(resource.kind(), Kind::Lock | Kind::Fair);
        let may_be_silent = lapses_are_left(self, resource);
        let (mut served, mut passed) = (0, WaiterSlot::NONE);
        while !is_lock || matches!(resource.lock(), Lock::Free) {
            if served == self.tables.wide_at_once {
                // The tick continues with the rest. New calls cannot overtake these waiters: they are in front.
                self.tables.waits.mark_dirty(queue);
                return;
            }
            served += 1;
            self.served += 1;
            let Some(slot) = self.tables.first_behind(queue, &mut passed) else { return };
            let Some(waiter) = self.tables.waits.get(slot) else { return };
            let leader = self.tables.waits.leader(waiter);
            let (wait_state, call) = (leader.wait_state, leader.id.slot());
            if self.process_disconnect_of(resource, call) {
                // It may have put a waiter back in front.
                passed = WaiterSlot::NONE;
                continue;
            }
            if wait_state.is_over(self.now.mono, self.lease) {
                self.end_wait(resource, slot, call, wait_state);
                continue;
            }
            if may_be_silent && wait_state == WaitState::Connected {
                // Its connection may be the holder of an expired grant that is not ended yet.
                self.tables.waits.mark_dirty(queue);
                return;
            }
            let Some(waiter) = self.tables.waits.get(slot) else { continue };
            if self.taken_already(waiter).is_some() {
                self.grant_waiter(resource, slot);
                continue;
            }
            let (owner, demand, is_grouped) =
                (waiter.owner.clone(), waiter.ask.demand, waiter.is_grouped());
            match self.verdict(resource, &owner, demand) {
                Verdict::No => return,
                Verdict::Never(text) => {
                    self.refuse_waiter(slot, &Outcome::fault(ErrorCode::Limit, text));
                }
                Verdict::Yes if is_grouped => {
                    if !self.grant_member(resource, slot) {
                        return;
                    }
                }
                Verdict::Yes => self.grant_waiter(resource, slot),
            }
        }
    }

    /// The wait in `slot` is over, though no alarm has ended it yet. `call`: the waiter of its blocked call.
    fn end_wait(
        &mut self,
        resource: &Resource,
        slot: WaiterSlot,
        call: WaiterSlot,
        wait_state: WaitState,
    ) {
        if let WaitState::Disconnected { .. } = wait_state {
            self.observe_giving_up_here(resource, slot, GivesUp::Lapsed);
            self.tables.remove_waiter(slot);
        } else {
            self.observe_giving_up_here(resource, call, GivesUp::TimedOut);
            self.tables.time_out(call, self.fx);
        }
    }
}

impl Tables {
    /// The first waiter of a queue that counts.
    pub(crate) fn first_in(&self, queue: QueueId) -> Option<WaiterSlot> {
        let mut passed = WaiterSlot::NONE;
        self.first_behind(queue, &mut passed)
    }

    /// The first waiter that counts behind the one in `passed`, which becomes the last one in front of it that does
    /// not. Clients that died can leave thousands of waiters behind: a hand-off to many passes them once.
    fn first_behind(&self, queue: QueueId, passed: &mut WaiterSlot) -> Option<WaiterSlot> {
        if self.waits.queue(queue).is_none_or(Queue::is_deserted) {
            return None;
        }
        for (slot, waiter) in self.waits.walk_behind(queue, *passed) {
            if self.counts(waiter) {
                return Some(slot);
            }
            *passed = slot;
        }
        None
    }

    /// Whether a waiter counts: it can be granted something, and those behind it have to wait for it.
    ///
    /// | The waiter | in a queue of DFAIR | in another queue |
    /// |---|---|---|
    /// | a blocked call, for one key or several | counts | counts |
    /// | a place, its connection is open | counts | counts |
    /// | the same, but its connection let a grant end unclaimed | not until it sends a command | the same |
    /// | a place, its connection is closed | counts until its grace ends | not until its owner asks again |
    ///
    /// `step/end` marks such a connection unresponsive, and any dlock command over it clears that (`run/activity`). To
    /// ask again is to call with BLOCK or QUEUE.
    ///
    /// A wait that is over counts until the timer or the hand-off ends it.
    pub(crate) fn counts(&self, waiter: &Waiter) -> bool {
        !self.waits.is_deserted(waiter)
            && (waiter.wait_state != WaitState::Connected
                || !self.connections.is_unresponsive(waiter.client))
    }
}

impl Step<'_> {
    /// Whether the key itself admits the demand of `owner`. A missing semaphore is made if a waiter of the queue asked
    /// for that.
    pub(crate) fn verdict(
        &mut self,
        resource: &mut Resource,
        owner: &[u8],
        demand: Demand,
    ) -> Verdict {
        let is_open = match (&mut resource.body, demand) {
            (Body::Lock(lock), _) => matches!(lock, Lock::Free),
            (Body::Fair(fair), _) => matches!(fair.lock, Lock::Free),
            (Body::Rw(rw), Demand::Rw(mode)) => rw.admits(owner, mode),
            (Body::Semaphore(semaphore), Demand::Permits { count: n, .. } | Demand::Taken(n)) => {
                if semaphore.capacity == 0
                    && self.tables.regime.may_grant(self.now.mono)
                    && let Some(limit) = self.limit_of_queue()
                {
                    semaphore.capacity = limit;
                    semaphore.is_passing = true;
                    self.dirty = true;
                }
                if semaphore.capacity > 0 && n > semaphore.capacity {
                    return Verdict::Never(too_wide(self.key.name, n, semaphore.capacity));
                }
                semaphore.capacity > 0 && semaphore.available() >= i64::from(n)
            }
            (Body::Rw(_) | Body::Semaphore(_) | Body::Latch(_), _) => false,
        };
        if is_open { Verdict::Yes } else { Verdict::No }
    }

    /// The size given by the first waiter that would make a semaphore.
    fn limit_of_queue(&self) -> Option<u32> {
        let queue = self.tables.waits.queue_of(self.key)?;
        self.tables.waits.queue(queue).filter(|queue| queue.makers() > 0)?;
        let mut present = self.tables.waits.walk(queue).map(|(_, waiter)| waiter);
        present.find_map(|waiter| match waiter.ask.demand {
            Demand::Permits { limit, .. } if !self.tables.waits.is_deserted(waiter) => limit,
            _ => None,
        })
    }

    /// A demand of a waiter can never be granted: a blocked call gets the reason, a queue entry without a call is
    /// removed.
    pub(crate) fn refuse_waiter(&mut self, slot: WaiterSlot, why: &Outcome) {
        let Some(waiter) = self.tables.remove_waiter(slot) else { return };
        if Some(waiter.id) == self.own_waiter {
            self.answer = Some(why.clone());
        } else if waiter.wait_state.is_parked() {
            self.fx.wake(waiter.id, why.clone());
        }
    }
}

/// Whether a later portion still has to end expired holds of the key: some may be unclaimed grants.
fn lapses_are_left(step: &Step<'_>, resource: &Resource) -> bool {
    resource.others().is_some_and(|holds| {
        holds.has_unclaimed() && holds.first_end().is_some_and(|(at, _)| at <= step.lease)
    })
}

impl Step<'_> {
    /// Answers `LIMIT` to waiters that ask for more than there are: to some now, and to the others in the tick.
    pub(crate) fn refuse_wide(&mut self, queue: QueueId, capacity: u32) {
        let found = self.tables.waits.queue(queue);
        let found = found.into_iter().flat_map(|queue| queue.wider_than(capacity));
        let mut wide: Vec<(u32, WaiterSlot)> = found.take(self.tables.wide_at_once).collect();
        wide.sort_by_key(|&(_, slot)| self.tables.waits.get(slot).map(|waiter| waiter.seq));
        if wide.len() == self.tables.wide_at_once {
            self.tables.waits.mark_dirty(queue);
        }
        for (n, slot) in wide {
            let text = too_wide(self.key.name, n, capacity);
            self.refuse_waiter(slot, &Outcome::fault(ErrorCode::Limit, text));
        }
    }

    /// Whether a new call can be granted now: the resource is free for it, and no waiter is first.
    pub(crate) fn is_open(
        &mut self,
        resource: &mut Resource,
        owner: &[u8],
        demand: Demand,
    ) -> bool {
        if !self.tables.regime.may_grant(self.now.mono)
            || self.verdict(resource, owner, demand) != Verdict::Yes
        {
            return false;
        }
        let Some(queue) = self.tables.waits.queue_of(self.key) else { return true };
        self.overtakes = Some(queue);
        goes_first(resource, owner, demand) || self.tables.first_in(queue).is_none()
    }

    /// The answer to a call that does not wait: Null while holds are in the way or nothing is free, otherwise the
    /// reason why the resource is closed.
    pub(crate) fn refuse(&self, resource: &Resource, owner: &[u8], demand: Demand) -> Outcome {
        let left = self.tables.regime.quarantine_left(self.now.mono);
        let is_held = || match (&resource.body, demand) {
            (Body::Rw(rw), Demand::Rw(mode)) => rw.is_held_against(owner, mode),
            (Body::Semaphore(semaphore), Demand::Permits { count: n, limit, .. }) => {
                !semaphore.has(n, limit)
            }
            (Body::Semaphore(semaphore), Demand::Taken(n)) => !semaphore.has(n, None),
            _ => resource.holds().next().is_some(),
        };
        if left > 0 && !is_held() {
            return in_quarantine(left);
        }
        Outcome::Null
    }
}

/// Whether an owner may pass the waiters because it holds a part of the lock already.
pub(crate) fn goes_first(resource: &Resource, owner: &[u8], demand: Demand) -> bool {
    match (&resource.body, demand) {
        (Body::Rw(rw), Demand::Rw(Mode::Read)) => rw.find(owner, Mode::Write).is_some(),
        _ => is_upgrade(resource, owner, demand),
    }
}

/// Whether a reader asks to write.
pub(crate) fn is_upgrade(resource: &Resource, owner: &[u8], demand: Demand) -> bool {
    match (&resource.body, demand) {
        (Body::Rw(rw), Demand::Rw(Mode::Write)) => rw.find(owner, Mode::Read).is_some(),
        _ => false,
    }
}
