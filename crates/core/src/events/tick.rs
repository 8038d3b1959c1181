//! The tick: work without a call.
//!
//! **The kinds of work take turns**, like processes under round-robin scheduling. A pointer goes around the kinds. A
//! piece goes to the first kind from there on that has something due, and the pointer then stands behind that kind. So
//! between two pieces of one kind, each other kind gets at most one, whatever clients do. A tick does at least one
//! piece, and a turn of the loop at least one tick. **A kind with something due waits at most `KINDS` - 1 turns of
//! the loop**, and nearly always less than one, because a turn has room for hundreds of pieces. A piece is bounded
//! (`tables/portions.rs`).
//!
//! Within a kind the earliest deadline comes first (waits, graces, leases), or what was noted first.

use crate::base::time::{Instant, LeaseInstant, Now};
use crate::base::wheel::Advance;
use crate::deadlock::{late, refusal};
use crate::events::{disconnect, diverged, former, replay};
use crate::ports::turn::Turn;
use crate::run::due::{end_awaited_lease, end_lease_of_one};
use crate::run::{drain, flush, groups, keyspace, removed};
use crate::step::giving_up;
use crate::step::giving_up::GivesUp;
use crate::tables::Tables;
use crate::tables::portions::{PART, RETRY_MS};
use crate::tables::regime::Gate;

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
    /// A blocked call whose time is over gets its answer.
    EndWait,
    /// The quarantine ends.
    EndQuarantine,
    /// A record level that an operator chose is recorded.
    RaiseLevel,
    /// The epoch of a promotion reaches a key.
    AdvanceEpoch,
    /// The grace of a waiter without a connection ends.
    EndGrace,
    /// A lease that a waiter waits for ends.
    EndAwaitedLease,
    /// A key that came from elsewhere is updated from its queue.
    Revisit,
    /// A dirty queue is served.
    Drain,
    /// More queues of a connection become dirty.
    MarkDirty,
    /// A call for several keys, all of which are free, is served.
    GrantGroup,
    /// A waiter in a cycle is refused.
    TellCycle,
    /// A queue is checked after a flush or a swap.
    CheckQueue,
    /// Messages about removed holds are sent.
    TellRemoved,
    /// What a closed connection had: a waiter leaves or begins its grace, a bound hold is shortened.
    Depart,
    /// A lease ends for which no call waits.
    EndLease,
    /// More readers of a key with waiters are listed, or those of a former one are forgotten.
    ListReaders,
    /// All waits are searched for cycles.
    Search,
    /// The tables of before a demotion are emptied: their calls are answered.
    AnswerFormer,
    /// Memory that is not needed is freed.
    Reclaim,
}

/// Number of kinds of work.
const KINDS: usize = Task::ALL.len();

impl Task {
    /// In the order of the turns: what makes work for another kind stands before it.
    const ALL: [Self; 19] = [
        Self::EndWait,
        Self::EndQuarantine,
        Self::RaiseLevel,
        Self::AdvanceEpoch,
        Self::EndGrace,
        Self::EndAwaitedLease,
        Self::Depart,
        Self::CheckQueue,
        Self::Revisit,
        Self::MarkDirty,
        Self::Drain,
        Self::GrantGroup,
        Self::TellCycle,
        Self::TellRemoved,
        Self::EndLease,
        Self::ListReaders,
        Self::Search,
        Self::AnswerFormer,
        Self::Reclaim,
    ];
}

/// Gives a piece to the first kind from number `next` on for which `run` does one. Returns the number of the kind
/// behind it; `None` if no kind has work.
fn give(next: usize, mut run: impl FnMut(Task) -> bool) -> Option<usize> {
    let mut kinds = (0..KINDS).map(|offset| (next + offset) % KINDS);
    let kind = kinds.find(|&kind| run(Task::ALL[kind]))?;
    Some((kind + 1) % KINDS)
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
        let given = give(tables.next_kind, |task| may_run(tables, task) && run(tables, task, turn));
        let Some(next) = given else { return Progress::Done };
        tables.next_kind = next;
        if tables.waits.has_done_enough(turn.fx, begun) {
            break;
        }
    }
    Progress::More
}

/// Whether a kind of work writes in this role: then it needs an open gate.
fn writes(tables: &Tables, task: Task) -> bool {
    match task {
        Task::EndWait | Task::ListReaders | Task::Search | Task::AnswerFormer | Task::Reclaim => {
            false
        }
        Task::CheckQueue | Task::TellRemoved => tables.regime.is_primary(),
        _ => true,
    }
}

fn may_run(tables: &Tables, task: Task) -> bool {
    tables.regime.may_end() || !writes(tables, task)
}

/// Does one piece of work of this kind; `false` if nothing of it is due.
fn run(tables: &mut Tables, task: Task, turn: &mut Turn<'_>) -> bool {
    match task {
        Task::EndWait => run_out_one(tables, turn),
        Task::EndQuarantine => end_quarantine(tables, turn.now),
        Task::RaiseLevel => diverged::raise_level(tables, turn.fx),
        Task::AdvanceEpoch => replay::advance_epoch(tables, turn),
        Task::EndGrace => end_grace_of_one(tables, turn),
        Task::EndAwaitedLease => end_awaited_lease(tables, turn),
        Task::Revisit => drain::revisit_one(tables, turn),
        Task::Drain => drain::drain_one(tables, turn),
        Task::MarkDirty => tables.mark_more_dirty(),
        Task::GrantGroup => groups::grant_leftover(tables, turn),
        Task::TellCycle => refusal::tell_cycle(tables, turn),
        Task::CheckQueue => flush::check_next_queue(tables, turn),
        Task::TellRemoved => removed::drain_removed(tables, turn),
        Task::Depart => disconnect::process_one_left_behind(tables, turn),
        Task::EndLease => end_lease_of_one(tables, turn),
        Task::ListReaders => keyspace::list_readers(tables, turn),
        Task::Search => late::search_late(tables, turn.now),
        Task::AnswerFormer => former::answer_former(tables, turn.fx),
        Task::Reclaim => reclaim_some(tables, turn.now),
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
        Task::EndQuarantine => {
            at_once(tables.regime.awaits_writes()).or_else(|| tables.regime.quarantine_end())
        }
        Task::RaiseLevel => at_once(diverged::wants_level(tables)),
        Task::AdvanceEpoch => at_once(tables.regime.has_old_entries()),
        Task::EndGrace => on_lease_clock(tables, tables.waits.graces.next().map(LeaseInstant), now),
        Task::EndAwaitedLease => on_lease_clock(tables, tables.leases.next_awaited(), now),
        Task::Revisit => at_once(!tables.pending.revisit.is_empty()),
        Task::Drain => at_once(tables.waits.has_dirty()),
        Task::MarkDirty => at_once(!tables.pending.to_mark_dirty.is_empty()),
        Task::GrantGroup => at_once(
            !tables.pending.ready_groups.is_empty() && !tables.regime.withholds_grants(now.mono),
        ),
        Task::TellCycle => at_once(refusal::has_found_cycle(tables)),
        Task::CheckQueue => at_once(tables.waits.has_unchecked()),
        Task::TellRemoved => at_once(tables.pending.has_removed()),
        Task::Depart => at_once(tables.connections.has_departed()),
        Task::EndLease => on_lease_clock(tables, tables.leases.next_other(), now),
        Task::ListReaders => at_once(tables.waits.has_unsettled_readers()),
        Task::Search => late::next_search(tables),
        Task::AnswerFormer => at_once(tables.pending.has_former()),
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
        Task::ALL.into_iter().any(|task| writes(self, task) && is_due(task))
    }

    /// The time of the next tick; `None` if nothing will happen by itself. `gate` is the last answer of the server.
    pub fn next_alarm(&self, now: Now, gate: Gate) -> Option<Instant> {
        let next = Task::ALL.into_iter().filter_map(|task| {
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
    if tables.has_debris() {
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Kinds with endless work, in every combination, and from every place of the pointer: each of them gets one of
    /// `KINDS` pieces in a row at the latest.
    #[test]
    fn every_kind_gets_its_turn() {
        for busy in 1..1_u32 << KINDS {
            let mut next = busy as usize % KINDS;
            let mut served = 0_u32;
            for _ in 0..busy.count_ones() {
                let given = give(next, |task| {
                    let bit = 1 << task as u32;
                    let has_work = busy & bit != 0;
                    served |= if has_work { bit } else { 0 };
                    has_work
                });
                next = given.unwrap_or_default();
            }
            assert_eq!(served, busy, "a kind waits for more than one round");
        }
        assert_eq!(give(3, |_| false), None);
        assert!(
            Task::ALL
                .iter()
                .enumerate()
                .all(|(at, &task)| give(at, |one| one == task) == Some((at + 1) % KINDS))
        );
    }
}
