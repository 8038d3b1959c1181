//! Keys with a durable queue. A fair lock saves its queue. A semaphore made by LIMIT is removed when no client needs it
//! any more.

use crate::base::ids::QueueId;
use crate::base::kind::Kind;
use crate::step::Step;
use crate::tables::Tables;
use crate::tables::queues::WaitQueues;
use crate::tables::queues::waiter::{NewWaiter, Position, WaitState};
use crate::value::fair::Fair;
use crate::value::hold::NO_CLIENT;
use crate::value::resource::{Body, Resource};

impl Step<'_> {
    /// Updates the value of a key from its queue.
    pub(crate) fn sync_queue(&mut self, resource: &mut Resource) {
        if !self.tables.regime.is_primary() {
            return;
        }
        let queue = self.tables.waits.queue_of(self.key);
        if !self.tables.regime.accepts_writes() {
            // The rest is a write, which has to wait.
            if let Some(queue) = queue {
                self.tables.waits.mark_dirty(queue);
            }
            return;
        }
        match &mut resource.body {
            Body::Fair(fair) => {
                self.tables.waits.mirror(queue, fair);
                self.dirty |= !fair.touched.is_empty();
            }
            Body::Semaphore(semaphore) => {
                let is_awaited =
                    queue.and_then(|id| self.tables.waits.queue(id)).is_some_and(|q| q.len > 0);
                if semaphore.is_passing && semaphore.is_unused() && !is_awaited {
                    semaphore.capacity = 0;
                    self.dirty = true;
                }
            }
            Body::Lock(_) | Body::Rw(_) | Body::Latch(_) => {}
        }
        if let Some(queue) = queue {
            self.tables.waits.close_if_empty(queue);
        }
    }
}

impl WaitQueues {
    /// Copies the queue of a key into its fair lock. It copies the changes, or all entries if the value or the queue is
    /// not the one of the last copy (DEL, RENAME, SWAPDB).
    fn mirror(&mut self, queue: Option<QueueId>, fair: &mut Fair) {
        let Some(queue) = queue else {
            drop_entries_of(fair);
            fair.mirrors = 0;
            return;
        };
        let serial = self.queue(queue).map_or(0, |queue| queue.serial);
        let unsaved = self.take_unsaved(queue);
        if fair.mirrors != serial {
            drop_entries_of(fair);
            let waiters = self.walk(queue).map(|(_, waiter)| waiter);
            fair.entries = waiters.map(|waiter| (waiter.seq, waiter.entry.clone())).collect();
            fair.touched.extend(fair.entries.keys());
            // If a value that mirrored this queue earlier comes back, it must not pass for this one.
            fair.mirrors = self.renew_serial(queue);
            return;
        }
        for (seq, slot) in unsaved {
            let waiter = self.get(slot);
            let waiter = waiter.filter(|waiter| waiter.queue == queue && waiter.seq == seq);
            let is_news = match waiter {
                Some(waiter) => {
                    fair.entries.insert(seq, waiter.entry.clone());
                    true
                }
                None => fair.entries.remove(&seq).is_some(),
            };
            if is_news {
                fair.touched.push(seq);
            }
        }
    }
}

impl Step<'_> {
    /// Turns the entries of a fair lock into waiters without a connection. The lock was loaded, or belonged to a
    /// primary that is gone. Their graces start when this server takes writes, or at the end of its quarantine: no
    /// owner could ask again earlier.
    pub(crate) fn adopt_entries(&mut self, resource: &mut Resource) {
        let Body::Fair(fair) = &mut resource.body else { return };
        let queue = self.tables.waits.queue_of(self.key).and_then(|id| self.tables.waits.queue(id));
        if queue.is_some_and(|queue| queue.serial == fair.mirrors) {
            return;
        }
        let from = self.lease + self.tables.regime.quarantine_left(self.now.mono);
        for (seq, place) in core::mem::take(&mut fair.entries) {
            if self.tables.waits.waiter_at(self.key, &place.owner).is_some() {
                // The owner has asked again since, and waits already.
                fair.touched.push(seq);
                continue;
            }
            let grace_ms = place.ask.queue_ms.unwrap_or(self.tables.settings.fair_grace_ms);
            let new_waiter = NewWaiter {
                entry: place.clone(),
                client: NO_CLIENT,
                wait_state: WaitState::Disconnected { until: from + grace_ms },
                position: Position::Numbered(seq),
            };
            let slot = self.tables.waits.join(self.key, Kind::Fair, new_waiter);
            let new_seq = self.tables.waits.get(slot).map_or(seq, |waiter| waiter.seq);
            if new_seq != seq {
                fair.touched.extend([seq, new_seq]);
            }
            fair.entries.insert(new_seq, place);
        }
        let Some(queue) = self.tables.waits.queue_of(self.key) else { return };
        // If other waiters were here before, all entries are written again.
        if self.tables.waits.queue(queue).is_some_and(|queue| queue.len == fair.entries.len()) {
            self.tables.waits.take_unsaved(queue);
            // Another value may have mirrored this queue and come back.
            fair.mirrors = self.tables.waits.renew_serial(queue);
        }
        self.dirty |= !fair.touched.is_empty();
        self.tables.waits.mark_dirty(queue);
        self.tables.waits.note_holders(queue, resource, true);
    }
}

impl Tables {
    /// The key of a fair lock was deleted: queue entries without a blocked call end with it.
    pub(crate) fn drop_entries(&mut self, queue: QueueId) {
        for slot in self.waits.waiters_of(queue) {
            if self.waits.get(slot).is_some_and(|waiter| !waiter.wait_state.is_parked()) {
                self.remove_waiter(slot);
            }
        }
    }
}

/// The value does not mirror its queue any more, and has none of its entries.
fn drop_entries_of(fair: &mut Fair) {
    fair.touched.extend(core::mem::take(&mut fair.entries).into_keys());
}
