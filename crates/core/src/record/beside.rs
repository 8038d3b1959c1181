//! The data saved beside the keys: the largest fencing token, and the requests that are over.
//!
//! It is a sequence of strings, so that neither side has all of it in memory at once. Without requests there is one
//! string, the token in 8 bytes. With requests the first one has 33 bytes: 1, token, the two keys of the fingerprints,
//! and the number of requests, all little-endian. From level 2 on, and on a diverged server, it begins with 2; after
//! the number of requests come the record level and what the server could not read, and then parts that a reader may
//! skip. Each further string holds one request or more, oldest first, in bincode: fingerprint, age, and what the
//! request did.

use super::{CONFIG, Clocks, DecodeError, Level, check};
use crate::base::hash::HashKeys;
use crate::base::shares::User;
use crate::base::time::{Instant, LeaseInstant, Millis};
use crate::record::divergence::Divergence;
use crate::record::format::UseV1;
use crate::record::input::Input;
use crate::record::keyless::{read_refused, write_refused};
use crate::record::output::Sink;
use crate::value::spent::{Limits, Print, SpentRequests, Use};
use alloc::vec::Vec;
use dlock_wire::names;
use serde::{Deserialize, Serialize};

/// Bytes of the first string, at most.
const HEAD: usize = 68;

/// How the data of a server stands.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Standing {
    /// The level in force.
    pub level: Level,
    /// What is missing.
    pub divergence: Divergence,
}

impl Standing {
    /// Whether a reader of the first level needs to know nothing of it.
    fn is_plain(self) -> bool {
        self.level == Level::FIRST && !self.divergence.is_any()
    }
}

/// Requests in one string: some 20 kB.
const PER_RECORD: u64 = 1_024;

/// A request that is over.
#[derive(Debug, Serialize, Deserialize)]
struct EntryV1 {
    print: [u8; 16],
    age_ms: Millis,
    what: UseV1,
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
    if count == 0 && standing.is_plain() {
        return put(&token.to_le_bytes());
    }
    let keys = spent.keys();
    let mut piece = Vec::with_capacity(HEAD);
    piece.push(if standing.is_plain() { Level::FIRST } else { Level::PARTS }.number());
    for number in [token, keys.0, keys.1, count] {
        piece.extend_from_slice(&number.to_le_bytes());
    }
    if !standing.is_plain() {
        piece.push(standing.level.number());
        write_refused(standing.divergence.inherited, &mut piece);
        write_refused(standing.divergence.own, &mut piece);
    }
    put(&piece);
    piece.clear();
    for (number, ([one, other], age_ms, what)) in (1..).zip(entries()) {
        let mut print = [0; 16];
        print[..8].copy_from_slice(&one.to_le_bytes());
        print[8..].copy_from_slice(&other.to_le_bytes());
        let entry = EntryV1 { print, age_ms, what: UseV1::of(Some(what)) };
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
    /// The requests that are over; `None` if the data has none.
    pub spent: Option<SpentRequests>,
    /// How the data stands.
    pub standing: Standing,
}

/// Reads the output of [`encode_beside`], string by string. It has no effect before all of it is read.
#[derive(Debug)]
pub struct BesideInput {
    token: u64,
    spent: Option<SpentRequests>,
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
        let mut input = Self {
            token: 0,
            spent: None,
            standing: Standing::default(),
            left: 0,
            age_ms: Millis::MAX,
            now,
            limits,
        };
        if let Ok(token) = head.try_into() {
            input.token = u64::from_le_bytes(token);
        } else {
            let level = Level::of(head)?;
            let (numbers, rest) = head
                .get(1..)
                .and_then(|rest| rest.split_first_chunk::<32>())
                .ok_or(DecodeError::Damaged)?;
            let (&[token, one, other, count], []) = numbers.as_chunks() else {
                return Err(DecodeError::Damaged);
            };
            let rest = if level >= Level::PARTS { input.read_standing(rest)? } else { rest };
            let clocks = Clocks { mono: Instant(0), lease: now };
            Input::of(rest, level, clocks).end()?;
            let keys = HashKeys(u64::from_le_bytes(one), u64::from_le_bytes(other));
            input.token = u64::from_le_bytes(token);
            input.left = u64::from_le_bytes(count);
            input.spent = Some(SpentRequests::new(keys));
        }
        check(input.token <= names::TOKEN_MAX)?;
        Ok(input)
    }

    /// Reads how the data stands, and returns the rest.
    fn read_standing<'a>(&mut self, bytes: &'a [u8]) -> Result<&'a [u8], DecodeError> {
        let (&level, rest) = bytes.split_first().ok_or(DecodeError::Damaged)?;
        self.standing.level = Level::of_byte(level)?;
        let (inherited, rest) = read_refused(rest)?;
        let (own, rest) = read_refused(rest)?;
        self.standing.divergence = Divergence { inherited, own };
        Ok(rest)
    }

    /// Whether another string is to come.
    pub fn wants_more(&self) -> bool {
        self.left > 0
    }

    /// Reads the next string.
    pub fn read(&mut self, mut piece: &[u8]) -> Result<(), DecodeError> {
        let spent = self.spent.as_mut().ok_or(DecodeError::Impossible)?;
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
            let what = what.restore().ok_or(DecodeError::Impossible)?;
            let print = u128::from_le_bytes(print);
            // The two halves.
            #[allow(clippy::cast_possible_truncation)]
            let print = [print as u64, (print >> 64) as u64];
            let at = self.now.0.saturating_sub(age_ms.saturating_mul(1_000));
            spent.put(User::UNKNOWN, print, what, LeaseInstant(at), self.limits);
        }
        Ok(())
    }

    /// The complete data, or an error if a part is missing.
    pub fn finish(self) -> Result<Beside, DecodeError> {
        let Self { token, spent, standing, left, .. } = self;
        if left == 0 { Ok(Beside { token, spent, standing }) } else { Err(DecodeError::Damaged) }
    }
}
