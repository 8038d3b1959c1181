//! FLUSHDB, FLUSHALL and SWAPDB whose entries are walked in portions.

use crate::connection::Connections;
use crate::ids::{HoldRef, KeyId, QueueId};
use crate::key::Swap;
use crate::lease::Leases;
use crate::queues::WaitQueues;
use crate::queues::waiter::Queue;
use crate::slab::SlabId;
use alloc::collections::{BTreeMap, BTreeSet, VecDeque};

/// Why the walk over entries and queues runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Cause {
    /// FLUSHDB, or FLUSHALL (`None`).
    Flush(Option<u32>),
    /// SWAPDB. With `true`, entries may have the right address already: the machine looks for each on both sides.
    Swap(Swap, bool),
}

/// A walk that has not ended.
#[derive(Debug)]
pub(crate) struct Flush {
    pub cause: Cause,
    /// For a database that was swapped since: where its data is now.
    pub moved: BTreeMap<u32, u32>,
    /// Connections that have bindings, and the last binding checked of the first of them.
    pub clients: VecDeque<u64>,
    pub last_binding: Option<HoldRef>,
    /// The next entry, and the end of the entries when the flush came.
    pub next_key: KeyId,
    pub key_bound: KeyId,
    /// The next queue.
    pub queue: QueueId,
    pub queue_bound: QueueId,
    /// Queues with larger serial numbers are newer, or were checked already.
    pub last_serial: u64,
    /// Queues that were checked out of order, after a swap.
    pub seen: BTreeSet<QueueId>,
}

impl Flush {
    pub fn new(
        connections: &Connections,
        leases: &Leases,
        waits: &WaitQueues,
        cause: Cause,
    ) -> Self {
        let unties = matches!(cause, Cause::Flush(_));
        let tied = connections.iter().filter(|(_, known)| !known.bindings.is_empty());
        Self {
            cause,
            moved: BTreeMap::new(),
            clients: tied.filter(|_| unties).map(|(client, _)| client).collect(),
            last_binding: None,
            next_key: KeyId::FIRST,
            key_bound: leases.bound(),
            queue: QueueId::FIRST,
            queue_bound: waits.queue_bound(),
            last_serial: waits.last_serial(),
            seen: BTreeSet::new(),
        }
    }

    /// Where the data of database `db` at the time of the flush is now.
    pub fn now_in(&self, db: u32) -> u32 {
        self.moved.get(&db).copied().unwrap_or(db)
    }

    /// Whether the walk covers the data that is in `db` now.
    pub fn is_of_data(&self, db: u32) -> bool {
        match self.cause {
            Cause::Flush(None) => true,
            Cause::Flush(Some(flushed)) => self.now_in(flushed) == db,
            Cause::Swap(Swap { a, b }, _) => self.now_in(a) == db || self.now_in(b) == db,
        }
    }

    /// Whether the walk covers the waiters of this queue.
    pub fn is_of_queue(&self, id: QueueId, queue: &Queue) -> bool {
        let is_of = match self.cause {
            Cause::Flush(db) => db.is_none_or(|db| db == queue.db),
            Cause::Swap(Swap { a, b }, _) => a == queue.db || b == queue.db,
        };
        is_of && queue.serial <= self.last_serial && !self.seen.contains(&id)
    }

    /// Two databases were swapped.
    pub fn swap(&mut self, swap: Swap) {
        for db in [swap.a, swap.b] {
            self.moved.entry(db).or_insert(db);
        }
        for now in self.moved.values_mut() {
            *now = swap.target_of(*now);
        }
    }
}
