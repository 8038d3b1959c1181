//! The invariants after every step. Tests, the simulator and debug builds check them; each check has a sentence.

use crate::base::ids::{KeyId, QueueId, WaiterId, WaiterSlot};
use crate::base::key::Key;
use crate::base::kind::Kind;
use crate::base::time::Now;
use crate::ports::store::{Lookup, Store};
use crate::tables::Tables;
use crate::tables::lease::Entry;
use crate::tables::queues::waiter::{Queue, WaitState, Waiter};
use crate::tables::regime::Role;
use crate::value::hold::NO_CLIENT;
use crate::value::holds::Holds;
use crate::value::lock::Lock;
use crate::value::resource::{Body, Resource};
use crate::value::wait_request::Demand;
use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::String;

/// The first sentence that is false, if any.
///
/// O(n) in the whole state: for tests.
pub fn broken_invariant(tables: &Tables, store: &mut dyn Store, _now: Now) -> Option<String> {
    let observed = tables.log.broken_invariant().or_else(|| tables.latency.broken_invariant());
    let observed = observed.or_else(|| tables.waits.broken_share());
    if let Some(sentence) = observed {
        return Some(sentence.into());
    }
    check_queues(tables).and_then(|()| check_keys(tables, store)).err()
}

impl Tables {
    /// Whether no work is left that a waiter may wait for, as after a tick behind an open gate. A replica has none.
    pub fn has_served_all(&self) -> bool {
        let has_none = has_served(self)
            && !self.pending.has_removed()
            && self.pending.revisit.is_empty()
            && !self.regime.has_old_entries();
        has_none || self.regime.role() != Role::Primary
    }
}

fn has_served(tables: &Tables) -> bool {
    !tables.waits.has_dirty()
        && !tables.pending.has_queues_to_mark()
        && !tables.waits.has_unchecked()
        && !tables.connections.has_departed()
}

/// Whether no waiter can be granted anything.
fn has_handed_off(tables: &Tables) -> bool {
    tables.regime.role() == Role::Primary
        && tables.regime.quarantine_end().is_none()
        && !tables.regime.divergence.is_any()
        && has_served(tables)
}

fn check_queues(tables: &Tables) -> Result<(), String> {
    let waits = &tables.waits;
    let (mut seen, mut parked, mut members) = (0, 0, 0);
    for (id, queue) in waits.queues() {
        let (mut len, mut makers, mut absent, mut last_seq) = (0, 0, 0, 0);
        for (slot, waiter) in waits.walk(id) {
            len += 1;
            let owner = &waiter.owner;
            let limits = matches!(waiter.ask.demand, Demand::Permits { limit: Some(_), .. });
            makers += u32::from(limits && !waits.is_deserted(waiter));
            absent += usize::from(waits.is_deserted(waiter));
            ensure(waiter.seq > last_seq, || format!("{owner:?} stands behind who came first"))?;
            last_seq = waiter.seq;
            parked += usize::from(waiter.wait_state.is_parked());
            members += usize::from(waiter.wait_state == WaitState::GroupMember);
            check_waiter(tables, id, slot, waiter)?;
        }
        ensure(len == queue.len, || format!("queue {id} counts its waiters"))?;
        ensure(makers == queue.makers(), || format!("queue {id} counts its makers"))?;
        ensure(queue.is_deserted() == (absent == len), || format!("queue {id} counts its absent"))?;
        ensure(len > 0 || queue.matters_to_value(), || format!("queue {id} is not empty"))?;
        let listed = if queue.observes {
            waits.observers_of(queue.key())
        } else {
            waits.queue_of(queue.key())
        };
        ensure(listed == Some(id), || format!("queue {id} is found by its key"))?;
        seen += len;
    }
    let longest = waits.queues().map(|(_, queue)| queue.len).max();
    ensure(longest.unwrap_or(0) == waits.longest(), || {
        String::from("the length of the longest queue is known")
    })?;
    ensure(seen == waits.len(), || String::from("every waiter is in a queue"))?;
    ensure(waits.blocked_and_queued() == (parked, seen - parked - members), || {
        String::from("blocked and queued waiters are counted")
    })?;
    let known: usize = tables.connections.iter().map(|(_, known)| known.waiters.len()).sum();
    let present = waits
        .queues()
        .flat_map(|(id, _)| waits.walk(id))
        .filter(|(_, w)| w.client != NO_CLIENT && w.wait_state != WaitState::GroupMember)
        .count();
    ensure(known == present, || String::from("connections know no waiter that is gone"))?;
    let knows_none = tables.connections.is_empty() && !tables.connections.has_departed();
    ensure(tables.regime.role() == Role::Primary || knows_none, || {
        String::from("a replica knows no connections")
    })?;
    Ok(())
}

fn check_waiter(
    tables: &Tables,
    queue: QueueId,
    slot: WaiterSlot,
    waiter: &Waiter,
) -> Result<(), String> {
    let waits = &tables.waits;
    let owner = &waiter.owner;
    ensure(waiter.queue == queue, || format!("{owner:?} is in the queue it names"))?;
    ensure(owner.is_empty() || waits.waiter_of(queue, owner) == Some(slot), || {
        format!("the one place of {owner:?} is found by its name")
    })?;
    let own = || waits.waiters_of_owner(owner);
    ensure(owner.is_empty() || own().any(|(other, _)| other == slot), || {
        format!("the place of {owner:?} is among those of its owner")
    })?;
    ensure(waits.is_plural(waiter) == (own().nth(1).is_some() && !owner.is_empty()), || {
        format!("it is known whether {owner:?} has several waiters")
    })?;
    ensure(waits.by_id(waiter.id).is_some(), || format!("{owner:?} is found by id"))?;
    let is_member = waiter.wait_state == WaitState::GroupMember;
    let group = waits.group(waiter.group);
    ensure(group.is_some() == waiter.is_grouped(), || format!("the call of {owner:?} is known"))?;
    ensure(
        group.is_none_or(|group| {
            let is_first = group.members.first() == Some(&slot);
            group.members.contains(&slot) && is_first == waiter.wait_state.is_parked()
        }) && (group.is_some() || !is_member),
        || format!("{owner:?} has one blocked call for all of its keys"),
    )?;
    let is_parked = waiter.wait_state.is_parked();
    let is_absent = matches!(waiter.wait_state, WaitState::Disconnected { .. });
    ensure(is_absent == (waiter.client == NO_CLIENT), || {
        format!("{owner:?} is absent exactly if it has no connection")
    })?;
    let connection = tables.connections.get(waiter.client);
    let listed = connection.is_some_and(|known| known.waiters.contains(&slot));
    ensure(is_absent || listed != is_member, || format!("the connection of {owner:?} knows it"))?;
    let blocked = connection.is_some_and(|known| known.parked == Some(waiter.id));
    ensure(is_parked == blocked, || {
        format!("the connection of {owner:?} knows whether it is blocked on it")
    })?;
    let limited = matches!(waiter.wait_state, WaitState::Blocked { until: Some(_) });
    ensure(waits.timeouts.deadline(slot).is_some() == limited, || {
        format!("the wait of {owner:?} is armed exactly if it is limited")
    })?;
    ensure(waits.graces.deadline(slot).is_some() == is_absent, || {
        format!("the grace of {owner:?} is armed exactly if it is absent")
    })
}

fn check_keys(tables: &Tables, store: &mut dyn Store) -> Result<(), String> {
    let leases = &tables.leases;
    let (mut held, mut permits) = (0, 0);
    for (id, entry) in leases.iter() {
        held += entry.held();
        permits += entry.permits();
        let key = Key { db: leases.database_of(entry), name: &entry.name };
        let Lookup::Here(resource) = store.get(key) else { continue };
        if resource.key_id == id {
            check_resource(tables, entry, id, resource)?;
        }
    }
    ensure(held == leases.held() && permits == leases.permits(), || {
        String::from("holds and permits are counted")
    })?;
    ensure(tables.waits.lists_of_holders_are_whole(), || {
        String::from("the queues of a holder's keys are listed")
    })?;
    let awaited =
        |queue: &Queue| queue.len > 0 && !queue.observes && !tables.waits.is_unchecked(queue);
    for (id, queue) in tables.waits.queues().filter(|&(_, queue)| awaited(queue)) {
        if let Lookup::Here(resource) = store.get(queue.key())
            && matches!(queue.kind, Kind::Lock | Kind::Fair | Kind::Rw)
            && resource.kind() == queue.kind
        {
            for (_, hold) in resource.holds() {
                let is_known = tables.waits.knows_holder(id, &hold.owner);
                ensure(is_known || tables.waits.is_unlisted(id), || {
                    format!(
                        "the queue of {:?} has no entry for its holder {:?}",
                        queue.name, hold.owner
                    )
                })?;
            }
        }
    }
    let handing = has_handed_off(tables);
    let mut ready: BTreeMap<WaiterId, usize> = BTreeMap::new();
    for (id, queue) in tables.waits.queues().filter(|_| handing) {
        let entries = || {
            let keys = leases.iter().filter_map(|(id, _)| leases.key_of(id));
            keys.filter(|key| *key == queue.key())
        };
        if queue.observes {
            // The removal of a value may not be heard of yet: then its entry is left.
            let is_missing = matches!(store.get(queue.key()), Lookup::Missing);
            if entries().count() > usize::from(!is_missing) {
                continue;
            }
            let is_there = |token| {
                matches!(store.get(queue.key()), Lookup::Here(resource)
                        if resource.lock().hold().is_some_and(|hold| hold.token == token))
            };
            ensure(tables.waits.observed(id).is_some_and(is_there), || {
                format!("the observers of {:?} observe the hold in force", queue.name)
            })?;
            continue;
        }
        let first = tables.waits.walk(id).map(|(_, waiter)| waiter);
        let mut first = first.filter(|waiter| tables.counts(waiter));
        let Some(first) = first.next() else { continue };
        let is_unheard = || entries().next().is_some();
        let admitted = match store.get(queue.key()) {
            // A time to live can elapse before the server removes the key and reports it.
            Lookup::Missing if is_unheard() => false,
            Lookup::Missing => queue.kind != Kind::Semaphore || makes(first),
            Lookup::Here(resource) => resource.key_id != KeyId::NONE && admits(resource, first),
            Lookup::WrongType | Lookup::Elsewhere | Lookup::OutOfReach => false,
        };
        // A call for several keys may wait for another one.
        let group = tables.waits.group(first.group).filter(|group| !group.takes_any);
        let later = tables.pending.ready_groups.len();
        let members = group.map_or(1, |group| group.members.len() + later);
        let count = ready.entry(tables.waits.leader(first).id).or_default();
        *count += usize::from(admitted);
        ensure(*count < members, || {
            format!("{:?} is not free while someone it admits waits", queue.name)
        })?;
    }
    Ok(())
}

fn check_resource(
    tables: &Tables,
    entry: &Entry,
    id: KeyId,
    resource: &Resource,
) -> Result<(), String> {
    let name = &entry.name;
    // A payload can bring more than the entry counts.
    let leased = resource.leased().min(u32::MAX.into());
    ensure(resource.held() == entry.held() && leased == entry.permits(), || {
        format!("the entry of {name:?} knows how often it is held")
    })?;
    ensure(resource.kind() == entry.kind, || format!("the entry of {name:?} knows its kind"))?;
    ensure(!resource.is_free(), || format!("{name:?} holds something"))?;
    ensure(resource.others().is_none_or(Holds::is_consistent), || {
        format!("the holds of {name:?} are found by owner and end")
    })?;
    let is_armed = tables.leases.deadline(id).is_some() == resource.next_end().is_some();
    let runs = tables.regime.role() == Role::Primary && tables.is_in_epoch(resource);
    ensure(is_armed || !runs, || format!("the end of {name:?} is armed if it has one"))?;
    for (hold_id, hold) in resource.holds() {
        ensure(hold.count >= 1, || format!("{name:?} is held at least once"))?;
        ensure(hold.token <= tables.tokens.last(), || {
            format!("the token of {name:?} was given by this server or learnt")
        })?;
        let tied = tables.bound_client(resource, hold);
        let known = tables.connections.get(tied);
        let known = known
            .is_some_and(|known| known.bindings.contains(&tables.leases.hold_ref(id, hold_id)));
        ensure(tied == NO_CLIENT || known, || {
            format!("the connection that {name:?} is tied to knows it")
        })?;
    }
    match &resource.body {
        Body::Rw(rw) => {
            let writer = rw.lock.hold().map(|hold| &hold.owner);
            let mut readers = rw.readers.iter();
            let alone = writer.is_none_or(|w| readers.all(|(_, hold)| hold.owner == *w));
            ensure(alone, || format!("{name:?} has many readers or one writer"))
        }
        Body::Semaphore(semaphore) => {
            let counts = semaphore.permits.iter().map(|(_, hold)| u64::from(hold.count));
            ensure(counts.sum::<u64>() == semaphore.leased, || {
                format!("the leased permits of {name:?} are counted")
            })
        }
        Body::Fair(fair) => {
            let queue = tables.waits.queue_of(Key { db: tables.leases.database_of(entry), name });
            let Some(queue) = queue.and_then(|id| Some((id, tables.waits.queue(id)?))) else {
                let is_free = matches!(fair.lock, Lock::Free) && !fair.entries.is_empty();
                let is_handing = has_handed_off(tables) && tables.has_served_all();
                return ensure(!is_free || !is_handing, || {
                    format!("{name:?} is not free while its places are no queue")
                });
            };
            let is_mirror = fair.mirrors == queue.1.serial && !queue.1.is_unsaved();
            let waiters = tables.waits.walk(queue.0).map(|(_, w)| (w.seq, &w.owner));
            let saved = fair.entries.iter().map(|(seq, entry)| (*seq, &entry.owner));
            ensure(!is_mirror || waiters.eq(saved), || {
                format!("the entries of {name:?} are its queue")
            })
        }
        Body::Lock(_) | Body::Latch(_) => Ok(()),
    }
}

/// Whether a waiter's demand could be granted.
fn admits(resource: &Resource, waiter: &Waiter) -> bool {
    match (&resource.body, waiter.ask.demand) {
        (Body::Lock(_) | Body::Fair(_), _) => matches!(resource.lock(), Lock::Free),
        (Body::Rw(rw), Demand::Rw(mode)) => rw.admits(&waiter.owner, mode),
        (Body::Semaphore(semaphore), Demand::Permits { count: n, .. } | Demand::Taken(n)) => {
            semaphore.capacity > 0 && semaphore.available() >= i64::from(n)
        }
        _ => false,
    }
}

/// Whether a waiter makes the semaphore that it waits for.
fn makes(waiter: &Waiter) -> bool {
    matches!(waiter.ask.demand, Demand::Permits { count, limit: Some(limit), .. } if count <= limit)
}

fn ensure(holds: bool, sentence: impl FnOnce() -> String) -> Result<(), String> {
    if holds { Ok(()) } else { Err(sentence()) }
}
