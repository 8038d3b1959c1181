//! The owners that wait for the caller, directly or through others.

use crate::base::ids::{OwnerSlot, QueueId, WaiterSlot};
use crate::deadlock::budget::Budget;
use crate::deadlock::holders::{Target, has_it};
use crate::ports::store::Lookup;
use crate::ports::turn::Turn;
use crate::tables::Tables;
use crate::tables::queues::WaitQueues;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;

/// A set of owners that contains all that wait for the caller. Where it is not sure whether a wait exists, it assumes
/// one: every waiter that can wait forever waits for all waiters in front of it and for all holders of the key.
pub(super) struct Waiting {
    /// A waiter of each owner, by number of the owner.
    owners: BTreeMap<OwnerSlot, WaiterSlot>,
    /// The waiters of owners that were found and not followed yet.
    open: Vec<WaiterSlot>,
    /// Queues with the sequence number from which on all waiters have been found.
    found: BTreeMap<QueueId, u64>,
}

impl Waiting {
    /// The owners that wait for `owner`, and those in `behind`: the queue whose front it joins. `None` if the budget
    /// ends first.
    pub(super) fn on(
        waits: &WaitQueues,
        owner: &[u8],
        behind: Option<QueueId>,
        budget: &mut Budget,
    ) -> Option<Self> {
        let mut waiting =
            Self { owners: BTreeMap::new(), open: Vec::new(), found: BTreeMap::new() };
        if let Some(queue) = behind.and_then(|queue| waits.queue(queue)) {
            waiting.add_from(waits, queue.head, budget)?;
        }
        waiting.add_waiters_for(waits, owner, budget)?;
        while let Some(slot) = waiting.open.pop() {
            let owner = waits.get(slot).map(|waiter| &waiter.owner)?;
            waiting.add_waiters_for(waits, owner, budget)?;
        }
        Some(waiting)
    }

    /// Whether the owner with this number is one of them.
    pub(super) fn contains(&self, owner_slot: OwnerSlot) -> bool {
        self.owners.contains_key(&owner_slot)
    }

    /// Whether a call of `caller` would wait for any of them, or may: also `true` if the budget ends first.
    pub(super) fn meets<'k>(
        &self,
        tables: &Tables,
        turn: &mut Turn<'_>,
        caller: &[u8],
        mut targets: impl Iterator<Item = Target<'k>>,
        budget: &mut Budget,
    ) -> bool {
        let waits = &tables.waits;
        let owners = self.owners.values().filter_map(|&slot| waits.get(slot));
        targets.any(|target| {
            let resource = match turn.keys.get(target.key) {
                Lookup::Here(resource) => Some(&*resource),
                _ => None,
            };
            let has_it = |resource| has_it(tables, resource, turn.now, caller, target.demand);
            if resource.is_some_and(has_it) {
                // The caller does not wait for a key that it holds.
                return false;
            }
            let queue = waits.queue_of(target.key);
            owners.clone().any(|waiter| {
                let holds = || resource.is_some_and(|r| r.holds_of(&waiter.owner).next().is_some());
                let stands = || queue.is_some_and(|q| waits.waiter_of(q, &waiter.owner).is_some());
                !budget.spend(1) || holds() || stands()
            })
        })
    }

    /// Adds the owners that wait for `owner` directly.
    fn add_waiters_for(
        &mut self,
        waits: &WaitQueues,
        owner: &[u8],
        budget: &mut Budget,
    ) -> Option<()> {
        for queue in waits.queues_held_by(owner) {
            let head = waits.queue(queue).map(|queue| queue.head)?;
            self.add_from(waits, head, budget)?;
        }
        for (_, waiter) in waits.waiters_of_owner(owner) {
            self.add_from(waits, waiter.next, budget)?;
        }
        Some(())
    }

    /// Adds the owners in a queue from `slot` on.
    fn add_from(
        &mut self,
        waits: &WaitQueues,
        slot: WaiterSlot,
        budget: &mut Budget,
    ) -> Option<()> {
        if !budget.spend(1) {
            return None;
        }
        let Some(first) = waits.get(slot) else { return Some(()) };
        let end = self.found.get(&first.queue).copied().unwrap_or(u64::MAX);
        if first.seq >= end {
            return Some(());
        }
        self.found.insert(first.queue, first.seq);
        let (mut slot, mut next) = (slot, Some(first));
        while let Some(waiter) = next.filter(|waiter| waiter.seq < end) {
            if !budget.spend(1) {
                return None;
            }
            let is_new =
                waits.can_close_a_cycle(waiter) && !self.owners.contains_key(&waiter.owner_slot);
            if is_new {
                self.owners.insert(waiter.owner_slot, slot);
                self.open.push(slot);
            }
            slot = waiter.next;
            next = waits.get(slot);
        }
        Some(())
    }
}
