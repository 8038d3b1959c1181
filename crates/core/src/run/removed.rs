//! Holds that end together: their value was deleted, or an operator broke all readers.
//!
//! The step that deletes a value notes the requests of its holds and removes their bindings. Messages cost the server
//! more, so the tick sends them, a few at a time. The step that breaks readers takes them out of the value. The tick
//! then notes their requests and sends their messages and events. Until then lookups find their requests here.

use crate::base::key::Key;
use crate::base::kind::Kind;
use crate::base::shares::User;
use crate::base::time::LeaseInstant;
use crate::ports::effects::{Effects, Event};
use crate::ports::subject::{Subjects, subject};
use crate::ports::turn::Turn;
use crate::step::Step;
use crate::tables::Tables;
use crate::tables::pending::removed::Deleted;
use crate::tables::portions::{AT_ONCE, PART};
use crate::value::holds::Holds;
use crate::value::resource::{Body, Resource};
use crate::value::spent::{Loss, Print, Use};
use dlock_wire::message::Event as Message;

/// Tells that the value of `key` was deleted: some messages now, the rest in the tick.
pub(crate) fn tell_deleted(
    tables: &mut Tables,
    fx: &mut Effects,
    key: Key<'_>,
    subjects: Subjects,
) {
    let mut deleted = Deleted { db: key.db, name: key.name.into(), subjects };
    if tell_some(tables, fx, &mut deleted) {
        tables.pending.deleted.push_back(deleted);
    }
}

/// Returns whether more is to be told.
fn tell_some(tables: &Tables, fx: &mut Effects, deleted: &mut Deleted) -> bool {
    let key = Key { db: deleted.db, name: &deleted.name };
    let is_primary = tables.regime.is_primary();
    if is_primary {
        for _ in 0..AT_ONCE.min(tables.wide_at_once) {
            let Some(subject) = deleted.subjects.pop() else { break };
            fx.message(Message::Deleted, key, subject);
        }
    }
    is_primary && !deleted.subjects.is_empty()
}

impl Step<'_> {
    /// Ends the holds of all readers of a key, if they are more than a step ends one by one. Returns their number. The
    /// caller hands off.
    pub(crate) fn break_readers(&mut self, resource: &mut Resource) -> usize {
        let count = resource.others().map_or(0, Holds::len);
        if count <= self.tables.wide_at_once {
            return 0;
        }
        if self.dirty {
            // Noted as a record of its own: a replica must find in the value exactly the readers that are broken now.
            self.note_state(resource);
        }
        let key_id = resource.key_id;
        let Body::Rw(rw) = &mut resource.body else { return 0 };
        let readers = rw.readers.take_all();
        for (id, hold) in readers.iter() {
            self.tables.observe_broken(self.now, self.key, id, hold, self.caller.client);
            self.tables.connections.unbind_hold(self.tables.leases.hold_ref(key_id, id), hold);
        }
        self.tables.pending.note_broken(self.key, readers);
        self.tables.counters.broken += count as u64;
        if let Some(queue) = self.tables.waits.queue_of(self.key) {
            self.tables.waits.forget_readers(queue);
        }
        self.dirty = true;
        count
    }
}

/// A record has replaced the state of a key whose readers the primary has broken, all together.
pub(crate) fn replaced(tables: &mut Tables, key: Key<'_>, before: Holds, now: &Resource) {
    let is_later = |id| before.last_id().is_none_or(|last| id > last);
    // The present readers came later. Otherwise it is the same value again.
    if now.others().and_then(Holds::first_id).is_none_or(is_later) {
        tables.pending.note_broken(key, before);
    }
}

/// Does a piece of what is left to do for holds that are gone; `false` if there is nothing.
pub(crate) fn drain_removed(tables: &mut Tables, turn: &mut Turn<'_>) -> bool {
    if let Some(mut deleted) = tables.pending.deleted.pop_front() {
        if tell_some(tables, turn.fx, &mut deleted) {
            tables.pending.deleted.push_front(deleted);
        }
        return true;
    }
    let Some(mut broken) = tables.pending.broken.pop_front() else { return false };
    let lease = tables.regime.lease(turn.now.mono);
    let prints = tables.spent.prints();
    for _ in 0..PART.min(tables.wide_at_once) {
        let Some((id, hold)) = broken.readers.pop_first() else { return true };
        let key = broken.key();
        note_over(tables, prints.of_hold(key, Kind::Rw, id, &hold, Loss::Broken), lease);
        if tables.regime.is_primary() {
            turn.fx.note(key, Event::Break);
            if let Some(subject) = subject(id, &hold) {
                turn.fx.message(Message::Broken, key, subject);
            }
        }
    }
    if !broken.readers.is_empty() {
        tables.pending.broken.push_front(broken);
    }
    true
}

/// Notes requests that are over now.
pub(crate) fn note_over(
    tables: &mut Tables,
    requests: impl IntoIterator<Item = (Print, Use)>,
    now: LeaseInstant,
) {
    let limits = tables.settings.request_limits();
    for (print, what) in requests {
        tables.spent.put(User::UNKNOWN, print, what, now, limits);
    }
}
