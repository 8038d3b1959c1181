//! Waiters left over from a demotion.
//!
//! One step cannot tell a million waiters that this server became a replica. So the demotion sets their tables aside as
//! a whole, and the machine continues with empty ones. From then on no lookup finds, counts or serves a former waiter.
//! The tick answers the blocked former calls, a few at a time, and then frees the tables. A call that ends before its
//! answer (its connection is gone, or an operator unblocks it) is removed by its id or its connection.

use crate::connection::Connections;
use crate::effects::{Effects, Outcome};
use crate::events::answered::told;
use crate::machine::Machine;
use crate::queues::Waits;
use crate::queues::waiter::{Waiter, WaiterId};
use crate::state::resource::Debris;
use alloc::collections::BTreeMap;
use core::mem::take;
use dlock_wire::reply::ErrorCode;

/// Number of slots of former waiters that one piece of work checks.
const SLOTS_AT_ONCE: u32 = 16;

/// The wait tables of the time before a demotion.
#[derive(Debug)]
pub(crate) struct Former {
    waits: Waits,
    connections: Connections,
    /// The answers that queues had already.
    answered: BTreeMap<u32, Outcome>,
    /// The next slot whose waiter needs an answer.
    next: u32,
}

impl Former {
    fn answer_of(&self, waiter: &Waiter) -> Outcome {
        let text = "this server became a replica; ask the new primary";
        let answer = self.answered.get(&waiter.queue).cloned();
        answer.unwrap_or_else(|| Outcome::fault(ErrorCode::Moving, text))
    }

    /// The slot of the blocked call on a connection.
    fn call_of(&self, client: u64) -> Option<u32> {
        let slot = self.connections.get(client)?.parked?;
        self.waits.get(slot).is_some_and(|waiter| waiter.client == client).then_some(slot)
    }
}

impl Machine {
    /// Makes this server a replica. Blocked calls are told to ask elsewhere, queue entries are removed, and leases no
    /// longer end here. O(1); the tick does the rest.
    pub fn demote(&mut self) {
        if !self.regime.demote() {
            return;
        }
        self.former.push_back(Former {
            waits: self.waits.take_all(),
            connections: self.connections.take_all(),
            answered: take(&mut self.answered),
            next: 0,
        });
        self.ripe.clear();
        self.to_stall.clear();
        let mut debris = Debris::default();
        let grants = take(&mut self.in_flight).into_values();
        debris.add(grants.flat_map(crate::events::undelivered::InFlight::into_parts));
        debris.add(take(&mut self.revisit).into_iter());
        debris.add(self.leases.disarm_all().into_parts());
        self.debris.push_back(debris);
    }

    /// Answers some waiters from before a demotion; `false` if there are none.
    pub(crate) fn answer_former(&mut self, fx: &mut Effects) -> bool {
        let Some(former) = self.former.front_mut() else { return false };
        for _ in 0..SLOTS_AT_ONCE {
            if former.next >= former.waits.slot_bound() {
                break;
            }
            let slot = former.next;
            former.next += 1;
            let Some(waiter) = former.waits.strike(slot) else { continue };
            if waiter.presence.is_parked() {
                let answer = former.answer_of(&waiter);
                self.counters.grants_after_waiting += u64::from(answer == Outcome::Count(1));
                fx.wake(waiter.id, told(&waiter, &answer));
            }
        }
        if former.next >= former.waits.slot_bound()
            && let Some(former) = self.former.pop_front()
        {
            let mut debris = Debris::default();
            former.waits.into_debris(&mut debris);
            former.connections.into_debris(&mut debris);
            self.debris.push_back(debris);
        }
        true
    }

    /// Whether some waiters from before a demotion have no answer yet.
    pub(crate) fn has_former(&self) -> bool {
        !self.former.is_empty()
    }

    /// The call of a former waiter is over: it gets no answer.
    pub(crate) fn forget_former(&mut self, id: WaiterId) {
        for former in &mut self.former {
            if former.waits.by_id(id).is_some() {
                former.waits.strike(id.slot());
            }
        }
    }

    /// The connection of former waiters is gone, and with it their blocked call.
    pub(crate) fn former_client_gone(&mut self, client: u64) {
        for former in &mut self.former {
            if let Some(slot) = former.call_of(client) {
                former.waits.strike(slot);
            }
        }
    }

    /// Ends the blocked call of a former waiter, with the answer that it has already, or with this one. Returns whether
    /// there was one.
    pub(crate) fn unblock_former(
        &mut self,
        client: u64,
        outcome: &Outcome,
        fx: &mut Effects,
    ) -> bool {
        let found = self.former.iter_mut().find_map(|former| {
            let waiter = former.waits.strike(former.call_of(client)?)?;
            let answer = former.answered.get(&waiter.queue).unwrap_or(outcome);
            Some((waiter.id, answer.clone()))
        });
        let Some((id, answer)) = found else { return false };
        fx.wake(id, answer);
        true
    }

    /// Whether a blocked call has no answer yet, for tests.
    pub fn owes_answer(&self, id: WaiterId) -> bool {
        let tables = self.former.iter().map(|former| &former.waits);
        let mut tables = tables.chain([&self.waits]);
        tables.any(|waits| waits.by_id(id).is_some_and(|waiter| waiter.presence.is_parked()))
    }
}
