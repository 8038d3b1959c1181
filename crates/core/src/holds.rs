//! Many holds of one key: the readers of a read-write lock, the permits of a semaphore.

use crate::bytes::Owner;
use crate::hold::Hold;
use crate::time::LeaseInstant;
use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

/// Which hold of a key: the token of a reader, the id of a permit, [`ALONE`] for the one holder of
/// a lock and for the writer.
pub type HoldId = u128;

/// The hold of a lock, or the write hold of a read-write lock.
pub const ALONE: HoldId = 0;

/// See the module. Found by id, by owner, and by what ends next, each in logarithmic time.
#[derive(Debug, Default)]
pub struct Holds {
    /// Boxed, because many keys have few of them and a node of the map has room for eleven.
    all: BTreeMap<HoldId, Box<Hold>>,
    ends: BTreeSet<(LeaseInstant, HoldId)>,
    owners: BTreeSet<(Owner, HoldId)>,
    /// How many wait to be claimed.
    unclaimed: usize,
    /// What changed since the last record.
    touched: Vec<HoldId>,
}

impl Holds {
    /// Adds a hold under a new id.
    pub fn insert(&mut self, id: HoldId, hold: Hold) {
        self.touched.push(id);
        self.index(id, &hold);
        self.all.insert(id, Box::new(hold));
    }

    /// Takes a hold out.
    pub fn remove(&mut self, id: HoldId) -> Option<Hold> {
        let hold = *self.all.remove(&id)?;
        self.touched.push(id);
        self.ends.remove(&(hold.deadline, id));
        self.owners.remove(&(hold.owner.clone(), id));
        self.unclaimed -= usize::from(hold.unclaimed().is_some());
        Some(hold)
    }

    /// The hold under `id`.
    pub fn get(&self, id: HoldId) -> Option<&Hold> {
        self.all.get(&id).map(AsRef::as_ref)
    }

    /// Changes the hold under `id`; its owner stays.
    pub fn change<R>(&mut self, id: HoldId, change: impl FnOnce(&mut Hold) -> R) -> Option<R> {
        let hold = self.all.get_mut(&id)?;
        let (deadline, unclaimed) = (hold.deadline, hold.unclaimed().is_some());
        let result = change(hold);
        if hold.deadline != deadline {
            self.ends.remove(&(deadline, id));
            self.ends.insert((hold.deadline, id));
        }
        self.unclaimed += usize::from(hold.unclaimed().is_some());
        self.unclaimed -= usize::from(unclaimed);
        self.touched.push(id);
        Some(result)
    }

    /// Changes the times of all holds. That is no news for replicas, which have their own.
    pub fn change_all(&mut self, mut change: impl FnMut(HoldId, &mut Hold)) {
        for (&id, hold) in &mut self.all {
            change(id, hold);
        }
        self.ends = self.all.iter().map(|(&id, hold)| (hold.deadline, id)).collect();
    }

    /// The holds of `owner`.
    pub fn of_owner(&self, owner: &[u8]) -> impl Iterator<Item = (HoldId, &Hold)> {
        let owner = Owner::from(owner);
        let range = (owner.clone(), 0)..=(owner, HoldId::MAX);
        self.owners.range(range).filter_map(|&(_, id)| Some((id, self.get(id)?)))
    }

    /// Which hold ends next, and when.
    pub fn first_end(&self) -> Option<(LeaseInstant, HoldId)> {
        self.ends.first().copied()
    }

    /// All holds, in the order of their ids.
    pub fn iter(&self) -> impl Iterator<Item = (HoldId, &Hold)> {
        self.all.iter().map(|(&id, hold)| (id, &**hold))
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.all.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// Whether any of them waits to be claimed.
    pub fn has_unclaimed(&self) -> bool {
        self.unclaimed > 0
    }

    /// What changed since the last [`Holds::settle`]; ids that are not there any more are gone. An
    /// id may come more than once.
    pub fn touched(&self) -> &[HoldId] {
        &self.touched
    }

    /// What changed is recorded.
    pub fn settle(&mut self) {
        self.touched.clear();
        self.touched.shrink_to(8);
    }

    /// Bytes on the heap: what the entries take, and a third more for the nodes that hold them.
    pub fn heap_size(&self) -> usize {
        let entry = size_of::<Hold>() + size_of::<Owner>() + 4 * size_of::<HoldId>();
        let rest: usize = self.all.values().map(|hold| hold.heap_size()).sum();
        self.len() * entry * 4 / 3 + rest
    }

    /// What does not hold between the parts, for tests.
    pub(crate) fn is_consistent(&self) -> bool {
        self.ends.len() == self.all.len()
            && self.owners.len() == self.all.len()
            && self.unclaimed == self.all.values().filter(|h| h.unclaimed().is_some()).count()
            && self.all.iter().all(|(&id, hold)| {
                self.ends.contains(&(hold.deadline, id))
                    && self.owners.contains(&(hold.owner.clone(), id))
            })
    }

    fn index(&mut self, id: HoldId, hold: &Hold) {
        self.ends.insert((hold.deadline, id));
        self.owners.insert((hold.owner.clone(), id));
        self.unclaimed += usize::from(hold.unclaimed().is_some());
    }
}
