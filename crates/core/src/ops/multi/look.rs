//! The state of the keys of a call for several keys, before it takes any.

use crate::base::ids::GroupId;
use crate::base::kind::Kind;
use crate::base::time::Now;
use crate::ports::answers::in_quarantine;
use crate::ports::effects::Outcome;
use crate::ports::turn::{Caller, Turn};
use crate::run::call::refused_in_script;
use crate::run::groups::KeyState;
use crate::run::{activity, due, enter};
use crate::step::Step;
use crate::step::holder::own_hold;
use crate::step::requests::{Asks, Call};
use crate::tables::Tables;
use crate::value::lock::Lock;
use crate::value::resource::Resource;
use crate::value::wait_request::Demand;
use alloc::format;
use alloc::vec::Vec;
use dlock_wire::reply::ErrorCode;
use dlock_wire::request::MAcquire;

/// The state of all keys for a call for several keys.
#[derive(Default)]
pub(crate) struct Snapshot {
    /// In the order of the keys.
    pub(crate) each: Vec<KeyState>,
    /// The earlier call of the owner whose waiters this call takes over.
    pub(crate) kept: Option<GroupId>,
    /// The answer of a key that refuses the id of the call.
    pub(crate) refusal: Option<Outcome>,
    /// The answer of a key that the owner cannot enter once more.
    pub(crate) limit: Option<Outcome>,
}

/// How waiters count that the owner has already.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Own {
    /// The call does not wait: they block it like waiters of other owners.
    Counts,
    /// The call takes over the waiters of an earlier call.
    Stays,
    /// They are removed when the call waits or is granted.
    Goes,
}

/// Inspects each key, and finds the earlier call of the owner whose waiters this one takes over. A key of another
/// type is an error before anything is taken.
pub(crate) fn inspect_all(
    tables: &mut Tables,
    turn: &mut Turn<'_>,
    call: &MAcquire<'_>,
    takes_any: bool,
) -> Result<Snapshot, Outcome> {
    if let Some(fault) = refused_in_script(turn.caller, call.bind_ms, None) {
        return Err(fault);
    }
    refuse_above(tables.settings.max_keys_per_call, call.keys)?;
    activity::mark_active(tables, turn, turn.caller.client);
    if tables.settings.deadlock_detection {
        due::end_due_leases(tables, turn, core::iter::empty());
    }
    if call.block_ms.is_none() || !turn.caller.may_block {
        return inspect_each(tables, turn, call, Own::Counts);
    }
    if let Some(kept) = group_kept_by(tables, turn.now, turn.caller, call, takes_any) {
        let states = inspect_each(tables, turn, call, Own::Stays)?;
        // An inspected key may have granted the call or ended it.
        if tables.waits.group(kept).is_some() {
            return Ok(Snapshot { kept: Some(kept), ..states });
        }
    }
    inspect_each(tables, turn, call, Own::Goes)
}

/// `LIMIT` if a call has more keys than this.
pub(crate) fn refuse_above(most: usize, keys: &[&[u8]]) -> Result<(), Outcome> {
    let count = keys.len();
    if count <= most {
        return Ok(());
    }
    let text = format!("{count} keys in one call; {most} are allowed (dlock.max-keys-per-call)");
    Err(Outcome::fault(ErrorCode::Limit, text))
}

fn inspect_each(
    tables: &mut Tables,
    turn: &mut Turn<'_>,
    call: &MAcquire<'_>,
    own: Own,
) -> Result<Snapshot, Outcome> {
    let (owner, id, asks) = (call.owner, call.reqid, Asks::Acquire);
    let request = Call { kind: Kind::Lock, mode: None, owner, id, asks };
    let each = Vec::with_capacity(call.keys.len());
    let mut found = Snapshot { each, ..Snapshot::default() };
    for &name in call.keys {
        let key = turn.caller.key(name);
        let state = enter::on_key(tables, turn, Kind::Lock, key, |step, resource| {
            step.hand_off(resource);
            if id.is_some()
                && let Some(refusal) = step.recall(resource, request)
            {
                found.refusal.get_or_insert(refusal);
                return KeyState::Refused;
            }
            if let Some(hold) = resource.lock().hold().filter(|hold| *hold.owner == *owner)
                && let Some(limit) = step.no_room_in(hold, id)
            {
                found.limit.get_or_insert(limit);
                return KeyState::Closed(false);
            }
            step.inspect_one(resource, call, own)
        });
        found.each.push(state.map_err(|_| tables.answer_alone(key, request, turn.now))?);
    }
    Ok(found)
}

impl Step<'_> {
    fn inspect_one(&self, resource: &Resource, call: &MAcquire<'_>, own: Own) -> KeyState {
        if own_hold(resource, call.owner, call.reqid, Demand::Lock).is_some() {
            let hold = resource.lock().hold();
            let has_seen = hold.is_some_and(|hold| hold.has_request(call.reqid));
            return if has_seen { KeyState::Seen } else { KeyState::Held };
        }
        let is_free = matches!(resource.lock(), Lock::Free);
        if self.tables.regime.quarantine_left(self.now.mono) > 0 {
            return KeyState::Closed(resource.lock().hold().is_none());
        }
        if !self.tables.regime.accepts_writes() {
            return KeyState::Closed(false);
        }
        let queue = self.tables.waits.queue_of(self.key).filter(|_| is_free);
        let mut waiting = queue.into_iter().flat_map(|queue| self.tables.waits.walk(queue));
        let first = waiting.find(|(_, waiter)| match own {
            Own::Goes if *waiter.owner == *call.owner => false,
            Own::Counts | Own::Goes | Own::Stays => self.tables.counts(waiter),
        });
        let is_first = match first {
            None => true,
            Some((_, waiter)) => own == Own::Stays && *waiter.owner == *call.owner,
        };
        if is_free && is_first { KeyState::Open } else { KeyState::Closed(false) }
    }
}

/// The earlier call of the owner for several keys, if it waits for every key of this one.
fn group_kept_by(
    tables: &Tables,
    now: Now,
    caller: Caller,
    call: &MAcquire<'_>,
    takes_any: bool,
) -> Option<GroupId> {
    let place =
        |name: &&[u8]| tables.waits.get(tables.waits.waiter_at(caller.key(name), call.owner)?);
    let first = place(call.keys.first()?)?;
    let lease = tables.regime.lease(now.mono);
    let group = (!tables.waits.is_over(first, now.mono, lease)).then_some(first.group)?;
    tables.waits.group(group).filter(|group| group.takes_any == takes_any)?;
    let all = call.keys.iter().all(|name| place(name).is_some_and(|w| w.group == group));
    all.then_some(group)
}

/// The answer to a call that does not wait; `is_quarantined`: only the quarantine is in its way.
pub(crate) fn refuse(tables: &Tables, now: Now, is_quarantined: bool) -> Outcome {
    if is_quarantined {
        return in_quarantine(tables.regime.quarantine_left(now.mono));
    }
    Outcome::Null
}
