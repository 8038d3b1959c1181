//! FLUSHDB, FLUSHALL and SWAPDB.
//!
//! Each changes the index at its moment, in O(1): the entries and bindings of a flushed database are void as a whole,
//! because the database gets a new home ([`Leases::flush`]), and swapped databases exchange their homes. So an entry
//! always has the address of its value, whatever is replayed or made next. The tick frees the memory.
//!
//! Waiters stay with the number of their database. What these events mean to them is applied later, where keys can be
//! read: by a walk over the queues, and before an operation on a key to the queue of that key.
//!
//! [`Leases::flush`]: crate::lease::Leases::flush

use crate::effects::Message;
use crate::events::keyspace;
use crate::ids::QueueId;
use crate::key::{Key, Swap};
use crate::portions::Slots;
use crate::store::Lookup;
use crate::tables::Tables;
use crate::turn::Turn;
use alloc::vec::Vec;

/// The server has just removed all keys of one database (`None`: of all). Call this before anything else is done to
/// the keys, and [`flushed`] with the result once keys can be read: it has the databases that had keys of
/// ours, in ascending order.
pub(crate) fn keys_flushed(tables: &mut Tables, db: Option<u32>) -> Vec<u32> {
    tables.in_flight.forget_taken(|gone| db.is_none_or(|db| db == gone.db));
    tables.waits.flushed(db);
    let homes = tables.leases.flush(db);
    homes
        .into_iter()
        .map(|(number, home)| {
            tables.connections.unbind_home(home);
            tables.waits.forget_home(home);
            number
        })
        .collect()
}

/// The server has just swapped two databases. Call this before anything else is done to the keys, and
/// [`swapped`] once keys can be read.
pub(crate) fn keys_swapped(tables: &mut Tables, swap: Swap) {
    if swap.a != swap.b {
        for db in [swap.a, swap.b] {
            tables.waits.swapped(db, tables.leases.home(db));
        }
        tables.leases.swap_databases(swap);
        tables.in_flight.swap(swap);
    }
}

/// [`keys_flushed`] found keys in these databases. With `announce`, one message `flushed db` replaces one
/// message per hold.
pub(crate) fn flushed(tables: &mut Tables, turn: &mut Turn<'_>, databases: &[u32], announce: bool) {
    for number in databases.iter().filter(|_| announce && tables.regime.is_primary()) {
        let channel = dlock_wire::names::FLUSH_CHANNEL.as_bytes().to_vec();
        let text = alloc::format!("flushed {number}").into_bytes();
        turn.fx.messages.push(Message { channel, is_sharded: false, text });
    }
    check_some_queues(tables, turn);
}

/// [`keys_swapped`] was called: holds went with the data, waiters stay with the database number.
pub(crate) fn swapped(tables: &mut Tables, turn: &mut Turn<'_>) {
    check_some_queues(tables, turn);
}

/// Checks the first queues of changed databases. The tick continues.
fn check_some_queues(tables: &mut Tables, turn: &mut Turn<'_>) {
    let begun = tables.waits.moves();
    for _ in 0..tables.wide_at_once {
        if tables.waits.has_done_enough(turn.fx, begun) || !check_next_queue(tables, turn) {
            break;
        }
    }
    keyspace::drain_dirty(tables, turn);
}

/// Checks the next queue of a changed database; `false` if there is none.
pub(crate) fn check_next_queue(tables: &mut Tables, turn: &mut Turn<'_>) -> bool {
    let Some(next) = tables.waits.next_unchecked() else { return false };
    if let Some(id) = next {
        check_queue(tables, turn, id);
    }
    true
}

/// Before an operation on a key: checks its queue, if the walk has not come to it.
pub(crate) fn check_queue_of(tables: &mut Tables, turn: &mut Turn<'_>, key: Key<'_>) {
    if tables.waits.has_unchecked()
        && let Some(id) = tables.waits.queue_of(key)
    {
        check_queue(tables, turn, id);
    }
}

/// Applies a flush, or a swap, to the waiters of a queue.
fn check_queue(tables: &mut Tables, turn: &mut Turn<'_>, id: QueueId) {
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
            tables.value_is_gone(kind, key, turn.fx);
        }
    }
    // Without those that ended, the queue may be another one now.
    if let Some(id) = if observes { Some(id) } else { tables.waits.queue_of(key) } {
        keyspace::inspect(tables, turn, id);
    }
}
