//! The waiters of each owner, in all queues.

use crate::base::buckets::Chain;
use crate::base::hash::HashKeys;
use crate::base::ids::{OwnerSlot, QueueId, WaiterSlot};
use crate::base::slab::Slab;
use crate::tables::queues::WaitQueues;
use crate::tables::queues::waiter::Waiter;
use core::hash::{BuildHasher, Hash, Hasher};
use core::num::NonZeroU32;

/// An owner that has waiters.
#[derive(Debug)]
pub(super) struct WaitingOwner {
    /// Its first waiter: the others are linked to it.
    first_of_owner: WaiterSlot,
    /// Number of its waiters.
    count: NonZeroU32,
    /// The next entry of its bucket in the table of owners.
    next_by_name: OwnerSlot,
}

impl WaitQueues {
    /// The waiters of `owner` in all queues.
    pub fn waiters_of_owner(&self, owner: &[u8]) -> impl Iterator<Item = (WaiterSlot, &Waiter)> {
        let found = self.owner_slot_of(owner).and_then(|slot| self.owners.get(slot));
        let mut slot = found.map_or(WaiterSlot::NONE, |owner| owner.first_of_owner);
        core::iter::from_fn(move || {
            let here = slot;
            let waiter = self.waiters.get(here)?;
            slot = waiter.next_of_owner;
            Some((here, waiter))
        })
    }

    /// Whether `owner` has a waiter anywhere.
    pub fn waits_anywhere(&self, owner: &[u8]) -> bool {
        self.owner_slot_of(owner).is_some()
    }

    /// Whether a waiter can be part of a cycle of waits while its wait lasts: not if it is for permits, or takes any of
    /// several keys.
    pub fn can_close_a_cycle(&self, waiter: &Waiter) -> bool {
        waiter.ask.demand.can_lock_up()
            && self.group(waiter.group).is_none_or(|group| !group.takes_any)
    }

    /// Whether the owner of a waiter has another one elsewhere.
    pub fn is_plural(&self, waiter: &Waiter) -> bool {
        waiter.prev_of_owner != WaiterSlot::NONE || waiter.next_of_owner != WaiterSlot::NONE
    }

    /// Number of owners that have more than one waiter.
    pub fn plural_count(&self) -> usize {
        self.plural.len()
    }

    /// The owners that have more than one waiter.
    pub fn plural_owners(&self) -> impl Iterator<Item = &[u8]> {
        self.plural.iter().filter_map(|&owner_slot| self.name_of(owner_slot))
    }

    /// The number of an owner that waits anywhere.
    pub(crate) fn owner_slot_of(&self, owner: &[u8]) -> Option<OwnerSlot> {
        if self.by_name.is_empty() {
            return None;
        }
        let same = |owner_slot| self.name_of(owner_slot).is_some_and(|name| *name == *owner);
        self.by_name
            .find(hash_owner(self.keys, owner), same, |owner_slot| self.next_by_name(owner_slot))
    }

    fn next_by_name(&self, owner_slot: OwnerSlot) -> OwnerSlot {
        self.owners.get(owner_slot).map_or(OwnerSlot::NONE, |owner| owner.next_by_name)
    }

    fn hash_of(&self, owner_slot: OwnerSlot) -> u64 {
        self.name_of(owner_slot).map_or(0, |name| hash_owner(self.keys, name))
    }

    /// The owner with this hash, if it has waiters.
    pub(super) fn owner_with(&self, hash: u64) -> Option<&[u8]> {
        self.name_of(self.owner_slot_with(hash)?)
    }

    pub(super) fn owner_slot_with(&self, hash: u64) -> Option<OwnerSlot> {
        if self.by_name.is_empty() || hash == 0 {
            return None;
        }
        let same = |owner_slot| self.hash_of(owner_slot) == hash;
        self.by_name.find(hash, same, |owner_slot| self.next_by_name(owner_slot))
    }

    /// The first waiter of an owner, or [`WaiterSlot::NONE`].
    pub(crate) fn first_of_owner(&self, owner: OwnerSlot) -> WaiterSlot {
        self.owners.get(owner).map_or(WaiterSlot::NONE, |owner| owner.first_of_owner)
    }

    /// The numbers of all owners that wait are below this one.
    pub(crate) fn owner_bound(&self) -> OwnerSlot {
        self.owners.bound()
    }

    fn name_of(&self, owner_slot: OwnerSlot) -> Option<&[u8]> {
        let first_of_owner = self.owners.get(owner_slot)?.first_of_owner;
        self.waiters.get(first_of_owner).map(|waiter| &*waiter.owner)
    }

    /// Adds a waiter to the table by owner.
    pub(super) fn index(&mut self, slot: WaiterSlot) {
        let Some(waiter) = self.waiters.get(slot) else { return };
        let (keys, owner, queue) = (self.keys, waiter.owner.clone(), waiter.queue);
        let mut waiters = ByOwner { keys, waiters: &mut self.waiters };
        self.by_owner.insert(&mut waiters, hash_waiter(keys, queue, &owner), slot);
        let known = self.owner_slot_of(&owner);
        if let Some(owner_slot) = known
            && let Some(known) = self.owners.get_mut(owner_slot)
        {
            known.count = known.count.saturating_add(1);
            let first_of_owner = known.first_of_owner;
            // Right behind the first, so that no walk is needed.
            let next_of_owner = self
                .waiters
                .get(first_of_owner)
                .map_or(WaiterSlot::NONE, |waiter| waiter.next_of_owner);
            for (at, prev) in [(next_of_owner, slot), (slot, first_of_owner)] {
                if let Some(waiter) = self.waiters.get_mut(at) {
                    waiter.prev_of_owner = prev;
                }
            }
            for (at, next) in [(first_of_owner, slot), (slot, next_of_owner)] {
                if let Some(waiter) = self.waiters.get_mut(at) {
                    waiter.next_of_owner = next;
                }
            }
            self.plural.insert(owner_slot);
        }
        let owner_slot = known.unwrap_or_else(|| self.add_owner(slot, &owner));
        if let Some(waiter) = self.waiters.get_mut(slot) {
            waiter.owner_slot = owner_slot;
        }
    }

    pub(super) fn unindex(&mut self, slot: WaiterSlot) {
        let Some(waiter) = self.waiters.get(slot) else { return };
        let (prev_of_owner, next_of_owner, owner_slot) =
            (waiter.prev_of_owner, waiter.next_of_owner, waiter.owner_slot);
        let hash = hash_waiter(self.keys, waiter.queue, &waiter.owner);
        let owner = hash_owner(self.keys, &waiter.owner);
        let mut waiters = ByOwner { keys: self.keys, waiters: &mut self.waiters };
        self.by_owner.remove(&mut waiters, hash, slot);
        if let Some(waiter) = self.waiters.get_mut(next_of_owner) {
            waiter.prev_of_owner = prev_of_owner;
        }
        if let Some(waiter) = self.waiters.get_mut(prev_of_owner) {
            waiter.next_of_owner = next_of_owner;
        }
        let Some(known) = self.owners.get_mut(owner_slot) else { return };
        if let Some(left) = NonZeroU32::new(known.count.get() - 1) {
            known.count = left;
            if prev_of_owner == WaiterSlot::NONE {
                known.first_of_owner = next_of_owner;
            }
            if left.get() == 1 {
                self.plural.remove(&owner_slot);
            }
        } else {
            let (keys, waiters) = (self.keys, &self.waiters);
            let mut by_name = ByName { keys, owners: &mut self.owners, waiters };
            self.by_name.remove(&mut by_name, owner, owner_slot);
            self.owners.remove(owner_slot);
        }
    }

    fn add_owner(&mut self, slot: WaiterSlot, owner: &[u8]) -> OwnerSlot {
        let waiting = WaitingOwner {
            first_of_owner: slot,
            count: NonZeroU32::MIN,
            next_by_name: OwnerSlot::NONE,
        };
        let id = self.owners.insert(waiting);
        let (keys, waiters) = (self.keys, &self.waiters);
        let mut by_name = ByName { keys, owners: &mut self.owners, waiters };
        self.by_name.insert(&mut by_name, hash_owner(keys, owner), id);
        id
    }
}

/// The waiters as entries of the table by queue and owner.
pub(super) struct ByOwner<'a> {
    pub(super) keys: HashKeys,
    pub(super) waiters: &'a mut Slab<WaiterSlot, Waiter>,
}

impl Chain for ByOwner<'_> {
    type Id = WaiterSlot;

    fn hash(&self, slot: WaiterSlot) -> u64 {
        let waiter = self.waiters.get(slot);
        waiter.map_or(0, |waiter| hash_waiter(self.keys, waiter.queue, &waiter.owner))
    }

    fn next(&self, slot: WaiterSlot) -> WaiterSlot {
        self.waiters.get(slot).map_or(WaiterSlot::NONE, |waiter| waiter.next_by_owner)
    }

    fn set_next(&mut self, slot: WaiterSlot, next: WaiterSlot) {
        if let Some(waiter) = self.waiters.get_mut(slot) {
            waiter.next_by_owner = next;
        }
    }
}

/// The owners with waiters as entries of the table by name.
struct ByName<'a> {
    keys: HashKeys,
    owners: &'a mut Slab<OwnerSlot, WaitingOwner>,
    waiters: &'a Slab<WaiterSlot, Waiter>,
}

impl Chain for ByName<'_> {
    type Id = OwnerSlot;

    fn hash(&self, owner_slot: OwnerSlot) -> u64 {
        let first_of_owner =
            self.owners.get(owner_slot).and_then(|owner| self.waiters.get(owner.first_of_owner));
        first_of_owner.map_or(0, |waiter| hash_owner(self.keys, &waiter.owner))
    }

    fn next(&self, owner_slot: OwnerSlot) -> OwnerSlot {
        self.owners.get(owner_slot).map_or(OwnerSlot::NONE, |owner| owner.next_by_name)
    }

    fn set_next(&mut self, owner_slot: OwnerSlot, next: OwnerSlot) {
        if let Some(owner) = self.owners.get_mut(owner_slot) {
            owner.next_by_name = next;
        }
    }
}

pub(super) fn hash_waiter(keys: HashKeys, queue: QueueId, owner: &[u8]) -> u64 {
    let mut hasher = keys.build_hasher();
    queue.hash(&mut hasher);
    hasher.write(owner);
    hasher.finish()
}

/// Never 0, which means "no owner".
pub(super) fn hash_owner(keys: HashKeys, owner: &[u8]) -> u64 {
    let mut hasher = keys.build_hasher();
    hasher.write(owner);
    hasher.finish().max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_owner_costs_no_more_than_the_memory_account_assumes() {
        assert_eq!(size_of::<Option<WaitingOwner>>(), 12);
    }
}
