//! The progress of the check whether this node still serves the slots of waiting keys.

use dlock_core::base::ids::QueueId;
use dlock_core::base::slab::SlabId;
use dlock_core::base::time::{Instant, Now};
use dlock_core::tables::queues::WaitQueues;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use crate::slot::slot;

const PERIOD_MS: u64 = 1_000;

/// Queues checked at a time.
const QUEUES_PER_TURN: u32 = 1_000;

/// Pause between two such checks, in milliseconds: however many keys are awaited, they cost a few percent of a core.
const PAUSE_MS: u64 = 10;

/// The current round.
#[derive(Debug, Default)]
pub struct Round {
    /// When to continue, or when the next round begins.
    due: Instant,
    /// Number of the first queue that this round has not checked.
    next_queue: u32,
    /// Slots that this round has asked about.
    asked: BTreeSet<u16>,
    /// Those slots among them that this node does not serve.
    lost: BTreeSet<u16>,
}

/// What is to be checked at a time.
pub struct Portion {
    /// The queues.
    pub queues: Range<QueueId>,
    /// One waiting key for each slot that this round has not asked about.
    pub names: BTreeMap<u16, Vec<u8>>,
    /// The slots that are known to be lost.
    pub lost: BTreeSet<u16>,
}

impl Round {
    /// When the next portion is due.
    pub fn due(&self) -> Instant {
        self.due
    }

    /// The next portion. After the last one, another round begins later.
    pub fn next(&mut self, waits: &WaitQueues, now: Now) -> Portion {
        let Self { next_queue, mut asked, lost, .. } = std::mem::take(self);
        let start = QueueId::new(next_queue);
        let end = QueueId::new(next_queue.saturating_add(QUEUES_PER_TURN)).min(waits.queue_bound());
        let mut names = BTreeMap::new();
        for queue in start.up_to(end).filter_map(|id| waits.queue(id)) {
            let slot = slot(&queue.name);
            if asked.insert(slot) {
                names.insert(slot, queue.name.to_vec());
            }
        }
        *self = if end < waits.queue_bound() {
            let (due, next_queue) = (now.mono + PAUSE_MS, end.number());
            Self { due, next_queue, asked, lost: BTreeSet::new() }
        } else {
            Self { due: now.mono + PERIOD_MS, ..Self::default() }
        };
        Portion { queues: start..end, names, lost }
    }

    /// A step has ended only the queues before `next`: the round continues there, at once.
    pub fn resume(&mut self, next: QueueId, now: Now) {
        self.next_queue = next.number();
        self.due = now.mono;
    }

    /// Notes the slots that are lost, so that their later queues are ended in this round, too.
    pub fn note_lost(&mut self, lost: BTreeSet<u16>) {
        if self.next_queue > 0 {
            self.lost = lost;
        }
    }
}
