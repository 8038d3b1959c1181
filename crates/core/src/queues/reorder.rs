//! Makes room in the order for new waits. Either the owners that wait for an owner get higher ranks, or those it waits
//! for get lower ranks, whichever is less work.
//!
//! Without unordered owners only those between the two ends of the new wait move (Pearce and Kelly's affected region).
//! With unordered owners ranks prove nothing, and all owners that can be reached move.

use super::Waits;
use super::budget::Budget;
use super::order::{HELD_MOST, LOWEST};
use super::owners::hash_owner;
use super::reach::{Reach, Root, Why};
use crate::key::Key;
use crate::slab::NIL;
use crate::state::resource::Resource;
use alloc::collections::BTreeSet;
use alloc::vec::Vec;

/// Budgets of the attempts to make room for a call, upwards and downwards, as far as the call's budget allows.
const FOR_A_CALL: [usize; 3] = [64, 512, 4_096];

/// The same for an unordered owner.
const IN_DOUBT: [usize; 2] = [512, 4_096];

/// Largest number of unordered owners that one call tries to re-rank.
const IN_DOUBT_AT_ONCE: usize = 1_024;

/// A rank below all that are given.
const UNKNOWN: i64 = LOWEST + 1;

/// Largest number of readers of one key that the order compares with a call; with more, a search decides.
const READERS_MOST: usize = 1_024;

/// The targets for which a call is about to wait.
#[derive(Debug, Default)]
pub struct Aims {
    /// Queues whose end it would join.
    pub(super) queues: BTreeSet<u32>,
    /// Holders of keys without waiters, by owner hash.
    pub(super) holders: BTreeSet<u64>,
    /// There are more targets than listed.
    pub(super) is_cut: bool,
}

impl Waits {
    /// Adds what a call for `key` would wait for, at the end of its queue.
    pub fn aim_at(&self, aims: &mut Aims, key: Key<'_>, resource: Option<&Resource>) {
        if let Some(queue) = self.queue_of(key)
            && self.queues.get(queue).is_some_and(|queue| queue.len > 0)
        {
            aims.queues.insert(queue);
            return;
        }
        let mut holds = resource.into_iter().flat_map(Resource::holds);
        let first = holds.by_ref().take(READERS_MOST);
        aims.holders.extend(first.map(|(_, hold)| hash_owner(self.keys, &hold.owner)));
        aims.is_cut |= holds.next().is_some();
    }

    /// Whether no owner can be waiting for `owner`, as far as this is known in O(1).
    pub fn is_of_no_concern(&self, owner: &[u8]) -> bool {
        self.waiters.is_empty()
            || (self.party_of(owner).is_none()
                && self.held_by(hash_owner(self.keys, owner)).next().is_none())
    }

    /// Makes room in the order for the targets of `owner`. `true`: the call closes no cycle. `false`: a search has to
    /// decide.
    pub fn admits(&mut self, owner: &[u8], aims: &Aims, budget: &mut Budget) -> bool {
        self.order.promised = None;
        if !self.is_in_order() {
            return false;
        }
        let root = self.root(owner);
        let Some(floor) = self.floor(root, budget) else { return true };
        if aims.is_cut {
            // The targets left out may be waiting for the owner.
            return false;
        }
        if root.level == LOWEST {
            self.order.looked_at += self.held_by(root.hash).take(HELD_MOST).count() as u64;
        }
        let ceiling = self.highest(root, aims, budget);
        if ceiling.is_some_and(|ceiling| ceiling < floor) {
            let lowest = ceiling.filter(|&ceiling| ceiling != LOWEST);
            if root.level == LOWEST {
                let found = self.order.between(lowest, floor, 1);
                self.order.promised = found.map(|(level, _)| level);
            }
            if root.level != LOWEST || self.order.promised.is_some() {
                return true;
            }
        }
        for most in FOR_A_CALL {
            for lifts in [true, false] {
                let moved = if lifts {
                    let ceiling = ceiling.unwrap_or(i64::MAX);
                    self.spending(budget, most, |waits, looks| {
                        waits.lift(root, Some(aims), ceiling, looks)
                    })
                } else {
                    self.spending(budget, most, |waits, looks| {
                        waits.lower(root, Some(aims), floor, looks)
                    })
                };
                match moved {
                    Ok(()) => return true,
                    Err(Why::Circle) => return false,
                    Err(Why::TooFar) => {}
                }
            }
        }
        false
    }

    /// The call for which [`Waits::admits`] made room has joined its queues, or will not.
    pub fn forget_promise(&mut self) {
        self.order.promised = None;
    }

    /// No owner ranked below this can be waiting for `owner`; `None` if that is not known.
    pub fn least_level(&self, owner: &[u8], budget: &mut Budget) -> Option<i64> {
        let root = self.root(owner);
        if root.level != LOWEST {
            return self.is_in_order().then(|| root.level.saturating_add(1));
        }
        self.floor(root, budget).filter(|_| self.is_in_order())
    }

    /// Whether an owner ranks below `level`, or waits for no other.
    pub fn is_below(&self, owner: &[u8], level: i64) -> bool {
        self.party_of(owner).is_none_or(|party| self.level_of(party) < level)
    }

    /// Tries to re-rank unordered owners.
    pub fn settle_doubts(&mut self, budget: &mut Budget) {
        if self.is_in_order() {
            return;
        }
        if self.order.rest > 0 {
            self.order.rest -= 1;
            return;
        }
        let mut helped = 0;
        let from = self.order.unsure.range(self.order.cursor..).copied();
        let some = self.order.unsure.len().min(IN_DOUBT_AT_ONCE);
        let some: Vec<u32> = from.chain(self.order.unsure.iter().copied()).take(some).collect();
        for party in some {
            if self.finds_its_place(party, budget) {
                self.trust(party);
                helped += 1;
            }
            self.order.cursor = party.wrapping_add(1);
            if !budget.spend(1) {
                break;
            }
        }
        // An owner in a real cycle stays unordered: then the attempts become rare.
        self.order.pause = if helped > 0 { 0 } else { (2 * self.order.pause + 1).min(255) };
        self.order.rest = self.order.pause;
    }

    /// Number of waiters that the order has inspected since the start.
    pub fn looked_at(&self) -> u64 {
        self.order.looked_at
    }

    fn finds_its_place(&mut self, party: u32, budget: &mut Budget) -> bool {
        for most in IN_DOUBT {
            for lifts in [true, false] {
                let root = self.root_of(party);
                let moved = self.spending(budget, most, |waits, looks| {
                    if lifts {
                        waits.lift(root, None, i64::MAX, looks)
                    } else {
                        waits.lower(root, None, LOWEST, looks)
                    }
                });
                match moved {
                    Ok(()) => return true,
                    Err(Why::Circle) => return false,
                    Err(Why::TooFar) => {}
                }
            }
        }
        false
    }

    /// Runs an attempt that may inspect `most`, as far as the budget allows.
    fn spending(
        &mut self,
        budget: &mut Budget,
        most: usize,
        attempt: impl FnOnce(&mut Self, usize) -> Result<(), Why>,
    ) -> Result<(), Why> {
        let before = self.order.looked_at;
        let moved = attempt(self, most.min(budget.left()));
        let used = usize::try_from(self.order.looked_at - before).unwrap_or(usize::MAX);
        budget.spend(used);
        moved
    }

    /// Moves a party if that is little work. Either it rises above all that it waits for, together with all that wait
    /// for it. Or it sinks, together with all that it waits for.
    pub(super) fn move_party(&mut self, party: u32, budget: usize) -> bool {
        let root = self.root_of(party);
        self.lift(root, None, i64::MAX, budget).is_ok()
            || self.lower(root, None, LOWEST, budget).is_ok()
    }

    fn root(&self, owner: &[u8]) -> Root {
        let party = self.party_of(owner);
        let level = party.map_or(LOWEST, |party| self.level_of(party));
        Root { hash: hash_owner(self.keys, owner), party, level }
    }

    fn root_of(&self, party: u32) -> Root {
        Root { hash: self.hash_of(party), party: Some(party), level: self.level_of(party) }
    }

    /// A lower bound for the ranks of the owners that wait for the root, [`UNKNOWN`] if they are too many; `None` if
    /// there are none.
    fn floor(&self, root: Root, budget: &mut Budget) -> Option<i64> {
        if root.level != LOWEST {
            return Some(root.level);
        }
        let mut held = self.held_by(root.hash);
        let mut floor = None;
        for queue in held.by_ref().take(HELD_MOST) {
            let first = self.queues.get(queue).map_or(NIL, |queue| queue.head);
            let Ok(first) = self.next_level(budget, first, NIL, |waiter| waiter.next) else {
                return Some(UNKNOWN);
            };
            floor = first.map(|first| floor.map_or(first, |floor| first.min(floor))).or(floor);
        }
        if held.next().is_some() { Some(UNKNOWN) } else { floor }
    }

    /// The highest rank among the targets of a call, [`LOWEST`] for none; `None` if that exceeds the budget.
    fn highest(&self, root: Root, aims: &Aims, budget: &mut Budget) -> Option<i64> {
        let mut highest = LOWEST;
        let party = root.party.unwrap_or(NIL);
        let others =
            aims.queues.iter().flat_map(|&queue| self.holders_of(queue).take(READERS_MOST));
        for holder in aims.holders.iter().copied().chain(others) {
            if !budget.spend(1) {
                return None;
            }
            let holder = self.party_with(holder).filter(|&holder| holder != party);
            highest = highest.max(holder.map_or(LOWEST, |holder| self.level_of(holder)));
        }
        for &queue in &aims.queues {
            let queue = self.queues.get(queue)?;
            if queue.readers().0 >= READERS_MOST {
                return None;
            }
            let last = self.next_level(budget, queue.tail, party, |waiter| waiter.prev).ok()?;
            highest = highest.max(last.unwrap_or(LOWEST));
        }
        Some(highest)
    }

    /// Lifts the root above `ceiling`, which is above all that it waits for. All owners up to there that wait for the
    /// root rise with it.
    fn lift(
        &mut self,
        root: Root,
        aims: Option<&Aims>,
        ceiling: i64,
        budget: usize,
    ) -> Result<(), Why> {
        let mut reach = Reach::new(root, budget, aims.is_some());
        let found = self.reach_up(&mut reach, ceiling).and_then(|()| match aims {
            Some(aims) => self.are_no_aims(&mut reach, aims),
            None => Ok(()),
        });
        self.order.looked_at += (budget - reach.left) as u64;
        found?;
        let Reach { mut parties, next, .. } = reach;
        parties.sort_by_key(|&party| self.level_of(party));
        let count = parties.len() + 1;
        let mut free = match next {
            Some(next) => Some(self.order.between(Some(ceiling), next, count).ok_or(Why::TooFar)?),
            None => None,
        };
        let mut level = || match &mut free {
            Some((level, gap)) => {
                let here = *level;
                *level = here.saturating_add(*gap);
                here
            }
            None => self.order.above_all(),
        };
        let mut levels = Vec::with_capacity(count);
        levels.resize_with(count, &mut level);
        let mut levels = levels.into_iter();
        if let Some(level) = levels.next() {
            self.place_root(root, level);
        }
        for (party, level) in parties.into_iter().zip(levels) {
            self.set_level(party, level);
        }
        Ok(())
    }

    /// Lowers all owners down to `floor` for which the root waits, or is about to wait, so that they rank below it.
    fn lower(
        &mut self,
        root: Root,
        aims: Option<&Aims>,
        floor: i64,
        budget: usize,
    ) -> Result<(), Why> {
        let mut reach = Reach::new(root, budget, aims.is_some());
        let found = self.reach_down(&mut reach, aims, floor);
        self.order.looked_at += (budget - reach.left) as u64;
        found?;
        let Reach { mut parties, next, .. } = reach;
        parties.sort_by_key(|&party| self.level_of(party));
        // A root that respects the order otherwise keeps its rank.
        let moves = aims.is_none() || root.level == LOWEST;
        let count = parties.len() + usize::from(moves);
        let free = if aims.is_some() && floor != UNKNOWN {
            self.order.between(next, floor, count)
        } else {
            self.order.below_all(count)
        };
        let (mut level, gap) = free.ok_or(Why::TooFar)?;
        for party in parties {
            self.set_level(party, level);
            level = level.saturating_add(gap);
        }
        if moves {
            self.place_root(root, level);
        }
        Ok(())
    }

    fn place_root(&mut self, root: Root, level: i64) {
        match root.party {
            Some(party) if root.level != LOWEST => self.set_level(party, level),
            _ => self.order.promised = Some(level),
        }
    }
}
