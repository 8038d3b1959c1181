//! The encoding of durable state: what goes in comes out, and whatever else comes is refused.

use crate::support::Digest;
use dlock_core::bytes::Owner;
use dlock_core::hold::{Extras, Hold, NO_CLIENT, Notify, REQUESTS_KEPT, Requests, Tie, Unclaimed};
use dlock_core::lease::NO_ENTRY;
use dlock_core::record::{self, DecodeError, VERSION};
use dlock_core::resource::{Body, Lock, Resource};
use dlock_core::time::{Instant, LeaseInstant};
use dlock_wire::names;

const NOW: Instant = Instant(9_000_000_000);

/// xorshift64*: small, and the same everywhere.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) % bound
    }

    fn byte(&mut self) -> u8 {
        self.below(256).to_le_bytes()[0]
    }

    fn bytes(&mut self, min: usize, max: usize) -> Vec<u8> {
        let len = if self.below(8) == 0 { max } else { min + self.len(max.min(min + 20) - min) };
        (0..len).map(|_| self.byte()).collect()
    }

    fn len(&mut self, most: usize) -> usize {
        usize::try_from(self.below(most as u64 + 1)).unwrap()
    }

    /// Any size of number up to `most`, small ones as likely as large ones.
    fn number(&mut self, least: u64, most: u64) -> u64 {
        let bits = self.below(u64::from(u64::BITS - most.leading_zeros()) + 1);
        let number = if bits == 0 { 0 } else { self.below(1 << bits) };
        if self.below(10) == 0 { most } else { number.clamp(least, most) }
    }

    fn maybe<T>(&mut self, make: impl FnOnce(&mut Self) -> T) -> Option<T> {
        (self.below(2) == 0).then(|| make(self))
    }

    fn resource(&mut self) -> Resource {
        let lock = match self.below(10) {
            0 => Lock::Free,
            1 => Lock::Closed {
                until: LeaseInstant(0) + self.number(0, names::LEASE_MAX_MS),
                delay_ms: self.number(0, names::LEASE_MAX_MS),
            },
            _ => Lock::Held(self.hold()),
        };
        Resource { entry: NO_ENTRY, body: Body::Lock(lock) }
    }

    fn hold(&mut self) -> Hold {
        Hold {
            owner: Owner::from(self.bytes(1, names::OWNER_MAX).as_slice()),
            token: self.number(1, names::TOKEN_MAX),
            deadline: LeaseInstant(0) + self.number(0, names::LEASE_MAX_MS),
            lease_ms: self.number(1, names::LEASE_MAX_MS),
            since: NOW.back(self.number(0, 9_000_000)),
            count: u32::try_from(self.number(1, u64::from(u32::MAX))).unwrap(),
            answers: 0,
            extras: self.maybe(Self::extras).map(Box::new),
        }
    }

    fn extras(&mut self) -> Extras {
        let mut requests = Requests::default();
        for _ in 0..self.below(12) {
            requests.remember(&self.bytes(1, names::REQID_MAX), REQUESTS_KEPT);
        }
        Extras {
            requests,
            label: self.bytes(0, names::LABEL_MAX).into(),
            notify: match self.below(3) {
                0 => Notify::Silent,
                1 => Notify::Owner,
                _ => Notify::Channel(self.bytes(1, names::CHANNEL_MAX).into()),
            },
            tie: self.maybe(|random| Tie {
                ms: random.number(0, names::BIND_MAX_MS),
                client: NO_CLIENT,
                cut: false,
                orphan_until: None,
            }),
            unclaimed: self.maybe(|random| Unclaimed {
                client: NO_CLIENT,
                queue_ms: random.number(0, names::QUEUE_MAX_MS),
            }),
        }
    }
}

fn encoded(resource: &Resource) -> Vec<u8> {
    let mut payload = Vec::new();
    record::encode(resource, NOW, LeaseInstant(77), &mut payload);
    payload
}

/// Decodes whatever it is; what is taken is in range, and small if the payload is.
fn decode_anything(payload: &[u8]) -> Result<Resource, DecodeError> {
    let decoded = record::decode(payload, NOW);
    if let Ok(resource) = &decoded {
        let again = encoded(resource);
        let twice = record::decode(&again, NOW).expect("what was taken can be written and read");
        assert_eq!(Digest::of(&twice), Digest::of(resource));
        let bound = 2 * payload.len() + 512;
        assert!(resource.memory() <= bound, "{} of {}", resource.memory(), payload.len());
    }
    decoded
}

#[test]
fn what_goes_in_comes_out() {
    let mut random = Random(1);
    for _ in 0..20_000 {
        let resource = random.resource();
        let payload = encoded(&resource);
        let again = decode_anything(&payload).expect("what was written can be read");
        assert_eq!(Digest::of(&again), Digest::of(&resource));
        assert_eq!(again.next_deadline(), resource.next_deadline());
        let since = |resource: &Resource| resource.lock().hold().map(|hold| hold.since);
        assert_eq!(since(&again), since(&resource));
        assert_eq!(encoded(&again), payload, "one state has one encoding");
    }
}

#[test]
fn what_runs_is_written_with_what_is_left() {
    let mut random = Random(2);
    let mut resource = Resource { entry: 5, body: Body::Lock(Lock::Held(random.hold())) };
    let lease = LeaseInstant(1_000_000);
    for (deadline_us, left_ms) in
        [(0, 0), (999_999, 0), (1_000_001, 1), (1_001_000, 1), (1_500_001, 501)]
    {
        resource.lock_mut().hold_mut().unwrap().deadline = LeaseInstant(deadline_us);
        let mut payload = Vec::new();
        record::encode(&resource, NOW, lease, &mut payload);
        let again = record::decode(&payload, NOW).unwrap();
        assert_eq!(again.next_deadline(), Some(LeaseInstant(0) + left_ms), "never less");
    }
}

#[test]
fn nothing_shorter_or_longer_is_taken() {
    let mut random = Random(3);
    for _ in 0..500 {
        let mut payload = encoded(&random.resource());
        for len in 0..payload.len() {
            assert!(decode_anything(&payload[..len]).is_err(), "cut to {len} of {payload:?}");
        }
        payload.push(random.byte());
        assert_eq!(decode_anything(&payload).err(), Some(DecodeError::Damaged));
    }
}

#[test]
fn every_changed_byte_is_taken_or_refused() {
    let mut random = Random(4);
    for _ in 0..40 {
        let payload = encoded(&random.resource());
        let mut changed = payload.clone();
        for at in 0..payload.len() {
            for byte in 0..=255 {
                changed[at] = byte;
                let _ = decode_anything(&changed);
            }
            changed[at] = payload[at];
        }
    }
}

#[test]
fn random_bytes_are_taken_or_refused() {
    let mut random = Random(5);
    for _ in 0..100_000 {
        let mut bytes = random.bytes(0, 300);
        if let Some(first) = bytes.first_mut() {
            *first = VERSION;
        }
        if let Some(kind) = bytes.get_mut(1) {
            *kind %= 4;
        }
        let _ = decode_anything(&bytes);
    }
}

#[test]
fn another_version_is_named() {
    let mut payload = encoded(&Random(6).resource());
    for version in (0..=255).filter(|&version| version != VERSION) {
        payload[0] = version;
        assert_eq!(decode_anything(&payload).err(), Some(DecodeError::UnknownVersion(version)));
    }
    assert_eq!(decode_anything(&[]).err(), Some(DecodeError::Damaged));
}

/// A length that the payload does not hold is refused before anything is allocated for it: texts
/// are borrowed from the payload, and copied only after they have passed. If it were otherwise,
/// these would ask for up to 2^64 bytes.
#[test]
fn a_claimed_length_allocates_nothing() {
    let mut resource = Random(7).resource();
    let lock = Hold { extras: Some(Box::default()), ..Random(8).hold() };
    *resource.lock_mut() = Lock::Held(lock);
    let payload = encoded(&resource);
    // bincode writes 2^32 and 2^64 lengths as a tag and four or eight bytes.
    let lengths: [&[u8]; 5] = [
        &[251, 255, 255],
        &[252, 255, 255, 255, 255],
        &[252, 255, 255, 255, 127],
        &[253, 255, 255, 255, 255, 255, 255, 255, 255],
        &[253, 0, 0, 0, 0, 0, 1, 0, 0],
    ];
    for at in 2..payload.len() {
        for length in lengths {
            let claimed = [&payload[..at], length, &payload[at + 1..]].concat();
            let _ = decode_anything(&claimed);
        }
    }
}

/// A pause sets the lease clock back a little, so what is left can exceed the longest lease; a file
/// that says so could not be loaded.
#[test]
fn what_is_left_is_never_more_than_the_longest_lease() {
    let mut hold = Hold {
        owner: Owner::from(&b"A"[..]),
        token: 1,
        deadline: LeaseInstant(0) + (names::LEASE_MAX_MS + 1),
        lease_ms: names::LEASE_MAX_MS,
        since: NOW,
        count: 1,
        answers: 0,
        extras: None,
    };
    hold.remember(Some(b"r"));
    let resource = Resource { entry: NO_ENTRY, body: Body::Lock(Lock::Held(hold)) };
    let loaded = record::decode(&encoded(&resource), NOW).expect("a payload of our own");
    assert_eq!(loaded.next_deadline(), Some(LeaseInstant(0) + names::LEASE_MAX_MS));
}

#[test]
fn what_cannot_be_is_refused() {
    let refused = |change: &dyn Fn(&mut Hold)| {
        let mut hold = Hold {
            owner: Owner::from(&b"A"[..]),
            token: 1,
            deadline: LeaseInstant(0) + 1,
            lease_ms: 1,
            since: NOW,
            count: 1,
            answers: 0,
            extras: Some(Box::default()),
        };
        change(&mut hold);
        let resource = Resource { entry: NO_ENTRY, body: Body::Lock(Lock::Held(hold)) };
        record::decode(&encoded(&resource), NOW).err()
    };
    assert_eq!(refused(&|_| ()), None);
    let tie = |ms| Some(Tie { ms, client: NO_CLIENT, cut: false, orphan_until: None });
    let impossible: [&dyn Fn(&mut Hold); 11] = [
        &|hold| hold.owner = Owner::from(&b""[..]),
        &|hold| hold.owner = Owner::from(&[b'x'; 257][..]),
        &|hold| hold.token = 0,
        &|hold| hold.token = names::TOKEN_MAX + 1,
        &|hold| hold.count = 0,
        &|hold| hold.lease_ms = 0,
        &|hold| hold.lease_ms = names::LEASE_MAX_MS + 1,
        &|hold| hold.extras_mut().label = [b'x'; 257].into(),
        &|hold| hold.extras_mut().notify = Notify::Channel([].into()),
        &|hold| hold.extras_mut().tie = tie(names::BIND_MAX_MS + 1),
        &|hold| {
            let queue_ms = names::QUEUE_MAX_MS + 1;
            hold.extras_mut().unclaimed = Some(Unclaimed { client: NO_CLIENT, queue_ms });
        },
    ];
    for (at, change) in impossible.into_iter().enumerate() {
        assert_eq!(refused(change), Some(DecodeError::Impossible), "the change number {at}");
    }
}
