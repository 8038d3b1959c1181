//! The wait tables of the time before a demotion.

use crate::connection::Connections;
use crate::effects::Outcome;
use crate::ids::WaiterSlot;
use crate::queues::WaitQueues;
use dlock_wire::reply::ErrorCode;

/// The wait tables of the time before a demotion.
#[derive(Debug)]
pub(crate) struct Former {
    pub waits: WaitQueues,
    pub connections: Connections,
    /// The next slot whose waiter needs an answer.
    pub next: WaiterSlot,
}

impl Former {
    /// The slot of the blocked call on a connection.
    pub fn call_of(&self, client: u64) -> Option<WaiterSlot> {
        let call = self.connections.get(client)?.parked?;
        self.waits.by_id(call).map(|_| call.slot())
    }
}

/// The answer to blocked calls from before a demotion.
pub(crate) fn sent_away() -> Outcome {
    Outcome::fault(ErrorCode::Moving, "this server became a replica; ask the new primary")
}
