//! Calls for several keys: groups of waiters.

use crate::base::ids::{GroupId, WaiterSlot};
use crate::base::key::Key;
use crate::tables::queues::WaitQueues;
use crate::tables::queues::waiter::{Group, Waiter};
use alloc::vec::Vec;
use hashbrown::HashSet;

impl WaitQueues {
    /// The call for several keys to which a waiter belongs.
    pub fn group(&self, id: GroupId) -> Option<&Group> {
        self.groups.get(id)
    }

    /// Whether any call waits for several keys.
    pub fn has_groups(&self) -> bool {
        !self.groups.is_empty()
    }

    /// The waiter that represents the whole call: itself, or the first of its group.
    pub fn leader<'a>(&'a self, waiter: &'a Waiter) -> &'a Waiter {
        let first = self.groups.get(waiter.group).and_then(|group| group.members.first());
        first.and_then(|&slot| self.waiters.get(slot)).unwrap_or(waiter)
    }

    /// Makes one call of the waiters in `members`; the first of them is the parked one.
    pub fn unite(&mut self, members: Vec<WaiterSlot>, takes_any: bool) -> GroupId {
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

    /// Ends a call for several keys: its waiters are independent from now on. Returns them in the order of the keys.
    pub fn disband(&mut self, id: GroupId) -> Vec<WaiterSlot> {
        let Some(group) = self.groups.remove(id) else { return Vec::new() };
        for &slot in &group.members {
            if let Some(waiter) = self.waiters.get_mut(slot) {
                waiter.group = GroupId::NONE;
            }
        }
        group.members
    }

    /// Notes whether the key of `slot` is grantable to its call; `true` when all keys are.
    pub fn set_grantable(&mut self, slot: WaiterSlot, is_ready: bool) -> bool {
        let Some(id) = self.waiters.get(slot).map(|waiter| waiter.group) else { return false };
        let Some(group) = self.groups.get_mut(id) else { return false };
        if is_ready {
            group.ready.insert(slot);
        } else {
            group.ready.remove(&slot);
        }
        group.ready.len() == group.members.len()
    }

    /// The owner no longer holds a key on which its call for several keys counted.
    pub(crate) fn no_longer_grantable(&mut self, key: Key<'_>, owner: &[u8]) {
        if self.has_groups()
            && let Some(slot) = self.waiter_at(key, owner)
            && self.get(slot).is_some_and(Waiter::is_grouped)
        {
            self.set_grantable(slot, false);
        }
    }
}
