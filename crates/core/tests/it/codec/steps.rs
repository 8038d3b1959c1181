//! Steps: a replica that replays the changes equals its primary.

use super::random::Random;
use super::shown;
use dlock_core::base::bytes::Owner;
use dlock_core::base::ids::{HoldId, KeyId};
use dlock_core::base::kind::Kind;
use dlock_core::base::time::{Instant, LeaseInstant};
use dlock_core::record::{self, Clocks, DecodeError, Level, Replayed, StepInfo};
use dlock_core::value::fair::QueueEntry;
use dlock_core::value::hold::Hold;
use dlock_core::value::holds::Holds;
use dlock_core::value::latch::Latch;
use dlock_core::value::lock::Lock;
use dlock_core::value::resource::{Body, Resource};
use dlock_core::value::wait_request::WaitRequest;
use dlock_wire::names;
use std::sync::Arc;

/// Start of the test. Every hold lasts longer than the test.
const MONO: Instant = Instant(9_000_000_000);
const LEASE: LeaseInstant = LeaseInstant(5_000_000_000);
const WHILE_MS: u64 = 1_000_000;

/// The entries of a key on both servers.
const HERE: KeyId = KeyId::new(5);
const THERE: KeyId = KeyId::new(7);

/// A key on a primary, changed at random, and on a replica.
pub struct Pair {
    pub random: Random,
    pub primary: Resource,
    pub replica: Resource,
    pub is_there: bool,
    pub mono: Instant,
    pub lease: LeaseInstant,
    number: u64,
}

impl Pair {
    pub fn new(kind: Kind, seed: u64) -> Self {
        Self {
            random: Random::new(seed),
            primary: Resource { key_id: HERE, ..Resource::free(kind) },
            replica: Resource::free(Kind::Lock),
            is_there: false,
            mono: MONO,
            lease: LEASE,
            number: 0,
        }
    }

    /// Some time elapses, and the primary changes in up to four ways.
    pub fn step(&mut self) {
        let passed = self.random.below(50);
        self.mono = self.mono + passed;
        self.lease = self.lease + passed;
        for _ in 0..=self.random.below(4) {
            self.change();
        }
    }

    /// The payload of the step.
    pub fn payload(&mut self, granted: bool) -> Vec<u8> {
        let (mut payload, now) = (Vec::new(), self.now());
        let step = StepInfo { granted, ..StepInfo::default() };
        record::encode_step(&mut self.primary, now, Level::FIRST, &step, &mut payload);
        payload
    }

    pub fn replay(&mut self, payload: &[u8]) -> Result<Replayed, DecodeError> {
        let (mono, lease) = (self.mono, self.lease);
        let replayed = record::replay(payload, mono, lease, &mut self.replica, self.is_there)?;
        self.is_there = !self.replica.is_free();
        self.replica.key_id = if self.is_there { THERE } else { KeyId::NONE };
        Ok(replayed)
    }

    pub fn whole(&self, resource: &Resource) -> Vec<u8> {
        let mut payload = Vec::new();
        record::encode(resource, self.now(), Level::FIRST, &mut payload);
        payload
    }

    fn now(&self) -> Clocks {
        Clocks { mono: self.mono, lease: self.lease }
    }

    /// Checks that both are the same.
    pub fn compare(&mut self) {
        assert_eq!(self.whole(&self.replica), self.whole(&self.primary));
        if self.is_there {
            assert_eq!(record::digest(&self.replica), record::digest(&self.primary));
            self.replica.key_id = HERE;
            assert_eq!(shown(&self.replica), shown(&self.primary));
            self.replica.key_id = THERE;
        }
    }

    fn next(&mut self) -> u64 {
        self.number += 1 + self.random.below(3);
        self.number
    }

    /// A hold that begins now.
    fn hold(&mut self, owner: Owner) -> Hold {
        let most = names::LEASE_MAX_MS - WHILE_MS;
        let deadline = self.lease + WHILE_MS + self.random.number(0, most);
        let token = self.next();
        Hold { owner, token, deadline, since: self.mono, ..self.random.hold() }
    }

    fn lock(&mut self, owner: Owner) -> Lock {
        match self.random.below(5) {
            0 => Lock::Free,
            1 => {
                let until = self.lease + WHILE_MS;
                Lock::Closed { until, delay_ms: self.random.number(0, names::LEASE_MAX_MS) }
            }
            _ => Lock::Held(self.hold(owner)),
        }
    }

    fn change(&mut self) {
        match self.primary.kind() {
            Kind::Lock => {
                let owner = self.random.owner();
                let lock = self.lock(owner);
                *self.primary.lock_mut().unwrap() = lock;
            }
            Kind::Fair => self.change_fair(),
            Kind::Rw => self.change_rw(),
            Kind::Semaphore => self.change_semaphore(),
            Kind::Latch => self.change_latch(),
        }
    }

    fn change_fair(&mut self) {
        let owner = self.random.owner();
        let (seq, lock) = (self.next(), self.lock(owner));
        let (new, ask) = (self.random.place(seq), self.random.ask());
        let Body::Fair(fair) = &mut self.primary.body else { panic!("it is fair") };
        let known: Vec<u64> = fair.entries.keys().copied().collect();
        let one = self.random.len(known.len());
        match (self.random.below(5), known.get(one)) {
            (0, _) => fair.lock = lock,
            (1, Some(seq)) => {
                fair.entries.remove(seq);
                fair.touched.push(*seq);
            }
            (2, Some(seq)) => {
                Arc::make_mut(fair.entries.get_mut(seq).unwrap()).ask = ask;
                fair.touched.push(*seq);
            }
            (3, _) if self.random.below(8) == 0 => {
                fair.touched.extend(std::mem::take(&mut fair.entries).into_keys());
                fair.lock = Lock::Free;
            }
            _ => {
                fair.entries.insert(seq, Arc::new(new));
                fair.touched.push(seq);
            }
        }
    }

    fn change_rw(&mut self) {
        let number = self.next();
        let stranger = self.random.owner_numbered(number);
        let Body::Rw(rw) = &self.primary.body else { panic!("a read-write lock") };
        let only = rw.readers.iter().next().map(|(_, hold)| hold.owner.clone());
        let (readers, writer) = (rw.readers.len(), rw.lock.hold().map(|hold| hold.owner.clone()));
        let (is_written, one) = (writer.is_some(), one_of(&mut self.random, &rw.readers));
        match (self.random.below(5), one) {
            (0, _) if readers < 2 => {
                let lock = self.lock(only.unwrap_or(stranger));
                *self.primary.lock_mut().unwrap() = lock;
            }
            (0 | 1, Some(id)) => drop(self.primary.take_hold(id)),
            (2, Some(id)) => self.change_hold(id),
            (3, _) if self.random.below(8) == 0 => {
                *self.primary.lock_mut().unwrap() = Lock::Free;
                while let Some(id) = one_of(&mut self.random, self.primary.others().unwrap()) {
                    self.primary.take_hold(id);
                }
            }
            _ if !is_written || readers == 0 => {
                let hold = self.hold(writer.unwrap_or(stranger));
                self.primary.put_hold(hold.token.into(), hold);
            }
            _ => {}
        }
    }

    fn change_semaphore(&mut self) {
        let owner = self.random.owner();
        let hold = self.hold(owner);
        let (id, permit) = self.random.permit();
        let permit = Hold { token: 0, count: permit.count, ..hold };
        let Body::Semaphore(semaphore) = &mut self.primary.body else { panic!("a semaphore") };
        if semaphore.capacity == 0 {
            semaphore.capacity = self.random.small(1, names::PERMITS_MAX);
            semaphore.is_passing = self.random.below(2) == 0;
        }
        match (self.random.below(7), one_of(&mut self.random, &semaphore.permits)) {
            (0, _) => semaphore.capacity = self.random.small(1, names::PERMITS_MAX),
            (1, _) => semaphore.taken = self.random.small(0, names::PERMITS_MAX),
            (3, Some(id)) => drop(self.primary.take_hold(id)),
            (4, Some(id)) => self.change_hold(id),
            (5, _) if self.random.below(20) == 0 => {
                // DEL: a later value under the key is another one.
                self.primary = Resource { key_id: HERE, ..Resource::free(Kind::Semaphore) };
                self.replica = Resource::free(Kind::Lock);
                self.is_there = false;
            }
            _ => self.primary.put_hold(id, permit),
        }
    }

    fn change_latch(&mut self) {
        let (request, lease) = (self.random.request(), self.lease);
        let Body::Latch(latch) = &mut self.primary.body else { panic!("a latch") };
        if latch.count == 0 {
            **latch = Latch::default();
            latch.initial = self.random.small(1, names::LATCH_MAX);
            latch.count = latch.initial;
            latch.lease_ms = self.random.maybe(|random| random.number(1, names::LEASE_MAX_MS));
            latch.deadline = latch.lease_ms.map(|_| lease + WHILE_MS);
            return;
        }
        latch.count -= self.random.small(1, latch.count);
        if self.random.below(2) == 0 && latch.requests.insert(request.clone()) {
            latch.requests_new.push(request);
        }
    }

    /// All but the owner, the id and the number of permits can change.
    fn change_hold(&mut self, id: HoldId) {
        let owner = self.random.owner();
        let (new, is_permit) = (self.hold(owner), self.primary.kind() == Kind::Semaphore);
        self.primary.change_hold(id, |hold| {
            hold.deadline = new.deadline;
            hold.lease_ms = new.lease_ms;
            hold.extras = new.extras;
            hold.count = if is_permit { hold.count } else { new.count };
        });
    }
}

fn one_of(random: &mut Random, holds: &Holds) -> Option<HoldId> {
    let ids: Vec<HoldId> = holds.iter().map(|(id, _)| id).collect();
    ids.get(random.len(ids.len())).copied()
}

#[test]
fn a_replica_is_what_its_primary_is() {
    for kind in Kind::ALL {
        for seed in 1..=40 {
            let mut pair = Pair::new(kind, seed);
            for at in 0..100 {
                pair.step();
                let granted = pair.random.below(2) == 0;
                let payload = pair.payload(granted);
                let done = pair.replay(&payload).unwrap_or_else(|error| {
                    panic!("{kind:?}, seed {seed}, step {at}: {error:?} for {payload:?}")
                });
                assert_eq!(done.granted, granted);
                pair.compare();
                // A second replay changes nothing.
                assert_eq!(pair.replay(&payload), Ok(done));
                pair.compare();
                let whole = pair.whole(&pair.primary);
                let loaded = record::decode(&whole, pair.mono).expect("it can be loaded");
                assert_eq!(pair.whole(&loaded), whole);
            }
        }
    }
}

/// A replica that has the whole state continues from there.
#[test]
fn steps_go_on_from_a_whole_state() {
    for kind in Kind::ALL {
        let mut pair = Pair::new(kind, 77);
        for at in 0..2_000 {
            pair.step();
            let whole = pair.whole(&pair.primary);
            let step = pair.payload(true);
            let payload = if at % 10 == 0 { whole } else { step };
            let replayed = pair.replay(&payload).expect("a payload of our own");
            assert_eq!(replayed.granted, at % 10 > 0);
            pair.compare();
        }
    }
}

/// If the time of a latch ends and the latch is set again in one step, it is another latch. The request ids of the old
/// one are removed, though no step names any of them.
#[test]
fn a_latch_that_is_set_again_has_seen_no_request() {
    let mut pair = Pair::new(Kind::Latch, 5);
    for _ in 0..3 {
        pair.add_plain();
        let payload = pair.payload(false);
        pair.replay(&payload).expect("a payload of our own");
    }
    let Body::Latch(latch) = &mut pair.primary.body else { panic!("a latch") };
    assert_eq!(latch.requests.len(), 3);
    **latch = Latch { count: 2, initial: 2, ..Latch::default() };
    let payload = pair.payload(false);
    pair.replay(&payload).expect("a payload of our own");
    pair.compare();
}

/// The size of a step is proportional to the changes, not to the whole state.
#[test]
fn a_step_tells_what_changed_and_nothing_else() {
    for kind in [Kind::Fair, Kind::Rw, Kind::Semaphore, Kind::Latch] {
        let mut pair = Pair::new(kind, 3);
        let mut sizes = [0, 0];
        for (round, size) in sizes.iter_mut().enumerate() {
            for _ in 0..1_000 * round {
                pair.random = Random::new(1 + pair.number);
                pair.add_plain();
            }
            let _ = pair.payload(false);
            pair.random = Random::new(1 + pair.number);
            pair.add_plain();
            *size = pair.payload(false).len();
        }
        assert!(sizes[1] <= sizes[0] + 40, "{kind:?}: {sizes:?}");
        assert!(pair.whole(&pair.primary).len() > 9_000);
    }
}

impl Pair {
    /// One more member, with nothing special about it.
    fn add_plain(&mut self) {
        let number = self.next();
        let owner = Owner::from(&number.to_le_bytes()[..]);
        let hold = Hold { owner: owner.clone(), extras: None, ..self.hold(owner.clone()) };
        match &mut self.primary.body {
            Body::Lock(_) => {}
            Body::Fair(fair) => {
                let ask = WaitRequest { lease_ms: 1, ..WaitRequest::default() };
                fair.entries.insert(number, Arc::new(QueueEntry { owner, since: self.mono, ask }));
                fair.touched.push(number);
            }
            Body::Rw(_) => self.primary.put_hold(hold.token.into(), hold),
            Body::Semaphore(semaphore) => {
                semaphore.capacity = names::PERMITS_MAX;
                self.primary.put_hold(number.into(), Hold { token: 0, count: 1, ..hold });
            }
            Body::Latch(latch) => {
                (latch.initial, latch.count) = (names::LATCH_MAX, names::LATCH_MAX);
                latch.requests.insert((*owner).into());
                latch.requests_new.push((*owner).into());
            }
        }
    }
}

/// The largest token is in the record, so that those of a new primary are larger.
#[test]
fn the_largest_token_is_told() {
    let mut pair = Pair::new(Kind::Rw, 5);
    for owner in [b"A", b"B", b"C"] {
        let hold = pair.hold(Owner::from(&owner[..]));
        let token = hold.token;
        pair.primary.put_hold(token.into(), hold);
        let payload = pair.payload(true);
        assert_eq!(pair.replay(&payload), Ok(Replayed { granted: true, token }));
    }
    let first = one_of(&mut Random::new(1), pair.primary.others().unwrap()).unwrap();
    pair.primary.take_hold(first);
    let payload = pair.payload(false);
    assert_eq!(pair.replay(&payload), Ok(Replayed { granted: false, token: 0 }), "none is new");
    pair.compare();
    let mut loaded = Resource::free(Kind::Lock);
    let whole = pair.whole(&pair.primary);
    let replayed = record::replay(&whole, pair.mono, pair.lease, &mut loaded, false).unwrap();
    let largest = pair.primary.holds().map(|(_, hold)| hold.token).max().unwrap();
    assert_eq!(replayed.token, largest);
}

/// A step cannot be loaded, or replayed on a key of another family; then nothing changes.
#[test]
fn a_step_has_its_place() {
    for kind in Kind::ALL {
        let mut pair = Pair::new(kind, 9);
        let is_step = kind != Kind::Lock;
        let payload = loop {
            pair.step();
            let payload = pair.payload(false);
            if !pair.primary.is_free() && (payload[1] != 0) == is_step {
                break payload;
            }
        };
        let loaded = record::decode(&payload, pair.mono).map(|loaded| loaded.kind());
        assert_eq!(loaded, if is_step { Err(DecodeError::Impossible) } else { Ok(kind) });
        for other in Kind::ALL.into_iter().filter(|&other| other != kind) {
            for payload in [&payload, &pair.whole(&pair.primary)] {
                let mut there = Random::new(3).resource(other);
                let before = shown(&there);
                let (mono, lease) = (pair.mono, pair.lease);
                let done = record::replay(payload, mono, lease, &mut there, true);
                assert_eq!(done, Err(DecodeError::Impossible), "{kind:?} on {other:?}");
                assert_eq!(shown(&there), before);
                // Without a key, the value of `current` does not matter.
                record::replay(payload, mono, lease, &mut there, false).unwrap();
                assert_eq!(there.kind(), kind);
            }
        }
    }
}
