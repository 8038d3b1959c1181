//! Owners that the search from the tick has found to wait for each other: one of them is refused.

use crate::base::ids::WaiterSlot;
use crate::base::key::Key;
use crate::base::time::Now;
use crate::deadlock::cycle::{Cycle, Link};
use crate::deadlock::late;
use crate::deadlock::late::reads;
use crate::deadlock::search::is_out_of_this;
use crate::ports::effects::Outcome;
use crate::ports::turn::Turn;
use crate::step::requests::{Asks, Call, refused_limits};
use crate::step::wait::place_subject;
use crate::tables::Tables;
use crate::tables::late_search::Spot;
use crate::tables::queues::waiter::Waiter;
use crate::value::spent::Use;
use alloc::vec::Vec;
use dlock_wire::message;
use dlock_wire::reply::ErrorCode;

/// Cycles of more owners are not shortened: that takes the square of their number in looks.
const SHORTENED: usize = 32;

/// Whether a cycle was found that is not told yet.
pub(crate) fn has_found_cycle(tables: &Tables) -> bool {
    tables.late.found.is_some()
}

/// In the tick: refuses the youngest wait of the cycle that was found, if it is still there; `false` if none was.
pub(crate) fn tell_cycle(tables: &mut Tables, turn: &mut Turn<'_>) -> bool {
    let Some(found) = tables.late.found.take().filter(|_| late::searches_late(tables)) else {
        return false;
    };
    tables.searched += found.len() as u64;
    late::rest_after(tables, found.len(), turn.now.mono);
    let Some(cycle) = verified(tables, &found, turn.now) else {
        late::doubt_round(tables);
        return true;
    };
    let since = |spot: &Spot| spot.find(&tables.waits).map(|waiter| (waiter.since, waiter.seq));
    let youngest = cycle.iter().enumerate().max_by_key(|(_, spot)| since(spot));
    let Some((at, &Spot { slot, .. })) = youngest else { return true };
    let links = cycle[at..].iter().chain(&cycle[..at]);
    let links = links.filter_map(|spot| {
        let waiter = spot.find(&tables.waits)?;
        let Key { db, name } = tables.waits.queue(waiter.queue)?.key();
        Some(Link { owner: waiter.owner.to_vec(), db, name: name.to_vec() })
    });
    let cycle = Cycle(links.collect());
    refuse_wait(tables, turn, slot, &cycle);
    // Others may wait for each other without this one.
    tables.late.is_urgent = true;
    true
}

/// The cycle without the owners that it does not need. `None` if an owner does not wait for the next one any more.
fn verified(tables: &Tables, found: &[Spot], now: Now) -> Option<Vec<Spot>> {
    let waiters: Vec<&Waiter> =
        found.iter().map(|spot| spot.find(&tables.waits)).collect::<Option<_>>()?;
    let waits_for = |one: usize, other: usize| {
        let (waiter, other) = (waiters.get(one), waiters.get(other % waiters.len()));
        waiter.zip(other).is_some_and(|(waiter, other)| waits_for(tables, waiter, other, now))
    };
    if !(0..found.len()).all(|at| waits_for(at, at + 1)) {
        return None;
    }
    let most = if found.len() <= SHORTENED { found.len() } else { 1 };
    let (mut cycle, mut at) = (Vec::new(), 0);
    while at < found.len() {
        cycle.extend(found.get(at).copied());
        let last = found.len().min(at + most);
        at = (at + 2..=last).rev().find(|&to| waits_for(at, to)).unwrap_or(at + 1);
    }
    Some(cycle)
}

/// Whether this waiter waits for the owner of that one, as its holder or in front of it.
fn waits_for(tables: &Tables, waiter: &Waiter, other: &Waiter, now: Now) -> bool {
    let (waits, id, owner) = (&tables.waits, waiter.queue, &other.owner);
    let Some(queue) = waits.queue(id) else { return false };
    let is_out = |waiter: &Waiter| is_out_of_this(tables, waiter, now);
    let has_it = waiter.is_grouped() && waits.knows_holder(id, &waiter.owner);
    if waiter.owner == *owner || has_it || is_out(waiter) || waits.is_unchecked(queue) {
        return false;
    }
    let holds = || waits.is_sole_holder(id, owner) || !reads(waiter) && waits.is_reader(id, owner);
    let is_in_front = || {
        let front = waits.waiter_of(id, owner).and_then(|slot| waits.get(slot));
        let both_read = |front: &Waiter| reads(waiter) && reads(front);
        front.is_some_and(|front| front.seq < waiter.seq && !both_read(front) && !is_out(front))
    };
    holds() || is_in_front()
}

/// Ends a wait with `DEADLOCK`; of a call for several keys, the whole call. The rights of its client are unknown
/// here, so the text names its own key alone; the log, which operators read, has all.
fn refuse_wait(tables: &mut Tables, turn: &mut Turn<'_>, slot: WaiterSlot, cycle: &Cycle) {
    let Some(waiter) = tables.waits.get(slot) else { return };
    let own_key = tables.waits.queue(waiter.queue).map(|queue| (queue.db, queue.name.clone()));
    let leader = tables.waits.leader(waiter);
    let (id, entry) = (leader.id, leader.entry.clone());
    let is_blocked = leader.wait_state.is_parked();
    let Some(queue) = tables.waits.queue(leader.queue) else { return };
    let (queue_id, kind, db, name) = (leader.queue, queue.kind, queue.db, queue.name.clone());
    let key = Key { db, name: &name };
    tables.counters.deadlocks_refused += 1;
    tables.observe_deadlock(turn.now, kind, key, &entry, &cycle.text(|_| true));
    if is_blocked {
        let is_own =
            |key: Key<'_>| own_key.as_ref().is_some_and(|(db, name)| key == Key { db: *db, name });
        let text = cycle.text(is_own);
        turn.fx.wake(id, Outcome::fault(ErrorCode::Deadlock, text));
    } else {
        if let Some(subject) = place_subject(&entry) {
            turn.fx.message(message::Event::Deadlock, key, subject);
        }
        let (mode, id) = (entry.ask.demand.mode(), entry.ask.request.as_deref());
        let call = Call { kind, mode, owner: &entry.owner, id, asks: Asks::Acquire };
        let lease = tables.regime.lease(turn.now.mono);
        if let Some(request) = call.name() {
            tables.refused.note(key, request, Use::Waited, lease, refused_limits(tables));
        }
    }
    tables.remove_waiter(slot);
    tables.waits.mark_dirty(queue_id);
}
