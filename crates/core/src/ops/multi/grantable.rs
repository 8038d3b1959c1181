//! Grants to waiting calls for several keys.

use super::look::KeyState;
use crate::answers::{grants_are_closed, tokens_used_up};
use crate::bytes::Name;
use crate::effects::Outcome;
use crate::end::End;
use crate::holder::own_hold;
use crate::ids::{ALONE, QueueId, WaiterSlot};
use crate::key::Key;
use crate::kind::Kind;
use crate::pending::in_flight::{Given, Part, Taken};
use crate::queues::WaitQueues;
use crate::queues::waiter::{Waiter, WaiterId};
use crate::state::lock::Lock;
use crate::state::resource::Resource;
use crate::tables::Tables;
use crate::terms::Terms;
use crate::turn;
use crate::turn::{Step, Turn};
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use dlock_wire::reply::LogToken;

impl Step<'_> {
    /// A call for several keys is first at one of them. Returns `true` if it left the queue.
    pub(crate) fn grant_member(&mut self, resource: &mut Resource, slot: WaiterSlot) -> bool {
        let Some(waiter) = self.tables.waits.get(slot) else { return true };
        if self.tables.waits.group(waiter.group).is_some_and(|group| group.takes_any) {
            self.grant_waiter(resource, slot);
            return true;
        }
        let call = self.tables.waits.leader(waiter).id;
        if self.tables.waits.set_grantable(slot, true) {
            self.tables.pending.ready_groups.push_back(call);
        }
        false
    }
}

impl WaitQueues {
    /// The owner no longer holds a key on which its call for several keys counted.
    pub(crate) fn no_longer_grantable(&mut self, key: Key<'_>, owner: &[u8]) {
        if self.has_groups()
            && let Some(slot) = self.waiter_at(key, owner)
            && self.get(slot).is_some_and(Waiter::is_grouped)
        {
            self.set_grantable(slot, false);
        }
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

/// The keys of a call, if all of them are free for it; otherwise the call keeps waiting.
pub(crate) fn members_that_are_open(
    tables: &mut Tables,
    turn: &mut Turn<'_>,
    call: WaiterId,
) -> Option<Vec<Member>> {
    let first = tables.waits.by_id(call)?;
    let (owner, group) = (first.owner.clone(), tables.waits.group(first.group)?);
    let slots = group.members.clone();
    let mut members = Vec::with_capacity(slots.len());
    for slot in slots {
        let queue = tables.waits.get(slot)?.queue;
        let found = tables.waits.queue(queue)?;
        let (db, name) = (found.db, found.name.clone());
        // Check once more: other commands may have changed any of the keys.
        tables.waits.expect(queue);
        let state = turn::on_key_alone(
            tables,
            turn,
            Kind::Lock,
            Key { db, name: &name },
            usize::MAX,
            |step, resource| match resource.lock() {
                Lock::Held(hold) if hold.owner == owner && hold.count < u32::MAX => KeyState::Held,
                Lock::Free if step.tables.first_in(queue) == Some(slot) => KeyState::Open,
                _ => KeyState::Closed(false),
            },
        );
        tables.waits.by_id(call)?;
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
            turn::on_key_alone(tables, turn, Kind::Lock, key, usize::MAX, |step, resource| {
                step.take_one(resource, waiter.terms())
            });
        let Ok((Outcome::Token(token), how)) = outcome else {
            debug_assert!(false, "a key that was there to be taken a moment ago");
            let taken: Vec<(Key<'_>, u64, Taken)> = parts.iter().filter_map(taken).collect();
            let fault = give_back_all(tables, turn, &taken);
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
            let outcome = self.acquire_again(resource, id, terms);
            let is_counted = resource.hold(id).map(|hold| hold.count) != before;
            return (outcome, if is_counted { Taken::Entered } else { Taken::Known });
        }
        self.overtakes =
            self.tables.waits.queue_of(self.key).filter(|&id| self.tables.waits.len_of(id) > 0);
        (self.grant_caller(resource, terms), Taken::New)
    }
}

/// Rolls back what a call for several keys took before it met a key that it cannot have. `taken` has each key with
/// the token of the hold. Returns the answer to the call.
#[cold]
pub(crate) fn give_back_all(
    tables: &mut Tables,
    turn: &mut Turn<'_>,
    taken: &[(Key<'_>, u64, Taken)],
) -> Outcome {
    for &(key, token, how) in taken {
        // If the key has another type by now, there is nothing to roll back.
        let _ = turn::on_key(tables, turn, Kind::Lock, key, |step, resource| {
            let hold = resource.hold(ALONE).filter(|hold| hold.token == token);
            let Some(count) = hold.map(|hold| hold.count) else { return };
            match how {
                Taken::Known => {}
                Taken::Entered if count > 1 => {
                    resource.change_hold(ALONE, |hold| hold.count -= 1);
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
