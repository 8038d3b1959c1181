//! The verbs of a holder: RELEASE, RENEW and FENCE; and of an operator: BREAK.

use crate::effects::{Event, Outcome};
use crate::events::activity::refused_in_script;
use crate::machine::{End, Machine, quoted, wrong_type};
use crate::ops::reentry::{claim, set_deadline};
use crate::ops::requests::{Asks, Call};
use crate::ops::rw;
use crate::spent::Use;
use crate::state::hold::{Did, Hold};
use crate::state::holds::HoldId;
use crate::state::resource::{Kind, Resource};
use crate::store::Key;
use crate::time::Millis;
use crate::turn::Step;
use crate::turn::Turn;
use alloc::format;
use alloc::vec::Vec;
use dlock_wire::reply::ErrorCode;
use dlock_wire::request::{Mode, Release, Renew};

/// The holds of an owner: at most one in each mode.
fn holds_of(resource: &Resource, owner: &[u8]) -> Vec<HoldId> {
    resource.holds_of(owner).map(|(id, _)| id).collect()
}

/// Selects a hold.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Whose<'a> {
    pub owner: &'a [u8],
    /// The mode, for a read-write lock.
    pub mode: Option<Mode>,
    /// Matches only a hold with this token.
    pub token: Option<u64>,
}

impl Machine {
    /// DLOCK.RELEASE and DFAIR.RELEASE (`kind`): one hold less, or with ALL none left. The reply counts what remains.
    /// At 0 the lock goes to the first waiter in the same step.
    ///
    /// `NOTHELD` if the owner does not hold it, or not with TOKEN. A repeated REQID of a RELEASE counts nothing and
    /// gets the same answer, even if the hold has ended since.
    pub fn release(&mut self, turn: &mut Turn<'_>, (kind, call): (Kind, &Release<'_>)) {
        self.release_hold(turn, (kind, None), call);
    }

    pub(crate) fn release_hold(
        &mut self,
        turn: &mut Turn<'_>,
        (kind, mode): (Kind, Option<Mode>),
        call: &Release<'_>,
    ) {
        let request = releases(kind, mode, call);
        let key = (call.key, request);
        self.on_request(turn, key, |machine, step, resource| {
            let outcome = machine.release_here(step, resource, mode, call);
            if matches!(&outcome, Outcome::Fault(fault) if fault.code == ErrorCode::NotHeld) {
                // A later copy must not release the owner's next hold.
                machine.spend(step, request, Use::PassedOver);
            }
            Some(outcome)
        });
    }

    pub(crate) fn release_here(
        &mut self,
        step: &mut Step<'_>,
        resource: &mut Resource,
        mode: Option<Mode>,
        call: &Release<'_>,
    ) -> Outcome {
        let whose = Whose { owner: call.owner, mode, token: call.token };
        let id = match hold_of(step.key, resource, whose) {
            Ok(id) => id,
            Err(fault) => return fault,
        };
        let grip = (resource.entry, id);
        let mut answer = None;
        let remaining = resource.change_hold(id, |hold| {
            if let Some(did) = hold.seen(call.reqid) {
                if let Did::Release(said) = did {
                    answer = Some(said);
                }
                self.follow(grip, hold, None, step.caller.client);
                if hold.unclaimed().is_some() {
                    let lease_ms = hold.lease_ms;
                    claim(hold, step, lease_ms);
                }
            } else if !call.all && hold.count > 1 {
                hold.count -= 1;
                hold.remember(call.reqid, Did::Release(hold.count));
                step.fx.note(step.key, Event::Release);
                self.counters.releases += 1;
            } else {
                return 0;
            }
            hold.answers = hold.answers.wrapping_add(1);
            step.dirty = true;
            hold.count
        });
        match remaining {
            Some(0) | None => {
                self.end_hold(step, resource, id, End::Released);
                self.spend(step, releases(resource.kind(), mode, call), Use::Released(0));
                self.hand_on(step, resource);
                Outcome::Count(0)
            }
            Some(remaining) => Outcome::Count(u64::from(answer.unwrap_or(remaining))),
        }
    }

    /// DLOCK.RENEW and DFAIR.RENEW (`kind`): sets a new end of the lease, which may be sooner or later. Without PX or
    /// EX it uses the hold's own lease. It claims a QUEUE grant. The reply is the token; `NOTHELD` as for RELEASE.
    pub fn renew(&mut self, turn: &mut Turn<'_>, (kind, call): (Kind, &Renew<'_>)) {
        self.renew_hold(turn, (kind, None), call);
    }

    pub(crate) fn renew_hold(
        &mut self,
        turn: &mut Turn<'_>,
        (kind, mode): (Kind, Option<Mode>),
        call: &Renew<'_>,
    ) {
        if let Some(fault) = refused_in_script(turn.caller, call.bind_ms, None) {
            turn.fx.reply = Some(fault);
            return;
        }
        let key = (kind, call.key);
        let answer = self.on_call(turn, key, |machine, step, resource| {
            machine.end_if_due(step, resource, |resource| holds_of(resource, call.owner));
            let whose = Whose { owner: call.owner, mode, token: call.token };
            match hold_of(step.key, resource, whose) {
                Ok(id) => {
                    let times = (call.lease_ms, call.bind_ms);
                    machine.renew_here(step, resource, id, times);
                    resource.hold(id).map_or(Outcome::Null, |hold| Outcome::Token(hold.token))
                }
                Err(fault) => fault,
            }
        });
        turn.fx.reply = Some(answer.unwrap_or_else(|_| wrong_type()));
    }

    /// Sets a new end of a lease.
    pub(crate) fn renew_here(
        &mut self,
        step: &mut Step<'_>,
        resource: &mut Resource,
        id: HoldId,
        (lease_ms, bind_ms): (Option<Millis>, Option<Millis>),
    ) {
        let grip = (resource.entry, id);
        resource.change_hold(id, |hold| {
            let lease_ms = lease_ms.unwrap_or(hold.lease_ms);
            if bind_ms.is_some() || hold.unclaimed().is_some() {
                self.follow(grip, hold, bind_ms, step.caller.client);
            }
            if hold.unclaimed().is_some() {
                claim(hold, step, lease_ms);
            } else {
                hold.lease_ms = lease_ms;
                set_deadline(hold, step.lease + lease_ms);
            }
            hold.answers = hold.answers.wrapping_add(1);
        });
        step.dirty = true;
    }

    /// DLOCK.FENCE and DFAIR.FENCE (`kind`): raises the token of the hold to at least `token`, and
    /// of this server with it. The reply is the token of the hold afterwards. `NOTHELD` if the
    /// owner does not hold it; `ERR` for a token above [`Machine::token_ceiling`].
    pub fn fence(
        &mut self,
        turn: &mut Turn<'_>,
        (kind, key, owner, token): (Kind, &[u8], &[u8], u64),
    ) {
        let answer = self.on_call(turn, (kind, key), |machine, step, resource| {
            let whose = Whose { owner, mode: None, token: None };
            let id = match hold_of(step.key, resource, whose) {
                Ok(id) => id,
                Err(fault) => return fault,
            };
            let ceiling = machine.token_ceiling(step.now.wall_us);
            if token > ceiling {
                let text =
                    format!("token {token} is too far ahead: at most {ceiling} is taken step.now");
                return Outcome::fault(ErrorCode::Err, text);
            }
            let raised = resource.change_hold(id, |hold| {
                let from = hold.token;
                hold.token = hold.token.max(token);
                hold.answers = hold.answers.wrapping_add(1);
                (from, hold.token)
            });
            let Some((from, to)) = raised else { return Outcome::Null };
            machine.raised(step.key, from, to);
            machine.tokens.learn(to);
            step.dirty = true;
            Outcome::Token(to)
        });
        turn.fx.reply = Some(answer.unwrap_or_else(|_| wrong_type()));
    }

    /// DLOCK.BREAK and DFAIR.BREAK (`kind`): ends the hold of any owner. 1 if there was one, else 0.
    pub fn break_lock(&mut self, turn: &mut Turn<'_>, (kind, key): (Kind, &[u8])) {
        let answer = self.on_call(turn, (kind, key), |machine, step, resource| {
            if resource.lock().hold().is_none() {
                return Outcome::Count(0);
            }
            machine.end_hold(step, resource, crate::state::holds::ALONE, End::Broken);
            machine.hand_on(step, resource);
            Outcome::Count(1)
        });
        turn.fx.reply = Some(answer.unwrap_or_else(|_| wrong_type()));
    }

    /// CANCEL of DLOCK, DFAIR, DRW and DSEM (`kind`): the owner leaves the queue (its blocked call is answered Null),
    /// or returns an unclaimed grant. 1 if it did either, else 0. The request that REQID names is over afterwards, even
    /// if it has not arrived yet.
    pub fn cancel(
        &mut self,
        turn: &mut Turn<'_>,
        (kind, key, owner, id): (Kind, &[u8], &[u8], Option<&[u8]>),
    ) {
        let call = Call { kind, mode: None, owner, id, asks: Asks::Cancel };
        self.on_request(turn, (key, call), |machine, step, resource| {
            if id.is_none() {
                machine.cancel_on_the_way(step.key, resource, (owner, None));
            }
            let left = machine.cancel_here(step, resource, owner);
            machine.spend(step, call, Use::Cancelled(u32::from(left)));
            if left {
                machine.hand_on(step, resource);
            }
            Some(Outcome::Count(u64::from(left)))
        });
    }

    /// Returns whether the owner left the queue or returned an unclaimed grant. The caller hands off.
    fn cancel_here(&mut self, step: &mut Step<'_>, resource: &mut Resource, owner: &[u8]) -> bool {
        if let Some(slot) = self.waits.place_at(step.key, owner) {
            if let Some(waiter) = self.forget_place(slot)
                && waiter.presence.is_parked()
            {
                step.fx.wake(waiter.id, Outcome::Null);
            }
            return true;
        }
        // An owner can have very many permits: do not walk over the claimed ones.
        let found: Vec<HoldId> = match resource.others() {
            Some(holds) if resource.kind() == Kind::Semaphore => {
                holds.all_to_claim(owner).collect()
            }
            _ => {
                let unclaimed = |(_, hold): &(HoldId, &Hold)| hold.unclaimed().is_some();
                resource.holds_of(owner).filter(unclaimed).map(|(id, _)| id).collect()
            }
        };
        for &id in &found {
            self.end_hold(step, resource, id, End::Returned);
        }
        !found.is_empty()
    }
}

/// What a RELEASE does to a hold in `mode`.
fn releases<'a>(kind: Kind, mode: Option<Mode>, call: &Release<'a>) -> Call<'a> {
    Call { kind, mode, owner: call.owner, id: call.reqid, asks: Asks::Release }
}

/// The selected hold, or `NOTHELD`.
pub(crate) fn hold_of(
    key: Key<'_>,
    resource: &Resource,
    whose: Whose<'_>,
) -> Result<HoldId, Outcome> {
    let id = rw::find(resource, whose);
    let has_token = |id: &HoldId| {
        let token = resource.hold(*id).map(|hold| hold.token);
        whose.token.is_none_or(|asked| token == Some(asked))
    };
    id.filter(has_token).ok_or_else(|| not_held(key, resource, whose, id))
}

#[cold]
pub(crate) fn not_held(
    key: Key<'_>,
    resource: &Resource,
    whose: Whose<'_>,
    id: Option<HoldId>,
) -> Outcome {
    let (name, asked) = (quoted(key.name), quoted(whose.owner));
    let text = match (id.and_then(|id| resource.hold(id)), whose) {
        (Some(hold), Whose { token: Some(token), .. }) => {
            format!("{asked} holds {name} with token {}, not {token}", hold.token)
        }
        (_, Whose { mode: Some(mode), .. }) => {
            format!("{asked} does not hold {name} for {}", mode.as_str())
        }
        _ if resource.lock().hold().is_some() => {
            format!("{name} is held by another owner, not by {asked}")
        }
        _ => format!("{asked} does not hold {name}: nobody does"),
    };
    Outcome::fault(ErrorCode::NotHeld, text)
}
