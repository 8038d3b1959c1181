//! ACQUIRE of every family.

use crate::base::ids::WaiterSlot;
use crate::base::key::Key;
use crate::base::kind::Kind;
use crate::deadlock;
use crate::deadlock::Target;
use crate::ports::answers::{quoted, too_wide};
use crate::ports::effects::{Answer, Event, Outcome};
use crate::ports::turn::Turn;
use crate::run::call::{refused_in_script, wait_state_of};
use crate::run::{activity, call, due, lost};
use crate::step::Step;
use crate::step::hand_off::goes_first;
use crate::step::holder::own_hold;
use crate::step::requests::{Asks, Call};
use crate::step::terms::Terms;
use crate::tables::Tables;
use crate::tables::queues::waiter::{Position, WaitState};
use crate::value::holds::Holds;
use crate::value::resource::{Body, Resource};
use crate::value::wait_request::Demand;
use alloc::format;
use alloc::string::String;
use dlock_wire::permit::PermitId;
use dlock_wire::reply::ErrorCode;
use dlock_wire::request::{Acquire, Mode, RwAcquire, SemAcquire};

/// DLOCK.ACQUIRE and DFAIR.ACQUIRE (`kind`).
///
/// - The lock is free: the owner gets one hold.
/// - The owner holds it: the hold counts one more, and the lease is extended if the new one ends later. `REENTRY`
///   with NOREENTRY.
/// - The owner holds it and the hold has seen REQID (a resent call): the same token. Nothing is counted, and the lease
///   is extended if the new one ends later.
/// - The hold is the grant to a place: a call with the REQID of the place, or without one if the place had none, takes
///   it over, and counts nothing. Any other enters it again.
/// - Another owner holds it, it is closed, or other waiters are first: BLOCK parks the call, and QUEUE puts the
///   owner in the queue. An owner that is queued keeps its queue entry, and its earlier blocked call is answered
///   `REPLACED`. Otherwise Null, or `QUARANTINE` if only the quarantine is in the way.
/// - REQID names a request that is over (a late copy): `SPENT`.
/// - Waiting would close a cycle of owners that wait for each other: `DEADLOCK`.
/// - Too many waiters, or holds: `LIMIT`.
pub(crate) fn acquire(
    tables: &mut Tables,
    turn: &mut Turn<'_>,
    kind: Kind,
    call: &Acquire<'_>,
) -> Answer {
    acquire_any_kind(tables, turn, kind, call, Demand::Lock)
}

/// DRW.ACQUIRE: as [`acquire`], for each mode on its own. In addition:
///
/// - READ by the writer is granted: a downgrade begins this way.
/// - WRITE by a reader (an upgrade) is granted if it is the only reader. Otherwise it waits in front of all
///   waiters, or is refused with `DEADLOCK` if another reader waits to upgrade.
pub(crate) fn rw_acquire(tables: &mut Tables, turn: &mut Turn<'_>, call: &RwAcquire<'_>) -> Answer {
    acquire_any_kind(tables, turn, Kind::Rw, &call.acquire, Demand::Rw(call.mode))
}

/// DSEM.ACQUIRE. `permit` is the id of the permits, new for each call.
///
/// - Enough permits are free and there is no waiter: granted.
/// - A permit of this owner has seen REQID: that permit's id. Nothing is counted.
/// - A grant to a place without an id has the same number of permits: a call without an id takes it over.
/// - More permits than the semaphore has: `LIMIT`.
/// - The semaphore is missing: LIMIT makes it; without LIMIT the call waits for it.
/// - The rest as [`acquire`].
pub(crate) fn sem_acquire(
    tables: &mut Tables,
    turn: &mut Turn<'_>,
    call: &SemAcquire<'_>,
    permit: PermitId,
) -> Answer {
    let demand = Demand::Permits { count: call.count, limit: call.limit, id: permit };
    acquire_any_kind(tables, turn, Kind::Semaphore, &call.acquire, demand)
}

fn acquire_any_kind(
    tables: &mut Tables,
    turn: &mut Turn<'_>,
    kind: Kind,
    call: &Acquire<'_>,
    demand: Demand,
) -> Answer {
    if let Some(fault) = refused_in_script(turn.caller, call.bind_ms, call.queue_ms) {
        return fault.into();
    }
    activity::mark_active(tables, turn, turn.caller.client);
    let wait_state = wait_state_of(turn.now, turn.caller, call.block_ms, call.queue_ms);
    let (owner, id, asks) = (call.owner, call.reqid, Asks::Acquire);
    let request = Call { kind, mode: demand.mode(), owner, id, asks };
    let key = turn.caller.key(call.key);
    let may_lock_up =
        wait_state.is_some() && demand.can_lock_up() && tables.settings.deadlock_detection;
    let cycle = may_lock_up.then(|| cycle_of(tables, turn, request, key, demand)).flatten();
    let answer = if let Some(cycle) = cycle {
        tables.counters.deadlocks_refused += 1;
        Outcome::fault(ErrorCode::Deadlock, cycle).into()
    } else {
        let terms = tables.settings.terms(call, demand, turn.caller.client);
        call::on_request(tables, turn, call.key, request, |step, resource| {
            step.acquire_here(resource, terms, wait_state)
        })
    };
    tables.observe_refusal(turn.now, &answer, kind, key, call.owner, call.label);
    answer
}

/// The text of the cycle that this call would close by waiting. `None` if it repeats a request that is over.
fn cycle_of(
    tables: &mut Tables,
    turn: &mut Turn<'_>,
    request: Call<'_>,
    key: Key<'_>,
    demand: Demand,
) -> Option<String> {
    // The queue still lists the holder of a value whose time to live is over.
    lost::see_to_loss_of(tables, turn, key);
    let lease = tables.regime.lease(turn.now.mono);
    if request.name().is_some_and(|name| tables.find_spent(key, name, lease).is_some()) {
        return None;
    }
    due::end_due_leases(tables, turn, core::iter::once((request.kind, key)));
    deadlock::cycle(tables, turn, Target { kind: request.kind, key, demand }, request.owner)
}

impl Step<'_> {
    fn acquire_here(
        &mut self,
        resource: &mut Resource,
        terms: Terms<'_>,
        wait_state: Option<WaitState>,
    ) -> Answer {
        let Terms { owner, demand, .. } = terms;
        let too_wide = self.make_semaphore(resource, demand);
        // The first waiter comes before this call, even if no alarm has served it yet.
        self.hand_off(resource);
        if let Some(id) = own_hold(resource, terms.owner, terms.reqid, terms.demand) {
            return self.acquire_again(resource, id, &terms).into();
        }
        if let Some(fault) = too_wide {
            return fault.into();
        }
        let place = wait_state.and_then(|_| self.tables.waits.waiter_at(self.key, owner));
        if let Some(fault) = self.too_many_holds(resource, demand, place) {
            return fault.into();
        }
        let goes_first = goes_first(resource, owner, demand);
        // An owner that waits already is served through its queue entry, so that no entry is left behind.
        if (place.is_none() || goes_first) && self.is_open(resource, owner, demand) {
            let outcome = self.grant_caller(resource, terms, place);
            self.tables.counters.grants_at_once += u64::from(outcome.is_grant());
            return outcome.into();
        }
        let Some(wait_state) = wait_state else {
            return self.refuse(resource, owner, demand).into();
        };
        if let Some(fault) = self.refuse_second_upgrade(resource, owner, demand) {
            return fault.into();
        }
        let position = if goes_first { Position::Front } else { Position::Back };
        let slot = match self.join_queue(resource.kind(), &terms, wait_state, position) {
            Ok(slot) => slot,
            Err(fault) => return fault.into(),
        };
        self.own_waiter = self.tables.waits.get(slot).map(|waiter| waiter.id);
        self.note_holders(resource);
        self.hand_off(resource);
        if let Some(outcome) = self.answer.take() {
            return outcome.into();
        }
        self.fx.note(self.key, Event::Wait);
        let parked = self.own_waiter.filter(|_| wait_state.is_parked());
        parked.map_or(Answer::Now(Outcome::Null), Answer::Parked)
    }

    /// `LIMIT` for a reader, or for permits, if the key has as many holds as one key can have. A call that takes over
    /// the position of its owner's waiter is served.
    fn too_many_holds(
        &self,
        resource: &Resource,
        demand: Demand,
        waiter: Option<WaiterSlot>,
    ) -> Option<Outcome> {
        let is_one_of_many = matches!(demand, Demand::Rw(Mode::Read) | Demand::Permits { .. });
        let holds = resource.others().map_or(0, Holds::len);
        let waiter = waiter.and_then(|slot| self.tables.waits.get(slot));
        let waits = waiter.is_some_and(|waiter| waiter.ask.demand.keeps_position_for(demand));
        if !is_one_of_many || holds < self.tables.settings.max_holds_per_key || waits {
            return None;
        }
        let key = quoted(self.key.name);
        let text = format!("{key} has {holds} holds already (dlock.max-holds-per-key)");
        Some(Outcome::fault(ErrorCode::Limit, text))
    }

    /// LIMIT makes a semaphore on first use. `LIMIT` if there are too few permits for the call.
    fn make_semaphore(&mut self, resource: &mut Resource, demand: Demand) -> Option<Outcome> {
        let (Body::Semaphore(semaphore), Demand::Permits { count, limit, .. }) =
            (&mut resource.body, demand)
        else {
            return None;
        };
        let capacity = if semaphore.capacity == 0 { limit? } else { semaphore.capacity };
        if count > capacity {
            let text = too_wide(self.key.name, count, capacity);
            return Some(Outcome::fault(ErrorCode::Limit, text));
        }
        if semaphore.capacity == 0 && self.tables.regime.may_grant(self.now.mono) {
            semaphore.capacity = capacity;
            semaphore.is_passing = true;
            self.dirty = true;
        }
        None
    }
}
