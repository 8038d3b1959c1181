//! Random state from a seed.

use super::NOW;
use dlock_core::base::bytes::Owner;
use dlock_core::base::ids::{HoldId, KeyId};
use dlock_core::base::kind::Kind;
use dlock_core::base::shares::User;
use dlock_core::base::time::LeaseInstant;
use dlock_core::value::fair::{Fair, QueueEntry};
use dlock_core::value::hold::{Binding, Extras, Hold, NO_CLIENT, Notify, Requests, Unclaimed};
use dlock_core::value::latch::Latch;
use dlock_core::value::lock::Lock;
use dlock_core::value::resource::{Body, Resource};
use dlock_core::value::rw::RwLock;
use dlock_core::value::semaphore::Semaphore;
use dlock_core::value::wait_request::{Demand, WaitRequest};
use dlock_testing::Dice;
use dlock_wire::names;
use std::sync::Arc;

/// Random values of all types that are encoded.
pub struct Random(Dice);

impl Random {
    pub fn new(seed: u64) -> Random {
        Random(Dice::new(seed))
    }

    pub fn below(&mut self, bound: u64) -> u64 {
        self.0.below(bound)
    }

    pub fn byte(&mut self) -> u8 {
        self.below(256).to_le_bytes()[0]
    }

    pub fn bytes(&mut self, min: usize, max: usize) -> Vec<u8> {
        let len = if self.below(8) == 0 { max } else { min + self.len(max.min(min + 20) - min) };
        (0..len).map(|_| self.byte()).collect()
    }

    pub fn len(&mut self, most: usize) -> usize {
        usize::try_from(self.below(most as u64 + 1)).unwrap()
    }

    /// A number up to `most`; small ones are as likely as large ones.
    pub fn number(&mut self, least: u64, most: u64) -> u64 {
        let bits = self.below(u64::from(u64::BITS - most.leading_zeros()) + 1);
        let number = if bits == 0 { 0 } else { self.below(1 << bits) };
        if self.below(10) == 0 { most } else { number.clamp(least, most) }
    }

    pub fn small(&mut self, least: u32, most: u32) -> u32 {
        u32::try_from(self.number(least.into(), most.into())).unwrap()
    }

    pub fn maybe<T>(&mut self, make: impl FnOnce(&mut Self) -> T) -> Option<T> {
        (self.below(2) == 0).then(|| make(self))
    }

    /// A resource that is not free, has no index entry, and has no unrecorded changes.
    pub fn resource(&mut self, kind: Kind) -> Resource {
        let body = match kind {
            Kind::Lock => Body::Lock(self.lock(1)),
            Kind::Fair => Body::Fair(Box::new(self.fair())),
            Kind::Rw => Body::Rw(Box::new(self.rw())),
            Kind::Semaphore => Body::Semaphore(Box::new(self.semaphore())),
            Kind::Latch => Body::Latch(Box::new(self.latch())),
        };
        Resource { key_id: KeyId::NONE, from_snapshot: false, is_news: false, body }
    }

    /// A lock; with `least` 0 it may be free.
    pub fn lock(&mut self, least: u64) -> Lock {
        match least + self.below(10) {
            0 => Lock::Free,
            1 => Lock::Closed { until: self.left(), delay_ms: self.number(0, names::LEASE_MAX_MS) },
            _ => Lock::Held(self.hold()),
        }
    }

    pub fn left(&mut self) -> LeaseInstant {
        LeaseInstant(0) + self.number(0, names::LEASE_MAX_MS)
    }

    pub fn owner(&mut self) -> Owner {
        Owner::from(self.bytes(1, names::OWNER_MAX).as_slice())
    }

    /// An owner that no other `number` has.
    pub fn owner_numbered(&mut self, number: u64) -> Owner {
        let rest = self.bytes(0, names::OWNER_MAX - 8);
        Owner::from([&number.to_le_bytes(), rest.as_slice()].concat().as_slice())
    }

    pub fn hold(&mut self) -> Hold {
        Hold {
            owner: self.owner(),
            token: self.number(1, names::TOKEN_MAX),
            deadline: self.left(),
            lease_ms: self.number(1, names::LEASE_MAX_MS),
            since: NOW.back(self.number(0, 9_000_000)),
            count: self.small(1, u32::MAX),
            answers: 0,
            extras: self.maybe(Self::extras).map(Box::new),
        }
    }

    fn extras(&mut self) -> Extras {
        let mut requests = Requests::default();
        for _ in 0..self.below(9) {
            requests.add(&self.request());
        }
        let notify = self.notify();
        let told = notify != Notify::Silent;
        Extras {
            requests,
            label: self.bytes(0, names::LABEL_MAX).into(),
            notify,
            notify_request: self.maybe(Self::request).filter(|_| told),
            binding: self.maybe(|random| Binding {
                ms: random.number(0, names::BIND_MAX_MS),
                client: NO_CLIENT,
                is_shortened: false,
            }),
            unclaimed: self.maybe(|_| Unclaimed { client: NO_CLIENT }),
        }
    }

    fn notify(&mut self) -> Notify {
        match self.below(4) {
            0 => Notify::Silent,
            1 => Notify::Owner,
            2 => Notify::Sharded(self.bytes(1, names::CHANNEL_MAX).into()),
            _ => Notify::Channel(self.bytes(1, names::CHANNEL_MAX).into()),
        }
    }

    pub fn request(&mut self) -> Box<[u8]> {
        self.bytes(1, names::REQID_MAX).into()
    }

    /// A request id that no other `number` has.
    pub fn request_numbered(&mut self, number: u64) -> Box<[u8]> {
        [&number.to_le_bytes(), self.bytes(0, names::REQID_MAX - 8).as_slice()].concat().into()
    }

    pub fn place(&mut self, number: u64) -> QueueEntry {
        QueueEntry {
            owner: self.owner_numbered(number),
            since: NOW.back(self.number(0, 9_000_000)),
            ask: self.ask(),
        }
    }

    pub fn ask(&mut self) -> WaitRequest {
        WaitRequest {
            demand: Demand::Lock,
            lease_ms: self.number(1, names::LEASE_MAX_MS),
            queue_ms: self.maybe(|random| random.number(1, names::QUEUE_MAX_MS)),
            notify: self.notify(),
            request: self.maybe(Self::request),
            bind_ms: self.maybe(|random| random.number(0, names::BIND_MAX_MS)),
            label: self.bytes(0, names::LABEL_MAX).into(),
            user: User::UNKNOWN,
        }
    }

    fn fair(&mut self) -> Fair {
        let mut fair = Fair { lock: self.lock(0), ..Fair::free() };
        let least = u64::from(matches!(fair.lock, Lock::Free));
        let mut seq = 0;
        for _ in 0..least + self.below(8) {
            seq += 1 + self.number(0, 1 << 50);
            fair.entries.insert(seq, Arc::new(self.place(seq)));
        }
        fair
    }

    fn rw(&mut self) -> RwLock {
        let mut rw = RwLock { lock: self.lock(0), ..RwLock::free() };
        let least = u64::from(matches!(rw.lock, Lock::Free));
        let most = if rw.lock.hold().is_some() { 1 } else { least + self.below(8) };
        for number in 0..most {
            let writer = rw.lock.hold().map(|writer| writer.owner.clone());
            let owner = writer.unwrap_or_else(|| self.owner_numbered(number));
            let token = number * 1_000 + self.number(1, 999);
            let reader = Hold { owner, token, ..self.hold() };
            rw.readers.insert(HoldId::from(token), reader);
        }
        rw.readers.settle();
        rw
    }

    /// A permit, and its id.
    pub fn permit(&mut self) -> (HoldId, Hold) {
        let id = u128::from(self.number(1, u64::MAX >> 1)) << 64 | u128::from(self.below(1 << 62));
        let count = self.small(1, names::PERMITS_MAX);
        (HoldId::from_be_bytes(id.to_be_bytes()), Hold { token: 0, count, ..self.hold() })
    }

    fn semaphore(&mut self) -> Semaphore {
        let mut semaphore = Semaphore {
            capacity: self.small(1, names::PERMITS_MAX),
            is_passing: self.below(2) == 0,
            taken: self.small(0, names::PERMITS_MAX),
            ..Semaphore::default()
        };
        for _ in 0..self.below(8) {
            let (id, permit) = self.permit();
            semaphore.leased += u64::from(permit.count);
            assert!(semaphore.permits.get(id).is_none());
            semaphore.permits.insert(id, permit);
        }
        semaphore.permits.settle();
        semaphore
    }

    fn latch(&mut self) -> Latch {
        let initial = self.small(1, names::LATCH_MAX);
        let lease_ms = self.maybe(|random| random.number(1, names::LEASE_MAX_MS));
        Latch {
            count: self.small(1, initial),
            initial,
            lease_ms,
            deadline: lease_ms.map(|_| self.left()),
            requests: (0..self.below(8)).map(|_| self.request()).collect(),
            requests_new: Vec::new(),
        }
    }
}
