//! Work that is left to later turns, and grants that are not known to have arrived: plain data.

pub(crate) mod former;
pub(crate) mod in_flight;
pub(crate) mod removed;

use crate::base::ids::{WaiterId, WaiterSlot};
use crate::tables::pending::former::Former;
use crate::tables::pending::removed::{Broken, Deleted};
use crate::value::debris::Debris;
use alloc::collections::VecDeque;
use alloc::vec::Vec;

/// Work left to later turns: the tick does it in portions.
#[derive(Debug, Default)]
pub(crate) struct Pending {
    /// Calls for several keys that may be grantable.
    pub ready_groups: VecDeque<WaiterId>,
    /// Keys to check because their value came from elsewhere with queue entries in it: homes and names.
    pub revisit: VecDeque<(u32, Vec<u8>)>,
    /// Waiters from before this server became a replica, not answered yet.
    pub former: VecDeque<Former>,
    /// Connections whose waiters count again, or no longer count: their queues must be checked, from the queue of this
    /// waiter on. With `true`, queues of locks for one holder are left out.
    pub to_mark_dirty: VecDeque<(u64, WaiterSlot, bool)>,
    /// Deleted values whose holds are not all told, oldest first.
    pub deleted: VecDeque<Deleted>,
    /// Readers that were broken and for which something is left to do, oldest first.
    pub broken: VecDeque<Broken>,
    /// Former tables whose memory is freed piece by piece.
    pub debris: VecDeque<Debris>,
}

impl Pending {
    /// Whether some of those queues are left.
    pub(crate) fn has_queues_to_mark(&self) -> bool {
        !self.to_mark_dirty.is_empty()
    }
}
