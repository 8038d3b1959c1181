//! The arguments of a call that waits. Those of a fair lock's waiters are part of its value.

use crate::base::shares::User;
use crate::base::time::Millis;
use crate::value::hold::Notify;
use alloc::boxed::Box;
use dlock_wire::permit::PermitId;
use dlock_wire::request::Mode;

/// The demand of a waiter.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Demand {
    /// A lock.
    #[default]
    Lock,
    /// A read-write lock.
    Rw(Mode),
    /// Permits with an owner and a lease.
    Permits {
        /// Number of permits.
        count: u32,
        /// Make the semaphore with this number of permits if it is missing.
        limit: Option<u32>,
        /// The id of the new permits.
        id: PermitId,
    },
    /// This number of permits without an owner.
    Taken(u32),
    /// The opening of a latch.
    Open,
    /// The end of another owner's hold: see [`observes`](crate::tables::queues::waiter::Queue::observes).
    End {
        /// The answer says how the hold ended.
        with_reason: bool,
    },
}

impl Demand {
    /// Whether owners that wait for it can wait for each other forever.
    pub fn can_lock_up(self) -> bool {
        matches!(self, Self::Lock | Self::Rw(_))
    }

    /// The mode, for a read-write lock.
    pub fn mode(self) -> Option<Mode> {
        if let Self::Rw(mode) = self { Some(mode) } else { None }
    }

    /// Whether a waiter queued for this keeps its position when it asks again for `want`.
    pub fn keeps_position_for(self, demand: Self) -> bool {
        match (self, demand) {
            (Self::Permits { count: has, .. }, Self::Permits { count, .. }) => count <= has,
            (Self::Rw(has), Self::Rw(mode)) => has == mode,
            _ => true,
        }
    }
}

/// The arguments of a waiter's call.
#[derive(Debug, Clone, Default)]
pub struct WaitRequest {
    /// Its demand.
    pub demand: Demand,
    /// Lease of the future hold.
    pub lease_ms: Millis,
    /// QUEUE, if given.
    pub queue_ms: Option<Millis>,
    /// NOTIFY, or what QUEUE implies.
    pub notify: Notify,
    /// REQID, if given.
    pub request: Option<Box<[u8]>>,
    /// BIND, if given.
    pub bind_ms: Option<Millis>,
    /// LABEL, empty without.
    pub label: Box<[u8]>,
    /// The ACL user that sent it, for calls with QUEUE outside of fair locks. It is not saved.
    pub user: User,
}

impl WaitRequest {
    /// Bytes on the heap.
    pub fn heap_size(&self) -> usize {
        let channel = self.notify.heap_size();
        channel + self.request.as_ref().map_or(0, |id| id.len()) + self.label.len()
    }
}
