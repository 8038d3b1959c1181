//! The turn: one run of the machine; and the step, an operation on one key within it.
//!
//! Every step does the same. It ends expired holds, runs its verb, updates the index, and notes the new state once as a
//! record. So expiry has one implementation, and a late alarm cannot cause a wrong state.

pub(crate) mod binding;
mod durable_queue;
pub(crate) mod index;

use crate::bytes::Owner;
use crate::effects::{Effects, Outcome};
use crate::ids::QueueId;
use crate::key::Key;
use crate::kind::Kind;
use crate::machine::Machine;
use crate::portions::AT_ONCE;
use crate::queues::waiter::WaiterId;
use crate::record::{self, Clocks, SpentStep, StepInfo};
use crate::shares::User;
use crate::state::hold::NO_CLIENT;
use crate::state::resource::Resource;
use crate::store::{Lookup, Store};
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

impl Machine {
    /// Runs one verb on one key of the family `kind`. Expired holds end first, and the index is updated last. Then
    /// calls for several keys that became grantable are granted.
    pub(crate) fn on_key<R>(
        &mut self,
        turn: &mut Turn<'_>,
        kind: Kind,
        key: Key<'_>,
        verb: impl FnOnce(&mut Self, &mut Step<'_>, &mut Resource) -> R,
    ) -> Result<R, WrongType> {
        let result = self.on_key_alone(turn, kind, key, self.wide_at_once, verb)?;
        if !self.pending.ready_groups.is_empty() {
            self.grant_ready_groups(turn);
        }
        Ok(result)
    }

    /// [`Machine::on_key`] for this key alone. At most `ends_at_most` expired holds end.
    pub(crate) fn on_key_alone<R>(
        &mut self,
        turn: &mut Turn<'_>,
        kind: Kind,
        key: Key<'_>,
        ends_at_most: usize,
        verb: impl FnOnce(&mut Self, &mut Step<'_>, &mut Resource) -> R,
    ) -> Result<R, WrongType> {
        debug_assert!(
            self.regime.accepts_writes() || !self.regime.is_primary(),
            "a write behind the gate"
        );
        self.check_queue_of(turn, key);
        self.see_to_loss_of(turn, key);
        let user = turn.keys.user();
        let mut fresh;
        let (resource, is_there) = match turn.keys.get(key) {
            Lookup::Here(resource) if resource.kind() == kind => (resource, true),
            Lookup::Missing if !self.is_awaited_as_another(kind, key) => {
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
        let lease = self.regime.lease(turn.now.mono);
        let mut step = Step {
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
            self.enter(&mut step, resource);
            self.end_by_itself(&mut step, resource);
        }
        if step.granted {
            // Noted as a record of its own: the verb may end this hold again, and its token must not be lost.
            self.note_state(&mut step, resource);
        }
        let result = verb(self, &mut step, resource);
        if kind.has_durable_queue() {
            self.sync_queue(&mut step, resource);
        }
        if step.dirty {
            self.note_state(&mut step, resource);
        }
        self.note_awaited(key, resource);
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

    /// Ends expired holds, and holds bound to a closed connection. Does nothing in a step that ends them after its
    /// verb.
    pub(crate) fn end_by_itself(&mut self, step: &mut Step<'_>, resource: &mut Resource) {
        if step.ends_at_most == 0 {
            return;
        }
        self.end_expired(step, resource);
        let may_shorten = self.regime.may_end();
        if may_shorten && self.connections.has_departed() {
            self.shorten_all_gone(step, resource);
        }
    }

    /// [`Machine::on_key`] for a key of any family; `None` if it is missing or of a foreign type.
    pub(crate) fn on_found<R>(
        &mut self,
        turn: &mut Turn<'_>,
        key: Key<'_>,
        verb: impl FnOnce(&mut Self, &mut Step<'_>, &mut Resource) -> R,
    ) -> Option<R> {
        let Lookup::Here(resource) = turn.keys.get(key) else { return None };
        let kind = resource.kind();
        self.on_key(turn, kind, key, verb).ok()
    }

    /// Checks a key in the tick. Of very many expired holds it ends a part, and the tick comes back.
    pub(crate) fn on_found_in_part(&mut self, turn: &mut Turn<'_>, key: Key<'_>) -> Option<()> {
        let Lookup::Here(resource) = turn.keys.get(key) else { return None };
        let kind = resource.kind();
        let most = self.wide_at_once.min(AT_ONCE);
        self.on_key_alone(turn, kind, key, most, |_, _, _| ()).ok()?;
        self.grant_ready_groups(turn);
        Some(())
    }

    /// Updates the index entry of a changed resource and notes the record of its new state.
    pub(crate) fn note_state(&mut self, step: &mut Step<'_>, resource: &mut Resource) {
        self.settle(step.key, resource);
        let now = Clocks { mono: step.now.mono, lease: step.lease };
        let info = StepInfo { granted: step.granted, spent: core::mem::take(&mut step.spent) };
        let level = self.level;
        step.fx.record(step.key, |out| record::encode_step(resource, now, level, &info, out));
        step.dirty = false;
        step.changed = true;
    }
}
