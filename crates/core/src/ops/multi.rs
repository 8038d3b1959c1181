//! Several locks at once: all of them, or any one.
//!
//! A waiting call has a waiter in the queue of each key; one step adds all of them. It takes all keys at the moment
//! when it is first in every queue. All such calls have the same order in all queues they share. So they cannot wait
//! for each other in a cycle, and none is overtaken.

pub(crate) mod look;
pub(crate) mod waiters;

use crate::base::ids::ALONE;
use crate::base::kind::Kind;
use crate::deadlock;
use crate::ops::release;
use crate::ports::answers::{tokens_used_up, wrong_type};
use crate::ports::effects::{Answer, Outcome};
use crate::ports::store::Lookup;
use crate::ports::turn::Turn;
use crate::run::call::{refused_in_script, wait_state_of};
use crate::run::groups::KeyState;
use crate::run::{activity, enter, groups};
use crate::step::holder::{Whose, hold_of};
use crate::step::requests::is_expiry;
use crate::tables::Tables;
use crate::value::wait_request::Demand;
use alloc::vec::Vec;
use dlock_wire::reply::ErrorCode;
use dlock_wire::request::{MAcquire, MRelease, MRenew, Release};
use look::{Snapshot, refuse};

/// DLOCK.MACQUIRE: all keys or none. The tokens in key order, or Null.
///
/// For each key it does what [`acquire`](crate::ops::acquire::acquire) does: it re-enters keys that the owner holds.
/// With BLOCK the call waits until it is first in the queues of all keys it does not hold. Earlier waits of the owner
/// for any of them are answered `REPLACED`.
pub(crate) fn macquire(tables: &mut Tables, turn: &mut Turn<'_>, call: &MAcquire<'_>) -> Answer {
    observed(tables, turn, call, take_all)
}

/// DLOCK.ANYACQUIRE: one of the keys, as key and token, or Null. It prefers a key whose hold has seen REQID, then a
/// key that the owner holds (a re-entry), then the first free key. The search for a free key starts one key further
/// with each call. With BLOCK the call waits for the first key that becomes free.
pub(crate) fn any_acquire(tables: &mut Tables, turn: &mut Turn<'_>, call: &MAcquire<'_>) -> Answer {
    observed(tables, turn, call, take_any)
}

/// Logs a refusal under the first key.
fn observed(
    tables: &mut Tables,
    turn: &mut Turn<'_>,
    call: &MAcquire<'_>,
    take: fn(&mut Tables, &mut Turn<'_>, &MAcquire<'_>) -> Answer,
) -> Answer {
    let answer = take(tables, turn, call);
    let key = turn.caller.key(call.keys.first().copied().unwrap_or_default());
    tables.observe_refusal(turn.now, &answer, Kind::Lock, key, call.owner, call.label);
    answer
}

fn take_all(tables: &mut Tables, turn: &mut Turn<'_>, call: &MAcquire<'_>) -> Answer {
    let (states, kept) = match look::inspect_all(tables, turn, call, false) {
        Ok(Snapshot { refusal: Some(refusal), .. } | Snapshot { limit: Some(refusal), .. })
        | Err(refusal) => return refusal.into(),
        Ok(Snapshot { each, kept, .. }) => (each, kept),
    };
    let wait_state = wait_state_of(turn.now, turn.caller, call.block_ms, None);
    if states.iter().all(|state| state.can_be_taken()) {
        let fresh = states.iter().filter(|state| **state == KeyState::Open).count();
        if !tables.tokens.has(fresh, turn.now.wall_us) {
            return tokens_used_up().into();
        }
        if wait_state.is_some() {
            waiters::evict_all(tables, turn, call);
        }
        tables.counters.grants_at_once += u64::from(fresh > 0);
        let taken = take_each(tables, turn, call);
        return taken.map_or_else(|fault| fault, Outcome::Tokens).into();
    }
    let Some(wait_state) = wait_state else {
        let mut closed = states.iter().filter(|state| !state.can_be_taken());
        let is_quarantined = closed.all(|state| *state == KeyState::Closed(true));
        return refuse(tables, turn.now, is_quarantined).into();
    };
    if tables.settings.deadlock_detection && kept.is_none() {
        let caller = turn.caller;
        let keys = call.keys.iter().map(|name| caller.key(name));
        if let Some(cycle) = deadlock::cycle_of_all(tables, turn, keys, call.owner) {
            tables.counters.deadlocks_refused += 1;
            return Outcome::fault(ErrorCode::Deadlock, cycle).into();
        }
    }
    let (answer, members) = match waiters::join_queues(tables, turn, call, wait_state, false, kept)
    {
        Ok(joined) => joined,
        Err(fault) => return fault.into(),
    };
    for (&slot, state) in members.iter().zip(&states) {
        tables.waits.set_grantable(slot, state.can_be_taken());
    }
    note_holders_of_all(tables, turn, call);
    answer
}

fn take_any(tables: &mut Tables, turn: &mut Turn<'_>, call: &MAcquire<'_>) -> Answer {
    let found = match look::inspect_all(tables, turn, call, true) {
        Ok(found) => found,
        Err(fault) => return fault.into(),
    };
    let Snapshot { each: states, kept, refusal, limit } = found;
    if let Some(refusal) = refusal.filter(|_| !states.contains(&KeyState::Seen)) {
        return refusal.into();
    }
    let start = tables.any_start % states.len().max(1);
    tables.any_start = tables.any_start.wrapping_add(1);
    let first = |wanted: KeyState| states.iter().position(|state| *state == wanted);
    let open = (start..states.len()).chain(0..start);
    let open = || open.clone().find(|&at| states.get(at) == Some(&KeyState::Open));
    let chosen = first(KeyState::Seen).or_else(|| first(KeyState::Held)).or_else(open);
    let wait_state = wait_state_of(turn.now, turn.caller, call.block_ms, None);
    if let Some(&name) = chosen.and_then(|at| call.keys.get(at)) {
        let is_new = chosen.and_then(|at| states.get(at)) == Some(&KeyState::Open);
        if is_new && !tables.tokens.has(1, turn.now.wall_us) {
            return tokens_used_up().into();
        }
        if wait_state.is_some() {
            waiters::evict_blocked(tables, turn, call, name);
        }
        let keys = [name];
        let one = MAcquire { keys: &keys, ..*call };
        tables.counters.grants_at_once += u64::from(is_new);
        let granted = |tokens: Vec<u64>| {
            let token = tokens.first().copied().unwrap_or_default();
            Outcome::Granted { key: name.to_vec(), token }
        };
        return take_each(tables, turn, &one).map_or_else(|fault| fault, granted).into();
    }
    if let Some(limit) = limit {
        // It would wait for a key that its own owner holds.
        return limit.into();
    }
    let Some(wait_state) = wait_state else {
        return refuse(tables, turn.now, states.contains(&KeyState::Closed(true))).into();
    };
    let waits = waiters::join_queues(tables, turn, call, wait_state, true, kept);
    note_holders_of_all(tables, turn, call);
    waits.map_or_else(Answer::Now, |(answer, _)| answer)
}

/// Takes every key, all of which were found free.
fn take_each(
    tables: &mut Tables,
    turn: &mut Turn<'_>,
    call: &MAcquire<'_>,
) -> Result<Vec<u64>, Outcome> {
    let caller = turn.caller;
    let first = call.keys.first().copied().unwrap_or_default();
    let terms = tables.settings.terms(&call.for_key(first), Demand::Lock, caller.client);
    let keys = call.keys.iter().map(|name| (caller.key(name), None));
    let taken = groups::take_keys(tables, turn, keys, &terms);
    groups::grant_ready_groups(tables, turn);
    Ok(groups::tokens_of(&taken?))
}

/// Tells the holders of the keys to the queues that begin with this call.
fn note_holders_of_all(tables: &mut Tables, turn: &mut Turn<'_>, call: &MAcquire<'_>) {
    for &name in call.keys {
        if let Some(queue) = tables.waits.queue_of(turn.caller.key(name))
            && tables.waits.queue(queue).is_some_and(|queue| queue.holder == 0)
            && let Lookup::Here(resource) = turn.keys.get(turn.caller.key(name))
        {
            tables.waits.note_holders(queue, resource, false);
        }
    }
}

/// DLOCK.MRELEASE. With REQID: what the MACQUIRE has at each of the keys ends, as RELEASE does it. The reply is the
/// worst: `LOST` (with another reason than `expired` first), `WRONGTYPE`, `UNKNOWN`, Null if it waited, else the number
/// of keys. Without: one hold less of every key that the owner holds; the others are skipped. Returns the number of
/// held keys.
pub(crate) fn mrelease(tables: &mut Tables, turn: &mut Turn<'_>, call: &MRelease<'_>) -> Answer {
    if let Err(fault) = look::refuse_above(tables.settings.keys_per_held_call(), call.keys) {
        return fault.into();
    }
    activity::mark_active(tables, turn, turn.caller.client);
    if call.reqid.is_none() {
        if let Err(fault) = are_locks(tables, turn, call.keys) {
            return fault.into();
        }
        let mut released = 0;
        for &name in call.keys {
            let key = turn.caller.key(name);
            let one = Release::new(name, call.owner);
            let answer = enter::on_key(tables, turn, Kind::Lock, key, |step, resource| {
                step.release_counted(resource, None, &one)
            });
            released += u64::from(matches!(answer, Ok(Outcome::Count(_))));
        }
        return Outcome::Count(released).into();
    }
    let one = |name| Release { reqid: call.reqid, ..Release::new(name, call.owner) };
    let request = release::request_of(Kind::Lock, None, &one(&[]));
    // The end of the wait at one key ends it at all: look first.
    let waits = |name: &&[u8]| tables.waits_with(turn.caller.key(name), request).is_some();
    let waited: Vec<bool> = call.keys.iter().map(waits).collect();
    let mut worst = Outcome::Count(call.keys.len() as u64);
    for (&name, has_waited) in call.keys.iter().zip(waited) {
        let key = turn.caller.key(name);
        let answer = enter::on_key(tables, turn, Kind::Lock, key, |step, resource| {
            let known = step.recall(resource, request);
            known.unwrap_or_else(|| step.release_here(resource, None, &one(name), has_waited))
        });
        let outcome = answer.unwrap_or_else(|_| tables.answer_alone(key, request, turn.now));
        if badness(&outcome) > badness(&worst) {
            worst = outcome;
        }
    }
    worst.into()
}

/// How much the answer of one key of MRELEASE says.
fn badness(outcome: &Outcome) -> u8 {
    match outcome {
        Outcome::Null => 1,
        Outcome::Fault(fault) => match fault.code {
            ErrorCode::Unknown => 2,
            ErrorCode::Lost if is_expiry(fault) => 4,
            ErrorCode::Lost => 5,
            _ => 3,
        },
        _ => 0,
    }
}

/// DLOCK.MRENEW: renews all of them and returns their number. `NOTHELD` names the first key that is not held; then
/// none is renewed.
pub(crate) fn mrenew(tables: &mut Tables, turn: &mut Turn<'_>, call: &MRenew<'_>) -> Answer {
    let most = tables.settings.keys_per_held_call();
    let allowed = look::refuse_above(most, call.keys);
    if let Err(fault) = allowed.and_then(|()| are_locks(tables, turn, call.keys)) {
        return fault.into();
    }
    if let Some(fault) = refused_in_script(turn.caller, call.bind_ms, None) {
        return fault.into();
    }
    activity::mark_active(tables, turn, turn.caller.client);
    let whose = Whose { owner: call.owner, mode: None, token: None };
    for &name in call.keys {
        let key = turn.caller.key(name);
        let held = enter::on_key(tables, turn, Kind::Lock, key, |step, resource| {
            hold_of(step.key, resource, whose).map(|_| ())
        });
        if let Err(fault) = held.unwrap_or_else(|_| Err(wrong_type())) {
            return fault.into();
        }
    }
    for &name in call.keys {
        let key = turn.caller.key(name);
        // The loop before has checked that all are held.
        let _ = enter::on_key(tables, turn, Kind::Lock, key, |step, resource| {
            step.renew_here(resource, ALONE, call.lease_ms, call.bind_ms);
        });
    }
    Outcome::Count(call.keys.len() as u64).into()
}

/// `WRONGTYPE` if any of the keys is not a lock.
fn are_locks(tables: &Tables, turn: &mut Turn<'_>, keys: &[&[u8]]) -> Result<(), Outcome> {
    let is_lock = |name: &&[u8]| match turn.keys.get(turn.caller.key(name)) {
        Lookup::Missing => !tables.waits.is_awaited_as_another(Kind::Lock, turn.caller.key(name)),
        Lookup::Here(resource) => resource.kind() == Kind::Lock,
        Lookup::WrongType | Lookup::Elsewhere | Lookup::OutOfReach => false,
    };
    if keys.iter().all(is_lock) { Ok(()) } else { Err(wrong_type()) }
}
