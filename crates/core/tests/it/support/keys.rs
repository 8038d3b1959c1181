//! Keys in a sorted list, and what of them a replica must have too.

use dlock_core::hold::Notify;
use dlock_core::machine::Lost;
use dlock_core::resource::{Lock, Resource};
use dlock_core::store::{Key, Slot, Store};

/// Database and name of a key.
pub type Id = (u32, Vec<u8>);

/// Keys in a sorted list (there are few); `None` stands for a value of another type.
#[derive(Debug, Default)]
pub struct Keys {
    pub(super) values: Vec<(Id, Option<Resource>)>,
    /// Keys that have a time to live which somebody set.
    pub with_ttl: Vec<Id>,
}

impl Store for Keys {
    fn get(&mut self, key: Key<'_>) -> Slot<'_> {
        match self.find(key).map(|at| &mut self.values[at].1) {
            Err(_) => Slot::Missing,
            Ok(None) => Slot::Foreign,
            Ok(Some(resource)) => Slot::Here(resource),
        }
    }

    fn put(&mut self, key: Key<'_>, resource: Resource) {
        assert!(self.find(key).is_err(), "a new value is put only where there is none");
        self.insert(key, Some(resource));
    }

    fn remove(&mut self, key: Key<'_>) {
        assert!(self.clear(key), "only what is there is removed");
    }

    fn is_empty(&mut self, db: u32) -> bool {
        self.values.iter().all(|((other, _), _)| *other != db)
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

    /// Takes away what is there; whether it was one of ours.
    fn clear(&mut self, key: Key<'_>) -> bool {
        self.take(key).is_some_and(|value| value.is_some())
    }

    #[allow(clippy::option_option)] // nothing there, or a value of another type
    pub(super) fn take(&mut self, key: Key<'_>) -> Option<Option<Resource>> {
        self.with_ttl.retain(|id| !is(id, key));
        self.find(key).ok().map(|at| self.values.remove(at).1)
    }

    pub(super) fn lost(&self, key: Key<'_>) -> Option<Lost> {
        let at = self.find(key).ok()?;
        self.values[at].1.as_ref().map(Lost::of)
    }

    pub(super) fn swap(&mut self, a: u32, b: u32) {
        for ((db, _), _) in &mut self.values {
            *db = match *db {
                db if db == a => b,
                db if db == b => a,
                db => db,
            };
        }
        self.values.sort_by(|(one, _), (other, _)| one.cmp(other));
    }

    /// What must be the same on a replica, key by key.
    pub fn digest(&self) -> impl Iterator<Item = (&Id, Option<Digest<'_>>)> {
        self.values.iter().map(|(key, value)| (key, value.as_ref().map(Digest::of)))
    }
}

pub(super) fn own(key: Key<'_>) -> Id {
    (key.db, key.name.to_vec())
}

fn is(id: &Id, key: Key<'_>) -> bool {
    id.0 == key.db && id.1 == key.name
}

/// A resource without its remaining times.
#[derive(Debug, PartialEq, Eq)]
pub enum Digest<'a> {
    /// Closed by lock-delay for so many milliseconds.
    Closed(u64),
    /// Held.
    Held {
        owner: &'a [u8],
        token: u64,
        count: u32,
        lease_ms: u64,
        requests: &'a [u8],
        label: &'a [u8],
        notify: Option<&'a Notify>,
        tie_ms: Option<u64>,
        unclaimed_ms: Option<u64>,
    },
    /// A key that should not be there.
    Free,
}

impl<'a> Digest<'a> {
    /// That of `resource`.
    pub fn of(resource: &'a Resource) -> Self {
        match resource.lock() {
            Lock::Free => Self::Free,
            Lock::Closed { delay_ms, .. } => Self::Closed(*delay_ms),
            Lock::Held(hold) => Self::Held {
                owner: &hold.owner,
                token: hold.token,
                count: hold.count,
                lease_ms: hold.lease_ms,
                requests: hold.requests(),
                label: hold.label(),
                notify: hold.extras.as_ref().map(|extras| &extras.notify),
                tie_ms: hold.tie().map(|tie| tie.ms),
                unclaimed_ms: hold.unclaimed().map(|unclaimed| unclaimed.queue_ms),
            },
        }
    }
}
