//! Waiters from before a demotion: their tables are kept until each blocked call has its answer.

use crate::base::ids::{WaiterId, WaiterSlot};
use crate::ports::effects::Outcome;
use crate::tables::connection::Connections;
use crate::tables::pending::Pending;
use crate::tables::queues::WaitQueues;
use dlock_wire::reply::ErrorCode;

/// The waiters of the time as a primary, and their connections.
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

impl Pending {
    /// Whether some waiters from before a demotion have no answer yet.
    pub(crate) fn has_former(&self) -> bool {
        !self.former.is_empty()
    }

    /// The call of a former waiter is over: it gets no answer.
    pub(crate) fn forget_former(&mut self, id: WaiterId) {
        for former in &mut self.former {
            if former.waits.by_id(id).is_some() {
                former.waits.strike(id.slot());
            }
        }
    }

    /// The connection of former waiters is gone, and with it their blocked call.
    pub(crate) fn former_client_gone(&mut self, client: u64) {
        for former in &mut self.former {
            if let Some(slot) = former.call_of(client) {
                former.waits.strike(slot);
            }
        }
    }
}
