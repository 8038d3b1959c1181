//! The tick: work without a call.

use crate::base::time::{Instant, LeaseInstant, Now};
use crate::base::wheel::Advance;
use crate::deadlock::{late, refusal};
use crate::events::{disconnect, diverged, former, replay};
use crate::ports::turn::Turn;
use crate::run::due::{end_awaited_lease, end_lease_of_one};
use crate::run::{drain, flush, groups, removed};
use crate::step::giving_up;
use crate::step::giving_up::GivesUp;
use crate::tables::Tables;
use crate::tables::portions::{PART, RETRY_MS};
use crate::tables::regime::Gate;
use core::iter;

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

/// Does up to `budget` pieces of work: waits that timed out, queue entries whose grace elapsed, expired leases and
/// their hand-offs.
///
/// Unless the gate is open, only waits time out: everything else is a write. Under [`Gate::Unknown`] the caller
/// then checks [`Tables::wants_to_write`], asks the server, and calls again.
pub(crate) fn tick(
    tables: &mut Tables,
    turn: &mut Turn<'_>,
    gate: Gate,
    budget: usize,
) -> Progress {
    tables.regime.set_gate(gate, turn.now.mono);
    let begun = tables.waits.moves();
    for _ in 0..budget {
        tables.pieces = tables.pieces.wrapping_add(1);
        if !Task::in_order(tables.pieces)
            .any(|task| may_run(tables, task) && run(tables, task, turn))
        {
            return Progress::Done;
        }
        if tables.waits.has_done_enough(turn.fx, begun) {
            break;
        }
    }
    Progress::More
}

/// Whether a kind of work writes in this role: then it needs an open gate.
fn writes(tables: &Tables, task: Task) -> bool {
    match task {
        Task::EndWait | Task::Search | Task::Reclaim => false,
        Task::Check => tables.regime.is_primary(),
        Task::BeginService | Task::Expire | Task::Serve | Task::Depart | Task::EndLease => true,
    }
}

fn may_run(tables: &Tables, task: Task) -> bool {
    tables.regime.may_end() || !writes(tables, task)
}

/// Does one piece of work of this kind; `false` if nothing of it is due.
fn run(tables: &mut Tables, task: Task, turn: &mut Turn<'_>) -> bool {
    match task {
        Task::EndWait => run_out_one(tables, turn),
        Task::BeginService => {
            end_quarantine(tables, turn.now)
                || diverged::raise_level(tables, turn.fx)
                || replay::advance_epoch(tables, turn)
        }
        Task::Expire => end_grace_of_one(tables, turn) || end_awaited_lease(tables, turn),
        Task::Serve => {
            drain::revisit_one(tables, turn)
                || drain::drain_one(tables, turn)
                || tables.mark_more_dirty()
                || groups::grant_leftover(tables, turn)
                || refusal::tell_cycle(tables, turn)
        }
        Task::Check => {
            flush::check_next_queue(tables, turn) || removed::drain_removed(tables, turn)
        }
        Task::Depart => disconnect::process_one_left_behind(tables, turn),
        Task::EndLease => end_lease_of_one(tables, turn),
        Task::Search => late::search_late(tables, turn.now),
        Task::Reclaim => former::answer_former(tables, turn.fx) || reclaim_some(tables, turn.now),
    }
}

/// When a kind of work has something to do next; `None` if nothing will happen by itself.
fn due_at(tables: &Tables, task: Task, now: Now) -> Option<Instant> {
    let at_once = |is_due: bool| is_due.then_some(now.mono);
    if writes(tables, task) && !tables.regime.is_primary() {
        return None;
    }
    match task {
        Task::EndWait => tables.waits.timeouts.next().map(Instant),
        Task::BeginService => {
            let is_due = tables.regime.has_old_entries()
                || tables.regime.awaits_writes()
                || diverged::wants_level(tables);
            at_once(is_due).or_else(|| tables.regime.quarantine_end())
        }
        Task::Expire => {
            let grace = tables.waits.graces.next().map(LeaseInstant);
            on_lease_clock(tables, grace.into_iter().chain(tables.leases.next_awaited()).min(), now)
        }
        Task::Serve => at_once(
            tables.waits.has_dirty()
                || !tables.pending.to_mark_dirty.is_empty()
                || (!tables.pending.ready_groups.is_empty()
                    && !tables.regime.withholds_grants(now.mono))
                || refusal::has_found_cycle(tables)
                || !tables.pending.revisit.is_empty(),
        ),
        Task::Check => at_once(tables.waits.has_unchecked() || tables.pending.has_removed()),
        Task::Depart => at_once(tables.connections.has_departed()),
        Task::EndLease => on_lease_clock(tables, tables.leases.next_other(), now),
        Task::Search => late::next_search(tables),
        Task::Reclaim => next_reclaim(tables, now),
    }
}

/// When the clock of leases shows this time. While it stands still the server is asked again after a while.
fn on_lease_clock(tables: &Tables, at: Option<LeaseInstant>, now: Now) -> Option<Instant> {
    let at = at?;
    let clock = tables.regime.clock();
    Some(if at <= clock.at(now.mono) {
        now.mono
    } else if clock.is_paused() {
        now.mono + RETRY_MS
    } else {
        clock.mono(at)
    })
}

impl Tables {
    /// Whether anything is to be done that needs an open gate.
    pub fn wants_to_write(&self, now: Now) -> bool {
        let is_due = |task| due_at(self, task, now).is_some_and(|at| at <= now.mono);
        Task::all().any(|task| writes(self, task) && is_due(task))
    }

    /// The time of the next tick; `None` if nothing will happen by itself. `gate` is the last answer of the server.
    pub fn next_alarm(&self, now: Now, gate: Gate) -> Option<Instant> {
        let next = Task::all().filter_map(|task| {
            let at = due_at(self, task, now)?;
            // The server does not report when the gate opens.
            let is_shut = gate == Gate::Shut && writes(self, task) && at <= now.mono;
            Some(if is_shut { now.mono + RETRY_MS } else { at })
        });
        next.min()
    }
}

/// Frees some memory that nothing refers to.
fn reclaim_some(tables: &mut Tables, now: Now) -> bool {
    let (lease, limits) = (tables.regime.lease(now.mono), tables.settings.request_limits());
    tables.spent.drop_overdue(lease, limits, PART) || former::free_some(tables)
}

fn next_reclaim(tables: &Tables, now: Now) -> Option<Instant> {
    if tables.pending.has_former() || tables.has_debris() {
        return Some(now.mono);
    }
    if tables.regime.clock().is_paused() {
        return None;
    }
    let at = tables.spent.next_end(tables.settings.request_limits())?;
    // Nothing depends on the exact time, so one alarm can drop many.
    Some(Instant(tables.regime.clock().mono(at).0.next_multiple_of(FORGET_EVERY_US)))
}

fn run_out_one(tables: &mut Tables, turn: &mut Turn<'_>) -> bool {
    match tables.waits.timeouts.step(turn.now.mono.0) {
        Advance::Due(slot) => {
            giving_up::observe_giving_up(tables, turn.keys, turn.now, slot, GivesUp::TimedOut);
            tables.time_out(slot, turn.fx);
            true
        }
        Advance::Moved => true,
        Advance::Idle => false,
    }
}

fn end_quarantine(tables: &mut Tables, now: Now) -> bool {
    let has_ended = tables.regime.end_quarantine(now.mono);
    if has_ended {
        tables.waits.mark_all_dirty();
    }
    has_ended
}

fn end_grace_of_one(tables: &mut Tables, turn: &mut Turn<'_>) -> bool {
    match tables.waits.graces.step(tables.regime.lease(turn.now.mono).0) {
        Advance::Due(slot) => {
            giving_up::observe_giving_up(tables, turn.keys, turn.now, slot, GivesUp::Lapsed);
            if let Some(waiter) = tables.remove_waiter(slot) {
                tables.waits.mark_dirty(waiter.queue);
            }
            true
        }
        Advance::Moved => true,
        Advance::Idle => false,
    }
}
