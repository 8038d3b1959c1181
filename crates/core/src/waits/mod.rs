//! All queues. Joining, leaving and finding the place of an owner cost O(1) whatever the length of
//! the queue.
//!
//! `owners` knows the places of each owner, `holders` who holds the keys that somebody waits
//! for, and `order` keeps those who wait for each other in order.

mod holders;
mod order;
mod owners;
mod reach;
mod reorder;

use crate::bytes::{Name, Owner};
use crate::hold::NO_CLIENT;
use crate::queue::{Ask, Group, HashKeys, Newcomer, Presence, Queue, Rank, Waiter, WaiterId, Want};
use crate::resource::Kind;
use crate::slab::{NIL, Slab};
use crate::store::Key;
use crate::time::{Instant, LeaseInstant};
use crate::wheel::Wheel;
use alloc::collections::BTreeSet;
use alloc::vec::Vec;
use core::hash::{BuildHasher, Hash, Hasher};
use hashbrown::{HashSet, HashTable};
use order::Order;
use owners::{Party, hash_place};
pub use reorder::Aims;

/// Sequence numbers begin here, so that there is room in front of the first.
const FIRST_SEQ: u64 = 1 << 32;

/// Numbers from here on are not taken over from data: there must be room behind the last.
const SEQ_MOST: u64 = 1 << 61;

/// See the module.
#[derive(Debug)]
pub struct Waits {
    keys: HashKeys,
    queues: Slab<Queue>,
    waiters: Slab<Waiter>,
    groups: Slab<Group>,
    /// Queues by key.
    by_key: HashTable<u32>,
    /// Places by queue and owner.
    by_owner: HashTable<u32>,
    /// The owners who have places.
    parties: Slab<Party>,
    /// Those by the name of the owner.
    by_name: HashTable<u32>,
    /// Those who have more than one place.
    plural: BTreeSet<u32>,
    /// Queues by the one who holds the key or writes it.
    by_holder: HashTable<u32>,
    /// Hash of a reader, and the queue of the key that it reads.
    by_reader: HashTable<(u64, u32)>,
    order: Order,
    last_seq: u64,
    last_serial: u64,
    /// BLOCK times of parked waiters, on the monotonic clock.
    pub timeouts: Wheel,
    /// Ends of absent places, on the lease clock.
    pub graces: Wheel,
    /// Queues that must be looked at once the server lets us.
    stalled: BTreeSet<u32>,
    calls: u32,
    parked: usize,
    members: usize,
}

impl Waits {
    /// No queues yet.
    pub fn new(keys: HashKeys) -> Self {
        Self {
            keys,
            queues: Slab::default(),
            waiters: Slab::default(),
            groups: Slab::default(),
            by_key: HashTable::new(),
            by_owner: HashTable::new(),
            parties: Slab::default(),
            by_name: HashTable::new(),
            plural: BTreeSet::new(),
            by_holder: HashTable::new(),
            by_reader: HashTable::new(),
            order: Order::default(),
            last_seq: FIRST_SEQ,
            last_serial: 0,
            timeouts: Wheel::default(),
            graces: Wheel::default(),
            stalled: BTreeSet::new(),
            calls: 0,
            parked: 0,
            members: 0,
        }
    }

    /// The queue of `key`, if there is one. It can be empty: then the key has not been looked at
    /// since the last waiter left.
    pub fn queue_of(&self, key: Key<'_>) -> Option<u32> {
        if self.by_key.is_empty() {
            return None;
        }
        let same = |&id: &u32| self.queues.get(id).is_some_and(|queue| queue.key() == key);
        self.by_key.find(hash_key(self.keys, key), same).copied()
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

    /// The call for several keys that a waiter belongs to.
    pub fn group(&self, id: u32) -> Option<&Group> {
        self.groups.get(id)
    }

    /// Whether any call waits for several keys.
    pub fn has_groups(&self) -> bool {
        !self.groups.is_empty()
    }

    /// The waiter that stands for the whole call: itself, or the first of its group.
    pub fn leader<'a>(&'a self, waiter: &'a Waiter) -> &'a Waiter {
        let first = self.groups.get(waiter.group).and_then(|group| group.members.first());
        first.and_then(|&slot| self.waiters.get(slot)).unwrap_or(waiter)
    }

    /// Whether the place has run out by itself, noticed or not. (That of a blocked call with QUEUE
    /// stays when the call is over.)
    pub fn is_over(&self, waiter: &Waiter, mono: Instant, lease: LeaseInstant) -> bool {
        let call = self.leader(waiter);
        let stays = call.presence.is_parked() && call.ask.queue_ms.is_some();
        !stays && call.presence.is_over(mono, lease)
    }

    /// The place that `owner` has in `queue`.
    pub fn place_of(&self, queue: u32, owner: &[u8]) -> Option<u32> {
        let same = |&slot: &u32| {
            self.waiters
                .get(slot)
                .is_some_and(|waiter| waiter.queue == queue && *waiter.owner == *owner)
        };
        self.by_owner.find(hash_place(self.keys, queue, owner), same).copied()
    }

    /// The place that `owner` has in the queue of `key`.
    pub fn place_at(&self, key: Key<'_>, owner: &[u8]) -> Option<u32> {
        self.place_of(self.queue_of(key)?, owner)
    }

    /// How many wait: blocked calls, and places without one.
    pub fn count(&self) -> (usize, usize) {
        (self.parked, self.waiters.len() - self.parked - self.members)
    }

    /// How many places there are in all queues.
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

    /// Puts a waiter into the queue of `key`, which is of `kind` if it is new.
    pub fn join(&mut self, key: Key<'_>, kind: Kind, newcomer: Newcomer<'_>) -> u32 {
        let mut queue = self.queue_of(key);
        if let Some(id) = queue.filter(|&id| self.queues.get(id).is_some_and(|q| q.kind != kind)) {
            // Left by waiters of another family, and not looked at since.
            self.close_if_empty(id);
            queue = self.queue_of(key);
        }
        let queue = queue.unwrap_or_else(|| self.open_queue(key, kind));
        let (head, tail) = self.queues.get(queue).map_or((NIL, NIL), |q| (q.head, q.tail));
        let seq = match newcomer.rank {
            Rank::First => self.waiters.get(head).map(|first| first.seq - 1),
            Rank::Numbered(seq) => {
                let last = self.waiters.get(tail).map_or(0, |last| last.seq);
                (seq > last && seq < SEQ_MOST).then_some(seq)
            }
            Rank::Last => None,
        };
        let seq = seq.unwrap_or(self.last_seq + 1);
        self.last_seq = self.last_seq.max(seq);
        let is_first = newcomer.rank == Rank::First;
        let (prev, next) = if is_first { (NIL, head) } else { (tail, NIL) };
        let slot = self.waiters.insert(Waiter {
            id: WaiterId(0),
            owner: Owner::from(newcomer.owner),
            client: newcomer.client,
            presence: newcomer.presence,
            since: newcomer.since,
            ask: newcomer.ask,
            queue,
            group: NIL,
            seq,
            prev,
            next,
            elder: NIL,
            younger: NIL,
            party: NIL,
            counts: false,
        });
        if let Some(before) = self.waiters.get_mut(prev) {
            before.next = slot;
        }
        if let Some(behind) = self.waiters.get_mut(next) {
            behind.prev = slot;
        }
        if let Some(queue) = self.queues.get_mut(queue) {
            if prev == NIL {
                queue.head = slot;
            }
            if next == NIL {
                queue.tail = slot;
            }
            queue.len += 1;
        }
        self.count_in(slot);
        self.mark_unsaved(slot);
        if !newcomer.owner.is_empty() {
            self.index(slot);
        }
        self.new_id(slot);
        self.arm(slot);
        if newcomer.counts {
            self.count_place(slot);
        }
        slot
    }

    /// Takes a waiter out of its queue, and the queue away when it was the last. Of a call for
    /// several keys, only this place goes: see [`Waits::disband`].
    pub fn leave(&mut self, slot: u32) -> Option<Waiter> {
        self.timeouts.disarm(slot);
        self.graces.disarm(slot);
        let waiter = self.waiters.get(slot)?;
        if !waiter.owner.is_empty() {
            self.unindex(slot);
        }
        self.count_out(slot);
        self.mark_unsaved(slot);
        self.order.exempt.remove(&slot);
        let waiter = self.waiters.remove(slot)?;
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
            if queue.len == 0 && queue.kind.minds_its_queue() {
                self.stalled.insert(waiter.queue);
                self.forget_holders(waiter.queue);
            } else if queue.len == 0 {
                self.close_queue(waiter.queue);
            }
        }
        Some(waiter)
    }

    /// Gives a queue a number that none had before.
    pub fn renew_serial(&mut self, id: u32) -> u64 {
        self.last_serial += 1;
        if let Some(queue) = self.queues.get_mut(id) {
            queue.serial = self.last_serial;
        }
        self.last_serial
    }

    /// Forgets a queue that is empty.
    pub fn close_if_empty(&mut self, id: u32) {
        if self.queues.get(id).is_some_and(|queue| queue.len == 0) {
            self.close_queue(id);
        }
    }

    /// Forgets all queues that are empty.
    pub fn close_all_empty(&mut self) {
        for id in 0..self.queues.bound() {
            self.close_if_empty(id);
        }
    }

    /// Makes one call of the places in `members`, the first of which is the parked one.
    pub fn unite(&mut self, members: Vec<u32>, takes_any: bool) -> u32 {
        let slots = members.clone();
        let ready = HashSet::with_hasher(self.keys);
        let id = self.groups.insert(Group { members, takes_any, ready });
        for slot in slots {
            if let Some(waiter) = self.waiters.get_mut(slot) {
                waiter.group = id;
            }
        }
        id
    }

    /// Ends a call for several keys without taking its places away; they stand alone now.
    pub fn disband(&mut self, group: u32) -> Vec<u32> {
        let Some(group) = self.groups.remove(group) else { return Vec::new() };
        for &slot in &group.members {
            if let Some(waiter) = self.waiters.get_mut(slot) {
                waiter.group = NIL;
            }
        }
        group.members
    }

    /// Notes whether the key of `slot` is there for its call to take; `true` when all are.
    pub fn set_ready(&mut self, slot: u32, is_ready: bool) -> bool {
        let Some(id) = self.waiters.get(slot).map(|waiter| waiter.group) else { return false };
        let Some(group) = self.groups.get_mut(id) else { return false };
        if is_ready {
            group.ready.insert(slot);
        } else {
            group.ready.remove(&slot);
        }
        group.ready.len() == group.members.len()
    }

    /// Changes how a waiter waits. Its blocked call, if it had one, is over: it gets a new id.
    pub fn set_presence(&mut self, slot: u32, presence: Presence) {
        self.count_out(slot);
        if let Some(waiter) = self.waiters.get_mut(slot) {
            waiter.presence = presence;
            if matches!(presence, Presence::Absent { .. }) {
                waiter.client = NO_CLIENT;
            }
        }
        self.count_in(slot);
        self.new_id(slot);
        self.arm(slot);
    }

    /// Gives a place to a later call of the same owner.
    pub fn take_over(&mut self, slot: u32, client: u64, presence: Presence, ask: Ask) {
        self.count_out(slot);
        if let Some(waiter) = self.waiters.get_mut(slot) {
            waiter.client = client;
            waiter.ask = ask;
        }
        self.count_in(slot);
        self.mark_unsaved(slot);
        self.set_presence(slot, presence);
    }

    /// Notes that `queue` must be looked at again.
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

    /// What changed in a durable queue since it was last asked for.
    pub fn take_unsaved(&mut self, queue: u32) -> Vec<(u64, u32)> {
        let Some(queue) = self.queues.get_mut(queue) else { return Vec::new() };
        let unsaved = queue.more.as_mut().map(|more| core::mem::take(&mut more.unsaved));
        // Most queues have no readers: then nothing is kept until the next change.
        queue.more.take_if(|more| more.readers.is_empty());
        unsaved.unwrap_or_default()
    }

    /// Whether anything changed in a durable queue since it was last asked for.
    pub fn is_unsaved(&self, queue: u32) -> bool {
        self.queues.get(queue).is_some_and(Queue::is_unsaved)
    }

    /// Counts a waiter by what it is now.
    fn count_in(&mut self, slot: u32) {
        let Some(waiter) = self.waiters.get(slot) else { return };
        self.parked += usize::from(waiter.presence.is_parked());
        self.members += usize::from(waiter.presence == Presence::Member);
        if let Some(queue) = self.queues.get_mut(waiter.queue) {
            queue.makers += usize::from(is_maker(waiter.ask.want));
        }
    }

    /// Takes back what [`Waits::count_in`] did.
    fn count_out(&mut self, slot: u32) {
        let Some(waiter) = self.waiters.get(slot) else { return };
        self.parked -= usize::from(waiter.presence.is_parked());
        self.members -= usize::from(waiter.presence == Presence::Member);
        if let Some(queue) = self.queues.get_mut(waiter.queue) {
            queue.makers -= usize::from(is_maker(waiter.ask.want));
        }
    }

    /// Notes that a place of a durable queue came, goes or changed.
    fn mark_unsaved(&mut self, slot: u32) {
        let Some(waiter) = self.waiters.get(slot) else { return };
        if let Some(queue) = self.queues.get_mut(waiter.queue)
            && queue.kind == Kind::Fair
        {
            queue.more.get_or_insert_default().unsaved.push((waiter.seq, slot));
        }
    }

    fn arm(&mut self, slot: u32) {
        self.timeouts.disarm(slot);
        self.graces.disarm(slot);
        match self.waiters.get(slot).map(|waiter| waiter.presence) {
            Some(Presence::Parked { until: Some(until) }) => self.timeouts.arm(slot, until.0),
            Some(Presence::Absent { until }) => self.graces.arm(slot, until.0),
            Some(Presence::Parked { until: None } | Presence::Member | Presence::Queued) | None => {
            }
        }
    }

    fn new_id(&mut self, slot: u32) {
        self.calls = self.calls.wrapping_add(1);
        if let Some(waiter) = self.waiters.get_mut(slot) {
            waiter.id = WaiterId(u64::from(self.calls) << 32 | u64::from(slot));
        }
    }

    fn open_queue(&mut self, key: Key<'_>, kind: Kind) -> u32 {
        self.last_serial += 1;
        let id = self.queues.insert(Queue {
            kind,
            db: key.db,
            name: Name::from(key.name),
            len: 0,
            makers: 0,
            serial: self.last_serial,
            head: NIL,
            tail: NIL,
            holder: 0,
            more: None,
        });
        let (queues, keys) = (&self.queues, self.keys);
        self.by_key.insert_unique(hash_key(keys, key), id, |&id| {
            queues.get(id).map_or(0, |queue| hash_key(keys, queue.key()))
        });
        id
    }

    fn close_queue(&mut self, id: u32) {
        self.forget_holders(id);
        let Some(queue) = self.queues.get(id) else { return };
        let hash = hash_key(self.keys, queue.key());
        if let Ok(entry) = self.by_key.find_entry(hash, |&other| other == id) {
            entry.remove();
        }
        self.queues.remove(id);
        self.stalled.remove(&id);
    }
}

/// Whether a waiter makes the semaphore if it is not there.
fn is_maker(want: Want) -> bool {
    matches!(want, Want::Permits { limit: Some(_), .. })
}

fn hash_key(keys: HashKeys, key: Key<'_>) -> u64 {
    let mut hasher = keys.build_hasher();
    key.db.hash(&mut hasher);
    hasher.write(key.name);
    hasher.finish()
}
