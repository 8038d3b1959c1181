//! Calls for several keys: groups of waiters.
//!
//! Such a call can have very many waiters, and all of them end at the same moment. So a few are removed from their
//! queues at once. The others are *gone*: they stay in their queues until the tick removes them. Walks, counts and
//! searches by owner skip them.

use super::WaitQueues;
use crate::ids::{GroupId, QueueId, WaiterSlot};
use crate::queues::waiter::{Group, Waiter};

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
        let id = self.groups.insert(Group { members, is_over: false, takes_any, ready });
        for slot in slots {
            if let Some(waiter) = self.waiters.get_mut(slot) {
                waiter.group = id;
            }
        }
        id
    }

    /// Ends a call for several keys. Its waiters are independent now; those that do not stay are gone, beyond the first
    /// `most`. Returns these first ones, which the caller must remove.
    pub fn disband(
        &mut self,
        id: GroupId,
        most: usize,
        stays: impl Fn(WaiterSlot) -> bool,
    ) -> Vec<WaiterSlot> {
        let Some(group) = self.groups.get_mut(id) else { return Vec::new() };
        let (mut first, mut gone) = (Vec::new(), Vec::new());
        for slot in core::mem::take(&mut group.members) {
            if !stays(slot) && first.len() == most {
                gone.push(slot);
                continue;
            }
            if !stays(slot) {
                first.push(slot);
            }
            if let Some(waiter) = self.waiters.get_mut(slot) {
                waiter.group = GroupId::NONE;
            }
        }
        if gone.is_empty() {
            self.groups.remove(id);
        } else {
            self.gone += gone.len();
            self.over.push_back(id);
            (group.members, group.is_over) = (gone, true);
            group.ready = HashSet::with_hasher(self.keys);
        }
        first
    }

    /// Whether the waiter belongs to a call that is over.
    pub fn is_gone(&self, waiter: &Waiter) -> bool {
        self.gone > 0 && self.groups.get(waiter.group).is_some_and(|group| group.is_over)
    }

    /// Number of gone waiters that are not removed yet.
    pub fn gone(&self) -> usize {
        self.gone
    }

    /// Removes one gone waiter. Returns its queue.
    pub fn leave_one_gone(&mut self) -> Option<QueueId> {
        while let Some(&id) = self.over.front() {
            let members = self.groups.get_mut(id).map(|group| &mut group.members);
            let Some(slot) = members.and_then(Vec::pop) else {
                self.groups.remove(id);
                self.over.pop_front();
                continue;
            };
            // It may have been removed already, and another waiter may have the slot.
            if self.waiters.get(slot).is_some_and(|waiter| waiter.group == id) {
                return self.leave(slot).map(|waiter| waiter.queue);
            }
        }
        None
    }

    /// Removes all gone waiters from a queue, for a queue of another family under the same key.
    pub(super) fn leave_gone_of(&mut self, queue: QueueId) {
        let gone = self.walk_all(queue).filter(|(_, waiter)| self.is_gone(waiter));
        for slot in gone.map(|(slot, _)| slot).collect::<Vec<WaiterSlot>>() {
            self.leave(slot);
        }
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
}
