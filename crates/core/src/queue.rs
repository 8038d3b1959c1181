//! The volatile half of a primitive: who waits for it, in order of arrival.
//!
//! A waiter is one of three: *parked* (a blocked call), *queued* (a place with a connection but no
//! blocked call) or *absent* (a place whose connection is gone, within its grace). Joining,
//! leaving and finding the place of an owner cost O(1) whatever the length of the queue.

use crate::bytes::{Name, Owner};
use crate::hold::{NO_CLIENT, Notify};
use crate::slab::{NIL, Slab};
use crate::store::Key;
use crate::time::{Instant, LeaseInstant, Millis};
use crate::wheel::Wheel;
use alloc::boxed::Box;
use alloc::collections::BTreeSet;
use alloc::vec::Vec;
use core::hash::{BuildHasher, Hash, Hasher};
use hashbrown::{HashMap, HashTable};
use siphasher::sip::SipHasher13;

/// A place in a queue as the shell knows it. The same slot gets a new id for each call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct WaiterId(pub u64);

impl WaiterId {
    /// The waiter slot behind the id.
    pub fn slot(self) -> u32 {
        let [a, b, c, d, ..] = self.0.to_le_bytes();
        u32::from_le_bytes([a, b, c, d])
    }
}

/// Keys of the hash function, random per process: names and owners come from clients.
#[derive(Debug, Clone, Copy, Default)]
pub struct HashKeys(pub u64, pub u64);

impl BuildHasher for HashKeys {
    type Hasher = SipHasher13;

    fn build_hasher(&self) -> SipHasher13 {
        SipHasher13::new_with_keys(self.0, self.1)
    }
}

/// How a waiter waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Presence {
    /// A blocked call; `until` is when BLOCK runs out, `None` for ever.
    Parked {
        /// End of the wait.
        until: Option<Instant>,
    },
    /// A place with a live connection and no blocked call.
    Queued,
    /// A place whose connection is gone.
    Absent {
        /// When the place goes.
        until: LeaseInstant,
    },
}

impl Presence {
    /// Whether the wait has run out by itself, noticed or not.
    pub fn is_over(self, mono: Instant, lease: LeaseInstant) -> bool {
        match self {
            Self::Parked { until } => until.is_some_and(|until| until <= mono),
            Self::Queued => false,
            Self::Absent { until } => until <= lease,
        }
    }
}

/// What a waiter asked for.
#[derive(Debug, Clone, Default)]
pub struct Ask {
    /// Lease of the hold it will get.
    pub lease_ms: Millis,
    /// QUEUE, if given.
    pub queue_ms: Option<Millis>,
    /// NOTIFY, or what QUEUE implies.
    pub notify: Notify,
    /// REQID, if given.
    pub request: Option<Box<[u8]>>,
    /// BIND, if given.
    pub bind_ms: Option<Millis>,
    /// LABEL, empty without.
    pub label: Box<[u8]>,
}

/// One waiter.
#[derive(Debug)]
pub struct Waiter {
    /// Its current id.
    pub id: WaiterId,
    /// The owner it asks for.
    pub owner: Owner,
    /// Its connection; [`NO_CLIENT`] when absent.
    pub client: u64,
    /// How it waits.
    pub presence: Presence,
    /// Since when.
    pub since: Instant,
    /// For what.
    pub ask: Ask,
    /// The queue it stands in.
    pub queue: u32,
    /// Grows with each place that is taken: tells who stands in front of whom.
    pub seq: u64,
    prev: u32,
    next: u32,
}

/// The waiters of one key.
#[derive(Debug)]
pub struct Queue {
    /// Database of the key.
    pub db: u32,
    /// Name of the key they asked for.
    pub name: Name,
    /// How many they are.
    pub len: usize,
    head: u32,
    tail: u32,
}

impl Queue {
    /// The key.
    pub fn key(&self) -> Key<'_> {
        Key { db: self.db, name: &self.name }
    }
}

/// All queues.
#[derive(Debug)]
pub struct Waits {
    keys: HashKeys,
    queues: Slab<Queue>,
    waiters: Slab<Waiter>,
    by_key: HashTable<u32>,
    by_owner: HashTable<u32>,
    /// The places of each owner in all queues, for deadlock detection.
    owners: HashMap<Vec<u8>, BTreeSet<u32>, HashKeys>,
    /// Those who have more than one.
    plural: BTreeSet<Box<[u8]>>,
    places_taken: u64,
    /// BLOCK times of parked waiters, on the monotonic clock.
    pub timeouts: Wheel,
    /// Ends of absent places, on the lease clock.
    pub graces: Wheel,
    /// Queues whose head may be grantable once the server lets us.
    stalled: BTreeSet<u32>,
    calls: u32,
    parked: usize,
}

impl Waits {
    /// No queues yet.
    pub fn new(keys: HashKeys) -> Self {
        Self {
            keys,
            queues: Slab::default(),
            waiters: Slab::default(),
            by_key: HashTable::new(),
            by_owner: HashTable::new(),
            owners: HashMap::with_hasher(keys),
            plural: BTreeSet::new(),
            places_taken: 0,
            timeouts: Wheel::default(),
            graces: Wheel::default(),
            stalled: BTreeSet::new(),
            calls: 0,
            parked: 0,
        }
    }

    /// The queue of `key`, if anybody waits for it.
    pub fn queue_of(&self, key: Key<'_>) -> Option<u32> {
        if self.by_key.is_empty() {
            return None;
        }
        let same = |&id: &u32| self.queues.get(id).is_some_and(|queue| queue.key() == key);
        self.by_key.find(self.hash_key(key), same).copied()
    }

    /// The queue under `id`.
    pub fn queue(&self, id: u32) -> Option<&Queue> {
        self.queues.get(id)
    }

    /// One above the largest id of a queue: the bound for a walk by id.
    pub fn queue_bound(&self) -> u32 {
        self.queues.bound()
    }

    /// All queues.
    pub fn queues(&self) -> impl Iterator<Item = (u32, &Queue)> {
        self.queues.iter()
    }

    /// The waiter in `slot`.
    pub fn get(&self, slot: u32) -> Option<&Waiter> {
        self.waiters.get(slot)
    }

    /// The waiter with this id, unless its call has ended.
    pub fn by_id(&self, id: WaiterId) -> Option<&Waiter> {
        self.waiters.get(id.slot()).filter(|waiter| waiter.id == id)
    }

    /// The place that `owner` has in `queue`.
    pub fn place_of(&self, queue: u32, owner: &[u8]) -> Option<u32> {
        let same = |&slot: &u32| {
            self.waiters
                .get(slot)
                .is_some_and(|waiter| waiter.queue == queue && *waiter.owner == *owner)
        };
        self.by_owner.find(self.hash_owner(queue, owner), same).copied()
    }

    /// How many wait: blocked calls, and places without one.
    pub fn count(&self) -> (usize, usize) {
        (self.parked, self.waiters.len() - self.parked)
    }

    /// How many wait in all.
    pub fn len(&self) -> usize {
        self.waiters.len()
    }

    /// Whether nobody waits.
    pub fn is_empty(&self) -> bool {
        self.waiters.is_empty()
    }

    /// The length of the longest queue.
    pub fn longest(&self) -> usize {
        self.queues.iter().map(|(_, queue)| queue.len).max().unwrap_or(0)
    }

    /// The waiters of a queue in order of service.
    pub fn walk(&self, queue: u32) -> impl Iterator<Item = (u32, &Waiter)> {
        let mut slot = self.queues.get(queue).map_or(NIL, |queue| queue.head);
        core::iter::from_fn(move || {
            let here = slot;
            let waiter = self.waiters.get(here)?;
            slot = waiter.next;
            Some((here, waiter))
        })
    }

    /// Those in front of the waiter in `slot`, the nearest first.
    pub fn ahead_of(&self, slot: u32) -> impl Iterator<Item = &Waiter> {
        let mut at = self.waiters.get(slot).map_or(NIL, |waiter| waiter.prev);
        core::iter::from_fn(move || {
            let waiter = self.waiters.get(at)?;
            at = waiter.prev;
            Some(waiter)
        })
    }

    /// Puts a waiter at the end of the queue of `key`.
    pub fn join(
        &mut self,
        key: Key<'_>,
        owner: &[u8],
        client: u64,
        presence: Presence,
        since: Instant,
        ask: Ask,
    ) -> u32 {
        let queue = self.queue_of(key).unwrap_or_else(|| self.open_queue(key));
        let tail = self.queues.get(queue).map_or(NIL, |queue| queue.tail);
        self.places_taken += 1;
        let slot = self.waiters.insert(Waiter {
            id: WaiterId(0),
            owner: Owner::from(owner),
            client,
            presence,
            since,
            ask,
            queue,
            seq: self.places_taken,
            prev: tail,
            next: NIL,
        });
        if let Some(last) = self.waiters.get_mut(tail) {
            last.next = slot;
        }
        if let Some(queue) = self.queues.get_mut(queue) {
            queue.tail = slot;
            if queue.head == NIL {
                queue.head = slot;
            }
            queue.len += 1;
        }
        let hash = self.hash_owner(queue, owner);
        let (waiters, keys) = (&self.waiters, self.keys);
        self.by_owner.insert_unique(hash, slot, |&slot| {
            waiters.get(slot).map_or(0, |waiter| hash_owner(keys, waiter.queue, &waiter.owner))
        });
        self.note_owner(owner, slot);
        self.parked += usize::from(matches!(presence, Presence::Parked { .. }));
        self.new_id(slot);
        self.arm(slot);
        slot
    }

    /// Takes a waiter out of its queue, and the queue away when it was the last.
    pub fn leave(&mut self, slot: u32) -> Option<Waiter> {
        self.timeouts.disarm(slot);
        self.graces.disarm(slot);
        let waiter = self.waiters.get(slot)?;
        let hash = self.hash_owner(waiter.queue, &waiter.owner);
        if let Ok(entry) = self.by_owner.find_entry(hash, |&other| other == slot) {
            entry.remove();
        }
        let waiter = self.waiters.remove(slot)?;
        self.forget_owner(&waiter.owner, slot);
        self.parked -= usize::from(matches!(waiter.presence, Presence::Parked { .. }));
        if let Some(before) = self.waiters.get_mut(waiter.prev) {
            before.next = waiter.next;
        }
        if let Some(behind) = self.waiters.get_mut(waiter.next) {
            behind.prev = waiter.prev;
        }
        if let Some(queue) = self.queues.get_mut(waiter.queue) {
            if queue.head == slot {
                queue.head = waiter.next;
            }
            if queue.tail == slot {
                queue.tail = waiter.prev;
            }
            queue.len -= 1;
            if queue.len == 0 {
                self.close_queue(waiter.queue);
            }
        }
        Some(waiter)
    }

    /// Changes how a waiter waits. Its blocked call, if it had one, is over: it gets a new id.
    pub fn set_presence(&mut self, slot: u32, presence: Presence) {
        if let Some(waiter) = self.waiters.get_mut(slot) {
            self.parked -= usize::from(matches!(waiter.presence, Presence::Parked { .. }));
            self.parked += usize::from(matches!(presence, Presence::Parked { .. }));
            waiter.presence = presence;
            if matches!(presence, Presence::Absent { .. }) {
                waiter.client = NO_CLIENT;
            }
        }
        self.new_id(slot);
        self.arm(slot);
    }

    /// Gives a place to a later call of the same owner.
    pub fn take_over(&mut self, slot: u32, client: u64, presence: Presence, ask: Ask) {
        if let Some(waiter) = self.waiters.get_mut(slot) {
            waiter.client = client;
            waiter.ask = ask;
        }
        self.set_presence(slot, presence);
    }

    /// Notes that the head of `queue` must be looked at again.
    pub fn stall(&mut self, queue: u32) {
        if self.queues.get(queue).is_some() {
            self.stalled.insert(queue);
        }
    }

    /// Notes that all queues must be looked at again.
    pub fn stall_all(&mut self) {
        self.stalled.extend(self.queues.iter().map(|(id, _)| id));
    }

    /// The next queue that must be looked at.
    pub fn next_stalled(&mut self) -> Option<u32> {
        self.stalled.pop_first()
    }

    /// Whether any queue must be looked at.
    pub fn has_stalled(&self) -> bool {
        !self.stalled.is_empty()
    }

    /// The places of `owner` in all queues.
    pub fn places_of_owner(&self, owner: &[u8]) -> impl Iterator<Item = (u32, &Waiter)> {
        let slots = self.owners.get(owner).into_iter().flatten();
        slots.filter_map(|&slot| self.waiters.get(slot).map(|waiter| (slot, waiter)))
    }

    /// Whether `owner` has more than one place.
    pub fn is_plural(&self, owner: &[u8]) -> bool {
        self.plural.contains(owner)
    }

    /// How many owners have more than one place.
    pub fn plural_count(&self) -> usize {
        self.plural.len()
    }

    /// The owners who have more than one place.
    pub fn plural_owners(&self) -> impl Iterator<Item = &[u8]> {
        self.plural.iter().map(AsRef::as_ref)
    }

    fn note_owner(&mut self, owner: &[u8], slot: u32) {
        let places = self.owners.entry_ref(owner).or_default();
        places.insert(slot);
        if places.len() == 2 {
            self.plural.insert(owner.into());
        }
    }

    fn forget_owner(&mut self, owner: &[u8], slot: u32) {
        let Some(places) = self.owners.get_mut(owner) else { return };
        places.remove(&slot);
        match places.len() {
            0 => {
                self.owners.remove(owner);
            }
            1 => {
                self.plural.remove(owner);
            }
            _ => {}
        }
    }

    fn arm(&mut self, slot: u32) {
        self.timeouts.disarm(slot);
        self.graces.disarm(slot);
        match self.waiters.get(slot).map(|waiter| waiter.presence) {
            Some(Presence::Parked { until: Some(until) }) => self.timeouts.arm(slot, until.0),
            Some(Presence::Absent { until }) => self.graces.arm(slot, until.0),
            Some(Presence::Parked { until: None } | Presence::Queued) | None => {}
        }
    }

    fn new_id(&mut self, slot: u32) {
        self.calls = self.calls.wrapping_add(1);
        if let Some(waiter) = self.waiters.get_mut(slot) {
            waiter.id = WaiterId(u64::from(self.calls) << 32 | u64::from(slot));
        }
    }

    fn open_queue(&mut self, key: Key<'_>) -> u32 {
        let id = self.queues.insert(Queue {
            db: key.db,
            name: Name::from(key.name),
            len: 0,
            head: NIL,
            tail: NIL,
        });
        let hash = self.hash_key(key);
        let (queues, keys) = (&self.queues, self.keys);
        self.by_key.insert_unique(hash, id, |&id| {
            queues.get(id).map_or(0, |queue| hash_key(keys, queue.key()))
        });
        id
    }

    fn close_queue(&mut self, id: u32) {
        let Some(queue) = self.queues.get(id) else { return };
        let hash = self.hash_key(queue.key());
        if let Ok(entry) = self.by_key.find_entry(hash, |&other| other == id) {
            entry.remove();
        }
        self.queues.remove(id);
        self.stalled.remove(&id);
    }

    fn hash_key(&self, key: Key<'_>) -> u64 {
        hash_key(self.keys, key)
    }

    fn hash_owner(&self, queue: u32, owner: &[u8]) -> u64 {
        hash_owner(self.keys, queue, owner)
    }
}

fn hash_key(keys: HashKeys, key: Key<'_>) -> u64 {
    let mut hasher = keys.build_hasher();
    key.db.hash(&mut hasher);
    hasher.write(key.name);
    hasher.finish()
}

fn hash_owner(keys: HashKeys, queue: u32, owner: &[u8]) -> u64 {
    let mut hasher = keys.build_hasher();
    queue.hash(&mut hasher);
    hasher.write(owner);
    hasher.finish()
}
