//! Queue entries: added, kept by a later call of the same owner, and removed for it.

use crate::base::ids::{QueueId, WaiterId, WaiterSlot};
use crate::base::key::Key;
use crate::base::kind::Kind;
use crate::base::time::Instant;
use crate::ports::answers::quoted;
use crate::ports::effects::{Answer, Effects, Event, Outcome, Subject, SubjectId};
use crate::step::Step;
use crate::step::terms::Terms;
use crate::tables::Tables;
use crate::tables::queues::waiter::{NewWaiter, Position, WaitState};
use crate::value::fair::QueueEntry;
use crate::value::hold::{Notify, channel};
use crate::value::wait_request::WaitRequest;
use alloc::format;
use alloc::sync::Arc;
use dlock_wire::message;
use dlock_wire::reply::ErrorCode;

impl Step<'_> {
    /// Adds the owner to the queue, or keeps its queue entry. With another mode, or for more permits, it goes to the
    /// end. An owner that goes first does not keep an entry behind other waiters.
    pub(crate) fn join_queue(
        &mut self,
        kind: Kind,
        terms: &Terms<'_>,
        wait_state: WaitState,
        position: Position,
    ) -> Result<WaiterSlot, Outcome> {
        let ask = WaitRequest { user: self.user, ..terms.to_wait_request() };
        if let Some(slot) = self.tables.waits.waiter_at(self.key, terms.owner) {
            let has = self.tables.waits.get(slot).map_or(ask.demand, |waiter| waiter.ask.demand);
            let stands_well =
                position == Position::Back || self.tables.waits.ahead_of(slot).next().is_none();
            if has.keeps_position_for(ask.demand) && stands_well {
                self.tables.replace(self.key, slot, self.caller.client, wait_state, ask, self.fx);
                self.tables.note_waiter(slot);
                return Ok(slot);
            }
            // One place goes and one comes.
            self.tables.evict(self.key, slot, terms.reqid, self.fx);
        } else {
            self.tables.has_room(self.key, 1)?;
        }
        let new_waiter = NewWaiter {
            entry: Arc::new(QueueEntry { owner: terms.owner.into(), since: self.now.mono, ask }),
            client: self.caller.client,
            wait_state,
            position,
        };
        let slot = self.tables.waits.join(self.key, kind, new_waiter);
        self.tables.note_waiter(slot);
        Ok(slot)
    }
}

impl Tables {
    /// Tells the connection of a new waiter that it has it, and whether the waiter is its blocked call. Returns the id
    /// of that call.
    pub(crate) fn note_waiter(&mut self, slot: WaiterSlot) -> Option<WaiterId> {
        let waiter = self.waits.get(slot)?;
        let (id, is_parked) = (waiter.id, waiter.wait_state.is_parked());
        self.connections.add_waiter(waiter.client, id, is_parked);
        is_parked.then_some(id)
    }

    /// The answer to a call that waits in `slot`, the last thing that it does there.
    pub(crate) fn park(&mut self, slot: WaiterSlot) -> Answer {
        self.note_waiter(slot).map_or(Answer::Now(Outcome::Null), Answer::Parked)
    }

    /// Parks a call without an owner at the end of the queue. `LIMIT` if too many wait.
    pub(crate) fn park_nameless(
        &mut self,
        kind: Kind,
        key: Key<'_>,
        waiter: NewWaiter,
        fx: &mut Effects,
    ) -> Answer {
        if let Err(fault) = self.has_room(key, 1) {
            return fault.into();
        }
        let slot = self.waits.join(key, kind, waiter);
        fx.note(key, Event::Wait);
        self.park(slot)
    }

    /// Whether the queues have room for `more` waiters, one of them for `key`. If too many wait in all, absent ones of
    /// the ACL user that has the most give way.
    pub(crate) fn has_room(&mut self, key: Key<'_>, more: usize) -> Result<(), Outcome> {
        self.has_room_in(self.waits.queue_of(key), more)
    }

    /// [`Tables::has_room`] in this queue of the key; `None`: it has none yet.
    pub(crate) fn has_room_in(
        &mut self,
        queue: Option<QueueId>,
        more: usize,
    ) -> Result<(), Outcome> {
        let here = queue.and_then(|queue| self.waits.queue(queue)).map_or(0, |queue| queue.len);
        let (most, setting) = if here >= self.settings.max_waiters_per_key {
            (here, "dlock.max-waiters-per-key")
        } else if !self.make_room(more) {
            (self.waits.len(), "dlock.max-waiters")
        } else {
            return Ok(());
        };
        Err(Outcome::fault(ErrorCode::Limit, format!("{most} callers wait already ({setting})")))
    }

    /// Whether there is room for `more` waiters in all, after as many absent ones have left.
    fn make_room(&mut self, more: usize) -> bool {
        for _ in 0..more {
            if self.waits.len().saturating_add(more) <= self.settings.max_waiters {
                return true;
            }
            let Some(slot) = self.waits.absent_of_largest() else { return false };
            self.remove_waiter(slot);
        }
        self.waits.len().saturating_add(more) <= self.settings.max_waiters
    }

    /// A later call takes over the queue entry of an earlier one.
    fn replace(
        &mut self,
        key: Key<'_>,
        slot: WaiterSlot,
        client: u64,
        wait_state: WaitState,
        ask: WaitRequest,
        fx: &mut Effects,
    ) {
        self.tell_replaced(key, slot, ask.request.as_deref(), fx);
        let Some(earlier) = self.waits.get(slot) else { return };
        if earlier.is_grouped() {
            let group = earlier.group;
            self.remove_group(group, |member| member == slot);
        } else {
            self.connections.remove_waiter(earlier.client, slot);
        }
        self.waits.take_over(slot, client, wait_state, ask);
    }

    /// An earlier call of the same owner is over, because of request `by`; its waiters are removed.
    pub(crate) fn evict(
        &mut self,
        key: Key<'_>,
        slot: WaiterSlot,
        by: Option<&[u8]>,
        fx: &mut Effects,
    ) {
        self.tell_replaced(key, slot, by, fx);
        if let Some(queue) = self.waits.get(slot).map(|waiter| waiter.queue) {
            self.remove_waiter(slot);
            self.waits.mark_dirty(queue);
        }
    }

    /// Answers the call with its waiter in `slot`, if it is blocked: a later call, with request id `by`, has replaced
    /// it. A request without a blocked call gets a message. A later call that is a copy of it asks for the same: then
    /// the blocked call gets Null, and there is no message.
    pub(crate) fn tell_replaced(
        &mut self,
        key: Key<'_>,
        slot: WaiterSlot,
        by: Option<&[u8]>,
        fx: &mut Effects,
    ) {
        let Some(earlier) = self.waits.get(slot).map(|waiter| self.waits.leader(waiter)) else {
            return;
        };
        let id = earlier.ask.request.as_deref();
        let is_copy = id.is_some() && id == by;
        if earlier.wait_state.is_parked() && is_copy {
            fx.wake(earlier.id, Outcome::Null);
        } else if earlier.wait_state.is_parked() {
            let text = format!(
                "{} asked again for {} with another call",
                quoted(&earlier.owner),
                quoted(key.name)
            );
            fx.wake(earlier.id, Outcome::fault(ErrorCode::Replaced, text));
            self.counters.replaced += 1;
        } else if id.is_some()
            && !is_copy
            && let Some(subject) = place_subject(earlier)
        {
            fx.message(message::Event::Replaced, key, subject);
        }
    }
}

/// The subject of a message about a wait that ends without a blocked call and without a grant.
pub(crate) fn place_subject(place: &QueueEntry) -> Option<Subject<'_>> {
    Some(Subject {
        channel: channel(&place.ask.notify, &place.owner)?,
        is_sharded: matches!(place.ask.notify, Notify::Sharded(_)),
        id: SubjectId::Token(0),
        owner: &place.owner,
        reqid: place.ask.request.as_deref().unwrap_or_default(),
    })
}

/// A waiter without an owner.
pub(crate) fn nameless(
    client: u64,
    wait_state: WaitState,
    since: Instant,
    ask: WaitRequest,
) -> NewWaiter {
    let entry = Arc::new(QueueEntry { owner: [].as_slice().into(), since, ask });
    NewWaiter { entry, client, wait_state, position: Position::Back }
}
