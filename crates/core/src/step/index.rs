//! The indexed entry of a key: what the value under the key means from now on, and when it ends.
//!
//! A value gets its entry when it is made, loaded, moved or taken over into a new epoch. After each step the machine
//! updates the entry from the value.

use crate::base::ids::KeyId;
use crate::base::key::Key;
use crate::base::time::{LeaseInstant, Millis};
use crate::ports::store::{Lookup, Store};
use crate::step::Step;
use crate::step::binding::orphan;
use crate::tables::Tables;
use crate::tables::in_force::remainder;
use crate::value::lock::Lock;
use crate::value::resource::{Body, Resource};

impl Step<'_> {
    /// Ensures that the resource under a key has its entry, in the current epoch.
    pub(crate) fn index(&mut self, resource: &mut Resource) {
        let loaded = resource.key_id == KeyId::NONE;
        if let Some(entry) = self.tables.leases.of_key(resource.key_id, self.key) {
            if entry.epoch == self.tables.regime.epoch() {
                return;
            }
            entry.epoch = self.tables.regime.epoch();
            self.start_in_epoch(resource);
        } else {
            resource.key_id =
                self.tables.leases.enter(self.key, resource.kind(), self.tables.regime.epoch());
            if loaded {
                self.start_loaded(resource);
            } else {
                self.tables.bind_all(resource);
            }
        }
        self.tables.settle(self.key, resource);
    }

    /// A loaded resource starts to run: its remaining times count from now.
    fn start_loaded(&mut self, resource: &mut Resource) {
        let has_extras = self.tables.start_clock(self.lease, resource);
        if self.tables.regime.is_primary() {
            self.dirty |= core::mem::take(&mut resource.is_news);
            self.tables.in_flight.loaded(self.key);
            let grace_ms = self.tables.settings.fair_grace_ms;
            // Bindings are among the extras.
            if has_extras {
                resource.change_all_holds(|_, hold| orphan(hold, self.lease, grace_ms));
            }
            self.adopt_entries(resource);
        }
    }
}

impl Tables {
    /// Turns the remaining times of a loaded resource into deadlines, and learns its tokens. Returns whether any hold
    /// has extras.
    pub(crate) fn start_clock(&mut self, lease: LeaseInstant, resource: &mut Resource) -> bool {
        let from_snapshot = self.regime.trusts_no_remainder(resource);
        let starts = |left: LeaseInstant, full: Millis| {
            LeaseInstant(lease.0.saturating_add(remainder(left, full, from_snapshot).0))
        };
        match &mut resource.body {
            Body::Latch(latch) => {
                let full = latch.lease_ms.unwrap_or_default();
                latch.deadline = latch.deadline.map(|left| starts(left, full));
            }
            _ => {
                if let Some(Lock::Closed { until, delay_ms }) = resource.lock_mut() {
                    *until = starts(*until, *delay_ms);
                }
            }
        }
        let (mut token, mut has_extras) = (0, false);
        resource.change_all_holds(|_, hold| {
            has_extras |= hold.extras.is_some();
            hold.deadline = starts(hold.deadline, hold.lease_ms);
            token = token.max(hold.token);
        });
        resource.from_snapshot = false;
        self.tokens.learn(token);
        has_extras
    }
}

impl Step<'_> {
    /// A replica was promoted: all leases it knows last in full once more, from the promotion.
    fn start_in_epoch(&mut self, resource: &mut Resource) {
        let began = self.tables.regime.epoch_began();
        let grace_ms = self.tables.settings.fair_grace_ms;
        match &mut resource.body {
            Body::Latch(latch) => latch.deadline = latch.lease_ms.map(|ms| began + ms),
            _ => {
                if let Some(Lock::Closed { until, delay_ms }) = resource.lock_mut() {
                    *until = began + *delay_ms;
                }
            }
        }
        resource.change_all_holds(|_, hold| {
            hold.deadline = began + hold.lease_ms;
            orphan(hold, began, grace_ms);
        });
        if self.tables.regime.is_primary() {
            self.adopt_entries(resource);
        }
    }
}

impl Tables {
    /// After a call may have joined the queue of `key`: its lease ends before those for which no call waits. So does an
    /// unclaimed grant, because the end of that decides whether the waiters of its connection count.
    pub(crate) fn note_awaited(&mut self, key: Key<'_>, resource: &Resource) {
        if resource.key_id != KeyId::NONE
            && !self.leases.is_awaited(resource.key_id)
            && (resource.has_unclaimed()
                || self.waits.queue_of(key).is_some()
                || self.waits.observers_of(key).is_some())
        {
            self.leases.set_awaited(resource.key_id);
        }
    }
}

/// A call waits for `key` from now on: see [`Tables::note_awaited`].
pub(crate) fn note_wait_for(tables: &mut Tables, keys: &mut dyn Store, key: Key<'_>) {
    if let Lookup::Here(resource) = keys.get(key) {
        tables.leases.set_awaited(resource.key_id);
    }
}

impl Tables {
    /// Updates the lease index from the new state of a resource.
    pub(crate) fn settle(&mut self, key: Key<'_>, resource: &mut Resource) {
        if resource.is_free() {
            if resource.key_id != KeyId::NONE {
                self.leases.leave(resource.key_id);
                resource.key_id = KeyId::NONE;
            }
            return;
        }
        if resource.key_id == KeyId::NONE {
            resource.key_id = self.leases.enter(key, resource.kind(), self.regime.epoch());
            self.bind_all(resource);
        }
        self.leases.set_held(resource.key_id, resource.held() as u64 + resource.leased());
        if self.regime.is_primary() {
            match resource.next_end() {
                Some((at, _)) => self.leases.arm(resource.key_id, at),
                None => self.leases.disarm(resource.key_id),
            }
        }
    }
}
