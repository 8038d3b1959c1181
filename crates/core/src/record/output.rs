//! Encoding of payloads.

use super::{CONFIG, Clocks, Head, SPENT, STEP, SpentStep};
use crate::base::ids::HoldId;
use crate::record::format::{
    Bytes, CLOSED, ClosedV1, FAIR, FREE, HELD, HoldV1, LATCH, LatchV1, MembersV1, PermitV1,
    QueueEntryV1, RW, SEMAPHORE, SemaphoreV1, SpentV1, TimeV1, WrittenAt,
};
use crate::value::fair::{Fair, QueueEntry};
use crate::value::hold::Hold;
use crate::value::holds::Holds;
use crate::value::latch::Latch;
use crate::value::lock::Lock;
use crate::value::resource::{Body, Resource};
use crate::value::rw::RwLock;
use crate::value::semaphore::Semaphore;
use crate::value::spent::{RequestKey, Use};
use alloc::borrow::Cow;
use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use alloc::vec::Vec;
use bincode::enc::write::Writer;
use bincode::error::EncodeError;
use serde::Serialize;

/// A payload that is being written.
struct Output<'a> {
    out: &'a mut Vec<u8>,
    at: WrittenAt,
    is_step: bool,
}

/// The sink of bincode.
pub(super) struct Sink<'a>(pub(super) &'a mut Vec<u8>);

impl Writer for Sink<'_> {
    fn write(&mut self, bytes: &[u8]) -> Result<(), EncodeError> {
        self.0.extend_from_slice(bytes);
        Ok(())
    }
}

/// Writes the payload for `resource`: for the step since the last one if the flags say so.
pub(super) fn write(
    resource: &Resource,
    now: Clocks,
    Head { level, flags }: Head,
    spent: &SpentStep,
    out: &mut Vec<u8>,
) -> Result<(), EncodeError> {
    let is_step = flags & STEP != 0 && has_steps(resource);
    let flags = if is_step { flags } else { flags & !STEP };
    let is_spent = if spent.is_empty() { 0 } else { SPENT };
    out.extend_from_slice(&[level.number(), flags | is_spent]);
    let at = WrittenAt { now, from_snapshot: resource.from_snapshot };
    let mut output = Output { out, at, is_step };
    if !spent.is_empty() {
        output.put(&spent.count)?;
        output.out.extend_from_slice(&spent.bytes);
    }
    match &resource.body {
        Body::Lock(lock) => output.lock(lock),
        _ if resource.is_free() => output.lock(&Lock::Free),
        Body::Fair(fair) => output.fair(fair),
        Body::Rw(rw) => output.rw(rw),
        Body::Semaphore(semaphore) => output.semaphore(semaphore),
        Body::Latch(latch) => output.latch(latch),
    }
}

/// Writes one request of a step.
pub(super) fn write_spent(
    request: RequestKey<'_>,
    what: Option<Use>,
    out: &mut Vec<u8>,
) -> Result<(), EncodeError> {
    bincode::serde::encode_into_writer(SpentV1::of(request, what), Sink(out), CONFIG)
}

/// Free resources, and those without members that could stay as they are, have only whole states.
fn has_steps(resource: &Resource) -> bool {
    !resource.is_free()
        && match &resource.body {
            Body::Lock(_) => false,
            Body::Rw(rw) => !rw.readers.needs_whole_record(),
            Body::Fair(_) | Body::Semaphore(_) => true,
            // If all ids are new a step would carry the same, unless it is another latch now.
            Body::Latch(latch) => latch.requests_new.len() < latch.requests.len(),
        }
}

impl Output<'_> {
    fn put<T: Serialize>(&mut self, item: &T) -> Result<(), EncodeError> {
        bincode::serde::encode_into_writer(item, Sink(self.out), CONFIG)
    }

    fn lock(&mut self, lock: &Lock) -> Result<(), EncodeError> {
        match lock {
            Lock::Free => self.out.push(FREE),
            Lock::Closed { until, delay_ms } => {
                self.out.push(CLOSED);
                self.put(&ClosedV1::of(*until, *delay_ms, self.at))?;
            }
            Lock::Held(hold) => {
                self.out.push(HELD);
                self.put(&HoldV1::of(hold, self.at))?;
            }
        }
        Ok(())
    }

    fn fair(&mut self, fair: &Fair) -> Result<(), EncodeError> {
        let touched = self.is_step.then_some(fair.touched.as_slice());
        let news = News { members: &fair.entries, touched };
        self.out.push(FAIR);
        self.lock(&fair.lock)?;
        self.put(&news.count())?;
        news.gone().try_for_each(|seq| self.put(&seq))?;
        news.put().try_for_each(|(seq, place)| self.put(&QueueEntryV1::of(seq, place, self.at.now)))
    }

    fn rw(&mut self, rw: &RwLock) -> Result<(), EncodeError> {
        let touched = self.is_step.then(|| touched(&rw.readers));
        let news = News { members: &rw.readers, touched: touched.as_deref() };
        self.out.push(RW);
        self.lock(&rw.lock)?;
        self.put(&news.count())?;
        // Ids are tokens here; bincode writes them like the `u64` that they fit.
        news.gone().try_for_each(|token| self.put(&token))?;
        news.put().try_for_each(|(id, hold)| {
            debug_assert_eq!(id, HoldId::from(hold.token));
            self.put(&HoldV1::of(hold, self.at))
        })
    }

    fn semaphore(&mut self, semaphore: &Semaphore) -> Result<(), EncodeError> {
        let touched = self.is_step.then(|| touched(&semaphore.permits));
        let news = News { members: &semaphore.permits, touched: touched.as_deref() };
        let Semaphore { capacity, is_passing, taken, .. } = *semaphore;
        let permits = news.count();
        self.out.push(SEMAPHORE);
        self.put(&SemaphoreV1 { capacity, is_passing, taken, permits })?;
        news.gone().try_for_each(|id| self.put(&id))?;
        news.put()
            .try_for_each(|(id, hold)| self.put(&PermitV1 { id, hold: HoldV1::of(hold, self.at) }))
    }

    fn latch(&mut self, latch: &Latch) -> Result<(), EncodeError> {
        let new = &latch.requests_new;
        let requests = if self.is_step { new.len() } else { latch.requests.len() };
        let time = TimeV1::of(latch, self.at);
        let Latch { count, initial, .. } = *latch;
        self.out.push(LATCH);
        self.put(&LatchV1 { count, initial, time, requests })?;
        if self.is_step {
            new.iter().try_for_each(|id| self.put(&Bytes(id)))
        } else {
            latch.requests.iter().try_for_each(|id| self.put(&Bytes(id)))
        }
    }
}

/// The changed ids, sorted and without duplicates.
fn touched(holds: &Holds) -> Cow<'_, [HoldId]> {
    let touched = holds.touched();
    if touched.is_sorted_by(|one, next| one < next) {
        return Cow::Borrowed(touched);
    }
    let mut sorted = touched.to_vec();
    sorted.sort_unstable();
    sorted.dedup();
    Cow::Owned(sorted)
}

/// Members of a key, by id.
trait Members {
    type Id: Copy;
    type Member;

    fn find(&self, id: Self::Id) -> Option<&Self::Member>;
    fn count(&self) -> usize;
    fn all(&self) -> impl Iterator<Item = (Self::Id, &Self::Member)>;
}

impl Members for BTreeMap<u64, Arc<QueueEntry>> {
    type Id = u64;
    type Member = QueueEntry;

    fn find(&self, seq: u64) -> Option<&QueueEntry> {
        self.get(&seq).map(AsRef::as_ref)
    }

    fn count(&self) -> usize {
        self.len()
    }

    fn all(&self) -> impl Iterator<Item = (u64, &QueueEntry)> {
        self.iter().map(|(&seq, place)| (seq, &**place))
    }
}

impl Members for Holds {
    type Id = HoldId;
    type Member = Hold;

    fn find(&self, id: HoldId) -> Option<&Hold> {
        self.get(id)
    }

    fn count(&self) -> usize {
        self.len()
    }

    fn all(&self) -> impl Iterator<Item = (HoldId, &Hold)> {
        self.iter()
    }
}

/// The members in a payload: those in `touched`, or all.
struct News<'a, M: Members> {
    members: &'a M,
    touched: Option<&'a [M::Id]>,
}

impl<'a, M: Members> News<'a, M> {
    fn touched(&self) -> impl Iterator<Item = M::Id> + use<'a, M> {
        self.touched.unwrap_or_default().iter().copied()
    }

    /// Members that are gone.
    fn gone(&self) -> impl Iterator<Item = M::Id> + use<'a, M> {
        let members = self.members;
        self.touched().filter(|&id| members.find(id).is_none())
    }

    /// Members that exist.
    fn put(&self) -> impl Iterator<Item = (M::Id, &'a M::Member)> + use<'a, M> {
        let members = self.members;
        let all = self.touched.is_none().then(|| members.all());
        let touched = self.touched().filter_map(|id| Some((id, members.find(id)?)));
        all.into_iter().flatten().chain(touched)
    }

    fn count(&self) -> MembersV1 {
        let gone = self.gone().count();
        let put = self.touched.map_or_else(|| self.members.count(), |touched| touched.len() - gone);
        MembersV1 { gone, put }
    }
}
