//! Leases that are due.

use crate::base::ids::KeyId;
use crate::base::key::Key;
use crate::base::kind::Kind;
use crate::base::time::Millis;
use crate::base::wheel::Advance;
use crate::ports::store::{Lookup, Reach};
use crate::ports::turn::Turn;
use crate::run::{enter, keyspace};
use crate::tables::Tables;
use crate::tables::portions::{AT_ONCE, RETRY_MS};

/// Delay before the machine looks again at a key of a slot that another node serves, in milliseconds.
const AWAY_MS: Millis = 1_000;

/// Before a search for a deadlock: ends expired leases, because queues count their holders until then. Where only
/// one slot can be reached, the tick does this, except for the keys that the call names.
pub(crate) fn end_due_leases<'k>(
    tables: &mut Tables,
    turn: &mut Turn<'_>,
    named: impl Iterator<Item = (Kind, Key<'k>)>,
) {
    let lease = tables.regime.lease(turn.now.mono);
    if tables.leases.next().is_none_or(|at| at > lease) {
        return;
    }
    if turn.keys.reach() == Reach::OneSlot {
        for (kind, key) in named {
            // A key of another type has nothing of ours that could end.
            let _ = enter::on_key(tables, turn, kind, key, |_, _| ());
        }
        return;
    }
    let begun = tables.waits.moves();
    for _ in 0..AT_ONCE {
        if tables.waits.has_done_enough(turn.fx, begun)
            || !(end_awaited_lease(tables, turn) || end_lease_of_one(tables, turn))
        {
            return;
        }
    }
}

pub(crate) fn end_awaited_lease(tables: &mut Tables, turn: &mut Turn<'_>) -> bool {
    let step = tables.leases.step_awaited(tables.regime.lease(turn.now.mono));
    end_lease_of(tables, turn, step)
}

pub(crate) fn end_lease_of_one(tables: &mut Tables, turn: &mut Turn<'_>) -> bool {
    let step = tables.leases.step_others(tables.regime.lease(turn.now.mono));
    end_lease_of(tables, turn, step)
}

fn end_lease_of(tables: &mut Tables, turn: &mut Turn<'_>, step: Advance<KeyId>) -> bool {
    let key_id = match step {
        Advance::Due(key_id) => key_id,
        Advance::Moved => return true,
        Advance::Idle => return false,
    };
    let Some(found) = tables.leases.get(key_id) else { return true };
    let name = found.name.clone();
    let key = Key { db: tables.leases.database_of(found), name: &name };
    let lease = tables.regime.lease(turn.now.mono);
    if tables.settings.cluster && turn.keys.is_away(key) {
        // If the slot comes to this node, the lease is over.
        if let Some(queue) = tables.waits.queue_of(key) {
            keyspace::reject_away(tables, queue, turn.fx);
        }
        tables.leases.arm(key_id, lease + AWAY_MS);
    } else if matches!(turn.keys.get(key), Lookup::Here(resource) if resource.key_id == key_id) {
        // Opening the key ends some of its expired holds: one portion per piece of work.
        let _ = enter::on_found_in_part(tables, turn, key);
    } else {
        tables.leases.miss(key_id, lease + RETRY_MS);
    }
    true
}
