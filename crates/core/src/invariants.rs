//! What must hold after every step. Tests, the simulator and debug builds check it; each check has
//! a sentence.

use crate::hold::NO_CLIENT;
use crate::lease::NO_ENTRY;
use crate::machine::{Machine, Role};
use crate::queue::Presence;
use crate::resource::Lock;
use crate::store::{Slot, Store};
use crate::time::Now;
use alloc::format;
use alloc::string::String;

impl Machine {
    /// The first sentence that does not hold, if any.
    ///
    /// Costs a walk over everything: for tests.
    pub fn broken_invariant<S: Store>(&self, store: &mut S, now: Now) -> Option<String> {
        self.check_queues().and_then(|()| self.check_keys(store, now)).err()
    }

    fn check_queues(&self) -> Result<(), String> {
        let waits = self.waits();
        let (mut seen, mut parked) = (0, 0);
        for (id, queue) in waits.queues() {
            let mut len = 0;
            for (slot, waiter) in waits.walk(id) {
                len += 1;
                let owner = &waiter.owner;
                ensure(waiter.queue == id, || format!("{owner:?} stands in the queue it names"))?;
                ensure(waits.place_of(id, owner) == Some(slot), || {
                    format!("the one place of {owner:?} is found by its name")
                })?;
                ensure(waits.by_id(waiter.id).is_some(), || format!("{owner:?} is found by id"))?;
                let is_parked = matches!(waiter.presence, Presence::Parked { .. });
                parked += usize::from(is_parked);
                let is_absent = matches!(waiter.presence, Presence::Absent { .. });
                ensure(is_absent == (waiter.client == NO_CLIENT), || {
                    format!("{owner:?} is absent exactly if it has no connection")
                })?;
                let connection = self.connections().get(waiter.client);
                let listed = connection.is_some_and(|known| known.places.contains(&slot));
                ensure(is_absent || listed, || format!("the connection of {owner:?} knows it"))?;
                let blocked = connection.is_some_and(|known| known.parked == Some(slot));
                ensure(is_parked == blocked, || {
                    format!("the connection of {owner:?} knows whether it is blocked on it")
                })?;
                let limited = matches!(waiter.presence, Presence::Parked { until: Some(_) });
                ensure(waits.timeouts.deadline(slot).is_some() == limited, || {
                    format!("the wait of {owner:?} is armed exactly if it is limited")
                })?;
                ensure(waits.graces.deadline(slot).is_some() == is_absent, || {
                    format!("the grace of {owner:?} is armed exactly if it is absent")
                })?;
            }
            ensure(len == queue.len && len > 0, || format!("queue {id} counts its waiters"))?;
            ensure(waits.queue_of(queue.key()) == Some(id), || {
                format!("queue {id} is found by its key")
            })?;
            seen += len;
        }
        ensure(seen == waits.len(), || String::from("every waiter stands in a queue"))?;
        ensure(waits.count() == (parked, seen - parked), || {
            String::from("blocked and queued waiters are counted")
        })?;
        let places: usize = self.connections().iter().map(|(_, known)| known.places.len()).sum();
        let present = waits
            .queues()
            .flat_map(|(id, _)| waits.walk(id))
            .filter(|(_, waiter)| waiter.client != NO_CLIENT)
            .count();
        ensure(places == present, || String::from("connections know no place that is gone"))
    }

    fn check_keys<S: Store>(&self, store: &mut S, now: Now) -> Result<(), String> {
        let leases = self.leases();
        let mut held = 0;
        for id in 0..leases.bound() {
            let Some(entry) = leases.get(id) else { continue };
            held += usize::from(entry.held);
            let key = crate::store::Key { db: entry.db, name: &entry.name };
            let Slot::Here(resource) = store.get(key) else { continue };
            if resource.entry != id {
                continue;
            }
            ensure(resource.is_held() == entry.held, || {
                format!("the entry of {:?} knows whether it is held", entry.name)
            })?;
            ensure(!resource.is_free(), || format!("{:?} holds something", entry.name))?;
            if let Lock::Held(hold) = resource.lock() {
                ensure(hold.count >= 1, || format!("{:?} is held at least once", entry.name))?;
                ensure(hold.token <= self.tokens().last(), || {
                    format!("the token of {:?} was given by this server or learnt", entry.name)
                })?;
                let tied = self.bound_client(resource);
                let known = self.connections().get(tied).is_some_and(|c| c.ties.contains(&id));
                ensure(tied == NO_CLIENT || known, || {
                    format!("the connection that {:?} is tied to knows it", entry.name)
                })?;
            }
        }
        ensure(held == leases.held(), || String::from("held locks are counted"))?;
        let handing = self.role() == Role::Primary
            && self.quarantine_left(now.mono) == 0
            && !self.waits().has_stalled();
        for (id, queue) in self.waits().queues().filter(|_| handing) {
            let free = match store.get(queue.key()) {
                // A time to live can run out before the host removes the key and tells us.
                Slot::Missing => !(0..leases.bound())
                    .filter_map(|id| leases.get(id))
                    .any(|entry| entry.db == queue.db && *entry.name == *queue.name),
                Slot::Here(resource) => resource.entry != NO_ENTRY && resource.is_free(),
                Slot::Foreign => false,
            };
            let admitted = self.waits().walk(id).any(|(_, waiter)| {
                waiter.presence != Presence::Queued || !self.connections().is_hung(waiter.client)
            });
            ensure(!(free && admitted), || {
                format!("{:?} is not free while someone it admits waits", queue.name)
            })?;
        }
        Ok(())
    }
}

fn ensure(holds: bool, sentence: impl FnOnce() -> String) -> Result<(), String> {
    if holds { Ok(()) } else { Err(sentence()) }
}
