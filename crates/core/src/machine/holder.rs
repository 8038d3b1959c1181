//! What a holder does with its hold: RELEASE, RENEW, FENCE; and what others do to it: BREAK.

use super::acquire::{Caller, claim, set_deadline};
use super::{End, Machine, Step, quoted, wrong_type};
use crate::effects::{Effects, Event, Outcome};
use crate::hold::Hold;
use crate::resource::{Lock, Resource};
use crate::store::{Key, Store};
use crate::time::Now;
use alloc::format;
use dlock_wire::reply::ErrorCode;
use dlock_wire::request::{Release, Renew};

impl Machine {
    /// DLOCK.RELEASE: one hold less, or none left with ALL. The reply counts what remains; at 0
    /// the lock goes to the first waiter in the same step.
    ///
    /// `NOTHELD` if the owner does not hold it, or not with TOKEN. A REQID that the hold has seen
    /// counts nothing.
    pub fn release<S: Store>(
        &mut self,
        store: &mut S,
        now: Now,
        caller: Caller,
        call: &Release<'_>,
        fx: &mut Effects,
    ) {
        let answer = self.on_call(store, now, caller, call.key, fx, |machine, step, resource| {
            machine.release_lock(step, resource, caller, call)
        });
        fx.reply = Some(answer.unwrap_or_else(|_| wrong_type()));
    }

    fn release_lock(
        &mut self,
        step: &mut Step<'_>,
        resource: &mut Resource,
        caller: Caller,
        call: &Release<'_>,
    ) -> Outcome {
        let entry = resource.entry;
        let hold = match own_hold(step.key, resource.lock_mut(), call.owner, call.token) {
            Ok(hold) => hold,
            Err(fault) => return fault,
        };
        if hold.has_seen(call.reqid) {
            self.follow(entry, hold, None, caller.client);
            if hold.unclaimed().is_some() {
                let lease_ms = hold.lease_ms;
                claim(hold, step, lease_ms);
            }
            hold.answers = hold.answers.wrapping_add(1);
            step.dirty = true;
            return Outcome::Count(u64::from(hold.count));
        }
        if !call.all && hold.count > 1 {
            hold.count -= 1;
            hold.remember(call.reqid);
            hold.answers = hold.answers.wrapping_add(1);
            step.dirty = true;
            step.fx.note(step.key, Event::Release);
            self.counters.releases += 1;
            return Outcome::Count(u64::from(hold.count));
        }
        self.end_hold(step, resource, End::Released);
        self.hand_on(step, resource);
        Outcome::Count(0)
    }

    /// DLOCK.RENEW: sets the end of the lease anew, sooner or later than before; without PX or EX
    /// by the hold's own lease. Claims a QUEUE grant. The reply is the token; `NOTHELD` as RELEASE.
    pub fn renew<S: Store>(
        &mut self,
        store: &mut S,
        now: Now,
        caller: Caller,
        call: &Renew<'_>,
        fx: &mut Effects,
    ) {
        if caller.client == crate::hold::NO_CLIENT && call.bind_ms.is_some() {
            let text = "BIND cannot be used in a script: the connection is unknown there";
            fx.reply = Some(Outcome::fault(ErrorCode::Err, text));
            return;
        }
        let answer = self.on_call(store, now, caller, call.key, fx, |machine, step, resource| {
            let entry = resource.entry;
            let hold = match own_hold(step.key, resource.lock_mut(), call.owner, call.token) {
                Ok(hold) => hold,
                Err(fault) => return fault,
            };
            let lease_ms = call.lease_ms.unwrap_or(hold.lease_ms);
            if call.bind_ms.is_some() || hold.unclaimed().is_some() {
                machine.follow(entry, hold, call.bind_ms, caller.client);
            }
            if hold.unclaimed().is_some() {
                claim(hold, step, lease_ms);
            } else {
                hold.lease_ms = lease_ms;
                set_deadline(hold, step.lease + lease_ms);
            }
            hold.answers = hold.answers.wrapping_add(1);
            step.dirty = true;
            Outcome::Token(hold.token)
        });
        fx.reply = Some(answer.unwrap_or_else(|_| wrong_type()));
    }

    /// DLOCK.FENCE: raises the token of the hold to at least `token`, and of this server with it.
    /// The reply is the token of the hold afterwards. `NOTHELD` if the owner does not hold it;
    /// `ERR` for a token more than 30 days ahead of the wall clock. A token that rose removes a
    /// time to live that was set on the key, as a grant does.
    pub fn fence<S: Store>(
        &mut self,
        store: &mut S,
        now: Now,
        caller: Caller,
        (key, owner, token): (&[u8], &[u8], u64),
        fx: &mut Effects,
    ) {
        let answer = self.on_call(store, now, caller, key, fx, |machine, step, resource| {
            let hold = match own_hold(step.key, resource.lock_mut(), owner, None) {
                Ok(hold) => hold,
                Err(fault) => return fault,
            };
            let ceiling = machine.tokens.ceiling(now.wall_us);
            if token > ceiling {
                let text =
                    format!("token {token} is too far ahead: at most {ceiling} is taken now");
                return Outcome::fault(ErrorCode::Err, text);
            }
            let raised = hold.token.max(token);
            machine.raised(step.key, hold.token, raised);
            hold.token = raised;
            hold.answers = hold.answers.wrapping_add(1);
            machine.tokens.learn(hold.token);
            step.dirty = true;
            Outcome::Token(hold.token)
        });
        fx.reply = Some(answer.unwrap_or_else(|_| wrong_type()));
    }

    /// DLOCK.BREAK: ends the hold of whoever has it. 1 if there was one, else 0.
    pub fn break_lock<S: Store>(
        &mut self,
        store: &mut S,
        now: Now,
        caller: Caller,
        key: &[u8],
        fx: &mut Effects,
    ) {
        let answer = self.on_call(store, now, caller, key, fx, |machine, step, resource| {
            if !resource.is_held() {
                return Outcome::Count(0);
            }
            machine.end_hold(step, resource, End::Broken);
            machine.hand_on(step, resource);
            Outcome::Count(1)
        });
        fx.reply = Some(answer.unwrap_or_else(|_| wrong_type()));
    }

    /// DLOCK.CANCEL: the owner leaves the queue (a blocked call is answered Null), or gives an
    /// unclaimed grant back. 1 if it did either, else 0.
    pub fn cancel<S: Store>(
        &mut self,
        store: &mut S,
        now: Now,
        caller: Caller,
        (key, owner): (&[u8], &[u8]),
        fx: &mut Effects,
    ) {
        let answer = self.on_call(store, now, caller, key, fx, |machine, step, resource| {
            let queue = machine.waits.queue_of(step.key);
            if let Some(slot) = queue.and_then(|queue| machine.waits.place_of(queue, owner)) {
                if let Some(waiter) = machine.forget_place(slot)
                    && let crate::queue::Presence::Parked { .. } = waiter.presence
                {
                    step.fx.wake(waiter.id, Outcome::Null);
                }
                machine.hand_on(step, resource);
                return Outcome::Count(1);
            }
            let lock = resource.lock_mut();
            if lock.held_by(owner).is_some_and(|hold| hold.unclaimed().is_some()) {
                machine.end_hold(step, resource, End::Returned);
                machine.hand_on(step, resource);
                return Outcome::Count(1);
            }
            Outcome::Count(0)
        });
        fx.reply = Some(answer.unwrap_or_else(|_| wrong_type()));
    }
}

/// The hold of `owner` (with `token`, if one is given), or `NOTHELD`.
fn own_hold<'r>(
    key: Key<'_>,
    lock: &'r mut Lock,
    owner: &[u8],
    token: Option<u64>,
) -> Result<&'r mut Hold, Outcome> {
    match lock.hold_mut() {
        Some(hold) if *hold.owner == *owner && token.is_none_or(|token| token == hold.token) => {
            Ok(hold)
        }
        other => Err(not_held(key, other.as_deref(), owner, token)),
    }
}

#[cold]
fn not_held(key: Key<'_>, hold: Option<&Hold>, owner: &[u8], token: Option<u64>) -> Outcome {
    let (name, asked) = (quoted(key.name), quoted(owner));
    let text = match (hold, token) {
        (Some(hold), Some(token)) if *hold.owner == *owner => {
            format!("{asked} holds {name} with token {}, not {token}", hold.token)
        }
        (Some(_), _) => format!("{name} is held by another owner, not by {asked}"),
        (None, _) => format!("{asked} does not hold {name}: nobody does"),
    };
    Outcome::fault(ErrorCode::NotHeld, text)
}
