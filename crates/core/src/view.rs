//! What reading commands answer. They change nothing: they look at a key as if everything that is
//! due had ended, also where it cannot be removed (on a replica, during a pause).

use crate::hold::{Hold, NO_CLIENT};
use crate::lease::NO_ENTRY;
use crate::machine::{Foreign, Machine};
use crate::queue::{Presence, Waiter};
use crate::resource::{Lock, Resource};
use crate::store::{Key, Slot, Store};
use crate::time::{LeaseInstant, Millis, Now};
use alloc::vec::Vec;

/// What DLOCK.INFO shows.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LockInfo {
    /// The holder; empty when nobody holds it.
    pub owner: Vec<u8>,
    /// Its fencing token; 0 without a holder.
    pub token: u64,
    /// How many holds it has.
    pub holds: u32,
    /// The lease of the hold, in milliseconds.
    pub lease_ms: Millis,
    /// What is left of it; without a holder, of the time for which lock-delay keeps it closed.
    pub ttl_ms: Millis,
    /// How long it has been held, in milliseconds.
    pub held_ms: Millis,
    /// Its label.
    pub label: Vec<u8>,
    /// The connection it is tied to; 0 for none.
    pub bound_client: u64,
    /// How many wait.
    pub waiters: usize,
}

/// One row of DLOCK.WAITERS.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WaiterInfo {
    /// The owner that waits.
    pub owner: Vec<u8>,
    /// Its connection; 0 when nobody is connected for it.
    pub client: u64,
    /// Since when, in milliseconds.
    pub waiting_ms: Millis,
    /// How long it will wait at most; `None` for ever.
    pub remaining_ms: Option<Millis>,
    /// Its label.
    pub label: Vec<u8>,
}

impl Machine {
    /// DLOCK.INFO; `None` when nothing is there.
    pub fn lock_info<S: Store>(
        &self,
        store: &mut S,
        now: Now,
        key: Key<'_>,
    ) -> Result<Option<LockInfo>, Foreign> {
        let lease = self.lease_time(now.mono);
        let mut info = LockInfo { waiters: self.count(now, key), ..LockInfo::default() };
        match store.get(key) {
            Slot::Foreign => return Err(Foreign),
            Slot::Missing => {}
            Slot::Here(resource) => {
                if let Some((hold, until)) = self.in_force(resource, lease) {
                    info.owner = hold.owner.to_vec();
                    info.token = hold.token;
                    info.holds = hold.count;
                    info.lease_ms = hold.lease_ms;
                    info.ttl_ms = until - lease;
                    info.held_ms = now.mono.0.saturating_sub(hold.since.0) / 1_000;
                    info.label = hold.label().to_vec();
                    info.bound_client = self.bound_client(resource);
                    return Ok(Some(info));
                }
                if let Lock::Closed { .. } = resource.lock() {
                    info.ttl_ms = self.ends(resource, lease).map_or(0, |until| until - lease);
                }
            }
        }
        Ok((info.waiters > 0 || info.ttl_ms > 0).then_some(info))
    }

    /// DLOCK.CHECK: whether `token` is that of the hold in force.
    pub fn is_current<S: Store>(
        &self,
        store: &mut S,
        now: Now,
        key: Key<'_>,
        token: u64,
    ) -> Result<bool, Foreign> {
        let lease = self.lease_time(now.mono);
        match store.get(key) {
            Slot::Foreign => Err(Foreign),
            Slot::Missing => Ok(false),
            Slot::Here(resource) => {
                Ok(self.in_force(resource, lease).is_some_and(|(hold, _)| hold.token == token))
            }
        }
    }

    /// DLOCK.WAITERS: the first `most` waiters in order of service.
    pub fn waiters<S: Store>(
        &self,
        store: &mut S,
        now: Now,
        key: Key<'_>,
        most: usize,
    ) -> Result<Vec<WaiterInfo>, Foreign> {
        if let Slot::Foreign = store.get(key) {
            return Err(Foreign);
        }
        let Some(queue) = self.waits().queue_of(key) else { return Ok(Vec::new()) };
        let lease = self.lease_time(now.mono);
        let waiting = self.waits().walk(queue).map(|(_, waiter)| waiter);
        let waiting = waiting.filter(|waiter| !waiter.presence.is_over(now.mono, lease));
        Ok(waiting.take(most).map(|waiter| self.row(waiter, now)).collect())
    }

    /// How many wait for `key`: a walk along the queue only if some of them may be due.
    fn count(&self, now: Now, key: Key<'_>) -> usize {
        let waits = self.waits();
        let Some(queue) = waits.queue_of(key) else { return 0 };
        let lease = self.lease_time(now.mono);
        let is_due = waits.timeouts.next().is_some_and(|at| at <= now.mono.0)
            || waits.graces.next().is_some_and(|at| at <= lease.0);
        if is_due {
            let over = |waiter: &Waiter| waiter.presence.is_over(now.mono, lease);
            waits.walk(queue).filter(|(_, waiter)| !over(waiter)).count()
        } else {
            waits.queue(queue).map_or(0, |queue| queue.len)
        }
    }

    fn row(&self, waiter: &Waiter, now: Now) -> WaiterInfo {
        WaiterInfo {
            owner: waiter.owner.to_vec(),
            client: waiter.client,
            waiting_ms: now.mono.0.saturating_sub(waiter.since.0) / 1_000,
            remaining_ms: match waiter.presence {
                Presence::Parked { until } => until.map(|until| until - now.mono),
                Presence::Queued => None,
                Presence::Absent { until } => Some(until - self.lease_time(now.mono)),
            },
            label: waiter.ask.label.to_vec(),
        }
    }

    /// DLOCK.POSITION: 0 for the holder, else the place in the queue, counted from 1; `None` for
    /// neither. A place wins over a hold.
    pub fn position<S: Store>(
        &self,
        store: &mut S,
        now: Now,
        key: Key<'_>,
        owner: &[u8],
    ) -> Result<Option<usize>, Foreign> {
        let lease = self.lease_time(now.mono);
        let holds = match store.get(key) {
            Slot::Foreign => return Err(Foreign),
            Slot::Missing => false,
            Slot::Here(resource) => {
                self.in_force(resource, lease).is_some_and(|(hold, _)| *hold.owner == *owner)
            }
        };
        let waits = self.waits();
        let is_over = |waiter: &Waiter| waiter.presence.is_over(now.mono, lease);
        let place = waits
            .queue_of(key)
            .and_then(|queue| waits.place_of(queue, owner))
            .filter(|&slot| !waits.get(slot).is_some_and(is_over));
        let ahead = |slot| waits.ahead_of(slot).filter(|waiter| !is_over(waiter)).count();
        Ok(place.map(|slot| ahead(slot) + 1).or_else(|| holds.then_some(0)))
    }

    /// The hold in force, and when it ends.
    pub(crate) fn in_force<'r>(
        &self,
        resource: &'r Resource,
        lease: LeaseInstant,
    ) -> Option<(&'r Hold, LeaseInstant)> {
        let until = self.ends(resource, lease).filter(|&until| until > lease)?;
        resource.lock().hold().map(|hold| (hold, until))
    }

    /// When the state of a resource ends by itself, also if it is not entered or not yet brought
    /// into the current epoch.
    fn ends(&self, resource: &Resource, lease: LeaseInstant) -> Option<LeaseInstant> {
        let deadline = resource.next_deadline()?;
        if resource.entry == NO_ENTRY {
            return Some(LeaseInstant(deadline.0 + lease.0));
        }
        let until = self.epoch_deadline(resource).unwrap_or(deadline);
        // Its connection may be gone without anybody having cut it yet.
        let tie = resource.lock().hold().and_then(Hold::tie);
        let cut = tie.and_then(|tie| Some(self.connections().gone_at(tie.client)? + tie.ms));
        Some(cut.map_or(until, |cut| until.min(cut)))
    }
}

const _: () = assert!(NO_CLIENT == 0, "0 is shown for `no connection`");
