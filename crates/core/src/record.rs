//! The one encoding of durable state: for replicas and the AOF (`DLOCK.APPLY key payload`), RDB files, DUMP and AOF
//! rewrite.
//!
//! A record carries the state after an operation, not the operation. So a replay needs no clock and no rule, a second
//! replay does no harm, and a replica cannot drift. Some keys have many members (queue entries, readers, permits,
//! request ids). For them the record of a *step* carries the changed members, in full or as gone; a *whole* state
//! carries all of them.
//!
//! A payload is one byte of version, one of flags, and bincode: a state with the number of members, then the members
//! one after the other. Decoding borrows from the payload and reads it member by member. So a damaged or hostile
//! payload can make it fail, but its allocation is at most proportional to the length of the payload.

mod beside;
mod digest;
mod format;
mod input;
mod output;

pub(crate) use beside::encode_beside_and;
pub use beside::{Beside, BesideInput, encode_beside};
pub use digest::digest;

use crate::ids::KeyId;
use crate::kind::Kind;
use crate::spent::{RequestKey, Use};
use crate::state::resource::{Body, Resource};
use crate::time::{Instant, LeaseInstant};
use alloc::vec::Vec;
use bincode::config::{self, Configuration};
use dlock_wire::names::TOKEN_MAX;
use input::Input;

/// The version of the encoding that this code writes.
pub const VERSION: u8 = 1;

const CONFIG: Configuration = config::standard();

/// In the second byte: the hold is a new one, so a time to live that a client set on the key is removed.
const GRANTED: u8 = 1;

/// In the second byte: the payload changes the present state, instead of replacing it.
const STEP: u8 = 2;

/// In the second byte: the requests that were carried out or rolled back come before the state, if the state does not
/// (or no longer) contain them. Only in steps, never in saved data.
const SPENT: u8 = 4;

/// In the second byte, alone: a fencing token follows and nothing else. It belongs to no key: later tokens are larger.
const FLOOR: u8 = 8;

/// The requests that a step carried out or rolled back, besides those that its holds know.
#[derive(Debug, Default)]
pub struct SpentStep {
    count: usize,
    bytes: Vec<u8>,
}

impl SpentStep {
    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Adds one; without a use it was rolled back.
    pub fn push(&mut self, request: RequestKey<'_>, what: Option<Use>) {
        let start = self.bytes.len();
        match output::write_spent(request, what, &mut self.bytes) {
            Ok(()) => self.count += 1,
            // Neither the output nor these types can fail.
            Err(_) => self.bytes.truncate(start),
        }
    }
}

/// The reason why a payload was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DecodeError {
    /// A version of dlock wrote it that this one does not know.
    UnknownVersion(u8),
    /// It is truncated, damaged, or not one of ours.
    Damaged,
    /// It decodes, but its content is impossible: a length, number or text out of range. Or it is not allowed here: a
    /// step where a whole state is needed, or another family.
    Impossible,
}

/// The result of a replay.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Replayed {
    /// The step granted the resource to a new owner.
    pub granted: bool,
    /// The largest fencing token in the payload; 0 if there is none.
    pub token: u64,
}

/// A request of a replayed payload: what it did, or `None` if that was rolled back.
pub type ReplayedRequest<'a> = (RequestKey<'a>, Option<Use>);

/// The times of the clocks: times in a payload are relative to them.
#[derive(Debug, Clone, Copy)]
pub struct Clocks {
    /// The monotonic clock.
    pub mono: Instant,
    /// The clock of leases.
    pub lease: LeaseInstant,
}

fn check(holds: bool) -> Result<(), DecodeError> {
    if holds { Ok(()) } else { Err(DecodeError::Impossible) }
}

/// Appends the payload for the whole state of `resource` at the given moment.
pub fn encode(resource: &Resource, mono: Instant, lease: LeaseInstant, out: &mut Vec<u8>) {
    write(resource, Clocks { mono, lease }, 0, &SpentStep::default(), out);
}

/// Appends the payload for a step that may have `granted` the resource to a new owner: the changes since the last one.
/// The changes count as recorded then.
pub fn encode_step(
    resource: &mut Resource,
    mono: Instant,
    lease: LeaseInstant,
    granted: bool,
    out: &mut Vec<u8>,
) {
    encode_step_with(resource, Clocks { mono, lease }, granted, &SpentStep::default(), out);
}

/// [`encode_step`] for a step that carried out or rolled back the requests of `spent`.
pub fn encode_step_with(
    resource: &mut Resource,
    now: Clocks,
    granted: bool,
    spent: &SpentStep,
    out: &mut Vec<u8>,
) {
    let flags = if granted { GRANTED } else { 0 };
    match &mut resource.body {
        // It is always written as a whole, and there are more locks than all others.
        Body::Lock(_) => return write(resource, now, flags, spent, out),
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
    write(resource, now, flags | STEP, spent, out);
    settle(resource);
}

fn write(resource: &Resource, now: Clocks, flags: u8, spent: &SpentStep, out: &mut Vec<u8>) {
    // Without an entry the time does not run yet: the deadline is the time left.
    let lease = if resource.key_id == KeyId::NONE { LeaseInstant(0) } else { now.lease };
    let now = Clocks { lease, ..now };
    let start = out.len();
    let written = output::write(resource, now, flags, spent, out);
    // Neither the output nor these types can fail; but a half-written payload must not leave.
    debug_assert!(written.is_ok());
    if written.is_err() {
        out.truncate(start);
    }
}

/// The payload for the largest `token`, without any key.
pub fn encode_floor(token: u64) -> Vec<u8> {
    let mut payload = Vec::from([VERSION, FLOOR]);
    payload.extend_from_slice(&token.to_le_bytes());
    payload
}

/// The token of a payload of [`encode_floor`]; `None` for any other.
pub fn floor(payload: &[u8]) -> Result<Option<u64>, DecodeError> {
    let &[VERSION, FLOOR, ref token @ ..] = payload else { return Ok(None) };
    let token = u64::from_le_bytes(token.try_into().map_err(|_| DecodeError::Damaged)?);
    check((1..=TOKEN_MAX).contains(&token))?;
    Ok(Some(token))
}

/// Whether a payload replaces the present state and lists no requests. The requests of very many holds that ended
/// together are then read from the replaced state.
pub(crate) fn is_whole(payload: &[u8]) -> bool {
    matches!(payload, [VERSION, flags, ..] if flags & (STEP | SPENT | FLOOR) == 0)
}

/// Notes that all changes are recorded.
fn settle(resource: &mut Resource) {
    match &mut resource.body {
        Body::Lock(_) => {}
        Body::Fair(fair) => {
            fair.touched.clear();
            fair.touched.shrink_to(8);
            fair.needs_whole_record = false;
        }
        Body::Rw(rw) => rw.readers.settle(),
        Body::Semaphore(semaphore) => semaphore.permits.settle(),
        Body::Latch(latch) => {
            latch.requests_new.clear();
            latch.requests_new.shrink_to(8);
        }
    }
}

/// Decodes the payload of a whole state; that of a step is impossible. The resource has no entry: its deadlines are the
/// times left, counted from 0.
pub fn decode(payload: &[u8], mono: Instant) -> Result<Resource, DecodeError> {
    let (input, flags) = Input::open(payload, Clocks { mono, lease: LeaseInstant(0) })?;
    check(flags & (STEP | SPENT) == 0)?;
    let mut resource = Resource::free(Kind::Lock);
    input.carry_out(&mut resource, false)?;
    settle(&mut resource);
    Ok(resource)
}

/// The number of waiters in the header of a whole state, without reading them: a value with too many is not even read.
/// 0 for a payload that cannot be read.
pub fn waiters(payload: &[u8]) -> usize {
    let clocks = Clocks { mono: Instant(0), lease: LeaseInstant(0) };
    Input::open(payload, clocks).and_then(|(input, _)| input.waiters()).unwrap_or(0)
}

/// Applies a payload to the state of a key: a whole state replaces it, a step changes it. Without a key (`is_there` is
/// false) `current` is replaced, whatever it is, and a step begins with a free one. The entry stays; deadlines are the
/// times left, counted from `lease`.
///
/// A payload of another family than the key's is impossible. Nothing is changed when it fails.
pub fn replay(
    payload: &[u8],
    mono: Instant,
    lease: LeaseInstant,
    current: &mut Resource,
    is_there: bool,
) -> Result<Replayed, DecodeError> {
    replay_with(payload, Clocks { mono, lease }, current, is_there, |_| ())
}

/// [`replay`], and `spent` is told afterwards which requests the step carried out or undid, in their
/// order.
pub fn replay_with(
    payload: &[u8],
    now: Clocks,
    current: &mut Resource,
    is_there: bool,
    spent: impl FnMut(ReplayedRequest<'_>),
) -> Result<Replayed, DecodeError> {
    let (input, flags) = Input::open(payload, now)?;
    let (token, requests) = input.carry_out(current, is_there)?;
    settle(current);
    requests.into_iter().for_each(spent);
    Ok(Replayed { granted: flags & GRANTED != 0, token })
}
