//! Queues of observers: each beside the queue of a key's waiters, and about the hold of that key.

use crate::base::ids::{QueueId, WaiterSlot};
use crate::base::key::Key;
use crate::base::kind::Kind;
use crate::tables::queues::WaitQueues;
use crate::tables::queues::waiter::NewWaiter;

impl WaitQueues {
    /// The observers of the hold of `key`, if there are any.
    pub fn observers_of(&self, key: Key<'_>) -> Option<QueueId> {
        if self.observers == 0 {
            return None;
        }
        self.find_queue(key, true)
    }

    /// Adds an observer of the hold of `key` that has this token. All observers of a key observe the same hold.
    pub fn join_observers(
        &mut self,
        key: Key<'_>,
        kind: Kind,
        token: u64,
        new_waiter: NewWaiter,
    ) -> WaiterSlot {
        let queue = self.observers_of(key).unwrap_or_else(|| {
            let id = self.add_queue(key, kind, true);
            self.set_observed(id, token);
            id
        });
        self.join_queue(queue, new_waiter)
    }

    /// The token of the hold that a queue of observers is about.
    pub fn observed(&self, id: QueueId) -> Option<u64> {
        self.queues.get(id)?.more.as_ref().map(|more| more.observed)
    }

    /// FENCE has raised the token of the hold of `key`. (The observers may still be those of a hold that is not there
    /// any more.)
    pub fn raise_observed(&mut self, key: Key<'_>, from: u64, to: u64) {
        if let Some(id) = self.observers_of(key).filter(|&id| self.observed(id) == Some(from)) {
            self.set_observed(id, to);
        }
    }

    fn set_observed(&mut self, id: QueueId, token: u64) {
        if let Some(queue) = self.queues.get_mut(id) {
            queue.more.get_or_insert_default().observed = token;
        }
    }
}
