//! The search forward through the waiters, from the caller back to the caller.

use crate::base::ids::{GroupId, OwnerSlot, QueueId, WaiterSlot};
use crate::base::key::Key;
use crate::base::kind::Kind;
use crate::base::time::Now;
use crate::deadlock::budget::Budget;
use crate::deadlock::cycle::{Cycle, Link};
use crate::deadlock::holders::{Holders, Target};
use crate::deadlock::waiting::Waiting;
use crate::ports::turn::Turn;
use crate::tables::Tables;
use crate::tables::queues::waiter::Waiter;
use crate::value::wait_request::Demand;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use dlock_wire::request::Mode;

/// How a call for one key would wait.
pub(super) struct Wait<'a> {
    pub(super) goes_first: bool,
    /// The waiter that the owner already has.
    pub(super) own: Option<(WaiterSlot, &'a Waiter)>,
    /// The call keeps this waiter.
    pub(super) stays: bool,
    /// The owner waits there already.
    pub(super) is_old: bool,
}

/// An owner reached by the search.
struct Reached {
    owner: Vec<u8>,
    /// Index of the owner from which the search reached it; `None` for the caller.
    from: Option<usize>,
    /// Database and name of the key for which `from` waits for this owner.
    key: (u32, Vec<u8>),
}

/// One search.
pub(super) struct Search<'a> {
    tables: &'a Tables,
    caller: &'a [u8],
    /// Waiters of the caller that this call removes, and those of its calls for several keys.
    leaving: BTreeSet<WaiterSlot>,
    leaving_groups: BTreeSet<GroupId>,
    /// The waiter that counts only from this call on: it was a waiter for any of several keys.
    revived: Option<WaiterSlot>,
    /// The queue whose front it joins, if it does (an upgrade).
    heads: Option<QueueId>,
    reached: Vec<Reached>,
    /// The same by number.
    known: BTreeSet<OwnerSlot>,
    /// Reached, and not inspected yet.
    open: Vec<usize>,
    /// Queues of keys whose readers have all been reached.
    read: BTreeSet<QueueId>,
    /// Queues with the sequence number up to which all waiters have been reached; separate for readers.
    passed: BTreeMap<(QueueId, bool), u64>,
    budget: &'a mut Budget,
    /// The caller would have to wait.
    waits: bool,
    /// No other owner leads to the caller.
    only: Option<Waiting>,
    /// It left out queues whose holders are not known now.
    pub(super) is_unsure: bool,
}

impl<'a> Search<'a> {
    /// A search that goes through the owners in `only`, or through all.
    pub(super) fn new(
        tables: &'a Tables,
        caller: &'a [u8],
        budget: &'a mut Budget,
        only: Option<Waiting>,
    ) -> Self {
        let root = Reached { owner: caller.into(), from: None, key: (0, Vec::new()) };
        Self {
            tables,
            caller,
            leaving: BTreeSet::new(),
            leaving_groups: BTreeSet::new(),
            revived: None,
            heads: None,
            reached: Vec::from([root]),
            known: BTreeSet::new(),
            open: Vec::new(),
            read: BTreeSet::new(),
            passed: BTreeMap::new(),
            budget,
            waits: false,
            only,
            is_unsure: false,
        }
    }

    /// The cycle that a call for `target` would close.
    pub(super) fn for_one(
        &mut self,
        turn: &mut Turn<'_>,
        target: Target<'_>,
        how: &Wait<'_>,
    ) -> Option<Cycle> {
        if let Some((slot, _)) = how.own {
            self.note_leaving(slot);
            if how.stays {
                self.revived = Some(slot);
            }
        }
        if how.goes_first {
            self.heads = self.tables.waits.queue_of(target.key);
        }
        let stays = how.own.filter(|_| how.stays).map(|(_, own)| own);
        let holders = Holders::of_key(self.tables, turn, self.caller, target, self.budget);
        if let Some(cycle) = self.look(turn.now, 0, target, stays, &holders) {
            return Some(cycle);
        }
        // The waiters behind this one start to wait for the caller only now, so the caller's other waits matter. (A new
        // waiter has none behind it: then they do not matter.)
        if self.waits
            && (self.revived.is_some() || self.heads.is_some())
            && let Some(cycle) = self.look_from_waiters_of(turn.now, 0)
        {
            return Some(cycle);
        }
        self.go_on(turn.now)
    }

    /// The same for a call that waits for all of several locks.
    pub(super) fn for_all<'k>(
        &mut self,
        turn: &mut Turn<'_>,
        targets: impl Iterator<Item = Target<'k>> + Clone,
    ) -> Option<Cycle> {
        for target in targets.clone() {
            if let Some(slot) = self.tables.waits.waiter_at(target.key, self.caller) {
                self.note_leaving(slot);
            }
        }
        for target in targets {
            let holders = Holders::of_key(self.tables, turn, self.caller, target, self.budget);
            if let Some(cycle) = self.look(turn.now, 0, target, None, &holders) {
                return Some(cycle);
            }
            if self.budget.is_exceeded() {
                return None;
            }
        }
        self.go_on(turn.now)
    }

    /// The call with a waiter in `slot` will be over: all its waiters are removed.
    fn note_leaving(&mut self, slot: WaiterSlot) {
        match self.tables.waits.get(slot) {
            Some(waiter) if waiter.is_grouped() => self.leaving_groups.insert(waiter.group),
            _ => self.leaving.insert(slot),
        };
    }

    /// Continues from the owners for which the caller waits.
    fn go_on(&mut self, now: Now) -> Option<Cycle> {
        while let Some(index) = self.open.pop().filter(|_| !self.budget.is_exceeded()) {
            if let Some(cycle) = self.look_from_waiters_of(now, index) {
                return Some(cycle);
            }
        }
        None
    }

    /// Reaches all owners for which the owner at `index` waits anywhere.
    fn look_from_waiters_of(&mut self, now: Now, index: usize) -> Option<Cycle> {
        let waiting = self.reached.get(index)?.owner.clone();
        let waits = &self.tables.waits;
        for (slot, waiter) in waits.waiters_of_owner(&waiting) {
            if !self.budget.spend(1) {
                return None;
            }
            if is_out_of_this(self.tables, waiter, now) || self.is_leaving(slot, waiter) {
                continue;
            }
            let Some(queue) = waits.queue(waiter.queue) else { continue };
            if waits.is_unchecked(queue) {
                // It may list holders that hold nothing any more.
                self.is_unsure = true;
                continue;
            }
            let demand = waiter.ask.demand;
            let target = Target { kind: queue.kind, key: queue.key(), demand };
            // One pass over the readers of a key reaches all of them, for every waiting writer.
            let is_first = demand == Demand::Rw(Mode::Write) && self.read.insert(waiter.queue);
            let readers = is_first.then_some(&mut *self.budget);
            let holders =
                Holders::of_queue(waits, waiter.queue, &waiting, demand, self.caller, readers);
            if let Some(cycle) = self.look(now, index, target, Some(waiter), &holders) {
                return Some(cycle);
            }
        }
        None
    }

    /// Reaches all owners for which the owner at `index` waits at `target`, from its waiter `behind` there or from its
    /// position as a new one.
    fn look(
        &mut self,
        now: Now,
        index: usize,
        target: Target<'_>,
        behind: Option<&Waiter>,
        holders: &Holders,
    ) -> Option<Cycle> {
        if !self.budget.spend(1) {
            return None;
        }
        // A call for several keys does not wait for a key that its owner holds. A single waiter does: the hold came by
        // RENAME, and the waiters in front are served first.
        if holders.has_it && behind.is_none_or(Waiter::is_grouped) {
            return None;
        }
        for holder in &holders.owners {
            if let Some(cycle) = self.reach(index, target.key, holder) {
                return Some(cycle);
            }
        }
        if index == 0 {
            self.waits |= holders.is_held;
            if holders.goes_first || (!holders.is_held && !self.is_anybody_first(now, target)) {
                return None;
            }
            self.waits = true;
        }
        if self.is_unchecked(target.key) {
            self.is_unsure = true;
            return None;
        }
        for owner in self.in_front(now, index, target, behind) {
            if let Some(cycle) = self.reach(index, target.key, &owner) {
                return Some(cycle);
            }
        }
        None
    }

    /// Whether its budget has ended.
    pub(super) fn is_exceeded(&self) -> bool {
        self.budget.is_exceeded()
    }

    /// Whether a flush or a swap has not been applied to the waiters of this key.
    fn is_unchecked(&self, key: Key<'_>) -> bool {
        let waits = &self.tables.waits;
        let is_unchecked = |id| waits.queue(id).is_some_and(|queue| waits.is_unchecked(queue));
        waits.has_unchecked() && waits.queue_of(key).is_some_and(is_unchecked)
    }

    /// Whether the caller would have to wait behind a waiter that counts: to read, behind a waiting writer.
    fn is_anybody_first(&mut self, now: Now, target: Target<'_>) -> bool {
        let (tables, waits) = (self.tables, &self.tables.waits);
        let Some(queue) = waits.queue_of(target.key) else { return false };
        let lease = tables.regime.lease(now.mono);
        let mut others = waits.walk(queue).map(|(_, waiter)| waiter);
        others.any(|waiter| {
            if !self.budget.spend(1) {
                return true;
            }
            let reads_too = target.reads() && waiter.ask.demand == target.demand;
            *waiter.owner != *self.caller
                && !reads_too
                && tables.counts(waiter)
                && !waits.is_over(waiter, now.mono, lease)
        })
    }

    /// The waiters in front of `behind` that may lead to the caller; without `behind`, those of the whole queue.
    fn in_front(
        &mut self,
        now: Now,
        index: usize,
        target: Target<'_>,
        behind: Option<&Waiter>,
    ) -> Vec<Vec<u8>> {
        let (tables, waits) = (self.tables, &self.tables.waits);
        let Some(queue) = waits.queue_of(target.key) else { return Vec::new() };
        let is_ahead = |waiter: &Waiter| {
            behind.is_none_or(|behind| waiter.seq < behind.seq)
                && !is_out_of_this(tables, waiter, now)
        };
        // The caller itself may be in front of the inspected waiter.
        let caller = self.caller;
        let own = waits
            .waiter_of(queue, caller)
            .filter(|&slot| waits.get(slot).is_some_and(|waiter| !self.is_leaving(slot, waiter)));
        let is_behind = |slot: WaiterSlot| {
            let own = waits.get(slot);
            own.is_some_and(is_ahead)
                || self.revived == Some(slot)
                    && own.zip(behind).is_none_or(|(own, behind)| own.seq < behind.seq)
        };
        if index > 0 && (own.is_some_and(is_behind) || self.heads == Some(queue)) {
            return [caller.to_vec()].into();
        }
        let is_ahead = |waiter: &Waiter| *waiter.owner != *caller && is_ahead(waiter);
        let is_read = target.kind == Kind::Rw && target.reads();
        // Waiters in front of a reached waiter have been reached already. The caller sees the queue in its own way: it
        // may go first, or give up waiters.
        if let Some(behind) = behind.filter(|_| index > 0) {
            let passed = self.passed.entry((queue, is_read)).or_default();
            if behind.seq <= *passed {
                return Vec::new();
            }
            *passed = behind.seq;
        }
        // Walk over the shorter list: the queue, or the owners that wait in several queues.
        let len = waits.queue(queue).map_or(0, |queue| queue.len);
        if !self.budget.spend(len.min(waits.plural_count())) {
            return Vec::new();
        }
        let mut found: Vec<Vec<u8>> = if len < waits.plural_count() {
            let queue = waits.walk(queue).map(|(_, waiter)| waiter);
            let plural = queue.filter(|waiter| waits.is_plural(waiter) && is_ahead(waiter));
            plural.map(|waiter| waiter.owner.to_vec()).collect()
        } else {
            let waiter_here =
                |owner: &&[u8]| waits.waiter_of(queue, owner).and_then(|slot| waits.get(slot));
            let plural = waits.plural_owners();
            plural
                .filter(|owner| waiter_here(owner).is_some_and(is_ahead))
                .map(<[u8]>::to_vec)
                .collect()
        };
        if is_read {
            // A writer in front waits for the readers; a reader does not wait for them itself. One writer represents
            // all.
            let walk = waits.walk(queue).map(|(_, waiter)| waiter);
            let writer = walk
                .take_while(|_| self.budget.spend(1))
                .find(|waiter| waiter.ask.demand == Demand::Rw(Mode::Write) && is_ahead(waiter));
            found.extend(writer.map(|writer| writer.owner.to_vec()));
        }
        found
    }

    /// Whether this call removes a waiter of the caller.
    fn is_leaving(&self, slot: WaiterSlot, waiter: &Waiter) -> bool {
        self.revived != Some(slot)
            && (self.leaving.contains(&slot) || self.leaving_groups.contains(&waiter.group))
    }

    /// Notes that the owner at `from` waits for `owner`. Returns the cycle if that is the caller.
    fn reach(&mut self, from: usize, key: Key<'_>, owner: &[u8]) -> Option<Cycle> {
        if !self.budget.spend(1) {
            return None;
        }
        if owner == self.caller {
            // A caller that waits for itself re-enters, or keeps its waiter.
            return (from > 0).then(|| self.cycle(from, key));
        }
        // An owner that waits for nothing leads nowhere.
        let owner_slot = self.tables.waits.owner_slot_of(owner)?;
        let leads_nowhere = self.only.as_ref().is_some_and(|only| !only.contains(owner_slot));
        if !leads_nowhere && self.known.insert(owner_slot) {
            self.open.push(self.reached.len());
            let key = (key.db, key.name.to_vec());
            self.reached.push(Reached { owner: owner.into(), from: Some(from), key });
        }
        None
    }

    /// The cycle in which the owner at `last` waits for the caller at `key`.
    fn cycle(&self, last: usize, key: Key<'_>) -> Cycle {
        let link = |at: usize, (db, name): (u32, Vec<u8>)| {
            let owner = self.reached.get(at).map(|reached| reached.owner.clone());
            Link { owner: owner.unwrap_or_default(), db, name }
        };
        let mut links = Vec::from([link(last, (key.db, key.name.to_vec()))]);
        let mut at = last;
        while let Some(Reached { from: Some(from), key, .. }) = self.reached.get(at) {
            links.push(link(*from, key.clone()));
            at = *from;
        }
        links.reverse();
        Cycle(links)
    }
}

/// Whether this waiter can close no cycle now. Its wait or call is over, it is skipped because its connection is
/// closed, it takes any of several keys, or it is for permits.
pub(super) fn is_out_of_this(tables: &Tables, waiter: &Waiter, now: Now) -> bool {
    let waits = &tables.waits;
    !waits.can_close_a_cycle(waiter)
        || waits.is_deserted(waiter)
        || waits.is_over(waiter, now.mono, tables.regime.lease(now.mono))
}
