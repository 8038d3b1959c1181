//! Ids that rooms share: a type for each kind of thing, so that the id of one cannot be passed for the id of another.
//!
//! ```
//! # use dlock_core::{base::ids::{QueueId, WaiterSlot}, tables::queues::WaitQueues};
//! fn queue_len(waits: &WaitQueues, queue: QueueId, slot: WaiterSlot) -> usize {
//!     waits.len_of(queue)
//! }
//! ```
//!
//! The same with the other id does not compile:
//!
//! ```compile_fail,E0308
//! # use dlock_core::{base::ids::{QueueId, WaiterSlot}, tables::queues::WaitQueues};
//! fn queue_len(waits: &WaitQueues, queue: QueueId, slot: WaiterSlot) -> usize {
//!     waits.len_of(slot)
//! }
//! ```

use serde::{Deserialize, Serialize};

/// Defines the id of the entries of one slab.
macro_rules! slab_id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(u32);

        impl $name {
            /// No entry.
            pub const NONE: Self = Self(u32::MAX);

            /// The id with this number.
            pub const fn new(number: u32) -> Self {
                Self(number)
            }
        }

        impl core::fmt::Display for $name {
            fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                self.0.fmt(f)
            }
        }

        impl $crate::base::slab::SlabId for $name {
            const NONE: Self = Self::NONE;
            const FIRST: Self = Self(0);

            fn new(number: u32) -> Self {
                Self(number)
            }

            fn number(self) -> u32 {
                self.0
            }
        }
    };
}

pub(crate) use slab_id;

slab_id! {
    /// The waiters of one key: a [`Queue`](crate::tables::queues::waiter::Queue).
    QueueId
}

slab_id! {
    /// A [`Waiter`](crate::tables::queues::waiter::Waiter) while it is in a queue. The same slot serves another waiter
    /// later.
    WaiterSlot
}

slab_id! {
    /// A call that waits for several keys: a [`Group`](crate::tables::queues::waiter::Group) of waiters.
    GroupId
}

slab_id! {
    /// The entry of a resource in the [lease index](crate::tables::lease::Leases); [`KeyId::NONE`] for a resource that
    /// was just made or loaded.
    KeyId
}

slab_id! {
    /// An owner that has waiters.
    OwnerSlot
}

/// Which hold of a key: the token of a reader, the id of a permit, [`ALONE`] for the one holder of a lock and for the
/// writer. Records write it as a number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct HoldId(u128);

/// The hold of a lock, or the write hold of a read-write lock.
pub const ALONE: HoldId = HoldId(0);

impl HoldId {
    /// The largest id.
    pub const MAX: Self = Self(u128::MAX);

    /// The hold of a permit.
    pub const fn from_be_bytes(permit: [u8; 16]) -> Self {
        Self(u128::from_be_bytes(permit))
    }

    /// The id of its permit.
    pub const fn to_be_bytes(self) -> [u8; 16] {
        self.0.to_be_bytes()
    }
}

/// Where a hold is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct HoldRef {
    /// The home of the database of its key: see [`lease`](crate::tables::lease).
    pub home: u32,
    /// The entry of its key in the lease index.
    pub key: KeyId,
    /// Which of the holds of that key.
    pub id: HoldId,
}

impl From<u64> for HoldId {
    /// The hold of the reader with this token.
    fn from(token: u64) -> Self {
        Self(token.into())
    }
}

/// The id by which the shell knows a waiter. The same slot gets a new id for each call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct WaiterId(pub u64);

impl WaiterId {
    /// The waiter slot behind the id.
    pub fn slot(self) -> WaiterSlot {
        let [a, b, c, d, ..] = self.0.to_le_bytes();
        WaiterSlot::new(u32::from_le_bytes([a, b, c, d]))
    }
}
