//! What of a value is in force: the ends of its holds, and the connections to which they are bound.

use crate::base::ids::KeyId;
use crate::base::time::{LeaseInstant, Millis};
use crate::tables::Tables;
use crate::tables::regime::Regime;
use crate::value::hold::{Binding, Hold, NO_CLIENT};
use crate::value::resource::Resource;

impl Tables {
    /// The connection to which a hold is bound. [`NO_CLIENT`] if there is none, if it is closed, or if a change of role
    /// ended the binding.
    pub(crate) fn bound_client(&self, resource: &Resource, hold: &Hold) -> u64 {
        let is_live = self.regime.is_primary() && self.is_in_epoch(resource);
        let is_here = self.connections.gone_at(hold.bound_to()).is_none();
        if is_live && is_here { hold.bound_to() } else { NO_CLIENT }
    }

    /// Whether a resource belongs to the current epoch.
    pub(crate) fn is_in_epoch(&self, resource: &Resource) -> bool {
        self.leases.get(resource.key_id).is_none_or(|entry| entry.epoch == self.regime.epoch())
    }

    /// Whether the deadlines of a resource are moments of the current epoch.
    pub(crate) fn is_settled(&self, resource: &Resource) -> bool {
        resource.key_id != KeyId::NONE && self.is_in_epoch(resource)
    }

    /// The effective end of something with `deadline`, which gets `full` after a promotion and after a snapshot.
    pub(crate) fn ends(
        &self,
        resource: &Resource,
        deadline: LeaseInstant,
        full: Millis,
        lease: LeaseInstant,
    ) -> LeaseInstant {
        if resource.key_id == KeyId::NONE {
            let left = remainder(deadline, full, self.regime.trusts_no_remainder(resource));
            LeaseInstant(left.0 + lease.0)
        } else if self.is_in_epoch(resource) {
            deadline
        } else {
            self.regime.epoch_began() + full
        }
    }

    /// When a hold ends by itself. Also correct if its key has no entry yet or belongs to an older epoch, or if the
    /// loss of its connection has not shortened the lease yet.
    pub(crate) fn hold_ends(
        &self,
        resource: &Resource,
        hold: &Hold,
        lease: LeaseInstant,
    ) -> LeaseInstant {
        let grace_ms = self.settings.fair_grace_ms;
        let full = hold.lease_ms;
        let full = hold.binding().map_or(full, |binding| full.min(orphan_lease(binding, grace_ms)));
        let until = self.ends(resource, hold.deadline, full, lease);
        let shortened = hold
            .binding()
            .and_then(|binding| Some(self.connections.gone_at(binding.client)? + binding.ms));
        shortened.map_or(until, |end| until.min(end))
    }
}

impl Regime {
    /// Whether the remaining times of a loaded resource may be shorter than what clients were promised after it was
    /// saved. A replica need not count down: its promotion gives every lease in full.
    pub(crate) fn trusts_no_remainder(&self, resource: &Resource) -> bool {
        resource.from_snapshot && self.is_primary()
    }
}

/// The time left in a loaded resource: what was left when it was saved. For a snapshot it is the longer of that and the
/// full time, because the snapshot lacks later renewals.
pub(crate) fn remainder(left: LeaseInstant, full: Millis, from_snapshot: bool) -> LeaseInstant {
    if from_snapshot { left.max(LeaseInstant(0) + full) } else { left }
}

/// The longest time that a bound hold lasts without its connection.
pub(crate) fn orphan_lease(binding: Binding, grace_ms: Millis) -> Millis {
    binding.ms.max(grace_ms)
}
