//! FLUSHDB, FLUSHALL and SWAPDB, drained in portions.
//!
//! What a flush leaves behind is harmless. An entry without its key ends nothing, because the machine reads the key
//! before it ends anything. A binding to such an entry shortens nothing. So a flush walks over bindings, entries and
//! queues, a few at a time, and checks what each key holds by then. In a database without keys it need not check. This
//! spares the server's allocator a million strings while another thread frees as many values. A command on a key first
//! processes the queue of that key, if the flush has not reached it.
//!
//! SWAPDB moves the holds at once; the machine checks their queues in the same way. It also redirects earlier flushes
//! to the database that now has their data. The queues of a flush stay with the database number.

use crate::ids::{KeyId, QueueId};
use crate::key::{Key, Swap};
use crate::machine::Machine;
use crate::pending::flush::{Cause, Flush};
use crate::portions::Slots;
use crate::queues::waiter::Queue;
use crate::slab::SlabId;
use crate::state::hold::NO_CLIENT;
use crate::store::Lookup;
use crate::turn::Turn;

impl Machine {
    /// Whether a flush or a swap is not drained.
    pub(crate) fn is_flushing(&self) -> bool {
        !self.pending.flushes.is_empty()
    }

    /// Whether a flush or a swap still has to check a queue.
    pub(crate) fn is_before_flush(&self, id: QueueId, queue: &Queue) -> bool {
        self.pending.flushes.iter().any(|flush| id >= flush.queue && flush.is_of_queue(id, queue))
    }

    /// All keys of one database (`None`: of all) were removed.
    pub(crate) fn begin_flush(&mut self, db: Option<u32>) {
        if db.is_some_and(|db| self.has_nothing_in(db)) {
            return;
        }
        self.pending.flushes.push_back(Flush::new(
            &self.connections,
            &self.leases,
            &self.waits,
            Cause::Flush(db),
        ));
    }

    /// Whether the machine knows no key and no waiter of this database. Unknown while entries may have an old address.
    fn has_nothing_in(&self, db: u32) -> bool {
        let is_late = |flush: &Flush| matches!(flush.cause, Cause::Swap(_, true));
        self.leases.count_in(db) + self.waits.queues_in(db) == 0
            && !self.pending.flushes.iter().any(is_late)
    }

    /// Two databases were swapped.
    pub(crate) fn begin_swap(&mut self, swap: Swap, is_doubtful: bool) {
        if !is_doubtful {
            // Otherwise entries still have their old address.
            for flush in &mut self.pending.flushes {
                flush.swap(swap);
            }
            self.leases.swap_databases(swap);
        }
        self.swap_in_flight(swap);
        if !is_doubtful && self.has_nothing_in(swap.a) && self.has_nothing_in(swap.b) {
            return;
        }
        self.pending.flushes.push_back(Flush::new(
            &self.connections,
            &self.leases,
            &self.waits,
            Cause::Swap(swap, is_doubtful),
        ));
    }

    /// Whether an entry may name one of these databases while its value was in the other: a replica heard late of the
    /// exchange and has not drained it. Otherwise the entry of a moved value would pass for that of a lost value.
    pub(crate) fn may_be_exchanged(&self, one: u32, other: u32) -> bool {
        let is_late = |flush: &&Flush| matches!(flush.cause, Cause::Swap(_, true));
        let is_of =
            |db| self.pending.flushes.iter().filter(is_late).any(|flush| flush.is_of_data(db));
        is_of(one) && is_of(other)
    }

    /// Does one piece of the oldest flush that is not drained; `false` if there is none.
    pub(crate) fn flush_one(&mut self, turn: &mut Turn<'_>) -> bool {
        let Some(mut flush) = self.pending.flushes.pop_front() else { return false };
        let worked = if let Cause::Swap(..) = flush.cause {
            self.flush_next_queue(turn, &mut flush) || self.swap_entry(turn, &mut flush)
        } else {
            self.flush_binding(turn, &mut flush)
                || self.flush_entry(turn, &mut flush)
                || self.flush_next_queue(turn, &mut flush)
        };
        if worked {
            self.pending.flushes.push_front(flush);
        }
        true
    }

    /// Bindings come first. A removed entry can be given to another key, and the bindings of that key must stay.
    fn flush_binding(&mut self, turn: &mut Turn<'_>, flush: &mut Flush) -> bool {
        let Some(&client) = flush.clients.front() else { return false };
        let Some(bound) = self.connections.binding_after(client, flush.last_binding) else {
            flush.clients.pop_front();
            flush.last_binding = None;
            return true;
        };
        flush.last_binding = Some(bound);
        let is_there = self.leases.key_of(bound.key).is_some_and(|key| {
            !flush.is_of_data(key.db)
                || !turn.keys.is_empty(key.db)
                    && matches!(
                        turn.keys.get(key),
                        Lookup::Here(resource) if resource.key_id == bound.key
                            && resource.hold(bound.id).is_some_and(|hold| hold.bound_to() == client)
                    )
        });
        if !is_there && client != NO_CLIENT {
            self.connections.unbind(client, bound);
        }
        true
    }

    fn flush_entry(&mut self, turn: &mut Turn<'_>, flush: &mut Flush) -> bool {
        let is_over = match flush.cause {
            Cause::Flush(Some(db)) => self.leases.count_in(flush.now_in(db)) == 0,
            Cause::Flush(None) | Cause::Swap(..) => false,
        };
        if is_over || flush.next_key >= flush.key_bound {
            return false;
        }
        let id = flush.next_key;
        flush.next_key = id.following();
        if let Some(Key { db, .. }) = self.leases.key_of(id)
            && flush.is_of_data(db)
            && (turn.keys.is_empty(db) || !self.is_entry_of(turn, id, db))
            && !self.may_have_been_exchanged(turn, id)
        {
            self.leases.leave(id);
        }
        true
    }

    /// Whether the key of an entry is in database `db`.
    fn is_entry_of(&self, turn: &mut Turn<'_>, id: KeyId, db: u32) -> bool {
        self.leases.get(id).is_some_and(|entry| {
            let slot = turn.keys.get(Key { db, name: &entry.name });
            matches!(slot, Lookup::Here(resource) if resource.key_id == id)
        })
    }

    /// Whether the key of an entry is in the other database of a swap that still looks for entries.
    fn may_have_been_exchanged(&self, turn: &mut Turn<'_>, id: KeyId) -> bool {
        self.pending.flushes.iter().any(|flush| match flush.cause {
            Cause::Swap(Swap { a, b }, true) => {
                [a, b].iter().any(|&db| self.is_entry_of(turn, id, db))
            }
            Cause::Swap(..) | Cause::Flush(_) => false,
        })
    }

    /// Whether a flush of one of these databases is not drained.
    fn is_flushing_one_of(&self, databases: [u32; 2]) -> bool {
        let is_of = |flush: &Flush| databases.iter().any(|&db| flush.is_of_data(db));
        self.pending
            .flushes
            .iter()
            .any(|flush| matches!(flush.cause, Cause::Flush(_)) && is_of(flush))
    }

    /// Applies a swap to the next entry.
    fn swap_entry(&mut self, turn: &mut Turn<'_>, flush: &mut Flush) -> bool {
        let Cause::Swap(swap, is_doubtful) = flush.cause else { return false };
        if flush.next_key >= flush.key_bound {
            return false;
        }
        let id = flush.next_key;
        flush.next_key = id.following();
        let Some(entry) = self.leases.get(id) else { return true };
        let mut db = self.leases.database_of(entry);
        if !flush.is_of_data(db) {
            return true;
        }
        let name = entry.name.clone();
        // Entries of a fair lock's queue stay with the database number. A semaphore without permits may exist only for
        // its waiters.
        let minds = entry.kind.has_durable_queue() && entry.permits == 0;
        if is_doubtful && !self.is_entry_of(turn, id, db) {
            let other = Swap { a: flush.now_in(swap.a), b: flush.now_in(swap.b) }.target_of(db);
            if !self.is_entry_of(turn, id, other) && self.is_flushing_one_of([db, other]) {
                // It does not matter which of the two was flushed: the value is in neither.
                self.leases.leave(id);
                return true;
            }
            db = other;
            self.leases.rename(id, Key { db, name: &name });
        }
        if minds && self.regime.is_primary() {
            self.pending.revisit.push_back((db, name.to_vec()));
        }
        true
    }

    fn flush_next_queue(&mut self, turn: &mut Turn<'_>, flush: &mut Flush) -> bool {
        if flush.queue >= flush.queue_bound {
            return false;
        }
        let id = flush.queue;
        flush.queue = id.following();
        if self.waits.queue(id).is_some_and(|queue| flush.is_of_queue(id, queue)) {
            self.flush_queue(turn, id, flush);
        }
        true
    }

    /// Before an operation on a key: applies flushes and swaps to its waiters.
    pub(crate) fn see_to_flush_of(&mut self, turn: &mut Turn<'_>, key: Key<'_>) {
        for at in 0..self.pending.flushes.len() {
            // Each of them may have replaced the queue.
            let Some(id) = self.waits.queue_of(key) else { return };
            let Some(queue) = self.waits.queue(id) else { return };
            let Some(flush) = self.pending.flushes.get(at) else { return };
            if id < flush.queue || !flush.is_of_queue(id, queue) {
                continue;
            }
            let Some(mut flush) = self.pending.flushes.remove(at) else { return };
            self.flush_queue(turn, id, &mut flush);
            self.pending.flushes.insert(at, flush);
        }
    }

    fn flush_queue(&mut self, turn: &mut Turn<'_>, id: QueueId, flush: &mut Flush) {
        let Some(queue) = self.waits.queue(id) else { return };
        let (kind, db, name) = (queue.kind, queue.db, queue.name.clone());
        let key = Key { db, name: &name };
        if matches!(flush.cause, Cause::Swap(..)) || queue.observes {
            flush.seen.insert(id);
            self.inspect(turn, id);
            return;
        }
        // Waiters without a connection end with the holds of the database.
        for slot in self.waits.absent_in(id).collect::<Slots>() {
            self.remove_waiter(slot);
        }
        let was = Key { db: flush.now_in(db), name: &name };
        let is_gone = matches!(turn.keys.get(was), Lookup::Missing);
        if is_gone && self.regime.is_primary() {
            self.value_is_gone(kind, key, turn.fx);
        }
        // The queue may be another one now, with the waiters that are left.
        let Some(id) = self.waits.queue_of(key) else { return };
        self.inspect(turn, id);
        if is_gone && self.waits.queue(id).is_some() {
            // The flush does not cover calls that come from now on.
            self.waits.renew_serial(id);
        }
    }
}
