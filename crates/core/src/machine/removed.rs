//! Large values that the server has removed, worked off in portions.
//!
//! A semaphore can have 100,000 permits, each with a tie, a message and requests to remember. So the shell hands over such a value
//! when the server frees it. The tick ends its holds, a few at a time, and then frees the value piece by piece. Until then
//! the requests of the remaining holds are found in the value itself, and a tie to an entry that has left cuts nothing.

use super::requests::spent_of;
use super::{Machine, Role, subject};
use crate::bytes::Name;
use crate::effects::Effects;
use crate::hold::{Hold, NO_CLIENT};
use crate::holds::HoldId;
use crate::lease::EntryId;
use crate::resource::{Body, Debris, Resource};
use crate::spent::{Print, RequestKey, Scope, Use};
use crate::store::{Key, Slot, Store};
use crate::time::Now;
use alloc::boxed::Box;
use alloc::vec::Vec;
use dlock_wire::message::Event;

/// Holds that one piece of work ends.
const HOLDS_AT_ONCE: usize = 2;

/// Parts that one piece of work frees.
const PARTS_AT_ONCE: usize = 8;

/// A value that is gone from its key, and of which some holds are not ended yet.
#[derive(Debug)]
pub(super) struct Removed {
    db: u32,
    name: Name,
    entry: EntryId,
    value: Box<Resource>,
    /// The last hold that was ended.
    last: Option<HoldId>,
    /// Its holds send messages: this server was a primary when the value went.
    sends: bool,
    /// Its requests belong to the data set that is served.
    remembers: bool,
}

impl Removed {
    fn key(&self) -> Key<'_> {
        Key { db: self.db, name: &self.name }
    }

    /// The holds that are not ended yet, in the order of their ids.
    fn rest(&self) -> impl Iterator<Item = (HoldId, &Hold)> {
        self.value.others().into_iter().flat_map(|holds| holds.after(self.last))
    }

    /// What a request did to a hold that is not ended yet.
    fn find(&self, key: Key<'_>, name: RequestKey<'_>) -> Option<Use> {
        if !self.remembers || key != self.key() || name.owner.is_empty() {
            return None;
        }
        let (id, hold) = match (&self.value.body, name.scope) {
            (Body::Semaphore(semaphore), Scope::Semaphore) => {
                semaphore.permits.by_request(name.owner, name.id)?
            }
            (Body::Rw(rw), Scope::Read) => rw.readers.by_request(name.owner, name.id)?,
            _ => return None,
        };
        if self.last.is_some_and(|last| id <= last) {
            return None;
        }
        let mut requests = spent_of((self.value.kind(), id), hold, false);
        requests.find(|(known, _)| *known == name).map(|(_, what)| what)
    }
}

impl Machine {
    /// Takes over a large value that was removed from `key`, and whose entry has left.
    pub(super) fn take_over_removed(&mut self, key: Key<'_>, entry: EntryId, value: Box<Resource>) {
        let sends = self.role == Role::Primary;
        let name = Name::from(key.name);
        let db = key.db;
        let removed = Removed { db, name, entry, value, last: None, sends, remembers: true };
        self.removed.push_back(removed);
    }

    /// The server has freed a large value of which nothing is left to do: its memory goes piece by piece.
    pub fn freed(&mut self, value: Resource) {
        self.debris.push_back(value.into_debris());
    }

    /// Whether a large value that was removed is not worked off.
    pub(super) fn has_removed(&self) -> bool {
        !self.removed.is_empty()
    }

    /// Whether memory of removed values is not given back yet.
    pub(super) fn has_debris(&self) -> bool {
        !self.debris.is_empty()
    }

    /// How many removed values are not worked off or not freed.
    pub fn removed_values(&self) -> usize {
        self.removed.len() + self.debris.len()
    }

    /// Ends some holds of the first value that is not worked off; `false` if there is none.
    pub(super) fn work_off_removed<S: Store>(
        &mut self,
        store: &mut S,
        now: Now,
        fx: &mut Effects,
    ) -> bool {
        let Some(mut removed) = self.removed.pop_front() else { return false };
        let (lease, limits) = (self.clock.at(now.mono), self.request_limits());
        let (key, kind) = (removed.key(), removed.value.kind());
        let most = HOLDS_AT_ONCE.min(self.wide_at_once);
        let mut last = None;
        for (id, hold) in removed.rest().take(most) {
            last = Some(id);
            if removed.remembers {
                for (name, what) in spent_of((kind, id), hold, false) {
                    self.spent.note(key, name, what, lease, limits);
                }
            }
            if removed.sends
                && self.role == Role::Primary
                && let Some(subject) = subject(id, hold)
            {
                fx.message(Event::Deleted, key, subject);
            }
            self.untie_removed(store, (removed.entry, id), hold.tied_to());
        }
        match last {
            Some(id) => {
                removed.last = Some(id);
                self.removed.push_front(removed);
            }
            None => self.freed(*removed.value),
        }
        true
    }

    /// Takes out the tie of a hold that is gone. Its entry may belong to another key by now, with a hold of the same id.
    pub(super) fn untie_removed<S: Store>(
        &mut self,
        store: &mut S,
        (entry, id): (EntryId, HoldId),
        client: u64,
    ) {
        if client == NO_CLIENT {
            return;
        }
        let is_tied_again = self.leases.get(entry).is_some_and(|found| {
            let key = Key { db: found.db, name: &found.name };
            // What cannot be looked at now may be tied: the tie of a hold that is gone cuts nothing.
            !store.reaches(key)
                || matches!(
                    store.get(key),
                    Slot::Here(resource) if resource.entry == entry
                        && resource.hold(id).is_some_and(|hold| hold.tied_to() == client)
                )
        });
        if !is_tied_again {
            self.connections.untie(client, entry, id);
        }
    }

    /// Gives back some memory of removed values; `false` if there is none.
    pub(super) fn free_some(&mut self) -> bool {
        let Some(first) = self.debris.front_mut() else { return false };
        if !first.free(PARTS_AT_ONCE) {
            self.debris.pop_front();
        }
        true
    }

    /// What a request did to a hold of a removed value that is not worked off.
    pub(super) fn find_removed(&self, key: Key<'_>, name: RequestKey<'_>) -> Option<Use> {
        let mut removed = self.removed.iter().filter(|_| self.remembers_requests());
        removed.find_map(|removed| removed.find(key, name))
    }

    /// The requests of all holds of removed values that are not worked off, by fingerprint.
    pub(super) fn requests_of_removed(&self) -> Vec<(Print, Use)> {
        let removed = self.removed.iter();
        let removed = removed.filter(|removed| removed.remembers && self.remembers_requests());
        let requests = removed.flat_map(|removed| {
            let kind = removed.value.kind();
            let holds = removed.rest();
            holds.flat_map(move |(id, hold)| {
                let requests = spent_of((kind, id), hold, false);
                requests.map(|(name, what)| (self.spent.print(removed.key(), name), what))
            })
        });
        requests.collect()
    }

    fn remembers_requests(&self) -> bool {
        let limits = self.request_limits();
        limits.keep_ms > 0 && limits.most > 0
    }

    /// Another data set takes the place of the one to which the removed values belonged.
    pub(super) fn forget_requests_of_removed(&mut self) {
        for removed in &mut self.removed {
            removed.remembers = false;
        }
    }
}

/// Memory of removed values, in the order in which it is given back.
pub(super) type AllDebris = alloc::collections::VecDeque<Debris>;
