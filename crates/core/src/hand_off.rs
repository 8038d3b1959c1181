//! Hand-off: grants to waiters.

use crate::answers::too_wide;
use crate::effects::Outcome;
use crate::ids::{QueueId, WaiterSlot};
use crate::kind::Kind;
use crate::machine::Machine;
use crate::observe::GivesUp;
use crate::portions::AT_ONCE;
use crate::queues::waiter::{Demand, WaitState, Waiter};

use crate::state::lock::Lock;
use crate::state::resource::{Body, Resource};
use crate::turn::Step;
use alloc::string::String;
use dlock_wire::reply::ErrorCode;

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

impl Machine {
    /// Hands the resource off to the waiters that it now admits, in order of service.
    pub(crate) fn hand_off(&mut self, step: &mut Step<'_>, resource: &mut Resource) {
        let kind = resource.kind();
        let is_lock = matches!(kind, Kind::Lock | Kind::Fair);
        if is_lock && !matches!(resource.lock(), Lock::Free) {
            if matches!(resource.lock(), Lock::Closed { .. }) {
                self.note_holders(step, resource);
            }
            return;
        }
        let Some(queue) = self.waits.queue_of(step.key) else { return };
        if !self.regime.may_grant(step.now.mono) {
            // Deadlock searches must not take the owner that released it for its holder.
            self.waits.note_holders(queue, resource, false);
            // After a quarantine the machine checks all queues.
            if !self.regime.accepts_writes() {
                self.waits.mark_dirty(queue);
            }
            return;
        }
        if self.waits.queue(queue).is_some_and(|queue| queue.kind != kind) {
            self.reject_as_wrong_type(queue, step.fx);
            return;
        }
        self.hand_off_to(queue, step, resource);
        if let Body::Semaphore(semaphore) = &resource.body
            && semaphore.capacity > 0
        {
            self.refuse_wide(step, queue, semaphore.capacity);
        }
        self.waits.note_holders(queue, resource, false);
    }

    /// Tells the queue of a key, if there is one, its current holders.
    pub(crate) fn note_holders(&mut self, step: &Step<'_>, resource: &Resource) {
        if let Some(queue) = self.waits.queue_of(step.key) {
            self.waits.note_holders(queue, resource, false);
        }
    }

    fn hand_off_to(&mut self, queue: QueueId, step: &mut Step<'_>, resource: &mut Resource) {
        let is_lock = matches!(resource.kind(), Kind::Lock | Kind::Fair);
        let may_be_silent = lapses_are_left(step, resource);
        let mut served = 0;
        while !is_lock || matches!(resource.lock(), Lock::Free) {
            if served == self.wide_at_once {
                // The tick continues with the rest. New calls cannot overtake these waiters: they are in front.
                self.waits.mark_dirty(queue);
                return;
            }
            served += 1;
            step.served += 1;
            let Some(slot) = self.find_first(queue) else { return };
            let Some(waiter) = self.waits.get(slot) else { return };
            let leader = self.waits.leader(waiter);
            let (wait_state, call) = (leader.wait_state, leader.id.slot());
            if self.process_disconnect_of(step, resource, call) {
                continue;
            }
            if wait_state.is_over(step.now.mono, step.lease) {
                self.end_wait(step, resource, slot, call, wait_state);
                continue;
            }
            if may_be_silent && wait_state == WaitState::Connected {
                // Its connection may be the holder of an expired grant that is not ended yet.
                self.waits.mark_dirty(queue);
                return;
            }
            let Some(waiter) = self.waits.get(slot) else { continue };
            if self.has_been_taken(step, waiter) {
                self.grant_waiter(step, resource, slot);
                continue;
            }
            let (owner, demand, is_grouped) =
                (waiter.owner.clone(), waiter.ask.demand, waiter.is_grouped());
            match self.verdict(step, resource, &owner, demand) {
                Verdict::No => return,
                Verdict::Never(text) => {
                    self.refuse_waiter(step, slot, &Outcome::fault(ErrorCode::Limit, text));
                }
                Verdict::Yes if is_grouped => {
                    if !self.grant_member(step, resource, slot) {
                        return;
                    }
                }
                Verdict::Yes => self.grant_waiter(step, resource, slot),
            }
        }
    }

    /// The wait in `slot` is over, though no alarm has ended it yet. `call`: the waiter of its blocked call.
    fn end_wait(
        &mut self,
        step: &mut Step<'_>,
        resource: &Resource,
        slot: WaiterSlot,
        call: WaiterSlot,
        wait_state: WaitState,
    ) {
        if let WaitState::Disconnected { .. } = wait_state {
            self.observe_giving_up_here(step, resource, slot, GivesUp::Lapsed);
            self.remove_waiter(slot);
        } else {
            self.observe_giving_up_here(step, resource, call, GivesUp::TimedOut);
            self.time_out(call, step.fx);
        }
    }

    /// The first waiter of a queue that counts.
    pub(crate) fn first_in(&self, queue: QueueId) -> Option<WaiterSlot> {
        self.those_who_count(queue).next().map(|(slot, _)| slot)
    }

    /// The waiters of a queue that count.
    pub(crate) fn those_who_count(
        &self,
        queue: QueueId,
    ) -> impl Iterator<Item = (WaiterSlot, &Waiter)> {
        // Clients that died can leave very many queue entries behind: skip those in front without a walk.
        let walk = self.waits.walk_counting(queue, self.connections.activations());
        walk.filter(|(_, waiter)| !self.is_skipped(waiter))
    }

    /// Finds the first waiter that counts. If very many in front of it do not count, it stores the position for the
    /// next search.
    fn find_first(&mut self, queue: QueueId) -> Option<WaiterSlot> {
        let activations = self.connections.activations();
        let (mut passed, mut last, mut unresponsive) = (0, WaiterSlot::NONE, None);
        let mut walk = self.waits.walk_counting(queue, activations);
        let found = walk.find(|(slot, waiter)| {
            last = *slot;
            // Neighbours in a queue often belong to one connection.
            let is_known =
                waiter.wait_state == WaitState::Connected && unresponsive == Some(waiter.client);
            let is_passed = is_known || self.is_skipped(waiter);
            if is_passed && waiter.wait_state == WaitState::Connected {
                unresponsive = Some(waiter.client);
            }
            passed += usize::from(is_passed);
            !is_passed
        });
        let found = found.map(|(slot, _)| slot);
        drop(walk);
        if passed > self.wide_at_once.min(AT_ONCE) {
            self.waits.note_skipped(queue, found.unwrap_or(last), activations);
        }
        found
    }

    /// Whether a waiter is skipped for now, because its connection is gone or let a grant expire.
    pub(crate) fn is_skipped(&self, waiter: &Waiter) -> bool {
        self.waits.is_deserted(waiter)
            || (waiter.wait_state == WaitState::Connected
                && self.connections.is_unresponsive(waiter.client))
    }

    /// Whether the key itself admits the demand of `owner`. A missing semaphore is made if a waiter of the queue asked
    /// for that.
    pub(crate) fn verdict(
        &self,
        step: &mut Step<'_>,
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
                    && self.regime.may_grant(step.now.mono)
                    && let Some(limit) = self.limit_of_queue(step)
                {
                    semaphore.capacity = limit;
                    semaphore.is_passing = true;
                    step.dirty = true;
                }
                if semaphore.capacity > 0 && n > semaphore.capacity {
                    return Verdict::Never(too_wide(step.key.name, n, semaphore.capacity));
                }
                semaphore.capacity > 0 && semaphore.available() >= i64::from(n)
            }
            (Body::Rw(_) | Body::Semaphore(_) | Body::Latch(_), _) => false,
        };
        if is_open { Verdict::Yes } else { Verdict::No }
    }

    /// The size given by the first waiter that would make a semaphore.
    fn limit_of_queue(&self, step: &Step<'_>) -> Option<u32> {
        let queue = self.waits.queue_of(step.key)?;
        self.waits.queue(queue).filter(|queue| queue.makers() > 0)?;
        let mut present =
            self.waits.walk_present(queue).filter(|(_, waiter)| !self.waits.is_deserted(waiter));
        present.find_map(|(_, waiter)| match waiter.ask.demand {
            Demand::Permits { limit, .. } => limit,
            _ => None,
        })
    }

    /// A demand of a waiter can never be granted: a blocked call gets the reason, a queue entry without a call is
    /// removed.
    pub(crate) fn refuse_waiter(&mut self, step: &mut Step<'_>, slot: WaiterSlot, why: &Outcome) {
        let Some(waiter) = self.remove_waiter(slot) else { return };
        if Some(waiter.id) == step.own_waiter {
            step.answer = Some(why.clone());
        } else if waiter.wait_state.is_parked() {
            step.fx.wake(waiter.id, why.clone());
        }
    }
}

/// Whether a later portion still has to end expired holds of the key: some may be unclaimed grants.
fn lapses_are_left(step: &Step<'_>, resource: &Resource) -> bool {
    resource.others().is_some_and(|holds| {
        holds.has_unclaimed() && holds.first_end().is_some_and(|(at, _)| at <= step.lease)
    })
}
