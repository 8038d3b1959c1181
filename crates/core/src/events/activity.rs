//! Connections that are active again, or no longer: whether their waiters are served.

use crate::ids::WaiterSlot;
use crate::kind::Kind;
use crate::machine::Machine;
use crate::portions::Slots;
use crate::slab::SlabId;
use crate::turn::Turn;

impl Machine {
    /// A dlock command came over `client`: its waiters count again if they were skipped.
    pub fn mark_active(&mut self, turn: &mut Turn<'_>, client: u64) {
        // A grant that expired before this command, and is found only now, must not mark the connection unresponsive
        // again.
        while self.connections.mark_active(client) && self.regime.is_primary() {
            self.serve_waiters_of(turn, client);
        }
    }

    pub(crate) fn serve_waiters_of(&mut self, turn: &mut Turn<'_>, client: u64) {
        self.mark_queues_dirty(client, false);
        self.drain_dirty(turn);
    }

    /// Marks the queues dirty in which a connection has waiters: the first of them now, and the rest in the tick. With
    /// `wide_only` it leaves out queues of locks for one holder.
    pub(crate) fn mark_queues_dirty(&mut self, client: u64, wide_only: bool) {
        self.pending.to_mark_dirty.retain(|&(other, ..)| other != client);
        self.pending.to_mark_dirty.push_front((client, WaiterSlot::FIRST, wide_only));
        self.mark_more_dirty();
    }

    /// Whether some of those queues are left.
    pub(crate) fn has_queues_to_mark(&self) -> bool {
        !self.pending.to_mark_dirty.is_empty()
    }

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
