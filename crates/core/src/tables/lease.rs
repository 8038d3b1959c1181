//! The lease index: which key has something that ends by itself, and when.
//!
//! A resource knows its entry by a small integer ([`KeyId`]); an entry knows the name of its key. Neither has a
//! pointer to the other, because Redis may free a value on another thread or move it to another name. Code that follows
//! such an id checks that both still name each other.
//!
//! The entries of a database are those of its *home*. A flush gives the database a new home, and the entries of the old
//! one are void: no lookup finds them, and they end nothing. SWAPDB exchanges the homes of two databases.

use crate::base::bytes::Name;
use crate::base::ids::{HoldId, HoldRef, KeyId};
use crate::base::key::{Key, Swap};
use crate::base::kind::Kind;
use crate::base::slab::Slab;
use crate::base::time::LeaseInstant;
use crate::base::wheel::{Advance, Wheel};
use alloc::collections::BTreeMap;
use alloc::vec::Vec;

/// Numbers of new homes. Until its first flush a database has the home of its own number, which is smaller.
const NEW_HOME: u32 = 1 << 31;

/// The entry of one key.
#[derive(Debug)]
pub struct Entry {
    /// Name of the key.
    pub name: Name,
    /// The home of its database: see [`Leases::database_of`].
    home: u32,
    /// The entries of the same home, linked in both directions.
    prev: KeyId,
    next: KeyId,
    /// The machine's epoch when the deadline was last set; see `replay::promote`.
    pub epoch: u32,
    /// The family of the key.
    pub kind: Kind,
    /// Number of its holds; of a semaphore, of its leased permits, or `u32::MAX` if a payload brought more.
    count: u32,
    /// The machine did not find its key.
    is_missed: bool,
    /// A call waits, or waited, for its key.
    is_awaited: bool,
}

impl Entry {
    /// Number of its holds, without permits.
    pub(crate) fn held(&self) -> usize {
        if self.kind == Kind::Semaphore { 0 } else { self.count as usize }
    }

    /// Number of its leased permits.
    pub(crate) fn permits(&self) -> u64 {
        if self.kind == Kind::Semaphore { self.count.into() } else { 0 }
    }

    /// Whether its key is in the database with this home.
    pub(crate) fn is_in(&self, home: u32) -> bool {
        self.home == home
    }
}

const _: () = assert!(core::mem::size_of::<Option<Entry>>() <= 48);

/// The entries of a database.
#[derive(Debug)]
struct Home {
    first: KeyId,
    len: usize,
    held: usize,
    permits: u64,
}

/// See the module documentation.
#[derive(Debug, Default)]
pub struct Leases {
    entries: Slab<KeyId, Entry>,
    /// A home without entries stays in the map: a single lock that comes and goes should not add and remove it each
    /// time.
    homes: BTreeMap<u32, Home>,
    /// Of each home the number of its database, and back; where they differ.
    number_of: BTreeMap<u32, u32>,
    home_of: BTreeMap<u32, u32>,
    /// Number of flushes that gave a database a new home.
    flushes: u32,
    /// The first of the void entries of each former home.
    void: Vec<KeyId>,
    wheel: Wheel<KeyId>,
    /// The deadlines of keys with waiters: they end before the others.
    awaited: Wheel<KeyId>,
}

impl Leases {
    /// Adds an entry for a key; it has no deadline yet.
    pub fn enter(&mut self, key: Key<'_>, kind: Kind, epoch: u32) -> KeyId {
        let name = Name::from(key.name);
        let home = self.home(key.db);
        let id = self.entries.insert(Entry {
            name,
            home,
            prev: KeyId::NONE,
            next: KeyId::NONE,
            epoch,
            kind,
            count: 0,
            is_missed: false,
            is_awaited: false,
        });
        self.link(id, home);
        id
    }

    /// Puts an entry in front of those of a home.
    fn link(&mut self, id: KeyId, home: u32) {
        let none = Home { first: KeyId::NONE, len: 0, held: 0, permits: 0 };
        let of = self.homes.entry(home).or_insert(none);
        let next = core::mem::replace(&mut of.first, id);
        if let Some(entry) = self.entries.get_mut(id) {
            (entry.home, entry.prev, entry.next) = (home, KeyId::NONE, next);
            of.len += 1;
            of.held += entry.held();
            of.permits += entry.permits();
        }
        if let Some(next) = self.entries.get_mut(next) {
            next.prev = id;
        }
    }

    /// Reverses [`Leases::link`].
    fn unlink(&mut self, id: KeyId) {
        let Some(entry) = self.entries.get(id) else { return };
        let Some(of) = self.homes.get_mut(&entry.home) else { return };
        of.len -= 1;
        of.held -= entry.held();
        of.permits -= entry.permits();
        let (prev, next) = (entry.prev, entry.next);
        match self.entries.get_mut(prev) {
            Some(prev) => prev.next = next,
            None => of.first = next,
        }
        if let Some(next) = self.entries.get_mut(next) {
            next.prev = prev;
        }
    }

    /// Removes an entry with its deadline.
    pub fn leave(&mut self, id: KeyId) -> Option<Entry> {
        self.get(id)?;
        self.disarm(id);
        self.unlink(id);
        self.entries.remove(id)
    }

    /// The key of an entry is missing. The server may have removed it just now, and its report will need the entry. So
    /// the entry stays until `again`, and is removed the second time.
    pub fn miss(&mut self, id: KeyId, again: LeaseInstant) {
        let Some(entry) = self.get_mut(id) else { return };
        if core::mem::replace(&mut entry.is_missed, true) {
            self.leave(id);
        } else {
            self.arm(id, again);
        }
    }

    /// The entry under `id`.
    pub fn get(&self, id: KeyId) -> Option<&Entry> {
        self.entries.get(id).filter(|entry| self.homes.contains_key(&entry.home))
    }

    fn get_mut(&mut self, id: KeyId) -> Option<&mut Entry> {
        self.entries.get_mut(id).filter(|entry| self.homes.contains_key(&entry.home))
    }

    /// All entries.
    pub fn iter(&self) -> impl Iterator<Item = (KeyId, &Entry)> {
        self.entries.iter().filter(|(_, entry)| self.homes.contains_key(&entry.home))
    }

    /// A hold of the key of an entry.
    pub(crate) fn hold_ref(&self, key: KeyId, id: HoldId) -> HoldRef {
        HoldRef { home: self.get(key).map_or(u32::MAX, |entry| entry.home), key, id }
    }

    /// The database of the key of an entry.
    pub fn database_of(&self, entry: &Entry) -> u32 {
        self.number(entry.home)
    }

    /// The database with this home.
    pub(crate) fn number(&self, home: u32) -> u32 {
        self.number_of.get(&home).copied().unwrap_or(home)
    }

    /// The key of the entry under `id`.
    pub fn key_of(&self, id: KeyId) -> Option<Key<'_>> {
        let entry = self.get(id)?;
        Some(Key { db: self.database_of(entry), name: &entry.name })
    }

    /// The entry under `id` if it is the one of `key`, where a value names this entry: it is not missed any more.
    pub fn of_key(&mut self, id: KeyId, key: Key<'_>) -> Option<&mut Entry> {
        let home = self.home(key.db);
        let found = self.get_mut(id);
        let entry = found.filter(|entry| entry.home == home && *entry.name == *key.name)?;
        entry.is_missed = false;
        Some(entry)
    }

    /// The home of a database.
    pub(crate) fn home(&self, db: u32) -> u32 {
        self.home_of.get(&db).copied().unwrap_or(db)
    }

    /// Sets the number of holds of the key; of a semaphore, that of its leased permits.
    pub fn set_held(&mut self, id: KeyId, count: u64) {
        if let Some(entry) = self.entries.get_mut(id)
            && let Some(of) = self.homes.get_mut(&entry.home)
        {
            let (held, permits) = (entry.held(), entry.permits());
            entry.count = u32::try_from(count).unwrap_or(u32::MAX);
            of.held = of.held + entry.held() - held;
            of.permits = of.permits + entry.permits() - permits;
        }
    }

    /// Changes the key of an entry: the value moved to another name or database. Returns its former home.
    pub fn rename(&mut self, id: KeyId, key: Key<'_>) -> Option<u32> {
        let home = self.home(key.db);
        let entry = self.get_mut(id)?;
        entry.name = Name::from(key.name);
        let was = entry.home;
        if was != home {
            self.unlink(id);
            self.link(id, home);
        }
        Some(was)
    }

    /// All keys of a database (`None`: of all) are gone, and their entries are void. O(1) in the number of entries.
    /// Returns the databases that had entries, in ascending order, with their former homes.
    pub fn flush(&mut self, db: Option<u32>) -> BTreeMap<u32, u32> {
        let used = self.homes.iter().filter(|(_, of)| of.len > 0);
        let used = used.map(|(&home, _)| (self.number(home), home));
        let flushed: BTreeMap<_, _> =
            used.filter(|(number, _)| db.is_none_or(|db| db == *number)).collect();
        for (&number, home) in &flushed {
            self.void.extend(self.homes.remove(home).map(|of| of.first));
            self.number_of.remove(home);
            let home = self.new_home();
            self.number_of.insert(home, number);
            self.home_of.insert(number, home);
        }
        flushed
    }

    fn new_home(&mut self) -> u32 {
        loop {
            self.flushes = self.flushes.wrapping_add(1);
            let home = self.flushes | NEW_HOME;
            if !self.number_of.contains_key(&home) {
                return home;
            }
        }
    }

    /// Whether memory of void entries is not freed.
    pub(crate) fn has_void(&self) -> bool {
        !self.void.is_empty()
    }

    /// Frees up to `most` void entries; `false` if there are none.
    pub(crate) fn free_some(&mut self, most: usize) -> bool {
        for _ in 0..most {
            let Some(first) = self.void.last_mut() else { return false };
            let slot = *first;
            match self.entries.remove(slot) {
                Some(entry) => {
                    *first = entry.next;
                    self.wheel.disarm(slot);
                    self.awaited.disarm(slot);
                }
                None => drop(self.void.pop()),
            }
        }
        true
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
        if self.get(id).is_some() {
            self.wheel_of(id).arm(id, at.0);
        }
    }

    fn wheel_of(&mut self, id: KeyId) -> &mut Wheel<KeyId> {
        let is_awaited = self.is_awaited(id);
        if is_awaited { &mut self.awaited } else { &mut self.wheel }
    }

    /// Whether a call waits, or waited, for the key of an entry.
    pub fn is_awaited(&self, id: KeyId) -> bool {
        self.get(id).is_some_and(|entry| entry.is_awaited)
    }

    /// A call waits for the key of an entry.
    pub fn set_awaited(&mut self, id: KeyId) {
        if let Some(entry) = self.get_mut(id)
            && !core::mem::replace(&mut entry.is_awaited, true)
            && let Some(at) = self.wheel.deadline(id)
        {
            self.wheel.disarm(id);
            self.awaited.arm(id, at);
        }
    }

    /// The deadline of an entry, rounded up to a tick.
    pub fn deadline(&self, id: KeyId) -> Option<u64> {
        self.get(id)?;
        self.wheel.deadline(id).or_else(|| self.awaited.deadline(id))
    }

    /// Removes the deadline of an entry.
    pub fn disarm(&mut self, id: KeyId) {
        if self.get(id).is_some() {
            self.wheel_of(id).disarm(id);
        }
    }

    /// Removes all deadlines.
    pub fn disarm_all(&mut self) -> [Wheel<KeyId>; 2] {
        [self.awaited.take_all(), self.wheel.take_all()]
    }

    /// The next expired entry with waiters, one bounded piece of work at a time.
    pub fn step_awaited(&mut self, now: LeaseInstant) -> Advance<KeyId> {
        let step = self.awaited.step(now.0);
        self.found(step)
    }

    /// The next expired entry without waiters, one bounded piece of work at a time.
    pub fn step_others(&mut self, now: LeaseInstant) -> Advance<KeyId> {
        let step = self.wheel.step(now.0);
        self.found(step)
    }

    /// A void entry ends nothing.
    fn found(&self, step: Advance<KeyId>) -> Advance<KeyId> {
        match step {
            Advance::Due(id) if self.get(id).is_none() => Advance::Moved,
            step => step,
        }
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
        self.homes.values().map(|of| of.held).sum()
    }

    /// Number of leased permits, in all keys.
    pub fn permits(&self) -> u64 {
        self.homes.values().map(|of| of.permits).sum()
    }

    /// Number of keys in the index.
    pub fn len(&self) -> usize {
        self.homes.values().map(|of| of.len).sum()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The bound for a walk over all ids.
    pub fn bound(&self) -> KeyId {
        self.entries.bound()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_of_a_flushed_database_are_void_and_are_freed_later() {
        let mut leases = Leases::default();
        let [key, other] = [0, 1].map(|db| Key { db, name: b"k" });
        let ids = [key, key, other].map(|key| leases.enter(key, Kind::Lock, 0));
        leases.arm(ids[0], LeaseInstant(1));
        leases.set_held(ids[2], 1);
        assert_eq!(leases.flush(Some(0)), BTreeMap::from([(0, 0)]));
        leases.arm(ids[1], LeaseInstant(1));
        assert!(leases.of_key(ids[0], key).is_none() && leases.leave(ids[1]).is_none());
        assert_eq!((leases.len(), leases.held()), (1, 1));
        assert_eq!(leases.step_others(LeaseInstant(1_000)), Advance::Moved);
        let new = leases.enter(key, Kind::Lock, 0);
        assert!(!ids.contains(&new), "a void entry keeps its id");
        leases.swap_databases(Swap { a: 0, b: 1 });
        assert_eq!(leases.key_of(new), Some(other));
        assert_eq!(leases.flush(None).into_keys().collect::<Vec<_>>(), [0, 1]);
        while leases.free_some(1) {}
        assert_eq!((leases.len(), leases.entries.len(), leases.armed()), (0, 0, 0));
    }

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
