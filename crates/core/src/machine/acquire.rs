//! ACQUIRE, of all families.

use super::hand_on::{Verdict, first_count, granted, too_wide};
use super::{Grip, Machine, Role, Step, quoted, wrong_type};
use crate::bytes::Owner;
use crate::effects::{Effects, Event, Outcome};
use crate::hold::{Hold, NO_CLIENT, Notify};
use crate::holds::{ALONE, HoldId};
use crate::queue::{Ask, Newcomer, Presence, Rank, Want};
use crate::resource::{Body, Kind, Resource};
use crate::store::{Key, Store};
use crate::time::{LeaseInstant, Millis, Now};
use alloc::format;
use dlock_wire::permit::PermitId;
use dlock_wire::reply::ErrorCode;
use dlock_wire::request::{Acquire, Mode, RwAcquire, SemAcquire};

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

/// An ACQUIRE of whatever family.
#[derive(Debug, Clone, Copy)]
pub(super) struct Asked<'a> {
    pub call: &'a Acquire<'a>,
    pub want: Want,
    /// How the caller waits if it has to; `None` if it does not.
    pub presence: Option<Presence>,
}

impl Machine {
    /// DLOCK.ACQUIRE and DFAIR.ACQUIRE (`kind`).
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
        (kind, call): (Kind, &Acquire<'_>),
        fx: &mut Effects,
    ) {
        self.acquire_any_kind(store, now, caller, (kind, call, Want::Lock), fx);
    }

    /// DRW.ACQUIRE: as [`Machine::acquire`], for each mode on its own. Further:
    ///
    /// - READ by the writer: granted (a downgrade begins so).
    /// - WRITE by a reader (an upgrade): granted if it is the only reader; else it waits in front
    ///   of everyone, unless another reader does so already: `DEADLOCK`.
    pub fn rw_acquire<S: Store>(
        &mut self,
        store: &mut S,
        now: Now,
        caller: Caller,
        call: &RwAcquire<'_>,
        fx: &mut Effects,
    ) {
        let asked = (Kind::Rw, &call.acquire, Want::Rw(call.mode));
        self.acquire_any_kind(store, now, caller, asked, fx);
    }

    /// DSEM.ACQUIRE. `permit` is the id that the permits get, new for each call.
    ///
    /// - So many permits can be had, and nobody waits: granted.
    /// - A permit of this owner has seen REQID: that permit's id, nothing counted.
    /// - A QUEUE grant of so many permits waits for the owner: claimed.
    /// - More than there are in all: `LIMIT`.
    /// - No such semaphore: made with LIMIT, else waited for.
    /// - The rest as [`Machine::acquire`].
    pub fn sem_acquire<S: Store>(
        &mut self,
        store: &mut S,
        now: Now,
        caller: Caller,
        (call, permit): (&SemAcquire<'_>, PermitId),
        fx: &mut Effects,
    ) {
        let want = Want::Permits { count: call.count, limit: call.limit, id: permit };
        self.acquire_any_kind(store, now, caller, (Kind::Semaphore, &call.acquire, want), fx);
    }

    fn acquire_any_kind<S: Store>(
        &mut self,
        store: &mut S,
        now: Now,
        caller: Caller,
        (kind, call, want): (Kind, &Acquire<'_>, Want),
        fx: &mut Effects,
    ) {
        if let Some(fault) = refused_in_script(caller, call.bind_ms, call.queue_ms) {
            fx.reply = Some(fault);
            return;
        }
        self.rouse(store, now, caller.client, fx);
        let presence = presence_of(now, caller, call.block_ms, call.queue_ms);
        if presence.is_some() && want.can_lock_up() && self.settings.deadlock_detection {
            let key = (kind, caller.key(call.key));
            if let Some(circle) = self.circle(store, now, key, (call.owner, want)) {
                self.counters.deadlocks_refused += 1;
                fx.reply = Some(Outcome::fault(ErrorCode::Deadlock, circle));
                return;
            }
        }
        let asked = Asked { call, want, presence };
        let key = (kind, call.key);
        let answer = self.on_call(store, now, caller, key, fx, |machine, step, resource| {
            machine.acquire_here(step, resource, caller, asked)
        });
        fx.reply = answer.unwrap_or_else(|_| Some(wrong_type()));
    }

    /// `None`: the caller is parked.
    fn acquire_here(
        &mut self,
        step: &mut Step<'_>,
        resource: &mut Resource,
        caller: Caller,
        asked: Asked<'_>,
    ) -> Option<Outcome> {
        let Asked { call, want, presence } = asked;
        let too_wide = self.make_semaphore(step, resource, want);
        // Whoever is first comes before this call, even if no alarm has served it yet.
        self.hand_on(step, resource);
        if let Some(id) = own_hold(resource, call, want) {
            return Some(self.acquire_again(step, resource, id, caller, asked));
        }
        if too_wide.is_some() {
            return too_wide;
        }
        let goes_first = goes_first(resource, call.owner, want);
        let place = presence.and_then(|_| self.waits.place_at(step.key, call.owner));
        // Who waits already is served from its place, so that none is left behind.
        if (place.is_none() || goes_first) && self.is_open(step, resource, call.owner, want) {
            if let Some(slot) = place {
                self.oust(step.key, slot, step.fx);
            }
            let outcome = self.grant_caller(step, resource, caller, asked);
            self.counters.grants_at_once += u64::from(outcome.is_grant());
            return Some(outcome);
        }
        let Some(presence) = presence else {
            return Some(self.refuse(step, resource, call.owner, want));
        };
        if let Some(fault) = self.refuse_second_upgrade(step, resource, call.owner, want) {
            return Some(fault);
        }
        let rank = if goes_first { Rank::First } else { Rank::Last };
        let slot = match self.stand_in_line(step, resource.kind(), caller, asked, rank) {
            Ok(slot) => slot,
            Err(fault) => return Some(fault),
        };
        step.caller = self.waits.get(slot).map(|waiter| waiter.id);
        self.note_holders(step, resource);
        self.hand_on(step, resource);
        if step.answer.is_some() {
            return step.answer.take();
        }
        step.fx.note(step.key, Event::Wait);
        if presence.is_parked() {
            step.fx.parked = step.caller;
            return None;
        }
        Some(Outcome::Null)
    }

    /// LIMIT makes a semaphore on first use. `LIMIT` if there are too few permits for the call.
    fn make_semaphore(
        &mut self,
        step: &mut Step<'_>,
        resource: &mut Resource,
        want: Want,
    ) -> Option<Outcome> {
        let (Body::Semaphore(semaphore), Want::Permits { count, limit, .. }) =
            (&mut resource.body, want)
        else {
            return None;
        };
        let capacity = if semaphore.capacity == 0 { limit? } else { semaphore.capacity };
        if count > capacity {
            let text = too_wide(step.key.name, count, capacity);
            return Some(Outcome::fault(ErrorCode::Limit, text));
        }
        if semaphore.capacity == 0 && self.may_grant(step.now.mono) {
            semaphore.capacity = capacity;
            semaphore.is_passing = true;
            step.dirty = true;
        }
        None
    }

    /// Whether a newcomer can have it now: it is there to be had, and nobody is first.
    pub(super) fn is_open(
        &mut self,
        step: &mut Step<'_>,
        resource: &mut Resource,
        owner: &[u8],
        want: Want,
    ) -> bool {
        if self.quarantine_left(step.now.mono) > 0
            || self.verdict(step, resource, owner, want) != Verdict::Yes
        {
            return false;
        }
        let Some(queue) = self.waits.queue_of(step.key) else { return true };
        step.overtakes = Some(queue);
        goes_first(resource, owner, want)
            || self.waits.walk(queue).all(|(_, waiter)| self.is_passed_over(waiter))
    }

    /// The answer to a call that does not wait: Null while holds are in the way or there is nothing
    /// to be had, else why it is closed.
    pub(super) fn refuse(
        &self,
        step: &Step<'_>,
        resource: &Resource,
        owner: &[u8],
        want: Want,
    ) -> Outcome {
        let left = self.quarantine_left(step.now.mono);
        let is_held = || match (&resource.body, want) {
            (Body::Rw(rw), Want::Rw(mode)) => rw.is_held_against(owner, mode),
            (Body::Semaphore(semaphore), Want::Permits { count: n, limit, .. }) => {
                !semaphore.has(n, limit)
            }
            (Body::Semaphore(semaphore), Want::Taken(n)) => !semaphore.has(n, None),
            _ => resource.holds().next().is_some(),
        };
        if left > 0 && !is_held() {
            return in_quarantine(left);
        }
        Outcome::Null
    }

    /// Grants what is there to be had. The caller counts it.
    pub(super) fn grant_caller(
        &mut self,
        step: &mut Step<'_>,
        resource: &mut Resource,
        caller: Caller,
        asked: Asked<'_>,
    ) -> Outcome {
        let call = asked.call;
        let Some((id, token)) = self.name_hold(step, asked.want) else { return tokens_used_up() };
        let lease_ms = self.lease_of(call);
        let mut hold = Hold {
            owner: Owner::from(call.owner),
            token,
            deadline: step.lease + lease_ms,
            lease_ms,
            since: step.now.mono,
            count: first_count(asked.want),
            answers: 0,
            extras: None,
        };
        hold.remember(call.reqid);
        self.dress((resource.entry, id), &mut hold, caller, call);
        resource.put_hold(id, hold);
        step.dirty = true;
        step.granted = true;
        step.fx.note(step.key, Event::Acquire);
        if let Some(queue) = step.overtakes {
            self.waits.note_holders(queue, resource, false);
        }
        granted(id, token, asked.want)
    }

    /// The owner holds it already: a resent call, a claim, or a re-entry.
    pub(super) fn acquire_again(
        &mut self,
        step: &mut Step<'_>,
        resource: &mut Resource,
        id: HoldId,
        caller: Caller,
        asked: Asked<'_>,
    ) -> Outcome {
        let grip = (resource.entry, id);
        let answer = resource.change_hold(id, |hold| self.again(step, grip, hold, caller, asked));
        answer.unwrap_or(Outcome::Null)
    }

    fn again(
        &mut self,
        step: &mut Step<'_>,
        grip: Grip,
        hold: &mut Hold,
        caller: Caller,
        asked: Asked<'_>,
    ) -> Outcome {
        let call = asked.call;
        let lease_ms = self.lease_of(call);
        let is_repeat = hold.has_seen(call.reqid);
        if hold.unclaimed().is_some() {
            if !is_repeat {
                hold.remember(call.reqid);
                self.dress(grip, hold, caller, call);
            }
            self.follow(grip, hold, call.bind_ms, caller.client);
            claim(hold, step, lease_ms);
        } else if is_repeat {
            self.follow(grip, hold, call.bind_ms, caller.client);
            self.answered_again(step.key, (grip.1, hold.token), call.reqid);
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
            self.dress(grip, hold, caller, call);
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
        granted(grip.1, hold.token, asked.want)
    }

    /// Gives a hold what the options of a call say about it: label, channel, tie.
    fn dress(&mut self, grip: Grip, hold: &mut Hold, caller: Caller, call: &Acquire<'_>) {
        if let Some(label) = call.label.filter(|label| !label.is_empty() || hold.extras.is_some()) {
            hold.extras_mut().label = label.into();
        }
        match notify_of(call) {
            Notify::Silent => {}
            notify => hold.extras_mut().notify = notify,
        }
        if let Some(ms) = call.bind_ms {
            self.tie(grip, hold, ms, caller.client);
        }
    }

    /// Takes a place in the queue, or keeps the one the owner has. With another mode, or for more
    /// permits, it goes to the end; who goes first does not wait in a place behind others.
    fn stand_in_line(
        &mut self,
        step: &mut Step<'_>,
        kind: Kind,
        caller: Caller,
        asked: Asked<'_>,
        rank: Rank,
    ) -> Result<u32, Outcome> {
        let Asked { call, want, presence } = asked;
        let presence = presence.unwrap_or(Presence::Queued);
        let ask = self.ask(call, want);
        if let Some(slot) = self.waits.place_at(step.key, call.owner) {
            let has = self.waits.get(slot).map_or(want, |waiter| waiter.ask.want);
            let stands_well = rank == Rank::Last || self.waits.ahead_of(slot).next().is_none();
            if keeps_place(has, want) && stands_well {
                self.replace(step.key, slot, (caller.client, presence, ask), step.fx);
                self.connections.add_place(caller.client, slot, presence.is_parked());
                return Ok(slot);
            }
            self.oust(step.key, slot, step.fx);
        }
        self.has_room(step.key, 1)?;
        let newcomer = Newcomer {
            owner: call.owner,
            client: caller.client,
            presence,
            since: step.now.mono,
            ask,
            rank,
            counts: true,
        };
        let slot = self.waits.join(step.key, kind, newcomer);
        self.connections.add_place(caller.client, slot, presence.is_parked());
        Ok(slot)
    }

    /// Whether `more` places may be taken, one of them for `key`.
    pub(super) fn has_room(&self, key: Key<'_>, more: usize) -> Result<(), Outcome> {
        let queue = self.waits.queue_of(key);
        let here = queue.and_then(|queue| self.waits.queue(queue)).map_or(0, |queue| queue.len);
        let (most, setting) = if here >= self.settings.max_waiters_per_key {
            (here, "dlock.max-waiters-per-key")
        } else if self.waits.len().saturating_add(more) > self.settings.max_waiters {
            (self.waits.len(), "dlock.max-waiters")
        } else {
            return Ok(());
        };
        Err(Outcome::fault(ErrorCode::Limit, format!("{most} callers wait already ({setting})")))
    }

    /// A later call takes over the place of an earlier one.
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
        // It may have been one for any key.
        self.waits.count_place(slot);
    }

    /// An earlier call of the same owner is over; its places go.
    pub(super) fn oust(&mut self, key: Key<'_>, slot: u32, fx: &mut Effects) {
        self.tell_replaced(key, slot, fx);
        if let Some(queue) = self.waits.get(slot).map(|waiter| waiter.queue) {
            self.forget_place(slot);
            self.waits.stall(queue);
        }
    }

    /// Answers the call that has its place in `slot`, if it is blocked: a later one has come.
    pub(super) fn tell_replaced(&mut self, key: Key<'_>, slot: u32, fx: &mut Effects) {
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

    /// What a call asks for, as a waiter keeps it.
    pub(super) fn ask(&self, call: &Acquire<'_>, want: Want) -> Ask {
        Ask {
            want,
            lease_ms: self.lease_of(call),
            queue_ms: call.queue_ms,
            notify: notify_of(call),
            request: call.reqid.map(Into::into),
            bind_ms: call.bind_ms,
            label: call.label.unwrap_or_default().into(),
        }
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
        // A grant that lapsed before this, and is found only now, is no silence since.
        while self.connections.rouse(client) && self.role == Role::Primary {
            self.serve_places_of(store, now, client, fx);
        }
    }

    /// Runs one verb on the key of a call, after its connection was heard of.
    pub(super) fn on_call<S: Store, R>(
        &mut self,
        store: &mut S,
        now: Now,
        caller: Caller,
        (kind, key): (Kind, &[u8]),
        fx: &mut Effects,
        verb: impl FnOnce(&mut Self, &mut Step<'_>, &mut Resource) -> R,
    ) -> Result<R, super::Foreign> {
        self.rouse(store, now, caller.client, fx);
        let mut was_hung = false;
        let key = (kind, caller.key(key));
        let result = self.on_key(store, key, now, fx, |machine, step, resource| {
            // A grant that lapsed before this call, and was found only by it, is no silence since.
            was_hung = machine.connections.rouse(caller.client);
            verb(machine, step, resource)
        });
        if was_hung {
            self.serve_places_of(store, now, caller.client, fx);
        }
        result
    }

    pub(super) fn serve_places_of<S: Store>(
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

/// How a call waits, if it does.
pub(super) fn presence_of(
    now: Now,
    caller: Caller,
    block_ms: Option<Millis>,
    queue_ms: Option<Millis>,
) -> Option<Presence> {
    match block_ms {
        Some(ms) if caller.may_block => {
            Some(Presence::Parked { until: (ms > 0).then(|| now.mono + ms) })
        }
        _ => queue_ms.map(|_| Presence::Queued),
    }
}

/// BIND and QUEUE need a connection, which a script does not know.
pub(super) fn refused_in_script(
    caller: Caller,
    bind_ms: Option<Millis>,
    queue_ms: Option<Millis>,
) -> Option<Outcome> {
    if caller.client != NO_CLIENT {
        return None;
    }
    let option = bind_ms.map(|_| "BIND").or(queue_ms.map(|_| "QUEUE"))?;
    let text = format!("{option} cannot be used in a script: the connection is unknown there");
    Some(Outcome::fault(ErrorCode::Err, text))
}

/// The hold of the owner that a call re-enters, claims or repeats.
pub(super) fn own_hold(resource: &Resource, call: &Acquire<'_>, want: Want) -> Option<HoldId> {
    match (&resource.body, want) {
        (Body::Rw(rw), Want::Rw(mode)) => rw.find(call.owner, mode),
        (Body::Semaphore(semaphore), Want::Permits { count, .. }) => {
            let permits = &semaphore.permits;
            if call.reqid.is_none() && !permits.has_unclaimed() {
                return None;
            }
            let own = || permits.of_owner(call.owner);
            let repeated = own().find(|(_, hold)| hold.has_seen(call.reqid));
            let unclaimed =
                || own().find(|(_, hold)| hold.count == count && hold.unclaimed().is_some());
            repeated.or_else(unclaimed).map(|(id, _)| id)
        }
        _ => resource.lock().hold().filter(|hold| *hold.owner == *call.owner).map(|_| ALONE),
    }
}

/// Whether who has a place for `has` keeps it when it asks for `want`.
pub(crate) fn keeps_place(has: Want, want: Want) -> bool {
    match (has, want) {
        (Want::Permits { count: has, .. }, Want::Permits { count, .. }) => count <= has,
        (Want::Rw(has), Want::Rw(mode)) => has == mode,
        _ => true,
    }
}

/// Whether an owner does not have to stand behind the waiters: it has a part in the lock already.
fn goes_first(resource: &Resource, owner: &[u8], want: Want) -> bool {
    match (&resource.body, want) {
        (Body::Rw(rw), Want::Rw(Mode::Read)) => rw.find(owner, Mode::Write).is_some(),
        _ => is_upgrade(resource, owner, want),
    }
}

/// Whether a reader asks to write.
pub(crate) fn is_upgrade(resource: &Resource, owner: &[u8], want: Want) -> bool {
    match (&resource.body, want) {
        (Body::Rw(rw), Want::Rw(Mode::Write)) => rw.find(owner, Mode::Read).is_some(),
        _ => false,
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
pub(super) fn set_deadline(hold: &mut Hold, deadline: LeaseInstant) {
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

pub(super) fn in_quarantine(left_ms: Millis) -> Outcome {
    let text = format!("no new grants for another {left_ms} ms (dlock.restart-quarantine-ms)");
    Outcome::fault(ErrorCode::Quarantine, text)
}

/// The owner takes a QUEUE grant that waits for it: its lease starts.
pub(super) fn claim(hold: &mut Hold, step: &Step<'_>, lease_ms: Millis) {
    hold.extras_mut().unclaimed = None;
    hold.lease_ms = lease_ms;
    set_deadline(hold, step.lease + lease_ms);
}
