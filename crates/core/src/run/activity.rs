//! Connections that are active again: their waiters are served. (`step/end` marks them unresponsive.)

use crate::ports::turn::Turn;
use crate::run::drain;
use crate::tables::Tables;

/// A dlock command came over `client`: its waiters count again if they were skipped.
pub(crate) fn mark_active(tables: &mut Tables, turn: &mut Turn<'_>, client: u64) {
    // A grant that expired before this command, and is found only now, must not mark the connection unresponsive
    // again.
    while tables.connections.mark_active(client) && tables.regime.is_primary() {
        serve_waiters_of(tables, turn, client);
    }
}

pub(crate) fn serve_waiters_of(tables: &mut Tables, turn: &mut Turn<'_>, client: u64) {
    tables.mark_queues_dirty(client, false);
    drain::drain_dirty(tables, turn);
}
