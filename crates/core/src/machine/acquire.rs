//! ACQUIRE.

use super::{Machine, Role, Step, quoted, wrong_type};
use crate::bytes::Owner;
use crate::effects::{Effects, Event, Outcome};
use crate::hold::{Hold, NO_CLIENT, Notify};
use crate::queue::{Ask, Presence};
use crate::resource::{Lock, Resource};
use crate::store::{Key, Store};
use crate::time::{Millis, Now};
use alloc::format;
use dlock_wire::reply::ErrorCode;
use dlock_wire::request::Acquire;

/// Who calls, and what the server allows on that connection.
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
    /// The key `name` in the database of the caller.
    pub fn key(self, name: &[u8]) -> Key<'_> {
        Key { db: self.db, name }
    }
}

impl Machine {
    /// DLOCK.ACQUIRE.
    ///
    /// - Free: granted, one hold.
    /// - Held by the owner: one hold more; the lease is extended if the new one ends later.
    ///   `REENTRY` with NOREENTRY.
    /// - Held by the owner, and REQID is one that the hold has seen (a resent call): the same
    ///   token, nothing counted, the lease left alone.
    /// - A QUEUE grant waits for the owner: claimed, whatever the options say.
    /// - Held by another, closed, or others are first: with BLOCK the call is parked, with QUEUE
    ///   the owner gets a place; who has a place keeps it, and the earlier blocked call is
    ///   answered `REPLACED`; else Null, or `QUARANTINE` if only that is in the way.
    /// - Waiting would close a circle of owners who wait for each other: `DEADLOCK`.
    /// - Too many waiters: `LIMIT`.
    pub fn acquire<S: Store>(
        &mut self,
        store: &mut S,
        now: Now,
        caller: Caller,
        call: &Acquire<'_>,
        fx: &mut Effects,
    ) {
        if caller.client == NO_CLIENT && (call.bind_ms.is_some() || call.queue_ms.is_some()) {
            let option = if call.bind_ms.is_some() { "BIND" } else { "QUEUE" };
            let text =
                format!("{option} cannot be used in a script: the connection is unknown there");
            fx.reply = Some(Outcome::fault(ErrorCode::Err, text));
            return;
        }
        self.rouse(store, now, caller.client, fx);
        let waits = call.queue_ms.is_some() || (call.block_ms.is_some() && caller.may_block);
        if waits
            && self.settings.deadlock_detection
            && let Some(circle) = self.circle(store, now, caller.key(call.key), call.owner)
        {
            self.counters.deadlocks_refused += 1;
            fx.reply = Some(Outcome::fault(ErrorCode::Deadlock, circle));
            return;
        }
        let answer = self.on_call(store, now, caller, call.key, fx, |machine, step, lock| {
            machine.acquire_lock(step, lock, caller, call)
        });
        fx.reply = answer.unwrap_or_else(|_| Some(wrong_type()));
    }

    /// `None`: the caller is parked.
    fn acquire_lock(
        &mut self,
        step: &mut Step<'_>,
        resource: &mut Resource,
        caller: Caller,
        call: &Acquire<'_>,
    ) -> Option<Outcome> {
        // Whoever is first comes before this call, even if no alarm has served it yet.
        if resource.is_free() {
            self.hand_on(step, resource);
        }
        if resource.lock_mut().held_by(call.owner).is_some() {
            return Some(self.acquire_again(step, resource, caller, call));
        }
        let parks = call.block_ms.is_some() && caller.may_block;
        let waits = parks || call.queue_ms.is_some();
        // Who waits already is served from its place, so that none is left behind.
        let from_place = waits && self.has_place(step.key, call.owner);
        if !from_place && self.is_open(step, resource) {
            return Some(self.grant_caller(step, resource, caller, call));
        }
        if !waits {
            return Some(self.refuse(step, resource));
        }
        let presence = if parks {
            let until = call.block_ms.filter(|&ms| ms > 0).map(|ms| step.now.mono + ms);
            Presence::Parked { until }
        } else {
            Presence::Queued
        };
        let slot = match self.stand_in_line(step, caller, call, presence) {
            Ok(slot) => slot,
            Err(fault) => return Some(fault),
        };
        step.caller = self.waits.get(slot).map(|waiter| waiter.id);
        self.hand_on(step, resource);
        if step.answer.is_some() {
            return step.answer.take();
        }
        step.fx.note(step.key, Event::Wait);
        if parks {
            step.fx.parked = step.caller;
            return None;
        }
        Some(Outcome::Null)
    }

    fn has_place(&self, key: Key<'_>, owner: &[u8]) -> bool {
        let queue = self.waits.queue_of(key);
        queue.is_some_and(|queue| self.waits.place_of(queue, owner).is_some())
    }

    /// Whether a newcomer can be granted the lock now: it is free, and nobody is first.
    fn is_open(&mut self, step: &Step<'_>, resource: &Resource) -> bool {
        if !matches!(resource.lock(), Lock::Free) || self.quarantine_left(step.now.mono) > 0 {
            return false;
        }
        let Some(queue) = self.waits.queue_of(step.key) else { return true };
        self.waits.walk(queue).all(|(_, waiter)| self.is_passed_over(waiter))
    }

    /// The answer to a call that does not wait: Null while it is held, else why it is closed.
    fn refuse(&self, step: &Step<'_>, resource: &Resource) -> Outcome {
        let left = self.quarantine_left(step.now.mono);
        if left > 0 && !resource.is_held() {
            let text = format!("no new grants for another {left} ms (dlock.restart-quarantine-ms)");
            return Outcome::fault(ErrorCode::Quarantine, text);
        }
        Outcome::Null
    }

    fn grant_caller(
        &mut self,
        step: &mut Step<'_>,
        resource: &mut Resource,
        caller: Caller,
        call: &Acquire<'_>,
    ) -> Outcome {
        let Some(token) = self.tokens.take(step.now.wall_us) else { return tokens_used_up() };
        let lease_ms = self.lease_of(call);
        let mut hold = Hold {
            owner: Owner::from(call.owner),
            token,
            deadline: step.lease + lease_ms,
            lease_ms,
            since: step.now.mono,
            count: 1,
            answers: 0,
            extras: None,
        };
        hold.remember(call.reqid);
        self.dress(resource.entry, &mut hold, caller, call);
        *resource.lock_mut() = Lock::Held(hold);
        self.counters.grants_at_once += 1;
        step.dirty = true;
        step.granted = true;
        step.fx.note(step.key, Event::Acquire);
        Outcome::Token(token)
    }

    /// The owner holds it already: a resent call, a claim, or a re-entry.
    fn acquire_again(
        &mut self,
        step: &mut Step<'_>,
        resource: &mut Resource,
        caller: Caller,
        call: &Acquire<'_>,
    ) -> Outcome {
        let entry = resource.entry;
        let lease_ms = self.lease_of(call);
        let Some(hold) = resource.lock_mut().hold_mut() else { return Outcome::Null };
        let is_repeat = hold.has_seen(call.reqid);
        if hold.unclaimed().is_some() {
            if !is_repeat {
                hold.remember(call.reqid);
                self.dress(entry, hold, caller, call);
            }
            self.follow(entry, hold, call.bind_ms, caller.client);
            claim(hold, step, lease_ms);
        } else if is_repeat {
            self.follow(entry, hold, call.bind_ms, caller.client);
            self.answered_again(step.key, hold, call.reqid);
        } else if call.no_reentry {
            let text = format!("{} already holds {}", quoted(call.owner), quoted(call.key));
            return Outcome::fault(ErrorCode::Reentry, text);
        } else {
            let Some(count) = hold.count.checked_add(1) else {
                let text = format!("{} is held {} times already", quoted(call.key), hold.count);
                return Outcome::fault(ErrorCode::Limit, text);
            };
            hold.count = count;
            hold.remember(call.reqid);
            self.dress(entry, hold, caller, call);
            let deadline = step.lease + lease_ms;
            if deadline > hold.deadline {
                set_deadline(hold, deadline);
                hold.lease_ms = lease_ms;
            }
            step.fx.note(step.key, Event::Acquire);
            self.counters.grants_at_once += 1;
        }
        hold.answers = hold.answers.wrapping_add(1);
        step.dirty = true;
        Outcome::Token(hold.token)
    }

    /// Gives a hold what the options of a call say about it: label, channel, tie.
    fn dress(
        &mut self,
        entry: crate::lease::EntryId,
        hold: &mut Hold,
        caller: Caller,
        call: &Acquire<'_>,
    ) {
        if let Some(label) = call.label.filter(|label| !label.is_empty() || hold.extras.is_some()) {
            hold.extras_mut().label = label.into();
        }
        match notify_of(call) {
            Notify::Silent => {}
            notify => hold.extras_mut().notify = notify,
        }
        if let Some(ms) = call.bind_ms {
            self.tie(entry, hold, ms, caller.client);
        }
    }

    /// Takes a place at the end of the queue, or keeps the one the owner has.
    fn stand_in_line(
        &mut self,
        step: &mut Step<'_>,
        caller: Caller,
        call: &Acquire<'_>,
        presence: Presence,
    ) -> Result<u32, Outcome> {
        let ask = Ask {
            lease_ms: self.lease_of(call),
            queue_ms: call.queue_ms,
            notify: notify_of(call),
            request: call.reqid.map(Into::into),
            bind_ms: call.bind_ms,
            label: call.label.unwrap_or_default().into(),
        };
        let is_parked = matches!(presence, Presence::Parked { .. });
        let queue = self.waits.queue_of(step.key);
        if let Some(slot) = queue.and_then(|queue| self.waits.place_of(queue, call.owner)) {
            self.replace(step, slot, caller.client, presence, ask);
            self.connections.add_place(caller.client, slot, is_parked);
            return Ok(slot);
        }
        let here = queue.and_then(|queue| self.waits.queue(queue)).map_or(0, |queue| queue.len);
        let (most, setting) = if here >= self.settings.max_waiters_per_key {
            (here, "dlock.max-waiters-per-key")
        } else if self.waits.len() >= self.settings.max_waiters {
            (self.waits.len(), "dlock.max-waiters")
        } else {
            let since = step.now.mono;
            let slot = self.waits.join(step.key, call.owner, caller.client, presence, since, ask);
            self.connections.add_place(caller.client, slot, is_parked);
            return Ok(slot);
        };
        Err(Outcome::fault(ErrorCode::Limit, format!("{most} callers wait already ({setting})")))
    }

    /// A later call takes over the place of an earlier one.
    fn replace(
        &mut self,
        step: &mut Step<'_>,
        slot: u32,
        client: u64,
        presence: Presence,
        ask: Ask,
    ) {
        let Some(earlier) = self.waits.get(slot) else { return };
        if let Presence::Parked { .. } = earlier.presence {
            let text = format!(
                "{} asked again for {} with another call",
                quoted(&earlier.owner),
                quoted(step.key.name)
            );
            step.fx.wake(earlier.id, Outcome::fault(ErrorCode::Replaced, text));
            self.counters.replaced += 1;
        }
        self.connections.remove_place(earlier.client, slot);
        self.waits.take_over(slot, client, presence, ask);
    }

    fn lease_of(&self, call: &Acquire<'_>) -> Millis {
        call.lease_ms.unwrap_or(self.settings.default_lease_ms)
    }

    /// The server did not let the call block after all: it leaves the queue (with QUEUE the place
    /// stays). What that opens is handed on by the next tick.
    pub fn withdraw(&mut self, waiter: crate::queue::WaiterId) {
        if self.waits.by_id(waiter).is_some() {
            self.stop_waiting(waiter.slot());
        }
    }

    /// A dlock command came over `client`: its places count again if they were passed over.
    pub fn rouse<S: Store>(&mut self, store: &mut S, now: Now, client: u64, fx: &mut Effects) {
        if self.connections.rouse(client) && self.role == Role::Primary {
            self.serve_places_of(store, now, client, fx);
        }
    }

    /// Runs one verb on the key of a call, after its connection was heard of.
    pub(super) fn on_call<S: Store, R>(
        &mut self,
        store: &mut S,
        now: Now,
        caller: Caller,
        key: &[u8],
        fx: &mut Effects,
        verb: impl FnOnce(&mut Self, &mut Step<'_>, &mut Resource) -> R,
    ) -> Result<R, super::Foreign> {
        self.rouse(store, now, caller.client, fx);
        let mut was_hung = false;
        let result = self.on_key(store, caller.key(key), now, fx, |machine, step, resource| {
            // A grant that lapsed before this call, and was found only by it, is no silence since.
            was_hung = machine.connections.rouse(caller.client);
            verb(machine, step, resource)
        });
        if was_hung {
            self.serve_places_of(store, now, caller.client, fx);
        }
        result
    }

    fn serve_places_of<S: Store>(
        &mut self,
        store: &mut S,
        now: Now,
        client: u64,
        fx: &mut Effects,
    ) {
        let places: super::Slots = self
            .connections
            .get(client)
            .map(|connection| connection.places.iter().copied().collect())
            .unwrap_or_default();
        for slot in places {
            if let Some(queue) = self.waits.get(slot).map(|waiter| waiter.queue) {
                self.waits.stall(queue);
            }
        }
        self.work_off_stalled(store, now, fx);
    }
}

/// Whether and where messages about a place are published.
fn notify_of(call: &Acquire<'_>) -> Notify {
    match (call.notify, call.queue_ms) {
        (Some(channel), _) => Notify::Channel(channel.into()),
        (None, Some(_)) => Notify::Owner,
        (None, None) => Notify::Silent,
    }
}

/// Sets the end of a hold anew. An orphan that nobody tied anew cannot outlive its grace.
pub(super) fn set_deadline(hold: &mut Hold, deadline: crate::time::LeaseInstant) {
    hold.deadline = deadline;
    if let Some(extras) = &mut hold.extras
        && let Some(tie) = &mut extras.tie
    {
        let until = tie.orphan_until.unwrap_or(deadline);
        tie.cut = until < deadline;
        hold.deadline = deadline.min(until);
    }
}

pub(super) fn tokens_used_up() -> Outcome {
    Outcome::fault(ErrorCode::Err, "the fencing tokens of this server are used up")
}

/// The owner takes a QUEUE grant that waits for it: its lease starts.
pub(super) fn claim(hold: &mut Hold, step: &Step<'_>, lease_ms: Millis) {
    hold.extras_mut().unclaimed = None;
    hold.lease_ms = lease_ms;
    set_deadline(hold, step.lease + lease_ms);
}
