//! Grants to waiting calls for several keys.

use crate::base::bytes::Name;
use crate::base::ids::{ALONE, QueueId, WaiterId};
use crate::base::key::Key;
use crate::base::kind::Kind;
use crate::ports::answers::{grants_are_closed, tokens_used_up};
use crate::ports::effects::Outcome;
use crate::ports::turn::Turn;
use crate::run::enter;
use crate::step::Step;
use crate::step::end::End;
use crate::step::holder::own_hold;
use crate::step::terms::Terms;
use crate::tables::Tables;
use crate::tables::pending::in_flight::{Given, Part, Taken};
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
    let mut tokens = Vec::with_capacity(members.len());
    let mut parts = Vec::with_capacity(members.len());
    for Member { db, name, queue, .. } in &members {
        let key = Key { db: *db, name };
        tables.waits.expect(*queue);
        let outcome =
            enter::on_key_alone(tables, turn, Kind::Lock, key, usize::MAX, |step, resource| {
                step.take_one(resource, waiter.terms())
            });
        let Ok((Outcome::Token(token), how)) = outcome else {
            debug_assert!(false, "a key that was there to be taken a moment ago");
            let taken: Vec<(Key<'_>, u64, Taken)> = parts.iter().filter_map(taken).collect();
            let fault = give_back_all(tables, turn, waiter.ask.request.as_deref(), &taken);
            turn.fx.wake(waiter.id, fault);
            return;
        };
        tokens.push(token);
        let given = Given::Hold { id: ALONE, token, how };
        parts.push(Part::new(Kind::Lock, key, given));
    }
    tables.counters.grants_after_waiting += 1;
    if let (Some(member), Some(token)) = (members.first(), tokens.first()) {
        let key = Key { db: member.db, name: &member.name };
        let token = LogToken::Token(*token);
        tables.observe_wait(turn.now, Kind::Lock, key, &waiter.entry, token, None);
    }
    turn.fx.wake(waiter.id, Outcome::Tokens(tokens));
    tables.send(&waiter, parts);
}

impl Step<'_> {
    /// Takes a key that was found free.
    pub(crate) fn take_one(
        &mut self,
        resource: &mut Resource,
        terms: Terms<'_>,
    ) -> (Outcome, Taken) {
        if let Some(id) = own_hold(resource, terms.owner, terms.reqid, terms.demand) {
            let before = resource.hold(id).map(|hold| hold.count);
            let outcome = self.acquire_again(resource, id, &terms);
            let is_counted = resource.hold(id).map(|hold| hold.count) != before;
            return (outcome, if is_counted { Taken::Entered } else { Taken::Known });
        }
        self.overtakes =
            self.tables.waits.queue_of(self.key).filter(|&id| self.tables.waits.len_of(id) > 0);
        (self.grant_caller(resource, terms), Taken::New)
    }
}

/// Rolls back what a call for several keys, with request `id`, took before it met a key that it cannot have. `taken`
/// has each key with the token of the hold. Returns the answer to the call.
#[cold]
pub(crate) fn give_back_all(
    tables: &mut Tables,
    turn: &mut Turn<'_>,
    id: Option<&[u8]>,
    taken: &[(Key<'_>, u64, Taken)],
) -> Outcome {
    for &(key, token, how) in taken {
        // If the key has another type by now, there is nothing to roll back.
        let _ = enter::on_key(tables, turn, Kind::Lock, key, |step, resource| {
            let hold = resource.hold(ALONE).filter(|hold| hold.token == token);
            let Some(count) = hold.map(|hold| hold.count) else { return };
            match how {
                Taken::Known => {}
                Taken::Entered if count > 1 => {
                    resource.change_hold(ALONE, |hold| {
                        hold.count -= 1;
                        hold.forget(id);
                    });
                    step.dirty = true;
                }
                Taken::Entered | Taken::New => {
                    step.end_hold(resource, ALONE, End::Returned);
                    step.hand_off(resource);
                }
            }
        });
    }
    grants_are_closed()
}

/// One free key of a call for several keys.
pub(crate) struct Member {
    pub db: u32,
    pub name: Name,
    pub queue: QueueId,
    /// The owner does not hold it yet.
    pub is_fresh: bool,
}

/// What a call for several keys took of one key.
fn taken(part: &Part) -> Option<(Key<'_>, u64, Taken)> {
    let Given::Hold { token, how, .. } = part.given else { return None };
    Some((Key { db: part.db, name: &part.name }, token, how))
}
