//! Calls for several keys: places that stand together.

use super::Waits;
use crate::queue::{Group, Waiter};
use crate::slab::NIL;
use alloc::vec::Vec;
use hashbrown::HashSet;

impl Waits {
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
}
