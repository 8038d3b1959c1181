//! The levels of payloads: the bytes of each, and what a reader of the one does with the other.

use super::random::Random;
use super::{CLOCKS, NOW, encoded, shown};
use dlock_core::base::kind::Kind;
use dlock_core::record::divergence::{Divergence, Refused};
use dlock_core::record::{
    self, DecodeError, Keyless, Level, Standing, StepInfo, encode_floor, encode_mark, keyless,
};
use dlock_core::value::resource::Resource;

/// A part that no version knows: tag 300, three bytes.
const PART: &[u8] = b"\xfb\x2c\x01\x03abc";

/// The second one is that of the tests.
const SECOND: Level = Level::LATEST;

#[test]
fn the_levels_are_these() {
    assert_eq!([Level::FIRST, SECOND].map(Level::number), [1, 2]);
    assert_eq!([0, 1, 2, 3].map(Level::new), [None, Some(Level::FIRST), Some(SECOND), None]);
    assert_eq!(Level::of(b""), Err(DecodeError::Damaged));
    assert_eq!(Level::of(b"\0"), Err(DecodeError::Damaged));
    assert_eq!(Level::of(b"\x01"), Ok(Level::FIRST));
    assert_eq!(Level::of(b"\x09"), Err(DecodeError::LaterLevel(9)));
}

#[test]
fn a_payload_begins_with_its_level_and_a_reader_skips_parts_at_its_end() {
    for seed in 0..200 {
        for kind in Kind::ALL {
            let resource = Random::new(seed).resource(kind);
            let first = encoded(&resource);
            assert_eq!(first[0], 1);
            let mut second = Vec::new();
            record::encode(&resource, CLOCKS, SECOND, &mut second);
            assert_eq!((second[0], &second[1..]), (2, &first[1..]));
            let there = shown(&record::decode(&first, NOW).expect("our own"));
            for (payload, parts) in [(&first, 0), (&first, 1), (&first, 2), (&second, 1)] {
                let payload = [&payload[..], &PART.repeat(parts)].concat();
                let read = record::decode(&payload, NOW).expect("parts are skipped");
                assert_eq!(shown(&read), there, "{parts} parts");
            }
            for cut in 1..PART.len() {
                let payload = [&first[..], &PART[..cut]].concat();
                let error = record::decode(&payload, NOW).err();
                assert_eq!(error, Some(DecodeError::Damaged), "a part cut at {cut}");
            }
        }
    }
}

#[test]
fn a_step_can_have_parts() {
    for kind in [Kind::Fair, Kind::Rw, Kind::Semaphore, Kind::Latch] {
        let mut primary = Random::new(3).resource(kind);
        let mut replica = record::decode(&encoded(&primary), NOW).expect("our own");
        let before = shown(&replica);
        let mut payload = Vec::new();
        record::encode_step(&mut primary, CLOCKS, SECOND, &StepInfo::default(), &mut payload);
        payload.extend_from_slice(PART);
        let mut refused = payload.clone();
        refused[0] = 3;
        let lease = CLOCKS.lease;
        let replayed = record::replay(&refused, NOW, lease, &mut replica, true);
        assert_eq!(replayed, Err(DecodeError::LaterLevel(3)));
        assert_eq!(shown(&replica), before, "nothing is changed when it fails");
        record::replay(&payload, NOW, lease, &mut replica, true).expect("parts are skipped");
        assert!(
            record::replay(&payload[..payload.len() - 1], NOW, lease, &mut replica, true).is_err()
        );
    }
}

#[test]
fn a_record_of_the_level_needs_no_token() {
    let payload = encode_floor(0, SECOND);
    assert_eq!(payload, b"\x02\x08\0\0\0\0\0\0\0\0");
    assert_eq!(keyless(&payload), Ok(Some(Keyless::Floor(0, SECOND))));
    let longer = [&payload[..], PART].concat();
    assert_eq!(keyless(&longer), Ok(Some(Keyless::Floor(0, SECOND))));
    assert_eq!(keyless(&longer[..longer.len() - 1]), Err(DecodeError::Damaged));
    assert_eq!(keyless(b"\x03\x08"), Err(DecodeError::LaterLevel(3)), "its content is unknown");
    assert_eq!(keyless(b"\x03\x10\x00"), Err(DecodeError::LaterLevel(3)));
}

const REFUSED: Refused = Refused { later: 0x0102, damaged: 3, level: 9 };

#[test]
fn a_mark_says_what_was_refused() {
    let payload = encode_mark(REFUSED);
    assert_eq!(payload, b"\x01\x10\x02\x01\0\0\0\0\0\0\x03\0\0\0\0\0\0\0\x09");
    assert_eq!(keyless(&payload), Ok(Some(Keyless::Mark(REFUSED))));
    assert_eq!(keyless(&[&payload[..], PART].concat()), Ok(Some(Keyless::Mark(REFUSED))));
    for cut in 2..payload.len() {
        assert_eq!(keyless(&payload[..cut]), Err(DecodeError::Damaged));
    }
    assert!(record::decode(&payload, NOW).is_err());
}

#[test]
fn the_data_beside_the_keys_says_how_it_stands() {
    let divergence =
        Divergence { inherited: REFUSED, own: Refused { later: 0, damaged: 1, level: 0 } };
    for (level, divergence) in [(SECOND, Divergence::default()), (Level::FIRST, divergence)] {
        let standing = Standing { level, divergence };
        let strings = super::beside::saved_with(7, standing);
        let head = &strings[0];
        assert_eq!((strings.len(), head.len()), (1, 67));
        assert_eq!((head[0], head[1]), (level.number(), 7));
        let loaded = super::beside::loaded_at_once(&strings).expect("our own");
        assert_eq!((loaded.token, loaded.standing), (7, standing));
        // A later writer may add parts.
        let longer = vec![[&head[..], PART].concat()];
        let loaded = super::beside::loaded_at_once(&longer).expect("parts are skipped");
        assert_eq!(loaded.standing, standing);
        for cut in 0..head.len() {
            let error = super::beside::loaded_at_once(&[head[..cut].to_vec()]).err();
            assert_eq!(error, Some(DecodeError::Damaged), "cut at {cut}");
        }
        let mut later = head.clone();
        later[0] = 3;
        let error = super::beside::loaded_at_once(&[later]).err();
        assert_eq!(error, Some(DecodeError::LaterLevel(3)));
    }
}

/// Every later version must read what was written once: these payloads must not change.
#[test]
fn a_free_key_has_one_encoding_per_level() {
    for (payload, is_read) in [(&b"\x01\0\0"[..], true), (b"\x02\0\0", true), (b"\x03\0\0", false)]
    {
        let read = record::decode(payload, NOW);
        assert_eq!(read.is_ok_and(|value: Resource| value.is_free()), is_read);
    }
}
