//! The owners that wait for an owner, and those it waits for, transitively: from rank to rank, and from queue to queue.

use super::Waits;
use super::order::LOWEST;
use super::reorder::Aims;
use crate::slab::NIL;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

/// Why no owner was moved.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Why {
    /// There is a cycle, or a path that the order takes for one.
    Circle,
    TooFar,
}

/// The owner whose waits change.
#[derive(Debug, Clone, Copy)]
pub(super) struct Root {
    pub(super) hash: u64,
    pub(super) party: Option<u32>,
    /// [`LOWEST`] while it does not wait.
    pub(super) level: i64,
}

/// The owners reached so far.
pub(super) struct Reach {
    root: Root,
    pub(super) parties: Vec<u32>,
    known: BTreeSet<u32>,
    /// The sequence number up to which each queue has been walked.
    walked: BTreeMap<u32, u64>,
    /// The rank next to the ones reached.
    pub(super) next: Option<i64>,
    pub(super) left: usize,
    /// The root does not wait yet for what is inspected first.
    is_call: bool,
}

impl Reach {
    pub(super) fn new(root: Root, budget: usize, is_call: bool) -> Self {
        Self {
            root,
            parties: Vec::new(),
            known: BTreeSet::new(),
            walked: BTreeMap::new(),
            next: None,
            left: budget,
            is_call,
        }
    }

    fn spend(&mut self) -> Result<(), Why> {
        self.left = self.left.checked_sub(1).ok_or(Why::TooFar)?;
        Ok(())
    }

    fn add(&mut self, party: u32) -> Result<(), Why> {
        if Some(party) == self.root.party {
            return Err(Why::Circle);
        }
        if self.known.insert(party) {
            self.parties.push(party);
        }
        Ok(())
    }
}

impl Waits {
    /// Reaches all owners up to `ceiling` that wait for the root.
    pub(super) fn reach_up(&self, reach: &mut Reach, ceiling: i64) -> Result<(), Why> {
        let (mut party, mut hash, mut at) = (reach.root.party, reach.root.hash, 0);
        loop {
            for queue in self.held_by(hash) {
                reach.spend()?;
                let head = self.queues.get(queue).map_or(NIL, |queue| queue.head);
                self.walk_up(reach, head, party, ceiling)?;
            }
            for (_, place) in self.places_of(party.unwrap_or(NIL)) {
                reach.spend()?;
                if place.counts {
                    self.walk_up(reach, place.next, party, ceiling)?;
                }
            }
            let Some(&next) = reach.parties.get(at) else { return Ok(()) };
            (party, hash, at) = (Some(next), self.hash_of(next), at + 1);
        }
    }

    /// Reaches the owners in a queue from `slot` on, except `me`.
    fn walk_up(
        &self,
        reach: &mut Reach,
        slot: u32,
        me: Option<u32>,
        ceiling: i64,
    ) -> Result<(), Why> {
        let Some(first) = self.waiters.get(slot) else { return Ok(()) };
        let end = reach.walked.get(&first.queue).copied().unwrap_or(u64::MAX);
        if first.seq >= end {
            return Ok(());
        }
        reach.walked.insert(first.queue, first.seq);
        let (mut at, mut is_ahead) = (first, false);
        loop {
            reach.spend()?;
            if at.counts && Some(at.party) == me {
                if is_ahead {
                    // It holds what others want, and waits for them there.
                    return Err(Why::Circle);
                }
                // Other owners may hold the key, too: they reach this waiter.
                reach.walked.insert(at.queue, at.seq + 1);
            } else if at.counts {
                is_ahead = true;
                let level = self.level_of(at.party);
                if level > ceiling {
                    reach.next = Some(reach.next.map_or(level, |next| next.min(level)));
                    return Ok(());
                }
                reach.add(at.party)?;
            }
            match self.waiters.get(at.next) {
                Some(next) if next.seq < end => at = next,
                _ => return Ok(()),
            }
        }
    }

    /// Fails if the call is about to wait for any of the reached owners.
    pub(super) fn are_no_aims(&self, reach: &mut Reach, aims: &Aims) -> Result<(), Why> {
        for at in 0..reach.parties.len() {
            let Some(&party) = reach.parties.get(at) else { break };
            let hash = self.hash_of(party);
            let is_in = |&queue: &u32| {
                let place = self.place_in(queue, party).and_then(|slot| self.waiters.get(slot));
                place.is_some_and(|place| place.counts)
            };
            for queue in &aims.queues {
                reach.spend()?;
                if is_in(queue) || self.is_held_by(*queue, hash) {
                    return Err(Why::Circle);
                }
            }
            if aims.holders.contains(&hash) {
                return Err(Why::Circle);
            }
        }
        Ok(())
    }

    /// Reaches all owners down to `floor` for which the root is about to wait; without `aims`, for which it waits.
    pub(super) fn reach_down(
        &self,
        reach: &mut Reach,
        aims: Option<&Aims>,
        floor: i64,
    ) -> Result<(), Why> {
        let root = reach.root.party;
        if let Some(aims) = aims {
            for &holder in &aims.holders {
                self.reach_holder(reach, holder, root, floor)?;
            }
            for &queue in &aims.queues {
                let tail = self.queues.get(queue).map_or(NIL, |queue| queue.tail);
                self.walk_down(reach, queue, tail, root, floor)?;
            }
        } else {
            self.reach_down_from(reach, root.unwrap_or(NIL), floor)?;
        }
        let mut at = 0;
        while let Some(&party) = reach.parties.get(at) {
            self.reach_down_from(reach, party, floor)?;
            at += 1;
        }
        Ok(())
    }

    fn reach_down_from(&self, reach: &mut Reach, party: u32, floor: i64) -> Result<(), Why> {
        for (_, place) in self.places_of(party) {
            reach.spend()?;
            if !place.counts {
                continue;
            }
            if place.prev != NIL
                && reach.root.party == Some(party)
                && self.is_held_by(place.queue, reach.root.hash)
            {
                return Err(Why::Circle);
            }
            self.walk_down(reach, place.queue, place.prev, Some(party), floor)?;
        }
        Ok(())
    }

    /// Reaches the holders of the key of a queue, and the owners in it up to `slot`, except `me`.
    fn walk_down(
        &self,
        reach: &mut Reach,
        queue: u32,
        slot: u32,
        me: Option<u32>,
        floor: i64,
    ) -> Result<(), Why> {
        let end = reach.walked.get(&queue).copied();
        if end.is_none() {
            for holder in self.holders_of(queue) {
                self.reach_holder(reach, holder, me, floor)?;
            }
        }
        let (from, mut end) = (self.waiters.get(slot), end.unwrap_or(0));
        let far = from.map_or(0, |first| first.seq);
        if end == 0 || far > end {
            reach.walked.insert(queue, far);
        }
        let (mut at, mut is_behind) = (from, false);
        while let Some(waiter) = at.filter(|waiter| waiter.seq > end) {
            reach.spend()?;
            if waiter.counts && Some(waiter.party) == me {
                if is_behind {
                    // Others wait for a waiter that is removed only if this call is not refused.
                    return Err(Why::Circle);
                }
            } else if waiter.counts {
                is_behind = true;
                let level = self.level_of(waiter.party);
                if level < floor {
                    reach.next = Some(reach.next.map_or(level, |next| next.max(level)));
                    end = u64::MAX;
                } else {
                    reach.add(waiter.party)?;
                }
            }
            at = self.waiters.get(waiter.prev);
        }
        Ok(())
    }

    fn reach_holder(
        &self,
        reach: &mut Reach,
        holder: u64,
        me: Option<u32>,
        floor: i64,
    ) -> Result<(), Why> {
        reach.spend()?;
        if holder == reach.root.hash {
            let is_own = me == reach.root.party && !reach.is_call;
            return if is_own { Ok(()) } else { Err(Why::Circle) };
        }
        let Some(party) = self.party_with(holder).filter(|&party| Some(party) != me) else {
            return Ok(());
        };
        match self.level_of(party) {
            LOWEST => Ok(()),
            level if level < floor => {
                reach.next = Some(reach.next.map_or(level, |next| next.max(level)));
                Ok(())
            }
            _ => reach.add(party),
        }
    }
}
