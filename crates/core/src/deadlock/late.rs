//! The search from the tick: rounds over all waits, a few looks at a time.
//!
//! A call inspects a bounded number of waiters, so it can miss a cycle. Other cycles close without a call: by a RENAME,
//! or at the end of a flush. A round finds each cycle that lasts from the beginning of the round to its end. It starts
//! at once after a call whose search was cut. Else it starts `deadlock_recheck_ms` after the one before, if an owner
//! can have begun to wait since.
//!
//! A round is one depth-first search over the owners, with the queues as its roots. A wait leads to the holders of the
//! key and to the owners in front. A path that comes back to itself is a cycle (Tarjan). Each position of a queue is
//! passed once in each mode: the walk for a waiter goes on where the walk for one in front of it ended. An owner with a
//! single waiter is left out of the walk along its own queue, because the walk passes all that it waits for.
//!
//! The waits change between two pieces of a round. So a path that comes back is only a candidate, which
//! [`crate::deadlock::refusal`] verifies. All state is in [`LateSearch`]; ids in it may be stale.

use crate::base::ids::{OwnerSlot, QueueId, WaiterSlot};
use crate::base::kind::Kind;
use crate::base::slab::SlabId;
use crate::base::time::{Instant, Millis, Now};
use crate::deadlock::search::is_out_of_this;
use crate::tables::Tables;
use crate::tables::late_search::{Cut, Frame, LateSearch, Next, Passed, Round, Spot};
use crate::tables::queues::waiter::{Queue, Waiter};
use crate::value::wait_request::Demand;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use dlock_wire::request::Mode;

/// Looks of one piece of a round, for each waiter that a step may serve: 1,024 in all.
const PIECE: usize = 4;

/// Number of waiters in front of a holder that waits for its own key that are inspected.
const AHEAD: usize = 100;

/// Rest after each look, in microseconds. A look takes half of one at most, so a round takes 5 % of a core.
const REST_US: u64 = 10;

impl Tables {
    /// Number of calls whose search for a cycle was cut and that no round has covered since, and the age of the oldest,
    /// in milliseconds.
    pub fn deadlocks_unchecked(&self, now: Instant) -> (u64, Millis) {
        let LateSearch { cut, covered, .. } = &self.late;
        let oldest = cut.since.into_iter().chain(covered.since).min();
        let age = oldest.map_or(0, |since| now.0.saturating_sub(since.0) / 1_000);
        (cut.count + covered.count, age)
    }
}

/// The search of a call was cut.
pub(super) fn note_cut(tables: &mut Tables, now: Instant) {
    if searches_late(tables) {
        tables.late.cut.add(Cut { count: 1, since: Some(now) });
        tables.late.is_urgent = true;
    }
}

pub(super) fn searches_late(tables: &Tables) -> bool {
    tables.settings.deadlock_detection
        && tables.settings.deadlock_recheck_ms > 0
        && tables.regime.is_primary()
}

/// A path that came back does not lead back any more. So the round may have missed a cycle behind it: it counts as
/// not whole.
pub(super) fn doubt_round(tables: &mut Tables) {
    tables.late.seen = None;
    if let Some(round) = &mut tables.late.round {
        round.is_unsure = true;
    }
}

/// Rests after `looks` looks.
pub(super) fn rest_after(tables: &mut Tables, looks: usize, now: Instant) {
    tables.late.rests_until = Instant(now.0 + looks as u64 * REST_US);
}

/// When the tick continues to search; `None` while there is nothing to search, or a cycle waits for the gate.
pub(crate) fn next_search(tables: &Tables) -> Option<Instant> {
    let late = &tables.late;
    if !searches_late(tables) || late.found.is_some() {
        return None;
    }
    // The tick lists all readers first, but a period is not exceeded for that.
    let begins_at_once = late.is_urgent && tables.waits.next_unlisted().is_none();
    if late.round.is_some() || begins_at_once {
        return Some(late.rests_until);
    }
    let has_changed = late.seen != Some(tables.waits.changes()) && !tables.waits.is_empty();
    (has_changed || late.cut.count > 0).then_some(late.next_round.max(late.rests_until))
}

/// Does one piece of the search in the tick; `false` if there is nothing to do now.
pub(crate) fn search_late(tables: &mut Tables, now: Now) -> bool {
    if !searches_late(tables) {
        tables.late = LateSearch::default();
        return false;
    }
    if next_search(tables).is_none_or(|at| at > now.mono) {
        return false;
    }
    let mut late = core::mem::take(&mut tables.late);
    let mut round = late.round.take().unwrap_or_else(|| {
        late.is_urgent = false;
        late.next_round = now.mono + tables.settings.deadlock_recheck_ms;
        late.covered.add(core::mem::take(&mut late.cut));
        Round::new(tables, now.mono)
    });
    let most = PIECE * tables.wide_at_once;
    let (mut looks, mut is_over) = (0, false);
    while looks < most && late.found.is_none() && !is_over {
        looks += 1;
        (late.found, is_over) = round.step(tables, now);
    }
    if is_over {
        let covered = core::mem::take(&mut late.covered);
        let is_open = tables.waits.next_unlisted().is_some();
        if round.is_unsure || is_open {
            late.is_urgent |= is_open && covered.count > 0;
            late.cut.add(covered);
        } else {
            late.seen = Some(round.changes);
        }
    } else {
        late.round = Some(round);
    }
    tables.searched += looks as u64;
    tables.late = late;
    rest_after(tables, looks, now.mono);
    true
}

impl Round {
    fn new(tables: &Tables, begun: Instant) -> Self {
        let words = tables.waits.owner_bound().number() as usize / 64 + 1;
        Self {
            begun,
            changes: tables.waits.changes(),
            next_queue: QueueId::FIRST,
            path: Vec::new(),
            reached: alloc::vec![0; words],
            on_path: BTreeMap::new(),
            passed: BTreeMap::new(),
            is_unsure: false,
        }
    }

    /// Looks at one thing. Returns owners that seem to wait for each other, and whether the round is over.
    fn step(&mut self, tables: &Tables, now: Now) -> (Option<Vec<Spot>>, bool) {
        let Some(frame) = self.path.last() else {
            if self.next_queue < tables.waits.queue_bound() {
                self.begin_queue(tables);
                return (None, false);
            }
            // One at a time: to free a large map takes too long for one step.
            return (None, self.passed.pop_first().is_none());
        };
        let found = match frame.next {
            Next::Waiter(slot) => self.inspect(tables, now, slot),
            Next::Holder => {
                let holder = tables.waits.holder_slot(frame.queue);
                self.go_to(if frame.reads { Next::Queue } else { Next::Readers(0) });
                holder.and_then(|holder| self.reach_holder(tables, holder))
            }
            Next::Readers(from) => {
                let reader = tables.waits.reader_from(frame.queue, from);
                let next = reader.and_then(|(hash, _)| hash.checked_add(1));
                self.go_to(next.map_or(Next::Queue, Next::Readers));
                reader.and_then(|(_, reader)| self.reach_holder(tables, reader?))
            }
            Next::Queue => self.walk(tables, now),
        };
        (found, false)
    }

    fn go_to(&mut self, next: Next) {
        if let Some(frame) = self.path.last_mut() {
            frame.next = next;
        }
    }

    /// Starts at the end of the next queue.
    fn begin_queue(&mut self, tables: &Tables) {
        let id = self.next_queue;
        self.next_queue = id.following();
        let Some(queue) = tables.waits.queue(id).filter(|queue| leads_anywhere(queue)) else {
            return;
        };
        if tables.waits.is_unchecked(queue) {
            self.is_unsure = true;
            return;
        }
        let Some(last) = tables.waits.get(queue.tail) else { return };
        let spot = Spot::of(queue.tail, last);
        self.path.push(Frame::new(OwnerSlot::NONE, queue.tail));
        if !self.begin_walk((id, false), spot, last.seq + 1) {
            self.path.pop();
        }
    }

    /// Inspects a waiter of the owner at the end of the path.
    fn inspect(&mut self, tables: &Tables, now: Now, slot: WaiterSlot) -> Option<Vec<Spot>> {
        let waits = &tables.waits;
        let frame = self.path.last_mut()?;
        if slot == WaiterSlot::NONE {
            self.on_path.remove(&frame.owner);
            self.path.pop();
            return None;
        }
        let Some(waiter) = waits.get(slot).filter(|waiter| waiter.owner_slot == frame.owner) else {
            // It has ended since: again from the first one.
            frame.next = Next::Waiter(waits.first_of_owner(frame.owner));
            return None;
        };
        let (id, here) = (waiter.queue, Spot::of(slot, waiter));
        frame.spot = here;
        frame.next = Next::Waiter(waiter.next_of_owner);
        let queue = waits.queue(id).filter(|queue| leads_anywhere(queue))?;
        let has_it = waits.knows_holder(id, &waiter.owner);
        let is_out = |waiter: &Waiter| is_out_of_this(tables, waiter, now);
        if waiter.since > self.begun || is_out(waiter) || (has_it && waiter.is_grouped()) {
            return None;
        }
        if waits.is_unchecked(queue) {
            self.is_unsure = true;
            return None;
        }
        let found = self.behind_a_walk((id, reads(waiter)), waiter.seq);
        self.begin_walk((id, reads(waiter)), here, waiter.seq);
        // RENAME brought the key to a holder that waits for it: the search passes waits of an owner for itself.
        let ahead = || waits.ahead_of(slot).take(AHEAD).find(|waiter| !is_out(waiter));
        let first = if has_it { ahead() } else { None };
        found.or(first.map(|first| Vec::from([here, Spot::of(first.id.slot(), first)])))
    }

    /// The cycle that a waiter of the last owner closes if it is behind a waiter to which a walk of the path has come.
    fn behind_a_walk(&self, queue: (QueueId, bool), seq: u64) -> Option<Vec<Spot>> {
        let up = self.passed.get(&queue)?.walker?;
        let is_behind = self.path.get(up).is_some_and(|walker| seq >= walker.from);
        // An owner does not wait for itself.
        let cycle = self.path.get(up + 1..).filter(|cycle| is_behind && cycle.len() > 1);
        cycle.map(|cycle| cycle.iter().map(|frame| frame.spot).collect())
    }

    /// Makes the owner at the end of the path go along a queue, up to the waiter with number `end`; `false` if all was
    /// passed before.
    fn begin_walk(&mut self, queue: (QueueId, bool), near: Spot, end: u64) -> bool {
        let at = self.path.len().saturating_sub(1);
        let Some(frame) = self.path.last_mut() else { return false };
        let passed =
            self.passed.entry(queue).or_insert(Passed { end: 0, near: Spot::NONE, walker: None });
        if passed.end >= end {
            return false;
        }
        frame.next = if passed.end == 0 { Next::Holder } else { Next::Queue };
        (frame.queue, frame.reads) = queue;
        (frame.at, frame.from, frame.end) = (passed.near, passed.end, end);
        (passed.near, passed.end) = (near, end);
        passed.walker.get_or_insert(at);
        true
    }

    /// Goes on to the next waiter of a queue.
    fn walk(&mut self, tables: &Tables, now: Now) -> Option<Vec<Spot>> {
        let waits = &tables.waits;
        let frame = self.path.last_mut()?;
        let known = frame.at.find(waits).filter(|waiter| waiter.queue == frame.queue);
        let slot = match known {
            Some(waiter) if waiter.seq < frame.from => waiter.next,
            Some(_) => frame.at.slot,
            None => waits.queue(frame.queue).map_or(WaiterSlot::NONE, |queue| queue.head),
        };
        let here = waits.get(slot).filter(|waiter| waiter.seq < frame.end);
        let Some(waiter) = here else {
            self.end_walk(tables);
            return None;
        };
        frame.at = Spot::of(slot, waiter);
        if waiter.seq < frame.from {
            return None;
        }
        frame.from = waiter.seq + 1;
        let matters = if frame.reads { !reads(waiter) } else { waits.is_plural(waiter) };
        let holds = || waits.knows_holder(frame.queue, &waiter.owner);
        if !(matters || holds()) || is_out_of_this(tables, waiter, now) {
            return None;
        }
        self.reach(tables, waiter.owner_slot)
    }

    fn end_walk(&mut self, tables: &Tables) {
        let at = self.path.len().saturating_sub(1);
        let Some(frame) = self.path.last_mut() else { return };
        if let Some(passed) = self.passed.get_mut(&(frame.queue, frame.reads)) {
            passed.walker.take_if(|walker| *walker == at);
        }
        let waits = &tables.waits;
        let next = frame.spot.find(waits).map(|waiter| waiter.next_of_owner);
        frame.next = Next::Waiter(next.unwrap_or_else(|| waits.first_of_owner(frame.owner)));
        if frame.owner == OwnerSlot::NONE {
            self.path.pop();
        }
    }

    /// As [`Round::reach`]. A holder that waits in the same queue is left to the walk: by then, all that it waits for
    /// was reached, and a path that comes back to it is no wait of an owner for itself.
    fn reach_holder(&mut self, tables: &Tables, owner: OwnerSlot) -> Option<Vec<Spot>> {
        let waits = &tables.waits;
        let queue = self.path.last()?.queue;
        let name = &waits.get(waits.first_of_owner(owner))?.owner;
        let own = waits.waiter_of(queue, name).and_then(|slot| waits.get(slot));
        // A call for several keys does not wait for a key that its owner holds.
        let waits_here = own.is_some_and(|own| !own.is_grouped());
        if waits_here { None } else { self.reach(tables, owner) }
    }

    /// The owner at the end of the path waits for this one. Returns the cycle if that one is on the path.
    fn reach(&mut self, tables: &Tables, owner: OwnerSlot) -> Option<Vec<Spot>> {
        if self.path.last()?.owner == owner {
            return None;
        }
        if let Some(&first) = self.on_path.get(&owner) {
            return Some(self.path.get(first..)?.iter().map(|frame| frame.spot).collect());
        }
        // An owner without a bit began to wait after the round.
        let bit = 1 << (owner.number() % 64);
        let word = self.reached.get_mut(owner.number() as usize / 64)?;
        if *word & bit == 0 {
            *word |= bit;
            self.on_path.insert(owner, self.path.len());
            self.path.push(Frame::new(owner, tables.waits.first_of_owner(owner)));
        }
        None
    }
}

impl Frame {
    fn new(owner: OwnerSlot, first: WaiterSlot) -> Self {
        Self {
            owner,
            spot: Spot::NONE,
            queue: QueueId::NONE,
            reads: false,
            next: Next::Waiter(first),
            at: Spot::NONE,
            from: 0,
            end: 0,
        }
    }
}

/// Whether waiters of this queue can be part of a cycle.
fn leads_anywhere(queue: &Queue) -> bool {
    let can_lock_up = matches!(queue.kind, Kind::Lock | Kind::Fair | Kind::Rw);
    can_lock_up && !queue.observes
}

/// Whether a waiter is for a hold that others can share.
pub(super) fn reads(waiter: &Waiter) -> bool {
    waiter.ask.demand == Demand::Rw(Mode::Read)
}
