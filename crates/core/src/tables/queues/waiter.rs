//! The waiters of a queue ([`queues`](crate::tables::queues)) and their states ([`WaitState`]): a blocked call
//! (*parked*), a place with a connection, or a place whose connection is closed (*absent*; where the queue passes it,
//! *deserted*). Whether a waiter is served: `Tables::counts` in `step/hand_off.rs`.
//!
//! A call that waits for several keys has a waiter in each of their queues: its first one is parked, the others are its
//! *members*.

use crate::base::bytes::Name;
use crate::base::hash::HashKeys;
use crate::base::ids::{GroupId, OwnerSlot, QueueId, WaiterId, WaiterSlot};
use crate::base::key::Key;
use crate::base::kind::Kind;
use crate::base::slab::SlabId;
use crate::base::time::{Instant, LeaseInstant};
use crate::value::fair::QueueEntry;
use alloc::boxed::Box;
use alloc::collections::BTreeSet;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::ops::Deref;

/// How a waiter waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WaitState {
    /// A blocked call; `until` is the end of its BLOCK time, `None` for no end.
    Blocked {
        /// End of the wait.
        until: Option<Instant>,
    },
    /// A further waiter of a blocked call that waits for several keys.
    GroupMember,
    /// A queue entry with a live connection and no blocked call.
    Connected,
    /// A queue entry whose connection is closed. Except in a fair lock, it is granted nothing and blocks no other
    /// waiter until its owner asks again.
    Disconnected {
        /// End of its grace.
        until: LeaseInstant,
    },
}

impl WaitState {
    /// Whether the wait has timed out, noticed or not.
    pub fn is_over(self, mono: Instant, lease: LeaseInstant) -> bool {
        match self {
            Self::Blocked { until } => until.is_some_and(|until| until <= mono),
            Self::GroupMember | Self::Connected => false,
            Self::Disconnected { until } => until <= lease,
        }
    }

    /// Whether it is a blocked call.
    pub fn is_parked(self) -> bool {
        matches!(self, Self::Blocked { .. })
    }
}

/// The position of a new waiter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Position {
    /// Behind all others.
    Back,
    /// In front of all others (an upgrade).
    Front,
    /// Behind all others, with this sequence number if it is larger than theirs.
    Numbered(u64),
    /// The former position of a waiter with this sequence number, which has left since.
    Restored(u64),
}

/// A waiter that joins a queue.
#[derive(Debug)]
pub struct NewWaiter {
    /// Its owner, the start of its wait, and the arguments of its call.
    pub entry: Arc<QueueEntry>,
    /// Its connection; [`NO_CLIENT`](crate::value::hold::NO_CLIENT) when absent.
    pub client: u64,
    /// How it waits.
    pub wait_state: WaitState,
    /// Its position.
    pub position: Position,
}

/// One waiter.
#[derive(Debug)]
pub struct Waiter {
    /// Its current id.
    pub id: WaiterId,
    /// Its owner, the start of its wait, and the arguments of its call. A fair lock shares it.
    pub entry: Arc<QueueEntry>,
    /// Its connection; [`NO_CLIENT`](crate::value::hold::NO_CLIENT) when absent.
    pub client: u64,
    /// How it waits.
    pub wait_state: WaitState,
    /// Its queue.
    pub queue: QueueId,
    /// The call for several keys that it belongs to, or [`GroupId::NONE`].
    pub group: GroupId,
    /// Position in the queue: smaller numbers are in front.
    pub seq: u64,
    pub(crate) prev: WaiterSlot,
    pub(crate) next: WaiterSlot,
    /// The waiters of the same owner in other queues, linked in both directions.
    pub(crate) prev_of_owner: WaiterSlot,
    pub(crate) next_of_owner: WaiterSlot,
    /// Its owner among the waiting owners; [`OwnerSlot::NONE`] for calls without an owner.
    pub(crate) owner_slot: OwnerSlot,
    /// The next waiter of its bucket in the table by queue and owner.
    pub(crate) next_by_owner: WaiterSlot,
}

impl Deref for Waiter {
    type Target = QueueEntry;

    fn deref(&self) -> &QueueEntry {
        &self.entry
    }
}

impl Waiter {
    /// Whether it waits for several keys at once.
    pub fn is_grouped(&self) -> bool {
        self.group != GroupId::NONE
    }
}

/// A call that waits for several keys.
#[derive(Debug)]
pub struct Group {
    /// Its waiters by slot, in the order of its keys; the first is the parked one.
    pub members: Vec<WaiterSlot>,
    /// It takes the first key that becomes free, instead of all keys.
    pub takes_any: bool,
    /// The members whose key is grantable to the call; empty if `takes_any`.
    pub ready: hashbrown::HashSet<WaiterSlot, HashKeys>,
}

/// The waiters of one key.
#[derive(Debug)]
pub struct Queue {
    /// The family for which they asked.
    pub kind: Kind,
    /// Database of the key.
    pub db: u32,
    /// Name of the key.
    pub name: Name,
    /// Number of waiters.
    pub len: usize,
    /// No other queue ever had this number.
    pub serial: u64,
    /// Its waiters observe the hold of the key: they are granted nothing, and get their answer when it ends. A key can
    /// have such a queue beside the one of its waiters.
    pub observes: bool,
    pub(crate) head: WaiterSlot,
    pub(crate) tail: WaiterSlot,
    /// Hash of the owner that holds the key exclusively or writes; 0 if there is none.
    pub(crate) holder: u64,
    /// The queues before and after this one in the list of queues with the same holder.
    pub(crate) of_holder: (QueueId, QueueId),
    /// The next queue of its bucket in the tables of queues by key and by holder.
    pub(crate) next_by_key: QueueId,
    pub(crate) next_by_holder: QueueId,
    /// The parts that few queues have.
    pub(crate) more: Option<Box<More>>,
}

/// The parts that only some queues need.
#[derive(Debug, Default)]
pub(crate) struct More {
    /// Waiters that came, left or changed since the value was updated, by sequence number and slot; only for durable
    /// queues.
    pub(crate) unsaved: Vec<(u64, WaiterSlot)>,
    /// Number of waiters with a connection that would create the semaphore.
    pub(crate) makers: u32,
    /// Number of waiters that are deserted.
    pub(crate) absent: usize,
    /// The readers of the key, as hashes of owners.
    pub(crate) readers: BTreeSet<u64>,
    /// Waiters that ask for more than one permit: the number, and the slot.
    pub(crate) wide: BTreeSet<(u32, WaiterSlot)>,
    /// The token of the hold that the waiters observe; 0 in other queues.
    pub(crate) observed: u64,
    /// When the latch opened that the waiters awaited.
    pub(crate) opened: Option<Instant>,
}

impl More {
    /// Whether it carries no information.
    fn is_default(&self) -> bool {
        self.unsaved.is_empty()
            && self.makers == 0
            && self.absent == 0
            && self.readers.is_empty()
            && self.wide.is_empty()
            && self.observed == 0
            && self.opened.is_none()
    }
}

// There can be as many queues as waiters.
const _: () = assert!(core::mem::size_of::<Option<Queue>>() <= 96);

impl Queue {
    /// Whether the durable waiters changed since the value was updated.
    pub fn is_unsaved(&self) -> bool {
        self.more.as_ref().is_some_and(|more| !more.unsaved.is_empty())
    }

    /// Number of waiters with a connection that would create the semaphore.
    pub fn makers(&self) -> u32 {
        self.more.as_ref().map_or(0, |more| more.makers)
    }

    /// Whether all waiters are deserted.
    pub(crate) fn is_deserted(&self) -> bool {
        self.more.as_ref().map_or(0, |more| more.absent) == self.len
    }

    /// When the latch opened that its waiters awaited.
    pub(crate) fn opened(&self) -> Option<Instant> {
        self.more.as_ref().and_then(|more| more.opened)
    }

    /// Frees `more` while it carries no information: most queues need it only between two commands.
    pub(crate) fn trim(&mut self) {
        self.more.take_if(|more| more.is_default());
    }

    /// The number of readers of the key, and their owner hashes.
    pub(crate) fn readers(&self) -> (usize, impl Iterator<Item = u64>) {
        let readers = self.more.as_ref().map(|more| &more.readers);
        let count = readers.map_or(0, BTreeSet::len);
        (count, readers.into_iter().flatten().copied())
    }

    /// Waiters that ask for more than `capacity` permits, which is at least one: the number, and the slot.
    pub(crate) fn wider_than(&self, capacity: u32) -> impl Iterator<Item = (u32, WaiterSlot)> {
        let wide = self.more.as_ref().map(|more| &more.wide);
        wide.into_iter()
            .flat_map(move |wide| wide.range((capacity + 1, WaiterSlot::FIRST)..).copied())
    }

    /// The key.
    pub fn key(&self) -> Key<'_> {
        Key { db: self.db, name: &self.name }
    }

    /// Whether its waiters are part of the value of the key.
    pub fn is_durable(&self) -> bool {
        self.kind == Kind::Fair && !self.observes
    }

    /// Whether the value of the key can depend on its waiters.
    pub fn matters_to_value(&self) -> bool {
        self.kind.has_durable_queue() && !self.observes
    }

    /// Whether this queue skips waiters without a connection. Those of a fair lock are durable: they are served within
    /// their grace.
    pub fn skips_absent(&self) -> bool {
        !self.is_durable()
    }
}
