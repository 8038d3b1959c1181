//! What reading commands see. They change nothing. They treat everything that has expired as ended, even where it
//! cannot be removed (on a replica, during a pause).

pub(crate) mod rows;

use crate::base::ids::{HoldId, KeyId, QueueId};
use crate::base::key::Key;
use crate::base::kind::Kind;
use crate::base::time::{LeaseInstant, Millis, Now};
use crate::ports::store::{Lookup, Store};
use crate::ports::turn::WrongType;
use crate::tables::Tables;
use crate::tables::queues::waiter::Waiter;
use crate::tables::regime::Role;
use crate::value::fair::Fair;
use crate::value::hold::{Hold, NO_CLIENT};
use crate::value::holds::Holds;
use crate::value::lock::Lock;
use crate::value::resource::{Body, Resource};
use alloc::vec::Vec;
use core::time::Duration;
use dlock_wire::permit::PermitText;
use dlock_wire::reply::{
    self, HolderInfo, Info, LatchInfo, LockInfo, PermitInfo, RwInfo, RwMode, SemInfo, WaiterInfo,
};
use rows::saved_row;

/// INFO of the family `kind`; `None` if the key is missing.
pub fn info(
    tables: &Tables,
    store: &mut dyn Store,
    now: Now,
    kind: Kind,
    key: Key<'_>,
) -> Result<Option<Info>, WrongType> {
    Ok(match kind {
        Kind::Lock | Kind::Fair => lock_info(tables, store, now, kind, key)?.map(Info::Lock),
        Kind::Rw => rw_info(tables, store, now, key)?.map(Info::ReadWrite),
        Kind::Semaphore => sem_info(tables, store, now, key)?.map(Info::Semaphore),
        Kind::Latch => latch_info(tables, store, now, key)?.map(Info::Latch),
    })
}

/// DLOCK.INFO and DFAIR.INFO (`kind`); `None` if the key is missing.
fn lock_info(
    tables: &Tables,
    store: &mut dyn Store,
    now: Now,
    kind: Kind,
    key: Key<'_>,
) -> Result<Option<LockInfo>, WrongType> {
    let lease = tables.regime.lease(now.mono);
    let found = look_up(tables, store, kind, key)?;
    let shown = if kind == Kind::Fair { reply::Kind::Fair } else { reply::Kind::Lock };
    let waiters = count(tables, now, key, found);
    let mut info = LockInfo { waiters, ..LockInfo::free(shown) };
    if let Some(resource) = found {
        if let Some((_, hold, until)) = tables.in_force(resource, lease).next() {
            info.holder = Some(holder_info(tables, resource, hold, until, now));
            info.observers = count_observers(tables, now, key, hold.token);
            return Ok(Some(info));
        }
        if let Lock::Closed { until, delay_ms } = resource.lock() {
            info.closed_for = millis(tables.ends(resource, *until, *delay_ms, lease) - lease);
        }
    }
    info.reserved_for = reserved_for(tables, key).unwrap_or_default();
    Ok((info.waiters > 0 || !info.closed_for.is_zero()).then_some(info))
}

/// DRW.INFO; `None` if the key is missing.
fn rw_info(
    tables: &Tables,
    store: &mut dyn Store,
    now: Now,
    key: Key<'_>,
) -> Result<Option<RwInfo>, WrongType> {
    let lease = tables.regime.lease(now.mono);
    let found = look_up(tables, store, Kind::Rw, key)?;
    let mut info = RwInfo {
        mode: RwMode::Free,
        writer: None,
        readers: Vec::new(),
        waiters: count(tables, now, key, None),
    };
    let mut is_closed = false;
    if let Some(resource) = found {
        info.readers.reserve(resource.others().map_or(0, Holds::len));
        for (id, hold, until) in tables.in_force(resource, lease) {
            let holder = holder_info(tables, resource, hold, until, now);
            if id == crate::base::ids::ALONE {
                info.writer = Some(holder);
            } else {
                info.readers.push(holder);
            }
        }
        if let Lock::Closed { until, delay_ms } = resource.lock() {
            is_closed = tables.ends(resource, *until, *delay_ms, lease) > lease;
        }
    }
    info.mode = match (&info.writer, info.readers.len()) {
        (Some(_), _) => RwMode::Write,
        (None, 0) => RwMode::Free,
        (None, _) => RwMode::Read,
    };
    let is_there = info.mode != RwMode::Free || info.waiters > 0 || is_closed;
    Ok(is_there.then_some(info))
}

/// DSEM.INFO; `None` if the key is missing.
fn sem_info(
    tables: &Tables,
    store: &mut dyn Store,
    now: Now,
    key: Key<'_>,
) -> Result<Option<SemInfo>, WrongType> {
    let lease = tables.regime.lease(now.mono);
    let found = look_up(tables, store, Kind::Semaphore, key)?;
    let mut info = SemInfo { waiters: count(tables, now, key, None), ..SemInfo::default() };
    if let Some(resource) = found {
        info.leased = if tables.may_have_ended(resource, lease) {
            tables.in_force(resource, lease).map(|(_, hold, _)| u64::from(hold.count)).sum()
        } else {
            resource.leased()
        };
        if let Body::Semaphore(semaphore) = &resource.body {
            info.capacity = semaphore.capacity.into();
            info.taken = semaphore.taken.into();
            // Permits of expired holds are free, noticed or not.
            let ended = semaphore.leased - info.leased;
            info.available = semaphore.available() + ended.cast_signed();
        }
    }
    Ok((info.waiters > 0 || info.capacity > 0).then_some(info))
}

/// DSEM.PERMITS: the permits that are out with an owner and a lease.
pub fn permits(
    tables: &Tables,
    store: &mut dyn Store,
    now: Now,
    key: Key<'_>,
) -> Result<Vec<PermitInfo>, WrongType> {
    let lease = tables.regime.lease(now.mono);
    let Some(resource) = look_up(tables, store, Kind::Semaphore, key)? else {
        return Ok(Vec::new());
    };
    let row = |(id, hold, until): (HoldId, &Hold, LeaseInstant)| PermitInfo {
        id: PermitText::of(&id.to_be_bytes()),
        owner: hold.owner.to_vec(),
        count: hold.count.into(),
        left: millis(until - lease),
        held: held_for(hold, now),
        label: hold.label().to_vec(),
        bound_client: connection(tables.bound_client(resource, hold)),
    };
    // Rows are large: a growing list of many is copied again and again.
    let mut rows = Vec::with_capacity(resource.others().map_or(0, Holds::len));
    rows.extend(tables.in_force(resource, lease).map(row));
    Ok(rows)
}

/// DLATCH.INFO; `None` if the latch is open or missing.
pub(crate) fn latch_info(
    tables: &Tables,
    store: &mut dyn Store,
    now: Now,
    key: Key<'_>,
) -> Result<Option<LatchInfo>, WrongType> {
    let lease = tables.regime.lease(now.mono);
    let Some(resource) = look_up(tables, store, Kind::Latch, key)? else { return Ok(None) };
    let Body::Latch(latch) = &resource.body else { return Ok(None) };
    let end = latch
        .deadline
        .map(|deadline| tables.ends(resource, deadline, latch.lease_ms.unwrap_or_default(), lease));
    if end.is_some_and(|end| end <= lease) {
        return Ok(None);
    }
    Ok(Some(LatchInfo {
        count: latch.count.into(),
        initial: latch.initial.into(),
        left: end.map(|end| millis(end - lease)),
        waiters: count(tables, now, key, None),
    }))
}

/// CHECK of DLOCK, DFAIR and DRW (`kind`): whether `token` is that of a hold in force.
pub fn is_current(
    tables: &Tables,
    store: &mut dyn Store,
    now: Now,
    kind: Kind,
    key: Key<'_>,
    token: u64,
) -> Result<bool, WrongType> {
    let lease = tables.regime.lease(now.mono);
    let Some(resource) = look_up(tables, store, kind, key)? else { return Ok(false) };
    let candidates = [crate::base::ids::ALONE, HoldId::from(token)];
    let held = candidates.into_iter().filter_map(|id| resource.hold(id));
    Ok(held
        .filter(|hold| hold.token == token)
        .any(|hold| tables.hold_ends(resource, hold, lease) > lease))
}

/// WAITERS: the first `most` waiters in the order of the queue, also those that a hand-off passes.
pub fn waiters(
    tables: &Tables,
    store: &mut dyn Store,
    now: Now,
    kind: Kind,
    key: Key<'_>,
    most: usize,
) -> Result<Vec<WaiterInfo>, WrongType> {
    let found = look_up(tables, store, kind, key)?;
    if let Some(fair) = found.and_then(|resource| mirror_only(tables, resource)) {
        return Ok(fair.entries.values().take(most).map(|place| saved_row(place, now)).collect());
    }
    let queue = tables.waits.queue_of(key);
    let (waits, lease) = (&tables.waits, tables.regime.lease(now.mono));
    let waiters = queue.into_iter().flat_map(|queue| waits.walk(queue));
    let waiters = waiters.map(|(_, waiter)| waiter);
    let waiting = waiters.filter(|waiter| !waits.is_over(waiter, now.mono, lease));
    Ok(waiting.take(most).map(|waiter| rows::row(tables, waiter, now)).collect())
}

/// POSITION: 0 for a holder, else the position in the queue, counted from 1; `None` for neither. A waiter that also
/// holds gets its position.
pub fn position(
    tables: &Tables,
    store: &mut dyn Store,
    now: Now,
    kind: Kind,
    key: Key<'_>,
    owner: &[u8],
) -> Result<Option<usize>, WrongType> {
    let lease = tables.regime.lease(now.mono);
    let found = look_up(tables, store, kind, key)?;
    let holds = found.is_some_and(|resource| {
        let own = resource.holds_of(owner);
        own.map(|(_, hold)| hold).any(|hold| tables.hold_ends(resource, hold, lease) > lease)
    });
    let waits = &tables.waits;
    if let Some(fair) = found.and_then(|resource| mirror_only(tables, resource)) {
        let place = fair.entries.values().position(|place| *place.owner == *owner);
        return Ok(place.map(|ahead| ahead + 1).or_else(|| holds.then_some(0)));
    }
    let is_over = |waiter: &Waiter| waits.is_over(waiter, now.mono, lease);
    let place = waits.waiter_at(key, owner).filter(|&slot| !waits.get(slot).is_some_and(is_over));
    let ahead = |slot| waits.ahead_of(slot).filter(|waiter| !is_over(waiter)).count();
    Ok(place.map(|slot| ahead(slot) + 1).or_else(|| holds.then_some(0)))
}

/// The content of a key of the family `kind`.
pub(crate) fn look_up<'s>(
    tables: &Tables,
    store: &'s mut dyn Store,
    kind: Kind,
    key: Key<'_>,
) -> Result<Option<&'s Resource>, WrongType> {
    let waits = &tables.waits;
    let queue = waits.queue_of(key).and_then(|id| Some((id, waits.queue(id)?)));
    match store.get(key) {
        Lookup::Here(resource) if resource.kind() == kind => Ok(Some(resource)),
        // The waiters have said which family it is.
        Lookup::Missing if queue.is_none_or(|(_, q)| q.kind == kind || q.len == 0) => Ok(None),
        _ => Err(WrongType),
    }
}

/// The queue entries of a fair lock that are not waiters here: on a replica, and before a loaded key was first
/// opened. (Later they mirror waiters, of this key or of its former name.)
fn mirror_only<'r>(tables: &Tables, resource: &'r Resource) -> Option<&'r Fair> {
    let Body::Fair(fair) = &resource.body else { return None };
    let is_known = resource.key_id != KeyId::NONE && tables.is_in_epoch(resource);
    (tables.regime.role() == Role::Replica || !is_known).then_some(&**fair)
}

/// Number of waiters of `key`. Walks along the queue only if some of them may have timed out.
fn count(tables: &Tables, now: Now, key: Key<'_>, resource: Option<&Resource>) -> u64 {
    if let Some(fair) = resource.and_then(|resource| mirror_only(tables, resource)) {
        return fair.entries.len() as u64;
    }
    tables.waits.queue_of(key).map_or(0, |queue| tables.count_in(now, queue))
}

/// Number of observers of the hold of `key` with this token.
fn count_observers(tables: &Tables, now: Now, key: Key<'_>, token: u64) -> u64 {
    let observers = tables.waits.observers_of(key);
    let observers = observers.filter(|&id| tables.waits.observed(id) == Some(token));
    observers.map_or(0, |id| tables.count_in(now, id))
}

impl Tables {
    /// Number of waiters in a queue. Walks along the queue only if some of them may have timed out.
    fn count_in(&self, now: Now, queue: QueueId) -> u64 {
        let waits = &self.waits;
        let lease = self.regime.lease(now.mono);
        let is_due = waits.timeouts.next().is_some_and(|at| at <= now.mono.0)
            || waits.graces.next().is_some_and(|at| at <= lease.0);
        if is_due {
            let over = |waiter: &Waiter| waits.is_over(waiter, now.mono, lease);
            waits.walk(queue).filter(|(_, waiter)| !over(waiter)).count() as u64
        } else {
            waits.len_of(queue) as u64
        }
    }
}

/// The owner of the call for all of several keys that is first in the queue of `key`.
fn reserved_for(tables: &Tables, key: Key<'_>) -> Option<Vec<u8>> {
    let waits = &tables.waits;
    let first = waits.get(tables.first_in(waits.queue_of(key)?)?)?;
    let group = waits.group(first.group)?;
    (!group.takes_any).then(|| first.owner.to_vec())
}

fn holder_info(
    tables: &Tables,
    resource: &Resource,
    hold: &Hold,
    until: LeaseInstant,
    now: Now,
) -> HolderInfo {
    HolderInfo {
        owner: hold.owner.to_vec(),
        token: hold.token,
        holds: hold.count.into(),
        lease: millis(hold.lease_ms),
        left: millis(until - tables.regime.lease(now.mono)),
        held: held_for(hold, now),
        label: hold.label().to_vec(),
        bound_client: connection(tables.bound_client(resource, hold)),
    }
}

impl Tables {
    /// Whether something of a resource may have ended without being processed.
    fn may_have_ended(&self, resource: &Resource, lease: LeaseInstant) -> bool {
        !self.is_settled(resource)
            || self.connections.has_departed()
            || resource.next_end().is_some_and(|(at, _)| at <= lease)
    }

    /// The holds in force, with their ends.
    pub(crate) fn in_force<'r>(
        &self,
        resource: &'r Resource,
        lease: LeaseInstant,
    ) -> impl Iterator<Item = (HoldId, &'r Hold, LeaseInstant)> {
        let ends = move |(id, hold)| (id, hold, self.hold_ends(resource, hold, lease));
        resource.holds().map(ends).filter(move |(_, _, until)| *until > lease)
    }
}

fn millis(time: Millis) -> Duration {
    Duration::from_millis(time)
}

fn held_for(hold: &Hold, now: Now) -> Duration {
    millis(now.mono.0.saturating_sub(hold.since.0) / 1_000)
}

fn connection(client: u64) -> Option<u64> {
    (client != NO_CLIENT).then_some(client)
}
