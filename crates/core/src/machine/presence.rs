//! Connections that go away, calls that are unblocked, waits that run out.

use super::{AT_ONCE, End, LEAVE_AT_ONCE, Machine, Role, Slots, Step, WEIGHT_AT_ONCE};
use crate::connection::LeftBehind;
use crate::effects::{Effects, Outcome};
use crate::hold::{Hold, NO_CLIENT};
use crate::holds::{ALONE, HoldId};
use crate::lease::EntryId;
use crate::queue::{Presence, Waiter, WaiterId};
use crate::resource::{Kind, Resource};
use crate::store::{Key, Reach, Slot, Store};
use crate::time::{LeaseInstant, Now};
use alloc::vec::Vec;
use dlock_wire::reply::ErrorCode;

/// How many waiters the end of bound holds may serve in one step before it leaves the other holds to the tick.
const SERVED_BY_CUTS: usize = AT_ONCE;

impl Machine {
    /// A connection is gone, by whatever cause: its places go or start their grace, and the leases
    /// of the holds tied to it are cut.
    ///
    /// The first few at once; if it had more, the tick goes on with the rest, and whoever looks at
    /// one of them before sees it as seen to. Only while the server takes writes.
    ///
    /// Where only one slot can be reached, the connection is noted as gone and the tick does the rest. `false`: a grant
    /// on its way to it is to be undone; say it again in the tick.
    pub fn client_gone<S: Store>(
        &mut self,
        store: &mut S,
        now: Now,
        client: u64,
        fx: &mut Effects,
    ) -> bool {
        let is_done = self.client_departs(store, now, client, fx);
        if is_done && store.reach() != Reach::OneSlot {
            for _ in 0..AT_ONCE {
                if fx.weight() >= WEIGHT_AT_ONCE || !self.see_to_one_left_behind(store, now, fx) {
                    break;
                }
            }
            self.work_off_stalled(store, now, fx);
        }
        is_done
    }

    /// As [`Machine::client_gone`], but all that the connection had is left to the tick: for many that go together.
    pub fn client_departs<S: Store>(
        &mut self,
        store: &mut S,
        now: Now,
        client: u64,
        fx: &mut Effects,
    ) -> bool {
        self.former_client_gone(client);
        if self.connections.get(client).is_none() {
            return true;
        }
        // First: what is handed on below is not for another place of the same connection.
        self.connections.depart(client, self.clock.at(now.mono));
        if store.reach() == Reach::OneSlot {
            return self.role == Role::Replica || self.on_the_way_to(client).is_empty();
        }
        if self.role == Role::Primary {
            // A grant that has not reached it never will: it is undone, not cut.
            for waiter in self.on_the_way_to(client) {
                self.undelivered(store, now, waiter, fx);
            }
        }
        true
    }

    /// Sees to one thing that a gone connection had; `false` when there is none.
    pub(super) fn see_to_one_left_behind<S: Store>(
        &mut self,
        store: &mut S,
        now: Now,
        fx: &mut Effects,
    ) -> bool {
        match self.connections.next_left_behind() {
            Some(LeftBehind::Place { slot, at }) => self.lose_connection(slot, at),
            Some(LeftBehind::Tie { entry, id, at }) => {
                self.cut_tied(store, now, (entry, id, at), fx);
            }
            None => return false,
        }
        true
    }

    /// Sees to a place whose connection is gone before its turn comes.
    pub(super) fn see_to_place(&mut self, slot: u32) -> bool {
        let Some(waiter) = self.waits.get(slot) else { return false };
        let client = waiter.client;
        let Some(at) = self.connections.gone_at(client) else { return false };
        self.connections.remove_place(client, slot);
        self.lose_connection(slot, at);
        true
    }

    /// The place in `slot` has no connection any more: it goes, or has a grace. (It is not looked at
    /// again while it is passed over, so those behind it are served.)
    fn lose_connection(&mut self, slot: u32, lease: LeaseInstant) {
        let Some(waiter) = self.waits.get(slot) else { return };
        let queue = waiter.queue;
        let is_fair = self.waits.queue(queue).is_some_and(|queue| queue.kind == Kind::Fair);
        match waiter.ask.queue_ms.or(is_fair.then_some(self.settings.fair_grace_ms)) {
            Some(ms) => self.waits.set_presence(slot, Presence::Absent { until: lease + ms }),
            None => {
                self.forget_place(slot);
            }
        }
        self.waits.stall(queue);
    }

    /// Looks at the key of a hold that was tied to a gone connection, and cuts its lease.
    fn cut_tied<S: Store>(
        &mut self,
        store: &mut S,
        now: Now,
        (entry, id, at): (EntryId, HoldId, LeaseInstant),
        fx: &mut Effects,
    ) {
        let Some(found) = self.leases.get(entry) else { return };
        let name: Vec<u8> = found.name.to_vec();
        let key = Key { db: self.leases.database_of(found), name: &name };
        let Slot::Here(resource) = store.get(key) else { return };
        let kind = resource.kind();
        // In the order of all steps: what is due ends, then the ties are cut, this one among them. A key of another type
        // has no hold of ours any more: nothing to cut.
        let _ = self.on_key_alone(store, (kind, key), now, (fx, 0), |machine, step, resource| {
            step.ends_at_most = machine.wide_at_once;
            machine.end_what_is_due(step, resource);
            if resource.entry == entry {
                machine.cut(step, resource, id, at);
            }
            // Of very many holds, each has its turn here: no look at all of them for each that is cut.
            if resource.others().is_none_or(|others| others.len() <= machine.wide_at_once) {
                machine.cut_what_is_gone(step, resource);
            }
        });
        self.grant_what_is_ripe(store, now, fx);
    }

    /// Cuts the leases of the holds of a key whose connections are gone; of very many, some, and the tick the others.
    pub(super) fn cut_what_is_gone(&mut self, step: &mut Step<'_>, resource: &mut Resource) {
        let gone_at = |id: HoldId| {
            let hold = resource.hold(id)?;
            Some((id, self.connections.gone_at(hold.tied_to())?))
        };
        let most = self.wide_at_once;
        let mut gone: Vec<(HoldId, LeaseInstant)> = gone_at(ALONE).into_iter().collect();
        if let Some(others) = resource.others() {
            // Whichever is shorter: the holds, or the connections that are gone.
            if others.len() < self.connections.departed() {
                gone.extend(others.iter().filter_map(|(id, _)| gone_at(id)).take(most));
            } else {
                let ties = self.connections.departed_ties(resource.entry);
                gone.extend(ties.filter(|(id, _)| *id != ALONE).take(most));
            }
        }
        for (id, at) in gone {
            // Each of them hands on. The tick goes on with the rest.
            if step.served >= SERVED_BY_CUTS {
                return;
            }
            self.cut(step, resource, id, at);
        }
    }

    /// Cuts the lease of a hold if its connection is gone, before a call that is about it.
    pub(super) fn cut_if_gone(&mut self, step: &mut Step<'_>, resource: &mut Resource, id: HoldId) {
        let client = resource.hold(id).map(Hold::tied_to);
        if let Some(at) = client.and_then(|client| self.connections.gone_at(client)) {
            self.cut(step, resource, id, at);
        }
    }

    /// Cuts the lease of a hold whose connection went at `at`; ends it if nothing is left of it.
    fn cut(&mut self, step: &mut Step<'_>, resource: &mut Resource, id: HoldId, at: LeaseInstant) {
        // It may have been tied to another connection, or cut, meanwhile.
        let Some(hold) = resource.hold(id) else { return };
        let is_gone = self.connections.gone_at(hold.tied_to()).is_some();
        let Some(tie) = hold.tie().filter(|_| is_gone) else { return };
        if self.is_on_the_way(step.key, (id, hold.token), tie.client) {
            // It is undone, not shortened.
            return;
        }
        let grip = (resource.entry, id);
        self.untie(grip, hold);
        let end = at + tie.ms;
        let is_cut = end < hold.deadline;
        resource.change_hold(id, |hold| {
            if let Some(tie) = hold.extras_mut().tie.as_mut() {
                tie.client = NO_CLIENT;
                tie.cut = is_cut;
            }
            if is_cut {
                hold.deadline = end;
            }
        });
        if !is_cut {
            return;
        }
        step.dirty = true;
        if end <= step.lease {
            self.end_hold(step, resource, id, End::Disconnected);
            self.hand_on(step, resource);
        }
    }

    /// The server did not let the call block after all: it leaves the queue (with QUEUE the place
    /// stays). What that opens is handed on by the next tick.
    pub fn withdraw(&mut self, waiter: WaiterId) {
        if self.waits.by_id(waiter).is_some() {
            self.stop_waiting(waiter.slot());
        } else {
            self.forget_former(waiter);
        }
    }

    /// A call is not blocked any more, though its connection lives (the server unblocked it, or
    /// did not block it): the place goes, or stays if it was asked for with QUEUE.
    pub fn abandoned<S: Store>(
        &mut self,
        store: &mut S,
        now: Now,
        waiter: WaiterId,
        fx: &mut Effects,
    ) {
        if self.waits.by_id(waiter).is_some() {
            self.stop_waiting(waiter.slot());
            self.work_off_stalled(store, now, fx);
        } else {
            self.forget_former(waiter);
        }
    }

    /// DLOCK.UNBLOCK: ends the blocked call of `client`, with Null or with `UNBLOCKED`. Whether
    /// there was one.
    pub fn unblock<S: Store>(
        &mut self,
        store: &mut S,
        now: Now,
        (client, with_error): (u64, bool),
        fx: &mut Effects,
    ) {
        let outcome = if with_error {
            Outcome::fault(ErrorCode::Unblocked, "an operator ended this call (DLOCK.UNBLOCK)")
        } else {
            Outcome::Null
        };
        let parked = self.connections.get(client).and_then(|connection| connection.parked);
        let found = parked.and_then(|slot| self.waits.get(slot));
        let Some((slot, waiter)) = parked.zip(found) else {
            let was_former = self.unblock_former(client, &outcome, fx);
            fx.reply = Some(Outcome::Count(u64::from(was_former)));
            return;
        };
        let outcome = self.answer_of(waiter).unwrap_or(outcome);
        fx.wake(waiter.id, outcome);
        self.stop_waiting(slot);
        self.work_off_stalled(store, now, fx);
        fx.reply = Some(Outcome::Count(1));
    }

    /// The blocked call in `slot` is over and answered.
    pub(super) fn stop_waiting(&mut self, slot: u32) {
        let Some(waiter) = self.waits.get(slot) else { return };
        let (queue, client) = (waiter.queue, waiter.client);
        if waiter.ask.queue_ms.is_some() {
            self.connections.unpark(client, slot);
            self.waits.set_presence(slot, Presence::Queued);
        } else {
            self.forget_place(slot);
        }
        self.waits.stall(queue);
    }

    /// BLOCK has run out for the call in `slot`.
    pub(super) fn time_out(&mut self, slot: u32, fx: &mut Effects) {
        let Some(waiter) = self.waits.get(slot) else { return };
        if let Some(answer) = self.answer_of(waiter) {
            self.answer_one(slot, &answer, fx);
            return;
        }
        fx.wake(waiter.id, Outcome::Null);
        self.counters.timeouts += 1;
        self.stop_waiting(slot);
    }

    /// Takes a place out of its queue and off its connection; of a call that waits for several
    /// keys, all of them. What comes back is the place that stands for the call.
    pub(super) fn forget_place(&mut self, slot: u32) -> Option<Waiter> {
        let waiter = self.waits.get(slot)?;
        if waiter.is_grouped() {
            return self.dissolve(waiter.group, |_| false);
        }
        let waiter = self.waits.leave(slot)?;
        if waiter.client != NO_CLIENT {
            self.connections.remove_place(waiter.client, slot);
        }
        Some(waiter)
    }

    /// Ends a call that waits for several keys. Its places go, except those that stay. What comes
    /// back is the place that stood for the call, unless it stays.
    pub(super) fn dissolve(&mut self, group: u32, stays: impl Fn(u32) -> bool) -> Option<Waiter> {
        let first = *self.waits.group(group)?.members.first()?;
        if let Some(client) = self.waits.get(first).map(|waiter| waiter.client) {
            self.connections.remove_place(client, first);
        }
        let mut leader = None;
        for slot in self.waits.disband(group, self.leave_at_once(), stays) {
            let Some(waiter) = self.waits.leave(slot) else { continue };
            self.waits.stall(waiter.queue);
            if slot == first {
                leader = Some(waiter);
            }
        }
        leader
    }

    /// How many places of one call are taken out of their queues together.
    fn leave_at_once(&self) -> usize {
        self.wide_at_once.min(LEAVE_AT_ONCE)
    }

    /// In the tick: takes places out of their queues whose call is over; `false` if there are none. Those behind them
    /// are served by the next piece of work.
    pub(super) fn leave_some(&mut self) -> bool {
        for left in 0..self.leave_at_once() {
            let Some(queue) = self.waits.leave_one_gone() else { return left > 0 };
            self.waits.stall(queue);
        }
        true
    }

    /// The places of blocked calls in `queue`.
    pub(super) fn calls_in(&self, queue: u32) -> Slots {
        let count = self.waits.queue(queue).map_or(0, |queue| queue.calls as usize);
        let of_call = |presence| matches!(presence, Presence::Parked { .. } | Presence::Member);
        let calls = self.waits.walk(queue).filter(|(_, waiter)| of_call(waiter.presence));
        calls.map(|(slot, _)| slot).take(count).collect()
    }

    /// All waiters of `queue`.
    pub(super) fn waiters_of(&self, queue: u32) -> Slots {
        self.waits.walk(queue).map(|(slot, _)| slot).collect()
    }
}
