//! FLUSHDB and FLUSHALL, worked off in portions.
//!
//! What a flush leaves behind is harmless: an entry of a key that is gone ends nothing, because the key is looked at before
//! anything ends; a tie to such an entry cuts nothing. So a flush walks over ties, entries and queues, a few at a time, and
//! asks of each what its key holds by then; of a database without keys it need not ask, which spares the server's allocator a
//! million strings while it frees as many values on another thread. A command that names a key of which the flush has not seen the queue sees to that first.

use super::Machine;
use crate::effects::Effects;
use crate::hold::NO_CLIENT;
use crate::holds::HoldId;
use crate::lease::EntryId;
use crate::store::{Key, Slot, Store};
use alloc::collections::VecDeque;

/// A flush that is not worked off.
#[derive(Debug)]
pub(super) struct Flush {
    /// `None`: all databases.
    db: Option<u32>,
    /// Connections that have ties, and the last tie of the first of them that was looked at.
    clients: VecDeque<u64>,
    last_tie: Option<(EntryId, HoldId)>,
    /// The next entry, and where they ended when the flush came.
    entry: EntryId,
    entry_bound: EntryId,
    /// The next queue.
    queue: u32,
    queue_bound: u32,
    /// Queues with larger serial numbers are newer, or were looked at already.
    last_serial: u64,
}

impl Flush {
    pub(super) fn new(machine: &Machine, db: Option<u32>) -> Self {
        let tied = machine.connections.iter().filter(|(_, known)| !known.ties.is_empty());
        Self {
            db,
            clients: tied.map(|(client, _)| client).collect(),
            last_tie: None,
            entry: 0,
            entry_bound: machine.leases.bound(),
            queue: 0,
            queue_bound: machine.waits.queue_bound(),
            last_serial: machine.waits.last_serial(),
        }
    }

    fn is_of(&self, db: u32) -> bool {
        self.db.is_none_or(|flushed| flushed == db)
    }
}

impl Machine {
    /// Whether a flush is not worked off.
    pub(crate) fn is_flushing(&self) -> bool {
        !self.flushes.is_empty()
    }

    /// Does one piece of the oldest flush that is not worked off; `false` if there is none.
    pub(super) fn flush_one<S: Store>(&mut self, store: &mut S, fx: &mut Effects) -> bool {
        let Some(mut flush) = self.flushes.pop_front() else { return false };
        let worked = self.flush_tie(store, &mut flush)
            || self.flush_entry(store, &mut flush)
            || self.flush_next_queue(store, &mut flush, fx);
        if worked {
            self.flushes.push_front(flush);
        }
        true
    }

    /// Ties first: an entry that is taken out can be given to another key, whose ties are not lost.
    fn flush_tie<S: Store>(&mut self, store: &mut S, flush: &mut Flush) -> bool {
        let Some(&client) = flush.clients.front() else { return false };
        let Some((entry, id)) = self.connections.tie_after(client, flush.last_tie) else {
            flush.clients.pop_front();
            flush.last_tie = None;
            return true;
        };
        flush.last_tie = Some((entry, id));
        let is_there = self.leases.get(entry).is_some_and(|found| {
            !flush.is_of(found.db)
                || !store.is_empty(found.db)
                    && matches!(
                        store.get(Key { db: found.db, name: &found.name }),
                        Slot::Here(resource) if resource.entry == entry
                            && resource.hold(id).is_some_and(|hold| hold.tied_to() == client)
                    )
        });
        if !is_there && client != NO_CLIENT {
            self.connections.untie(client, entry, id);
        }
        true
    }

    fn flush_entry<S: Store>(&mut self, store: &mut S, flush: &mut Flush) -> bool {
        if flush.entry >= flush.entry_bound {
            return false;
        }
        let id = flush.entry;
        flush.entry += 1;
        if let Some(entry) = self.leases.get(id)
            && flush.is_of(entry.db)
            && (store.is_empty(entry.db)
                || !matches!(
                    store.get(Key { db: entry.db, name: &entry.name }),
                    Slot::Here(resource) if resource.entry == id
                ))
        {
            self.leases.leave(id);
        }
        true
    }

    fn flush_next_queue<S: Store>(
        &mut self,
        store: &mut S,
        flush: &mut Flush,
        fx: &mut Effects,
    ) -> bool {
        if flush.queue >= flush.queue_bound {
            return false;
        }
        let id = flush.queue;
        flush.queue += 1;
        let is_left = |queue: &crate::queue::Queue| {
            flush.is_of(queue.db) && queue.serial <= flush.last_serial && !queue.is_dropped
        };
        if self.waits.queue(id).is_some_and(is_left) {
            self.flush_queue(store, id, fx);
        }
        true
    }

    /// Before something is done to a key: what a flush means to those who wait for it.
    pub(super) fn see_to_flush_of<S: Store>(
        &mut self,
        store: &mut S,
        key: Key<'_>,
        fx: &mut Effects,
    ) {
        let Some(id) = self.waits.queue_of(key) else { return };
        let Some(queue) = self.waits.queue(id) else { return };
        let serial = queue.serial;
        let is_left =
            |flush: &Flush| flush.is_of(key.db) && id >= flush.queue && serial <= flush.last_serial;
        if self.flushes.iter().any(is_left) {
            self.flush_queue(store, id, fx);
        }
    }

    fn flush_queue<S: Store>(&mut self, store: &mut S, id: u32, fx: &mut Effects) {
        let Some(queue) = self.waits.queue(id).filter(|queue| queue.is_live()) else { return };
        let (kind, db, name) = (queue.kind, queue.db, queue.name.clone());
        let key = Key { db, name: &name };
        let is_gone = matches!(store.get(queue.key()), Slot::Missing);
        if is_gone && self.role == super::Role::Primary {
            self.value_is_gone(kind, key, fx);
        }
        // It may be another one now, of those who are left.
        let Some(id) = self.waits.queue_of(key) else { return };
        self.look_at(store, id, fx);
        if is_gone && self.waits.queue(id).is_some() {
            // Calls that come from now on have nothing to do with the flush.
            self.waits.renew_serial(id);
        }
    }
}
