//! The data saved beside the keys: the largest fencing token, and the requests that are over.
//!
//! It is a sequence of strings, so that neither side has all of it in memory at once. The first one has the record
//! level, the token, the two keys of the fingerprints, the number of requests, and what the server could not read, all
//! little-endian, and then parts that a reader may skip. Each further string holds one request or more, oldest first,
//! in bincode: fingerprint, age, and what the request did.

use super::{CONFIG, Clocks, DecodeError, Level, check};
use crate::base::hash::HashKeys;
use crate::base::shares::User;
use crate::base::time::{Instant, LeaseInstant, Millis};
use crate::record::divergence::Divergence;
use crate::record::input::Input;
use crate::record::keyless::{read_refused, write_refused};
use crate::record::output::Sink;
use crate::value::spent::{Limits, Print, SpentRequests, Use};
use alloc::vec::Vec;
use dlock_wire::names;
use serde::{Deserialize, Serialize};

/// Bytes of the first string, at most.
const HEAD: usize = 67;

/// How the data of a server stands.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Standing {
    /// The level in force.
    pub level: Level,
    /// What is missing.
    pub divergence: Divergence,
}

/// Requests in one string: some 20 kB.
const PER_RECORD: u64 = 1_024;

/// A request that is over.
#[derive(Debug, Serialize, Deserialize)]
struct EntryV1 {
    print: [u8; 16],
    age_ms: Millis,
    what: Use,
}

/// Gives `put` the strings for `head` and for the requests known at `now`, one after the other.
pub fn encode_beside(
    head: BesideHead,
    spent: &SpentRequests,
    now: LeaseInstant,
    limits: Limits,
    put: impl FnMut(&[u8]),
) {
    encode_beside_and(head, spent, &[], now, limits, put);
}

/// What is saved besides requests.
#[derive(Debug, Clone, Copy)]
pub struct BesideHead {
    /// The largest fencing token.
    pub token: u64,
    /// How the data stands.
    pub standing: Standing,
}

/// [`encode_beside`], with the requests in `more`, which are over at this moment.
pub(crate) fn encode_beside_and(
    BesideHead { token, standing }: BesideHead,
    spent: &SpentRequests,
    more: &[(Print, Use)],
    now: LeaseInstant,
    limits: Limits,
    mut put: impl FnMut(&[u8]),
) {
    let entries = || {
        let more = more.iter().map(|&(print, what)| (print, 0, what));
        spent.entries(now, limits).chain(more)
    };
    // Counted first: the number comes before the entries.
    let count = entries().count() as u64;
    let keys = spent.keys();
    let mut piece = Vec::with_capacity(HEAD);
    piece.push(standing.level.number());
    for number in [token, keys.0, keys.1, count] {
        piece.extend_from_slice(&number.to_le_bytes());
    }
    write_refused(standing.divergence.inherited, &mut piece);
    write_refused(standing.divergence.own, &mut piece);
    put(&piece);
    piece.clear();
    for (number, ([one, other], age_ms, what)) in (1..).zip(entries()) {
        let mut print = [0; 16];
        print[..8].copy_from_slice(&one.to_le_bytes());
        print[8..].copy_from_slice(&other.to_le_bytes());
        let entry = EntryV1 { print, age_ms, what };
        // Neither the output nor these types can fail. If they did, the reader would miss one and refuse all.
        let written = bincode::serde::encode_into_writer(&entry, Sink(&mut piece), CONFIG);
        debug_assert!(written.is_ok());
        if number % PER_RECORD == 0 || number == count {
            put(&piece);
            piece.clear();
        }
    }
}

/// The data saved beside the keys.
#[derive(Debug)]
pub struct Beside {
    /// The largest fencing token.
    pub token: u64,
    /// The requests that are over.
    pub spent: SpentRequests,
    /// How the data stands.
    pub standing: Standing,
}

/// Reads the output of [`encode_beside`], string by string. It has no effect before all of it is read.
#[derive(Debug)]
pub struct BesideInput {
    token: u64,
    spent: SpentRequests,
    standing: Standing,
    /// Number of requests still to come.
    left: u64,
    /// Age of the last one.
    age_ms: Millis,
    now: LeaseInstant,
    limits: Limits,
}

impl BesideInput {
    /// Reads the first string. The ages of requests count back from `now`.
    pub fn open(head: &[u8], now: LeaseInstant, limits: Limits) -> Result<Self, DecodeError> {
        let level = Level::of(head)?;
        let (numbers, rest) = head
            .get(1..)
            .and_then(|rest| rest.split_first_chunk::<32>())
            .ok_or(DecodeError::Damaged)?;
        let (&[token, one, other, count], []) = numbers.as_chunks() else {
            return Err(DecodeError::Damaged);
        };
        let (inherited, rest) = read_refused(rest)?;
        let (own, rest) = read_refused(rest)?;
        Input::of(rest, Clocks { mono: Instant(0), lease: now }).end()?;
        let token = u64::from_le_bytes(token);
        check(token <= names::TOKEN_MAX)?;
        Ok(Self {
            token,
            spent: SpentRequests::new(HashKeys(u64::from_le_bytes(one), u64::from_le_bytes(other))),
            standing: Standing { level, divergence: Divergence { inherited, own } },
            left: u64::from_le_bytes(count),
            age_ms: Millis::MAX,
            now,
            limits,
        })
    }

    /// Whether another string is to come.
    pub fn wants_more(&self) -> bool {
        self.left > 0
    }

    /// Reads the next string.
    pub fn read(&mut self, mut piece: &[u8]) -> Result<(), DecodeError> {
        // Each string must contain data, so that reading ends.
        check(!piece.is_empty())?;
        while !piece.is_empty() {
            let read = bincode::serde::decode_from_slice::<EntryV1, _>(piece, CONFIG);
            let (EntryV1 { print, age_ms, what }, len) = read.map_err(|_| DecodeError::Damaged)?;
            piece = piece.get(len..).unwrap_or_default();
            check(self.left > 0)?;
            self.left -= 1;
            // After a pause the lease clock can show a little less, so a request may seem older than the one before.
            // Accept such a file: refusing it would lose the whole data set.
            self.age_ms = self.age_ms.min(age_ms);
            let age_ms = self.age_ms;
            let print = u128::from_le_bytes(print);
            // The two halves.
            #[allow(clippy::cast_possible_truncation)]
            let print = [print as u64, (print >> 64) as u64];
            let at = self.now.0.saturating_sub(age_ms.saturating_mul(1_000));
            self.spent.put(User::UNKNOWN, print, what, LeaseInstant(at), self.limits);
        }
        Ok(())
    }

    /// The complete data, or an error if a part is missing.
    pub fn finish(self) -> Result<Beside, DecodeError> {
        let Self { token, spent, standing, left, .. } = self;
        if left == 0 { Ok(Beside { token, spent, standing }) } else { Err(DecodeError::Damaged) }
    }
}
