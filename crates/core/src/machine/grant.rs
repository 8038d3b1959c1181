//! Grants to waiters, and the end of holds.

use super::acquire::tokens_used_up;
use super::{End, Machine, Role, Step, quoted};
use crate::effects::{Effects, Event, Outcome};
use crate::hold::{self, Hold, NO_CLIENT, Tie, Unclaimed};
use crate::queue::{Presence, Waiter, WaiterId};
use crate::resource::{Lock, Resource};
use crate::store::{Key, Store};
use crate::time::Now;
use alloc::boxed::Box;
use alloc::vec::Vec;
use dlock_wire::reply::ErrorCode;

/// A grant on its way to a caller whose connection may be gone before it arrives.
#[derive(Debug)]
pub(super) struct InFlight {
    /// The connection of the caller.
    client: u64,
    db: u32,
    name: Vec<u8>,
    owner: Vec<u8>,
    token: u64,
    request: Option<Box<[u8]>>,
    /// A resent call has been answered with this very grant.
    is_known: bool,
    queue_ms: Option<u64>,
}

impl Machine {
    /// Hands the resource on to the waiters that it now admits, in order of arrival.
    pub(super) fn hand_on(&mut self, step: &mut Step<'_>, resource: &mut Resource) {
        let Some(queue) = self.waits.queue_of(step.key) else { return };
        if self.shut || self.role == Role::Replica || self.quarantine_left(step.now.mono) > 0 {
            self.waits.stall(queue);
            return;
        }
        while matches!(resource.lock(), Lock::Free) {
            let first = self.waits.walk(queue).find(|(_, waiter)| !self.is_passed_over(waiter));
            let Some((slot, presence)) = first.map(|(slot, waiter)| (slot, waiter.presence)) else {
                return;
            };
            if self.see_to_place(slot) {
                continue;
            }
            match presence {
                // The wait is over, though no alarm has said so yet.
                presence if presence.is_over(step.now.mono, step.lease) => match presence {
                    Presence::Parked { .. } => self.time_out(slot, step.fx),
                    Presence::Queued | Presence::Absent { .. } => {
                        self.forget_place(slot);
                    }
                },
                _ => self.grant_waiter(step, resource, slot),
            }
        }
    }

    /// Whether a place does not count for now, because its connection let a grant lapse.
    pub(crate) fn is_passed_over(&self, waiter: &Waiter) -> bool {
        waiter.presence == Presence::Queued && self.connections.is_hung(waiter.client)
    }

    fn grant_waiter(&mut self, step: &mut Step<'_>, resource: &mut Resource, slot: u32) {
        let Some(token) = self.tokens.take(step.now.wall_us) else {
            self.refuse_waiter(step, slot);
            return;
        };
        let Some(waiter) = self.forget_place(slot) else { return };
        let is_caller = Some(waiter.id) == step.caller;
        let mut hold = hold_for(&waiter, step, token);
        if is_caller {
            step.answer = Some(Outcome::Token(token));
            self.counters.grants_at_once += 1;
        } else {
            self.counters.grants_after_waiting += 1;
            if let Presence::Parked { .. } = waiter.presence {
                step.fx.wake(waiter.id, Outcome::Token(token));
                self.in_flight.insert(waiter.id, InFlight::new(step.key, &waiter, token));
            } else {
                let queue_ms = waiter.ask.queue_ms.unwrap_or(self.settings.fair_grace_ms);
                let unclaimed = Unclaimed { client: waiter.client, queue_ms };
                hold.extras_mut().unclaimed = Some(unclaimed);
                hold.deadline = match waiter.presence {
                    Presence::Absent { until } => until,
                    Presence::Parked { .. } | Presence::Queued => step.lease + queue_ms,
                };
                if let Some(channel) = hold::channel(&waiter.ask.notify, &waiter.owner) {
                    step.fx.message(channel, "granted", step.key, token, &waiter.owner);
                }
            }
        }
        let client = hold.tied_to();
        if client != NO_CLIENT && resource.entry != crate::lease::NO_ENTRY {
            self.connections.tie(client, resource.entry);
        }
        *resource.lock_mut() = Lock::Held(hold);
        step.dirty = true;
        step.granted = true;
        step.fx.note(step.key, Event::Acquire);
    }

    /// No token is left: a blocked call learns why, a place just goes.
    fn refuse_waiter(&mut self, step: &mut Step<'_>, slot: u32) {
        let Some(waiter) = self.forget_place(slot) else { return };
        if Some(waiter.id) == step.caller {
            step.answer = Some(tokens_used_up());
        } else if let Presence::Parked { .. } = waiter.presence {
            step.fx.wake(waiter.id, tokens_used_up());
        }
    }

    /// Ends what has ended by itself, and hands on.
    pub(super) fn end_what_is_due(&mut self, step: &mut Step<'_>, resource: &mut Resource) {
        if self.role == Role::Replica || self.shut {
            return;
        }
        match resource.lock() {
            Lock::Closed { until, .. } if *until <= step.lease => {
                *resource.lock_mut() = Lock::Free;
                step.dirty = true;
            }
            Lock::Held(hold) if hold.deadline <= step.lease => {
                let end = match () {
                    () if hold.unclaimed().is_some() => End::Unclaimed,
                    () if hold.is_cut() => End::Disconnected,
                    () => End::Expired,
                };
                self.end_hold(step, resource, end);
            }
            Lock::Free | Lock::Closed { .. } | Lock::Held(_) => return,
        }
        self.hand_on(step, resource);
    }

    /// Ends the hold in force. The caller hands on.
    pub(super) fn end_hold(&mut self, step: &mut Step<'_>, resource: &mut Resource, end: End) {
        let entry = resource.entry;
        let Lock::Held(hold) = core::mem::replace(resource.lock_mut(), Lock::Free) else { return };
        self.untie(entry, &hold);
        step.dirty = true;
        let (counter, event, message) = match end {
            End::Released | End::Returned => (&mut self.counters.releases, Event::Release, None),
            End::Expired => (&mut self.counters.expiries, Event::Expire, Some("expired")),
            End::Unclaimed => (&mut self.counters.unclaimed, Event::Expire, Some("expired")),
            End::Disconnected => {
                (&mut self.counters.disconnected, Event::Expire, Some("disconnected"))
            }
            End::Broken => (&mut self.counters.broken, Event::Break, Some("broken")),
        };
        *counter += 1;
        step.fx.note(step.key, event);
        if let (Some(message), Some(channel)) = (message, hold.channel()) {
            step.fx.message(channel, message, step.key, hold.token, &hold.owner);
        }
        if end == End::Unclaimed
            && let Some(unclaimed) = hold.unclaimed()
        {
            self.connections.mark_hung(unclaimed.client);
        }
        let delay_ms = self.settings.lock_delay_ms;
        let delays = matches!(end, End::Expired | End::Disconnected | End::Broken);
        if delays && delay_ms > 0 && hold.unclaimed().is_none() {
            let until = step.lease + delay_ms;
            *resource.lock_mut() = Lock::Closed { until, delay_ms };
        }
    }

    /// The answer to a parked caller has left for good.
    pub fn delivered(&mut self, waiter: WaiterId) {
        self.in_flight.remove(&waiter);
    }

    /// A resent call was answered for this hold: the grant it repeats needs no undo any more.
    pub(super) fn answered_again(&mut self, key: Key<'_>, hold: &Hold, request: Option<&[u8]>) {
        for grant in self.in_flight.values_mut() {
            if grant.is_of(key, hold.token) && grant.request.as_deref() == request {
                grant.is_known = true;
            }
        }
    }

    /// FENCE raised the token of a hold: it is known by the new one from now on.
    pub(super) fn raised(&mut self, key: Key<'_>, from: u64, to: u64) {
        for grant in self.in_flight.values_mut().filter(|grant| grant.is_of(key, from)) {
            grant.token = to;
        }
    }

    /// A hold went to another key: what is on its way to its holder belongs there.
    pub(super) fn readdress(&mut self, from: Key<'_>, to: Key<'_>, token: u64) {
        for grant in self.in_flight.values_mut().filter(|grant| grant.is_of(from, token)) {
            grant.db = to.db;
            grant.name = to.name.to_vec();
        }
    }

    /// Two databases were exchanged: the holds went along.
    pub(super) fn swap_in_flight(&mut self, a: u32, b: u32) {
        for grant in self.in_flight.values_mut() {
            grant.db = match grant.db {
                db if db == a => b,
                db if db == b => a,
                db => db,
            };
        }
    }

    /// What was on its way to `client`, oldest first.
    pub(super) fn on_the_way_to(&self, client: u64) -> Vec<WaiterId> {
        let found = self.in_flight.iter().filter(|(_, grant)| grant.client == client);
        let mut found: Vec<WaiterId> = found.map(|(&waiter, _)| waiter).collect();
        found.sort_unstable();
        found
    }

    /// The connection of a parked caller went away before its grant could be sent.
    ///
    /// The grant is taken back and handed on, unless the owner has been answered for this hold on
    /// another connection since: then only the undelivered count is undone, or nothing if the
    /// answer was to the same request. With QUEUE it stays as an unclaimed grant.
    pub fn undelivered<S: Store>(
        &mut self,
        store: &mut S,
        now: Now,
        waiter: WaiterId,
        fx: &mut Effects,
    ) {
        let Some(grant) = self.in_flight.remove(&waiter) else { return };
        if grant.is_known || self.role == Role::Replica {
            return;
        }
        let key = Key { db: grant.db, name: &grant.name };
        // A key of another type is nothing to take back.
        let _ = self.on_key(store, key, now, fx, |machine, step, resource| {
            machine.take_back(step, resource, &grant);
        });
    }

    fn take_back(&mut self, step: &mut Step<'_>, resource: &mut Resource, grant: &InFlight) {
        let entry = resource.entry;
        let Some(hold) = resource.lock_mut().held_by(&grant.owner) else { return };
        if hold.token != grant.token {
            return;
        }
        if hold.answers != 0 {
            // Somebody knows of this hold. Had nobody entered it again, that is all there is.
            if hold.count > 1 {
                hold.count -= 1;
                step.dirty = true;
            }
            return;
        }
        if let Some(queue_ms) = grant.queue_ms {
            // As if the place had been without a connection when its turn came.
            self.untie(entry, hold);
            let extras = hold.extras_mut();
            extras.unclaimed = Some(Unclaimed { client: NO_CLIENT, queue_ms });
            if let Some(tie) = &mut extras.tie {
                tie.client = NO_CLIENT;
                tie.cut = false;
            }
            hold.deadline = step.lease + queue_ms;
            step.dirty = true;
            if let Some(channel) = hold.channel() {
                step.fx.message(channel, "granted", step.key, hold.token, &grant.owner);
            }
            return;
        }
        self.end_hold(step, resource, End::Returned);
        self.hand_on(step, resource);
    }

    /// Ends a parked call by an error; the place goes.
    pub(super) fn dismiss(&mut self, slot: u32, code: ErrorCode, text: &str, fx: &mut Effects) {
        let Some(waiter) = self.forget_place(slot) else { return };
        if let Presence::Parked { .. } = waiter.presence {
            let text = alloc::format!("{}: {text}", quoted(&waiter.owner));
            fx.wake(waiter.id, Outcome::fault(code, text));
        }
    }
}

impl InFlight {
    fn is_of(&self, key: Key<'_>, token: u64) -> bool {
        self.token == token && self.db == key.db && self.name == key.name
    }

    fn new(key: Key<'_>, waiter: &Waiter, token: u64) -> Self {
        Self {
            client: waiter.client,
            db: key.db,
            name: key.name.to_vec(),
            owner: waiter.owner.to_vec(),
            token,
            request: waiter.ask.request.clone(),
            is_known: false,
            queue_ms: waiter.ask.queue_ms,
        }
    }
}

/// The hold that a waiter asked for.
fn hold_for(waiter: &Waiter, step: &Step<'_>, token: u64) -> Hold {
    let ask = &waiter.ask;
    let mut hold = Hold {
        owner: waiter.owner.clone(),
        token,
        deadline: step.lease + ask.lease_ms,
        lease_ms: ask.lease_ms,
        since: step.now.mono,
        count: 1,
        answers: 0,
        extras: None,
    };
    hold.remember(ask.request.as_deref());
    if ask.notify != hold::Notify::Silent {
        hold.extras_mut().notify = ask.notify.clone();
    }
    if !ask.label.is_empty() {
        hold.extras_mut().label.clone_from(&ask.label);
    }
    if let Some(ms) = ask.bind_ms {
        let tie = Tie { ms, client: waiter.client, cut: false, orphan_until: None };
        hold.extras_mut().tie = Some(tie);
    }
    hold
}
