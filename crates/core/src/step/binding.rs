//! Bindings of holds to connections.
use crate::base::ids::{HoldRef, KeyId};
use crate::base::time::{LeaseInstant, Millis};
use crate::tables::Tables;
use crate::tables::connection::Connections;
use crate::tables::in_force::orphan_lease;
use crate::value::hold::{Binding, Hold, NO_CLIENT};
use crate::value::resource::Resource;

impl Tables {
    /// Notes the bindings of a resource that just got its entry. A replica knows no connections: its values may name
    /// connections that this server had as a primary.
    pub(crate) fn bind_all(&mut self, resource: &Resource) {
        if !self.regime.is_primary() {
            return;
        }
        for (id, hold) in resource.holds() {
            if hold.bound_to() != NO_CLIENT {
                self.connections.bind(hold.bound_to(), self.leases.hold_ref(resource.key_id, id));
            }
        }
    }

    /// MOVE brought a value from another home: its bindings follow.
    pub(crate) fn rebind(&mut self, home: u32, resource: &Resource) {
        for (id, hold) in resource.holds() {
            self.connections.unbind_hold(HoldRef { home, key: resource.key_id, id }, hold);
        }
        self.bind_all(resource);
    }

    /// An answered request for a hold that exists: with BIND (`ms`) a bound hold stays bound, to its connection and for
    /// the largest time; without, it is bound no more. A hold that is not bound stays so.
    pub(crate) fn follow(
        &mut self,
        hold_ref: HoldRef,
        hold: &mut Hold,
        ms: Option<Millis>,
        client: u64,
    ) {
        let Some(binding) = hold.binding() else { return };
        if let Some(ms) = ms {
            self.connections.bind_hold(hold_ref, hold, ms.max(binding.ms), client);
        } else {
            self.connections.unbind_hold(hold_ref, hold);
            hold.extras_mut().binding = None;
        }
    }
}

impl Connections {
    pub(crate) fn unbind_hold(&mut self, hold_ref: HoldRef, hold: &Hold) {
        let client = hold.bound_to();
        if hold_ref.key != KeyId::NONE && client != NO_CLIENT {
            self.unbind(client, hold_ref);
        }
    }
}

/// The connection of a bound hold is not here any more, through no fault of the holder: the hold has a grace in which
/// its owner can ask again.
pub(crate) fn orphan(hold: &mut Hold, from: LeaseInstant, grace_ms: Millis) {
    let deadline = hold.deadline;
    let Some(extras) = &mut hold.extras else { return };
    if let Some(unclaimed) = &mut extras.unclaimed {
        unclaimed.client = NO_CLIENT;
    }
    if let Some(binding) = &mut extras.binding {
        let until = from + orphan_lease(*binding, grace_ms);
        binding.client = NO_CLIENT;
        binding.is_shortened = until < deadline;
        hold.deadline = deadline.min(until);
    }
}

impl Connections {
    /// Binds a hold to a connection, or moves its binding there.
    pub(crate) fn bind_hold(
        &mut self,
        hold_ref: HoldRef,
        hold: &mut Hold,
        ms: Millis,
        client: u64,
    ) {
        self.unbind_hold(hold_ref, hold);
        let binding = Binding { ms, client, is_shortened: false };
        hold.extras_mut().binding = Some(binding);
        if hold_ref.key != KeyId::NONE && client != NO_CLIENT {
            self.bind(client, hold_ref);
        }
    }
}
