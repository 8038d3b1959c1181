//! Holds that are gone with their value, and very many readers that were broken together.
//!
//! A semaphore can have 100,000 permits, each with a binding, a message and requests to remember. The server frees such
//! a value at once; what has to be noted and told about its holds stays, without their strings. The tick works it off,
//! a few at a time. Until then lookups find the requests there. A binding of an ended hold shortens nothing.

use crate::bytes::Name;
use crate::effects::Event;
use crate::ids::{HoldId, HoldRef, KeyId};
use crate::key::Key;
use crate::kind::Kind;
use crate::machine::Machine;
use crate::pending::removed::{Fate, Remains, Removed};
use crate::shares::User;
use crate::spent::{Print, RequestKey, Use};
use crate::state::hold::NO_CLIENT;
use crate::state::holds::Holds;
use crate::state::resource::{Body, Resource};
use crate::store::Lookup;
use crate::turn::{Step, Turn};
use alloc::vec::Vec;
use dlock_wire::message::Event as Message;

/// Messages that one piece of work sends, bindings that it removes, and requests that it notes.
pub(crate) const ENDS_AT_ONCE: usize = 2;

impl Machine {
    /// Holds of `key` are gone. Does the first part of what is left to do for them; the tick does the rest.
    pub(crate) fn work_off(
        &mut self,
        turn: &mut Turn<'_>,
        key: Key<'_>,
        entry: (u32, KeyId),
        remains: Remains,
        most: usize,
    ) {
        let (db, name) = (key.db, Name::from(key.name));
        let mut removed = Removed { db, name, entry, remains, fate: Fate::Deleted, events: 0 };
        removed.remains.forget_unless(self.spent.prints());
        self.work_off_some(turn, &mut removed, self.wide_at_once.min(most));
        if !removed.is_done() {
            self.pending.removed.push_back(removed);
        }
    }

    fn work_off_later(&mut self, key: Key<'_>, key_id: KeyId, holds: &Holds) {
        let (db, name) = (key.db, Name::from(key.name));
        let remains = Remains::of(key, Kind::Rw, self.spent.prints(), holds.iter(), None);
        let (fate, events) = (Fate::Broken, holds.len());
        let entry = (self.leases.home(db), key_id);
        self.pending.removed.push_back(Removed { db, name, entry, remains, fate, events });
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
        for (id, hold) in readers.iter() {
            self.observe_broken(step.now, step.key, id, hold, step.caller.client);
        }
        self.work_off_later(step.key, resource.key_id, &readers);
        self.counters.broken += count as u64;
        if let Some(queue) = self.waits.queue_of(step.key) {
            self.waits.forget_readers(queue);
        }
        step.dirty = true;
        count
    }

    /// A record has replaced the state of a key, and with it very many readers, which its primary has broken.
    pub(crate) fn replaced(&mut self, key: Key<'_>, before: &Holds, now: &Resource) {
        let is_later = |id| before.last_id().is_none_or(|last| id > last);
        // The present readers came later. Otherwise it is the same value again.
        if now.others().and_then(Holds::first_id).is_none_or(is_later) {
            self.work_off_later(key, KeyId::NONE, before);
        }
    }

    /// Whether something is left to do for holds that are gone.
    pub(crate) fn has_removed(&self) -> bool {
        !self.pending.removed.is_empty()
    }

    /// Number of removed values for which something is left to do, and one for memory that is not freed.
    pub fn removed_values(&self) -> usize {
        self.pending.removed.len() + usize::from(self.has_debris())
    }

    /// Does a piece of what is left to do for holds that are gone; `false` if there is nothing.
    pub(crate) fn drain_removed(&mut self, turn: &mut Turn<'_>) -> bool {
        let Some(mut removed) = self.pending.removed.pop_front() else { return false };
        self.work_off_some(turn, &mut removed, ENDS_AT_ONCE.min(self.wide_at_once));
        if !removed.is_done() {
            self.pending.removed.push_front(removed);
        }
        true
    }

    fn work_off_some(&mut self, turn: &mut Turn<'_>, removed: &mut Removed, most: usize) {
        let Removed { db, name, entry, remains, fate, events } = removed;
        let (lease, limits) = (self.regime.lease(turn.now.mono), self.request_limits());
        let key = Key { db: *db, name };
        for (print, what) in remains.requests.by_ref().take(most) {
            self.spent.put(User::UNKNOWN, print, what, lease, limits);
        }
        for (client, id) in remains.bindings.by_ref().take(most) {
            self.unbind_removed(turn, *entry, id, client);
        }
        let message = match fate {
            Fate::Deleted => Message::Deleted,
            Fate::Broken => Message::Broken,
        };
        // A primary sends the messages and events.
        let is_primary = self.regime.is_primary();
        let left = events.saturating_sub(most);
        for _ in left..core::mem::replace(events, left) {
            if is_primary {
                turn.fx.note(key, Event::Break);
            }
        }
        for subject in remains.messages.by_ref().take(most).filter(|_| is_primary) {
            turn.fx.message(message, key, subject);
        }
    }

    /// Removes the binding of an ended hold. Its entry may belong to another key by now, with a hold of the same id.
    pub(crate) fn unbind_removed(
        &mut self,
        turn: &mut Turn<'_>,
        (home, key_id): (u32, KeyId),
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
            self.connections.unbind(client, HoldRef { home, key: key_id, id });
        }
    }

    /// What a request did to a hold that is gone.
    pub(crate) fn find_removed(&self, key: Key<'_>, name: RequestKey<'_>) -> Option<Use> {
        if self.pending.removed.is_empty() || !self.remembers_requests() {
            return None;
        }
        let print = self.spent.print(key, name);
        self.pending.removed.iter().find_map(|removed| removed.remains.find(print))
    }

    /// The requests of all holds that are gone and not worked off, by fingerprint.
    pub(crate) fn requests_of_removed(&self) -> Vec<(Print, Use)> {
        let removed = self.pending.removed.iter().filter(|_| self.remembers_requests());
        removed.flat_map(|removed| removed.remains.requests.as_slice()).copied().collect()
    }

    fn remembers_requests(&self) -> bool {
        let limits = self.request_limits();
        limits.keep_ms > 0 && limits.most > 0
    }

    /// Another data set replaces the one to which the removed values belonged.
    pub(crate) fn forget_requests_of_removed(&mut self) {
        for removed in &mut self.pending.removed {
            removed.remains.forget_requests();
        }
    }
}
