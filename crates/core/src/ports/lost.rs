//! What is left of a value that the server has unlinked from its key.

use crate::base::bytes::Owner;
use crate::base::ids::{HoldId, KeyId};
use crate::base::key::{Key, Swap};
use crate::base::kind::Kind;
use crate::ports::subject::Subjects;
use crate::value::hold::NO_CLIENT;
use crate::value::resource::{Body, Resource};
use crate::value::spent::{LOST_LATCH, Loss, Print, Prints, Use};
use alloc::vec::Vec;

/// What has to be noted and told about the holds of a value, at the moment when the server unlinked it from its key. It
/// is smaller than the value: the server evicts keys until its memory falls.
#[derive(Debug)]
pub struct Lost {
    pub(crate) key_id: KeyId,
    /// Where the keys of its database are now.
    pub(crate) db: u32,
    pub(crate) kind: Kind,
    pub(crate) prints: Prints,
    /// The requests of its holds.
    pub(crate) requests: Vec<(Print, Use)>,
    /// The connections to which its holds were bound.
    pub(crate) bindings: Vec<(u64, HoldId)>,
    /// Of the holds that send messages.
    pub(crate) subjects: Subjects,
    /// How many holds it had, and the owner, the id and the token of the first.
    pub(crate) holds: u64,
    pub(crate) first: Option<(Owner, HoldId, u64)>,
    /// The server evicted it.
    pub(crate) is_evicted: bool,
    /// RENAME or MOVE unlinked it: the value lives on under another key.
    pub(crate) has_moved: bool,
}

impl Lost {
    /// Notes the state of `resource`, which is at `key`, for a later `unlinked`.
    pub fn of(resource: &Resource, key: Key<'_>, prints: Prints) -> Self {
        let (kind, key_id) = (resource.kind(), resource.key_id);
        let (mut requests, mut bindings) = (Vec::new(), Vec::new());
        let mut subjects = Subjects::default();
        if matches!(&resource.body, Body::Latch(latch) if latch.count > 0) {
            requests.push((prints.of(key, LOST_LATCH), Use::Lost(Loss::Deleted)));
        }
        let (mut holds, mut first) = (0, None);
        // One walk: holds are scattered in memory.
        for (id, hold) in resource.holds() {
            holds += 1;
            first.get_or_insert_with(|| (hold.owner.clone(), id, hold.token));
            requests.extend(prints.of_hold(key, kind, id, hold, Loss::Deleted));
            if hold.bound_to() != NO_CLIENT {
                bindings.push((hold.bound_to(), id));
            }
            subjects.push(id, hold);
        }
        let (db, is_evicted, has_moved) = (key.db, false, false);
        Self {
            key_id,
            db,
            kind,
            prints,
            requests,
            bindings,
            subjects,
            holds,
            first,
            is_evicted,
            has_moved,
        }
    }

    /// Two databases were swapped since.
    pub fn swap(&mut self, swap: Swap) {
        self.db = swap.target_of(self.db);
    }

    /// RENAME or MOVE has brought the value to another key. Call this as soon as that is known.
    pub fn follow(&mut self) {
        self.has_moved = true;
    }

    /// The server says that it has evicted the value.
    pub fn evict(&mut self) {
        self.is_evicted = true;
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
