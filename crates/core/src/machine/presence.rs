//! Connections that go away, calls that are unblocked, waits that run out.

use super::{AT_ONCE, End, Machine, Role, Slots, Step};
use crate::connection::LeftBehind;
use crate::effects::{Effects, Outcome};
use crate::hold::NO_CLIENT;
use crate::lease::EntryId;
use crate::queue::{Presence, Waiter, WaiterId};
use crate::resource::Resource;
use crate::store::{Key, Store};
use crate::time::{LeaseInstant, Now};
use alloc::vec::Vec;
use dlock_wire::reply::ErrorCode;

impl Machine {
    /// A connection is gone, by whatever cause: its places go or start their grace, and the leases
    /// of the holds tied to it are cut.
    ///
    /// The first few at once; if it had more, the tick goes on with the rest, and whoever looks at
    /// one of them before sees it as seen to. Only while the server takes writes.
    pub fn client_gone<S: Store>(
        &mut self,
        store: &mut S,
        now: Now,
        client: u64,
        fx: &mut Effects,
    ) {
        if self.connections.get(client).is_none() {
            return;
        }
        if self.role == Role::Primary {
            // A grant that has not reached it never will: it is undone, not cut.
            for waiter in self.on_the_way_to(client) {
                self.undelivered(store, now, waiter, fx);
            }
        }
        self.connections.depart(client, self.clock.at(now.mono));
        for _ in 0..AT_ONCE {
            if !self.see_to_one_left_behind(store, now, fx) {
                break;
            }
        }
        self.work_off_stalled(store, now, fx);
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
            Some(LeftBehind::Tie { entry }) => self.cut(store, now, entry, fx),
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

    /// The place in `slot` has no connection any more.
    fn lose_connection(&mut self, slot: u32, lease: LeaseInstant) {
        let Some(waiter) = self.waits.get(slot) else { return };
        let queue = waiter.queue;
        match waiter.ask.queue_ms {
            Some(ms) => self.waits.set_presence(slot, Presence::Absent { until: lease + ms }),
            None => {
                self.waits.leave(slot);
            }
        }
        self.waits.stall(queue);
    }

    /// Looks at the key of a hold that was tied to a gone connection, which cuts its lease.
    fn cut<S: Store>(&mut self, store: &mut S, now: Now, entry: EntryId, fx: &mut Effects) {
        let Some(found) = self.leases.get(entry) else { return };
        let name: Vec<u8> = found.name.to_vec();
        let key = Key { db: found.db, name: &name };
        // A key of another type has no hold of ours any more: nothing to cut.
        let _ = self.on_key(store, key, now, fx, |machine, step, resource| {
            if resource.entry == entry {
                machine.cut_if_gone(step, resource);
            }
        });
    }

    /// Cuts the lease of a hold whose connection is gone; ends it if nothing is left of it.
    pub(super) fn cut_if_gone(&mut self, step: &mut Step<'_>, resource: &mut Resource) {
        let entry = resource.entry;
        let Some(hold) = resource.lock_mut().hold_mut() else { return };
        let Some(at) = self.connections.gone_at(hold.tied_to()) else { return };
        self.untie(entry, hold);
        let deadline = hold.deadline;
        let Some(tie) = hold.extras_mut().tie.as_mut() else { return };
        let end = at + tie.ms;
        tie.client = NO_CLIENT;
        tie.cut = end < deadline;
        if !tie.cut {
            return;
        }
        hold.deadline = end;
        step.dirty = true;
        if end <= step.lease {
            self.end_hold(step, resource, End::Disconnected);
            self.hand_on(step, resource);
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
        let parked = self.connections.get(client).and_then(|connection| connection.parked);
        let found = parked.and_then(|slot| self.waits.get(slot));
        let Some((slot, waiter)) = parked.zip(found) else {
            fx.reply = Some(Outcome::Count(0));
            return;
        };
        let outcome = if with_error {
            Outcome::fault(ErrorCode::Unblocked, "an operator ended this call (DLOCK.UNBLOCK)")
        } else {
            Outcome::Null
        };
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
        fx.wake(waiter.id, Outcome::Null);
        self.counters.timeouts += 1;
        self.stop_waiting(slot);
    }

    /// Takes a place out of its queue and off its connection.
    pub(super) fn forget_place(&mut self, slot: u32) -> Option<Waiter> {
        let waiter = self.waits.leave(slot)?;
        if waiter.client != NO_CLIENT {
            self.connections.remove_place(waiter.client, slot);
        }
        Some(waiter)
    }

    /// All waiters of `queue`.
    pub(super) fn waiters_of(&self, queue: u32) -> Slots {
        self.waits.walk(queue).map(|(slot, _)| slot).collect()
    }
}
