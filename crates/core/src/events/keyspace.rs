//! Effects of other commands on our keys: DEL, SET over one, RENAME, FLUSHALL, SWAPDB, a slot that moves away.
//!
//! The server reports these in callbacks in which nothing may be written, and cannot tell some of them apart. So the
//! shell only notes them. Later it asks the machine to check what the key holds by then.

use crate::answers::wrong_type;
use crate::effects::{Effects, Outcome};
use crate::ids::QueueId;
use crate::key::Key;
use crate::kind::Kind;
use crate::ops::await_end;
use crate::portions::AT_ONCE;
use crate::slab::SlabId;
use crate::state::resource::Resource;
use crate::store::{Lookup, Reach};
use crate::tables::Tables;
use crate::turn;
use crate::turn::Turn;
use core::ops::Range;
use dlock_wire::reply::ErrorCode;

/// A value was unlinked from `key`, which cannot be read now: [`unlinked`] follows in the tick. Until then
/// no owner counts as its holder.
///
/// [`unlinked`]: super::lost::unlinked
pub(crate) fn forget_holders(tables: &mut Tables, key: Key<'_>) {
    if let Some(queue) = tables.waits.queue_of(key) {
        tables.waits.forget_holders(queue);
    }
}

impl Tables {
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
}

/// RENAME or MOVE brought the value to `key`: leases and bindings follow it.
pub(crate) fn moved(tables: &mut Tables, turn: &mut Turn<'_>, key: Key<'_>) {
    if let Lookup::Here(resource) = turn.keys.get(key) {
        value_moved(tables, resource, key);
    }
}

/// RENAME or MOVE has just brought this value to `key`. Needs no key, so that it can be told at that moment: a
/// flush that follows is not about this value.
pub(crate) fn value_moved(tables: &mut Tables, resource: &Resource, key: Key<'_>) {
    let Some(Key { db, name }) = tables.leases.key_of(resource.key_id) else { return };
    let name = name.to_vec();
    let from = Key { db, name: &name };
    if from == key {
        return;
    }
    tables.in_flight.forget_taken(|gone| gone == key);
    tables.in_flight.readdress(from, key);
    if resource.kind().has_durable_queue() && tables.regime.is_primary() {
        // Waiters stay with the name they asked for: a semaphore may exist only for them.
        tables.revisit_later(key.db, key.name);
    }
    let was = tables.leases.rename(resource.key_id, key);
    if let Some(home) = was.filter(|&home| home != tables.leases.home(key.db)) {
        tables.rebind(home, resource);
    }
    if let Some(queue) = tables.waits.queue_of(key) {
        tables.waits.note_holders(queue, resource, true);
    }
}

/// Marks a queue dirty if its key may be free now. The waiters get an error if the key has another type, or if it
/// is gone in a cluster and may have moved to another node.
pub(crate) fn inspect(tables: &mut Tables, turn: &mut Turn<'_>, id: QueueId) {
    let Some(queue) = tables.waits.queue(id) else { return };
    if queue.observes {
        return await_end::inspect_observers(tables, turn, id);
    }
    match turn.keys.get(queue.key()) {
        Lookup::Here(resource) if resource.kind() == queue.kind => {
            tables.waits.note_holders(id, resource, true);
            tables.waits.mark_dirty(id);
        }
        Lookup::Here(_) | Lookup::WrongType => tables.reject_as_wrong_type(id, turn.fx),
        // There are no waiters, and the key of this queue is gone: it can be of any family now.
        Lookup::Missing if queue.len == 0 => tables.waits.close_if_empty(id),
        Lookup::Missing if queue.kind == Kind::Latch => {
            tables.reject_queue(id, ErrorCode::Broken, crate::ops::latch::BROKEN, turn.fx);
        }
        Lookup::Missing if tables.settings.cluster => {
            tables.reject_queue(id, ErrorCode::Moving, GONE, turn.fx);
        }
        Lookup::Missing => {
            tables.waits.forget_holders(id);
            tables.waits.mark_dirty(id);
        }
        Lookup::Elsewhere => tables.reject_queue(id, ErrorCode::Moving, GONE, turn.fx),
        Lookup::OutOfReach => tables.waits.mark_dirty(id),
    }
}

/// This node no longer serves the slot of these keys: their waiters must ask elsewhere. Checks the queues with
/// these numbers, below [`WaitQueues::queue_bound`](crate::queues::WaitQueues::queue_bound), until they make much
/// work. Returns the first number that it has not checked.
pub(crate) fn slot_lost(
    tables: &mut Tables,
    queues: Range<QueueId>,
    mut lost: impl FnMut(&[u8]) -> bool,
    fx: &mut Effects,
) -> QueueId {
    let begun = tables.waits.moves();
    for id in queues.start.up_to(queues.end) {
        if tables.waits.has_done_enough(fx, begun) {
            return id;
        }
        if tables.waits.queue(id).is_some_and(|queue| lost(&queue.name)) {
            tables.reject_queue(id, ErrorCode::Moving, GONE, fx);
        }
    }
    queues.end
}

impl Tables {
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
}

/// Hands off in the dirty queues, if the server accepts writes and all keys can be reached: in the first few now,
/// in the rest in the tick.
pub(crate) fn drain_dirty(tables: &mut Tables, turn: &mut Turn<'_>) {
    let is_limited = turn.keys.reach() == Reach::OneSlot;
    if !tables.regime.may_end() || is_limited {
        return;
    }
    let begun = tables.waits.moves();
    for _ in 0..AT_ONCE {
        if tables.waits.has_done_enough(turn.fx, begun) || !drain_one(tables, turn) {
            break;
        }
    }
}

impl Tables {
    /// Notes a value under this key for [`revisit_one`]: it is found although databases are swapped before.
    pub(crate) fn revisit_later(&mut self, db: u32, name: &[u8]) {
        self.pending.revisit.push_back((self.leases.home(db), name.to_vec()));
    }
}

/// Updates one key from its queue, if the value came from elsewhere; `false` if there is none. Runs only after all
/// noted changes are applied: a key may have moved on.
pub(crate) fn revisit_one(tables: &mut Tables, turn: &mut Turn<'_>) -> bool {
    let Some((home, name)) = tables.pending.revisit.pop_front() else { return false };
    let db = tables.leases.number(home);
    // Opening the key is enough.
    let _ = turn::on_found(tables, turn, Key { db, name: &name }, |_, _| ());
    true
}

/// Hands off in one dirty queue; `false` if there is none.
pub(crate) fn drain_one(tables: &mut Tables, turn: &mut Turn<'_>) -> bool {
    let Some(id) = tables.waits.next_dirty() else { return false };
    let Some(queue) = tables.waits.queue(id) else { return true };
    let (kind, db, name) = (queue.kind, queue.db, queue.name.to_vec());
    let observes = queue.observes;
    let key = Key { db, name: &name };
    if !turn.keys.reaches(key) {
        // The tick serves it.
        tables.waits.mark_dirty(id);
        return false;
    }
    if observes {
        inspect(tables, turn, id);
        return true;
    }
    if matches!(turn.keys.get(key), Lookup::Elsewhere) {
        // The new node may have granted it: its waiters ask there.
        tables.reject_queue(id, ErrorCode::Moving, GONE, turn.fx);
        return true;
    }
    let looked = turn::on_key(tables, turn, kind, key, |step, resource| {
        step.hand_off(resource);
    });
    if looked.is_err() {
        tables.reject_as_wrong_type(id, turn.fx);
    }
    true
}

impl Tables {
    /// The key has another type now: its waiters are told.
    pub(crate) fn reject_as_wrong_type(&mut self, queue: QueueId, fx: &mut Effects) {
        self.answer_all(queue, &wrong_type(), fx);
    }
}

pub(crate) const GONE: &str = "the key was removed or moved to another node; ask again";
