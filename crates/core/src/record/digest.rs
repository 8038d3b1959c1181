//! The input of DEBUG DIGEST.

use crate::value::fair::QueueEntry;
use crate::value::hold::{self, Hold};
use crate::value::lock::Lock;
use crate::value::resource::{Body, Resource};
use alloc::format;
use alloc::string::ToString;
use alloc::vec::Vec;
use dlock_wire::permit;

/// Everything except start times and remaining times, which differ between a primary and its replicas.
pub fn digest(resource: &Resource) -> Vec<Vec<u8>> {
    let mut parts = Parts(Vec::new());
    match &resource.body {
        Body::Lock(lock) => parts.lock(lock),
        Body::Fair(fair) => {
            parts.lock(&fair.lock);
            parts.number(&fair.entries.len());
            // In the order of service; the numbers start again when a primary loads the key.
            fair.entries.values().for_each(|place| parts.place(place));
        }
        Body::Rw(rw) => {
            parts.lock(&rw.lock);
            parts.number(&rw.readers.len());
            rw.readers.iter().for_each(|(_, hold)| parts.hold(hold));
        }
        Body::Semaphore(semaphore) => {
            parts.number(&semaphore.capacity);
            parts.number(&semaphore.is_passing);
            parts.number(&semaphore.taken);
            parts.number(&semaphore.permits.len());
            for (id, hold) in semaphore.permits.iter() {
                parts.bytes(&permit::text(&id.to_be_bytes()));
                parts.hold(hold);
            }
        }
        Body::Latch(latch) => {
            parts.number(&latch.count);
            parts.number(&latch.initial);
            latch.requests.iter().for_each(|id| parts.bytes(id));
        }
    }
    parts.0
}

struct Parts(Vec<Vec<u8>>);

impl Parts {
    fn bytes(&mut self, bytes: &[u8]) {
        self.0.push(bytes.to_vec());
    }

    fn number(&mut self, number: &impl ToString) {
        self.0.push(number.to_string().into_bytes());
    }

    fn maybe(&mut self, number: Option<u64>) {
        self.0.push(format!("{number:?}").into_bytes());
    }

    fn lock(&mut self, lock: &Lock) {
        match lock {
            Lock::Free => self.bytes(b"free"),
            Lock::Closed { .. } => self.bytes(b"closed"),
            Lock::Held(hold) => self.hold(hold),
        }
    }

    fn hold(&mut self, hold: &Hold) {
        self.bytes(&hold.owner);
        self.number(&hold.token);
        self.number(&hold.count);
        self.bytes(hold.requests());
        self.bytes(hold.label());
        self.bytes(&hold.channel().unwrap_or_default());
        let request = hold.extras.as_ref().and_then(|extras| extras.notify_request.as_deref());
        self.bytes(request.unwrap_or_default());
        self.maybe(hold.binding().map(|binding| binding.ms));
        self.number(&hold.unclaimed().is_some());
    }

    fn place(&mut self, place: &QueueEntry) {
        let ask = &place.ask;
        self.bytes(&place.owner);
        self.number(&ask.lease_ms);
        self.maybe(ask.queue_ms);
        self.bytes(&hold::channel(&ask.notify, &place.owner).unwrap_or_default());
        self.bytes(ask.request.as_deref().unwrap_or_default());
        self.maybe(ask.bind_ms);
        self.bytes(&ask.label);
    }
}
