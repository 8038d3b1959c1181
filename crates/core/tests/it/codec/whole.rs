//! Whole states: RDB, DUMP, AOF rewrite.

use super::random::Random;
use super::{CLOCKS, NOW, encoded, shown};
use dlock_core::base::bytes::Owner;
use dlock_core::base::ids::{ALONE, HoldId, KeyId};
use dlock_core::base::kind::Kind;
use dlock_core::base::time::LeaseInstant;
use dlock_core::record::{self, Clocks, Level, Replayed, StepInfo};
use dlock_core::value::fair::{Fair, QueueEntry};
use dlock_core::value::hold::{Binding, Hold, Notify, Unclaimed};
use dlock_core::value::latch::Latch;
use dlock_core::value::lock::Lock;
use dlock_core::value::resource::{Body, Ending, Resource};
use dlock_core::value::rw::RwLock;
use dlock_core::value::semaphore::Semaphore;
use dlock_core::value::wait_request::WaitRequest;
use dlock_wire::names;
use std::sync::Arc;

#[test]
fn what_goes_in_comes_out() {
    let mut random = Random::new(1);
    for kind in Kind::ALL {
        for _ in 0..5_000 {
            let resource = random.resource(kind);
            let payload = encoded(&resource);
            let again = record::decode(&payload, NOW).expect("what was written can be read");
            assert_eq!(again.kind(), kind);
            assert_eq!(shown(&again), shown(&resource));
            assert_eq!(record::digest(&again), record::digest(&resource));
            assert_eq!(record::waiters(&payload), resource.waiters());
            assert_eq!(encoded(&again), payload, "one state has one encoding");
        }
    }
}

#[test]
fn what_is_free_has_one_encoding() {
    for kind in Kind::ALL {
        assert_eq!(encoded(&Resource::free(kind)), [1, 0, 0]);
        let mut payload = Vec::new();
        let mut free = Resource::free(kind);
        record::encode_step(&mut free, CLOCKS, Level::FIRST, &StepInfo::default(), &mut payload);
        assert_eq!(payload, [1, 0, 0], "{kind:?}");
    }
    assert!(record::decode(&[1, 0, 0], NOW).unwrap().is_free());
}

fn hold(owner: &[u8], token: u64) -> Hold {
    Hold {
        owner: Owner::from(owner),
        token,
        deadline: LeaseInstant(0) + 20_000,
        lease_ms: 30_000,
        since: NOW.back(10_000),
        count: 1,
        answers: 0,
        extras: None,
    }
}

/// Every later version must read what was written once: these payloads must not change.
#[test]
fn the_bytes_are_these() {
    let of = |body| {
        encoded(&Resource { key_id: KeyId::NONE, from_snapshot: false, is_news: false, body })
    };
    // The owner, the token, the count, the lease, the time left, the time since the grant, no extras.
    let held = *b"\x01A\x05\x01\xFB\x30\x75\xFB\x20\x4E\xFB\x10\x27\x00";
    let lock = || Lock::Held(hold(b"A", 5));
    assert_eq!(of(Body::Lock(lock())), [b"\x01\x00\x02", &held[..]].concat());
    let closed = Lock::Closed { until: LeaseInstant(0) + 3, delay_ms: 4 };
    assert_eq!(of(Body::Lock(closed)), b"\x01\x00\x01\x03\x04");

    // Loaded from a snapshot and not in use yet: it lacks later renewals, so what is left is the lease in full.
    let body = Body::Lock(lock());
    let loaded = Resource { key_id: KeyId::NONE, from_snapshot: true, is_news: false, body };
    let full = *b"\x01A\x05\x01\xFB\x30\x75\xFB\x30\x75\xFB\x10\x27\x00";
    assert_eq!(encoded(&loaded), [b"\x01\x00\x02", &full[..]].concat());

    let mut tied = hold(b"A", 5);
    tied.remember(Some(b"r1"));
    let extras = tied.extras_mut();
    extras.requests.add(b"r03");
    extras.label = (*b"x").into();
    extras.notify = Notify::Channel((*b"c").into());
    extras.binding = Some(Binding { ms: 7, client: 0, is_shortened: false });
    let more = b"\x01\x07\x01r1\x02r03\x01x\x02\x01c\x00\x01\x07\x00";
    let tied_bytes = [b"\x01\x00\x02", &held[..held.len() - 1], more].concat();
    assert_eq!(of(Body::Lock(Lock::Held(tied))), tied_bytes);

    let channel = || (*b"c").into();
    for (notify, bytes) in [
        (Notify::Silent, &b"\0"[..]),
        (Notify::Owner, b"\x01"),
        (Notify::Channel(channel()), b"\x02\x01c"),
        (Notify::Sharded(channel()), b"\x03\x01c"),
    ] {
        let mut told = hold(b"A", 5);
        let extras = told.extras_mut();
        extras.label = (*b"x").into();
        extras.notify = notify.clone();
        let more = [&b"\x01\x00\x01x"[..], bytes, b"\x00\x00\x00"].concat();
        let bytes = [b"\x01\x00\x02", &held[..held.len() - 1], &more].concat();
        assert_eq!(of(Body::Lock(Lock::Held(told))), bytes, "{notify:?}");
    }

    let mut fair = Fair { lock: Lock::Free, ..Fair::free() };
    let ask = WaitRequest {
        lease_ms: 9,
        queue_ms: Some(8),
        notify: Notify::Channel(channel()),
        request: Some((*b"r1").into()),
        bind_ms: Some(7),
        label: (*b"x").into(),
        ..WaitRequest::default()
    };
    let place = QueueEntry { owner: Owner::from(&b"B"[..]), since: NOW.back(2), ask };
    fair.entries.insert(6, Arc::new(place));
    let place = b"\x06\x01B\x02\x09\x01\x08\x02\x01c\x01\x02r1\x01\x07\x01x";
    let fair_bytes = [b"\x01\x00\x03\x00\x00\x01", &place[..]].concat();
    assert_eq!(of(Body::Fair(Box::new(fair))), fair_bytes, "a place with all options");

    let mut fair = Fair { lock: lock(), ..Fair::free() };
    let ask = WaitRequest { lease_ms: 9, queue_ms: Some(8), ..WaitRequest::default() };
    let owner = Owner::from(&b"B"[..]);
    let place = QueueEntry { owner, since: NOW.back(2), ask };
    fair.entries.insert(6, Arc::new(place));
    let place = b"\x06\x01B\x02\x09\x01\x08\x00\x00\x00\x00";
    let fair_bytes = [b"\x01\x00\x03\x02", &held[..], b"\x00\x01", place].concat();
    assert_eq!(of(Body::Fair(Box::new(fair))), fair_bytes);

    let mut rw = RwLock::free();
    rw.readers.insert(HoldId::from(5), hold(b"A", 5));
    let rw_bytes = [b"\x01\x00\x04\x00\x00\x01", &held[..]].concat();
    assert_eq!(of(Body::Rw(Box::new(rw))), rw_bytes);

    let mut semaphore = Semaphore { capacity: 3, taken: 2, leased: 1, ..Semaphore::default() };
    semaphore.permits.insert(HoldId::from_be_bytes((u128::MAX - 1).to_be_bytes()), hold(b"A", 0));
    let mut permit = held;
    permit[2] = 0;
    let id = [b"\xFE\xFE", &[255; 15][..]].concat();
    let front = b"\x01\x00\x05\x03\x00\x02\x00\x01";
    let semaphore_bytes = [front, &id[..], &permit[..]].concat();
    assert_eq!(of(Body::Semaphore(Box::new(semaphore))), semaphore_bytes);

    let latch = Latch {
        count: 2,
        initial: 3,
        lease_ms: Some(9),
        deadline: Some(LeaseInstant(0) + 8),
        requests: [(*b"r1").into()].into(),
        requests_new: Vec::new(),
    };
    let latch_bytes = b"\x01\x00\x06\x02\x03\x01\x09\x08\x01\x02r1";
    assert_eq!(of(Body::Latch(Box::new(latch))), latch_bytes);
}

#[test]
fn what_runs_is_written_with_what_is_left() {
    let mut random = Random::new(2);
    let lease = LeaseInstant(1_000_000);
    for kind in Kind::ALL {
        for (deadline_us, left_ms) in
            [(0, 0), (999_999, 0), (1_000_001, 1), (1_001_000, 1), (1_500_001, 501)]
        {
            let at = LeaseInstant(deadline_us);
            let reader = Hold { deadline: at, ..random.hold() };
            let (id, permit) = random.permit();
            let body = match kind {
                Kind::Lock => Body::Lock(Lock::Held(reader)),
                Kind::Fair => {
                    Body::Fair(Box::new(Fair { lock: Lock::Held(reader), ..Fair::free() }))
                }
                Kind::Rw => {
                    let mut rw = RwLock::free();
                    rw.readers.insert(reader.token.into(), reader);
                    Body::Rw(Box::new(rw))
                }
                Kind::Semaphore => {
                    let mut semaphore = Semaphore { capacity: 1, ..Semaphore::default() };
                    semaphore.permits.insert(id, Hold { deadline: at, ..permit });
                    Body::Semaphore(Box::new(semaphore))
                }
                Kind::Latch => Body::Latch(Box::new(Latch {
                    count: 1,
                    initial: 1,
                    lease_ms: Some(1),
                    deadline: Some(at),
                    ..Latch::default()
                })),
            };
            let mut payload = Vec::new();
            record::encode(
                &Resource { key_id: KeyId::new(5), from_snapshot: false, is_news: false, body },
                Clocks { mono: NOW, lease },
                Level::FIRST,
                &mut payload,
            );
            let end = |resource: &Resource| resource.next_end().map(|(at, _)| at);
            let loaded = record::decode(&payload, NOW).unwrap();
            assert_eq!(loaded.key_id, KeyId::NONE);
            assert_eq!(end(&loaded), Some(LeaseInstant(0) + left_ms), "never less");
            let mut replica = Resource::free(Kind::Lock);
            record::replay(&payload, NOW, LeaseInstant(50), &mut replica, false).unwrap();
            assert_eq!(end(&replica), Some(LeaseInstant(50) + left_ms), "from now on");
        }
    }
}

/// A pause sets the lease clock back a little, so the time left can exceed the longest lease; a file with that could
/// not be loaded.
#[test]
fn what_is_left_is_never_more_than_the_longest_lease() {
    let longest = LeaseInstant(0) + names::LEASE_MAX_MS;
    let later = LeaseInstant(0) + (names::LEASE_MAX_MS + 1);
    let lock = Lock::Held(Hold { deadline: later, ..hold(b"A", 1) });
    let closed = Lock::Closed { until: later, delay_ms: names::LEASE_MAX_MS };
    let latch = Latch {
        count: 1,
        initial: 1,
        lease_ms: Some(names::LEASE_MAX_MS),
        deadline: Some(later),
        ..Latch::default()
    };
    let ends = [
        (Body::Lock(lock), Ending::Hold(ALONE)),
        (Body::Lock(closed), Ending::Delay),
        (Body::Latch(Box::new(latch)), Ending::Latch),
    ];
    for (body, ending) in ends {
        let payload =
            encoded(&Resource { key_id: KeyId::NONE, from_snapshot: false, is_news: false, body });
        let loaded = record::decode(&payload, NOW).expect("a payload of our own");
        assert_eq!(loaded.next_end(), Some((longest, ending)));
    }
}

#[test]
fn a_whole_state_takes_the_place_of_what_is_there() {
    let mut random = Random::new(3);
    for kind in Kind::ALL {
        for _ in 0..500 {
            let (mut there, new) = (random.resource(kind), random.resource(kind));
            there.key_id = KeyId::new(9);
            let done = record::replay(&encoded(&new), NOW, LeaseInstant(0), &mut there, true);
            let token = new.holds().map(|(_, hold)| hold.token).max().unwrap_or(0);
            assert_eq!(done, Ok(Replayed { granted: false, token }));
            assert_eq!(there.key_id, KeyId::new(9), "the entry stays");
            there.key_id = KeyId::NONE;
            assert_eq!(shown(&there), shown(&new));
            record::replay(&[1, 0, 0], NOW, LeaseInstant(0), &mut there, true).unwrap();
            assert!(there.is_free() && there.kind() == kind);
        }
    }
}

/// Times do not tell whether a replica equals its primary; all else does.
#[test]
fn the_digest_sees_everything_but_times() {
    let digest = |body| {
        record::digest(&Resource {
            key_id: KeyId::NONE,
            from_snapshot: false,
            is_news: false,
            body,
        })
    };
    let lock = |change: &dyn Fn(&mut Hold)| {
        let mut hold = Hold { extras: Some(Box::default()), ..hold(b"A", 5) };
        change(&mut hold);
        digest(Body::Lock(Lock::Held(hold)))
    };
    let same = lock(&|_| ());
    assert_eq!(lock(&|hold| hold.extras = None), same);
    assert_eq!(lock(&|hold| hold.deadline = LeaseInstant(0)), same);
    assert_eq!(lock(&|hold| hold.since = NOW), same);
    let binding = Binding { ms: 1, client: 0, is_shortened: false };
    let unclaimed = Unclaimed { client: 0 };
    let changes: [&dyn Fn(&mut Hold); 8] = [
        &|hold| hold.owner = Owner::from(&b"B"[..]),
        &|hold| hold.token += 1,
        &|hold| hold.count += 1,
        &|hold| hold.remember(Some(b"r1")),
        &|hold| hold.extras_mut().label = (*b"x").into(),
        &|hold| hold.extras_mut().notify = Notify::Owner,
        &|hold| hold.extras_mut().binding = Some(binding),
        &|hold| hold.extras_mut().unclaimed = Some(unclaimed),
    ];
    for (at, change) in changes.into_iter().enumerate() {
        assert_ne!(lock(change), same, "the change number {at}");
    }

    let fair = |change: &dyn Fn(&mut Fair)| {
        let mut fair = Fair::free();
        for (seq, owner) in [(6, b"A"), (8, b"B")] {
            let ask = WaitRequest { lease_ms: 9, ..WaitRequest::default() };
            let place = QueueEntry { owner: Owner::from(&owner[..]), since: NOW, ask };
            fair.entries.insert(seq, Arc::new(place));
        }
        change(&mut fair);
        digest(Body::Fair(Box::new(fair)))
    };
    let same = fair(&|_| ());
    let renumber = |fair: &mut Fair| {
        fair.entries = std::mem::take(&mut fair.entries).into_values().zip(1..).map(swap).collect();
    };
    assert_eq!(fair(&renumber), same, "what counts is the order");
    let changes: [&dyn Fn(&mut Fair); 5] = [
        &|fair| fair.lock = Lock::Held(hold(b"A", 5)),
        &|fair| fair.entries.retain(|&seq, _| seq == 6),
        &|fair| {
            let last = fair.entries.remove(&6).map(|place| (9, place));
            fair.entries.extend(last);
        },
        &|fair| {
            fair.entries.values_mut().for_each(|place| Arc::make_mut(place).ask.bind_ms = Some(1));
        },
        &|fair| fair.entries.values_mut().for_each(|place| Arc::make_mut(place).ask.lease_ms = 1),
    ];
    for (at, change) in changes.into_iter().enumerate() {
        assert_ne!(fair(change), same, "the change number {at}");
    }

    let semaphore = |change: &dyn Fn(&mut Semaphore)| {
        let mut semaphore = Semaphore { capacity: 3, ..Semaphore::default() };
        semaphore.permits.insert(HoldId::from(1), hold(b"A", 0));
        change(&mut semaphore);
        digest(Body::Semaphore(Box::new(semaphore)))
    };
    let same = semaphore(&|_| ());
    let changes: [&dyn Fn(&mut Semaphore); 4] = [
        &|semaphore| semaphore.capacity = 4,
        &|semaphore| semaphore.taken = 1,
        &|semaphore| semaphore.is_passing = true,
        &|semaphore| semaphore.permits.insert(HoldId::from(2), hold(b"A", 0)),
    ];
    for (at, change) in changes.into_iter().enumerate() {
        assert_ne!(semaphore(change), same, "the change number {at}");
    }
}

fn swap<A, B>((one, other): (A, B)) -> (B, A) {
    (other, one)
}
