//! The written form, as bincode sees it. The first byte gives the kind of what follows. New families get new
//! bytes; the format of a byte never changes.

use super::{Clocks, DecodeError, ReplayedRequest, check};
use crate::base::bytes::Owner;
use crate::base::ids::HoldId;
use crate::base::shares::User;
use crate::base::time::{LeaseInstant, Millis};
use crate::value::fair::QueueEntry;
use crate::value::hold::{Binding, Extras, Hold, NO_CLIENT, Notify, Requests, Unclaimed};
use crate::value::latch::Latch;
use crate::value::lock::Lock;
use crate::value::spent::{RequestKey, Scope, Use};
use crate::value::wait_request::{Demand, WaitRequest};
use alloc::boxed::Box;
use core::ops::RangeInclusive;
use dlock_wire::names;
use serde::{Deserialize, Serialize, Serializer};

/// Bytes that are written in one piece.
#[derive(Debug, Clone, Copy, Deserialize)]
pub(super) struct Bytes<'a>(#[serde(borrow)] pub(super) &'a [u8]);

impl Serialize for Bytes<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_bytes(self.0)
    }
}

/// Nothing is left, in any family, and the key is removed. In front of members: a lock without a holder.
pub(super) const FREE: u8 = 0;
/// A lock: [`ClosedV1`] follows.
pub(super) const CLOSED: u8 = 1;
/// A lock: [`HoldV1`] follows.
pub(super) const HELD: u8 = 2;
/// A lock follows, then [`MembersV1`]: sequence numbers (`u64`), then [`QueueEntryV1`].
pub(super) const FAIR: u8 = 3;
/// A lock follows, then [`MembersV1`]: tokens (`u64`), then [`HoldV1`].
pub(super) const RW: u8 = 4;
/// [`SemaphoreV1`] follows.
pub(super) const SEMAPHORE: u8 = 5;
/// [`LatchV1`] follows.
pub(super) const LATCH: u8 = 6;

#[derive(Debug, Serialize, Deserialize)]
pub(super) struct ClosedV1 {
    pub(super) remaining_ms: Millis,
    pub(super) delay_ms: Millis,
}

/// The numbers of members that follow, in the order of their ids. First come the ids of removed members (none in a
/// whole state), then the other members, in full.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(super) struct MembersV1 {
    pub(super) gone: usize,
    pub(super) put: usize,
}

/// Ids (`u128`) follow, then [`PermitV1`].
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct SemaphoreV1 {
    pub(super) capacity: u32,
    pub(super) is_passing: bool,
    pub(super) taken: u32,
    pub(super) permits: MembersV1,
}

/// Request ids ([`Bytes`]) follow.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct LatchV1 {
    pub(super) count: u32,
    pub(super) initial: u32,
    pub(super) time: Option<TimeV1>,
    pub(super) requests: usize,
}

#[derive(Debug, Serialize, Deserialize)]
pub(super) struct HoldV1<'a> {
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
    #[serde(borrow)]
    notify_request: Option<Bytes<'a>>,
    bind_ms: Option<Millis>,
    is_unclaimed: bool,
}

/// Where messages are published. New variants come at the end.
#[derive(Debug, Serialize, Deserialize)]
enum NotifyV1<'a> {
    Silent,
    Owner,
    Channel(#[serde(borrow)] Bytes<'a>),
    /// A channel of sharded pub/sub.
    Sharded(#[serde(borrow)] Bytes<'a>),
}

/// A durable queue entry.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct QueueEntryV1<'a> {
    pub(super) seq: u64,
    #[serde(borrow)]
    owner: Bytes<'a>,
    waiting_ms: Millis,
    lease_ms: Millis,
    queue_ms: Option<Millis>,
    #[serde(borrow)]
    notify: NotifyV1<'a>,
    #[serde(borrow)]
    request: Option<Bytes<'a>>,
    bind_ms: Option<Millis>,
    #[serde(borrow)]
    label: Bytes<'a>,
}

/// A permit of a semaphore; the count of the hold is its number of permits.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct PermitV1<'a> {
    pub(super) id: HoldId,
    #[serde(borrow)]
    pub(super) hold: HoldV1<'a>,
}

/// A request that was carried out or rolled back; their number comes before the first.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct SpentV1<'a> {
    scope: u8,
    #[serde(borrow)]
    owner: Bytes<'a>,
    #[serde(borrow)]
    id: Bytes<'a>,
    /// `None`: it was rolled back.
    what: Option<Use>,
}

/// The time of a latch.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(super) struct TimeV1 {
    lease_ms: Millis,
    remaining_ms: Millis,
}

/// The clocks by which the times of a resource are written.
#[derive(Clone, Copy)]
pub(super) struct WrittenAt {
    pub now: Clocks,
    /// What is left may be less than what was promised after the snapshot that the resource was loaded from.
    pub from_snapshot: bool,
}

impl WrittenAt {
    /// The time left until `end`, of `full`. After a pause it can be a little more than the longest lease.
    fn left(self, end: LeaseInstant, full: Millis) -> Millis {
        let least = if self.from_snapshot { full } else { 0 };
        (end - self.now.lease).max(least).min(names::LEASE_MAX_MS)
    }
}

impl ClosedV1 {
    pub(super) fn of(until: LeaseInstant, delay_ms: Millis, at: WrittenAt) -> Self {
        Self { remaining_ms: at.left(until, delay_ms), delay_ms }
    }

    pub(super) fn restore(&self, now: Clocks) -> Result<Lock, DecodeError> {
        check(self.remaining_ms <= names::LEASE_MAX_MS && self.delay_ms <= names::LEASE_MAX_MS)?;
        Ok(Lock::Closed { until: now.lease + self.remaining_ms, delay_ms: self.delay_ms })
    }
}

/// The tokens of holds that fence.
pub(super) const FENCED: RangeInclusive<u64> = names::TOKEN_MIN..=names::TOKEN_MAX;

/// Permits have no fencing tokens.
pub(super) const UNFENCED: RangeInclusive<u64> = 0..=0;

impl<'a> HoldV1<'a> {
    pub(super) fn of(hold: &'a Hold, at: WrittenAt) -> Self {
        Self {
            owner: Bytes(&hold.owner),
            token: hold.token,
            count: hold.count,
            lease_ms: hold.lease_ms,
            remaining_ms: at.left(hold.deadline, hold.lease_ms),
            held_ms: at.now.mono - hold.since,
            extras: hold.extras.as_deref().map(ExtrasV1::of),
        }
    }

    pub(super) fn restore(
        &self,
        now: Clocks,
        tokens: RangeInclusive<u64>,
    ) -> Result<Hold, DecodeError> {
        check((1..=names::OWNER_MAX).contains(&self.owner.0.len()))?;
        check(tokens.contains(&self.token))?;
        check(self.count >= 1)?;
        check((names::LEASE_MIN_MS..=names::LEASE_MAX_MS).contains(&self.lease_ms))?;
        check(self.remaining_ms <= names::LEASE_MAX_MS)?;
        Ok(Hold {
            owner: Owner::from(self.owner.0),
            token: self.token,
            deadline: now.lease + self.remaining_ms,
            lease_ms: self.lease_ms,
            since: now.mono.back(self.held_ms),
            count: self.count,
            answers: 0,
            extras: self.extras.as_ref().map(ExtrasV1::restore).transpose()?.map(Box::new),
        })
    }
}

impl<'a> ExtrasV1<'a> {
    fn of(extras: &'a Extras) -> Self {
        Self {
            requests: Bytes(extras.requests.as_bytes()),
            label: Bytes(&extras.label),
            notify: NotifyV1::of(&extras.notify),
            notify_request: extras.notify_request.as_deref().map(Bytes),
            bind_ms: extras.binding.map(|binding| binding.ms),
            is_unclaimed: extras.unclaimed.is_some(),
        }
    }

    fn restore(&self) -> Result<Extras, DecodeError> {
        check(self.bind_ms.is_none_or(|ms| ms <= names::BIND_MAX_MS))?;
        Ok(Extras {
            requests: Requests::from_bytes(self.requests.0).ok_or(DecodeError::Impossible)?,
            label: label(self.label)?,
            notify: self.notify.restore()?,
            notify_request: self.notify_request.map(request).transpose()?,
            binding: self.bind_ms.map(|ms| Binding { ms, client: NO_CLIENT, is_shortened: false }),
            unclaimed: self.is_unclaimed.then_some(Unclaimed { client: NO_CLIENT }),
        })
    }
}

fn label(text: Bytes<'_>) -> Result<Box<[u8]>, DecodeError> {
    check(text.0.len() <= names::LABEL_MAX)?;
    Ok(text.0.into())
}

/// The request id in `id`.
pub(super) fn request(id: Bytes<'_>) -> Result<Box<[u8]>, DecodeError> {
    check((1..=names::REQID_MAX).contains(&id.0.len()))?;
    Ok(id.0.into())
}

impl<'a> NotifyV1<'a> {
    fn of(notify: &'a Notify) -> Self {
        match notify {
            Notify::Silent => Self::Silent,
            Notify::Owner => Self::Owner,
            Notify::Channel(name) => Self::Channel(Bytes(name)),
            Notify::Sharded(name) => Self::Sharded(Bytes(name)),
        }
    }

    fn restore(&self) -> Result<Notify, DecodeError> {
        let named = |name: Bytes<'_>| {
            check((1..=names::CHANNEL_MAX).contains(&name.0.len()))?;
            Ok(Box::from(name.0))
        };
        Ok(match *self {
            Self::Silent => Notify::Silent,
            Self::Owner => Notify::Owner,
            Self::Channel(name) => Notify::Channel(named(name)?),
            Self::Sharded(name) => Notify::Sharded(named(name)?),
        })
    }
}

/// Sequence numbers leave room for later ones.
const SEQUENCE: RangeInclusive<u64> = 1..=(1 << 62) - 1;

impl<'a> QueueEntryV1<'a> {
    pub(super) fn of(seq: u64, place: &'a QueueEntry, now: Clocks) -> Self {
        let ask = &place.ask;
        Self {
            seq,
            owner: Bytes(&place.owner),
            waiting_ms: now.mono - place.since,
            lease_ms: ask.lease_ms,
            queue_ms: ask.queue_ms,
            notify: NotifyV1::of(&ask.notify),
            request: ask.request.as_deref().map(Bytes),
            bind_ms: ask.bind_ms,
            label: Bytes(&ask.label),
        }
    }

    pub(super) fn restore(&self, now: Clocks) -> Result<QueueEntry, DecodeError> {
        let queue = names::QUEUE_MIN_MS..=names::QUEUE_MAX_MS;
        check(SEQUENCE.contains(&self.seq))?;
        check((1..=names::OWNER_MAX).contains(&self.owner.0.len()))?;
        check((names::LEASE_MIN_MS..=names::LEASE_MAX_MS).contains(&self.lease_ms))?;
        check(self.queue_ms.is_none_or(|ms| queue.contains(&ms)))?;
        check(self.bind_ms.is_none_or(|ms| ms <= names::BIND_MAX_MS))?;
        Ok(QueueEntry {
            owner: Owner::from(self.owner.0),
            since: now.mono.back(self.waiting_ms),
            ask: WaitRequest {
                demand: Demand::Lock,
                lease_ms: self.lease_ms,
                queue_ms: self.queue_ms,
                notify: self.notify.restore()?,
                request: self.request.map(request).transpose()?,
                bind_ms: self.bind_ms,
                label: label(self.label)?,
                user: User::UNKNOWN,
            },
        })
    }
}

impl<'a> SpentV1<'a> {
    pub(super) fn of(request: RequestKey<'a>, what: Option<Use>) -> Self {
        let RequestKey { scope, owner, id } = request;
        Self { scope: scope as u8, owner: Bytes(owner), id: Bytes(id), what }
    }

    pub(super) fn restore(&self) -> Result<ReplayedRequest<'a>, DecodeError> {
        let scope = Scope::ALL.get(usize::from(self.scope)).ok_or(DecodeError::Impossible)?;
        check(self.owner.0.len() <= names::OWNER_MAX)?;
        check((1..=names::REQID_MAX).contains(&self.id.0.len()))?;
        Ok((RequestKey { scope: *scope, owner: self.owner.0, id: self.id.0 }, self.what))
    }
}

impl TimeV1 {
    pub(super) fn of(latch: &Latch, at: WrittenAt) -> Option<Self> {
        let (lease_ms, deadline) = latch.lease_ms.zip(latch.deadline)?;
        Some(Self { lease_ms, remaining_ms: at.left(deadline, lease_ms) })
    }

    /// The time, and its end.
    pub(super) fn restore(self, now: Clocks) -> Result<(Millis, LeaseInstant), DecodeError> {
        check((names::LEASE_MIN_MS..=names::LEASE_MAX_MS).contains(&self.lease_ms))?;
        check(self.remaining_ms <= names::LEASE_MAX_MS)?;
        Ok((self.lease_ms, now.lease + self.remaining_ms))
    }
}
