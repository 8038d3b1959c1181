//! The memory of requests against a plain list.

use super::*;
use alloc::collections::BTreeMap;
use alloc::format;

const LIMITS: Limits = Limits { keep_ms: 10, most: 1_000_000 };

fn key(name: &[u8]) -> Key<'_> {
    Key { db: 0, name }
}

fn named<'a>(owner: &'a [u8], id: &'a [u8]) -> RequestKey<'a> {
    RequestKey { scope: Scope::Lock, owner, id }
}

fn at(ms: u64) -> LeaseInstant {
    LeaseInstant(0) + ms
}

#[test]
fn an_entry_is_as_small_as_the_memory_account_assumes() {
    assert_eq!(size_of::<Entry>(), 40);
}

#[test]
fn a_request_is_known_by_all_that_names_it() {
    let mut spent = SpentRequests::new(HashKeys(1, 2));
    spent.note(key(b"k"), named(b"A", b"r1"), Use::Released(3), at(0), LIMITS);
    let find = |key, request| spent.find(key, request, at(9), LIMITS);
    assert_eq!(find(key(b"k"), named(b"A", b"r1")), Some(Use::Released(3)));
    assert_eq!(find(key(b"l"), named(b"A", b"r1")), None);
    assert_eq!(find(Key { db: 1, name: b"k" }, named(b"A", b"r1")), None);
    assert_eq!(find(key(b"k"), named(b"B", b"r1")), None);
    assert_eq!(find(key(b"k"), named(b"A", b"r2")), None);
    assert_eq!(find(key(b"kA"), named(b"", b"r1")), None);
    let fair = RequestKey { scope: Scope::Fair, ..named(b"A", b"r1") };
    assert_eq!(find(key(b"k"), fair), None);
}

#[test]
fn an_overdue_request_is_not_known_though_nobody_has_dropped_it() {
    let mut spent = SpentRequests::new(HashKeys(1, 2));
    spent.note(key(b"k"), named(b"A", b"r1"), Use::Waited, at(5), LIMITS);
    assert_eq!(spent.find(key(b"k"), named(b"A", b"r1"), at(14), LIMITS), Some(Use::Waited));
    assert_eq!(spent.find(key(b"k"), named(b"A", b"r1"), at(15), LIMITS), None);
    assert_eq!((spent.len(), spent.known(at(15), LIMITS)), (1, 0));
    assert_eq!(spent.next_end(LIMITS), Some(at(15)));
    assert!(!spent.drop_overdue(at(14), LIMITS, 8));
    assert!(spent.drop_overdue(at(15), LIMITS, 8));
    assert!(spent.is_empty());
    assert_eq!(spent.next_end(LIMITS), None);
}

#[test]
fn the_oldest_are_dropped_first() {
    let mut spent = SpentRequests::new(HashKeys(1, 2));
    let few = Limits { most: 3, ..LIMITS };
    for n in 0..5u8 {
        spent.note(key(b"k"), named(b"A", &[n]), Use::Waited, at(0), few);
    }
    let known = |n: u8| spent.find(key(b"k"), named(b"A", &[n]), at(0), few).is_some();
    assert_eq!([0, 1, 2, 3, 4].map(known), [false, false, true, true, true]);
    let mut spent = SpentRequests::new(HashKeys(1, 2));
    for limits in [Limits { most: 0, ..LIMITS }, Limits { keep_ms: 0, ..LIMITS }] {
        spent.note(key(b"k"), named(b"A", b"r1"), Use::Waited, at(0), limits);
        assert!(spent.is_empty());
    }
}

/// Compares with a plain map, through growth, loss, lowered limits and numbers that wrap.
#[test]
fn it_knows_what_a_plain_map_knows() {
    let mut spent = SpentRequests::new(HashKeys(1, 2));
    spent.log.base = u32::MAX - 3_000;
    let mut plain: BTreeMap<u64, (u64, Use)> = BTreeMap::new();
    let mut random = 1_u64;
    for now in 0..40_000_u64 {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let keep_ms = if now < 30_000 { 4_000 } else { 50 };
        let limits = Limits { keep_ms, most: 1 << 20 };
        let number = (random >> 33) % 5_000;
        let id = format!("{number}");
        let request = named(b"A", id.as_bytes());
        if random >> 60 == 0 {
            spent.forget(key(b"k"), request);
            plain.remove(&number);
        } else if random >> 60 < 8 {
            let what = Use::Released(u32::try_from(now).unwrap());
            spent.note(key(b"k"), request, what, at(now), limits);
            plain.insert(number, (now, what));
        }
        let expected = plain.get(&number).filter(|(noted, _)| noted + limits.keep_ms > now);
        let found = spent.find(key(b"k"), request, at(now), limits);
        assert_eq!(found, expected.map(|&(_, what)| what), "{number} at {now}");
        if now % 3 == 0 {
            spent.drop_overdue(at(now), limits, 4);
        }
        if now % 1_000 == 0 {
            let expected = plain.values().filter(|(noted, _)| noted + limits.keep_ms > now);
            assert_eq!(spent.known(at(now), limits), expected.count());
        }
    }
    while spent.drop_overdue(at(100_000), LIMITS, 100) {}
    assert_eq!((spent.len(), spent.log.slots()), (0, 0));
}
