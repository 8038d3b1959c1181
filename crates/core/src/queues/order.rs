//! The topological order of waiting owners.
//!
//! Each owner with waiters has a rank, the field `level`. **An owner that waits ranks higher than the owners it waits
//! for.** While this is true there is no cycle of waits. A call then needs no search if all owners it would wait for
//! rank lower than its own (Pearce and Kelly, A dynamic topological sort algorithm, 2006). An owner that waits for no
//! other has no rank: it cannot be in the way.
//!
//! The order reads waits from this module, the queues and [`super::holders`]. Where it is not sure whether a wait
//! exists, it assumes one. Every waiter counts that can wait forever, even after its timeout. It waits for all waiters
//! in front of it, and for all holders of the key, readers included. So the order knows all waits that the search in
//! [`crate::waitgraph`] knows, and some more. An extra wait costs a search, or makes an owner unordered; it never
//! causes a refusal.
//!
//! Ranks rise along a queue. So it is enough to compare the last waiter in front, the first behind and the holders. New
//! waits appear, and are compared, in three ways:
//!
//! - A waiter begins to count ([`Waits::count_place`]). It joins at the end, in front of all (an upgrade) or with the
//!   entries of a loaded fair lock. Or a waiter for any of several keys becomes one for this key. Or the owner of a
//!   waiter for several keys no longer holds this key.
//! - An owner becomes holder of a key that has waiters ([`Waits::came_to_hold`]). A grant to the first in the queue
//!   only removes waits. It can add waits if the waiters in front were skipped, if a reader becomes the writer, and if
//!   RENAME, SWAPDB or RESTORE bring a value under the waiters.
//! - The first waiter of a key begins a queue: then its holders are listed.
//!
//! An owner that violates the order is moved at once if that is little work. Otherwise it is *unordered*: its waits and
//! the waits for it may violate the order, but no other waits do. An owner in a real cycle is unordered, too. Such a
//! cycle exists if detection was off, if a wait exceeded the budget, or after a RENAME. While any owner is unordered,
//! each call falls back to a full search and also tries to re-rank a few unordered owners.

use super::Waits;
use super::budget::Budget;
use super::owners::hash_owner;
use crate::kind::Kind;
use crate::queues::waiter::Waiter;
use alloc::collections::BTreeSet;

/// The rank of an owner that waits for no other.
pub(super) const LOWEST: i64 = i64::MIN;

/// Distance between two ranks, so that other ranks fit between them.
const STEP: i64 = 1 << 20;

/// Number of waiters that do not count, or of holders, inspected before the owner is called unordered.
const LOOKS_MOST: usize = 64;

/// Number of contended keys of one owner inspected before the owner is called unordered.
pub(super) const HELD_MOST: usize = 1_024;

/// Number of calls after which unordered owners are retried at the latest when another owner joins them.
const RETRY_AFTER: u32 = 8;

/// Budget to move an owner that violates the order at once.
const MOVED_AT_ONCE: usize = 64;

/// See the module documentation.
#[derive(Debug, Default)]
pub(super) struct Order {
    /// No rank is higher.
    top: i64,
    /// No rank is lower.
    bottom: i64,
    /// The rank for the owner of the next new waiter.
    pub(super) promised: Option<i64>,
    /// Unordered parties.
    pub(super) unsure: BTreeSet<u32>,
    /// Where the next attempt to re-rank them begins.
    pub(super) cursor: u32,
    /// Number of calls between two attempts, and how many of them are still to come.
    pub(super) pause: u32,
    pub(super) rest: u32,
    /// Waiters for several keys that do not count, because their owners hold this key.
    pub(super) exempt: BTreeSet<u32>,
    /// Number of waiters that all this has inspected.
    pub(super) looked_at: u64,
}

impl Order {
    /// A rank above all others.
    pub(super) fn above_all(&mut self) -> i64 {
        self.top = self.top.saturating_add(STEP);
        self.top
    }

    /// `count` ranks strictly between `lowest` and `highest`; without `lowest`, there is no lower bound. Returns the
    /// first of them, and their distance.
    pub(super) fn between(
        &mut self,
        lowest: Option<i64>,
        highest: i64,
        count: usize,
    ) -> Option<(i64, i64)> {
        let parts = i64::try_from(count).ok()?.checked_add(1)?;
        let lowest = match lowest {
            Some(lowest) => lowest,
            None => highest.checked_sub(STEP.checked_mul(parts)?)?,
        };
        let gap = highest.saturating_sub(lowest) / parts;
        let first = lowest.checked_add(gap)?;
        self.bottom = self.bottom.min(first);
        (gap > 0).then_some((first, gap))
    }

    /// `count` ranks below all others.
    pub(super) fn below_all(&mut self, count: usize) -> Option<(i64, i64)> {
        self.between(None, self.bottom, count)
    }
}

impl Waits {
    /// The waiter in `slot` is part of the order from now on, if its owner can wait there forever.
    pub fn count_place(&mut self, slot: u32) {
        let Some(waiter) = self.waiters.get(slot) else { return };
        if waiter.counts || waiter.owner.is_empty() || !waiter.ask.want.can_lock_up() {
            return;
        }
        let Some(queue) = self.queues.get(waiter.queue) else { return };
        if queue.kind == Kind::Lock && queue.holder == hash_owner(self.keys, &waiter.owner) {
            // It waits for other keys, not for this one.
            self.order.exempt.insert(slot);
            return;
        }
        let party = waiter.party;
        self.order.exempt.remove(&slot);
        if let Some(waiter) = self.waiters.get_mut(slot) {
            waiter.counts = true;
        }
        let is_new = self.level_of(party) == LOWEST;
        if is_new {
            let promised = self.order.promised.take();
            let level = promised.unwrap_or_else(|| self.order.above_all());
            self.set_level(party, level);
        }
        if !self.stands_right(slot) || (is_new && !self.is_below_its_waiters(party)) {
            self.doubt(party);
        }
    }

    /// The owner with this hash holds the key of `queue` from now on.
    pub(super) fn came_to_hold(&mut self, queue: u32, holder: u64) {
        let Some(party) = self.party_with(holder) else { return };
        let level = self.level_of(party);
        let budget = &mut Budget::new(LOOKS_MOST);
        if level != LOWEST && !self.is_below_those_in(budget, queue, party) {
            self.doubt(party);
        }
    }

    /// The owner with this hash no longer holds the key of `queue`. If its call for several keys waits here, it now
    /// waits for this key, too.
    pub(super) fn holds_no_more(&mut self, queue: u32, holder: u64) {
        if self.order.exempt.is_empty() {
            return;
        }
        let place = self.party_with(holder).and_then(|party| self.place_in(queue, party));
        if let Some(slot) = place.filter(|slot| self.order.exempt.contains(slot)) {
            self.count_place(slot);
        }
    }

    /// Whether all ranks are correct.
    pub(super) fn is_in_order(&self) -> bool {
        self.order.unsure.is_empty()
    }

    fn is_sure(&self, party: u32) -> bool {
        !self.order.unsure.contains(&party)
    }

    /// The party respects the order again, or is gone.
    pub(super) fn trust(&mut self, party: u32) {
        self.order.unsure.remove(&party);
    }

    pub(super) fn level_of(&self, party: u32) -> i64 {
        self.parties.get(party).map_or(LOWEST, |party| party.level)
    }

    pub(super) fn set_level(&mut self, party: u32, level: i64) {
        if let Some(party) = self.parties.get_mut(party) {
            party.level = level;
        }
    }

    /// The waiter of a party in a queue.
    pub(super) fn place_in(&self, queue: u32, party: u32) -> Option<u32> {
        let eldest = self.waiters.get(self.parties.get(party)?.eldest)?;
        self.place_of(queue, &eldest.owner)
    }

    /// The holders of the key of a queue, by owner hash.
    pub(super) fn holders_of(&self, queue: u32) -> impl Iterator<Item = u64> {
        let queue = self.queues.get(queue);
        let alone = queue.map(|queue| queue.holder).filter(|&holder| holder != 0);
        alone.into_iter().chain(queue.into_iter().flat_map(|queue| queue.readers().1))
    }

    /// The rank of the first waiter that counts from `slot` on, in one direction, except `party` and unordered ones;
    /// `Err` if that exceeds the limit.
    pub(super) fn next_level(
        &self,
        budget: &mut Budget,
        slot: u32,
        party: u32,
        step: impl Fn(&Waiter) -> u32,
    ) -> Result<Option<i64>, ()> {
        let mut at = slot;
        for _ in 0..LOOKS_MOST {
            let Some(waiter) = self.waiters.get(at) else { return Ok(None) };
            if !budget.spend(1) {
                break;
            }
            if waiter.counts && waiter.party != party && self.is_sure(waiter.party) {
                return Ok(Some(self.level_of(waiter.party)));
            }
            at = step(waiter);
        }
        Err(())
    }

    /// Whether all waits of the waiter in `slot` go to lower ranks.
    fn stands_right(&self, slot: u32) -> bool {
        let Some(waiter) = self.waiters.get(slot) else { return true };
        let (party, level) = (waiter.party, self.level_of(waiter.party));
        let budget = &mut Budget::new(4 * LOOKS_MOST);
        let behind = self.next_level(budget, waiter.next, party, |waiter| waiter.next);
        if !behind.is_ok_and(|behind| behind.is_none_or(|behind| behind > level)) {
            return false;
        }
        if level == self.order.top {
            return true;
        }
        let ahead = self.next_level(budget, waiter.prev, party, |waiter| waiter.prev);
        let is_above = |holder: u64| {
            let holder = self.party_with(holder).filter(|&holder| holder != party);
            holder.is_none_or(|holder| self.level_of(holder) < level || !self.is_sure(holder))
        };
        let mut holders = self.holders_of(waiter.queue);
        ahead.is_ok_and(|ahead| ahead.is_none_or(|ahead| ahead < level))
            && holders.by_ref().take(LOOKS_MOST).all(is_above)
            && holders.next().is_none()
    }

    /// Whether a party ranks lower than the waiters for what it holds.
    fn is_below_its_waiters(&self, party: u32) -> bool {
        let mut held = self.held_by(self.hash_of(party));
        let budget = &mut Budget::new(2 * HELD_MOST);
        held.by_ref().take(HELD_MOST).all(|queue| self.is_below_those_in(budget, queue, party))
            && held.next().is_none()
    }

    fn is_below_those_in(&self, budget: &mut Budget, queue: u32, party: u32) -> bool {
        let head = self.queues.get(queue).map_or(crate::slab::NIL, |queue| queue.head);
        let first = self.next_level(budget, head, party, |waiter| waiter.next);
        first.is_ok_and(|first| first.is_none_or(|first| first > self.level_of(party)))
    }

    /// A party may violate the order: moves it if that is little work.
    fn doubt(&mut self, party: u32) {
        if self.move_party(party, MOVED_AT_ONCE) {
            self.trust(party);
        } else {
            self.order.unsure.insert(party);
            self.order.rest = self.order.rest.min(RETRY_AFTER);
        }
    }

    /// A violation of the order, if there is any, for tests.
    pub(crate) fn disorder(&self) -> Option<&'static str> {
        for (id, queue) in self.queues.iter() {
            let mut last = None;
            for (_, waiter) in self.walk(id) {
                let is_any = self.groups.get(waiter.group).is_some_and(|group| group.takes_any);
                let has_it = queue.kind == Kind::Lock
                    && queue.holder == hash_owner(self.keys, &waiter.owner);
                let matters = !waiter.owner.is_empty() && waiter.ask.want.can_lock_up();
                if waiter.counts && (is_any || !matters) {
                    return Some("a place that closes no circle does not count");
                }
                if !waiter.counts {
                    if matters && !is_any && !has_it {
                        return Some("a place counts that can be in a circle");
                    }
                    continue;
                }
                if !self.is_sure(waiter.party) {
                    continue;
                }
                let level = self.level_of(waiter.party);
                if level == LOWEST || level > self.order.top || level < self.order.bottom {
                    return Some("levels are between top and bottom");
                }
                if last.is_some_and(|last| last >= level) {
                    return Some("levels rise along a queue");
                }
                last = Some(level);
                let holders = self.holders_of(id).filter_map(|holder| self.party_with(holder));
                let mut holders = holders.filter(|holder| *holder != waiter.party);
                if !holders.all(|holder| !self.is_sure(holder) || self.level_of(holder) < level) {
                    return Some("who waits stands higher than who holds");
                }
            }
        }
        let known = self.order.unsure.iter().all(|&party| self.parties.get(party).is_some());
        (!known).then_some("an owner in doubt has places")
    }
}
