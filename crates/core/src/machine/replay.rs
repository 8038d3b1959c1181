//! What comes from outside as data: records of a primary or the AOF, loaded values, roles.

use super::{Machine, Role};
use crate::effects::Effects;
use crate::hold::{Hold, NO_CLIENT};
use crate::lease::NO_ENTRY;
use crate::record::{self, DecodeError};
use crate::resource::{Lock, Resource};
use crate::store::{Key, Slot, Store};
use crate::time::Now;
use alloc::vec::Vec;
use dlock_wire::reply::ErrorCode;

impl Machine {
    /// Carries out `DLOCK.APPLY key payload`: the key now is what the payload says.
    pub fn replay<S: Store>(
        &mut self,
        store: &mut S,
        now: Now,
        key: Key<'_>,
        payload: &[u8],
    ) -> Result<(), DecodeError> {
        let (mut state, granted) = record::decode_step(payload, now.mono)?;
        let lease = self.clock.at(now.mono);
        match store.get(key) {
            Slot::Foreign => return Err(DecodeError::Impossible),
            Slot::Missing if state.is_free() => {}
            Slot::Missing => {
                self.enter_replayed(key, lease, &mut state);
                store.put(key, state);
            }
            Slot::Here(resource) => {
                if self.leases.of_key(resource.entry, key).is_none() {
                    resource.entry = NO_ENTRY;
                }
                let entry = resource.entry;
                if let Some(hold) = resource.lock().hold() {
                    self.untie(entry, hold);
                }
                state.entry = entry;
                self.enter_replayed(key, lease, &mut state);
                *resource = state;
                if resource.is_free() {
                    store.remove(key);
                } else if granted {
                    store.persist(key);
                }
            }
        }
        Ok(())
    }

    fn enter_replayed(
        &mut self,
        key: Key<'_>,
        lease: crate::time::LeaseInstant,
        state: &mut Resource,
    ) {
        match state.lock_mut() {
            Lock::Free => {}
            Lock::Closed { until, .. } => until.0 += lease.0,
            Lock::Held(hold) => {
                hold.deadline.0 += lease.0;
                self.tokens.learn(hold.token);
            }
        }
        self.settle(key, state);
    }

    /// A value was loaded under `key` (RDB, RESTORE, a migration): its lease starts to run.
    pub fn adopt<S: Store>(&mut self, store: &mut S, now: Now, key: Key<'_>, fx: &mut Effects) {
        // What is loaded is not of another type, unless it was replaced since: nothing to do then.
        let _ = self.on_key(store, key, now, fx, |machine, step, resource| {
            machine.hand_on(step, resource);
        });
    }

    /// The data set was replayed from the AOF or loaded, and the server starts to serve: holds
    /// that were tied to a connection have a grace to be tied anew.
    pub fn loaded(&mut self, now: Now) {
        if self.role == Role::Primary {
            self.begin_epoch(now);
        }
    }

    /// This server is a replica from now on: blocked calls are told to ask elsewhere, places go,
    /// and no lease ends here.
    pub fn demote(&mut self, fx: &mut Effects) {
        if self.role == Role::Replica {
            return;
        }
        self.role = Role::Replica;
        let queues: Vec<u32> = self.waits.queues().map(|(id, _)| id).collect();
        for queue in queues {
            let text = "this server became a replica; ask the new primary";
            self.dismiss_queue(queue, ErrorCode::Unblocked, text, fx);
        }
        self.connections.clear();
        self.in_flight.clear();
        self.quarantine_until = None;
        for id in 0..self.leases.bound() {
            self.leases.disarm(id);
        }
    }

    /// This server decides from now on. Every hold gets its last known lease in full: how much of
    /// it has passed is known only to the server that is gone.
    pub fn promote(&mut self, now: Now) {
        if self.role == Role::Primary {
            return;
        }
        self.role = Role::Primary;
        self.begin_epoch(now);
        self.begin_quarantine(now.mono);
    }

    fn begin_epoch(&mut self, now: Now) {
        self.epoch = self.epoch.wrapping_add(1);
        self.epoch_began = self.clock.at(now.mono);
        self.epoch_cursor = self.leases.bound();
    }

    /// Brings the next entry into the current epoch; `false` when all are.
    pub(super) fn advance_epoch<S: Store>(
        &mut self,
        store: &mut S,
        now: Now,
        fx: &mut Effects,
    ) -> bool {
        let Some(id) = self.epoch_cursor.checked_sub(1) else { return false };
        self.epoch_cursor = id;
        if let Some(entry) = self.leases.get(id)
            && entry.epoch != self.epoch
        {
            let name: Vec<u8> = entry.name.to_vec();
            let key = Key { db: entry.db, name: &name };
            // Opening the key is all it takes; an entry whose key is gone goes with the notice of that.
            let _ = self.on_key(store, key, now, fx, |_, _, _| ());
        }
        true
    }

    /// The connection that a hold is tied to; [`NO_CLIENT`] when it has none, or had one that was
    /// left behind by a change of role.
    pub(crate) fn bound_client(&self, resource: &Resource) -> u64 {
        let hold = resource.lock().hold();
        let is_live = self.role == Role::Primary && self.epoch_deadline(resource).is_none();
        let is_here = |hold: &&Hold| self.connections.gone_at(hold.tied_to()).is_none();
        hold.filter(|_| is_live).filter(is_here).map_or(NO_CLIENT, Hold::tied_to)
    }

    /// When a resource of an older epoch ends; `None` if it is of the current one.
    pub(crate) fn epoch_deadline(&self, resource: &Resource) -> Option<crate::time::LeaseInstant> {
        let entry = self.leases.get(resource.entry)?;
        if entry.epoch == self.epoch {
            return None;
        }
        Some(match resource.lock() {
            Lock::Free => return None,
            Lock::Closed { delay_ms, .. } => self.epoch_began + *delay_ms,
            Lock::Held(hold) => {
                let full = super::full_lease(hold);
                let grace_ms = self.settings.fair_grace_ms;
                let most = hold.tie().map_or(full, |tie| super::orphan_lease(tie, grace_ms));
                self.epoch_began + full.min(most)
            }
        })
    }

    /// Whether a RESTORE may bring a token in at this wall clock.
    pub fn accepts_token(&self, resource: &Resource, wall_us: u64) -> bool {
        token(resource).is_none_or(|token| token <= self.tokens.ceiling(wall_us))
    }
}

fn token(resource: &Resource) -> Option<u64> {
    resource.lock().hold().map(|hold| hold.token)
}
