//! Values that the server has unlinked from their keys: most of them are gone for good, and their holds have ended.

use crate::effects::Subject;
use crate::ids::{ALONE, HoldId, HoldRef, KeyId};
use crate::key::Key;
use crate::kind::Kind;
use crate::machine::Machine;
use crate::requests::LOST_LATCH;
use crate::spent::{RequestKey, Scope, Use, spent_of};
use crate::state::hold::NO_CLIENT;
use crate::state::holds::Holds;
use crate::state::resource::{Body, Resource};
use crate::store::Lookup;
use crate::subject::subject;
use crate::turn::Turn;
use alloc::boxed::Box;
use alloc::vec::Vec;
use dlock_wire::message::Event;

/// The state of a value when the server unlinked it from its key.
#[derive(Debug)]
pub struct Lost {
    key_id: KeyId,
    kind: Kind,
    /// The connections to which its holds were bound.
    bindings: Vec<(u64, HoldId)>,
    /// The `deleted` messages, for the holds that send messages.
    messages: Vec<Subject>,
    /// The requests of its holds.
    requests: Vec<LostRequest>,
    /// Whether these lists cover only the hold of [`Resource::lock`].
    is_large: bool,
    /// A large value itself, once the server has freed it.
    value: Option<Box<Resource>>,
    /// RENAME or MOVE unlinked it: the value lives on under another key.
    has_moved: bool,
}

/// A request of a hold whose key is gone.
#[derive(Debug)]
struct LostRequest {
    scope: Scope,
    owner: Box<[u8]>,
    id: Box<[u8]>,
    what: Use,
}

impl Lost {
    /// Notes the state of `resource`, for a later [`Machine::unlinked`].
    pub fn of(resource: &Resource) -> Self {
        Self::with(resource, false)
    }

    /// As [`Lost::of`], in O(1), for a value with very many parts. The shell has to [bring](Lost::bring) the value when
    /// the server frees it. The server does not free a value that lives on under another name.
    pub fn of_large(resource: &Resource) -> Self {
        Self::with(resource, true)
    }

    fn with(resource: &Resource, is_large: bool) -> Self {
        let kind = resource.kind();
        // The hold of the lock comes first.
        let holds = || resource.holds().take_while(|(id, _)| !is_large || *id == ALONE);
        let tied = holds().filter(|(_, hold)| hold.bound_to() != NO_CLIENT);
        let requests = holds().flat_map(|(id, hold)| spent_of(kind, id, hold, false));
        let is_closed = matches!(&resource.body, Body::Latch(latch) if latch.count > 0);
        let requests = requests.chain(is_closed.then_some((LOST_LATCH, Use::PassedOver)));
        let requests = requests.map(|(name, what)| LostRequest {
            scope: name.scope,
            owner: name.owner.into(),
            id: name.id.into(),
            what,
        });
        Self {
            key_id: resource.key_id,
            kind,
            requests: requests.collect(),
            bindings: tied.map(|(id, hold)| (hold.bound_to(), id)).collect(),
            messages: holds().filter_map(|(id, hold)| subject(id, hold)).collect(),
            is_large,
            value: None,
            has_moved: false,
        }
    }

    /// RENAME or MOVE has brought the value to another key. Call this as soon as that is known.
    pub fn follow(&mut self) {
        self.has_moved = true;
    }

    /// The requests of its holds that are over with the value: none if the value lives on.
    pub(crate) fn spent(&self) -> impl Iterator<Item = (RequestKey<'_>, Use)> {
        let kind = self.kind;
        let noted = self.requests.iter().map(|LostRequest { scope, owner, id, what }| {
            (RequestKey { scope: *scope, owner, id }, *what)
        });
        // The list of a large value covers only the hold of the lock.
        let others = self.value.iter().filter_map(|value| value.others()).flat_map(Holds::iter);
        let others = others.flat_map(move |(id, hold)| spent_of(kind, id, hold, false));
        noted.chain(others).filter(|_| !self.has_moved)
    }

    /// Whether this waits for `resource` to be brought.
    pub fn awaits(&self, resource: &Resource) -> bool {
        self.is_large
            && self.value.is_none()
            && self.key_id == resource.key_id
            && self.kind == resource.kind()
    }

    /// The server has freed the value.
    pub fn bring(&mut self, value: Box<Resource>) {
        self.value = Some(value);
    }
}

impl Machine {
    /// A value was unlinked from `key`: deleted, evicted, overwritten, or moved elsewhere. Call [`Machine::moved`]
    /// first, so that this call can see the move, and [`Machine::drain_some`] afterwards.
    pub fn unlinked(&mut self, turn: &mut Turn<'_>, key: Key<'_>, lost: Option<Lost>) {
        if let Some(mut lost) = lost {
            let value = lost.value.take();
            if let Some(from) = self.leases.key_of(lost.key_id)
                && self.may_be_exchanged(from.db, key.db)
            {
                self.follow_exchange(turn.keys, lost.key_id, key);
            }
            match (self.is_gone(turn, key, &lost), value) {
                (true, value) => self.lose(turn, key, &lost, value),
                (false, Some(value)) => self.freed(*value),
                (false, None) => {}
            }
        }
        if let Some(queue) = self.waits.queue_of(key) {
            self.inspect(turn, queue);
        }
        if let Some(observers) = self.waits.observers_of(key) {
            self.inspect(turn, observers);
        }
    }

    /// Before an operation on a key: if opening the key removed a value whose time to live is over, applies that loss.
    /// Reported later, it would pass for the loss of what this operation puts there.
    pub(crate) fn see_to_loss_of(&mut self, turn: &mut Turn<'_>, key: Key<'_>) {
        if let Some(lost) = turn.keys.take_lost(key) {
            self.unlinked(turn, key, Some(lost));
        }
    }

    /// Whether a value that was unlinked from `key` is gone for good. If it moved, its entry has moved with it.
    fn is_gone(&mut self, turn: &mut Turn<'_>, key: Key<'_>, lost: &Lost) -> bool {
        let is_here = lost.key_id != KeyId::NONE
            && matches!(turn.keys.get(key), Lookup::Here(here) if here.key_id == lost.key_id);
        let has_entry = self.leases.of_key(lost.key_id, key).is_some();
        if lost.has_moved {
            if has_entry && !is_here {
                // A record was replayed under its new key before this server followed it there, and made a new entry.
                self.leave_entry(key, lost);
            }
            return false;
        }
        // A value that was just loaded has no entry yet. One that moved before it was removed may have lost its own.
        !is_here && (has_entry || self.leases.get(lost.key_id).is_none())
    }

    /// Removes the entry of a value that is no longer under `key`, and its bindings.
    fn leave_entry(&mut self, key: Key<'_>, lost: &Lost) {
        if self.leases.of_key(lost.key_id, key).is_some() {
            self.leases.leave(lost.key_id);
        }
        for &(client, id) in &lost.bindings {
            self.connections.unbind(client, HoldRef { key: lost.key_id, id });
        }
    }

    /// Applies the loss of a value. For a large value, [`Machine::drain_removed`] does most of it.
    fn lose(
        &mut self,
        turn: &mut Turn<'_>,
        key: Key<'_>,
        lost: &Lost,
        value: Option<Box<Resource>>,
    ) {
        self.leave_entry(key, lost);
        // A replica does the same itself.
        let (lease, limits) = (self.regime.lease(turn.now.mono), self.request_limits());
        // A record may have made a new latch before this replica heard of the end of the old one.
        let is_replaced = matches!(turn.keys.get(key), Lookup::Here(_));
        for (name, what) in lost.spent().filter(|(name, _)| !(is_replaced && *name == LOST_LATCH)) {
            self.spent.note(key, name, what, lease, limits);
        }
        if self.regime.is_primary() {
            for subject in &lost.messages {
                turn.fx.message(Event::Deleted, key, subject.clone());
            }
            if lost.kind == Kind::Semaphore && !matches!(turn.keys.get(key), Lookup::Here(_)) {
                self.forget_taken(|gone| gone == key);
            }
            self.value_is_gone(lost.kind, key, turn.fx);
        }
        match value {
            Some(value) => {
                self.take_over_removed(key, lost.key_id, value);
                self.drain_removed(turn);
            }
            // The server has freed the value in the background, although it is told not to: at least drop its bindings.
            None if lost.is_large => self.begin_untie(key.db),
            None => {}
        }
    }
}
