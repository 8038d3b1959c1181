//! Payloads of RESTORE, RDB files and the replication stream: they are refused and leave no trace, or they are taken
//! and written again as the same value.
//!
//! The input is a sequence of payloads, each behind its length (two bytes, little-endian). All are replayed on one key,
//! in order; each of them is decoded as a whole value, too.
#![no_main]

use dlock_core::base::kind::Kind;
use dlock_core::record::{Clocks, Level, decode, digest, encode, replay};
use dlock_core::value::resource::Resource;
use dlock_core::base::time::{Instant, LeaseInstant};
use libfuzzer_sys::fuzz_target;

const NOW: Instant = Instant(1_000_000_000);
const LEASE: LeaseInstant = LeaseInstant(1_000_000);

fn encoded(resource: &Resource, lease: LeaseInstant) -> Vec<u8> {
    let mut out = Vec::new();
    encode(resource, Clocks { mono: NOW, lease }, Level::FIRST, &mut out);
    out
}

fn decode_one(payload: &[u8]) {
    let Ok(value) = decode(payload, NOW) else { return };
    let written = encoded(&value, LeaseInstant(0));
    let again = decode(&written, NOW).expect("a value that was decoded is encoded and decoded");
    assert_eq!(encoded(&again, LeaseInstant(0)), written);
    assert_eq!(digest(&again), digest(&value));
}

fuzz_target!(|data: &[u8]| {
    let mut rest = data;
    let mut current = Resource::free(Kind::Lock);
    let mut is_there = false;
    while let Some((length, tail)) = rest.split_first_chunk::<2>() {
        let (payload, tail) =
            tail.split_at(usize::from(u16::from_le_bytes(*length)).min(tail.len()));
        rest = tail;
        decode_one(payload);
        let before = encoded(&current, LEASE);
        if replay(payload, NOW, LEASE, &mut current, is_there).is_ok() {
            is_there = !current.is_free();
        } else {
            assert_eq!(encoded(&current, LEASE), before, "a payload that was refused left a trace");
        }
    }
});
