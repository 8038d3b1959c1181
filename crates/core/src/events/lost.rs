//! Values that the server has unlinked from their keys: most of them are gone for good, and their holds have ended.

use crate::events::keyspace;
use crate::ids::{HoldId, HoldRef, KeyId};
use crate::key::{Key, Swap};
use crate::kind::Kind;
use crate::requests::LOST_LATCH;
use crate::shares::User;
use crate::spent::{Print, Prints, Use};
use crate::state::hold::NO_CLIENT;
use crate::state::resource::{Body, Resource};
use crate::store::Lookup;
use crate::subject::Subjects;
use crate::tables::Tables;
use crate::time::LeaseInstant;
use crate::turn::Turn;
use alloc::vec::Vec;

/// What has to be noted and told about the holds of a value, at the moment when the server unlinked it from its key. It
/// is smaller than the value: the server evicts keys until its memory falls.
#[derive(Debug)]
pub struct Lost {
    key_id: KeyId,
    /// Where the keys of its database are now.
    db: u32,
    kind: Kind,
    prints: Prints,
    /// The requests of its holds.
    requests: Vec<(Print, Use)>,
    /// The connections to which its holds were bound.
    bindings: Vec<(u64, HoldId)>,
    /// Of the holds that send messages.
    subjects: Subjects,
    /// RENAME or MOVE unlinked it: the value lives on under another key.
    has_moved: bool,
}

impl Lost {
    /// Notes the state of `resource`, which is at `key`, for a later `unlinked`.
    pub fn of(resource: &Resource, key: Key<'_>, prints: Prints) -> Self {
        let (kind, key_id) = (resource.kind(), resource.key_id);
        let (mut requests, mut bindings) = (Vec::new(), Vec::new());
        let mut subjects = Subjects::default();
        if matches!(&resource.body, Body::Latch(latch) if latch.count > 0) {
            requests.push((prints.of(key, LOST_LATCH), Use::PassedOver));
        }
        // One walk: holds are scattered in memory.
        for (id, hold) in resource.holds() {
            requests.extend(prints.of_hold(key, kind, id, hold));
            if hold.bound_to() != NO_CLIENT {
                bindings.push((hold.bound_to(), id));
            }
            subjects.push(id, hold);
        }
        Self { key_id, db: key.db, kind, prints, requests, bindings, subjects, has_moved: false }
    }

    /// Two databases were swapped since.
    pub fn swap(&mut self, swap: Swap) {
        self.db = swap.target_of(self.db);
    }

    /// RENAME or MOVE has brought the value to another key. Call this as soon as that is known.
    pub fn follow(&mut self) {
        self.has_moved = true;
    }

    /// Whether it was a closed latch that is gone.
    pub fn is_lost_latch(&self) -> bool {
        self.kind == Kind::Latch && !self.has_moved && !self.requests.is_empty()
    }

    /// A record has made a latch under the same key since.
    pub fn forget_latch(&mut self) {
        if self.kind == Kind::Latch {
            self.requests.clear();
        }
    }

    /// The requests of its holds that are over with the value, for the memory that keeps `prints`: none if the value
    /// lives on.
    pub(crate) fn spent(&self, prints: Prints) -> impl Iterator<Item = (Print, Use)> {
        let is_over = !self.has_moved && self.prints == prints;
        is_over.then_some(&self.requests).into_iter().flatten().copied()
    }
}

/// A value was unlinked from `key`: deleted, evicted, overwritten, or moved elsewhere. Call [`keyspace::moved`]
/// first, so that this call can see the move, and [`drain_some`](super::disconnect::drain_some) afterwards.
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
    let Lost { key_id, db, kind, prints, requests, bindings, subjects, .. } = lost;
    // Where a swap since then took the other keys of its database. The waiters stayed.
    let there = Key { db, ..key };
    if tables.leases.of_key(key_id, there).is_some() {
        tables.leases.leave(key_id);
    }
    let home = tables.leases.home(db);
    let is_replaced = matches!(turn.keys.get(there), Lookup::Here(_));
    // The memory of requests may be another one since: then it has its own.
    if prints == tables.spent.prints() {
        tables.note_over(requests, tables.regime.lease(turn.now.mono));
    }
    for (client, id) in bindings {
        unbind_lost(tables, turn, HoldRef { home, key: key_id, id }, client);
    }
    tables.tell_deleted(turn.fx, key, subjects);
    if tables.regime.is_primary() {
        if kind == Kind::Semaphore && !is_replaced {
            tables.in_flight.forget_taken(|gone| gone == there);
        }
        tables.value_is_gone(kind, key, turn.fx);
    }
}

impl Tables {
    /// Notes requests that are over now.
    pub(crate) fn note_over(
        &mut self,
        requests: impl IntoIterator<Item = (Print, Use)>,
        now: LeaseInstant,
    ) {
        let limits = self.settings.request_limits();
        for (print, what) in requests {
            self.spent.put(User::UNKNOWN, print, what, now, limits);
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
