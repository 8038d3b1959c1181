//! The durable half of a primitive: the value of its key.

use crate::base::ids::{ALONE, HoldId, KeyId};
use crate::base::kind::Kind;
use crate::base::time::LeaseInstant;
use crate::value::fair::Fair;
use crate::value::hold::{Hold, Notify};
use crate::value::holds::Holds;
use crate::value::latch::Latch;
use crate::value::lock::Lock;
use crate::value::rw::RwLock;
use crate::value::semaphore::Semaphore;
use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;

/// The value of a key: plain owned data, because Redis may free it on another thread.
#[derive(Debug)]
pub struct Resource {
    /// Its entry in the lease index, or [`KeyId::NONE`] if it has none.
    pub key_id: KeyId,
    /// It came with a loaded data set, and its leases do not run yet. After the data set was saved they may have been
    /// renewed, and its grants claimed.
    pub from_snapshot: bool,
    /// It was changed while it was loaded: the next operation that opens it notes a record.
    pub is_news: bool,
    /// Its state.
    pub body: Body,
}

/// The state of a key. Most keys are plain locks, so a lock is stored in place.
#[derive(Debug)]
pub enum Body {
    /// A re-entrant lock.
    Lock(Lock),
    /// A lock with a durable queue.
    Fair(Box<Fair>),
    /// A read-write lock.
    Rw(Box<RwLock>),
    /// A semaphore.
    Semaphore(Box<Semaphore>),
    /// A count-down latch.
    Latch(Box<Latch>),
}

/// The part of a resource that ends by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    /// Lock-delay.
    Delay,
    /// A hold.
    Hold(HoldId),
    /// The time of a latch.
    Latch,
}

static FREE: Lock = Lock::Free;

impl Resource {
    /// A resource without a holder.
    pub fn free(kind: Kind) -> Self {
        let body = match kind {
            Kind::Lock => Body::Lock(Lock::Free),
            Kind::Fair => Body::Fair(Box::new(Fair::free())),
            Kind::Rw => Body::Rw(Box::new(RwLock::free())),
            Kind::Semaphore => Body::Semaphore(Box::default()),
            Kind::Latch => Body::Latch(Box::default()),
        };
        Self { key_id: KeyId::NONE, from_snapshot: false, is_news: false, body }
    }

    /// Its family.
    pub fn kind(&self) -> Kind {
        match &self.body {
            Body::Lock(_) => Kind::Lock,
            Body::Fair(_) => Kind::Fair,
            Body::Rw(_) => Kind::Rw,
            Body::Semaphore(_) => Kind::Semaphore,
            Body::Latch(_) => Kind::Latch,
        }
    }

    /// Whether it is empty: nothing has to be kept under a key.
    pub fn is_free(&self) -> bool {
        match &self.body {
            Body::Lock(lock) => matches!(lock, Lock::Free),
            Body::Fair(fair) => matches!(fair.lock, Lock::Free) && fair.entries.is_empty(),
            Body::Rw(rw) => matches!(rw.lock, Lock::Free) && rw.readers.is_empty(),
            Body::Semaphore(semaphore) => semaphore.capacity == 0,
            Body::Latch(latch) => latch.count == 0,
        }
    }

    /// Number of holds, without permits.
    pub fn held(&self) -> usize {
        match &self.body {
            Body::Rw(rw) => usize::from(rw.lock.hold().is_some()) + rw.readers.len(),
            _ => usize::from(self.lock().hold().is_some()),
        }
    }

    /// Number of leased permits.
    pub fn leased(&self) -> u64 {
        match &self.body {
            Body::Semaphore(semaphore) => semaphore.leased,
            _ => 0,
        }
    }

    /// Number of free permits; negative while more are out than there are.
    pub fn available(&self) -> i64 {
        match &self.body {
            Body::Semaphore(semaphore) => semaphore.available(),
            _ => 0,
        }
    }

    /// The next end, and the part that ends.
    pub fn next_end(&self) -> Option<(LeaseInstant, Ending)> {
        let (lock, holds) = match &self.body {
            Body::Lock(lock) => (lock, None),
            Body::Fair(fair) => (&fair.lock, None),
            Body::Rw(rw) => (&rw.lock, Some(&rw.readers)),
            Body::Semaphore(semaphore) => (&FREE, Some(&semaphore.permits)),
            Body::Latch(latch) => return latch.deadline.map(|at| (at, Ending::Latch)),
        };
        let alone = match lock {
            Lock::Free => None,
            Lock::Closed { until, .. } => Some((*until, Ending::Delay)),
            Lock::Held(hold) => Some((hold.deadline, Ending::Hold(ALONE))),
        };
        let first = holds.and_then(Holds::first_end).map(|(at, id)| (at, Ending::Hold(id)));
        match (alone, first) {
            (Some(alone), Some(first)) if first.0 < alone.0 => Some(first),
            (alone, first) => alone.or(first),
        }
    }

    /// Its lock; for a read-write lock, the write side.
    pub fn lock(&self) -> &Lock {
        match &self.body {
            Body::Lock(lock) => lock,
            Body::Fair(fair) => &fair.lock,
            Body::Rw(rw) => &rw.lock,
            Body::Semaphore(_) | Body::Latch(_) => &FREE,
        }
    }

    /// Its lock, mutable. `None` for semaphores and latches.
    pub fn lock_mut(&mut self) -> Option<&mut Lock> {
        match &mut self.body {
            Body::Lock(lock) => Some(lock),
            Body::Fair(fair) => Some(&mut fair.lock),
            Body::Rw(rw) => Some(&mut rw.lock),
            Body::Semaphore(_) | Body::Latch(_) => None,
        }
    }

    /// The holds besides that of [`Resource::lock`].
    pub fn others(&self) -> Option<&Holds> {
        match &self.body {
            Body::Rw(rw) => Some(&rw.readers),
            Body::Semaphore(semaphore) => Some(&semaphore.permits),
            Body::Lock(_) | Body::Fair(_) | Body::Latch(_) => None,
        }
    }

    /// Whether any hold is a grant that its owner has not claimed.
    pub(crate) fn has_unclaimed(&self) -> bool {
        let alone = self.lock().hold();
        alone.is_some_and(|hold| hold.unclaimed().is_some())
            || self.others().is_some_and(Holds::has_unclaimed)
    }

    fn others_mut(&mut self) -> Option<&mut Holds> {
        match &mut self.body {
            Body::Rw(rw) => Some(&mut rw.readers),
            Body::Semaphore(semaphore) => Some(&mut semaphore.permits),
            Body::Lock(_) | Body::Fair(_) | Body::Latch(_) => None,
        }
    }

    /// Whether any of its holds or waiters names a channel of its own.
    pub fn names_channels(&self) -> bool {
        let names = |notify: &Notify| matches!(notify, Notify::Channel(_));
        let holds = self.holds().filter_map(|(_, hold)| hold.extras.as_ref());
        holds.map(|extras| &extras.notify).any(names)
            || matches!(&self.body, Body::Fair(fair)
                if fair.entries.values().any(|place| names(&place.ask.notify)))
    }

    /// Makes holds and waiters send their messages on the channel of their owner, in place of any channel that
    /// `may_use` refuses.
    pub fn drop_channels(&mut self, mut may_use: impl FnMut(&[u8]) -> bool) {
        let mut is_refused =
            |notify: &Notify| matches!(notify, Notify::Channel(name) if !may_use(name));
        let mut refused = Vec::new();
        for (id, hold) in self.holds() {
            if hold.extras.as_ref().is_some_and(|extras| is_refused(&extras.notify)) {
                refused.push(id);
            }
        }
        let mut is_changed = !refused.is_empty();
        for id in refused {
            self.change_hold(id, |hold| hold.extras_mut().notify = Notify::Owner);
        }
        if let Body::Fair(fair) = &mut self.body {
            for (seq, place) in &mut fair.entries {
                if is_refused(&place.ask.notify) {
                    Arc::make_mut(place).ask.notify = Notify::Owner;
                    fair.touched.push(*seq);
                    is_changed = true;
                }
            }
        }
        self.is_news |= is_changed;
    }

    /// Waiters that are part of the value: those of a fair lock.
    pub fn waiters(&self) -> usize {
        match &self.body {
            Body::Fair(fair) => fair.entries.len(),
            Body::Lock(_) | Body::Rw(_) | Body::Semaphore(_) | Body::Latch(_) => 0,
        }
    }

    /// All holds.
    pub fn holds(&self) -> impl Iterator<Item = (HoldId, &Hold)> {
        let alone = self.lock().hold().map(|hold| (ALONE, hold));
        alone.into_iter().chain(self.others().into_iter().flat_map(Holds::iter))
    }

    /// The largest fencing token of its holds; 0 if none has one. Permits have none.
    pub fn largest_token(&self) -> u64 {
        match &self.body {
            Body::Semaphore(_) | Body::Latch(_) => 0,
            _ => self.holds().map(|(_, hold)| hold.token).max().unwrap_or_default(),
        }
    }

    /// The holds of `owner`.
    pub fn holds_of(&self, owner: &[u8]) -> impl Iterator<Item = (HoldId, &Hold)> {
        let alone = self.lock().hold().filter(|hold| *hold.owner == *owner);
        let alone = alone.map(|hold| (ALONE, hold));
        alone
            .into_iter()
            .chain(self.others().into_iter().flat_map(move |holds| holds.of_owner(owner)))
    }

    /// The hold under `id`.
    pub fn hold(&self, id: HoldId) -> Option<&Hold> {
        if id == ALONE { self.lock().hold() } else { self.others()?.get(id) }
    }

    /// Changes the hold under `id`.
    pub fn change_hold<R>(&mut self, id: HoldId, change: impl FnOnce(&mut Hold) -> R) -> Option<R> {
        if id == ALONE {
            return self.lock_mut()?.hold_mut().map(change);
        }
        self.others_mut()?.change(id, change)
    }

    /// Changes the times of all holds. Not recorded for replicas.
    pub fn change_all_holds(&mut self, mut change: impl FnMut(HoldId, &mut Hold)) {
        if let Some(hold) = self.lock_mut().and_then(Lock::hold_mut) {
            change(ALONE, hold);
        }
        if let Some(others) = self.others_mut() {
            others.change_all(change);
        }
    }

    /// Adds a new hold.
    pub fn put_hold(&mut self, id: HoldId, hold: Hold) {
        if let Body::Semaphore(semaphore) = &mut self.body {
            semaphore.leased += u64::from(hold.count);
        }
        if id != ALONE {
            if let Some(others) = self.others_mut() {
                others.insert(id, hold);
            }
        } else if let Some(lock) = self.lock_mut() {
            *lock = Lock::Held(hold);
        }
    }

    /// Removes a hold.
    pub fn take_hold(&mut self, id: HoldId) -> Option<Hold> {
        if id == ALONE {
            let lock = self.lock_mut()?;
            lock.hold()?;
            let Lock::Held(hold) = core::mem::replace(lock, Lock::Free) else { return None };
            return Some(hold);
        }
        let hold = self.others_mut()?.remove(id)?;
        if let Body::Semaphore(semaphore) = &mut self.body {
            semaphore.leased -= u64::from(hold.count);
        }
        Some(hold)
    }

    /// Its semaphore.
    pub(crate) fn semaphore_mut(&mut self) -> Option<&mut Semaphore> {
        match &mut self.body {
            Body::Semaphore(semaphore) => Some(semaphore),
            _ => None,
        }
    }

    /// Bytes of memory, itself included: an estimate from up to `samples` of its holds, entries or requests.
    pub fn memory(&self, samples: usize) -> usize {
        size_of::<Self>()
            + match &self.body {
                Body::Lock(lock) => lock.hold().map_or(0, Hold::heap_size),
                Body::Fair(fair) => fair.heap_size(samples),
                Body::Rw(rw) => {
                    let write = rw.lock.hold().map_or(0, Hold::heap_size);
                    size_of::<RwLock>() + write + rw.readers.heap_size(samples)
                }
                Body::Semaphore(semaphore) => semaphore.heap_size(samples),
                Body::Latch(latch) => latch.heap_size(samples),
            }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_resource_is_as_small_as_the_memory_account_assumes() {
        assert_eq!(size_of::<Resource>(), 96);
    }

    #[test]
    fn memory_usage_looks_at_the_samples_alone() {
        use crate::value::sampled;
        for (samples, size, looks) in [(5, 300, 5), (100, 300, 100), (usize::MAX, 300, 100)] {
            let looked_at = core::cell::Cell::new(0);
            let sizes = (0..100).map(|_| {
                looked_at.set(looked_at.get() + 1);
                3
            });
            assert_eq!((sampled(sizes, samples), looked_at.get()), (size, looks));
        }
        assert_eq!(sampled([].into_iter(), 5), 0);
        assert_eq!(sampled([1, 2, 9].into_iter(), 0), 0);
    }
}
