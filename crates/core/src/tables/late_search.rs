//! What the search for cycles from the tick keeps between two of its pieces. The search is in
//! [`crate::deadlock::late`].

use crate::base::ids::{OwnerSlot, QueueId, WaiterSlot};
use crate::base::time::Instant;
use crate::tables::queues::WaitQueues;
use crate::tables::queues::waiter::Waiter;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;

/// What the search from the tick knows.
#[derive(Debug, Default)]
pub(crate) struct LateSearch {
    pub(crate) round: Option<Round>,
    /// Owners that wait for each other: to verify, and then to tell one of them.
    pub(crate) found: Option<Vec<Spot>>,
    /// Calls whose search was cut since the round began, and those from before it.
    pub(crate) cut: Cut,
    pub(crate) covered: Cut,
    /// The next round begins as soon as this one is over.
    pub(crate) is_urgent: bool,
    /// When the next round begins that is not urgent.
    pub(crate) next_round: Instant,
    pub(crate) rests_until: Instant,
    /// The count of changes at the begin of the last round that was whole.
    pub(crate) seen: Option<u64>,
}

/// Calls whose search was cut.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct Cut {
    pub(crate) count: u64,
    pub(crate) since: Option<Instant>,
}

impl Cut {
    pub(crate) fn add(&mut self, other: Self) {
        self.count += other.count;
        self.since = self.since.into_iter().chain(other.since).min();
    }
}

/// One search over all waits.
#[derive(Debug)]
pub(crate) struct Round {
    pub(crate) begun: Instant,
    /// The count of changes at that time.
    pub(crate) changes: u64,
    /// The next queue to begin with.
    pub(crate) next_queue: QueueId,
    pub(crate) path: Vec<Frame>,
    /// The owners that were reached, as bits.
    pub(crate) reached: Vec<u64>,
    /// The owners on the path.
    pub(crate) on_path: BTreeMap<OwnerSlot, usize>,
    /// How far each queue was passed; separate for readers.
    pub(crate) passed: BTreeMap<(QueueId, bool), Passed>,
    /// It left out queues whose holders are not known now.
    pub(crate) is_unsure: bool,
}

/// How far a queue was passed.
#[derive(Debug)]
pub(crate) struct Passed {
    /// All waiters with smaller sequence numbers were passed, or will be.
    pub(crate) end: u64,
    /// A waiter from which a walk comes there.
    pub(crate) near: Spot,
    /// The first owner on the path for which a walk goes along this queue.
    pub(crate) walker: Option<usize>,
}

/// An owner on the path, or the queue at its beginning.
#[derive(Debug)]
pub(crate) struct Frame {
    /// [`OwnerSlot::NONE`] for the queue.
    pub(crate) owner: OwnerSlot,
    /// Its waiter that is inspected.
    pub(crate) spot: Spot,
    pub(crate) queue: QueueId,
    pub(crate) reads: bool,
    pub(crate) next: Next,
    /// The walk along the queue: the waiter that it comes to, the first sequence number that it has not passed, and the
    /// one at which it ends.
    pub(crate) at: Spot,
    pub(crate) from: u64,
    pub(crate) end: u64,
}

/// What is inspected next of the owner at the end of the path.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Next {
    /// A waiter.
    Waiter(WaiterSlot),
    /// The holder of the key.
    Holder,
    /// The readers from this hash on.
    Readers(u64),
    /// The waiters in front.
    Queue,
}

/// A waiter by its slot and its number. It keeps both when a later call of its owner takes it over.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Spot {
    pub(crate) slot: WaiterSlot,
    pub(crate) seq: u64,
}

impl Spot {
    /// No waiter.
    pub(crate) const NONE: Self = Self { slot: WaiterSlot::NONE, seq: 0 };

    pub(crate) fn of(slot: WaiterSlot, waiter: &Waiter) -> Self {
        Self { slot, seq: waiter.seq }
    }

    pub(crate) fn find(self, waits: &WaitQueues) -> Option<&Waiter> {
        waits.get(self.slot).filter(|waiter| waiter.seq == self.seq)
    }
}
