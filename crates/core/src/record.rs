//! The one encoding of durable state: for replicas and the AOF (`DLOCK.APPLY key payload`), RDB files, DUMP and AOF
//! rewrite.
//!
//! A record carries the state after an operation, not the operation. So a replay needs no clock and no rule, a second
//! replay does no harm, and a replica cannot drift. Some keys have many members (queue entries, readers, permits,
//! request ids). For them the record of a *step* carries the changed members, in full or as gone; a *whole* state
//! carries all of them.
//!
//! A payload is one byte with its [`Level`], one of flags, and bincode: a state with the number of members, then the
//! members one after the other, then parts that a reader may skip. Decoding borrows from the payload
//! and reads it member by member. So a damaged or hostile payload can make it fail, but its allocation is at most
//! proportional to the length of the payload.

mod beside;
mod digest;
pub mod divergence;
mod format;
mod input;
mod keyless;
mod level;
mod output;

pub(crate) use beside::encode_beside_and;
pub use beside::{Beside, BesideHead, BesideInput, Standing, encode_beside};
pub use digest::digest;
pub use keyless::{Keyless, encode_floor, encode_mark, keyless};
pub use level::Level;

use crate::base::ids::KeyId;
use crate::base::kind::Kind;
use crate::base::time::{Instant, LeaseInstant};
use crate::value::resource::{Body, Resource};
use crate::value::spent::{RequestKey, Use};
use alloc::vec::Vec;
use bincode::config::{self, Configuration};
use core::fmt;
use input::Input;

const CONFIG: Configuration = config::standard();

/// In the second byte: the hold is a new one, so a time to live that a client set on the key is removed.
const GRANTED: u8 = 1;

/// In the second byte: the payload changes the present state, instead of replacing it.
const STEP: u8 = 2;

/// In the second byte: the requests that were carried out or rolled back come before the state, if the state does not
/// (or no longer) contain them. Only in steps, never in saved data.
const SPENT: u8 = 4;

/// In the second byte, alone: a fencing token follows. It belongs to no key: later tokens are larger.
const FLOOR: u8 = 8;

/// In the second byte, alone: what the server could not read follows. It belongs to no key.
const MARK: u8 = 16;

/// Length of a request in a step without its strings, as a rule: what it did, its scope, and two lengths.
const SPENT_REST: usize = 8;

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
        self.bytes.reserve(request.owner.len() + request.id.len() + SPENT_REST);
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
    /// Its reader has to know this [`Level`], which is above [`Level::LATEST`].
    LaterLevel(u8),
    /// It is truncated, damaged, or not one of ours.
    Damaged,
    /// It decodes, but its content is impossible: a length, number or text out of range. Or it is not allowed here: a
    /// step where a whole state is needed, or another family.
    Impossible,
}

impl fmt::Display for DecodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::LaterLevel(level) => {
                let latest = Level::LATEST.number();
                write!(
                    f,
                    "it needs record level {level}, and this module reads up to {latest}: a later dlock wrote it"
                )
            }
            Self::Damaged => f.write_str("it is damaged"),
            Self::Impossible => {
                f.write_str("it is damaged or out of place: its content is impossible here")
            }
        }
    }
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
pub fn encode(resource: &Resource, now: Clocks, level: Level, out: &mut Vec<u8>) {
    write(resource, now, Head { level, flags: 0 }, &SpentStep::default(), out);
}

/// What every payload begins with.
#[derive(Debug, Clone, Copy)]
struct Head {
    level: Level,
    flags: u8,
}

/// A step of a key, for its record.
#[derive(Debug, Default)]
pub struct StepInfo {
    /// It may have granted the resource to a new owner.
    pub granted: bool,
    /// Requests that it carried out or rolled back.
    pub spent: SpentStep,
}

/// Appends the payload for a step: the changes since the last one. The changes count as recorded then.
pub fn encode_step(
    resource: &mut Resource,
    now: Clocks,
    level: Level,
    step: &StepInfo,
    out: &mut Vec<u8>,
) {
    let spent = &step.spent;
    let head = Head { level, flags: if step.granted { GRANTED } else { 0 } };
    match &mut resource.body {
        // It is always written as a whole, and there are more locks than all others.
        Body::Lock(_) => return write(resource, now, head, spent, out),
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
    write(resource, now, Head { flags: head.flags | STEP, ..head }, spent, out);
    settle(resource);
}

fn write(resource: &Resource, now: Clocks, head: Head, spent: &SpentStep, out: &mut Vec<u8>) {
    // Without an entry the time does not run yet: the deadline is the time left.
    let lease = if resource.key_id == KeyId::NONE { LeaseInstant(0) } else { now.lease };
    let now = Clocks { lease, ..now };
    let start = out.len();
    let written = output::write(resource, now, head, spent, out);
    // Neither the output nor these types can fail; but a half-written payload must not leave.
    debug_assert!(written.is_ok());
    if written.is_err() {
        out.truncate(start);
    }
}

/// Whether a payload replaces the present state and lists no requests. If many holds ended together, their requests
/// are then read from the replaced state.
pub(crate) fn is_whole(payload: &[u8]) -> bool {
    let is_ours = Level::of(payload).is_ok();
    is_ours && matches!(payload, [_, flags, ..] if flags & (STEP | SPENT | FLOOR | MARK) == 0)
}

/// Notes that all changes are recorded.
fn settle(resource: &mut Resource) {
    match &mut resource.body {
        Body::Lock(_) => {}
        Body::Fair(fair) => {
            fair.touched.clear();
            fair.touched.shrink_to(8);
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
