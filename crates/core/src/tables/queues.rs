//! All queues. Joining, leaving and finding the waiter of an owner cost O(1) at any queue length.
//!
//! `by_key` finds the queue of a key, and `groups` knows which waiters belong to one call for several keys. `owners`
//! knows the waiters of each owner, and `holders` the holders of keys with waiters. `walk` goes along a queue,
//! `wait_state` changes the state of a waiter, and `deserted` says which waiters are passed because their connection is
//! closed.

pub(crate) mod by_key;
pub(crate) mod databases;
pub(crate) mod deserted;
pub(crate) mod former;
pub(crate) mod groups;
pub(crate) mod holders;
pub(crate) mod lengths;
pub(crate) mod observers;
pub(crate) mod owners;
pub(crate) mod wait_state;
pub mod waiter;
pub(crate) mod walk;

use crate::base::buckets::Buckets;
use crate::base::hash::HashKeys;
use crate::base::ids::{GroupId, HoldId, OwnerSlot, QueueId, WaiterId, WaiterSlot};
use crate::base::key::Key;
use crate::base::kind::Kind;
use crate::base::shares::Shares;
use crate::base::slab::{Slab, SlabId};
use crate::base::time::{Instant, LeaseInstant};
use crate::base::wheel::Wheel;
use crate::ports::effects::Effects;
use crate::tables::portions::{MOST_EFFECTS, MOST_MOVES};
use crate::tables::queues::waiter::{Group, NewWaiter, Position, Queue, WaitState, Waiter};
use crate::value::wait_request::Demand;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use core::cell::Cell;
use databases::Changed;
use lengths::Lengths;
use owners::{WaitingOwner, hash_waiter};

/// First sequence number: it leaves room for waiters in front of the first.
const FIRST_SEQ: u64 = 1 << 32;

/// Sequence numbers from here on are not accepted from data: there must be room behind the last.
const SEQ_MOST: u64 = 1 << 61;

/// See the module documentation.
#[derive(Debug)]
pub struct WaitQueues {
    keys: HashKeys,
    queues: Slab<QueueId, Queue>,
    /// Number of queues of each database that had any.
    databases: BTreeMap<u32, usize>,
    /// Databases that were flushed or swapped, while some of their queues are not checked.
    changed: Changed,
    lengths: Lengths,
    waiters: Slab<WaiterSlot, Waiter>,
    groups: Slab<GroupId, Group>,
    /// Queues by key.
    by_key: Buckets<QueueId>,
    /// The queue last found by its key; it may be gone since.
    last_found: Cell<QueueId>,
    /// Waiters by queue and owner.
    by_owner: Buckets<WaiterSlot>,
    /// The owners that have waiters.
    owners: Slab<OwnerSlot, WaitingOwner>,
    /// The same owners by name.
    by_name: Buckets<OwnerSlot>,
    /// The owners that have more than one waiter.
    plural: BTreeSet<OwnerSlot>,
    /// Holder hash -> head of the list of queues whose key that owner holds exclusively or writes. (A list, because one
    /// owner may hold a million keys, and a lookup walks over all entries with the same hash.)
    by_holder: Buckets<QueueId>,
    /// Hash of a reader, and the queue of the key that it reads.
    by_reader: BTreeSet<(u64, QueueId)>,
    /// Queues whose readers are not all listed, with the last hold that is.
    unlisted: BTreeMap<QueueId, Option<HoldId>>,
    /// Readers of former queues and values that `by_reader` may still have.
    forgotten: Vec<(QueueId, BTreeSet<u64>)>,
    last_seq: u64,
    last_serial: u64,
    /// BLOCK times of parked waiters, on the monotonic clock.
    pub timeouts: Wheel<WaiterSlot>,
    /// Grace ends of waiters without a connection, on the lease clock.
    pub graces: Wheel<WaiterSlot>,
    /// Deserted waiters by ACL user, those first that came first.
    absent: Shares<(u64, WaiterSlot)>,
    /// Dirty queues: to be checked once the server accepts writes.
    dirty_queues: BTreeSet<QueueId>,
    /// More dirty queues, from the first on: after a quarantine, all queues of that time.
    all_dirty: core::ops::Range<QueueId>,
    calls: u32,
    /// Number of waiters that came, and of those that left.
    moves: u64,
    /// Number of changes by which an owner can begin to wait for another.
    changes: u64,
    parked: usize,
    members: usize,
    /// Waiters that observe a hold. While there are none, the end of a hold costs no lookup for them.
    observers: usize,
}

impl WaitQueues {
    /// No queues yet.
    pub fn new(keys: HashKeys) -> Self {
        Self {
            keys,
            queues: Slab::default(),
            databases: BTreeMap::new(),
            changed: Changed::default(),
            lengths: Lengths::default(),
            waiters: Slab::default(),
            groups: Slab::default(),
            by_key: Buckets::default(),
            last_found: Cell::new(QueueId::NONE),
            by_owner: Buckets::default(),
            owners: Slab::default(),
            by_name: Buckets::default(),
            plural: BTreeSet::new(),
            by_holder: Buckets::default(),
            by_reader: BTreeSet::new(),
            unlisted: BTreeMap::new(),
            forgotten: Vec::new(),
            last_seq: FIRST_SEQ,
            last_serial: 0,
            timeouts: Wheel::default(),
            graces: Wheel::default(),
            absent: Shares::default(),
            dirty_queues: BTreeSet::new(),
            all_dirty: QueueId::FIRST..QueueId::FIRST,
            calls: 0,
            moves: 0,
            changes: 0,
            parked: 0,
            members: 0,
            observers: 0,
        }
    }

    /// The waiter in `slot`.
    pub fn get(&self, slot: WaiterSlot) -> Option<&Waiter> {
        self.waiters.get(slot)
    }

    /// The waiter with this id, unless its call has ended.
    pub fn by_id(&self, id: WaiterId) -> Option<&Waiter> {
        self.waiters.get(id.slot()).filter(|waiter| waiter.id == id)
    }

    /// Whether the wait has timed out, noticed or not. (With QUEUE the entry of a blocked call stays when the call is
    /// over.)
    pub fn is_over(&self, waiter: &Waiter, mono: Instant, lease: LeaseInstant) -> bool {
        let call = self.leader(waiter);
        let stays = call.wait_state.is_parked() && call.ask.queue_ms.is_some();
        !stays && call.wait_state.is_over(mono, lease)
    }

    /// The waiter of `owner` in `queue`.
    pub fn waiter_of(&self, queue: QueueId, owner: &[u8]) -> Option<WaiterSlot> {
        if self.by_owner.is_empty() {
            return None;
        }
        let same = |slot| {
            self.waiters
                .get(slot)
                .is_some_and(|waiter| waiter.queue == queue && *waiter.owner == *owner)
        };
        let next =
            |slot| self.waiters.get(slot).map_or(WaiterSlot::NONE, |waiter| waiter.next_by_owner);
        self.by_owner.find(hash_waiter(self.keys, queue, owner), same, next)
    }

    /// The waiter of `owner` in the queue of `key`.
    pub fn waiter_at(&self, key: Key<'_>, owner: &[u8]) -> Option<WaiterSlot> {
        self.waiter_of(self.queue_of(key)?, owner)
    }

    /// Number of blocked calls, and of queue entries without a call.
    pub fn blocked_and_queued(&self) -> (usize, usize) {
        (self.parked, self.waiters.len() - self.parked - self.members)
    }

    /// Number of waiters in all queues.
    pub fn len(&self) -> usize {
        self.waiters.len()
    }

    /// A number that grows with each waiter that comes or leaves.
    pub(crate) fn moves(&self) -> u64 {
        self.moves
    }

    /// A number that grows whenever an owner can have begun to wait for another.
    pub(crate) fn changes(&self) -> u64 {
        self.changes
    }

    /// Whether there are no waiters.
    pub fn is_empty(&self) -> bool {
        self.waiters.is_empty()
    }

    /// Puts a waiter into the queue of `key`; a new queue is of `kind`.
    pub fn join(&mut self, key: Key<'_>, kind: Kind, new_waiter: NewWaiter) -> WaiterSlot {
        let queue = self.queue_for(key, kind);
        self.join_queue(queue, new_waiter)
    }

    /// The queue of `key` for waiters of `kind`: a new one if there is none.
    fn queue_for(&mut self, key: Key<'_>, kind: Kind) -> QueueId {
        let mut queue = self.queue_of(key);
        if let Some(id) = queue.filter(|&id| self.queues.get(id).is_some_and(|q| q.kind != kind)) {
            // Left by waiters of another family, and not processed since.
            self.close_if_empty(id);
            queue = self.queue_of(key);
        }
        queue.unwrap_or_else(|| self.add_queue(key, kind, false))
    }

    /// The neighbours of a waiter with the sequence number `seq`, which must be unused.
    fn gap_for(&self, queue: QueueId, seq: u64) -> (WaiterSlot, WaiterSlot) {
        let next = self.walk(queue).find(|(_, waiter)| waiter.seq > seq);
        match next {
            Some((slot, waiter)) => (waiter.prev, slot),
            None => (
                self.queues.get(queue).map_or(WaiterSlot::NONE, |queue| queue.tail),
                WaiterSlot::NONE,
            ),
        }
    }

    fn join_queue(&mut self, queue: QueueId, new_waiter: NewWaiter) -> WaiterSlot {
        let (head, tail) = self
            .queues
            .get(queue)
            .map_or((WaiterSlot::NONE, WaiterSlot::NONE), |q| (q.head, q.tail));
        let (prev, next) = match new_waiter.position {
            Position::Front => (WaiterSlot::NONE, head),
            Position::Restored(seq) if seq < FIRST_SEQ => (WaiterSlot::NONE, head),
            Position::Restored(seq) => self.gap_for(queue, seq),
            Position::Back | Position::Numbered(_) => (tail, WaiterSlot::NONE),
        };
        let seq = match new_waiter.position {
            // Below all that joined at the end, including those that a grant has removed and that may be restored.
            Position::Restored(seq) if seq >= FIRST_SEQ => Some(seq),
            Position::Front | Position::Restored(_) => {
                let first = self.waiters.get(head).map_or(FIRST_SEQ, |first| first.seq);
                Some(first.min(FIRST_SEQ) - 1)
            }
            Position::Numbered(seq) => {
                let last = self.waiters.get(tail).map_or(0, |last| last.seq);
                (seq > last && seq < SEQ_MOST).then_some(seq)
            }
            Position::Back => None,
        };
        let seq = seq.unwrap_or(self.last_seq + 1);
        self.last_seq = self.last_seq.max(seq);
        let has_owner = !new_waiter.entry.owner.is_empty();
        let slot = self.waiters.insert(Waiter {
            id: WaiterId(0),
            client: new_waiter.client,
            wait_state: new_waiter.wait_state,
            entry: new_waiter.entry,
            queue,
            group: GroupId::NONE,
            seq,
            prev,
            next,
            prev_of_owner: WaiterSlot::NONE,
            next_of_owner: WaiterSlot::NONE,
            owner_slot: OwnerSlot::NONE,
            next_by_owner: WaiterSlot::NONE,
        });
        if let Some(before) = self.waiters.get_mut(prev) {
            before.next = slot;
        }
        if let Some(behind) = self.waiters.get_mut(next) {
            behind.prev = slot;
        }
        if let Some(queue) = self.queues.get_mut(queue) {
            if prev == WaiterSlot::NONE {
                queue.head = slot;
            }
            if next == WaiterSlot::NONE {
                queue.tail = slot;
            }
            self.lengths.grow(queue.len);
            queue.len += 1;
        }
        self.moves = self.moves.wrapping_add(1);
        self.count_in(slot);
        self.mark_unsaved(slot);
        if has_owner {
            self.index(slot);
        }
        self.new_id(slot);
        self.arm(slot);
        slot
    }

    /// Removes a waiter from its queue, and removes the queue with the last waiter. For a call for several keys it
    /// removes only this waiter: see [`WaitQueues::disband`].
    pub fn leave(&mut self, slot: WaiterSlot) -> Option<Waiter> {
        self.timeouts.disarm(slot);
        self.graces.disarm(slot);
        let waiter = self.waiters.get(slot)?;
        if !waiter.owner.is_empty() {
            self.unindex(slot);
        }
        self.count_out(slot);
        self.mark_unsaved(slot);
        let waiter = self.waiters.remove(slot)?;
        self.moves = self.moves.wrapping_add(1);
        self.unlink_from(slot, waiter.queue, waiter.prev, waiter.next);
        if let Some(queue) = self.queues.get_mut(waiter.queue) {
            if queue.len == 0 && queue.matters_to_value() {
                self.dirty_queues.insert(waiter.queue);
                self.forget_holders(waiter.queue);
            } else if queue.len == 0 {
                self.close_queue(waiter.queue);
            }
        }
        Some(waiter)
    }

    /// Removes a waiter from the list of its queue.
    fn unlink_from(
        &mut self,
        slot: WaiterSlot,
        queue: QueueId,
        prev: WaiterSlot,
        next: WaiterSlot,
    ) {
        if let Some(before) = self.waiters.get_mut(prev) {
            before.next = next;
        }
        if let Some(behind) = self.waiters.get_mut(next) {
            behind.prev = prev;
        }
        if let Some(queue) = self.queues.get_mut(queue) {
            if queue.head == slot {
                queue.head = next;
            }
            if queue.tail == slot {
                queue.tail = prev;
            }
            self.lengths.shrink(queue.len);
            queue.len -= 1;
        }
    }

    /// Counts a waiter in its present state.
    fn count_in(&mut self, slot: WaiterSlot) {
        let Some(waiter) = self.waiters.get(slot) else { return };
        self.parked += usize::from(waiter.wait_state.is_parked());
        self.members += usize::from(waiter.wait_state == WaitState::GroupMember);
        self.observers += usize::from(is_observer(waiter.ask.demand));
        let is_maker = self.is_maker(waiter);
        let is_absent = self.is_deserted(waiter);
        if is_absent {
            self.absent.insert(waiter.ask.user, (waiter.seq, slot));
        }
        if let Some(queue) = self.queues.get_mut(waiter.queue) {
            if is_absent {
                queue.more.get_or_insert_default().absent += 1;
            }
            if is_maker {
                queue.more.get_or_insert_default().makers += 1;
            }
            if let Some(permits) = width(waiter.ask.demand) {
                queue.more.get_or_insert_default().wide.insert((permits, slot));
            }
        }
    }

    /// Reverses [`WaitQueues::count_in`].
    fn count_out(&mut self, slot: WaiterSlot) {
        let Some(waiter) = self.waiters.get(slot) else { return };
        self.parked -= usize::from(waiter.wait_state.is_parked());
        self.members -= usize::from(waiter.wait_state == WaitState::GroupMember);
        self.observers -= usize::from(is_observer(waiter.ask.demand));
        let is_maker = self.is_maker(waiter);
        let is_absent = self.is_deserted(waiter);
        if is_absent {
            self.absent.remove(waiter.ask.user, (waiter.seq, slot));
        }
        if let Some(queue) = self.queues.get_mut(waiter.queue)
            && let Some(more) = &mut queue.more
        {
            more.makers -= u32::from(is_maker);
            more.absent -= usize::from(is_absent);
            if let Some(permits) = width(waiter.ask.demand) {
                more.wide.remove(&(permits, slot));
            }
        }
    }

    /// Whether a waiter makes the semaphore if it is missing.
    fn is_maker(&self, waiter: &Waiter) -> bool {
        matches!(waiter.ask.demand, Demand::Permits { limit: Some(_), .. })
            && !self.is_deserted(waiter)
    }
}

/// The number of permits that a waiter asks for, if more than one: every semaphore has one.
fn width(demand: Demand) -> Option<u32> {
    match demand {
        Demand::Permits { count: n, .. } | Demand::Taken(n) if n > 1 => Some(n),
        _ => None,
    }
}

/// Whether a waiter observes a hold.
fn is_observer(demand: Demand) -> bool {
    matches!(demand, Demand::End { .. })
}

impl WaitQueues {
    /// Whether a loop over pieces of work, which began when [`WaitQueues::moves`] was `begun`, leaves the rest for
    /// later.
    ///
    /// [`WaitQueues::moves`]: crate::tables::queues::WaitQueues::moves
    pub(crate) fn has_done_enough(&self, fx: &Effects, begun: u64) -> bool {
        fx.weight() >= MOST_EFFECTS || self.moves().wrapping_sub(begun) >= MOST_MOVES
    }
}
