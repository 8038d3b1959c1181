//! The keys of the fake server, in maps.

use std::collections::{BTreeMap, HashMap};

use dlock_core::base::key::Key;
use dlock_core::ports::store::{Lookup, Reach, Store};
use dlock_core::value::resource::Resource;

/// Databases by number, keys by name: SCAN lists them in order.
#[derive(Default)]
pub(crate) struct Keys(HashMap<u32, BTreeMap<Vec<u8>, Resource>>);

impl Keys {
    /// The keys of one database with their values.
    pub(crate) fn of(&self, db: u32) -> impl Iterator<Item = (&[u8], &Resource)> {
        self.0.get(&db).into_iter().flatten().map(|(name, value)| (name.as_slice(), value))
    }

    /// The databases that have keys, with the number of their keys.
    pub(crate) fn databases(&self) -> impl Iterator<Item = (u32, usize)> {
        self.0.iter().map(|(db, keys)| (*db, keys.len())).filter(|(_, keys)| *keys > 0)
    }

    pub(crate) fn take(&mut self, key: Key<'_>) -> Option<Resource> {
        self.0.get_mut(&key.db)?.remove(key.name)
    }
}

impl Store for Keys {
    fn reach(&self) -> Reach {
        Reach::Everywhere
    }

    fn reaches(&self, _key: Key<'_>) -> bool {
        true
    }

    fn get(&mut self, key: Key<'_>) -> Lookup<'_> {
        let value = self.0.get_mut(&key.db).and_then(|keys| keys.get_mut(key.name));
        value.map_or(Lookup::Missing, Lookup::Here)
    }

    fn peek(&mut self, key: Key<'_>) -> Option<&Resource> {
        match self.get(key) {
            Lookup::Here(resource) => Some(resource),
            _ => None,
        }
    }

    fn put(&mut self, key: Key<'_>, resource: Resource) {
        self.0.entry(key.db).or_default().insert(key.name.to_vec(), resource);
    }

    fn remove(&mut self, key: Key<'_>) {
        self.take(key);
    }

    fn persist(&mut self, _key: Key<'_>) {
        // No command gives a key a time to live.
    }
}
