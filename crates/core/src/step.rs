//! The step: an operation on one key.

use crate::base::bytes::Owner;
use crate::base::ids::{QueueId, WaiterId};
use crate::base::key::Key;
use crate::base::shares::User;
use crate::base::time::{LeaseInstant, Now};
use crate::ports::effects::{Effects, Outcome};
use crate::ports::turn::Caller;
use crate::record;
use crate::record::{Clocks, SpentStep, StepInfo};
use crate::tables::Tables;
use crate::value::resource::Resource;
use crate::value::spent::Print;
use alloc::vec::Vec;

pub(crate) mod answered;
pub(crate) mod binding;
pub(crate) mod departed;
pub(crate) mod durable_queue;
pub(crate) mod end;
pub(crate) mod giving_up;
pub(crate) mod grant;
pub(crate) mod hand_off;
pub(crate) mod holder;
pub(crate) mod index;
pub(crate) mod leave;
pub(crate) mod observe;
pub(crate) mod observers;
pub(crate) mod reentry;
pub(crate) mod requests;
pub(crate) mod sent;
pub(crate) mod take_back;
pub(crate) mod terms;
pub(crate) mod wait;

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
    pub changed: bool,
    /// It has a new holder: a time to live that a client set on the key is removed.
    pub granted: bool,
    /// Requests that were carried out or rolled back, for the record.
    pub spent: SpentStep,
    /// Ids that are noted after the step, when the user can be asked for: those without a request.
    pub unknown: Vec<Print>,
    /// Another node serves the key: nothing ends by itself, and nothing is granted.
    pub is_away: bool,
    /// Largest number of expired holds that this step ends.
    pub ends_at_most: usize,
    /// Waiters served in this step, by all of its hand-offs.
    pub served: usize,
    /// The queue of the key, if the caller is granted ahead of its waiters: they are passed, or the caller goes first,
    /// or its call for several keys is first.
    pub overtakes: Option<QueueId>,
    /// The waiter of the caller, if it is in the queue.
    pub own_waiter: Option<WaiterId>,
    /// The owner of the last hold that this step ended.
    pub former: Option<Owner>,
    /// The answer to the caller if a grant reaches it within the call.
    pub answer: Option<Outcome>,
}

impl<'a> Step<'a> {
    /// A step on `key` that has done nothing yet.
    pub(crate) fn new(
        tables: &'a mut Tables,
        key: Key<'a>,
        now: Now,
        caller: Caller,
        user: User,
        fx: &'a mut Effects,
        ends_at_most: usize,
    ) -> Self {
        Self {
            lease: tables.regime.lease(now.mono),
            tables,
            key,
            now,
            caller,
            user,
            fx,
            dirty: false,
            changed: false,
            granted: false,
            spent: SpentStep::default(),
            unknown: Vec::new(),
            ends_at_most,
            is_away: false,
            served: 0,
            overtakes: None,
            own_waiter: None,
            former: None,
            answer: None,
        }
    }
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

    /// Before the verb: notes grants of waiters as a record of their own. The verb may end such a hold again, and its
    /// token must not be lost.
    pub(crate) fn note_grants(&mut self, resource: &mut Resource) {
        if self.granted {
            self.note_state(resource);
        }
    }

    /// After the verb: brings the queue of a durable lock, the record and the index up to date.
    pub(crate) fn settle(&mut self, resource: &mut Resource) {
        if resource.kind().has_durable_queue() {
            self.sync_queue(resource);
        }
        if self.dirty {
            self.note_state(resource);
        }
        self.tables.note_awaited(self.key, resource);
    }

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
