//! Values that the server has unlinked from their keys: most of them are gone for good, and their holds have ended.

use crate::events::removed::ENDS_AT_ONCE;
use crate::ids::{ALONE, HoldRef, KeyId};
use crate::key::{Key, Swap};
use crate::kind::Kind;
use crate::machine::Machine;
use crate::pending::removed::Remains;
use crate::portions::AT_ONCE;
use crate::requests::LOST_LATCH;
use crate::spent::{Print, Prints, Use};
use crate::state::holds::Holds;
use crate::state::resource::{Body, Resource};
use crate::store::Lookup;
use crate::turn::Turn;

/// The state of a value when the server unlinked it from its key.
#[derive(Debug)]
pub struct Lost {
    key_id: KeyId,
    /// Where the keys of its database are now.
    db: u32,
    kind: Kind,
    prints: Prints,
    /// Of its holds; of a large value only of the hold of [`Resource::lock`].
    remains: Remains,
    /// Of the other holds of a large value; `None`: the server has not freed it.
    others: Option<Remains>,
    is_large: bool,
    /// RENAME or MOVE unlinked it: the value lives on under another key.
    has_moved: bool,
}

impl Lost {
    /// Notes the state of `resource`, which is at `key`, for a later [`Machine::unlinked`].
    pub fn of(resource: &Resource, key: Key<'_>, prints: Prints) -> Self {
        Self::with(resource, key, prints, false)
    }

    /// As [`Lost::of`], in O(1), for a large value. The shell calls [`Lost::bring`] when the server
    /// frees it. The server does not free a value that lives on under another name.
    pub fn of_large(resource: &Resource, key: Key<'_>, prints: Prints) -> Self {
        Self::with(resource, key, prints, true)
    }

    fn with(resource: &Resource, key: Key<'_>, prints: Prints, is_large: bool) -> Self {
        let (kind, key_id) = (resource.kind(), resource.key_id);
        let alone = resource.lock().hold().map(|hold| (ALONE, hold));
        let others = resource.others().filter(|_| !is_large);
        let holds = alone.into_iter().chain(others.into_iter().flat_map(Holds::iter));
        let is_closed = matches!(&resource.body, Body::Latch(latch) if latch.count > 0);
        let latch = is_closed.then_some((LOST_LATCH, Use::PassedOver));
        let remains = Remains::of(key, kind, prints, holds, latch);
        Self { key_id, db: key.db, kind, prints, remains, others: None, is_large, has_moved: false }
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
        self.kind == Kind::Latch && !self.has_moved && !self.remains.requests.as_slice().is_empty()
    }

    /// A record has made a latch under the same key since.
    pub fn forget_latch(&mut self) {
        if self.kind == Kind::Latch {
            self.remains.forget_requests();
        }
    }

    /// The requests of its holds that are over with the value, for the memory that keeps `prints`: none if the value
    /// lives on.
    pub(crate) fn spent(&self, prints: Prints) -> impl Iterator<Item = (Print, Use)> {
        let is_over = !self.has_moved && self.prints == prints;
        let all = is_over.then_some([Some(&self.remains), self.others.as_ref()]);
        let all = all.into_iter().flatten().flatten();
        all.flat_map(|remains| remains.requests.as_slice()).copied()
    }

    /// Whether this waits for `resource` to be brought.
    pub fn awaits(&self, resource: &Resource) -> bool {
        self.is_large
            && self.others.is_none()
            && self.key_id == resource.key_id
            && self.kind == resource.kind()
    }

    /// The server frees the value, which was at `key`.
    pub fn bring(&mut self, resource: Resource, key: Key<'_>) {
        let holds = resource.into_others().into_iter().flat_map(Holds::into_all);
        self.others = Some(Remains::of(key, self.kind, self.prints, holds, None));
    }
}

impl Machine {
    /// A value was unlinked from `key`: deleted, evicted, overwritten, or moved elsewhere. Call [`Machine::moved`]
    /// first, so that this call can see the move, and [`Machine::drain_some`] afterwards.
    pub fn unlinked(&mut self, turn: &mut Turn<'_>, key: Key<'_>, lost: Option<Lost>) {
        let mut is_here = false;
        if let Some(lost) = lost {
            let there = Key { db: lost.db, ..key };
            let is_back = lost.key_id != KeyId::NONE
                && matches!(turn.keys.get(there), Lookup::Here(back) if back.key_id == lost.key_id);
            is_here = is_back && there == key;
            if self.is_gone(there, &lost, is_back) {
                self.lose(turn, key, lost);
            }
        }
        if let Some(queue) = self.waits.queue_of(key)
            // The value has come back: its readers are listed.
            && !(is_here && self.waits.is_kept_for_readers(queue))
        {
            self.inspect(turn, queue);
        }
        if let Some(observers) = self.waits.observers_of(key) {
            self.inspect(turn, observers);
        }
    }

    /// Before an operation on a key: if opening the key removed a value whose time to live is over, applies that loss.
    /// Reported later, it would pass for the loss of what this operation puts there.
    pub(crate) fn see_to_loss_of(&mut self, turn: &mut Turn<'_>, key: Key<'_>) {
        if let Some(lost) = turn.keys.take_lost(key) {
            self.unlinked(turn, key, Some(lost));
        }
    }

    /// Whether a value that was unlinked from `key` is gone for good. If it moved, its entry has moved with it.
    /// `is_here`: it is under `key` again.
    fn is_gone(&mut self, key: Key<'_>, lost: &Lost, is_here: bool) -> bool {
        let has_entry = self.leases.of_key(lost.key_id, key).is_some();
        if lost.has_moved {
            if has_entry && !is_here {
                // A record was replayed under its new key before this server followed it there, and made a new entry.
                self.leases.leave(lost.key_id);
                let home = self.leases.home(lost.db);
                for &(client, id) in lost.remains.bindings.as_slice() {
                    self.connections.unbind(client, HoldRef { home, key: lost.key_id, id });
                }
            }
            return false;
        }
        !is_here
    }

    /// Applies the loss of a value. A replica does the same itself.
    fn lose(&mut self, turn: &mut Turn<'_>, key: Key<'_>, lost: Lost) {
        let Lost { key_id, db, kind, remains, others, is_large, .. } = lost;
        if self.leases.of_key(key_id, Key { db, ..key }).is_some() {
            self.leases.leave(key_id);
        }
        let entry = (self.leases.home(db), key_id);
        let is_replaced = matches!(turn.keys.get(key), Lookup::Here(_));
        self.work_off(turn, key, entry, remains, AT_ONCE);
        if self.regime.is_primary() {
            if kind == Kind::Semaphore && !is_replaced {
                self.forget_taken(|gone| gone == key);
            }
            self.value_is_gone(kind, key, turn.fx);
        }
        match others {
            Some(others) => self.work_off(turn, key, entry, others, ENDS_AT_ONCE),
            // The server has freed the value in the background, although it is told not to: at least drop its bindings.
            None if is_large => self.connections.unbind_all(entry),
            None => {}
        }
    }
}
