//! FLUSHDB, FLUSHALL and SWAPDB.
//!
//! Each changes the index at its moment, in O(1): the entries and bindings of a flushed database are void as a whole,
//! because the database gets a new home ([`Leases::flush`]), and swapped databases exchange their homes. So an entry
//! always has the address of its value, whatever is replayed or made next. The tick frees the memory.
//!
//! Waiters stay with the number of their database. What these events mean to them is applied later, where keys can be
//! read: by a walk over the queues, and before an operation on a key to the queue of that key.
//!
//! [`Leases::flush`]: crate::tables::lease::Leases::flush

use crate::base::key::Swap;
use crate::ports::effects::Message;
use crate::ports::turn::Turn;
use crate::run::drain;
use crate::run::keyspace::check_queue;
use crate::tables::Tables;
use alloc::vec::Vec;

/// The server has just removed all keys of one database (`None`: of all). Call this before anything else is done to
/// the keys, and [`flushed`] with the result once keys can be read: it has the databases that had keys of
/// ours, in ascending order.
pub(crate) fn keys_flushed(tables: &mut Tables, db: Option<u32>) -> Vec<u32> {
    tables.in_flight.forget_taken_in(db);
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
    drain::drain_dirty(tables, turn);
}

/// Checks the next queue of a changed database; `false` if there is none.
pub(crate) fn check_next_queue(tables: &mut Tables, turn: &mut Turn<'_>) -> bool {
    let Some(next) = tables.waits.next_unchecked() else { return false };
    if let Some(id) = next {
        check_queue(tables, turn, id);
    }
    true
}
