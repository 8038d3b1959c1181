//! Queue entries: added, kept by a later call of the same owner, and removed for it.

use crate::answers::quoted;
use crate::effects::{Effects, Event, Outcome};
use crate::key::Key;
use crate::kind::Kind;
use crate::machine::Machine;
use crate::queues::waiter::{Ask, Newcomer, Presence, Rank};
use crate::state::fair::Place;
use crate::terms::Terms;
use crate::time::Instant;
use crate::turn::Step;
use alloc::format;
use alloc::sync::Arc;
use dlock_wire::reply::ErrorCode;

impl Machine {
    /// Adds the owner to the queue, or keeps its queue entry. With another mode, or for more permits, it goes to the
    /// end. An owner that goes first does not keep an entry behind other waiters.
    pub(crate) fn stand_in_line(
        &mut self,
        step: &mut Step<'_>,
        kind: Kind,
        terms: &Terms<'_>,
        presence: Presence,
        rank: Rank,
    ) -> Result<u32, Outcome> {
        let ask = terms.to_ask();
        if let Some(slot) = self.waits.place_at(step.key, terms.owner) {
            let has = self.waits.get(slot).map_or(ask.want, |waiter| waiter.ask.want);
            let stands_well = rank == Rank::Last || self.waits.ahead_of(slot).next().is_none();
            if has.keeps_place_for(ask.want) && stands_well {
                self.replace(step.key, slot, (step.caller.client, presence, ask), step.fx);
                self.connections.add_place(step.caller.client, slot, presence.is_parked());
                return Ok(slot);
            }
            self.oust(step.key, slot, step.fx);
        }
        self.has_room(step.key, 1)?;
        let newcomer = Newcomer {
            entry: Arc::new(Place { owner: terms.owner.into(), since: step.now.mono, ask }),
            client: step.caller.client,
            presence,
            rank,
        };
        let slot = self.waits.join(step.key, kind, newcomer);
        self.connections.add_place(step.caller.client, slot, presence.is_parked());
        Ok(slot)
    }

    /// Parks a call without an owner at the end of the queue. `LIMIT` if too many wait.
    pub(crate) fn park_nameless(
        &mut self,
        kind: Kind,
        key: Key<'_>,
        waiter: Newcomer,
        fx: &mut Effects,
    ) -> Result<(), Outcome> {
        self.has_room(key, 1)?;
        let client = waiter.client;
        let slot = self.waits.join(key, kind, waiter);
        self.connections.add_place(client, slot, true);
        fx.parked = self.waits.get(slot).map(|waiter| waiter.id);
        fx.note(key, Event::Wait);
        Ok(())
    }

    /// Whether the queues have room for `more` waiters, one of them for `key`.
    pub(crate) fn has_room(&self, key: Key<'_>, more: usize) -> Result<(), Outcome> {
        let queue = self.waits.queue_of(key);
        let backlog = queue.map_or(0, |queue| self.waits.backlog_of(queue));
        let len = queue.and_then(|queue| self.waits.queue(queue)).map_or(0, |queue| queue.len);
        let mut here = len + backlog;
        if here >= self.settings.max_waiters_per_key
            && let Some(queue) = queue
        {
            here = self.waits.len_of(queue) + backlog;
        }
        let (most, setting) = if here >= self.settings.max_waiters_per_key {
            (here, "dlock.max-waiters-per-key")
        } else if self.waits.len().saturating_add(more) > self.settings.max_waiters {
            (self.waits.len(), "dlock.max-waiters")
        } else {
            return Ok(());
        };
        Err(Outcome::fault(ErrorCode::Limit, format!("{most} callers wait already ({setting})")))
    }

    /// A later call takes over the queue entry of an earlier one.
    fn replace(
        &mut self,
        key: Key<'_>,
        slot: u32,
        (client, presence, ask): (u64, Presence, Ask),
        fx: &mut Effects,
    ) {
        self.tell_replaced(key, slot, fx);
        let Some(earlier) = self.waits.get(slot) else { return };
        if earlier.is_grouped() {
            let group = earlier.group;
            self.dissolve(group, |member| member == slot);
        } else {
            self.connections.remove_place(earlier.client, slot);
        }
        self.waits.take_over(slot, client, presence, ask);
    }

    /// An earlier call of the same owner is over; its waiters are removed.
    pub(crate) fn oust(&mut self, key: Key<'_>, slot: u32, fx: &mut Effects) {
        self.tell_replaced(key, slot, fx);
        if let Some(queue) = self.waits.get(slot).map(|waiter| waiter.queue) {
            self.forget_place(slot);
            self.waits.stall(queue);
        }
    }

    /// Answers the call with its waiter in `slot`, if it is blocked: a later call has replaced it.
    pub(crate) fn tell_replaced(&mut self, key: Key<'_>, slot: u32, fx: &mut Effects) {
        let Some(earlier) = self.waits.get(slot).map(|waiter| self.waits.leader(waiter)) else {
            return;
        };
        if earlier.presence.is_parked() {
            let text = format!(
                "{} asked again for {} with another call",
                quoted(&earlier.owner),
                quoted(key.name)
            );
            fx.wake(earlier.id, Outcome::fault(ErrorCode::Replaced, text));
            self.counters.replaced += 1;
        }
    }
}

/// A waiter without an owner.
pub(crate) fn nameless(client: u64, presence: Presence, since: Instant, ask: Ask) -> Newcomer {
    let entry = Arc::new(Place { owner: [].as_slice().into(), since, ask });
    Newcomer { entry, client, presence, rank: Rank::Last }
}
