//! Read-write locks: the refusal of a second upgrade.

use crate::base::ids::HoldId;
use crate::ports::effects::Outcome;
use crate::step::Step;
use crate::step::hand_off::is_upgrade;
use crate::tables::queues::waiter::Waiter;
use crate::value::hold::Hold;
use crate::value::resource::{Body, Resource};
use crate::value::wait_request::Demand;
use alloc::format;
use dlock_wire::reply::ErrorCode;
use dlock_wire::request::Mode;

impl Step<'_> {
    /// `DEADLOCK` for a reader that would wait to write while another reader does so already: each
    /// would wait for the other to stop reading.
    pub(crate) fn refuse_second_upgrade(
        &mut self,
        resource: &Resource,
        owner: &[u8],
        demand: Demand,
    ) -> Option<Outcome> {
        if !is_upgrade(resource, owner, demand) {
            return None;
        }
        let Body::Rw(rw) = &resource.body else { return None };
        let queue = self.tables.waits.queue_of(self.key)?;
        let waits = |waiter: &Waiter| {
            *waiter.owner != *owner
                && waiter.ask.demand == Demand::Rw(Mode::Write)
                && !self.tables.waits.is_deserted(waiter)
                && !self.tables.waits.is_over(waiter, self.now.mono, self.lease)
        };
        // Walk over the shorter one: the queue, or the list of readers.
        let first = if self.tables.waits.queue(queue)?.len < rw.readers.len() {
            let mut queue = self.tables.waits.walk(queue).map(|(_, waiter)| waiter);
            queue.find(|waiter| waits(waiter) && rw.find(&waiter.owner, Mode::Read).is_some())
        } else {
            let place =
                |(_, hold): (HoldId, &Hold)| self.tables.waits.waiter_of(queue, &hold.owner);
            let mut readers = rw.readers.iter().filter_map(place);
            readers.find_map(|slot| self.tables.waits.get(slot).filter(|waiter| waits(waiter)))
        }?;
        let text = format!(
            "{} and {} both read {} and want to write",
            crate::ports::answers::quoted(&first.owner),
            crate::ports::answers::quoted(owner),
            crate::ports::answers::quoted(self.key.name)
        );
        self.tables.counters.deadlocks_refused += 1;
        Some(Outcome::fault(ErrorCode::Deadlock, text))
    }
}
