//! Verbs of read-write locks that differ from those of locks.

use crate::effects::Outcome;
use crate::ids::HoldId;
use crate::machine::Machine;
use crate::queues::waiter::{Demand, Waiter};
use crate::state::hold::Hold;
use crate::state::resource::{Body, Resource};
use crate::turn::Step;
use alloc::format;
use dlock_wire::reply::ErrorCode;
use dlock_wire::request::Mode;

impl Machine {
    /// `DEADLOCK` for a reader that would wait to write while another reader does so already: each
    /// would wait for the other to stop reading.
    pub(crate) fn refuse_second_upgrade(
        &mut self,
        step: &Step<'_>,
        resource: &Resource,
        owner: &[u8],
        demand: Demand,
    ) -> Option<Outcome> {
        if !crate::ops::acquire::is_upgrade(resource, owner, demand) {
            return None;
        }
        let Body::Rw(rw) = &resource.body else { return None };
        let queue = self.waits.queue_of(step.key)?;
        let waits = |waiter: &Waiter| {
            *waiter.owner != *owner
                && waiter.ask.demand == Demand::Rw(Mode::Write)
                && !self.waits.is_deserted(waiter)
                && !self.waits.is_over(waiter, step.now.mono, step.lease)
        };
        // Walk over the shorter one: the queue, or the list of readers.
        let first = if self.waits.queue(queue)?.len < rw.readers.len() {
            let mut queue = self.waits.walk(queue).map(|(_, waiter)| waiter);
            queue.find(|waiter| waits(waiter) && rw.find(&waiter.owner, Mode::Read).is_some())
        } else {
            let place = |(_, hold): (HoldId, &Hold)| self.waits.waiter_of(queue, &hold.owner);
            let mut readers = rw.readers.iter().filter_map(place);
            readers.find_map(|slot| self.waits.get(slot).filter(|waiter| waits(waiter)))
        }?;
        let text = format!(
            "{} and {} both read {} and want to write",
            crate::answers::quoted(&first.owner),
            crate::answers::quoted(owner),
            crate::answers::quoted(step.key.name)
        );
        self.counters.deadlocks_refused += 1;
        Some(Outcome::fault(ErrorCode::Deadlock, text))
    }
}
