//! The one encoding of durable state: for replicas and the AOF (`DLOCK.APPLY key payload`), RDB
//! files, DUMP and AOF rewrite.
//!
//! A record carries the state that an operation led to, not the operation: replaying it needs no
//! clock and no rule, replaying it twice does no harm, and a replica cannot drift. A payload is
//! one byte of version, one of flags, and a bincode of the state. Decoding borrows from the payload, so a
//! damaged or hostile one can make it fail but not allocate.

use crate::bytes::Owner;
use crate::hold::{Extras, Hold, NO_CLIENT, Notify, REQUESTS_KEPT, Requests, Tie, Unclaimed};
use crate::lease::NO_ENTRY;
use crate::resource::{Body, Lock, Resource};
use crate::time::{Instant, LeaseInstant, Millis};
use alloc::boxed::Box;
use alloc::vec::Vec;
use bincode::config::{self, Configuration};
use bincode::enc::write::Writer;
use bincode::error::EncodeError;
use dlock_wire::names;
use serde::{Deserialize, Serialize, Serializer};

/// The version of the encoding that this code writes.
pub const VERSION: u8 = 1;

const CONFIG: Configuration = config::standard();

/// Why a payload was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DecodeError {
    /// It was written by a version of dlock that this one does not know.
    UnknownVersion(u8),
    /// It is truncated, damaged, or not one of ours.
    Damaged,
    /// It decodes, but says something that cannot be (a length, number or text out of range).
    Impossible,
}

/// Bytes that are written in one piece.
#[derive(Debug, Clone, Copy, Deserialize)]
struct Bytes<'a>(#[serde(borrow)] &'a [u8]);

impl Serialize for Bytes<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_bytes(self.0)
    }
}

#[derive(Debug, Serialize, Deserialize)]
enum StateV1<'a> {
    /// Nothing is left: the key goes.
    Free,
    LockClosed {
        remaining_ms: Millis,
        delay_ms: Millis,
    },
    LockHeld(#[serde(borrow)] HoldV1<'a>),
}

#[derive(Debug, Serialize, Deserialize)]
struct HoldV1<'a> {
    #[serde(borrow)]
    owner: Bytes<'a>,
    token: u64,
    count: u32,
    lease_ms: Millis,
    remaining_ms: Millis,
    held_ms: Millis,
    #[serde(borrow)]
    extras: Option<ExtrasV1<'a>>,
}

#[derive(Debug, Serialize, Deserialize)]
struct ExtrasV1<'a> {
    #[serde(borrow)]
    requests: Bytes<'a>,
    #[serde(borrow)]
    label: Bytes<'a>,
    #[serde(borrow)]
    notify: NotifyV1<'a>,
    bind_ms: Option<Millis>,
    unclaimed_ms: Option<Millis>,
}

#[derive(Debug, Serialize, Deserialize)]
enum NotifyV1<'a> {
    Silent,
    Owner,
    Channel(#[serde(borrow)] Bytes<'a>),
}

struct Sink<'a>(&'a mut Vec<u8>);

impl Writer for Sink<'_> {
    fn write(&mut self, bytes: &[u8]) -> Result<(), EncodeError> {
        self.0.extend_from_slice(bytes);
        Ok(())
    }
}

/// In the second byte: the hold is a new one, so a time to live that somebody set on the key goes.
const GRANTED: u8 = 1;

/// Appends the payload for `resource` as it is at the given moment.
pub fn encode(resource: &Resource, mono: Instant, lease: LeaseInstant, out: &mut Vec<u8>) {
    encode_step(resource, mono, lease, false, out);
}

/// [`encode`], for a step that may have `granted` the resource to a new owner.
pub fn encode_step(
    resource: &Resource,
    mono: Instant,
    lease: LeaseInstant,
    granted: bool,
    out: &mut Vec<u8>,
) {
    // What is not entered has not begun to run: its deadline is what is left.
    let lease = if resource.entry == NO_ENTRY { LeaseInstant(0) } else { lease };
    let state = match resource.lock() {
        Lock::Free => StateV1::Free,
        Lock::Closed { until, delay_ms } => {
            StateV1::LockClosed { remaining_ms: left(*until, lease), delay_ms: *delay_ms }
        }
        Lock::Held(hold) => StateV1::LockHeld(HoldV1 {
            owner: Bytes(&hold.owner),
            token: hold.token,
            count: hold.count,
            lease_ms: hold.lease_ms,
            remaining_ms: left(hold.deadline, lease),
            held_ms: mono - hold.since,
            extras: hold.extras.as_deref().map(extras_v1),
        }),
    };
    let start = out.len();
    out.push(VERSION);
    out.push(if granted { GRANTED } else { 0 });
    let written = bincode::serde::encode_into_writer(&state, Sink(out), CONFIG);
    // Neither the sink nor these types can fail; a half-written payload must not leave, though.
    debug_assert!(written.is_ok());
    if written.is_err() {
        out.truncate(start);
    }
}

/// What is left until `end`. A clock that was set back by a pause can show a little more than the
/// longest lease.
fn left(end: LeaseInstant, now: LeaseInstant) -> Millis {
    (end - now).min(names::LEASE_MAX_MS)
}

fn extras_v1(extras: &Extras) -> ExtrasV1<'_> {
    ExtrasV1 {
        requests: Bytes(extras.requests.as_bytes()),
        label: Bytes(&extras.label),
        notify: match &extras.notify {
            Notify::Silent => NotifyV1::Silent,
            Notify::Owner => NotifyV1::Owner,
            Notify::Channel(name) => NotifyV1::Channel(Bytes(name)),
        },
        bind_ms: extras.tie.map(|tie| tie.ms),
        unclaimed_ms: extras.unclaimed.map(|unclaimed| unclaimed.queue_ms),
    }
}

/// Reads a payload. The resource is not entered: its deadlines are what was left, counted from 0.
pub fn decode(payload: &[u8], mono: Instant) -> Result<Resource, DecodeError> {
    decode_step(payload, mono).map(|(resource, _)| resource)
}

/// [`decode`], and whether the step granted the resource to a new owner.
pub fn decode_step(payload: &[u8], mono: Instant) -> Result<(Resource, bool), DecodeError> {
    let (&version, rest) = payload.split_first().ok_or(DecodeError::Damaged)?;
    if version != VERSION {
        return Err(DecodeError::UnknownVersion(version));
    }
    let (&flags, body) = rest.split_first().ok_or(DecodeError::Damaged)?;
    check(flags & !GRANTED == 0)?;
    let (state, read): (StateV1<'_>, usize) =
        bincode::serde::borrow_decode_from_slice(body, CONFIG).map_err(|_| DecodeError::Damaged)?;
    if read != body.len() {
        return Err(DecodeError::Damaged);
    }
    let lock = match state {
        StateV1::Free => Lock::Free,
        StateV1::LockClosed { remaining_ms, delay_ms } => {
            check(remaining_ms <= names::LEASE_MAX_MS && delay_ms <= names::LEASE_MAX_MS)?;
            Lock::Closed { until: LeaseInstant(0) + remaining_ms, delay_ms }
        }
        StateV1::LockHeld(hold) => Lock::Held(hold.restore(mono)?),
    };
    let resource = Resource { entry: NO_ENTRY, body: Body::Lock(lock) };
    Ok((resource, flags & GRANTED != 0))
}

fn check(holds: bool) -> Result<(), DecodeError> {
    if holds { Ok(()) } else { Err(DecodeError::Impossible) }
}

impl HoldV1<'_> {
    fn restore(&self, mono: Instant) -> Result<Hold, DecodeError> {
        check((1..=names::OWNER_MAX).contains(&self.owner.0.len()))?;
        check((1..=names::TOKEN_MAX).contains(&self.token))?;
        check(self.count >= 1)?;
        check((1..=names::LEASE_MAX_MS).contains(&self.lease_ms))?;
        check(self.remaining_ms <= names::LEASE_MAX_MS)?;
        Ok(Hold {
            owner: Owner::from(self.owner.0),
            token: self.token,
            deadline: LeaseInstant(0) + self.remaining_ms,
            lease_ms: self.lease_ms,
            since: mono.back(self.held_ms),
            count: self.count,
            answers: 0,
            extras: self.extras.as_ref().map(ExtrasV1::restore).transpose()?.map(Box::new),
        })
    }
}

impl ExtrasV1<'_> {
    fn restore(&self) -> Result<Extras, DecodeError> {
        check(self.label.0.len() <= names::LABEL_MAX)?;
        check(self.bind_ms.is_none_or(|ms| ms <= names::LEASE_MAX_MS))?;
        check(self.unclaimed_ms.is_none_or(|ms| ms <= names::QUEUE_MAX_MS))?;
        let notify = match self.notify {
            NotifyV1::Silent => Notify::Silent,
            NotifyV1::Owner => Notify::Owner,
            NotifyV1::Channel(name) => {
                check((1..=names::CHANNEL_MAX).contains(&name.0.len()))?;
                Notify::Channel(name.0.into())
            }
        };
        Ok(Extras {
            requests: Requests::from_bytes(self.requests.0, REQUESTS_KEPT)
                .ok_or(DecodeError::Impossible)?,
            label: self.label.0.into(),
            notify,
            tie: self.bind_ms.map(|ms| Tie {
                ms,
                client: NO_CLIENT,
                cut: false,
                orphan_until: None,
            }),
            unclaimed: self.unclaimed_ms.map(|queue_ms| Unclaimed { client: NO_CLIENT, queue_ms }),
        })
    }
}
