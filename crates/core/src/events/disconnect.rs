//! Connections that close, and calls that are unblocked.

use crate::base::ids::{HoldRef, QueueId, WaiterId};
use crate::base::key::Key;
use crate::base::slab::SlabId;
use crate::base::time::{LeaseInstant, Now};
use crate::events::undelivered;
use crate::ports::effects::Outcome;
use crate::ports::store::{Lookup, Reach, Store};
use crate::ports::turn::Turn;
use crate::run::{drain, enter, groups};
use crate::step::departed::lose_connection;
use crate::step::giving_up;
use crate::step::giving_up::GivesUp;
use crate::tables::Tables;
use crate::tables::connection::LeftBehind;
use crate::tables::portions::AT_ONCE;
use crate::tables::queues::waiter::Queue;
use alloc::vec::Vec;
use core::ops::Range;
use dlock_wire::reply::ErrorCode;

/// A connection closed, for any reason. Its waiters are removed or start their grace, and the leases of its bound
/// holds are shortened: some of them in [`drain_some`], which the caller calls afterwards, and the rest
/// in the tick. An operation that reaches one of the rest earlier treats it as processed.
///
/// Where only one slot can be reached, or the server takes no writes, the connection is noted as gone and the tick does
/// the rest. `false`: a grant in flight to it has to be rolled back; call this again when that is over.
pub(crate) fn client_departs(tables: &mut Tables, turn: &mut Turn<'_>, client: u64) -> bool {
    tables.pending.former_client_gone(client);
    if tables.connections.get(client).is_none() {
        return true;
    }
    // Comes first: the hand-offs below must not go to another waiter of the same connection.
    tables.connections.depart(client, tables.regime.lease(turn.now.mono));
    if turn.keys.reach() == Reach::OneSlot || !tables.regime.may_end() {
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
    drain::drain_dirty(tables, turn);
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
    let _ = enter::on_key_alone(tables, turn, kind, key, 0, |step, resource| {
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
    groups::grant_ready_groups(tables, turn);
}

/// A call is not blocked, or no longer, though its connection lives: the server unblocked it, or did not block it.
/// Its waiter is removed, or stays if the call had QUEUE. [`drain_some`], or the next tick, hands off
/// what this frees.
pub(crate) fn withdraw(tables: &mut Tables, store: &mut dyn Store, now: Now, waiter: WaiterId) {
    end_call(tables, store, now, waiter, GivesUp::Unblocked);
}

/// The cluster is down: ends the blocked calls in these queues, as [`withdraw`] does, until that makes much work.
/// Returns the first number whose calls have not all ended.
pub(crate) fn end_calls(
    tables: &mut Tables,
    turn: &mut Turn<'_>,
    queues: Range<QueueId>,
) -> QueueId {
    let begun = tables.waits.moves();
    for queue in queues.start.up_to(queues.end) {
        loop {
            let parked = tables.waits.walk(queue).filter(|(_, one)| one.wait_state.is_parked());
            let calls: Vec<WaiterId> = parked.map(|(_, one)| one.id).take(AT_ONCE).collect();
            if calls.is_empty() {
                break;
            }
            if tables.waits.has_done_enough(turn.fx, begun) {
                return queue;
            }
            for call in calls {
                withdraw(tables, turn.keys, turn.now, call);
                turn.fx.wake(call, Outcome::fault(ErrorCode::ClusterDown, "The cluster is down"));
            }
        }
    }
    queues.end
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
