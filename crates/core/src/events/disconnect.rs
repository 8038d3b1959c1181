//! Connections that close, calls that are unblocked, waits that time out.

use crate::connection::LeftBehind;
use crate::effects::{Effects, Outcome};
use crate::end::End;
use crate::events::{keyspace, undelivered};
use crate::ids::{ALONE, GroupId, HoldId, HoldRef, QueueId, WaiterSlot};
use crate::key::Key;
use crate::observe::GivesUp;
use crate::observe::giving_up;
use crate::ops::multi::grantable;
use crate::portions::{AT_ONCE, Slots};
use crate::queues::WaitQueues;
use crate::queues::waiter::{Queue, WaitState, Waiter, WaiterId};
use crate::state::hold::{Hold, NO_CLIENT};
use crate::state::resource::Resource;
use crate::store::{Lookup, Reach, Store};
use crate::tables::Tables;
use crate::time::{LeaseInstant, Now};
use crate::turn;
use crate::turn::{Step, Turn};
use alloc::vec::Vec;

/// Number of waiters that the end of bound holds may serve in one step. After that, the step leaves the other holds to
/// the tick.
const SERVED_BY_SHORTENING: usize = AT_ONCE;

/// A connection closed, for any reason. Its waiters are removed or start their grace, and the leases of its bound
/// holds are shortened: some of them in [`drain_some`], which the caller calls afterwards, and the rest
/// in the tick. An operation that reaches one of the rest earlier treats it as processed. Only while the server
/// takes writes.
///
/// Where only one slot can be reached, the connection is noted as gone and the tick does the rest. `false`: a grant
/// in flight to it has to be rolled back; call this again in the tick.
pub(crate) fn client_departs(tables: &mut Tables, turn: &mut Turn<'_>, client: u64) -> bool {
    tables.pending.former_client_gone(client);
    if tables.connections.get(client).is_none() {
        return true;
    }
    // Comes first: the hand-offs below must not go to another waiter of the same connection.
    tables.connections.depart(client, tables.regime.lease(turn.now.mono));
    if turn.keys.reach() == Reach::OneSlot {
        return !tables.regime.is_primary() || tables.in_flight.on_the_way_to(client).is_empty();
    }
    if tables.regime.is_primary() {
        // A grant that has not reached the client never will: it is rolled back, not shortened.
        for waiter in tables.in_flight.on_the_way_to(client) {
            undelivered::undelivered(tables, turn, waiter);
        }
    }
    true
}

/// After events that the server reports late: does a portion of what they left, for all of them together. Each
/// event may find work of others, so a portion for each would have no bound. The tick does the rest.
pub(crate) fn drain_some(tables: &mut Tables, turn: &mut Turn<'_>) {
    if !tables.regime.may_end() || turn.keys.reach() == Reach::OneSlot {
        return;
    }
    let begun = tables.waits.moves();
    for _ in 0..AT_ONCE {
        if tables.waits.has_done_enough(turn.fx, begun) || !process_one_left_behind(tables, turn) {
            break;
        }
    }
    keyspace::drain_dirty(tables, turn);
}

/// Processes one thing that a closed connection had; `false` if there is none.
pub(crate) fn process_one_left_behind(tables: &mut Tables, turn: &mut Turn<'_>) -> bool {
    match tables.connections.next_left_behind() {
        Some(LeftBehind::Waiter { slot, at }) => {
            giving_up::observe_giving_up(tables, turn.keys, turn.now, slot, GivesUp::Disconnected);
            lose_connection(tables, slot, at);
        }
        Some(LeftBehind::Binding { hold, at }) => {
            shorten_bound(tables, turn, hold, at);
        }
        None => return false,
    }
    true
}

impl Step<'_> {
    /// Processes a waiter whose connection is closed, before the tick reaches it.
    pub(crate) fn process_disconnect_of(&mut self, resource: &Resource, slot: WaiterSlot) -> bool {
        let Some(waiter) = self.tables.waits.get(slot) else { return false };
        let client = waiter.client;
        let Some(at) = self.tables.connections.gone_at(client) else { return false };
        self.observe_giving_up_here(resource, slot, GivesUp::Disconnected);
        self.tables.connections.remove_waiter(client, slot);
        lose_connection(self.tables, slot, at);
        true
    }
}

/// The waiter in `slot` has lost its connection: it is removed, or has a grace. (It is not checked again while it
/// is skipped, so the waiters behind it are served.)
fn lose_connection(tables: &mut Tables, slot: WaiterSlot, lease: LeaseInstant) {
    let Some(waiter) = tables.waits.get(slot) else { return };
    let (queue, client) = (waiter.queue, waiter.client);
    let is_fair = tables.waits.queue(queue).is_some_and(Queue::is_durable);
    match waiter.ask.queue_ms.or(is_fair.then_some(tables.settings.fair_grace_ms)) {
        Some(ms) => {
            tables.connections.unpark(client, slot);
            tables.waits.set_wait_state(slot, WaitState::Disconnected { until: lease + ms });
        }
        None => {
            tables.remove_waiter(slot);
        }
    }
    tables.waits.mark_dirty(queue);
}

/// Opens the key of a hold that was bound to a closed connection, and shortens its lease.
fn shorten_bound(tables: &mut Tables, turn: &mut Turn<'_>, bound: HoldRef, at: LeaseInstant) {
    let found = tables.leases.get(bound.key).filter(|entry| entry.is_in(bound.home));
    let Some(found) = found else { return };
    let name: Vec<u8> = found.name.to_vec();
    let key = Key { db: tables.leases.database_of(found), name: &name };
    let Lookup::Here(resource) = turn.keys.get(key) else { return };
    let kind = resource.kind();
    // The usual order of steps: expired holds end, then bound leases are shortened, this one among them. A key of
    // another type has no hold of ours any more: nothing to shorten.
    let _ = turn::on_key_alone(tables, turn, kind, key, 0, |step, resource| {
        step.ends_at_most = step.tables.wide_at_once;
        step.end_expired(resource);
        if resource.key_id == bound.key {
            step.shorten(resource, bound.id, at);
        }
        // A key with many holds comes here once for each of them, so this must not walk over all.
        if resource.others().is_none_or(|others| others.len() <= step.tables.wide_at_once) {
            step.shorten_all_gone(resource);
        }
    });
    grantable::grant_ready_groups(tables, turn);
}

impl Step<'_> {
    /// Shortens the leases of a key's holds whose connections are closed: a step shortens some of them, and the
    /// tick the others.
    pub(crate) fn shorten_all_gone(&mut self, resource: &mut Resource) {
        let gone_at = |id: HoldId| {
            let hold = resource.hold(id)?;
            Some((id, self.tables.connections.gone_at(hold.bound_to())?))
        };
        let most = self.tables.wide_at_once;
        let mut gone: Vec<(HoldId, LeaseInstant)> = gone_at(ALONE).into_iter().collect();
        if let Some(others) = resource.others() {
            // Walk over the shorter list: the holds, or the closed connections.
            if others.len() < self.tables.connections.departed() {
                gone.extend(others.iter().filter_map(|(id, _)| gone_at(id)).take(most));
            } else {
                let entry = (self.tables.leases.home(self.key.db), resource.key_id);
                let bindings = self.tables.connections.departed_bindings(entry);
                gone.extend(bindings.filter(|(id, _)| *id != ALONE).take(most));
            }
        }
        for (id, at) in gone {
            // Each of them hands off. The tick continues with the rest.
            if self.served >= SERVED_BY_SHORTENING {
                return;
            }
            self.shorten(resource, id, at);
        }
    }

    /// Shortens the lease of a hold if its connection is closed, before a call on this hold.
    pub(crate) fn shorten_if_gone(&mut self, resource: &mut Resource, id: HoldId) {
        let client = resource.hold(id).map(Hold::bound_to);
        if let Some(at) = client.and_then(|client| self.tables.connections.gone_at(client)) {
            self.shorten(resource, id, at);
        }
    }

    /// Shortens the lease of a hold whose connection closed at `at`; ends the hold if no time is left.
    fn shorten(&mut self, resource: &mut Resource, id: HoldId, at: LeaseInstant) {
        // Another connection may have bound it, or its lease may be shortened already.
        let Some(hold) = resource.hold(id) else { return };
        let is_gone = self.tables.connections.gone_at(hold.bound_to()).is_some();
        let Some(binding) = hold.binding().filter(|_| is_gone) else { return };
        if self.tables.in_flight.is_on_the_way(self.key, id, hold.token, binding.client) {
            // It is rolled back, not shortened.
            return;
        }
        let hold_ref = self.tables.leases.hold_ref(resource.key_id, id);
        self.tables.connections.unbind_hold(hold_ref, hold);
        let end = at + binding.ms;
        let is_shortened = end < hold.deadline;
        resource.change_hold(id, |hold| {
            if let Some(binding) = hold.extras_mut().binding.as_mut() {
                binding.client = NO_CLIENT;
                binding.is_shortened = is_shortened;
            }
            if is_shortened {
                hold.deadline = end;
            }
        });
        if !is_shortened {
            return;
        }
        self.dirty = true;
        if end <= self.lease {
            self.end_hold(resource, id, End::Disconnected);
            self.hand_off(resource);
        }
    }
}

/// A call is not blocked, or no longer, though its connection lives: the server unblocked it, or did not block it.
/// Its waiter is removed, or stays if the call had QUEUE. [`drain_some`], or the next tick, hands off
/// what this frees.
pub(crate) fn withdraw(tables: &mut Tables, store: &mut dyn Store, now: Now, waiter: WaiterId) {
    end_call(tables, store, now, waiter, GivesUp::Unblocked);
}

/// The connection of a blocked call is closed. As [`withdraw`], but a place in a durable queue stays:
/// [`client_departs`], before or after this, starts its grace.
pub(crate) fn hang_up(tables: &mut Tables, store: &mut dyn Store, now: Now, waiter: WaiterId) {
    let queue = tables.waits.by_id(waiter).and_then(|waiter| tables.waits.queue(waiter.queue));
    if !queue.is_some_and(Queue::is_durable) {
        end_call(tables, store, now, waiter, GivesUp::Disconnected);
    }
}

fn end_call(tables: &mut Tables, store: &mut dyn Store, now: Now, waiter: WaiterId, why: GivesUp) {
    if tables.waits.by_id(waiter).is_none() {
        tables.pending.forget_former(waiter);
        return;
    }
    giving_up::observe_giving_up(tables, store, now, waiter.slot(), why);
    tables.stop_waiting(waiter.slot());
}

impl Tables {
    /// The blocked call in `slot` is over and answered.
    pub(crate) fn stop_waiting(&mut self, slot: WaiterSlot) {
        let Some(waiter) = self.waits.get(slot) else { return };
        let (queue, client) = (waiter.queue, waiter.client);
        if waiter.ask.queue_ms.is_some() {
            self.connections.unpark(client, slot);
            self.waits.set_wait_state(slot, WaitState::Connected);
        } else {
            self.remove_waiter(slot);
        }
        self.waits.mark_dirty(queue);
    }

    /// The BLOCK time of the call in `slot` has elapsed.
    pub(crate) fn time_out(&mut self, slot: WaiterSlot, fx: &mut Effects) {
        let Some(waiter) = self.waits.get(slot) else { return };
        fx.wake(waiter.id, Outcome::Null);
        self.counters.timeouts += 1;
        self.stop_waiting(slot);
    }

    /// Removes a waiter from its queue and its connection; for a call for several keys, all of its waiters. Returns the
    /// waiter that represents the call.
    pub(crate) fn remove_waiter(&mut self, slot: WaiterSlot) -> Option<Waiter> {
        let waiter = self.waits.get(slot)?;
        if waiter.is_grouped() {
            return self.remove_group(waiter.group, |_| false);
        }
        let waiter = self.waits.leave(slot)?;
        if waiter.client != NO_CLIENT {
            self.connections.remove_waiter(waiter.client, slot);
        }
        Some(waiter)
    }

    /// Ends a waiting call for several keys. Removes its waiters, except those that stay. Returns the waiter that
    /// represented the call, unless it stays.
    pub(crate) fn remove_group(
        &mut self,
        group: GroupId,
        stays: impl Fn(WaiterSlot) -> bool,
    ) -> Option<Waiter> {
        let first = *self.waits.group(group)?.members.first()?;
        if let Some(client) = self.waits.get(first).map(|waiter| waiter.client) {
            self.connections.remove_waiter(client, first);
        }
        let mut leader = None;
        for slot in self.waits.disband(group) {
            if stays(slot) {
                continue;
            }
            let Some(waiter) = self.waits.leave(slot) else { continue };
            self.waits.mark_dirty(waiter.queue);
            if slot == first {
                leader = Some(waiter);
            }
        }
        leader
    }
}

impl WaitQueues {
    /// All waiters of `queue`.
    pub(crate) fn waiters_of(&self, queue: QueueId) -> Slots {
        self.walk(queue).map(|(slot, _)| slot).collect()
    }
}
