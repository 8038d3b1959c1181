//! Verbs of read-write locks that differ from those of locks.

use crate::effects::Outcome;
use crate::machine::{End, Machine, wrong_type};
use crate::ops::release::Whose;
use crate::queues::waiter::{Waiter, Want};
use crate::state::hold::Hold;
use crate::state::holds::HoldId;
use crate::state::resource::{Body, Kind, Resource};
use crate::turn::Step;
use crate::turn::Turn;
use alloc::format;
use alloc::vec::Vec;
use dlock_wire::reply::ErrorCode;
use dlock_wire::request::{Mode, RwRelease, RwRenew};

impl Machine {
    /// DRW.RELEASE: as DLOCK.RELEASE, for the hold of that mode.
    pub fn rw_release(&mut self, turn: &mut Turn<'_>, call: &RwRelease<'_>) {
        self.release_hold(turn, (Kind::Rw, Some(call.mode)), &call.release);
    }

    /// DRW.RENEW: as DLOCK.RENEW, for the hold of that mode.
    pub fn rw_renew(&mut self, turn: &mut Turn<'_>, call: &RwRenew<'_>) {
        self.renew_hold(turn, (Kind::Rw, Some(call.mode)), &call.renew);
    }

    /// DRW.BREAK: ends all holds, or those of `owner`. Returns their number. Even very many readers stop at once; the
    /// tick does the rest for each of them.
    pub fn rw_break(&mut self, turn: &mut Turn<'_>, (key, owner): (&[u8], Option<&[u8]>)) {
        let key = (Kind::Rw, key);
        let answer = self.on_call(turn, key, |machine, step, resource| {
            let at_once = if owner.is_none() { machine.break_readers(step, resource) } else { 0 };
            let found = resource.holds();
            let found = found.filter(|(_, hold)| owner.is_none_or(|owner| *hold.owner == *owner));
            let found: Vec<HoldId> = found.map(|(id, _)| id).collect();
            for &id in &found {
                machine.end_hold(step, resource, id, End::Broken);
            }
            let count = at_once + found.len();
            if count > 0 {
                machine.hand_on(step, resource);
            }
            Outcome::Count(count as u64)
        });
        turn.fx.reply = Some(answer.unwrap_or_else(|_| wrong_type()));
    }

    /// `DEADLOCK` for a reader that would wait to write while another reader does so already: each
    /// would wait for the other to stop reading.
    pub(crate) fn refuse_second_upgrade(
        &mut self,
        step: &Step<'_>,
        resource: &Resource,
        owner: &[u8],
        want: Want,
    ) -> Option<Outcome> {
        if !crate::ops::acquire::is_upgrade(resource, owner, want) {
            return None;
        }
        let Body::Rw(rw) = &resource.body else { return None };
        let queue = self.waits.queue_of(step.key)?;
        let waits = |waiter: &Waiter| {
            *waiter.owner != *owner
                && waiter.ask.want == Want::Rw(Mode::Write)
                && !self.waits.is_deserted(waiter)
                && !self.waits.is_over(waiter, step.now.mono, step.lease)
        };
        // Walk over the shorter one: the queue, or the list of readers.
        let first = if self.waits.queue(queue)?.len < rw.readers.len() {
            let mut queue = self.waits.walk(queue).map(|(_, waiter)| waiter);
            queue.find(|waiter| waits(waiter) && rw.find(&waiter.owner, Mode::Read).is_some())
        } else {
            let place = |(_, hold): (HoldId, &Hold)| self.waits.place_of(queue, &hold.owner);
            let mut readers = rw.readers.iter().filter_map(place);
            readers.find_map(|slot| self.waits.get(slot).filter(|waiter| waits(waiter)))
        }?;
        let text = format!(
            "{} and {} both read {} and want to write",
            crate::machine::quoted(&first.owner),
            crate::machine::quoted(owner),
            crate::machine::quoted(step.key.name)
        );
        self.counters.deadlocks_refused += 1;
        Some(Outcome::fault(ErrorCode::Deadlock, text))
    }
}

/// The hold of an owner in a mode; without a mode, the hold of a lock for one holder.
pub(crate) fn find(resource: &Resource, whose: Whose<'_>) -> Option<HoldId> {
    if let (Body::Rw(rw), Some(mode)) = (&resource.body, whose.mode) {
        return rw.find(whose.owner, mode);
    }
    let hold = resource.lock().hold()?;
    (*hold.owner == *whose.owner).then_some(crate::state::holds::ALONE)
}
