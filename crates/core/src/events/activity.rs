//! Connections that are active again, or no longer: whether their waiters are served.

use crate::events::keyspace;
use crate::ids::WaiterSlot;
use crate::kind::Kind;
use crate::pending::Pending;
use crate::portions::Slots;
use crate::slab::SlabId;
use crate::tables::Tables;
use crate::turn::Turn;

/// A dlock command came over `client`: its waiters count again if they were skipped.
pub(crate) fn mark_active(tables: &mut Tables, turn: &mut Turn<'_>, client: u64) {
    // A grant that expired before this command, and is found only now, must not mark the connection unresponsive
    // again.
    while tables.connections.mark_active(client) && tables.regime.is_primary() {
        serve_waiters_of(tables, turn, client);
    }
}

pub(crate) fn serve_waiters_of(tables: &mut Tables, turn: &mut Turn<'_>, client: u64) {
    tables.mark_queues_dirty(client, false);
    keyspace::drain_dirty(tables, turn);
}

impl Tables {
    /// Marks the queues dirty in which a connection has waiters: the first of them now, and the rest in the tick. With
    /// `wide_only` it leaves out queues of locks for one holder.
    pub(crate) fn mark_queues_dirty(&mut self, client: u64, wide_only: bool) {
        self.pending.to_mark_dirty.retain(|&(other, ..)| other != client);
        self.pending.to_mark_dirty.push_front((client, WaiterSlot::FIRST, wide_only));
        self.mark_more_dirty();
    }
}

impl Pending {
    /// Whether some of those queues are left.
    pub(crate) fn has_queues_to_mark(&self) -> bool {
        !self.to_mark_dirty.is_empty()
    }
}

impl Tables {
    /// Continues with that; `false` if nothing is left.
    pub(crate) fn mark_more_dirty(&mut self) -> bool {
        let Some((client, from, wide_only)) = self.pending.to_mark_dirty.pop_front() else {
            return false;
        };
        let Some(connection) = self.connections.get(client) else { return true };
        let mut waiters = connection.waiters.range(from..).copied();
        let some: Slots = waiters.by_ref().take(self.wide_at_once).collect();
        if let Some(next) = waiters.next() {
            self.pending.to_mark_dirty.push_back((client, next, wide_only));
        }
        for slot in some {
            let Some(queue) = self.waits.get(slot).map(|waiter| waiter.queue) else { continue };
            let kind = self.waits.queue(queue).map(|queue| queue.kind);
            if !wide_only || matches!(kind, Some(Kind::Rw | Kind::Semaphore)) {
                self.waits.mark_dirty(queue);
            }
        }
        true
    }
}
