//! Effects of other commands on our keys: DEL, SET over one, RENAME, FLUSHALL, SWAPDB, a slot that moves away.
//!
//! The server reports these in callbacks in which nothing may be written, and cannot tell some of them apart. So the
//! shell only notes them. Later it asks the machine to check what the key holds by then.

use crate::base::ids::QueueId;
use crate::base::key::{Key, Place};
use crate::base::kind::Kind;
use crate::base::slab::SlabId;
use crate::ports::answers::{BROKEN, wrong_type};
use crate::ports::effects::Effects;
use crate::ports::store::Lookup;
use crate::ports::turn::Turn;
use crate::tables::Tables;
use crate::tables::portions::{AT_ONCE, Slots};
use crate::tables::queues::waiter::Queue;
use crate::value::resource::{Body, Resource};
use core::ops::Range;
use dlock_wire::reply::ErrorCode;

/// A value was unlinked from `key`, which cannot be read now: [`unlinked`] follows in the tick. Until then
/// no owner counts as its holder.
///
/// [`unlinked`]: crate::run::lost::unlinked
pub(crate) fn forget_holders(tables: &mut Tables, key: Key<'_>) {
    if let Some(queue) = tables.waits.queue_of(key) {
        tables.waits.forget_holders(queue);
    }
}

/// A value of ours is gone for good: applies this to its waiters, by family.
pub(crate) fn value_is_gone(tables: &mut Tables, kind: Kind, key: Key<'_>, fx: &mut Effects) {
    let Some(queue) = tables.waits.queue_of(key) else { return };
    if tables.waits.queue(queue).is_none_or(|queue| queue.kind != kind) {
        // These waiters asked for another family, and a swap brought this value.
        return;
    }
    match kind {
        Kind::Fair => tables.drop_entries(queue),
        Kind::Latch => {
            tables.reject_queue(queue, ErrorCode::Broken, BROKEN, fx);
        }
        // A call for several keys that counted on its own hold is checked once more before it is granted.
        Kind::Lock | Kind::Rw | Kind::Semaphore => {}
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
    tables.in_flight.forget_taken(key);
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
        return inspect_observers(tables, turn, id);
    }
    match turn.keys.get(queue.key()) {
        Lookup::Here(resource) if resource.kind() == queue.kind => {
            tables.waits.note_holders(id, resource, true);
            tables.waits.mark_dirty(id);
        }
        Lookup::Here(_) | Lookup::WrongType => tables.answer_all(id, &wrong_type(), turn.fx),
        // There are no waiters, and the key of this queue is gone: it can be of any family now.
        Lookup::Missing if queue.len == 0 => tables.waits.close_if_empty(id),
        Lookup::Missing if queue.kind == Kind::Latch => {
            tables.reject_queue(id, ErrorCode::Broken, BROKEN, turn.fx);
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

/// After a change of the key that is no operation of ours: tells the observers if the hold is not there any more.
fn inspect_observers(tables: &mut Tables, turn: &mut Turn<'_>, id: QueueId) {
    let Some(queue) = tables.waits.queue(id) else { return };
    let is_same = |token| Some(token) == tables.waits.observed(id);
    match turn.keys.get(queue.key()) {
        Lookup::Here(resource)
            if resource.kind() == queue.kind
                && resource.lock().hold().is_some_and(|hold| is_same(hold.token)) => {}
        Lookup::Missing if tables.settings.cluster => {
            tables.reject_queue(id, ErrorCode::Moving, GONE, turn.fx);
        }
        Lookup::Here(_) | Lookup::Missing | Lookup::WrongType => tables.end_observed(id, turn.fx),
        Lookup::Elsewhere => tables.reject_queue(id, ErrorCode::Moving, GONE, turn.fx),
        Lookup::OutOfReach => tables.waits.mark_dirty(id),
    }
}

/// In the tick: lists some readers of a key with waiters, or forgets some of a former one; `false` if there are none.
pub(crate) fn list_readers(tables: &mut Tables, turn: &mut Turn<'_>) -> bool {
    if tables.waits.forget_some_readers() {
        return true;
    }
    let Some(id) = tables.waits.next_unlisted() else { return false };
    let found = tables.waits.queue(id).and_then(|queue| turn.keys.peek(queue.key()));
    match found.map(|resource| &resource.body) {
        Some(Body::Rw(rw)) => tables.waits.list_readers(id, rw, AT_ONCE),
        _ => tables.waits.forget_readers(id),
    }
    true
}

/// This node no longer serves the slots of some keys: their waiters must ask elsewhere. Checks the queues with these
/// numbers, below [`WaitQueues::queue_bound`](crate::tables::queues::WaitQueues::queue_bound), until they make much
/// work. Returns the first number that it has not checked.
pub(crate) fn slot_lost(
    tables: &mut Tables,
    queues: Range<QueueId>,
    mut place: impl FnMut(Key<'_>) -> Place,
    fx: &mut Effects,
) -> QueueId {
    let begun = tables.waits.moves();
    for id in queues.start.up_to(queues.end) {
        if tables.waits.has_done_enough(fx, begun) {
            return id;
        }
        match tables.waits.queue(id).map(|queue| place(queue.key())) {
            Some(Place::Away) => reject_away(tables, id, fx),
            Some(Place::Gone) => tables.reject_queue(id, ErrorCode::Moving, GONE, fx),
            Some(Place::Here) | None => {}
        }
    }
    queues.end
}

/// Another node serves the key of this queue, whose value is here: its waiters ask there. A value that came early
/// brought its places along, which are part of it, and no call.
pub(crate) fn reject_away(tables: &mut Tables, id: QueueId, fx: &mut Effects) {
    let came_early = tables.waits.queue(id).is_some_and(Queue::is_durable)
        && !tables.waits.walk(id).any(|(_, waiter)| waiter.wait_state.is_parked());
    if !came_early {
        tables.reject_queue(id, ErrorCode::Moving, GONE, fx);
    }
}

pub(crate) const GONE: &str = "the key was removed or moved to another node; ask again";

/// Before an operation on a key: checks its queue, if the walk has not come to it.
pub(crate) fn check_queue_of(tables: &mut Tables, turn: &mut Turn<'_>, key: Key<'_>) {
    if tables.waits.has_unchecked()
        && let Some(id) = tables.waits.queue_of(key)
    {
        check_queue(tables, turn, id);
    }
}

/// Applies a flush, or a swap, to the waiters of a queue.
pub(crate) fn check_queue(tables: &mut Tables, turn: &mut Turn<'_>, id: QueueId) {
    let Some(queue) = tables.waits.queue(id).filter(|queue| tables.waits.is_unchecked(queue))
    else {
        return;
    };
    let (kind, db, name) = (queue.kind, queue.db, queue.name.clone());
    let (observes, matters) = (queue.observes, queue.matters_to_value());
    let is_flushed = !observes && tables.waits.is_flushed(queue);
    let is_swapped = tables.waits.former_homes(queue).next().is_some();
    if matters && tables.regime.is_primary() {
        // A value that a swap took from these waiters has no queue entries now. It may exist only for them.
        let homes = tables.waits.former_homes(queue);
        tables.pending.revisit.extend(homes.map(|home| (home, name.to_vec())));
    }
    // With a new number it is checked: these changes do not concern its later waiters.
    tables.waits.renew_serial(id);
    let key = Key { db, name: &name };
    if is_flushed {
        // Waiters without a connection end with the holds of their database.
        for slot in tables.waits.absent_in(id).collect::<Slots>() {
            tables.remove_waiter(slot);
        }
        // A value that is there was loaded since, unless a swap brought it: the same data may be back.
        let is_back = !is_swapped && matches!(turn.keys.get(key), Lookup::Here(_));
        if !is_back && tables.regime.is_primary() {
            value_is_gone(tables, kind, key, turn.fx);
        }
    }
    // Without those that ended, the queue may be another one now.
    if let Some(id) = if observes { Some(id) } else { tables.waits.queue_of(key) } {
        inspect(tables, turn, id);
    }
}
