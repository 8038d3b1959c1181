//! How the keys look to a call for several, before any is taken.

use crate::effects::{Effects, Outcome};
use crate::machine::acquire::in_quarantine;
use crate::machine::caller::{Caller, refused_in_script};
use crate::machine::reentry::own_hold;
use crate::machine::requests::{Asks, Call};
use crate::machine::{Machine, Step, wrong_type};
use crate::queue::Want;
use crate::resource::{Kind, Lock, Resource};
use crate::store::Store;
use crate::time::Now;
use alloc::vec::Vec;
use dlock_wire::request::{Acquire, MAcquire};

/// How one key looks to a call for several.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Look {
    /// Its owner has it, and the hold has seen the request id.
    Seen,
    /// The request was carried out here, and its hold has ended; or the id was used for something
    /// else.
    Refused,
    /// Its owner has it.
    Held,
    /// It can be had.
    Open,
    /// It cannot be had now; with `true`, because of a quarantine alone.
    Closed(bool),
}

/// How all keys look to a call for several.
pub(super) struct Looks {
    /// In the order of the keys.
    pub(super) each: Vec<Look>,
    /// The earlier call of the owner whose places this one takes over.
    pub(super) kept: Option<u32>,
    /// Why a key refuses the id of the call.
    pub(super) refusal: Option<Outcome>,
}

/// What is about places that the owner has already.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Own {
    /// The call does not wait: they stand in its way as those of others do.
    Counts,
    /// The call takes over the places of an earlier one.
    Stays,
    /// They go when the call waits or is granted.
    Goes,
}

impl Look {
    pub(super) fn can_be_taken(self) -> bool {
        !matches!(self, Self::Closed(_) | Self::Refused)
    }
}

impl Machine {
    /// How each key looks to the call, and which earlier call of the owner leaves it its places. A
    /// key of another type is an error before anything is taken.
    pub(super) fn look_at_all<S: Store>(
        &mut self,
        store: &mut S,
        now: Now,
        caller: Caller,
        (call, takes_any): (&MAcquire<'_>, bool),
        fx: &mut Effects,
    ) -> Result<Looks, Outcome> {
        if let Some(fault) = refused_in_script(caller, call.bind_ms, None) {
            return Err(fault);
        }
        self.rouse(store, now, caller.client, fx);
        if self.settings.deadlock_detection {
            self.end_due_leases(store, now, core::iter::empty(), fx);
        }
        if call.block_ms.is_none() || !caller.may_block {
            return self.look_at_each(store, now, caller, (call, Own::Counts), fx);
        }
        if let Some(kept) = self.group_kept_by(now, caller, call, takes_any) {
            let looks = self.look_at_each(store, now, caller, (call, Own::Stays), fx)?;
            // Of one that is over, places can still be taken out of their queues.
            if self.waits.group(kept).is_some_and(|group| !group.is_over) {
                return Ok(Looks { kept: Some(kept), ..looks });
            }
            // It was granted, or is over, and its places are gone.
        }
        self.look_at_each(store, now, caller, (call, Own::Goes), fx)
    }

    fn look_at_each<S: Store>(
        &mut self,
        store: &mut S,
        now: Now,
        caller: Caller,
        (call, own): (&MAcquire<'_>, Own),
        fx: &mut Effects,
    ) -> Result<Looks, Outcome> {
        let (owner, id, asks) = (call.owner, call.reqid, Asks::Acquire);
        let request = Call { kind: Kind::Lock, mode: None, owner, id, asks };
        let mut found =
            Looks { each: Vec::with_capacity(call.keys.len()), kept: None, refusal: None };
        for &name in call.keys {
            let key = (Kind::Lock, caller.key(name));
            let look = self.on_key(store, key, now, fx, |machine, step, resource| {
                machine.hand_on(step, resource);
                if id.is_some()
                    && let Some(refusal) = machine.recall(step, resource, request)
                {
                    found.refusal.get_or_insert(refusal);
                    return Look::Refused;
                }
                machine.look_at_one(step, resource, call.for_key(name), own)
            });
            found.each.push(look.map_err(|_| wrong_type())?);
        }
        Ok(found)
    }

    fn look_at_one(
        &self,
        step: &Step<'_>,
        resource: &Resource,
        call: Acquire<'_>,
        own: Own,
    ) -> Look {
        if own_hold(resource, &call, Want::Lock).is_some() {
            let hold = resource.lock().hold();
            let has_seen = hold.is_some_and(|hold| hold.seen(call.reqid).is_some());
            return match has_seen {
                true => Look::Seen,
                // It cannot be entered once more; only a value that was restored is held so often.
                false if hold.is_some_and(|hold| hold.count == u32::MAX) => Look::Closed(false),
                false => Look::Held,
            };
        }
        let is_free = matches!(resource.lock(), Lock::Free);
        if self.quarantine_left(step.now.mono) > 0 {
            return Look::Closed(resource.lock().hold().is_none());
        }
        if !self.accepts_writes() {
            return Look::Closed(false);
        }
        let queue = self.waits.queue_of(step.key).filter(|_| is_free);
        let mut waiting = queue.into_iter().flat_map(|queue| self.those_who_count(queue));
        let first = waiting.find(|(_, waiter)| match own {
            Own::Goes if *waiter.owner == *call.owner => false,
            Own::Counts | Own::Goes | Own::Stays => true,
        });
        let is_first = match first {
            None => true,
            Some((_, waiter)) => own == Own::Stays && *waiter.owner == *call.owner,
        };
        if is_free && is_first { Look::Open } else { Look::Closed(false) }
    }

    /// The earlier call of the owner for several keys, if it waits with a place for every key of
    /// this one.
    fn group_kept_by(
        &self,
        now: Now,
        caller: Caller,
        call: &MAcquire<'_>,
        takes_any: bool,
    ) -> Option<u32> {
        let place =
            |name: &&[u8]| self.waits.get(self.waits.place_at(caller.key(name), call.owner)?);
        let first = place(call.keys.first()?)?;
        let lease = self.clock.at(now.mono);
        let group = (!self.waits.is_over(first, now.mono, lease)).then_some(first.group)?;
        self.waits.group(group).filter(|group| group.takes_any == takes_any)?;
        let all = call.keys.iter().all(|name| place(name).is_some_and(|w| w.group == group));
        all.then_some(group)
    }
}

/// The answer to a call for any key that does not wait.
pub(super) fn refuse_any(machine: &Machine, now: Now, looks: &[Look]) -> Outcome {
    if looks.contains(&Look::Closed(true)) {
        return in_quarantine(machine.quarantine_left(now.mono));
    }
    Outcome::Null
}

/// The answer to a call for all keys that does not wait.
pub(super) fn refuse(machine: &Machine, now: Now, looks: &[Look]) -> Outcome {
    let closed = |look: &&Look| !look.can_be_taken();
    if looks.iter().filter(closed).all(|look| *look == Look::Closed(true)) {
        return in_quarantine(machine.quarantine_left(now.mono));
    }
    Outcome::Null
}
