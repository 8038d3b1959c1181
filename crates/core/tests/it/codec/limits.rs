//! Payloads that decode but are impossible.

use super::{NOW, encoded};
use dlock_core::base::bytes::Owner;
use dlock_core::base::ids::{ALONE, HoldId, KeyId};
use dlock_core::base::kind::Kind;
use dlock_core::base::time::LeaseInstant;
use dlock_core::record::{self, Clocks, DecodeError, Level, StepInfo};
use dlock_core::value::fair::{Fair, QueueEntry};
use dlock_core::value::hold::{Binding, Hold, NO_CLIENT, Notify, OPEN_MAX};
use dlock_core::value::latch::Latch;
use dlock_core::value::lock::Lock;
use dlock_core::value::resource::{Body, Resource};
use dlock_core::value::rw::RwLock;
use dlock_core::value::semaphore::Semaphore;
use dlock_core::value::wait_request::WaitRequest;
use dlock_wire::names;
use std::sync::Arc;

fn hold(owner: &[u8], token: u64) -> Hold {
    Hold {
        owner: Owner::from(owner),
        token,
        deadline: LeaseInstant(0) + 1,
        lease_ms: 1,
        since: NOW,
        count: 1,
        answers: 0,
        extras: Some(Box::default()),
    }
}

fn loaded(body: Body) -> Result<(), DecodeError> {
    record::decode(
        &encoded(&Resource { key_id: KeyId::NONE, from_snapshot: false, is_news: false, body }),
        NOW,
    )
    .map(|_| ())
}

/// Each of `changes` turns the state of `make` into one that is refused.
#[track_caller]
fn all_refused<T>(make: impl Fn() -> T, body: impl Fn(T) -> Body, changes: &[&dyn Fn(&mut T)]) {
    assert_eq!(loaded(body(make())), Ok(()));
    for (at, change) in changes.iter().enumerate() {
        let mut state = make();
        change(&mut state);
        assert_eq!(loaded(body(state)), Err(DecodeError::Impossible), "the change number {at}");
    }
}

const LONG: [u8; 257] = [b'x'; 257];

/// Holds are the same everywhere; only permits have no token.
#[test]
fn impossible_holds() {
    let changes: [&dyn Fn(&mut Hold); 10] = [
        &|hold| hold.owner = Owner::from(&b""[..]),
        &|hold| hold.owner = Owner::from(&LONG[..]),
        &|hold| hold.token = names::TOKEN_MAX + 1,
        &|hold| hold.count = 0,
        &|hold| hold.lease_ms = 0,
        &|hold| hold.lease_ms = names::LEASE_MAX_MS + 1,
        &|hold| hold.extras_mut().label = LONG.into(),
        &|hold| hold.extras_mut().notify = Notify::Channel([].into()),
        &|hold| {
            let ms = names::BIND_MAX_MS + 1;
            let binding = Binding { ms, client: NO_CLIENT, is_shortened: false };
            hold.extras_mut().binding = Some(binding);
        },
        &|hold| (0..=OPEN_MAX).for_each(|n| hold.remember(Some(n.to_string().as_bytes()))),
    ];
    let lock = |hold| Body::Lock(Lock::Held(hold));
    let fair = |hold| Body::Fair(Box::new(Fair { lock: Lock::Held(hold), ..Fair::free() }));
    let write = |hold| Body::Rw(Box::new(RwLock { lock: Lock::Held(hold), ..RwLock::free() }));
    let read = |hold: Hold| {
        let mut rw = RwLock::free();
        rw.readers.insert(hold.token.into(), hold);
        Body::Rw(Box::new(rw))
    };
    let permit = |hold| {
        let mut semaphore = Semaphore { capacity: 1, ..Semaphore::default() };
        semaphore.permits.insert(HoldId::from(1), hold);
        Body::Semaphore(Box::new(semaphore))
    };
    for body in [lock, fair, write, read] {
        all_refused(|| hold(b"A", 5), body, &changes);
        all_refused(|| hold(b"A", 5), body, &[&|hold| hold.token = 0]);
    }
    all_refused(|| hold(b"A", 0), permit, &changes);
    let counts: [&dyn Fn(&mut Hold); 2] =
        [&|hold| hold.token = 1, &|hold| hold.count = names::PERMITS_MAX + 1];
    all_refused(|| hold(b"A", 0), permit, &counts);
}

#[test]
fn impossible_delays() {
    let closed = |(left_ms, delay_ms)| {
        let lock = Lock::Closed { until: LeaseInstant(0) + left_ms, delay_ms };
        Body::Fair(Box::new(Fair { lock, ..Fair::free() }))
    };
    all_refused(|| (1, 1), closed, &[&|(_, delay_ms)| *delay_ms = names::LEASE_MAX_MS + 1]);
}

#[test]
fn impossible_places() {
    let place = |owner: &[u8]| QueueEntry {
        owner: Owner::from(owner),
        since: NOW,
        ask: WaitRequest { lease_ms: 1, ..WaitRequest::default() },
    };
    let two = || {
        let mut fair = Fair::free();
        fair.entries.extend([(1, Arc::new(place(b"A"))), ((1 << 62) - 1, Arc::new(place(b"B")))]);
        fair
    };
    let one = |change: &dyn Fn(&mut QueueEntry)| {
        let change = move |fair: &mut Fair| {
            fair.entries.values_mut().take(1).for_each(|place| change(Arc::make_mut(place)));
        };
        all_refused(two, |fair| Body::Fair(Box::new(fair)), &[&change]);
    };
    one(&|place| place.owner = Owner::from(&b""[..]));
    one(&|place| place.owner = Owner::from(&LONG[..]));
    one(&|place| place.owner = Owner::from(&b"B"[..]));
    one(&|place| place.ask.lease_ms = 0);
    one(&|place| place.ask.lease_ms = names::LEASE_MAX_MS + 1);
    one(&|place| place.ask.queue_ms = Some(0));
    one(&|place| place.ask.queue_ms = Some(names::QUEUE_MAX_MS + 1));
    one(&|place| place.ask.bind_ms = Some(names::BIND_MAX_MS + 1));
    one(&|place| place.ask.request = Some([].into()));
    one(&|place| place.ask.request = Some([b'r'; 65].into()));
    one(&|place| place.ask.label = LONG.into());
    one(&|place| place.ask.notify = Notify::Channel([].into()));
    one(&|place| place.ask.notify = Notify::Channel(LONG.into()));
    let numbers: [&dyn Fn(&mut Fair); 2] =
        [&|fair| fair.entries.extend([(0, Arc::new(place(b"C")))]), &|fair| {
            fair.entries.extend([(1 << 62, Arc::new(place(b"C")))]);
        }];
    all_refused(two, |fair| Body::Fair(Box::new(fair)), &numbers);
}

#[test]
fn impossible_readers() {
    let rw = |write: Option<&[u8]>, read: &[(&[u8], u64)]| {
        let mut rw = RwLock::free();
        if let Some(owner) = write {
            rw.lock = Lock::Held(hold(owner, 1));
        }
        for &(owner, token) in read {
            rw.readers.insert(token.into(), hold(owner, token));
        }
        loaded(Body::Rw(Box::new(rw)))
    };
    assert_eq!(rw(Some(b"A"), &[(b"A", 5)]), Ok(()), "the writer reads, too");
    assert_eq!(rw(None, &[(b"A", 5), (b"B", 6)]), Ok(()));
    assert_eq!(rw(Some(b"A"), &[(b"B", 5)]), Err(DecodeError::Impossible));
    assert_eq!(rw(Some(b"A"), &[(b"A", 5), (b"B", 6)]), Err(DecodeError::Impossible));
    assert_eq!(rw(None, &[(b"A", 5), (b"A", 6)]), Err(DecodeError::Impossible));
}

/// The check of a step includes members that are there and that the step does not name.
#[test]
fn impossible_steps_of_readers() {
    let there = || {
        let mut rw = RwLock::free();
        rw.readers.insert(HoldId::from(5), hold(b"A", 5));
        rw.readers.insert(HoldId::from(6), hold(b"B", 6));
        Resource {
            key_id: KeyId::new(3),
            from_snapshot: false,
            is_news: false,
            body: Body::Rw(Box::new(rw)),
        }
    };
    // The step of a primary that changed from `gone` readers to these.
    let replayed = |write: Option<&[u8]>, gone: &[u64], put: &[(&[u8], u64)]| {
        let mut rw = RwLock::free();
        for &token in gone {
            rw.readers.insert(token.into(), hold(b"X", token));
            rw.readers.remove(token.into());
        }
        for &(owner, token) in put {
            rw.readers.insert(token.into(), hold(owner, token));
        }
        if let Some(owner) = write {
            rw.lock = Lock::Held(hold(owner, 1));
        } else {
            rw.lock = Lock::Closed { until: LeaseInstant(0) + 1, delay_ms: 1 };
        }
        let mut step = Resource {
            key_id: KeyId::new(3),
            from_snapshot: false,
            is_news: false,
            body: Body::Rw(Box::new(rw)),
        };
        let mut payload = Vec::new();
        let now = Clocks { mono: NOW, lease: LeaseInstant(0) };
        let info = StepInfo { granted: true, ..StepInfo::default() };
        record::encode_step(&mut step, now, Level::FIRST, &info, &mut payload);
        let mut there = there();
        let done = record::replay(&payload, NOW, LeaseInstant(0), &mut there, true);
        done.map(|_| there.others().unwrap().len())
    };
    let impossible = Err(DecodeError::Impossible);
    assert_eq!(replayed(None, &[], &[(b"C", 7)]), Ok(3));
    assert_eq!(replayed(None, &[], &[(b"A", 7)]), impossible, "a second hold of a reader");
    assert_eq!(replayed(None, &[5], &[(b"A", 7)]), Ok(2), "instead of the first");
    assert_eq!(replayed(None, &[], &[(b"A", 5)]), Ok(2), "the first again");
    assert_eq!(replayed(Some(b"A"), &[], &[]), impossible, "B reads");
    assert_eq!(replayed(Some(b"A"), &[6], &[]), Ok(1), "A alone reads");
    assert_eq!(replayed(Some(b"A"), &[5, 6], &[]), Ok(0));
    assert_eq!(replayed(Some(b"A"), &[5, 6], &[(b"A", 7)]), Ok(1));
    assert_eq!(replayed(Some(b"A"), &[5, 6], &[(b"C", 7)]), impossible, "C reads");
    assert_eq!(replayed(Some(b"C"), &[6], &[]), impossible, "A reads");
    assert_eq!(replayed(Some(b"C"), &[5, 6, 8], &[]), Ok(0), "what is not there may go");
}

#[test]
fn impossible_semaphores() {
    let semaphore = || {
        let mut semaphore = Semaphore { capacity: 2, taken: 1, ..Semaphore::default() };
        semaphore.permits.insert(HoldId::from(1), hold(b"A", 0));
        semaphore.permits.insert(HoldId::from(2), hold(b"A", 0));
        semaphore
    };
    let changes: [&dyn Fn(&mut Semaphore); 3] = [
        &|semaphore| semaphore.capacity = names::PERMITS_MAX + 1,
        &|semaphore| semaphore.taken = names::PERMITS_MAX + 1,
        &|semaphore| semaphore.permits.insert(ALONE, hold(b"A", 0)),
    ];
    all_refused(semaphore, |semaphore| Body::Semaphore(Box::new(semaphore)), &changes);
}

#[test]
fn impossible_latches() {
    let latch = || Latch {
        count: 2,
        initial: 3,
        lease_ms: Some(1),
        deadline: Some(LeaseInstant(0) + 1),
        requests: [(*b"r1").into()].into(),
        requests_new: Vec::new(),
    };
    let changes: [&dyn Fn(&mut Latch); 6] = [
        &|latch| latch.count = 4,
        &|latch| latch.initial = names::LATCH_MAX + 1,
        &|latch| latch.lease_ms = Some(0),
        &|latch| latch.lease_ms = Some(names::LEASE_MAX_MS + 1),
        &|latch| latch.requests.extend([[].into()]),
        &|latch| latch.requests.extend([[b'r'; 65].into()]),
    ];
    all_refused(latch, |latch| Body::Latch(Box::new(latch)), &changes);
}

/// Members come in order and once, and do not come and go in one step. A whole state lists no removed members, and is
/// not free. (No state is written like this.)
#[test]
fn impossible_orders() {
    let member: [&[u8]; 3] = [b"\x05", b"\x06", b"\x07"];
    // After the token or id: the owner, the count, the lease, the time left, the time since the grant.
    let reader = |owner: &'static str, token| -> Vec<u8> {
        [b"\x01", owner.as_bytes(), token, b"\x01\x01\x01\x00\x00"].concat()
    };
    let rw = |flags: u8, gone: &[usize], put: &[(&'static str, usize)]| {
        let mut payload = vec![1, flags, 4, 0];
        payload.extend([u8::try_from(gone.len()).unwrap(), u8::try_from(put.len()).unwrap()]);
        for &at in gone {
            payload.extend(member[at]);
        }
        for &(owner, at) in put {
            payload.extend(reader(owner, member[at]));
        }
        let mut current = Resource::free(Kind::Lock);
        record::replay(&payload, NOW, LeaseInstant(0), &mut current, false).map(|_| ())
    };
    let impossible = Err(DecodeError::Impossible);
    assert_eq!(rw(0, &[], &[("A", 0), ("B", 1)]), Ok(()));
    assert_eq!(rw(2, &[0, 1], &[("A", 2)]), Ok(()));
    assert_eq!(rw(0, &[], &[]), impossible, "free");
    assert_eq!(rw(0, &[0], &[("A", 1)]), impossible, "gone, in a whole state");
    assert_eq!(rw(0, &[], &[("A", 1), ("B", 0)]), impossible, "put out of order");
    assert_eq!(rw(0, &[], &[("A", 1), ("B", 1)]), impossible, "put twice");
    assert_eq!(rw(2, &[1, 0], &[]), impossible, "gone out of order");
    assert_eq!(rw(2, &[1, 1], &[]), impossible, "gone twice");
    assert_eq!(rw(2, &[0], &[("A", 0)]), impossible, "both gone and put");
    let latch = |ids: &[u8]| record::decode(&[b"\x01\x00\x06\x01\x01\x00\x02", ids].concat(), NOW);
    assert!(latch(b"\x01a\x01b").is_ok());
    assert_eq!(latch(b"\x01b\x01a").err(), Some(DecodeError::Impossible));
    assert_eq!(latch(b"\x01a\x01a").err(), Some(DecodeError::Impossible));
    for free in [&b"\x01\x00\x03\x00\x00\x00"[..], b"\x01\x00\x05\x00\x00\x00\x00\x00\x00"] {
        assert_eq!(record::decode(free, NOW).err(), Some(DecodeError::Impossible));
    }
    // A lock has no steps.
    for state in [&b"\x00"[..], b"\x01\x01\x01", b"\x02\x01A\x05\x01\x01\x01\x00\x00"] {
        for (flags, taken) in [(0, true), (1, true), (2, false), (3, false)] {
            let payload = [&[1, flags], state].concat();
            let mut current = Resource::free(Kind::Lock);
            let done = record::replay(&payload, NOW, LeaseInstant(0), &mut current, true);
            assert_eq!(done.is_ok(), taken, "{payload:?}");
        }
    }
}
