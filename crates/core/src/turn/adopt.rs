//! Loaded queue entries become waiters in portions.
//!
//! A loaded fair lock can have 100,000 entries. Each step on its key adopts some of them, in order, and the tick
//! continues. The others are the *backlog* of the value. They keep their position: new waiters queue behind them, and
//! the machine grants nothing past them. A command of an owner in the backlog adopts the entry of that owner at once.

use crate::ids::{QueueId, WaiterSlot};
use crate::key::{Key, Swap};
use crate::kind::Kind;
use crate::machine::Machine;
use crate::queues::waiter::{NewWaiter, Position, WaitState};

use crate::state::fair::{Backlog, Fair, QueueEntry};
use crate::state::hold::NO_CLIENT;
use crate::state::resource::{Body, Resource};
use crate::store::{Lookup, Store};
use crate::time::LeaseInstant;
use crate::turn::Step;
use alloc::boxed::Box;
use alloc::collections::BTreeSet;
use alloc::sync::Arc;
use alloc::vec::Vec;
use hashbrown::HashMap;

/// Number of entries that one step adopts.
const ADOPTED_AT_ONCE: usize = 16;

impl Machine {
    /// Starts to adopt very many entries. The queue of the key must be empty; it is returned. Graces start at `from`.
    pub(crate) fn begin_backlog(
        &mut self,
        key: Key<'_>,
        fair: &mut Fair,
        from: LeaseInstant,
    ) -> QueueId {
        let queue = self.waits.queue_for(key, Kind::Fair);
        let end = fair.entries.last_key_value().map_or(0, |(&end, _)| end);
        self.waits.reserve_seq(end);
        self.waits.take_unsaved(queue);
        fair.mirrors = self.waits.renew_serial(queue);
        self.waits.set_backlog(queue, fair.entries.len());
        let (left, early) = (fair.entries.len(), BTreeSet::new());
        let by_owner = HashMap::with_hasher(self.waits.hash_keys());
        fair.backlog = Some(Box::new(Backlog {
            queue,
            next: 0,
            end,
            left,
            early,
            last: WaiterSlot::NONE,
            by_owner,
            from,
        }));
        queue
    }

    /// Adopts up to `most` entries of the backlog of a value, if it has one.
    pub(crate) fn adopt_some(&mut self, fair: &mut Fair, most: usize) {
        let Some(mut backlog) = fair.backlog.take() else { return };
        if !self.is_valid(&backlog, fair) {
            // The queue has ended since, and its entries with it.
            return;
        }
        let before = self.waits.take_unsaved(backlog.queue);
        for _ in 0..most {
            let Some((seq, entry)) = backlog.next_of(fair) else {
                backlog.left = 0;
                break;
            };
            backlog.next = seq + 1;
            if backlog.early.remove(&seq) {
                continue;
            }
            let last = backlog.last;
            if let Some(slot) = self.adopt_one(&mut backlog, seq, entry, last) {
                backlog.last = slot;
            } else {
                // A record of a replica can bring an owner twice.
                fair.entries.remove(&seq);
                fair.touched.push(seq);
            }
        }
        self.end_portion(backlog, before, fair);
    }

    /// Adopts the entry of an owner.
    pub(crate) fn adopt_owner(&mut self, resource: &mut Resource, owner: &[u8]) {
        let Body::Fair(fair) = &mut resource.body else { return };
        let Some(mut backlog) = fair.backlog.take() else { return };
        let is_known = self.waits.waiter_of(backlog.queue, owner).is_some();
        let found = if is_known { None } else { backlog.find(fair, owner) };
        let Some((seq, entry)) = found.filter(|_| self.is_valid(&backlog, fair)) else {
            fair.backlog = Some(backlog);
            return;
        };
        let before = self.waits.take_unsaved(backlog.queue);
        let queue = backlog.queue;
        backlog.early.insert(seq);
        self.adopt_one(&mut backlog, seq, entry, WaiterSlot::NONE);
        self.end_portion(backlog, before, fair);
        // It may be the only waiter.
        self.waits.note_holders(queue, resource, false);
    }

    /// Before a grant: ensures that the first waiter of a queue is in front of the backlog. Returns whether it had to
    /// adopt entries for that.
    pub(crate) fn adopt_first(
        &mut self,
        first: Option<WaiterSlot>,
        resource: &mut Resource,
    ) -> bool {
        let Body::Fair(fair) = &mut resource.body else { return false };
        let Some(backlog) = &fair.backlog else { return false };
        let first = first.and_then(|slot| self.waits.get(slot));
        if !self.is_valid(backlog, fair) || first.is_some_and(|first| first.seq < backlog.next) {
            return false;
        }
        self.adopt_some(fair, self.adopted_at_once());
        true
    }

    /// Number of entries that one step adopts.
    pub(crate) fn adopted_at_once(&self) -> usize {
        self.wide_at_once.min(ADOPTED_AT_ONCE)
    }

    /// Whether entries that are not waiters yet wait for this key.
    pub(crate) fn has_backlog(&self, key: Key<'_>) -> bool {
        self.waits.queue_of(key).is_some_and(|queue| self.waits.backlog_of(queue) > 0)
    }

    /// The value leaves its key: waiters stay with the name they asked for.
    pub(crate) fn adopt_rest(&mut self, resource: &mut Resource) {
        if let Body::Fair(fair) = &mut resource.body {
            self.adopt_some(fair, usize::MAX);
        }
    }

    /// Two databases were swapped: adopts the rest of each value that left its queue.
    pub(crate) fn adopt_swapped(&mut self, keys: &mut dyn Store, swap: Swap) {
        let queues: Vec<QueueId> = self.waits.with_backlog().collect();
        for queue in queues {
            let Some(name) = self.waits.queue(queue).map(|queue| queue.name.clone()) else {
                continue;
            };
            for db in [swap.a, swap.b] {
                if let Lookup::Here(resource) = keys.get(Key { db, name: &name }) {
                    self.adopt_rest(resource);
                }
            }
        }
    }

    /// The backlog of a value, if its queue is that of `key`.
    pub(crate) fn backlog_of<'r>(&self, resource: &'r Resource, key: Key<'_>) -> Option<&'r Fair> {
        let Body::Fair(fair) = &resource.body else { return None };
        let backlog = fair.backlog.as_ref()?;
        let is_of_key = self.waits.queue(backlog.queue).is_some_and(|queue| queue.key() == key);
        (is_of_key && self.is_valid(backlog, fair)).then_some(&**fair)
    }

    /// The end of the grace of an entry in a backlog.
    pub(crate) fn grace_of(&self, backlog: &Backlog, entry: &QueueEntry) -> LeaseInstant {
        backlog.from + entry.ask.queue_ms.unwrap_or(self.settings.fair_grace_ms)
    }

    /// Whether the queue of a backlog still is the one that the value mirrors.
    fn is_valid(&self, backlog: &Backlog, fair: &Fair) -> bool {
        let queue = self.waits.queue(backlog.queue);
        queue.is_some_and(|queue| queue.serial == fair.mirrors)
    }

    /// Returns the new waiter; `None` if the owner has one.
    fn adopt_one(
        &mut self,
        backlog: &mut Backlog,
        seq: u64,
        entry: Arc<QueueEntry>,
        hint: WaiterSlot,
    ) -> Option<WaiterSlot> {
        backlog.left -= 1;
        if self.waits.waiter_of(backlog.queue, &entry.owner).is_some() {
            return None;
        }
        let wait_state = WaitState::Disconnected { until: self.grace_of(backlog, &entry) };
        let queue = self.waits.queue(backlog.queue)?;
        let (db, name) = (queue.db, queue.name.clone());
        let (client, position) = (NO_CLIENT, Position::Saved(seq, hint));
        let new_waiter = NewWaiter { entry, client, wait_state, position };
        Some(self.waits.join(Key { db, name: &name }, Kind::Fair, new_waiter))
    }

    /// The value has the adopted entries already, so they are not news for it.
    fn end_portion(
        &mut self,
        backlog: Box<Backlog>,
        before: Vec<(u64, WaiterSlot)>,
        fair: &mut Fair,
    ) {
        self.waits.take_unsaved(backlog.queue);
        self.waits.put_unsaved(backlog.queue, before);
        self.waits.set_backlog(backlog.queue, backlog.left);
        self.waits.mark_dirty(backlog.queue);
        fair.backlog = Some(backlog).filter(|backlog| backlog.left > 0);
    }
}

impl Step<'_> {
    /// Notes a record if entries of the value changed.
    pub(crate) fn note_entries(&mut self, fair: &Fair) {
        self.dirty |= !fair.touched.is_empty() || fair.needs_whole_record;
    }
}
