//! The turn: one run of the machine; and the step, an operation on one key within it.
//!
//! Every step does the same. It ends expired holds, runs its verb, updates the index, and notes the new state once as a
//! record. So expiry has one implementation, and a late alarm cannot cause a wrong state.

pub(crate) mod binding;
pub(crate) mod durable_queue;
pub(crate) mod index;

use crate::bytes::Owner;
use crate::effects::{Effects, Outcome};
use crate::events::{flush, lost};
use crate::ids::QueueId;
use crate::key::Key;
use crate::kind::Kind;
use crate::ops::multi::grantable;
use crate::portions::AT_ONCE;
use crate::queues::waiter::WaiterId;
use crate::record::{self, Clocks, SpentStep, StepInfo};
use crate::shares::User;
use crate::state::hold::NO_CLIENT;
use crate::state::resource::Resource;
use crate::store::{Lookup, Store};
use crate::tables::Tables;
use crate::time::{LeaseInstant, Now};

/// What the machine works with while it runs: the keys, the time, the caller, and the output.
pub struct Turn<'a> {
    /// The keys that may be touched now.
    pub keys: &'a mut dyn Store,
    /// The time; it stands still within a turn.
    pub now: Now,
    /// The client that sent the command; [`Caller::NONE`] outside of commands.
    pub caller: Caller,
    /// All that must happen outside of the machine.
    pub fx: &'a mut Effects,
}

impl<'a> Turn<'a> {
    /// A turn outside of commands.
    pub fn without_caller(keys: &'a mut dyn Store, now: Now, fx: &'a mut Effects) -> Self {
        Self { keys, now, caller: Caller::NONE, fx }
    }
}

/// The caller of an operation, and what the server allows on its connection.
#[derive(Debug, Clone, Copy)]
pub struct Caller {
    /// The connection; [`NO_CLIENT`] in a script, where it is unknown.
    pub client: u64,
    /// Its database.
    pub db: u32,
    /// The server would let this call block: it is in neither MULTI nor a script.
    pub may_block: bool,
}

impl Caller {
    /// No connection.
    pub const NONE: Self = Self { client: NO_CLIENT, db: 0, may_block: false };

    /// The key `name` in the database of the caller.
    pub fn key(self, name: &[u8]) -> Key<'_> {
        Key { db: self.db, name }
    }
}

/// The key changed its type since the call began: `WRONGTYPE`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WrongType;

/// One operation on one key.
#[allow(clippy::struct_excessive_bools)] // facts that do not exclude each other
pub(crate) struct Step<'a> {
    pub tables: &'a mut Tables,
    pub key: Key<'a>,
    pub now: Now,
    /// The lease clock now.
    pub lease: LeaseInstant,
    pub caller: Caller,
    /// The user of the caller, where it counts.
    pub user: User,
    pub fx: &'a mut Effects,
    /// The state of the resource changed: update its index entry and note a record.
    pub dirty: bool,
    /// A record has been noted.
    changed: bool,
    /// It has a new holder: a time to live that a client set on the key is removed.
    pub granted: bool,
    /// Requests that were carried out or rolled back, for the record.
    pub spent: SpentStep,
    /// Largest number of expired holds that this step ends.
    pub ends_at_most: usize,
    /// Waiters served in this step, by all of its hand-offs.
    pub served: usize,
    /// The queue whose waiters, all of them skipped, a grant overtakes.
    pub overtakes: Option<QueueId>,
    /// The waiter of the caller, if it is in the queue.
    pub own_waiter: Option<WaiterId>,
    /// The owner of the last hold that this step ended.
    pub former: Option<Owner>,
    /// The answer to the caller if a grant reaches it within the call.
    pub answer: Option<Outcome>,
}

/// Runs one verb on one key of the family `kind`. Expired holds end first, and the index is updated last. Then
/// calls for several keys that became grantable are granted.
pub(crate) fn on_key<R>(
    tables: &mut Tables,
    turn: &mut Turn<'_>,
    kind: Kind,
    key: Key<'_>,
    verb: impl FnOnce(&mut Step<'_>, &mut Resource) -> R,
) -> Result<R, WrongType> {
    let ends_at_most = tables.wide_at_once;
    let result = on_key_alone(tables, turn, kind, key, ends_at_most, verb)?;
    if !tables.pending.ready_groups.is_empty() {
        grantable::grant_ready_groups(tables, turn);
    }
    Ok(result)
}

/// [`on_key`] for this key alone. At most `ends_at_most` expired holds end.
pub(crate) fn on_key_alone<R>(
    tables: &mut Tables,
    turn: &mut Turn<'_>,
    kind: Kind,
    key: Key<'_>,
    ends_at_most: usize,
    verb: impl FnOnce(&mut Step<'_>, &mut Resource) -> R,
) -> Result<R, WrongType> {
    debug_assert!(
        tables.regime.accepts_writes() || !tables.regime.is_primary(),
        "a write behind the gate"
    );
    flush::check_queue_of(tables, turn, key);
    lost::see_to_loss_of(tables, turn, key);
    let user = turn.keys.user();
    let mut fresh;
    let (resource, is_there) = match turn.keys.get(key) {
        Lookup::Here(resource) if resource.kind() == kind => (resource, true),
        Lookup::Missing if !tables.waits.is_awaited_as_another(kind, key) => {
            fresh = Resource::free(kind);
            (&mut fresh, false)
        }
        Lookup::Here(_)
        | Lookup::Missing
        | Lookup::WrongType
        | Lookup::Elsewhere
        | Lookup::OutOfReach => {
            return Err(WrongType);
        }
    };
    let lease = tables.regime.lease(turn.now.mono);
    let mut step = Step {
        tables,
        key,
        now: turn.now,
        lease,
        caller: turn.caller,
        user,
        fx: turn.fx,
        dirty: false,
        changed: false,
        granted: false,
        spent: SpentStep::default(),
        ends_at_most,
        served: 0,
        overtakes: None,
        own_waiter: None,
        former: None,
        answer: None,
    };
    if is_there {
        step.enter(resource);
        step.end_by_itself(resource);
    }
    if step.granted {
        // Noted as a record of its own: the verb may end this hold again, and its token must not be lost.
        step.note_state(resource);
    }
    let result = verb(&mut step, resource);
    if kind.has_durable_queue() {
        step.sync_queue(resource);
    }
    if step.dirty {
        step.note_state(resource);
    }
    step.tables.note_awaited(key, resource);
    let Step { changed, granted, .. } = step;
    if changed {
        let is_free = resource.is_free();
        match (is_there, is_free) {
            (true, true) => turn.keys.remove(key),
            (false, false) => {
                let value = core::mem::replace(resource, Resource::free(Kind::Lock));
                turn.keys.put(key, value);
            }
            (true, false) if granted => turn.keys.persist(key),
            (true | false, _) => {}
        }
    }
    Ok(result)
}

impl Step<'_> {
    /// Ends expired holds, and holds bound to a closed connection. Does nothing in a step that ends them after its
    /// verb.
    pub(crate) fn end_by_itself(&mut self, resource: &mut Resource) {
        if self.ends_at_most == 0 {
            return;
        }
        self.end_expired(resource);
        let may_shorten = self.tables.regime.may_end();
        if may_shorten && self.tables.connections.has_departed() {
            self.shorten_all_gone(resource);
        }
    }
}

/// [`on_key`] for a key of any family; `None` if it is missing or of a foreign type.
pub(crate) fn on_found<R>(
    tables: &mut Tables,
    turn: &mut Turn<'_>,
    key: Key<'_>,
    verb: impl FnOnce(&mut Step<'_>, &mut Resource) -> R,
) -> Option<R> {
    let Lookup::Here(resource) = turn.keys.get(key) else { return None };
    let kind = resource.kind();
    on_key(tables, turn, kind, key, verb).ok()
}

/// Checks a key in the tick. If more holds have expired than a step ends, the next tick ends the others.
pub(crate) fn on_found_in_part(
    tables: &mut Tables,
    turn: &mut Turn<'_>,
    key: Key<'_>,
) -> Option<()> {
    let Lookup::Here(resource) = turn.keys.get(key) else { return None };
    let kind = resource.kind();
    let most = tables.wide_at_once.min(AT_ONCE);
    on_key_alone(tables, turn, kind, key, most, |_, _| ()).ok()?;
    grantable::grant_ready_groups(tables, turn);
    Some(())
}

impl Step<'_> {
    /// Updates the index entry of a changed resource and notes the record of its new state.
    pub(crate) fn note_state(&mut self, resource: &mut Resource) {
        self.tables.settle(self.key, resource);
        let now = Clocks { mono: self.now.mono, lease: self.lease };
        let info = StepInfo { granted: self.granted, spent: core::mem::take(&mut self.spent) };
        let level = self.tables.level;
        self.fx.record(self.key, |out| record::encode_step(resource, now, level, &info, out));
        self.dirty = false;
        self.changed = true;
    }
}
