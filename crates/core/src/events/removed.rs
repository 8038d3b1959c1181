//! Large values that the server has removed, and very many readers whose holds were broken together, drained in
//! portions.
//!
//! A semaphore can have 100,000 permits, each with a binding, a message and requests to remember. So the shell hands
//! over such a value when the server frees it. The tick ends its holds, a few at a time, and then frees the value piece
//! by piece. Until then lookups find the requests of the remaining holds in the value itself. A binding of an ended
//! hold shortens nothing.

use crate::bytes::Name;
use crate::ids::{HoldId, HoldRef, KeyId};
use crate::key::Key;
use crate::kind::Kind;
use crate::machine::Machine;
use crate::pending::removed::{Fate, Removed};
use crate::spent::{Print, RequestKey, Use, spent_of};
use crate::state::hold::NO_CLIENT;
use crate::state::holds::Holds;
use crate::state::lock::Lock;
use crate::state::resource::{Body, Resource};
use crate::state::rw::RwLock;
use crate::store::Lookup;
use crate::turn::{Step, Turn};
use alloc::boxed::Box;
use alloc::vec::Vec;

/// Holds that one piece of work ends.
const HOLDS_AT_ONCE: usize = 2;

/// Parts that one piece of work frees.
const PARTS_AT_ONCE: usize = 8;

impl Machine {
    /// Takes over a large value that was removed from `key`, and whose entry is gone.
    pub(crate) fn take_over_removed(&mut self, key: Key<'_>, key_id: KeyId, value: Box<Resource>) {
        let is_primary = self.regime.is_primary();
        let fate = if is_primary { Fate::Deleted } else { Fate::Replayed };
        self.work_off_later(key, key_id, value, fate);
    }

    fn work_off_later(&mut self, key: Key<'_>, key_id: KeyId, value: Box<Resource>, fate: Fate) {
        let name = Name::from(key.name);
        let db = key.db;
        let removed = Removed { db, name, key_id, value, last: None, fate, remembers: true };
        self.pending.removed.push_back(removed);
    }

    /// Ends the holds of all readers of a key, if they are very many. Returns their number. The caller hands off.
    pub(crate) fn break_readers(&mut self, step: &mut Step<'_>, resource: &mut Resource) -> usize {
        let count = resource.others().map_or(0, Holds::len);
        if count <= self.wide_at_once {
            return 0;
        }
        if step.dirty {
            // Noted as a record of its own: a replica must find in the value exactly the readers that are broken now.
            self.note_state(step, resource);
        }
        let Body::Rw(rw) = &mut resource.body else { return 0 };
        let readers = rw.readers.take_all();
        let mut gone = Resource::free(Kind::Rw);
        gone.body = Body::Rw(Box::new(RwLock { lock: Lock::Free, readers }));
        let fate = Fate::Broken { client: step.caller.client };
        self.work_off_later(step.key, resource.key_id, Box::new(gone), fate);
        self.counters.broken += count as u64;
        if let Some(queue) = self.waits.queue_of(step.key) {
            self.waits.forget_readers(queue);
        }
        step.dirty = true;
        count
    }

    /// A record has replaced the state of a key, and with it very many readers, which its primary has broken.
    pub(crate) fn replaced(&mut self, key: Key<'_>, before: Body, now: &Resource) {
        let mut gone = Resource::free(Kind::Rw);
        gone.body = before;
        let last = gone.others().and_then(Holds::last_id);
        let is_later = |id| last.is_none_or(|last| id > last);
        // The present readers came later. Otherwise it is the same value again.
        if now.others().and_then(Holds::first_id).is_none_or(is_later) {
            self.work_off_later(key, KeyId::NONE, Box::new(gone), Fate::Replayed);
        } else {
            self.freed(gone);
        }
    }

    /// The server has freed a large value for which no work is left: its memory is freed piece by piece.
    pub fn freed(&mut self, value: Resource) {
        self.pending.debris.push_back(value.into_debris());
    }

    /// Whether a removed large value is not drained.
    pub(crate) fn has_removed(&self) -> bool {
        !self.pending.removed.is_empty()
    }

    /// Whether memory of removed values is not freed yet.
    pub(crate) fn has_debris(&self) -> bool {
        !self.pending.debris.is_empty()
    }

    /// Number of removed values that are not drained or not freed.
    pub fn removed_values(&self) -> usize {
        self.pending.removed.len() + self.pending.debris.len()
    }

    /// Ends some holds of the first value that is not drained; `false` if there is none.
    pub(crate) fn drain_removed(&mut self, turn: &mut Turn<'_>) -> bool {
        let Some(mut removed) = self.pending.removed.pop_front() else { return false };
        let (lease, limits) = (self.regime.lease(turn.now.mono), self.request_limits());
        let (key, kind) = (removed.key(), removed.value.kind());
        let most = HOLDS_AT_ONCE.min(self.wide_at_once);
        let mut last = None;
        for (id, hold) in removed.rest().take(most) {
            last = Some(id);
            if removed.remembers {
                for (name, what) in spent_of(kind, id, hold, false) {
                    self.spent.note(key, name, what, lease, limits);
                }
            }
            if self.regime.is_primary() {
                removed.fate.tell(key, id, hold, turn.fx);
                if let Fate::Broken { client } = removed.fate {
                    self.observe_broken(turn.now, key, id, hold, client);
                }
            }
            self.unbind_removed(turn, removed.key_id, id, hold.bound_to());
        }
        match last {
            Some(id) => {
                removed.last = Some(id);
                self.pending.removed.push_front(removed);
            }
            None => self.freed(*removed.value),
        }
        true
    }

    /// Removes the binding of an ended hold. Its entry may belong to another key by now, with a hold of the same id.
    pub(crate) fn unbind_removed(
        &mut self,
        turn: &mut Turn<'_>,
        key_id: KeyId,
        id: HoldId,
        client: u64,
    ) {
        if client == NO_CLIENT {
            return;
        }
        let is_tied_again = self.leases.key_of(key_id).is_some_and(|key| {
            // If the key cannot be read now, the binding may be live: the binding of an ended hold shortens nothing.
            !turn.keys.reaches(key)
                || matches!(
                    turn.keys.get(key),
                    Lookup::Here(resource) if resource.key_id == key_id
                        && resource.hold(id).is_some_and(|hold| hold.bound_to() == client)
                )
        });
        if !is_tied_again {
            self.connections.unbind(client, HoldRef { key: key_id, id });
        }
    }

    /// Frees some memory of removed values; `false` if there is none.
    pub(crate) fn free_some(&mut self) -> bool {
        let Some(first) = self.pending.debris.front_mut() else { return false };
        if !first.free(PARTS_AT_ONCE) {
            self.pending.debris.pop_front();
        }
        true
    }

    /// What a request did to a hold of a removed value that is not drained.
    pub(crate) fn find_removed(&self, key: Key<'_>, name: RequestKey<'_>) -> Option<Use> {
        let mut removed = self.pending.removed.iter().filter(|_| self.remembers_requests());
        removed.find_map(|removed| removed.find(key, name))
    }

    /// The requests of all holds of removed values that are not drained, by fingerprint.
    pub(crate) fn requests_of_removed(&self) -> Vec<(Print, Use)> {
        let removed = self.pending.removed.iter();
        let removed = removed.filter(|removed| removed.remembers && self.remembers_requests());
        let requests = removed.flat_map(|removed| {
            let kind = removed.value.kind();
            let holds = removed.rest();
            holds.flat_map(move |(id, hold)| {
                let requests = spent_of(kind, id, hold, false);
                requests.map(|(name, what)| (self.spent.print(removed.key(), name), what))
            })
        });
        requests.collect()
    }

    fn remembers_requests(&self) -> bool {
        let limits = self.request_limits();
        limits.keep_ms > 0 && limits.most > 0
    }

    /// Another data set replaces the one to which the removed values belonged.
    pub(crate) fn forget_requests_of_removed(&mut self) {
        for removed in &mut self.pending.removed {
            removed.remembers = false;
        }
    }
}
