//! Grants that are sent to blocked callers.

use crate::base::ids::ALONE;
use crate::base::key::Key;
use crate::base::kind::Kind;
use crate::tables::Tables;
use crate::tables::pending::in_flight::{Given, InFlight, Kept, Part, Stays};
use crate::tables::queues::waiter::Waiter;
use crate::tables::settings::Settings;
use alloc::boxed::Box;
use alloc::vec::Vec;

impl Tables {
    /// Notes the grants that the answer to a parked call carries.
    pub(crate) fn send(&mut self, waiter: &Waiter, parts: Vec<Part>) {
        let stays = stays(&self.settings, waiter, parts.first());
        let request = waiter.ask.request.clone();
        let grant = InFlight { client: waiter.client, request, stays, parts };
        self.in_flight.insert(waiter.id, grant);
    }
}

fn stays(settings: &Settings, waiter: &Waiter, part: Option<&Part>) -> Stays {
    match (part, waiter.ask.queue_ms) {
        (Some(part), queue_ms) if part.kind == Kind::Fair => {
            Stays::Grant(settings.claim_ms(queue_ms))
        }
        (Some(part), Some(queue_ms)) => Stays::Entry(Box::new(Kept {
            db: part.db,
            name: part.name.clone(),
            entry: waiter.entry.clone(),
            queue_ms,
            seq: waiter.seq,
        })),
        _ => Stays::Nothing,
    }
}

impl Tables {
    /// FENCE raised the token of a hold: from now on the new token identifies it.
    pub(crate) fn raised(&mut self, key: Key<'_>, from: u64, to: u64) {
        self.waits.raise_observed(key, from, to);
        self.in_flight.each_at(key, |part, _| {
            if part.is_of(key, ALONE, from)
                && let Given::Hold { token, .. } = &mut part.given
            {
                *token = to;
            }
        });
    }
}
