//! The dirty queues: their keys may be free, and their waiters are served.

use crate::base::key::Key;
use crate::ports::answers::wrong_type;
use crate::ports::store::{Lookup, Reach};
use crate::ports::turn::Turn;
use crate::run::enter;
use crate::run::keyspace;
use crate::run::keyspace::{GONE, inspect};
use crate::tables::Tables;
use crate::tables::portions::AT_ONCE;
use dlock_wire::reply::ErrorCode;

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

/// Updates one key from its queue, if the value came from elsewhere; `false` if there is none. Runs only after all
/// noted changes are applied: a key may have moved on.
pub(crate) fn revisit_one(tables: &mut Tables, turn: &mut Turn<'_>) -> bool {
    let Some((home, name)) = tables.pending.revisit.pop_front() else { return false };
    let db = tables.leases.number(home);
    // Opening the key is enough.
    let _ = enter::on_found(tables, turn, Key { db, name: &name }, |_, _| ());
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
    if tables.settings.cluster && turn.keys.is_away(key) {
        keyspace::reject_away(tables, id, turn.fx);
        return true;
    }
    if matches!(turn.keys.get(key), Lookup::Elsewhere) {
        // The new node may have granted it: its waiters ask there.
        tables.reject_queue(id, ErrorCode::Moving, GONE, turn.fx);
        return true;
    }
    let looked = enter::on_key(tables, turn, kind, key, |step, resource| {
        step.hand_off(resource);
    });
    if looked.is_err() {
        tables.answer_all(id, &wrong_type(), turn.fx);
    }
    true
}
