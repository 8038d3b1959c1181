//! Deadlock detection: would a call that is about to wait close a cycle of owners that wait for each other?
//!
//! Most calls need no search, because no owner can be waiting for the caller. The others search on both sides of the
//! caller, in two rounds, the first with a small budget:
//!
//! - Back: all owners that wait for the caller, directly or through others (`Waiting`). If the call would wait for
//!   none of them, there is no cycle.
//! - Forward: from the owners that the call would wait for, through the owners found before; through all owners if
//!   those were too many to list.
//!
//! Only a search forward finds a cycle, and its text is the proof. A check that exceeds its budget proves nothing: the
//! call waits.
//!
//! The graph is read from the queues, which know the holders of their keys
//! ([`crate::tables::queues::WaitQueues::note_holders`]).
//! Only keys that the call names are read: in a cluster a command may touch no others. So an expired lease counts until
//! the machine has ended it. An owner waits for the holders that keep it from the key, and for every owner in front of
//! it in the queue. The search goes depth first from the caller and looks for the caller (Knuth, TAOCP 7.4.1; any cycle
//! that a call closes contains it). An owner in a single queue adds nothing to what that queue already shows, so long
//! queues of such waiters cost nothing.
//!
//! Nothing here is kept between two calls.

pub(crate) mod budget;
pub(crate) mod cycle;
pub(crate) mod holders;
pub(crate) mod late;
pub(crate) mod refusal;
pub(crate) mod search;
pub(crate) mod waiting;

use crate::base::ids::{QueueId, WaiterSlot};
use crate::base::key::Key;
use crate::base::kind::Kind;
use crate::base::time::Now;
use crate::ports::store::Lookup;
use crate::ports::turn::Turn;
use crate::tables::Tables;
use crate::value::wait_request::Demand;
use alloc::string::String;
use budget::Budget;
use cycle::Cycle;
pub(crate) use holders::Target;
use holders::{goes_first, has_it};
use search::{Search, Wait};
use waiting::Waiting;

/// Budgets of the two searches of a round, as far as the budget of the call allows.
struct Round {
    back: usize,
    forward: usize,
}

/// Most owners that others wait for have very few such waiters, or wait for very few owners: the first round tells.
const ROUNDS: [Round; 2] =
    [Round { back: 8, forward: 64 }, Round { back: usize::MAX, forward: usize::MAX }];

/// The text of the cycle that `owner` would close by waiting for `target`. `None` if there is none, or if the
/// budget ends first.
pub(crate) fn cycle(
    tables: &mut Tables,
    turn: &mut Turn<'_>,
    target: Target<'_>,
    owner: &[u8],
) -> Option<String> {
    let Target { kind, key, demand } = target;
    if !tables.waits.can_be_awaited(owner) {
        return None;
    }
    let goes_first = match turn.keys.get(key) {
        Lookup::Here(resource) if resource.kind() == kind => {
            if has_it(tables, resource, turn.now, owner, demand) {
                return None;
            }
            goes_first(tables, resource, turn.now, owner, demand)
        }
        Lookup::Missing if !tables.waits.is_awaited_as_another(kind, key) => false,
        // A call for a key of another type does not wait.
        Lookup::Here(_)
        | Lookup::Missing
        | Lookup::WrongType
        | Lookup::Elsewhere
        | Lookup::OutOfReach => {
            return None;
        }
    };
    let how = would_wait(tables, turn.now, target, owner, goes_first);
    if how.stays && how.is_old {
        // This call closes no new cycle.
        return None;
    }
    let behind = if goes_first { tables.waits.queue_of(key) } else { None };
    let mut budget = Budget::of_call();
    let found = check(
        tables,
        turn,
        owner,
        &core::iter::once(target),
        behind,
        &mut budget,
        &|turn, search| search.for_one(turn, target, &how),
    );
    conclude(tables, turn, &budget, found)
}

/// The same for a call that joins the queues of several locks.
pub(crate) fn cycle_of_all<'k>(
    tables: &mut Tables,
    turn: &mut Turn<'_>,
    keys: impl Iterator<Item = Key<'k>> + Clone,
    owner: &[u8],
) -> Option<String> {
    if !tables.waits.can_be_awaited(owner) {
        return None;
    }
    let targets = keys.map(|key| Target { kind: Kind::Lock, key, demand: Demand::Lock });
    let mut budget = Budget::of_call();
    let found = check(tables, turn, owner, &targets, None, &mut budget, &|turn, search| {
        search.for_all(turn, targets.clone())
    });
    conclude(tables, turn, &budget, found)
}

/// The rounds of a check. `behind`: the queue whose front the caller would join.
fn check<'k>(
    tables: &Tables,
    turn: &mut Turn<'_>,
    owner: &[u8],
    targets: &(impl Iterator<Item = Target<'k>> + Clone),
    behind: Option<QueueId>,
    budget: &mut Budget,
    forward: &dyn Fn(&mut Turn<'_>, &mut Search<'_>) -> Option<Cycle>,
) -> Found {
    let run = |turn: &mut Turn<'_>, budget: &mut Budget, only: Option<Waiting>| {
        let mut search = Search::new(tables, owner, budget, only);
        match forward(turn, &mut search) {
            Some(cycle) => Found::Cycle(cycle),
            None if search.is_exceeded() => Found::Exceeded,
            None if search.is_unsure => Found::Unsure,
            None => Found::Nothing,
        }
    };
    for round in ROUNDS {
        let share = round.back.min(budget.left() / 4);
        let only = budget.phase(share, |part| Waiting::on(&tables.waits, owner, behind, part));
        let share = budget.left() / 4;
        if let Some(only) = &only
            && !budget.phase(share, |part| only.meets(tables, turn, owner, targets.clone(), part))
        {
            return Found::Nothing;
        }
        let found = budget.phase(round.forward, |part| run(turn, part, only));
        if !matches!(found, Found::Exceeded) {
            return found;
        }
    }
    Found::Exceeded
}

/// How a call with BLOCK or QUEUE would wait.
fn would_wait<'t>(
    tables: &'t Tables,
    now: Now,
    target: Target<'_>,
    owner: &[u8],
    goes_first: bool,
) -> Wait<'t> {
    let slot = tables.waits.waiter_at(target.key, owner);
    let own = slot.and_then(|slot| Some((slot, tables.waits.get(slot)?)));
    let stays = own.is_some_and(|(_, own)| {
        let stands_well = !goes_first || own.prev == WaiterSlot::NONE;
        stands_well && own.ask.demand.keeps_position_for(target.demand)
    });
    let is_old = own.is_some_and(|(_, own)| !search::is_out_of_this(tables, own, now));
    Wait { goes_first, own, stays, is_old }
}

/// The result of a check.
fn conclude(tables: &mut Tables, turn: &Turn<'_>, budget: &Budget, found: Found) -> Option<String> {
    tables.searched += budget.spent() as u64;
    let is_open = matches!(found, Found::Nothing) && tables.waits.next_unlisted().is_some();
    if is_open || matches!(found, Found::Exceeded | Found::Unsure) {
        tables.counters.deadlock_searches_cut += 1;
        late::note_cut(tables, turn.now.mono);
    }
    match found {
        Found::Cycle(cycle) => Some(cycle.text(|key| turn.keys.may_read(key))),
        Found::Nothing | Found::Unsure | Found::Exceeded => None,
    }
}

/// The result of a search.
enum Found {
    Cycle(Cycle),
    Nothing,
    /// None through the queues whose holders are known: a flush has not been drained.
    Unsure,
    /// The budget ended first.
    Exceeded,
}
