//! Connections that are active again, or no longer: whether their waiters are served.

use crate::kind::Kind;
use crate::machine::Machine;
use crate::portions::Slots;
use crate::turn::Turn;

impl Machine {
    /// A dlock command came over `client`: its waiters count again if they were skipped.
    pub fn mark_active(&mut self, turn: &mut Turn<'_>, client: u64) {
        // A grant that expired before this command, and is found only now, must not mark the connection unresponsive
        // again.
        while self.connections.rouse(client) && self.regime.is_primary() {
            self.serve_places_of(turn, client);
        }
    }

    pub(crate) fn serve_places_of(&mut self, turn: &mut Turn<'_>, client: u64) {
        self.stall_places_of(client, false);
        self.work_off_stalled(turn);
    }

    /// Marks the queues dirty in which a connection has waiters: the first of them now, and the rest in the tick. With
    /// `wide_only` it leaves out queues of locks for one holder.
    pub(crate) fn stall_places_of(&mut self, client: u64, wide_only: bool) {
        self.pending.to_stall.retain(|&(other, ..)| other != client);
        self.pending.to_stall.push_front((client, 0, wide_only));
        self.stall_more_places();
    }

    /// Whether some of those queues are left.
    pub(crate) fn has_places_to_stall(&self) -> bool {
        !self.pending.to_stall.is_empty()
    }

    /// Continues with that; `false` if nothing is left.
    pub(crate) fn stall_more_places(&mut self) -> bool {
        let Some((client, from, wide_only)) = self.pending.to_stall.pop_front() else {
            return false;
        };
        let Some(connection) = self.connections.get(client) else { return true };
        let mut places = connection.places.range(from..).copied();
        let some: Slots = places.by_ref().take(self.wide_at_once).collect();
        if let Some(next) = places.next() {
            self.pending.to_stall.push_back((client, next, wide_only));
        }
        for slot in some {
            let Some(queue) = self.waits.get(slot).map(|waiter| waiter.queue) else { continue };
            let kind = self.waits.queue(queue).map(|queue| queue.kind);
            if !wide_only || matches!(kind, Some(Kind::Rw | Kind::Semaphore)) {
                self.waits.stall(queue);
            }
        }
        true
    }
}
