//! The data saved beside the keys: the largest token, and the requests that are over.

use super::random::Random;
use dlock_core::base::hash::HashKeys;
use dlock_core::base::key::Key;
use dlock_core::base::time::LeaseInstant;
use dlock_core::record::{
    self, Beside, BesideHead, BesideInput, DecodeError, Keyless, Level, Standing, encode_beside,
    encode_floor, keyless,
};
use dlock_core::value::spent::{Limits, Loss, RequestKey, Scope, SpentRequests, Use};
use dlock_wire::names::TOKEN_MAX;

const LIMITS: Limits = Limits { keep_ms: 60_000, most: 1_000_000 };

const USES: [Use; 9] = [
    Use::Lost(Loss::Expired),
    Use::Waited,
    Use::Released(u32::MAX),
    Use::Unknown,
    Use::Taken(2),
    Use::Given(3),
    Use::Drained(0),
    Use::ResizedTo(4),
    Use::ResizedBy(i32::MIN),
];

fn at(ms: u64) -> LeaseInstant {
    LeaseInstant(0) + ms
}

/// The key and the names of request number `n` of a test.
fn named(n: usize) -> (Vec<u8>, Scope, Vec<u8>, Vec<u8>) {
    let scope = Scope::ALL[n % Scope::ALL.len()];
    (format!("key{}", n % 7).into(), scope, format!("owner{}", n % 3).into(), n.to_string().into())
}

fn note(spent: &mut SpentRequests, n: usize, what: Use, now: LeaseInstant) {
    let (key, scope, owner, id) = named(n);
    let request = RequestKey { scope, owner: &owner, id: &id };
    spent.note(Key { db: 1, name: &key }, request, what, now, LIMITS);
}

fn find(spent: &SpentRequests, n: usize, now: LeaseInstant) -> Option<Use> {
    let (key, scope, owner, id) = named(n);
    let request = RequestKey { scope, owner: &owner, id: &id };
    spent.find(Key { db: 1, name: &key }, request, now, LIMITS)
}

fn saved(token: u64, spent: &SpentRequests, now: LeaseInstant) -> Vec<Vec<u8>> {
    let mut strings = Vec::new();
    let head = BesideHead { token, standing: Standing::default() };
    encode_beside(head, spent, now, LIMITS, |string| strings.push(string.to_vec()));
    strings
}

/// What is saved without requests.
pub(super) fn saved_with(token: u64, standing: Standing) -> Vec<Vec<u8>> {
    let (mut strings, spent) = (Vec::new(), SpentRequests::new(HashKeys(1, 2)));
    let head = BesideHead { token, standing };
    encode_beside(head, &spent, at(0), LIMITS, |string| strings.push(string.to_vec()));
    strings
}

pub(super) fn loaded_at_once(strings: &[Vec<u8>]) -> Result<Beside, DecodeError> {
    loaded(strings, at(0), LIMITS)
}

fn loaded(strings: &[Vec<u8>], now: LeaseInstant, limits: Limits) -> Result<Beside, DecodeError> {
    let (head, pieces) = strings.split_first().ok_or(DecodeError::Damaged)?;
    let mut input = BesideInput::open(head, now, limits)?;
    for piece in pieces {
        if !input.wants_more() {
            return Err(DecodeError::Damaged);
        }
        input.read(piece)?;
    }
    input.finish()
}

#[test]
fn what_is_over_is_known_to_another_process_for_as_long() {
    let mut spent = SpentRequests::new(HashKeys(11, 22));
    for n in 0..5_000 {
        note(&mut spent, n, USES[n % USES.len()], at(n as u64));
    }
    // The first 1,000 are forgotten.
    let saved = saved(77, &spent, at(61_000));
    assert!(saved.len() > 3 && saved.iter().all(|string| string.len() < 64 << 10));
    assert!(saved.iter().map(Vec::len).sum::<usize>() < 4_000 * 28, "some 20 bytes for each");
    // Its clock shows another time; only ages count.
    let Beside { token, spent: mut again, .. } =
        loaded(&saved, at(1_061_000), LIMITS).expect("our own");
    assert_eq!((token, again.len()), (77, 3_999));
    for n in 0..5_000 {
        let expected = (n > 1_000).then_some(USES[n % USES.len()]);
        assert_eq!(find(&again, n, at(1_061_000)), expected, "{n}");
        let end = at(1_060_000 + n as u64);
        assert_eq!(find(&again, n, end), None, "{n} at its end");
        assert_eq!(find(&again, n, LeaseInstant(end.0 - 1)), expected, "{n} before its end");
    }
    // It continues with these: the same request is found there, and a new one is new.
    note(&mut again, 4_999, Use::Released(9), at(1_061_000));
    note(&mut again, 5_000, Use::Lost(Loss::Expired), at(1_061_000));
    assert_eq!(again.len(), 4_000);
    assert_eq!(find(&again, 4_999, at(1_061_000)), Some(Use::Released(9)));
    while again.drop_overdue(at(2_000_000), LIMITS, 64) {}
    assert!(again.is_empty());
}

#[test]
fn a_process_with_less_memory_keeps_the_newest() {
    let mut spent = SpentRequests::new(HashKeys(11, 22));
    for n in 0..3_000 {
        note(&mut spent, n, Use::Lost(Loss::Expired), at(n as u64));
    }
    let saved = saved(1, &spent, at(3_000));
    let few = Limits { most: 10, ..LIMITS };
    let again = loaded(&saved, at(3_000), few).expect("our own").spent;
    assert_eq!(again.len(), 10);
    assert!((2_990..3_000).all(|n| find(&again, n, at(3_000)).is_some()));
    // A clock that began after they were noted.
    let again = loaded(&saved, at(5), LIMITS).expect("our own").spent;
    assert!((0..3_000).all(|n| find(&again, n, at(59_999)).is_some()));
}

#[test]
fn the_bytes_are_these() {
    let mut spent = SpentRequests::new(HashKeys(1, 2));
    note(&mut spent, 1, Use::Released(3), at(1_000));
    let head = b"\x01\x02\x01\0\0\0\0\0\0\x01\0\0\0\0\0\0\0\x02\0\0\0\0\0\0\0\x01\0\0\0\0\0\0\0";
    let nothing_refused = [0; 2 * 17];
    let print = b"\xF4\xC1\x0A\x27\x1C\x43\xCC\x36\x11\xE2\x8C\x0D\x0C\xC3\x98\xB2";
    let entry = [&print[..], b"\x07", b"\x01\x03"].concat();
    assert_eq!(saved(0x0102, &spent, at(1_007)), [[&head[..], &nothing_refused].concat(), entry]);
}

#[test]
fn damage_is_refused_or_does_no_harm() {
    let mut spent = SpentRequests::new(HashKeys(3, 4));
    for n in 0..1_030 {
        note(&mut spent, n, USES[n % USES.len()], at(n as u64 * 3));
    }
    let whole = saved(5, &spent, at(4_000));
    assert_eq!(whole.len(), 3);
    let failed = |strings: &[Vec<u8>]| loaded(strings, at(9_000), LIMITS).err();
    assert_eq!(failed(&whole), None);
    // Cut, at every string and every byte of the last.
    for strings in 0..3 {
        assert!(failed(&whole[..strings]).is_some(), "{strings} strings");
    }
    for cut in 0..whole[2].len() {
        let strings = [&whole[..2], &[whole[2][..cut].to_vec()]].concat();
        assert!(failed(&strings).is_some(), "cut at {cut}");
    }
    for cut in 0..whole[0].len() {
        let strings = [&[whole[0][..cut].to_vec()], &whole[1..]].concat();
        assert!(failed(&strings).is_some(), "the first cut at {cut}");
    }
    // Too much data.
    assert!(failed(&[&whole[..], &whole[2..]].concat()).is_some());
    assert!(failed(&[&whole[..], &[b"x".to_vec()]].concat()).is_some());
    let changed = |string: usize, at: usize, byte: u8| {
        let mut strings = whole.clone();
        strings[string][at] = byte;
        strings
    };
    assert_eq!(failed(&changed(0, 0, 3)), Some(DecodeError::LaterLevel(3)));
    assert_eq!(failed(&changed(0, 0, 0)), Some(DecodeError::Damaged), "no such level");
    assert_eq!(failed(&changed(0, 7, 0x20)), Some(DecodeError::Impossible), "no such token");
    assert!(failed(&changed(0, 32, 0xFF)).is_some(), "more than memory could hold");
    // The age of the second is larger than that of the first, which a pause can cause: it loads. An unknown use
    // is refused.
    let one = |print: u8, rest: &[u8]| [&[print; 16], rest].concat();
    let head = |count: u8| changed(0, 25, count)[0].clone();
    let mut short = head(2);
    short[26] = 0;
    let two = |a: &[u8], b: &[u8]| vec![short.clone(), [one(1, a), one(2, b)].concat()];
    assert_eq!(failed(&two(b"\x09\x03", b"\x09\x03")), None);
    assert_eq!(failed(&two(b"\x08\x03", b"\x09\x03")), None);
    assert_eq!(failed(&two(b"\x09\x09", b"\x09\x03")), Some(DecodeError::Damaged));
    // The same request twice counts once.
    let twice = vec![short.clone(), [one(1, b"\x09\x02"), one(1, b"\x07\x01\x02")].concat()];
    let again = loaded(&twice, at(9_000), LIMITS).expect("sound").spent;
    assert_eq!(again.len(), 1);
    // Any byte.
    let mut random = Random::new(1);
    for _ in 0..20_000 {
        let string = random.len(2);
        let place = random.len(whole[string].len() - 1);
        let strings = changed(string, place, random.byte());
        if let Ok(beside) = loaded(&strings, at(9_000), LIMITS) {
            let spent = beside.spent;
            assert!(beside.token <= TOKEN_MAX && spent.len() <= 1_030);
        }
    }
}

#[test]
fn a_record_of_a_token_is_about_no_key() {
    let first = |token| encode_floor(token, Level::FIRST);
    let floor = |token, level| Ok(Some(Keyless::Floor(token, level)));
    let payload = first(0x0102);
    assert_eq!(payload, b"\x01\x08\x02\x01\0\0\0\0\0\0");
    assert_eq!(keyless(&payload), floor(0x0102, Level::FIRST));
    assert_eq!(keyless(&first(TOKEN_MAX)), floor(TOKEN_MAX, Level::FIRST));
    assert_eq!(keyless(&first(TOKEN_MAX + 1)), Err(DecodeError::Impossible));
    assert_eq!(keyless(&first(0)), floor(0, Level::FIRST), "none was issued");
    for cut in 2..payload.len() {
        assert_eq!(keyless(&payload[..cut]), Err(DecodeError::Damaged));
    }
    assert_eq!(keyless(&[&payload[..], b"\x01"].concat()), Err(DecodeError::Damaged), "longer");
    // It is not a value, and no other record is one.
    assert!(record::decode(&payload, dlock_core::base::time::Instant(0)).is_err());
    for other in [&b""[..], b"\x01", b"\x01\x00\x00", b"\x02\x00\x00", b"\x03\x00"] {
        assert_eq!(keyless(other), Ok(None));
    }
}
