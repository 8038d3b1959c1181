//! Many holds of one key: the readers of a read-write lock, the permits of a semaphore.

use crate::base::bytes::Owner;
use crate::base::ids::{ALONE, HoldId};
use crate::base::time::LeaseInstant;
use crate::value::hold::{self, Hold};
use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use core::fmt;
use core::ops::Bound;

/// See the module documentation. Finds holds by id, by owner, and by next end, each in O(log n).
#[derive(Default)]
pub struct Holds {
    /// Boxed, because many keys have few of them and a node of the map has room for eleven.
    all: BTreeMap<HoldId, Box<Hold>>,
    ends: BTreeSet<(LeaseInstant, HoldId)>,
    /// By a hash of the owner: numbers sort several times as fast as owners, and take less memory.
    owners: BTreeSet<(u64, HoldId)>,
    /// Unclaimed holds: first those with ids, then by owner and count.
    unclaimed: BTreeSet<(bool, Owner, u32, HoldId)>,
    /// Holds that know a request, by a hash of its owner and id.
    requests: BTreeSet<(u64, HoldId)>,
    /// Ids that changed since the last record.
    touched: Vec<HoldId>,
    /// All holds were removed at once since the last record: the next one carries the whole state.
    needs_whole_record: bool,
}

impl Holds {
    /// The holds of a decoded value, which are sorted by their ids without duplicates.
    pub(crate) fn of_sorted(all: Vec<(HoldId, Box<Hold>)>) -> Self {
        let ids: Vec<HoldId> = all.iter().map(|(id, _)| *id).collect();
        let owners = sorted(&ids, all.iter().map(|(_, hold)| hold::owner_hash(&hold.owner)));
        let unclaimed = all.iter().filter_map(|(id, hold)| claim_of(*id, hold)).collect();
        let mut requests: Vec<(u64, HoldId)> = Vec::new();
        for (id, hold) in &all {
            requests.extend(hold.requests_by_hash().into_iter().map(|hash| (hash, *id)));
        }
        requests.sort_unstable();
        let requests = BTreeSet::from_iter(requests);
        Self {
            all: BTreeMap::from_iter(all),
            // Filled when the leases start to run, which is before the first use.
            ends: BTreeSet::new(),
            owners,
            unclaimed,
            requests,
            touched: Vec::new(),
            needs_whole_record: false,
        }
    }

    /// Removes all holds together. O(1).
    pub(crate) fn take_all(&mut self) -> Self {
        core::mem::replace(self, Self { needs_whole_record: true, ..Self::default() })
    }

    /// Whether the next record has to carry the whole state.
    pub(crate) fn needs_whole_record(&self) -> bool {
        self.needs_whole_record
    }

    /// Adds a hold under a new id.
    pub fn insert(&mut self, id: HoldId, hold: Hold) {
        self.need_ends();
        self.touched.push(id);
        self.index(id, &hold);
        self.all.insert(id, Box::new(hold));
    }

    /// Removes a hold.
    pub fn remove(&mut self, id: HoldId) -> Option<Hold> {
        self.need_ends();
        let hold = *self.all.remove(&id)?;
        self.touched.push(id);
        self.ends.remove(&(hold.deadline, id));
        self.owners.remove(&(hold::owner_hash(&hold.owner), id));
        claim_of(id, &hold).map(|claim| self.unclaimed.remove(&claim));
        self.requests_changed(id, hold.requests_by_hash(), BTreeSet::new());
        Some(hold)
    }

    /// Removes the hold with the smallest id from holds that no value has any more: the indexes still name it.
    pub(crate) fn pop_first(&mut self) -> Option<(HoldId, Box<Hold>)> {
        self.all.pop_first()
    }

    /// The hold under `id`.
    pub fn get(&self, id: HoldId) -> Option<&Hold> {
        self.all.get(&id).map(AsRef::as_ref)
    }

    /// Changes the hold under `id`; its owner stays.
    pub fn change<R>(&mut self, id: HoldId, change: impl FnOnce(&mut Hold) -> R) -> Option<R> {
        self.need_ends();
        let hold = self.all.get_mut(&id)?;
        let deadline = hold.deadline;
        let claim = claim_of(id, hold);
        let known = hold.requests_by_hash();
        let result = change(hold);
        let new_claim = claim_of(id, hold);
        let new_known = hold.requests_by_hash();
        if hold.deadline != deadline {
            self.ends.remove(&(deadline, id));
            self.ends.insert((hold.deadline, id));
        }
        if claim != new_claim {
            claim.map(|claim| self.unclaimed.remove(&claim));
            self.unclaimed.extend(new_claim);
        }
        if known != new_known {
            self.requests_changed(id, known, new_known);
        }
        self.touched.push(id);
        Some(result)
    }

    /// Changes the times of all holds. Not recorded for replicas, which have times of their own.
    pub fn change_all(&mut self, mut change: impl FnMut(HoldId, &mut Hold)) {
        let mut is_changed = self.ends.len() != self.all.len();
        // Collected in the same walk: a second one would have to fetch each hold again.
        let mut ids = Vec::with_capacity(self.all.len());
        let mut ends = Vec::with_capacity(self.all.len());
        for (&id, hold) in &mut self.all {
            let deadline = hold.deadline;
            change(id, hold);
            is_changed |= hold.deadline != deadline;
            ids.push(id);
            ends.push(hold.deadline);
        }
        if is_changed {
            self.ends = sorted(&ids, ends.into_iter());
        }
    }

    fn sort_ends(&mut self) {
        self.ends = self.sorted_ends();
    }

    fn sorted_ends(&self) -> BTreeSet<(LeaseInstant, HoldId)> {
        let ids: Vec<HoldId> = self.all.keys().copied().collect();
        sorted(&ids, self.all.values().map(|hold| hold.deadline))
    }

    /// The holds of a decoded value are not sorted by their ends before this.
    fn need_ends(&mut self) {
        if self.ends.len() != self.all.len() {
            self.sort_ends();
        }
    }

    /// The holds of `owner`.
    pub fn of_owner(&self, owner: &[u8]) -> impl Iterator<Item = (HoldId, &Hold)> {
        let hash = hold::owner_hash(owner);
        let found = self.owners.range((hash, ALONE)..=(hash, HoldId::MAX));
        let found = found.filter_map(|&(_, id)| Some((id, self.get(id)?)));
        found.filter(move |(_, hold)| *hold.owner == *owner)
    }

    /// The hold of `owner` that knows request `id`.
    pub fn by_request(&self, owner: &[u8], id: &[u8]) -> Option<(HoldId, &Hold)> {
        let hash = hold::request_hash(owner, id);
        let found = self.requests.range((hash, ALONE)..=(hash, HoldId::MAX));
        let mut found = found.filter_map(|&(_, hold)| Some((hold, self.get(hold)?)));
        found.find(|(_, hold)| *hold.owner == *owner && hold.has_request(Some(id)))
    }

    /// The first unclaimed hold of `owner` with this count and without an id.
    pub fn to_claim(&self, owner: &[u8], count: u32) -> Option<HoldId> {
        let owner = Owner::from(owner);
        let range = (true, owner.clone(), count, ALONE)..=(true, owner, count, HoldId::MAX);
        self.unclaimed.range(range).next().map(|&(.., id)| id)
    }

    /// Whether any hold is unclaimed.
    pub fn has_unclaimed(&self) -> bool {
        !self.unclaimed.is_empty()
    }

    /// The next end, and its hold.
    pub fn first_end(&self) -> Option<(LeaseInstant, HoldId)> {
        if self.ends.len() == self.all.len() {
            return self.ends.first().copied();
        }
        self.all.iter().map(|(&id, hold)| (hold.deadline, id)).min()
    }

    /// All holds, in the order of their ids.
    pub fn iter(&self) -> impl Iterator<Item = (HoldId, &Hold)> {
        self.all.iter().map(|(&id, hold)| (id, &**hold))
    }

    /// The holds behind `last` in the order of their ids; all holds without `last`.
    pub fn after(&self, last: Option<HoldId>) -> impl Iterator<Item = (HoldId, &Hold)> {
        let from = last.map_or(Bound::Unbounded, Bound::Excluded);
        self.all.range((from, Bound::Unbounded)).map(|(&id, hold)| (id, &**hold))
    }

    /// The smallest id.
    pub(crate) fn first_id(&self) -> Option<HoldId> {
        self.all.first_key_value().map(|(&id, _)| id)
    }

    /// The largest id.
    pub(crate) fn last_id(&self) -> Option<HoldId> {
        self.all.last_key_value().map(|(&id, _)| id)
    }

    /// Number of holds.
    pub fn len(&self) -> usize {
        self.all.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// Ids that changed since the last [`Holds::settle`]; ids without a hold were removed. An id may occur more than
    /// once.
    pub fn touched(&self) -> &[HoldId] {
        &self.touched
    }

    /// Notes that all changes are recorded.
    pub fn settle(&mut self) {
        self.touched.clear();
        self.touched.shrink_to(8);
        self.needs_whole_record = false;
    }

    /// Bytes on the heap: the size of the entries, and a third more for the nodes that hold them. Extrapolated from
    /// `samples` of them.
    pub fn heap_size(&self, samples: usize) -> usize {
        let entry = size_of::<Hold>() + size_of::<u64>() + 5 * size_of::<HoldId>();
        let rest = crate::value::sampled(self.all.values().map(|hold| hold.heap_size()), samples);
        self.len() * entry * 4 / 3 + rest
    }

    /// Whether the parts agree with each other, for tests.
    pub(crate) fn is_consistent(&self) -> bool {
        (self.ends.is_empty() || self.ends.len() == self.all.len())
            && self.owners.len() == self.all.len()
            && self.unclaimed.len() == self.all.values().filter(|h| h.unclaimed().is_some()).count()
            && self.requests.len() == self.all.values().map(|h| h.requests_by_hash().len()).sum()
            && self.all.iter().all(|(&id, hold)| {
                (self.ends.is_empty() || self.ends.contains(&(hold.deadline, id)))
                    && self.owners.contains(&(hold::owner_hash(&hold.owner), id))
                    && hold
                        .requests_by_hash()
                        .iter()
                        .all(|&hash| self.requests.contains(&(hash, id)))
            })
    }

    fn index(&mut self, id: HoldId, hold: &Hold) {
        self.ends.insert((hold.deadline, id));
        self.owners.insert((hold::owner_hash(&hold.owner), id));
        self.unclaimed.extend(claim_of(id, hold));
        self.requests_changed(id, BTreeSet::new(), hold.requests_by_hash());
    }

    fn requests_changed(&mut self, id: HoldId, known: BTreeSet<u64>, new: BTreeSet<u64>) {
        for hash in known {
            self.requests.remove(&(hash, id));
        }
        self.requests.extend(new.into_iter().map(|hash| (hash, id)));
    }
}

/// How the index of unclaimed holds lists a hold.
fn claim_of(id: HoldId, hold: &Hold) -> Option<(bool, Owner, u32, HoldId)> {
    hold.unclaimed().map(|_| (hold.is_nameless_grant(), hold.owner.clone(), hold.count, id))
}

/// Leaves out whether the ends are sorted already.
impl fmt::Debug for Holds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { all, ends, owners, unclaimed, requests, touched, needs_whole_record } = self;
        let is_sorted = ends.len() == all.len();
        let ends = if is_sorted { ends.clone() } else { self.sorted_ends() };
        f.debug_struct("Holds")
            .field("all", all)
            .field("ends", &ends)
            .field("owners", owners)
            .field("unclaimed", unclaimed)
            .field("requests", requests)
            .field("touched", touched)
            .field("needs_whole_record", needs_whole_record)
            .finish()
    }
}

/// A set of keys with their ids, which are sorted. Built from sorted elements; to sort them, it compares the index of
/// the id instead of the id.
fn sorted<K: Ord + Copy>(
    ids: &[HoldId],
    keys: impl ExactSizeIterator<Item = K>,
) -> BTreeSet<(K, HoldId)> {
    let mut order: Vec<(K, u32)> = keys.zip(0..).collect();
    // They are mostly in order: all have the same lease.
    if !order.is_sorted() {
        order.sort_unstable();
    }
    order.into_iter().filter_map(|(key, at)| Some((key, *ids.get(at as usize)?))).collect()
}
