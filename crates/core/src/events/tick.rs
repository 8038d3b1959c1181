//! The tick: work without a call.

use crate::ids::KeyId;
use crate::key::Key;
use crate::kind::Kind;
use crate::machine::Machine;
use crate::observe::GivesUp;
use crate::portions::WEIGHT_AT_ONCE;
use crate::regime::Gate;
use crate::store::{Lookup, Reach};
use crate::time::{Instant, Now};
use crate::turn::Turn;
use crate::wheel::Step;

/// Delay before the machine asks a shut server again, in milliseconds.
pub const RETRY_MS: u64 = 20;

/// Number of overdue requests, or of former readers, that one piece of work forgets.
const DROPS_AT_ONCE: usize = 32;

/// Period at which they are forgotten, in microseconds: alarms are at multiples of it.
const FORGET_EVERY_US: u64 = 250_000;

/// What a tick leaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Progress {
    /// Everything that is due is done.
    Done,
    /// The budget is used up; call again.
    More,
}

impl Machine {
    /// Does up to `budget` pieces of work: waits that timed out, queue entries whose grace elapsed, expired leases and
    /// their hand-offs.
    ///
    /// Unless the gate is open, only waits time out: everything else is a write. Under [`Gate::Unknown`] the caller
    /// then checks [`Machine::wants_to_write`], asks the server, and calls again.
    pub fn tick(&mut self, turn: &mut Turn<'_>, gate: Gate, budget: usize) -> Progress {
        self.set_gate(gate, turn.now.mono);
        let limits = self.request_limits();
        for _ in 0..budget {
            let worked = self.run_out_one(turn)
                || (self.regime.may_end() && self.write_one(turn))
                || (!self.regime.is_primary()
                    && (self.check_next_queue(turn) || self.drain_removed(turn)))
                || (self.regime.may_end() && self.tell_cycle(turn))
                || self.answer_more(turn.fx)
                || self.answer_former(turn.fx)
                // Last of the work that waiters depend on: the queues that it marks dirty are served in between.
                || self.leave_some()
                || self.waits.forget_former_readers(DROPS_AT_ONCE)
                // No client waits for this: lookups do not find overdue requests.
                || self.spent.drop_overdue(self.regime.lease(turn.now.mono), limits, DROPS_AT_ONCE)
                || self.drop_one_entry()
                || self.free_some()
                || self.search_late(turn.now);
            if !worked {
                return Progress::Done;
            }
            if turn.fx.weight() >= WEIGHT_AT_ONCE {
                break;
            }
        }
        Progress::More
    }

    /// Does a piece of the work that needs an open gate. Every second piece is for work that no call waits for: a
    /// million holds can be gone at once. Not every piece is for waiters: a queue can need the other work first.
    fn write_one(&mut self, turn: &mut Turn<'_>) -> bool {
        self.pending.pieces = self.pending.pieces.wrapping_add(1);
        (self.pending.pieces.is_multiple_of(2) && self.clear_one(turn))
            || self.end_quarantine(turn.now)
            || self.raise_level(turn.fx)
            || self.advance_epoch(turn)
            || self.end_grace_of_one(turn)
            || self.end_awaited_lease(turn)
            || self.revisit_one(turn)
            || self.drain_one(turn)
            || self.mark_more_dirty()
            || self.grant_leftover(turn)
            || self.clear_one(turn)
    }

    /// Does a piece of the work that no call waits for: each kind in turn.
    fn clear_one(&mut self, turn: &mut Turn<'_>) -> bool {
        let first = self.pending.pieces / 2;
        (first..first + 4).any(|kind| match kind % 4 {
            0 => self.check_next_queue(turn),
            1 => self.drain_removed(turn),
            2 => self.process_one_left_behind(turn),
            _ => self.end_lease_of_one(turn),
        })
    }

    /// Whether anything besides timeouts is to be done: then the gate matters.
    pub fn wants_to_write(&self, now: Now) -> bool {
        let lease = self.regime.lease(now.mono);
        self.regime.is_primary()
            && (self.leases.next().is_some_and(|at| at <= lease)
                || self.waits.graces.next().is_some_and(|at| at <= lease.0)
                || self.regime.has_old_entries()
                || self.regime.awaits_writes()
                || self.connections.has_departed()
                || self.waits.has_unchecked()
                || self.has_removed()
                || self.regime.quarantine_end().is_some_and(|until| until <= now.mono)
                || self.waits.has_dirty()
                || !self.pending.to_mark_dirty.is_empty()
                || self.wants_level()
                || (!self.pending.ready_groups.is_empty()
                    && !self.regime.withholds_grants(now.mono))
                || self.has_found_cycle()
                || !self.pending.revisit.is_empty())
    }

    /// The time of the next tick; `None` if nothing will happen by itself. `gate` is the last answer of the server.
    pub fn next_alarm(&self, now: Now, gate: Gate) -> Option<Instant> {
        if self.has_debris() || self.waits.has_dropped() {
            return Some(now.mono);
        }
        let mut next = self.waits.timeouts.next().map(Instant);
        if !self.regime.clock().is_paused()
            && let Some(at) = self.spent.next_end(self.request_limits())
        {
            // Nothing depends on the exact time, so one alarm can drop many.
            let at = self.regime.clock().mono(at).0.next_multiple_of(FORGET_EVERY_US);
            next = Some(next.map_or(Instant(at), |next| next.min(Instant(at))));
        }
        let mut earlier = |at: Option<Instant>| {
            if let Some(at) = at {
                next = Some(next.map_or(at, |next| next.min(at)));
            }
        };
        earlier(self.next_search());
        if self.has_answered()
            || self.has_former()
            || self.waits.gone() > 0
            || self.waits.has_former_readers()
        {
            earlier(Some(now.mono));
        }
        if !self.regime.is_primary() {
            if self.waits.has_unchecked() || self.has_removed() {
                return Some(now.mono);
            }
            return next;
        }
        if self.wants_to_write(now) {
            // Work is waiting. Behind a shut gate, retry soon: the server does not report when the gate opens.
            let retry = if gate == Gate::Shut { now.mono + RETRY_MS } else { now.mono };
            earlier(Some(retry));
        } else {
            let graces = self.waits.graces.next().map(crate::time::LeaseInstant);
            if self.regime.clock().is_paused() {
                let pending = graces.is_some() || self.leases.next().is_some();
                earlier(pending.then(|| now.mono + RETRY_MS));
            } else {
                earlier(self.leases.next().map(|at| self.regime.clock().mono(at)));
                earlier(graces.map(|at| self.regime.clock().mono(at)));
            }
            earlier(self.regime.quarantine_end());
        }
        next
    }

    fn run_out_one(&mut self, turn: &mut Turn<'_>) -> bool {
        match self.waits.timeouts.step(turn.now.mono.0) {
            Step::Due(slot) => {
                self.observe_giving_up(turn.keys, turn.now, slot, GivesUp::TimedOut);
                self.time_out(slot, turn.fx);
                true
            }
            Step::Moved => true,
            Step::Idle => false,
        }
    }

    /// Removes one waiter whose key is gone; `false` if there is none.
    pub(crate) fn drop_one_entry(&mut self) -> bool {
        let Some(slot) = self.waits.next_dropped() else { return false };
        // Its call for several keys is over, and only this waiter is left.
        if self.waits.get(slot).is_some_and(|waiter| self.waits.is_gone(waiter)) {
            self.waits.leave(slot);
        } else {
            self.remove_waiter(slot);
        }
        true
    }

    fn end_quarantine(&mut self, now: Now) -> bool {
        let has_ended = self.regime.end_quarantine(now.mono);
        if has_ended {
            self.waits.mark_all_dirty();
        }
        has_ended
    }

    fn end_grace_of_one(&mut self, turn: &mut Turn<'_>) -> bool {
        match self.waits.graces.step(self.regime.lease(turn.now.mono).0) {
            Step::Due(slot) => {
                self.observe_giving_up(turn.keys, turn.now, slot, GivesUp::Lapsed);
                if let Some(waiter) = self.remove_waiter(slot) {
                    self.waits.mark_dirty(waiter.queue);
                }
                true
            }
            Step::Moved => true,
            Step::Idle => false,
        }
    }

    /// Before a search for a deadlock: ends expired leases, because queues count their holders until then. Where only
    /// one slot can be reached, the tick does this, except for the keys that the call names.
    pub(crate) fn end_due_leases<'k>(
        &mut self,
        turn: &mut Turn<'_>,
        named: impl Iterator<Item = (Kind, Key<'k>)>,
    ) {
        let lease = self.regime.lease(turn.now.mono);
        if self.leases.next().is_none_or(|at| at > lease) {
            return;
        }
        if turn.keys.reach() == Reach::OneSlot {
            for (kind, key) in named {
                // A key of another type has nothing of ours that could end.
                let _ = self.on_key(turn, kind, key, |_, _, _| ());
            }
            return;
        }
        for _ in 0..crate::portions::AT_ONCE {
            if turn.fx.weight() >= WEIGHT_AT_ONCE
                || !(self.end_awaited_lease(turn) || self.end_lease_of_one(turn))
            {
                return;
            }
        }
    }

    fn end_awaited_lease(&mut self, turn: &mut Turn<'_>) -> bool {
        let step = self.leases.step_awaited(self.regime.lease(turn.now.mono));
        self.end_lease_of(turn, step)
    }

    fn end_lease_of_one(&mut self, turn: &mut Turn<'_>) -> bool {
        let step = self.leases.step_others(self.regime.lease(turn.now.mono));
        self.end_lease_of(turn, step)
    }

    fn end_lease_of(&mut self, turn: &mut Turn<'_>, step: Step<KeyId>) -> bool {
        let key_id = match step {
            Step::Due(key_id) => key_id,
            Step::Moved => return true,
            Step::Idle => return false,
        };
        let Some(found) = self.leases.get(key_id) else { return true };
        let name = found.name.clone();
        let key = Key { db: self.leases.database_of(found), name: &name };
        if matches!(turn.keys.get(key), Lookup::Here(resource) if resource.key_id == key_id) {
            // Opening the key ends some of its expired holds: one portion per piece of work.
            let _ = self.on_found_in_part(turn, key);
        } else {
            self.leases.miss(key_id, self.regime.lease(turn.now.mono) + RETRY_MS);
        }
        true
    }
}
