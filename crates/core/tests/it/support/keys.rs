//! Keys in a sorted list, and the part of them that a replica must have, too.

use dlock_core::base::key::{Key, Swap};
use dlock_core::base::kind::Kind;
use dlock_core::base::shares::User;
use dlock_core::ports::lost::Lost;
use dlock_core::ports::store::{Lookup, Reach, Store};
use dlock_core::record;
use dlock_core::value::resource::{Body, Resource};
use dlock_core::value::spent::Prints;

/// Database and name of a key.
pub type Id = (u32, Vec<u8>);

/// Keys in a sorted list (there are few); `None` stands for a value of another type.
#[derive(Debug, Default)]
pub struct Keys {
    pub(super) values: Vec<(Id, Option<Resource>)>,
    /// Keys with a time to live that a client set.
    pub with_ttl: Vec<Id>,
    /// How the machine makes fingerprints of requests; for keys that are removed.
    pub prints: Option<Prints>,
    /// The only slot that can be reached, as in a command of a cluster; `None`: all can.
    pub slot: Option<usize>,
    /// The server takes no writes: keys may only be looked at.
    pub is_shut: bool,
    /// The ACL user of the next calls.
    pub user: User,
    /// Keys that begin with this byte may not be read by the caller.
    pub secret: Option<u8>,
    /// Removed keys of which the machine has not learnt, with what was lost.
    pub(super) unheard: Vec<(Id, Lost)>,
}

/// The slot of a key in the cluster of the tests: its first byte.
pub fn slot_of(name: &[u8]) -> usize {
    usize::from(name.first().copied().unwrap_or_default())
}

impl Store for Keys {
    fn reach(&self) -> Reach {
        if self.slot.is_some() { Reach::OneSlot } else { Reach::Everywhere }
    }

    fn reaches(&self, key: Key<'_>) -> bool {
        self.slot.is_none_or(|slot| slot == slot_of(key.name))
    }

    fn user(&self) -> User {
        self.user
    }

    fn may_read(&self, key: Key<'_>) -> bool {
        self.secret.is_none_or(|secret| key.name.first() != Some(&secret))
    }

    fn get(&mut self, key: Key<'_>) -> Lookup<'_> {
        assert!(
            self.reaches(key),
            "a key of another slot: {:?}",
            String::from_utf8_lossy(key.name)
        );
        assert!(!self.is_shut, "a key is opened for writing while the server takes no writes");
        match self.find(key).map(|at| &mut self.values[at].1) {
            Err(_) => Lookup::Missing,
            Ok(None) => Lookup::WrongType,
            Ok(Some(resource)) => Lookup::Here(resource),
        }
    }

    fn peek(&mut self, key: Key<'_>) -> Option<&Resource> {
        assert!(self.reaches(key), "a look at a key of another slot");
        self.find(key).ok().and_then(|at| self.values[at].1.as_ref())
    }

    fn take_lost(&mut self, key: Key<'_>) -> Option<Lost> {
        let at = self.unheard.iter().position(|(id, _)| is(id, key))?;
        Some(self.unheard.remove(at).1)
    }

    fn has_lost_latch(&mut self, key: Key<'_>) -> bool {
        self.unheard.iter().any(|(id, lost)| is(id, key) && lost.is_lost_latch())
    }

    fn forget_lost_latch(&mut self, key: Key<'_>) {
        for (_, lost) in self.unheard.iter_mut().filter(|(id, _)| is(id, key)) {
            lost.forget_latch();
        }
    }

    fn put(&mut self, key: Key<'_>, resource: Resource) {
        assert!(self.reaches(key), "a new key of another slot");
        assert!(self.find(key).is_err(), "a new value is put only where there is none");
        self.insert(key, Some(resource));
    }

    fn remove(&mut self, key: Key<'_>) {
        assert!(self.clear(key), "only what is there is removed");
    }

    fn persist(&mut self, key: Key<'_>) {
        assert!(self.find(key).is_ok(), "only what is there is persisted");
        self.with_ttl.retain(|id| !is(id, key));
    }
}

impl Keys {
    fn find(&self, key: Key<'_>) -> Result<usize, usize> {
        let wanted = (key.db, key.name);
        self.values.binary_search_by(|((db, name), _)| (*db, name.as_slice()).cmp(&wanted))
    }

    pub(super) fn insert(&mut self, key: Key<'_>, value: Option<Resource>) {
        let id = own(key);
        match self.find(key) {
            Ok(at) => self.values[at].1 = value,
            Err(at) => self.values.insert(at, (id, value)),
        }
    }

    /// Removes the value. Returns whether it was one of ours.
    fn clear(&mut self, key: Key<'_>) -> bool {
        self.take(key).is_some_and(|value| value.is_some())
    }

    #[allow(clippy::option_option)] // nothing there, or a value of another type
    pub(super) fn take(&mut self, key: Key<'_>) -> Option<Option<Resource>> {
        self.with_ttl.retain(|id| !is(id, key));
        self.find(key).ok().map(|at| self.values.remove(at).1)
    }

    /// RENAME of the key. Returns what was unlinked from the new name, and from the old one.
    pub fn rename(&mut self, from: Key<'_>, to: Key<'_>) -> [Option<Lost>; 2] {
        let Some(value) = self.take(from) else { return [self.free(to), None] };
        let mut moved = value.as_ref().map(|value| self.lost(from, value));
        moved.iter_mut().for_each(Lost::follow);
        let lost = [self.free(to), moved];
        self.insert(to, value);
        lost
    }

    /// Removes the value.
    pub fn free(&mut self, key: Key<'_>) -> Option<Lost> {
        let value = self.take(key)??;
        Some(self.lost(key, &value))
    }

    /// RENAME of the key, of which the machine has not learnt.
    pub fn rename_unheard(&mut self, from: Key<'_>, to: Key<'_>) {
        for (key, lost) in [to, from].into_iter().zip(self.rename(from, to)) {
            self.unheard.extend(lost.map(|lost| (own(key), lost)));
        }
    }

    /// The removals of which the machine has not learnt.
    pub fn unheard(&self) -> impl Iterator<Item = &Lost> {
        self.unheard.iter().map(|(_, lost)| lost)
    }

    fn lost(&self, key: Key<'_>, value: &Resource) -> Lost {
        let prints = self.prints.expect("the machine has told how it makes fingerprints");
        Lost::of(value, key, prints)
    }

    pub fn swap(&mut self, a: u32, b: u32) {
        for ((db, _), _) in &mut self.values {
            *db = match *db {
                db if db == a => b,
                db if db == b => a,
                db => db,
            };
        }
        self.values.sort_by(|(one, _), (other, _)| one.cmp(other));
        for (_, lost) in &mut self.unheard {
            lost.swap(Swap { a, b });
        }
    }

    /// Keys that are never removed by themselves: semaphores made by INIT or with permits without an owner, and latches
    /// without an end.
    pub(super) fn kept_until_deleted(&self) -> Vec<Id> {
        let is_kept = |value: &Option<Resource>| match value.as_ref().map(|value| &value.body) {
            Some(Body::Semaphore(semaphore)) => !semaphore.is_passing || semaphore.taken > 0,
            Some(Body::Latch(latch)) => latch.deadline.is_none(),
            _ => false,
        };
        let kept = self.values.iter().filter(|(_, value)| is_kept(value));
        kept.map(|(id, _)| id.clone()).collect()
    }

    /// The state that must be the same on a replica, key by key.
    pub fn digest(&self) -> impl Iterator<Item = (&Id, Option<Digest>)> {
        self.values.iter().map(|(key, value)| (key, value.as_ref().map(Digest::of)))
    }
}

pub(super) fn own(key: Key<'_>) -> Id {
    (key.db, key.name.to_vec())
}

fn is(id: &Id, key: Key<'_>) -> bool {
    id.0 == key.db && id.1 == key.name
}

/// A resource without its remaining times: what DEBUG DIGEST sees.
#[derive(Debug, PartialEq, Eq)]
pub enum Digest {
    /// A value that is kept.
    Kept(Kind, Vec<Vec<u8>>),
    /// A key that should not be there.
    Free,
}

impl Digest {
    /// The digest of `resource`.
    pub fn of(resource: &Resource) -> Self {
        if resource.is_free() {
            return Self::Free;
        }
        Self::Kept(resource.kind(), record::digest(resource))
    }
}
