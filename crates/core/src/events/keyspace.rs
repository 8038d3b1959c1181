//! Effects of other commands on our keys: DEL, SET over one, RENAME, FLUSHALL, SWAPDB, a slot that moves away.
//!
//! The server reports these in callbacks in which nothing may be written, and cannot tell some of them apart. So the
//! shell only notes them. Later it asks the machine to check what the key holds by then.

use crate::answers::wrong_type;
use crate::effects::{Effects, Outcome};
use crate::ids::QueueId;
use crate::key::Key;
use crate::kind::Kind;
use crate::machine::Machine;
use crate::portions::AT_ONCE;
use crate::slab::SlabId;
use crate::state::resource::Resource;
use crate::store::{Lookup, Reach};
use crate::turn::Turn;
use core::ops::Range;
use dlock_wire::reply::ErrorCode;

impl Machine {
    /// A value was unlinked from `key`, which cannot be read now: [`Machine::unlinked`] follows in the tick. Until then
    /// no owner counts as its holder.
    pub fn forget_holders(&mut self, key: Key<'_>) {
        if let Some(queue) = self.waits.queue_of(key) {
            self.waits.forget_holders(queue);
        }
    }

    /// A value of ours is gone for good: applies this to its waiters, by family.
    pub(crate) fn value_is_gone(&mut self, kind: Kind, key: Key<'_>, fx: &mut Effects) {
        let Some(queue) = self.waits.queue_of(key) else { return };
        if self.waits.queue(queue).is_none_or(|queue| queue.kind != kind) {
            // These waiters asked for another family, and a swap brought this value.
            return;
        }
        match kind {
            Kind::Fair => self.drop_entries(queue),
            Kind::Latch => {
                self.reject_queue(queue, ErrorCode::Broken, crate::ops::latch::BROKEN, fx);
            }
            // A call for several keys that counted on its own hold is checked once more before it is granted.
            Kind::Lock | Kind::Rw | Kind::Semaphore => {}
        }
    }

    /// RENAME or MOVE brought the value to `key`: leases and bindings follow it.
    pub fn moved(&mut self, turn: &mut Turn<'_>, key: Key<'_>) {
        if let Lookup::Here(resource) = turn.keys.get(key) {
            self.value_moved(resource, key);
        }
    }

    /// RENAME or MOVE has just brought this value to `key`. Needs no key, so that it can be told at that moment: a
    /// flush that follows is not about this value.
    pub fn value_moved(&mut self, resource: &Resource, key: Key<'_>) {
        let Some(Key { db, name }) = self.leases.key_of(resource.key_id) else { return };
        let name = name.to_vec();
        let from = Key { db, name: &name };
        if from == key {
            return;
        }
        self.forget_taken(|gone| gone == key);
        self.readdress(from, key);
        if resource.kind().has_durable_queue() && self.regime.is_primary() {
            // Waiters stay with the name they asked for: a semaphore may exist only for them.
            self.revisit_later(key.db, key.name);
        }
        let was = self.leases.rename(resource.key_id, key);
        if let Some(home) = was.filter(|&home| home != self.leases.home(key.db)) {
            self.rebind(home, resource);
        }
        if let Some(queue) = self.waits.queue_of(key) {
            self.waits.note_holders(queue, resource, true);
        }
    }

    /// Marks a queue dirty if its key may be free now. The waiters get an error if the key has another type, or if it
    /// is gone in a cluster and may have moved to another node.
    pub(crate) fn inspect(&mut self, turn: &mut Turn<'_>, id: QueueId) {
        let Some(queue) = self.waits.queue(id) else { return };
        if queue.observes {
            return self.inspect_observers(turn, id);
        }
        match turn.keys.get(queue.key()) {
            Lookup::Here(resource) if resource.kind() == queue.kind => {
                self.waits.note_holders(id, resource, true);
                self.waits.mark_dirty(id);
            }
            Lookup::Here(_) | Lookup::WrongType => self.reject_as_wrong_type(id, turn.fx),
            // There are no waiters, and the key of this queue is gone: it can be of any family now.
            Lookup::Missing if queue.len == 0 => self.waits.close_if_empty(id),
            Lookup::Missing if queue.kind == Kind::Latch => {
                self.reject_queue(id, ErrorCode::Broken, crate::ops::latch::BROKEN, turn.fx);
            }
            Lookup::Missing if self.settings.cluster => {
                self.reject_queue(id, ErrorCode::Moving, GONE, turn.fx);
            }
            Lookup::Missing => {
                self.waits.forget_holders(id);
                self.waits.mark_dirty(id);
            }
            Lookup::Elsewhere => self.reject_queue(id, ErrorCode::Moving, GONE, turn.fx),
            Lookup::OutOfReach => self.waits.mark_dirty(id),
        }
    }

    /// This node no longer serves the slot of these keys: their waiters must ask elsewhere. Checks the queues with
    /// these numbers, below [`WaitQueues::queue_bound`](crate::queues::WaitQueues::queue_bound), until they make much
    /// work. Returns the first number that it has not checked.
    pub fn slot_lost(
        &mut self,
        queues: Range<QueueId>,
        mut lost: impl FnMut(&[u8]) -> bool,
        fx: &mut Effects,
    ) -> QueueId {
        let begun = self.waits.moves();
        for id in queues.start.up_to(queues.end) {
            if self.has_done_enough(fx, begun) {
                return id;
            }
            if self.waits.queue(id).is_some_and(|queue| lost(&queue.name)) {
                self.reject_queue(id, ErrorCode::Moving, GONE, fx);
            }
        }
        queues.end
    }

    /// Ends all waits of a queue: blocked calls get the error, queue entries without a call are removed.
    pub(crate) fn reject_queue(
        &mut self,
        queue: QueueId,
        code: ErrorCode,
        text: &str,
        fx: &mut Effects,
    ) {
        self.answer_all(queue, &Outcome::fault(code, text), fx);
    }

    /// Hands off in the dirty queues, if the server accepts writes and all keys can be reached: in the first few now,
    /// in the rest in the tick.
    pub(crate) fn drain_dirty(&mut self, turn: &mut Turn<'_>) {
        let is_limited = turn.keys.reach() == Reach::OneSlot;
        if !self.regime.may_end() || is_limited {
            return;
        }
        let begun = self.waits.moves();
        for _ in 0..AT_ONCE {
            if self.has_done_enough(turn.fx, begun) || !self.drain_one(turn) {
                break;
            }
        }
    }

    /// Notes a value under this key for [`Machine::revisit_one`]: it is found although databases are swapped before.
    pub(crate) fn revisit_later(&mut self, db: u32, name: &[u8]) {
        self.pending.revisit.push_back((self.leases.home(db), name.to_vec()));
    }

    /// Updates one key from its queue, if the value came from elsewhere; `false` if there is none. Runs only after all
    /// noted changes are applied: a key may have moved on.
    pub(crate) fn revisit_one(&mut self, turn: &mut Turn<'_>) -> bool {
        let Some((home, name)) = self.pending.revisit.pop_front() else { return false };
        let db = self.leases.number(home);
        // Opening the key is enough.
        let _ = self.on_found(turn, Key { db, name: &name }, |_, _, _| ());
        true
    }

    /// Hands off in one dirty queue; `false` if there is none.
    pub(crate) fn drain_one(&mut self, turn: &mut Turn<'_>) -> bool {
        let Some(id) = self.waits.next_dirty() else { return false };
        let Some(queue) = self.waits.queue(id) else { return true };
        let (kind, db, name) = (queue.kind, queue.db, queue.name.to_vec());
        let observes = queue.observes;
        let key = Key { db, name: &name };
        if !turn.keys.reaches(key) {
            // The tick serves it.
            self.waits.mark_dirty(id);
            return false;
        }
        if observes {
            self.inspect(turn, id);
            return true;
        }
        if matches!(turn.keys.get(key), Lookup::Elsewhere) {
            // The new node may have granted it: its waiters ask there.
            self.reject_queue(id, ErrorCode::Moving, GONE, turn.fx);
            return true;
        }
        let looked = self.on_key(turn, kind, key, |machine, step, resource| {
            machine.hand_off(step, resource);
        });
        if looked.is_err() {
            self.reject_as_wrong_type(id, turn.fx);
        }
        true
    }

    /// The key has another type now: its waiters are told.
    pub(crate) fn reject_as_wrong_type(&mut self, queue: QueueId, fx: &mut Effects) {
        self.answer_all(queue, &wrong_type(), fx);
    }
}

pub(crate) const GONE: &str = "the key was removed or moved to another node; ask again";
