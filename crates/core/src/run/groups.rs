//! Grants to waiting calls for several keys.

use crate::base::bytes::Name;
use crate::base::ids::{ALONE, QueueId, WaiterId};
use crate::base::key::Key;
use crate::base::kind::Kind;
use crate::ports::answers::{tokens_used_up, wrong_type};
use crate::ports::effects::Outcome;
use crate::ports::turn::Turn;
use crate::run::enter;
use crate::step::Step;
use crate::step::holder::own_hold;
use crate::step::take_back::Grant;
use crate::step::terms::Terms;
use crate::tables::Tables;
use crate::tables::pending::in_flight::{Given, Part, Stays, Taken};
use crate::value::lock::Lock;
use crate::value::resource::Resource;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use dlock_wire::reply::LogToken;

/// The state of one key for a call for several keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum KeyState {
    /// Its owner holds it, and the hold has seen the request id.
    Seen,
    /// The request was carried out here, and its hold has ended; or the id was used for another request.
    Refused,
    /// Its owner holds it.
    Held,
    /// It is free for the call.
    Open,
    /// It is not free now; with `true`, only because of a quarantine.
    Closed(bool),
}

impl KeyState {
    pub(crate) fn can_be_taken(self) -> bool {
        !matches!(self, Self::Closed(_) | Self::Refused)
    }
}

/// Grants the calls for several keys that are grantable now. Calls that become grantable through these grants are
/// granted here, too, however long the chain is.
pub(crate) fn grant_ready_groups(tables: &mut Tables, turn: &mut Turn<'_>) {
    if !tables.regime.may_grant(turn.now.mono) {
        return;
    }
    // All keys of a call share a slot, so in a cluster they are in the slot of the running command. Only a panic
    // can have left a call of another slot here; it waits for the tick.
    let mut later = VecDeque::new();
    while let Some(call) = tables.pending.ready_groups.pop_front() {
        let first = tables.waits.by_id(call).and_then(|waiter| tables.waits.queue(waiter.queue));
        if first.is_none_or(|queue| turn.keys.reaches(queue.key())) {
            grant_all(tables, turn, call);
        } else {
            later.push_back(call);
        }
    }
    tables.pending.ready_groups.append(&mut later);
}

/// In the tick: grants the calls that a panic has left ungranted; `false` if there is none.
pub(crate) fn grant_leftover(tables: &mut Tables, turn: &mut Turn<'_>) -> bool {
    let has_some =
        !tables.pending.ready_groups.is_empty() && tables.regime.may_grant(turn.now.mono);
    if has_some {
        grant_ready_groups(tables, turn);
    }
    has_some
}

/// The keys of a call, if all of them are free for it; otherwise the call keeps waiting. It ends with `LIMIT` if its
/// owner cannot enter one of them once more: no hand-off would come back to a hold that is entered less often later.
pub(crate) fn members_that_are_open(
    tables: &mut Tables,
    turn: &mut Turn<'_>,
    call: WaiterId,
) -> Option<Vec<Member>> {
    let first = tables.waits.by_id(call)?;
    let (owner, group) = (first.owner.clone(), tables.waits.group(first.group)?);
    let (slots, id) = (group.members.clone(), first.ask.request.clone());
    let id = id.as_deref();
    let mut members = Vec::with_capacity(slots.len());
    let mut limit = None;
    for slot in slots {
        let queue = tables.waits.get(slot)?.queue;
        let found = tables.waits.queue(queue)?;
        let (db, name) = (found.db, found.name.clone());
        // Check once more: other commands may have changed any of the keys.
        tables.waits.expect(queue);
        let state = enter::on_key_alone(
            tables,
            turn,
            Kind::Lock,
            Key { db, name: &name },
            usize::MAX,
            |step, resource| match resource.lock() {
                Lock::Held(hold) if hold.owner == owner => {
                    limit = step.no_room_in(hold, id);
                    if limit.is_none() { KeyState::Held } else { KeyState::Closed(false) }
                }
                Lock::Free if step.tables.first_in(queue) == Some(slot) => KeyState::Open,
                _ => KeyState::Closed(false),
            },
        );
        let waiter = tables.waits.by_id(call)?.id;
        if let Some(limit) = limit {
            tables.remove_waiter(call.slot());
            turn.fx.wake(waiter, limit);
            return None;
        }
        if !state.is_ok_and(KeyState::can_be_taken) {
            tables.waits.set_grantable(slot, false);
            tables.waits.mark_dirty(queue);
            return None;
        }
        members.push(Member { db, name, queue, is_fresh: state == Ok(KeyState::Open) });
    }
    Some(members)
}

/// Grants a waiting call for several keys, if all of them are free for it.
pub(crate) fn grant_all(tables: &mut Tables, turn: &mut Turn<'_>, call: WaiterId) {
    let Some(members) = members_that_are_open(tables, turn, call) else { return };
    let Some(waiter) = tables.waits.by_id(call) else { return };
    let fresh = members.iter().filter(|member| member.is_fresh).count();
    if !tables.tokens.has(fresh, turn.now.wall_us) {
        let id = waiter.id;
        if tables.remove_waiter(call.slot()).is_some() {
            turn.fx.wake(id, tokens_used_up());
        }
        return;
    }
    let Some(waiter) = tables.remove_waiter(call.slot()) else { return };
    turn.fx.expect(members.len());
    let keys = || {
        members.iter().map(|member| (Key { db: member.db, name: &member.name }, Some(member.queue)))
    };
    let got = match take_keys(tables, turn, keys(), &waiter.terms()) {
        Ok(got) => got,
        Err(fault) => return turn.fx.wake(waiter.id, fault),
    };
    tables.counters.grants_after_waiting += 1;
    if let (Some((key, _)), Some((token, _))) = (keys().next(), got.first()) {
        let token = LogToken::Token(*token);
        tables.observe_wait(turn.now, Kind::Lock, key, &waiter.entry, token, None);
    }
    let parts = keys().zip(&got).map(|((key, _), &(token, how))| {
        Part::new(Kind::Lock, key, Given::Hold { id: ALONE, token, how })
    });
    let parts = parts.collect();
    turn.fx.wake(waiter.id, Outcome::Tokens(tokens_of(&got)));
    tables.send(&waiter, parts);
}

/// Takes every key (each with its queue, if that is known), all of which were found free. The tokens in key order, and
/// how each was taken. If one is not free after all, returns those already taken.
pub(crate) fn take_keys<'k>(
    tables: &mut Tables,
    turn: &mut Turn<'_>,
    keys: impl Iterator<Item = (Key<'k>, Option<QueueId>)> + Clone,
    terms: &Terms<'_>,
) -> Result<Vec<(u64, Taken)>, Outcome> {
    let mut got = Vec::with_capacity(keys.size_hint().0);
    for (key, queue) in keys.clone() {
        if let Some(queue) = queue {
            tables.waits.expect(queue);
        }
        let outcome =
            enter::on_key_alone(tables, turn, Kind::Lock, key, usize::MAX, |step, resource| {
                step.take_one(resource, terms)
            });
        match outcome {
            Ok((Outcome::Token(token), how)) => got.push((token, how)),
            other => {
                debug_assert!(false, "a key that was there to be taken a moment ago");
                for ((key, _), (token, how)) in keys.zip(got) {
                    let (request, stays) = (terms.reqid, &Stays::Nothing);
                    let grant = Grant { id: ALONE, token, how, request, is_renewed: false, stays };
                    // If the key has another type by now, there is nothing to take back.
                    let _ = enter::on_key(tables, turn, Kind::Lock, key, |step, resource| {
                        step.take_back(resource, &grant);
                    });
                }
                return Err(other.map_or_else(|_| wrong_type(), |(fault, _)| fault));
            }
        }
    }
    Ok(got)
}

/// The tokens of keys that were taken.
pub(crate) fn tokens_of(got: &[(u64, Taken)]) -> Vec<u64> {
    got.iter().map(|(token, _)| *token).collect()
}

impl Step<'_> {
    /// Takes a key that was found free.
    pub(crate) fn take_one(
        &mut self,
        resource: &mut Resource,
        terms: &Terms<'_>,
    ) -> (Outcome, Taken) {
        if let Some(id) = own_hold(resource, terms.owner, terms.reqid, terms.demand) {
            let before = resource.hold(id).map(|hold| hold.count);
            let outcome = self.acquire_again(resource, id, terms);
            let is_counted = resource.hold(id).map(|hold| hold.count) != before;
            return (outcome, if is_counted { Taken::Entered } else { Taken::Known });
        }
        self.overtakes =
            self.tables.waits.queue_of(self.key).filter(|&id| self.tables.waits.len_of(id) > 0);
        (self.grant_caller(resource, terms.clone(), None), Taken::New)
    }
}

/// One free key of a call for several keys.
pub(crate) struct Member {
    pub db: u32,
    pub name: Name,
    pub queue: QueueId,
    /// The owner does not hold it yet.
    pub is_fresh: bool,
}
