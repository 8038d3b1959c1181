//! The tick: work without a call.

use crate::ids::KeyId;
use crate::key::Key;
use crate::kind::Kind;
use crate::machine::Machine;
use crate::observe::GivesUp;
use crate::portions::{AT_ONCE, PART};
use crate::regime::Gate;
use crate::store::{Lookup, Reach};
use crate::time::{Instant, LeaseInstant, Now};
use crate::turn::Turn;
use crate::wheel::Step;
use core::iter;

/// Delay before the machine asks a shut server again, in milliseconds.
pub const RETRY_MS: u64 = 20;

/// Period at which they are forgotten, in microseconds: alarms are at multiples of it.
const FORGET_EVERY_US: u64 = 250_000;

/// What a tick leaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Progress {
    /// Everything that is due is done.
    Done,
    /// The budget is used up; call again.
    More,
}

/// The kinds of work that the machine does without a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Task {
    /// Blocked calls whose time is over get their answer.
    EndWait,
    /// The quarantine ends; the epoch of a promotion, or a record level, reaches all keys.
    BeginService,
    /// Leases that a waiter waits for end, and the graces of waiters without a connection.
    Expire,
    /// Dirty queues are served: grants, and refusals of waiters that wait in a cycle.
    Serve,
    /// Queues are checked after a flush or a swap, and messages about removed holds are sent.
    Check,
    /// What a closed connection had: its waiters leave or begin their grace, its bound holds are shortened.
    Depart,
    /// Leases end for which no call waits.
    EndLease,
    /// All waits are searched for cycles.
    Search,
    /// The tables of before a demotion are emptied: their calls are answered. Memory that is not needed is freed.
    Reclaim,
}

impl Task {
    /// Work that clients wait for, the most urgent first.
    const URGENT: [Self; 4] = [Self::EndWait, Self::BeginService, Self::Expire, Self::Serve];

    /// Work that no call waits for: each kind gets its turn.
    const OTHERS: [Self; 5] =
        [Self::Check, Self::Depart, Self::EndLease, Self::Search, Self::Reclaim];

    fn all() -> impl Iterator<Item = Self> {
        Self::URGENT.into_iter().chain(Self::OTHERS)
    }

    /// The order in which the kinds are tried for a piece of work. Answers come first. Every second piece is for work
    /// that no call waits for: a million holds can be gone at once, and a queue can need that work before it is served.
    fn in_order(piece: usize) -> impl Iterator<Item = Self> {
        let [answers, urgent @ ..] = Self::URGENT;
        let others = Self::OTHERS.into_iter().cycle().skip(piece / 2 % Self::OTHERS.len());
        let others = move |count: usize| others.clone().take(count * Self::OTHERS.len());
        let (before, after) = if piece.is_multiple_of(2) { (1, 0) } else { (0, 1) };
        iter::once(answers).chain(others(before)).chain(urgent).chain(others(after))
    }
}

impl Machine {
    /// Does up to `budget` pieces of work: waits that timed out, queue entries whose grace elapsed, expired leases and
    /// their hand-offs.
    ///
    /// Unless the gate is open, only waits time out: everything else is a write. Under [`Gate::Unknown`] the caller
    /// then checks [`Machine::wants_to_write`], asks the server, and calls again.
    pub fn tick(&mut self, turn: &mut Turn<'_>, gate: Gate, budget: usize) -> Progress {
        self.set_gate(gate, turn.now.mono);
        let begun = self.waits.moves();
        for _ in 0..budget {
            self.pieces = self.pieces.wrapping_add(1);
            if !Task::in_order(self.pieces).any(|task| self.may_run(task) && self.run(task, turn)) {
                return Progress::Done;
            }
            if self.has_done_enough(turn.fx, begun) {
                break;
            }
        }
        Progress::More
    }

    /// Whether a kind of work writes in this role: then it needs an open gate.
    fn writes(&self, task: Task) -> bool {
        match task {
            Task::EndWait | Task::Search | Task::Reclaim => false,
            Task::Check => self.regime.is_primary(),
            Task::BeginService | Task::Expire | Task::Serve | Task::Depart | Task::EndLease => true,
        }
    }

    fn may_run(&self, task: Task) -> bool {
        self.regime.may_end() || !self.writes(task)
    }

    /// Does one piece of work of this kind; `false` if nothing of it is due.
    fn run(&mut self, task: Task, turn: &mut Turn<'_>) -> bool {
        match task {
            Task::EndWait => self.run_out_one(turn),
            Task::BeginService => {
                self.end_quarantine(turn.now)
                    || self.raise_level(turn.fx)
                    || self.advance_epoch(turn)
            }
            Task::Expire => self.end_grace_of_one(turn) || self.end_awaited_lease(turn),
            Task::Serve => {
                self.revisit_one(turn)
                    || self.drain_one(turn)
                    || self.mark_more_dirty()
                    || self.grant_leftover(turn)
                    || self.tell_cycle(turn)
            }
            Task::Check => self.check_next_queue(turn) || self.drain_removed(turn),
            Task::Depart => self.process_one_left_behind(turn),
            Task::EndLease => self.end_lease_of_one(turn),
            Task::Search => self.search_late(turn.now),
            Task::Reclaim => self.answer_former(turn.fx) || self.reclaim_some(turn.now),
        }
    }

    /// When a kind of work has something to do next; `None` if nothing will happen by itself.
    fn due_at(&self, task: Task, now: Now) -> Option<Instant> {
        let at_once = |is_due: bool| is_due.then_some(now.mono);
        if self.writes(task) && !self.regime.is_primary() {
            return None;
        }
        match task {
            Task::EndWait => self.waits.timeouts.next().map(Instant),
            Task::BeginService => {
                let is_due = self.regime.has_old_entries()
                    || self.regime.awaits_writes()
                    || self.wants_level();
                at_once(is_due).or_else(|| self.regime.quarantine_end())
            }
            Task::Expire => {
                let grace = self.waits.graces.next().map(LeaseInstant);
                self.on_lease_clock(grace.into_iter().chain(self.leases.next_awaited()).min(), now)
            }
            Task::Serve => at_once(
                self.waits.has_dirty()
                    || !self.pending.to_mark_dirty.is_empty()
                    || (!self.pending.ready_groups.is_empty()
                        && !self.regime.withholds_grants(now.mono))
                    || self.has_found_cycle()
                    || !self.pending.revisit.is_empty(),
            ),
            Task::Check => at_once(self.waits.has_unchecked() || self.has_removed()),
            Task::Depart => at_once(self.connections.has_departed()),
            Task::EndLease => self.on_lease_clock(self.leases.next_other(), now),
            Task::Search => self.next_search(),
            Task::Reclaim => self.next_reclaim(now),
        }
    }

    /// When the clock of leases shows this time. While it stands still the server is asked again after a while.
    fn on_lease_clock(&self, at: Option<LeaseInstant>, now: Now) -> Option<Instant> {
        let at = at?;
        let clock = self.regime.clock();
        Some(if at <= clock.at(now.mono) {
            now.mono
        } else if clock.is_paused() {
            now.mono + RETRY_MS
        } else {
            clock.mono(at)
        })
    }

    /// Whether anything is to be done that needs an open gate.
    pub fn wants_to_write(&self, now: Now) -> bool {
        let is_due = |task| self.due_at(task, now).is_some_and(|at| at <= now.mono);
        Task::all().any(|task| self.writes(task) && is_due(task))
    }

    /// The time of the next tick; `None` if nothing will happen by itself. `gate` is the last answer of the server.
    pub fn next_alarm(&self, now: Now, gate: Gate) -> Option<Instant> {
        let next = Task::all().filter_map(|task| {
            let at = self.due_at(task, now)?;
            // The server does not report when the gate opens.
            let is_shut = gate == Gate::Shut && self.writes(task) && at <= now.mono;
            Some(if is_shut { now.mono + RETRY_MS } else { at })
        });
        next.min()
    }

    /// Frees some memory that nothing refers to.
    fn reclaim_some(&mut self, now: Now) -> bool {
        let (lease, limits) = (self.regime.lease(now.mono), self.request_limits());
        self.spent.drop_overdue(lease, limits, PART) || self.free_some()
    }

    fn next_reclaim(&self, now: Now) -> Option<Instant> {
        if self.has_former() || self.has_debris() {
            return Some(now.mono);
        }
        if self.regime.clock().is_paused() {
            return None;
        }
        let at = self.spent.next_end(self.request_limits())?;
        // Nothing depends on the exact time, so one alarm can drop many.
        Some(Instant(self.regime.clock().mono(at).0.next_multiple_of(FORGET_EVERY_US)))
    }

    fn run_out_one(&mut self, turn: &mut Turn<'_>) -> bool {
        match self.waits.timeouts.step(turn.now.mono.0) {
            Step::Due(slot) => {
                self.observe_giving_up(turn.keys, turn.now, slot, GivesUp::TimedOut);
                self.time_out(slot, turn.fx);
                true
            }
            Step::Moved => true,
            Step::Idle => false,
        }
    }

    fn end_quarantine(&mut self, now: Now) -> bool {
        let has_ended = self.regime.end_quarantine(now.mono);
        if has_ended {
            self.waits.mark_all_dirty();
        }
        has_ended
    }

    fn end_grace_of_one(&mut self, turn: &mut Turn<'_>) -> bool {
        match self.waits.graces.step(self.regime.lease(turn.now.mono).0) {
            Step::Due(slot) => {
                self.observe_giving_up(turn.keys, turn.now, slot, GivesUp::Lapsed);
                if let Some(waiter) = self.remove_waiter(slot) {
                    self.waits.mark_dirty(waiter.queue);
                }
                true
            }
            Step::Moved => true,
            Step::Idle => false,
        }
    }

    /// Before a search for a deadlock: ends expired leases, because queues count their holders until then. Where only
    /// one slot can be reached, the tick does this, except for the keys that the call names.
    pub(crate) fn end_due_leases<'k>(
        &mut self,
        turn: &mut Turn<'_>,
        named: impl Iterator<Item = (Kind, Key<'k>)>,
    ) {
        let lease = self.regime.lease(turn.now.mono);
        if self.leases.next().is_none_or(|at| at > lease) {
            return;
        }
        if turn.keys.reach() == Reach::OneSlot {
            for (kind, key) in named {
                // A key of another type has nothing of ours that could end.
                let _ = self.on_key(turn, kind, key, |_, _, _| ());
            }
            return;
        }
        let begun = self.waits.moves();
        for _ in 0..AT_ONCE {
            if self.has_done_enough(turn.fx, begun)
                || !(self.end_awaited_lease(turn) || self.end_lease_of_one(turn))
            {
                return;
            }
        }
    }

    fn end_awaited_lease(&mut self, turn: &mut Turn<'_>) -> bool {
        let step = self.leases.step_awaited(self.regime.lease(turn.now.mono));
        self.end_lease_of(turn, step)
    }

    fn end_lease_of_one(&mut self, turn: &mut Turn<'_>) -> bool {
        let step = self.leases.step_others(self.regime.lease(turn.now.mono));
        self.end_lease_of(turn, step)
    }

    fn end_lease_of(&mut self, turn: &mut Turn<'_>, step: Step<KeyId>) -> bool {
        let key_id = match step {
            Step::Due(key_id) => key_id,
            Step::Moved => return true,
            Step::Idle => return false,
        };
        let Some(found) = self.leases.get(key_id) else { return true };
        let name = found.name.clone();
        let key = Key { db: self.leases.database_of(found), name: &name };
        if matches!(turn.keys.get(key), Lookup::Here(resource) if resource.key_id == key_id) {
            // Opening the key ends some of its expired holds: one portion per piece of work.
            let _ = self.on_found_in_part(turn, key);
        } else {
            self.leases.miss(key_id, self.regime.lease(turn.now.mono) + RETRY_MS);
        }
        true
    }
}
