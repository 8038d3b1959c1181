//! Damaged and hostile payloads are accepted or refused, with no other effect.

use super::random::Random;
use super::steps::Pair;
use super::{NOW, encoded};
use dlock_core::base::kind::Kind;
use dlock_core::record::{self, DecodeError};
use dlock_core::value::resource::{Body, Resource};
use std::collections::BTreeSet;

/// Decodes any bytes; an accepted value is in range, and small if the payload is.
fn decode_anything(payload: &[u8]) -> Result<Resource, DecodeError> {
    let decoded = record::decode(payload, NOW);
    if let Ok(resource) = &decoded {
        let again = encoded(resource);
        let twice = record::decode(&again, NOW).expect("what was taken can be written and read");
        assert_eq!(encoded(&twice), again);
        assert_eq!(record::digest(&twice), record::digest(resource));
        let bound = if resource.kind() == Kind::Lock { 2 } else { 40 } * payload.len() + 512;
        let memory = resource.memory(usize::MAX);
        assert!(memory <= bound, "{memory} of {}", payload.len());
    }
    decoded
}

/// A replica and its state.
struct Replica {
    pair: Pair,
    is_there: bool,
    whole: Vec<u8>,
}

impl Replica {
    /// One with some state, and the payload of the next step.
    fn new(kind: Kind, seed: u64) -> (Self, Vec<u8>) {
        let mut pair = Pair::new(kind, seed);
        for _ in 0..pair.random.below(6) {
            pair.step();
            let payload = pair.payload(false);
            pair.replay(&payload).expect("a payload of our own");
        }
        pair.step();
        let payload = pair.payload(true);
        let whole = pair.whole(&pair.replica);
        (Self { is_there: pair.is_there, whole, pair }, payload)
    }

    /// Replays any bytes on the state of the replica. An accepted payload leaves a state that can be saved and loaded;
    /// a refused one changes nothing.
    fn replay_anything(&mut self, payload: &[u8]) -> Result<(), DecodeError> {
        let pair = &mut self.pair;
        if let Err(error) = pair.replay(payload) {
            assert_eq!(pair.whole(&pair.replica), self.whole);
            return Err(error);
        }
        let whole = pair.whole(&pair.replica);
        if !has_twins(&pair.replica) {
            let loaded = record::decode(&whole, pair.mono).expect("it can be saved and loaded");
            assert_eq!(pair.whole(&loaded), whole);
        }
        pair.replay(payload).expect("what was taken once is taken twice");
        assert_eq!(pair.whole(&pair.replica), whole);
        pair.replica = Resource::free(Kind::Lock);
        pair.is_there = false;
        if self.is_there {
            pair.replay(&self.whole).expect("a state of our own");
        }
        Ok(())
    }
}

/// The decoder does not search a step for owners that have an entry under another number.
fn has_twins(resource: &Resource) -> bool {
    let Body::Fair(fair) = &resource.body else { return false };
    let owners: BTreeSet<_> = fair.entries.values().map(|place| &place.owner).collect();
    owners.len() < fair.entries.len()
}

#[test]
fn nothing_shorter_or_longer_is_taken() {
    let mut random = Random::new(3);
    for kind in Kind::ALL {
        for seed in 1..=60 {
            let mut payload = encoded(&random.resource(kind));
            for len in 0..payload.len() {
                assert!(decode_anything(&payload[..len]).is_err(), "cut to {len} of {payload:?}");
            }
            payload.push(random.byte());
            assert_eq!(decode_anything(&payload).err(), Some(DecodeError::Damaged));

            let (mut replica, mut payload) = Replica::new(kind, seed);
            for len in 0..payload.len() {
                assert!(replica.replay_anything(&payload[..len]).is_err());
            }
            payload.push(random.byte());
            assert_eq!(replica.replay_anything(&payload), Err(DecodeError::Damaged));
        }
    }
}

#[test]
fn every_changed_byte_is_taken_or_refused() {
    let mut random = Random::new(4);
    for kind in Kind::ALL {
        for seed in 1..=4 {
            each_changed(&encoded(&random.resource(kind)), |payload| {
                let _ = decode_anything(payload);
            });
            let (mut replica, payload) = Replica::new(kind, seed);
            each_changed(&payload, |payload| {
                let _ = replica.replay_anything(payload);
            });
        }
    }
}

/// Every value of the first bytes, then some values of some bytes: most of the rest is text.
fn each_changed(payload: &[u8], mut take: impl FnMut(&[u8])) {
    let mut changed = payload.to_vec();
    for at in 0..payload.len() {
        let step = match at {
            0..64 => 1,
            64..256 => 17,
            _ if at % 3 == 0 => 51,
            _ => 257,
        };
        for byte in (0..=255).step_by(step) {
            changed[at] = byte;
            take(&changed);
        }
        changed[at] = payload[at];
    }
}

#[test]
fn random_bytes_are_taken_or_refused() {
    let mut random = Random::new(5);
    let mut replicas = Kind::ALL.map(|kind| Replica::new(kind, 8).0);
    for round in 0..100_000 {
        let mut bytes = random.bytes(0, 300);
        if let Some(first) = bytes.first_mut() {
            *first = 1 + random.byte() % 2;
        }
        if let Some(flags) = bytes.get_mut(1) {
            *flags %= 8;
        }
        if let Some(kind) = bytes.get_mut(2) {
            *kind %= 9;
        }
        // Few members, or no combination would ever fit.
        for byte in bytes.iter_mut().skip(3) {
            *byte %= if random.below(4) == 0 { 255 } else { 6 };
        }
        let _ = decode_anything(&bytes);
        let _ = replicas[round % Kind::ALL.len()].replay_anything(&bytes);
    }
}

/// Pieces that are cut out, repeated and moved: the parts are valid, the whole is not.
#[test]
fn payloads_with_moved_pieces_are_taken_or_refused() {
    let mut random = Random::new(6);
    for kind in Kind::ALL {
        for seed in 1..=20 {
            let (mut replica, change) = Replica::new(kind, seed);
            let whole = encoded(&random.resource(kind));
            for _ in 0..300 {
                let _ = decode_anything(&with_moved_pieces(&mut random, &whole));
                let _ = replica.replay_anything(&with_moved_pieces(&mut random, &change));
            }
        }
    }
}

fn with_moved_pieces(random: &mut Random, payload: &[u8]) -> Vec<u8> {
    let mut payload = payload.to_vec();
    for _ in 0..=random.below(3) {
        let (from, to) = (random.len(payload.len()), random.len(payload.len()));
        let piece = payload[from..].iter().take(random.len(40)).copied().collect::<Vec<u8>>();
        let cut = random.len(piece.len()).min(payload.len() - to);
        payload.splice(to..to + cut, piece);
    }
    // The position of the numbers of members.
    if let Some(byte) = payload.get_mut(3 + random.len(8)) {
        *byte = byte.wrapping_add(random.byte() % 3);
    }
    payload
}

#[test]
fn another_level_or_flag_is_refused() {
    for kind in Kind::ALL {
        let mut payload = encoded(&Random::new(6).resource(kind));
        payload[0] = 0;
        assert_eq!(decode_anything(&payload).err(), Some(DecodeError::Damaged), "no such level");
        for level in 3..=255 {
            payload[0] = level;
            assert_eq!(decode_anything(&payload).err(), Some(DecodeError::LaterLevel(level)));
        }
        payload[0] = 1;
        assert!(decode_anything(&payload).is_ok());
        payload[1] = 1;
        assert!(decode_anything(&payload).is_ok(), "the state after a grant is a state");
        for flags in 2..=255 {
            payload[1] = flags;
            let error = decode_anything(&payload).err();
            // Requests would come before the state; the bytes there may be none.
            let is_damaged = flags < 8 && flags & 4 != 0 && error == Some(DecodeError::Damaged);
            assert!(is_damaged || error == Some(DecodeError::Impossible), "{flags}: {error:?}");
        }
    }
    assert_eq!(decode_anything(&[]).err(), Some(DecodeError::Damaged));
    assert_eq!(decode_anything(&[1]).err(), Some(DecodeError::Damaged));
}

/// A length beyond the payload is refused before anything is allocated for it. Texts are borrowed from the payload, and
/// copied only after they have passed; members are read one by one. Otherwise these payloads would ask for up to 2^64
/// members.
#[test]
fn a_claimed_length_allocates_nothing() {
    // bincode writes 2^32 and 2^64 lengths as a tag and four or eight bytes.
    let lengths: [&[u8]; 5] = [
        &[251, 255, 255],
        &[252, 255, 255, 255, 255],
        &[252, 255, 255, 255, 127],
        &[253, 255, 255, 255, 255, 255, 255, 255, 255],
        &[253, 0, 0, 0, 0, 0, 1, 0, 0],
    ];
    for kind in Kind::ALL {
        let payload = encoded(&Random::new(7).resource(kind));
        let (mut replica, change) = Replica::new(kind, 7);
        for length in lengths {
            for at in 2..payload.len() {
                let claimed = [&payload[..at], length, &payload[at + 1..]].concat();
                let _ = decode_anything(&claimed);
            }
            for at in 2..change.len() {
                let claimed = [&change[..at], length, &change[at + 1..]].concat();
                let _ = replica.replay_anything(&claimed);
            }
        }
    }
}
