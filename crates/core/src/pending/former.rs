//! The wait tables of the time before a demotion.

use crate::connection::Connections;
use crate::effects::Outcome;
use crate::ids::{QueueId, WaiterSlot};
use crate::queues::WaitQueues;
use crate::queues::waiter::Waiter;
use alloc::collections::BTreeMap;
use dlock_wire::reply::ErrorCode;

/// The wait tables of the time before a demotion.
#[derive(Debug)]
pub(crate) struct Former {
    pub waits: WaitQueues,
    pub connections: Connections,
    /// The answers that queues had already.
    pub answered: BTreeMap<QueueId, Outcome>,
    /// The next slot whose waiter needs an answer.
    pub next: WaiterSlot,
}

impl Former {
    pub fn answer_of(&self, waiter: &Waiter) -> Outcome {
        let text = "this server became a replica; ask the new primary";
        let answer = self.answered.get(&waiter.queue).cloned();
        answer.unwrap_or_else(|| Outcome::fault(ErrorCode::Moving, text))
    }

    /// The slot of the blocked call on a connection.
    pub fn call_of(&self, client: u64) -> Option<WaiterSlot> {
        let call = self.connections.get(client)?.parked?;
        self.waits.by_id(call).map(|_| call.slot())
    }
}
