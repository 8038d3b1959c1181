//! Keys with a durable queue. A fair lock saves its queue. A semaphore made by LIMIT is removed when no client needs it
//! any more.

use crate::ids::QueueId;
use crate::kind::Kind;
use crate::machine::Machine;
use crate::queues::waiter::{NewWaiter, Position, WaitState};
use crate::state::debris::Debris;
use crate::state::fair::Fair;
use crate::state::hold::NO_CLIENT;
use crate::state::resource::{Body, Resource};
use crate::turn::Step;
use alloc::collections::btree_map::Entry;

/// Number of queue entries that one step adds to a value, or lists as removed.
const ENTRIES_AT_ONCE: usize = 32;

impl Machine {
    /// Updates the value of a key from its queue.
    pub(crate) fn sync_queue(&mut self, step: &mut Step<'_>, resource: &mut Resource) {
        if !self.regime.is_primary() {
            return;
        }
        let queue = self.waits.queue_of(step.key);
        if !self.regime.accepts_writes() {
            // The rest is a write, which has to wait.
            if let Some(queue) = queue {
                self.waits.mark_dirty(queue);
            }
            return;
        }
        match &mut resource.body {
            Body::Fair(fair) => {
                self.adopt_some(fair, self.adopted_at_once());
                self.mirror(queue, fair);
                step.note_entries(fair);
                // The first waiters of a portion may have come to an empty queue.
                self.note_holders(step, resource);
            }
            Body::Semaphore(semaphore) => {
                let is_awaited =
                    queue.and_then(|id| self.waits.queue(id)).is_some_and(|q| q.len > 0);
                if semaphore.is_passing && semaphore.is_unused() && !is_awaited {
                    semaphore.capacity = 0;
                    step.dirty = true;
                }
            }
            Body::Lock(_) | Body::Rw(_) | Body::Latch(_) => {}
        }
        // Waiters can all leave while most entries are not waiters yet.
        if let Some(queue) = queue.filter(|&queue| self.waits.backlog_of(queue) == 0) {
            self.waits.close_if_empty(queue);
        }
    }

    /// Copies the queue of a key into its fair lock. It copies the changes, or all entries if the value or the queue is
    /// not the one of the last copy (DEL, RENAME, SWAPDB). Of very many entries each step copies some, and the tick
    /// continues. Entries not copied yet are lost if the process ends.
    fn mirror(&mut self, queue: Option<QueueId>, fair: &mut Fair) {
        let Some(queue) = queue else {
            self.leave_queue(fair);
            fair.mirrors = 0;
            return;
        };
        let serial = self.waits.queue(queue).map_or(0, |queue| queue.serial);
        let unsaved = self.waits.take_unsaved(queue);
        if fair.mirrors == serial {
            for (seq, slot) in unsaved {
                let waiter = self.waits.get(slot);
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
        } else {
            self.leave_queue(fair);
            self.waits.set_backlog(queue, 0);
            self.waits.tell_all(queue);
            // If a value that mirrored this queue earlier comes back, it must not pass for this one.
            fair.mirrors = self.waits.renew_serial(queue);
        }
        self.mirror_some(queue, fair);
    }

    /// Copies some waiters that the fair lock does not have yet.
    fn mirror_some(&mut self, queue: QueueId, fair: &mut Fair) {
        let mut left = ENTRIES_AT_ONCE.min(self.wide_at_once);
        while left > 0
            && let Some(slot) = self.waits.next_untold(queue)
        {
            let Some(waiter) = self.waits.get(slot) else { continue };
            left -= 1;
            // The waiter may have come, or changed, since.
            if let Entry::Vacant(vacant) = fair.entries.entry(waiter.seq) {
                vacant.insert(waiter.entry.clone());
                fair.touched.push(waiter.seq);
            }
        }
        if self.waits.is_unsaved(queue) {
            self.waits.mark_dirty(queue);
        }
    }

    /// The value does not mirror its queue any more, and has none of its entries.
    fn leave_queue(&mut self, fair: &mut Fair) {
        self.adopt_some(fair, usize::MAX);
        self.drop_mirrored(fair);
    }

    /// Unlinks the entries of a fair lock from every queue.
    fn drop_mirrored(&mut self, fair: &mut Fair) {
        let entries = core::mem::take(&mut fair.entries);
        if entries.len() <= ENTRIES_AT_ONCE.min(self.wide_at_once) {
            fair.touched.extend(entries.into_keys());
        } else {
            fair.needs_whole_record = true;
            let mut debris = Debris::default();
            debris.add(entries.into_iter());
            self.pending.debris.push_back(debris);
        }
    }

    /// Turns the entries of a fair lock into waiters without a connection. The lock was loaded, or belonged to a
    /// primary that is gone. Their graces start when this server takes writes, or at the end of its quarantine: no
    /// owner could ask again earlier.
    pub(crate) fn adopt_entries(&mut self, step: &mut Step<'_>, resource: &mut Resource) {
        let Body::Fair(fair) = &mut resource.body else { return };
        let queue = self.waits.queue_of(step.key).and_then(|id| self.waits.queue(id));
        if queue.is_some_and(|queue| queue.serial == fair.mirrors) {
            return;
        }
        let from = step.lease + self.quarantine_left(step.now.mono);
        let is_alone = queue.is_none_or(|queue| queue.len == 0);
        fair.backlog = None;
        if is_alone && fair.entries.len() > self.wide_at_once && has_room_behind(fair) {
            let queue = self.begin_backlog(step.key, fair, from);
            self.adopt_some(fair, self.adopted_at_once());
            self.waits.note_holders(queue, resource, true);
            return;
        }
        for (seq, place) in core::mem::take(&mut fair.entries) {
            if self.waits.waiter_at(step.key, &place.owner).is_some() {
                // The owner has asked again since, and waits already.
                fair.touched.push(seq);
                continue;
            }
            let grace_ms = place.ask.queue_ms.unwrap_or(self.settings.fair_grace_ms);
            let new_waiter = NewWaiter {
                entry: place.clone(),
                client: NO_CLIENT,
                wait_state: WaitState::Disconnected { until: from + grace_ms },
                position: Position::Numbered(seq),
            };
            let slot = self.waits.join(step.key, Kind::Fair, new_waiter);
            let new_seq = self.waits.get(slot).map_or(seq, |waiter| waiter.seq);
            if new_seq != seq {
                fair.touched.extend([seq, new_seq]);
            }
            fair.entries.insert(new_seq, place);
        }
        let Some(queue) = self.waits.queue_of(step.key) else { return };
        self.waits.set_backlog(queue, 0);
        // If other waiters were here before, all entries are written again.
        if self.waits.queue(queue).is_some_and(|queue| queue.len == fair.entries.len()) {
            self.waits.take_unsaved(queue);
            // Another value may have mirrored this queue and come back.
            fair.mirrors = self.waits.renew_serial(queue);
        }
        step.dirty |= !fair.touched.is_empty();
        self.waits.mark_dirty(queue);
        self.waits.note_holders(queue, resource, true);
    }

    /// The key of a fair lock was deleted: queue entries without a blocked call end with it.
    pub(crate) fn drop_entries(&mut self, queue: QueueId) {
        self.waits.set_backlog(queue, 0);
        for slot in self.waiters_of(queue) {
            if self.waits.get(slot).is_some_and(|waiter| !waiter.wait_state.is_parked()) {
                self.remove_waiter(slot);
            }
        }
    }
}

/// Whether the sequence numbers of all entries leave room for later ones.
fn has_room_behind(fair: &Fair) -> bool {
    fair.entries.last_key_value().is_some_and(|(seq, _)| *seq < crate::queues::SEQ_MOST)
}
