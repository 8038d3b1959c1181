//! The one encoding of durable state: for replicas and the AOF (`DLOCK.APPLY key payload`), RDB
//! files, DUMP and AOF rewrite.
//!
//! A record carries the state that an operation led to, not the operation: replaying it needs no
//! clock and no rule, replaying it twice does no harm, and a replica cannot drift. Of keys with
//! many members (places, readers, permits, request ids) the record of a *step* carries those that
//! changed, in full or as gone; a *whole* state carries all of them.
//!
//! A payload is one byte of version, one of flags, and bincode: a state that says how many members
//! follow, then these, one after the other. Decoding borrows from the payload and takes what is
//! there member by member, so a damaged or hostile one can make it fail, but not make it allocate
//! more than in proportion to its own length.

mod digest;
mod format;
mod input;
mod output;

pub use digest::digest;

use crate::lease::NO_ENTRY;
use crate::resource::{Body, Kind, Resource};
use crate::time::{Instant, LeaseInstant};
use alloc::vec::Vec;
use bincode::config::{self, Configuration};
use input::Input;

/// The version of the encoding that this code writes.
pub const VERSION: u8 = 1;

const CONFIG: Configuration = config::standard();

/// In the second byte: the hold is a new one, so a time to live that somebody set on the key goes.
const GRANTED: u8 = 1;

/// In the second byte: what follows changes the state that is there, instead of replacing it.
const STEP: u8 = 2;

/// Why a payload was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DecodeError {
    /// It was written by a version of dlock that this one does not know.
    UnknownVersion(u8),
    /// It is truncated, damaged, or not one of ours.
    Damaged,
    /// It decodes, but says something that cannot be (a length, number or text out of range), or
    /// cannot be here (a step where a whole state is needed, or one of another family).
    Impossible,
}

/// What a replayed payload was about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Replayed {
    /// The step granted the resource to a new owner.
    pub granted: bool,
    /// The largest fencing token in the payload; 0 if there is none.
    pub token: u64,
}

/// What the clocks show: times in a payload are relative to it.
#[derive(Debug, Clone, Copy)]
struct Clocks {
    mono: Instant,
    lease: LeaseInstant,
}

fn check(holds: bool) -> Result<(), DecodeError> {
    if holds { Ok(()) } else { Err(DecodeError::Impossible) }
}

/// Appends the payload for `resource` as it is at the given moment: the whole state.
pub fn encode(resource: &Resource, mono: Instant, lease: LeaseInstant, out: &mut Vec<u8>) {
    write(resource, Clocks { mono, lease }, 0, out);
}

/// Appends the payload for a step that may have `granted` the resource to a new owner: what
/// changed since the last one. What changed counts as told then.
pub fn encode_step(
    resource: &mut Resource,
    mono: Instant,
    lease: LeaseInstant,
    granted: bool,
    out: &mut Vec<u8>,
) {
    let (now, flags) = (Clocks { mono, lease }, granted_flag(granted));
    match &mut resource.body {
        // It is told as a whole, and there are more of it than of all others.
        Body::Lock(_) => return write(resource, now, flags, out),
        Body::Fair(fair) => {
            fair.touched.sort_unstable();
            fair.touched.dedup();
        }
        Body::Latch(latch) => {
            latch.requests_new.sort_unstable();
            latch.requests_new.dedup();
        }
        Body::Rw(_) | Body::Semaphore(_) => {}
    }
    write(resource, now, flags | STEP, out);
    settle(resource);
}

/// [`encode_step`] with the whole state: for a step that changed what is only ever added to (a
/// request id was forgotten).
pub fn encode_whole_step(
    resource: &mut Resource,
    mono: Instant,
    lease: LeaseInstant,
    granted: bool,
    out: &mut Vec<u8>,
) {
    write(resource, Clocks { mono, lease }, granted_flag(granted), out);
    settle(resource);
}

fn granted_flag(granted: bool) -> u8 {
    if granted { GRANTED } else { 0 }
}

fn write(resource: &Resource, now: Clocks, flags: u8, out: &mut Vec<u8>) {
    // What is not entered has not begun to run: its deadline is what is left.
    let lease = if resource.entry == NO_ENTRY { LeaseInstant(0) } else { now.lease };
    let now = Clocks { lease, ..now };
    let start = out.len();
    let written = output::write(resource, now, flags, out);
    // Neither the output nor these types can fail; a half-written payload must not leave, though.
    debug_assert!(written.is_ok());
    if written.is_err() {
        out.truncate(start);
    }
}

/// Nothing has changed since the last record.
fn settle(resource: &mut Resource) {
    match &mut resource.body {
        Body::Lock(_) => {}
        Body::Fair(fair) => {
            fair.touched.clear();
            fair.touched.shrink_to(8);
        }
        Body::Rw(rw) => rw.readers.settle(),
        Body::Semaphore(semaphore) => {
            semaphore.permits.settle();
            semaphore.answers_new = 0;
        }
        Body::Latch(latch) => {
            latch.requests_new.clear();
            latch.requests_new.shrink_to(8);
        }
    }
}

/// Reads the payload of a whole state; that of a step is impossible. The resource is not entered:
/// its deadlines are what was left, counted from 0.
pub fn decode(payload: &[u8], mono: Instant) -> Result<Resource, DecodeError> {
    let (input, flags) = Input::open(payload, Clocks { mono, lease: LeaseInstant(0) })?;
    check(flags & STEP == 0)?;
    let mut resource = Resource::free(Kind::Lock);
    input.carry_out(&mut resource, false)?;
    settle(&mut resource);
    Ok(resource)
}

/// Carries out a payload on what the key holds: a whole state takes its place, a step changes it.
/// Without a key (`is_there` is false) `current` is replaced, whatever it is, and a step begins
/// with a free one. The entry stays; deadlines are what was left, counted from `lease`.
///
/// A payload of another family than the key's is impossible. Nothing is changed when it fails.
pub fn replay(
    payload: &[u8],
    mono: Instant,
    lease: LeaseInstant,
    current: &mut Resource,
    is_there: bool,
) -> Result<Replayed, DecodeError> {
    let (input, flags) = Input::open(payload, Clocks { mono, lease })?;
    let token = input.carry_out(current, is_there)?;
    settle(current);
    Ok(Replayed { granted: flags & GRANTED != 0, token })
}
