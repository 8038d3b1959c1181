//! Queues with durable entries that are not waiters yet (see [`Backlog`](crate::state::fair::Backlog)), and the
//! positions at which waiters join.

use super::WaitQueues;
use crate::ids::{QueueId, WaiterSlot};
use crate::key::Key;
use crate::kind::Kind;
use crate::queues::waiter::HashKeys;

impl WaitQueues {
    /// Notes how many durable entries of a queue are not waiters yet.
    pub fn set_backlog(&mut self, queue: QueueId, count: usize) {
        match count {
            0 => self.backlogs.remove(&queue),
            _ => self.backlogs.insert(queue, count),
        };
    }

    /// Number of durable entries of a queue that are not waiters yet.
    pub fn backlog_of(&self, queue: QueueId) -> usize {
        self.backlogs.get(&queue).copied().unwrap_or(0)
    }

    /// The same of all queues.
    pub fn backlog(&self) -> usize {
        self.backlogs.values().sum()
    }

    /// The queues that have such entries.
    pub fn with_backlog(&self) -> impl Iterator<Item = QueueId> {
        self.backlogs.keys().copied()
    }

    /// Keys of the hash function of this process.
    pub fn hash_keys(&self) -> HashKeys {
        self.keys
    }

    /// The next waiters get larger sequence numbers than this one.
    pub fn reserve_seq(&mut self, seq: u64) {
        self.last_seq = self.last_seq.max(seq);
    }

    /// The queue of `key` for waiters of `kind`: a new one if there is none.
    pub fn queue_for(&mut self, key: Key<'_>, kind: Kind) -> QueueId {
        let mut queue = self.queue_of(key);
        if let Some(id) = queue.filter(|&id| self.queues.get(id).is_some_and(|q| q.kind != kind)) {
            // Left by waiters of another family, and not processed since.
            self.close_if_empty(id);
            queue = self.queue_of(key);
        }
        queue.unwrap_or_else(|| self.open_queue(key, kind))
    }

    /// The neighbours of a waiter with the sequence number `seq`, which must be unused.
    pub(super) fn gap_for(&self, queue: QueueId, seq: u64) -> (WaiterSlot, WaiterSlot) {
        let next = self.walk(queue).find(|(_, waiter)| waiter.seq > seq);
        match next {
            Some((slot, waiter)) => (waiter.prev, slot),
            None => (
                self.queues.get(queue).map_or(WaiterSlot::NONE, |queue| queue.tail),
                WaiterSlot::NONE,
            ),
        }
    }

    /// As [`WaitQueues::gap_for`]. The search begins at the waiter in slot `hint` if that is in front of the gap,
    /// or else at the end.
    pub(super) fn gap_near(
        &self,
        queue: QueueId,
        seq: u64,
        hint: WaiterSlot,
    ) -> (WaiterSlot, WaiterSlot) {
        let in_front = self.waiters.get(hint).filter(|w| w.queue == queue && w.seq < seq);
        if let Some(waiter) = in_front {
            let (mut prev, mut next) = (hint, waiter.next);
            while let Some(waiter) = self.waiters.get(next)
                && waiter.seq < seq
            {
                (prev, next) = (next, waiter.next);
            }
            return (prev, next);
        }
        let (mut prev, mut next) =
            (self.queues.get(queue).map_or(WaiterSlot::NONE, |queue| queue.tail), WaiterSlot::NONE);
        while let Some(waiter) = self.waiters.get(prev)
            && waiter.seq > seq
        {
            (next, prev) = (prev, waiter.prev);
        }
        (prev, next)
    }
}
