//! Bindings of holds to connections.
use crate::ids::NO_ENTRY;
use crate::machine::{Grip, Machine};
use crate::state::hold::{Hold, NO_CLIENT, Tie};
use crate::state::resource::Resource;
use crate::time::{LeaseInstant, Millis};

impl Machine {
    /// Notes the bindings of a resource that just got its entry. A replica knows no connections: its values may name
    /// connections that this server had as a primary.
    pub(crate) fn tie_all(&mut self, resource: &Resource) {
        if !self.regime.is_primary() {
            return;
        }
        for (id, hold) in resource.holds() {
            if hold.tied_to() != NO_CLIENT {
                self.connections.tie(hold.tied_to(), resource.entry, id);
            }
        }
    }

    /// Binds a hold to a connection, or moves its binding there.
    pub(crate) fn tie(&mut self, (entry, id): Grip, hold: &mut Hold, ms: Millis, client: u64) {
        self.untie((entry, id), hold);
        let tie = Tie { ms, client, cut: false, orphan_until: None };
        hold.extras_mut().tie = Some(tie);
        if entry != NO_ENTRY && client != NO_CLIENT {
            self.connections.tie(client, entry, id);
        }
    }

    /// Moves the binding of a hold to the connection that claims it or repeats a call. If the call names a time, the
    /// binding gets it as `ms`. A hold without a binding gets none from a call without BIND.
    pub(crate) fn follow(&mut self, grip: Grip, hold: &mut Hold, ms: Option<Millis>, client: u64) {
        if let Some(ms) = ms.or(hold.tie().map(|tie| tie.ms))
            && client != NO_CLIENT
        {
            self.tie(grip, hold, ms, client);
        }
    }

    pub(crate) fn untie(&mut self, (entry, id): Grip, hold: &Hold) {
        let client = hold.tied_to();
        if entry != NO_ENTRY && client != NO_CLIENT {
            self.connections.untie(client, entry, id);
        }
    }
}

/// The longest time that a bound hold lasts without its connection.
pub(crate) fn orphan_lease(tie: Tie, grace_ms: Millis) -> Millis {
    tie.ms.max(grace_ms)
}

/// The connection of a bound hold is not here any more, through no fault of the holder: the hold has a grace in which
/// it can be bound again.
pub(crate) fn orphan(hold: &mut Hold, from: LeaseInstant, grace_ms: Millis) {
    let deadline = hold.deadline;
    let Some(extras) = &mut hold.extras else { return };
    if let Some(unclaimed) = &mut extras.unclaimed {
        unclaimed.client = NO_CLIENT;
    }
    if let Some(tie) = &mut extras.tie {
        let until = from + orphan_lease(*tie, grace_ms);
        tie.client = NO_CLIENT;
        tie.orphan_until = Some(until);
        tie.cut = until < deadline;
        hold.deadline = deadline.min(until);
    }
}
