//! The lease index: which key has something that ends by itself, and when.
//!
//! A resource knows its entry by a small integer ([`KeyId`]); an entry knows the name of its key. Neither has a
//! pointer to the other, because Redis may free a value on another thread or move it to another name. Code that follows
//! such an id checks that both still name each other.

use crate::bytes::Name;
use crate::ids::KeyId;
use crate::key::{Key, Swap};
use crate::kind::Kind;
use crate::slab::Slab;
use crate::time::LeaseInstant;
use crate::wheel::{Step, Wheel};
use alloc::collections::{BTreeMap, BTreeSet};

/// The entry of one key.
#[derive(Debug)]
pub struct Entry {
    /// Name of the key.
    pub name: Name,
    /// Database of the key, by its number before all swaps: see [`Leases::database_of`].
    home: u32,
    /// The machine's epoch when the deadline was last set; see `Machine::promote`.
    pub epoch: u32,
    /// The family of the key.
    pub kind: Kind,
    /// Number of its holds, without permits.
    pub held: u32,
    /// Number of its leased permits.
    pub permits: u64,
    /// The machine did not find its key.
    is_missed: bool,
    /// A call waits, or waited, for its key.
    is_awaited: bool,
}

/// See the module documentation.
#[derive(Debug, Default)]
pub struct Leases {
    entries: Slab<KeyId, Entry>,
    /// Number of entries of each database that had any, by home. A database without entries stays in the map: a single
    /// lock that comes and goes should not add and remove it each time.
    databases: BTreeMap<u32, usize>,
    /// Renumbering of swapped databases, so that a swap need not walk over all entries: of each home the number now,
    /// and back.
    number_of: BTreeMap<u32, u32>,
    home_of: BTreeMap<u32, u32>,
    wheel: Wheel<KeyId>,
    /// The deadlines of keys with waiters: they end before the others.
    awaited: Wheel<KeyId>,
    held: usize,
    permits: u64,
}

impl Leases {
    /// Adds an entry for a key; it has no deadline yet.
    pub fn enter(&mut self, key: Key<'_>, kind: Kind, epoch: u32) -> KeyId {
        let name = Name::from(key.name);
        let home = self.home(key.db);
        *self.databases.entry(home).or_default() += 1;
        self.entries.insert(Entry {
            name,
            home,
            epoch,
            kind,
            held: 0,
            permits: 0,
            is_missed: false,
            is_awaited: false,
        })
    }

    /// Removes an entry with its deadline.
    pub fn leave(&mut self, id: KeyId) -> Option<Entry> {
        self.disarm(id);
        let entry = self.entries.remove(id)?;
        self.count_out(entry.home);
        self.held -= entry.held as usize;
        self.permits -= entry.permits;
        Some(entry)
    }

    /// The key of an entry is missing. The server may have removed it just now, and its report will need the entry. So
    /// the entry stays until `again`, and is removed the second time.
    pub fn miss(&mut self, id: KeyId, again: LeaseInstant) {
        let Some(entry) = self.entries.get_mut(id) else { return };
        if core::mem::replace(&mut entry.is_missed, true) {
            self.leave(id);
        } else {
            self.arm(id, again);
        }
    }

    /// The entry under `id`.
    pub fn get(&self, id: KeyId) -> Option<&Entry> {
        self.entries.get(id)
    }

    /// The database of the key of an entry.
    pub fn database_of(&self, entry: &Entry) -> u32 {
        self.number_of.get(&entry.home).copied().unwrap_or(entry.home)
    }

    /// The key of the entry under `id`.
    pub fn key_of(&self, id: KeyId) -> Option<Key<'_>> {
        let entry = self.get(id)?;
        Some(Key { db: self.database_of(entry), name: &entry.name })
    }

    /// The entry under `id` if it is the one of `key`, where a value names this entry: it is not missed any more.
    pub fn of_key(&mut self, id: KeyId, key: Key<'_>) -> Option<&mut Entry> {
        let home = self.home(key.db);
        let found = self.entries.get_mut(id);
        let entry = found.filter(|entry| entry.home == home && *entry.name == *key.name)?;
        entry.is_missed = false;
        Some(entry)
    }

    fn home(&self, db: u32) -> u32 {
        self.home_of.get(&db).copied().unwrap_or(db)
    }

    /// Sets the number of holds of the key, and of its leased permits.
    pub fn set_held(&mut self, id: KeyId, held: usize, permits: u64) {
        if let Some(entry) = self.entries.get_mut(id) {
            // As many as memory can hold.
            let held = u32::try_from(held).unwrap_or(u32::MAX);
            self.held = self.held + held as usize - entry.held as usize;
            self.permits = self.permits + permits - entry.permits;
            entry.held = held;
            entry.permits = permits;
        }
    }

    /// Changes the key of an entry: the value moved to another name or database.
    pub fn rename(&mut self, id: KeyId, key: Key<'_>) {
        let home = self.home(key.db);
        let Some(entry) = self.entries.get_mut(id) else { return };
        entry.name = Name::from(key.name);
        let from = core::mem::replace(&mut entry.home, home);
        *self.databases.entry(home).or_default() += 1;
        self.count_out(from);
    }

    fn count_out(&mut self, home: u32) {
        if let Some(count) = self.databases.get_mut(&home) {
            *count -= 1;
        }
    }

    /// Number of entries of keys in this database.
    pub fn count_in(&self, db: u32) -> usize {
        self.databases.get(&self.home(db)).copied().unwrap_or(0)
    }

    /// The databases of the keys in the index, in ascending order.
    pub fn databases(&self) -> impl Iterator<Item = u32> {
        let used = self.databases.iter().filter(|&(_, &count)| count > 0);
        let used = used.map(|(home, _)| self.number_of.get(home).copied().unwrap_or(*home));
        used.collect::<BTreeSet<u32>>().into_iter()
    }

    /// Swaps two database numbers in all entries. O(1) in the number of entries.
    pub fn swap_databases(&mut self, swap: Swap) {
        let Swap { a, b } = swap;
        for (db, home) in [(a, self.home(b)), (b, self.home(a))] {
            if db == home {
                self.home_of.remove(&db);
                self.number_of.remove(&home);
            } else {
                self.home_of.insert(db, home);
                self.number_of.insert(home, db);
            }
        }
    }

    /// Sets the deadline of an entry, whether or not it had one.
    pub fn arm(&mut self, id: KeyId, at: LeaseInstant) {
        self.wheel_of(id).arm(id, at.0);
    }

    fn wheel_of(&mut self, id: KeyId) -> &mut Wheel<KeyId> {
        let is_awaited = self.entries.get(id).is_some_and(|entry| entry.is_awaited);
        if is_awaited { &mut self.awaited } else { &mut self.wheel }
    }

    /// Whether a call waits, or waited, for the key of an entry.
    pub fn is_awaited(&self, id: KeyId) -> bool {
        self.entries.get(id).is_some_and(|entry| entry.is_awaited)
    }

    /// A call waits for the key of an entry.
    pub fn set_awaited(&mut self, id: KeyId) {
        if let Some(entry) = self.entries.get_mut(id)
            && !core::mem::replace(&mut entry.is_awaited, true)
            && let Some(at) = self.wheel.deadline(id)
        {
            self.wheel.disarm(id);
            self.awaited.arm(id, at);
        }
    }

    /// The deadline of an entry, rounded up to a tick.
    pub fn deadline(&self, id: KeyId) -> Option<u64> {
        self.wheel.deadline(id).or_else(|| self.awaited.deadline(id))
    }

    /// Removes the deadline of an entry.
    pub fn disarm(&mut self, id: KeyId) {
        self.wheel_of(id).disarm(id);
    }

    /// Removes all deadlines.
    pub fn disarm_all(&mut self) -> [Wheel<KeyId>; 2] {
        [self.awaited.take_all(), self.wheel.take_all()]
    }

    /// The next expired entry with waiters, one bounded piece of work at a time.
    pub fn step_awaited(&mut self, now: LeaseInstant) -> Step<KeyId> {
        self.awaited.step(now.0)
    }

    /// The next expired entry without waiters, one bounded piece of work at a time.
    pub fn step_others(&mut self, now: LeaseInstant) -> Step<KeyId> {
        self.wheel.step(now.0)
    }

    /// A time not after the next deadline of a key with waiters; `None` if there is none.
    pub fn next_awaited(&self) -> Option<LeaseInstant> {
        self.awaited.next().map(LeaseInstant)
    }

    /// The same of a key without waiters.
    pub fn next_other(&self) -> Option<LeaseInstant> {
        self.wheel.next().map(LeaseInstant)
    }

    /// A time not after the next deadline; `None` if there is none.
    pub fn next(&self) -> Option<LeaseInstant> {
        self.next_awaited().into_iter().chain(self.next_other()).min()
    }

    /// Number of deadlines.
    pub fn armed(&self) -> usize {
        self.wheel.armed() + self.awaited.armed()
    }

    /// Number of holds of locks, in all keys.
    pub fn held(&self) -> usize {
        self.held
    }

    /// Number of leased permits, in all keys.
    pub fn permits(&self) -> u64 {
        self.permits
    }

    /// Number of keys in the index.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The bound for a walk over all ids.
    pub fn bound(&self) -> KeyId {
        self.entries.bound()
    }

    /// Forgets everything.
    pub fn clear(&mut self) {
        *self = Self::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_whose_value_was_found_again_is_missed_from_the_beginning() {
        let mut leases = Leases::default();
        let key = Key { db: 0, name: b"k" };
        let id = leases.enter(key, Kind::Lock, 0);
        leases.miss(id, LeaseInstant(1));
        assert!(leases.of_key(id, key).is_some());
        leases.miss(id, LeaseInstant(2));
        assert!(leases.get(id).is_some(), "the report of a later removal needs it");
        leases.miss(id, LeaseInstant(3));
        assert!(leases.get(id).is_none());
    }
}
