//! Values that the server has unlinked from their keys: most of them are gone for good, and their holds have ended.

use crate::base::ids::{HoldRef, KeyId};
use crate::base::key::Key;
use crate::base::kind::Kind;
use crate::ports::lost::Lost;
use crate::ports::store::Lookup;
use crate::ports::turn::Turn;
use crate::run::{keyspace, removed};
use crate::tables::Tables;

/// A value was unlinked from `key`: deleted, evicted, overwritten, or moved elsewhere. Call [`keyspace::moved`]
/// first, so that this call can see the move, and [`drain_some`](crate::events::disconnect::drain_some) afterwards.
pub(crate) fn unlinked(tables: &mut Tables, turn: &mut Turn<'_>, key: Key<'_>, lost: Option<Lost>) {
    if let Some(lost) = lost {
        let there = Key { db: lost.db, ..key };
        let is_back = lost.key_id != KeyId::NONE
            && matches!(turn.keys.get(there), Lookup::Here(back) if back.key_id == lost.key_id);
        if is_gone(tables, there, &lost, is_back) {
            lose(tables, turn, key, lost);
        }
    }
    if let Some(queue) = tables.waits.queue_of(key) {
        keyspace::inspect(tables, turn, queue);
    }
    if let Some(observers) = tables.waits.observers_of(key) {
        keyspace::inspect(tables, turn, observers);
    }
}

/// Before an operation on a key: if opening the key removed a value whose time to live is over, applies that loss.
/// Reported later, it would pass for the loss of what this operation puts there.
pub(crate) fn see_to_loss_of(tables: &mut Tables, turn: &mut Turn<'_>, key: Key<'_>) {
    if let Some(lost) = turn.keys.take_lost(key) {
        unlinked(tables, turn, key, Some(lost));
    }
}

/// Whether a value that was unlinked from `key` is gone for good. If it moved, its entry has moved with it.
/// `is_back`: it is under `key` again.
fn is_gone(tables: &mut Tables, key: Key<'_>, lost: &Lost, is_back: bool) -> bool {
    let has_entry = tables.leases.of_key(lost.key_id, key).is_some();
    if lost.has_moved {
        if has_entry && !is_back {
            // A record was replayed under its new key before this server followed it there, and made a new entry.
            tables.leases.leave(lost.key_id);
            let home = tables.leases.home(lost.db);
            for &(client, id) in &lost.bindings {
                tables.connections.unbind(client, HoldRef { home, key: lost.key_id, id });
            }
        }
        return false;
    }
    !is_back
}

/// Applies the loss of a value. A replica does the same itself.
fn lose(tables: &mut Tables, turn: &mut Turn<'_>, key: Key<'_>, lost: Lost) {
    if lost.is_evicted && tables.regime.is_primary() {
        tables.counters.evicted += lost.holds;
        tables.observe_eviction(turn.now, key, &lost);
    }
    let Lost { key_id, db, kind, prints, requests, bindings, subjects, .. } = lost;
    // Where a swap since then took the other keys of its database. The waiters stayed.
    let there = Key { db, ..key };
    if tables.leases.of_key(key_id, there).is_some() {
        tables.leases.leave(key_id);
    }
    let home = tables.leases.home(db);
    let found = turn.keys.get(there);
    let (is_replaced, is_elsewhere) =
        (matches!(found, Lookup::Here(_)), matches!(found, Lookup::Elsewhere));
    // The memory of requests may be another one since: then it has its own. A latch that has moved is not lost.
    if prints == tables.spent.prints() && !(is_elsewhere && kind == Kind::Latch) {
        removed::note_over(tables, requests, tables.regime.lease(turn.now.mono));
    }
    for (client, id) in bindings {
        unbind_lost(tables, turn, HoldRef { home, key: key_id, id }, client);
    }
    if !is_elsewhere {
        removed::tell_deleted(tables, turn.fx, key, subjects);
    }
    if tables.regime.is_primary() {
        if kind == Kind::Semaphore && !is_replaced {
            tables.in_flight.forget_taken(there);
        }
        if !is_elsewhere {
            keyspace::value_is_gone(tables, kind, key, turn.fx);
        }
    }
}

/// Removes the binding of a hold that is gone. Its entry may belong to another key by now, with a hold of the same
/// id.
fn unbind_lost(tables: &mut Tables, turn: &mut Turn<'_>, hold: HoldRef, client: u64) {
    let is_bound_again = tables.leases.key_of(hold.key).is_some_and(|key| {
        // If the key cannot be read now, the binding may be live: the binding of an ended hold shortens nothing.
        !turn.keys.reaches(key)
            || matches!(
                turn.keys.get(key),
                Lookup::Here(resource) if resource.key_id == hold.key
                    && resource.hold(hold.id).is_some_and(|hold| hold.bound_to() == client)
            )
    });
    if !is_bound_again {
        tables.connections.unbind(client, hold);
    }
}
