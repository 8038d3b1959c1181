//! The regime: whether this server decides, whether it may write and grant, and by which clock leases run.
//!
//! Everything else asks here, so no two places can disagree on who may grant.
use crate::base::ids::KeyId;
use crate::base::slab::SlabId;
use crate::base::time::{Instant, LeaseClock, LeaseInstant, Millis};
use crate::record::divergence::Divergence;

/// Whether this server decides or follows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// It decides.
    Primary,
    /// It replays the decisions of its primary: it ends no lease and serves no waiter.
    Replica,
}

/// Whether the server would accept a client's write now.
///
/// Every operation on the machine runs under one of these. Only [`Gate::Open`] grants, hands off or changes a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Gate {
    /// The server has not been asked. Writes wait until it is.
    Unknown,
    /// It would accept the write.
    Open,
    /// It would refuse: paused, too few replicas, a disk error, cluster down, loading.
    Shut,
}

/// Whether a server that has begun to serve as a primary has been able to write since.
///
/// After a failover it may have too few replicas (`min-replicas-to-write`). Until one that followed the old primary
/// comes over, that replica can confirm grants and renewals of the old primary. So the time for which leases last and
/// the quarantine must not have begun to run before: docs/failover.md derives it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Service {
    /// It has accepted writes: leases and the quarantine run.
    Begun,
    /// The server has not been asked yet. They run from the start or the promotion.
    Unasked { quarantine_ms: Millis },
    /// The server refused. They stand still until it accepts writes.
    Refused { quarantine_ms: Millis },
}

/// See the module documentation.
#[derive(Debug)]
pub struct Regime {
    role: Role,
    /// Set for each operation: see [`Regime::set_gate`].
    gate: Gate,
    clock: LeaseClock,
    service: Service,
    /// The end of a quarantine, until that is processed.
    quarantine: Option<Instant>,
    /// When a quarantine last began, began again or ended, or the service as a primary began.
    since: Instant,
    /// What this server could not read. No change of role ends it.
    pub divergence: Divergence,
    /// Number of promotions: an index entry of an older epoch gets its lease in full, from the start of this one.
    epoch: u32,
    epoch_began: LeaseInstant,
    /// Entries below this may still belong to an older epoch.
    cursor: KeyId,
}

impl Default for Regime {
    fn default() -> Self {
        Self {
            role: Role::Primary,
            gate: Gate::Unknown,
            clock: LeaseClock::default(),
            service: Service::Begun,
            quarantine: None,
            since: Instant(0),
            divergence: Divergence::default(),
            epoch: 0,
            epoch_began: LeaseInstant(0),
            cursor: KeyId::FIRST,
        }
    }
}

impl Regime {
    /// Whether this server decides or follows.
    pub fn role(&self) -> Role {
        self.role
    }

    /// Whether it decides.
    pub fn is_primary(&self) -> bool {
        self.role == Role::Primary
    }

    /// The server's answer for the next operation: whether it would accept a client's write at `mono`.
    pub fn set_gate(&mut self, gate: Gate, mono: Instant) {
        self.gate = gate;
        match (self.service, gate) {
            (Service::Unasked { quarantine_ms }, Gate::Shut) => {
                self.service = Service::Refused { quarantine_ms };
                self.observe(mono, true);
            }
            (Service::Unasked { .. }, Gate::Open) => self.service = Service::Begun,
            (Service::Refused { quarantine_ms }, Gate::Open) => {
                self.service = Service::Begun;
                self.observe(mono, false);
                self.begin_quarantine(mono, quarantine_ms);
            }
            (Service::Begun, _) | (_, Gate::Unknown) | (Service::Refused { .. }, Gate::Shut) => {}
        }
    }

    /// The server's answer was for another operation.
    pub fn forget_gate(&mut self) {
        self.gate = Gate::Unknown;
    }

    /// Whether the server is still to be asked for its first write as a primary.
    pub fn awaits_writes(&self) -> bool {
        self.service != Service::Begun
    }

    /// Whether the server would accept a write.
    pub fn accepts_writes(&self) -> bool {
        self.gate == Gate::Open
    }

    /// Whether holds end and waiters are removed here now: on a primary that accepts writes.
    pub fn may_end(&self) -> bool {
        self.accepts_writes() && self.is_primary()
    }

    /// Whether holds begin here now: as [`Regime::may_end`], and neither in quarantine nor diverged.
    pub fn may_grant(&self, mono: Instant) -> bool {
        self.may_end() && !self.withholds_grants(mono)
    }

    /// Whether grants wait although the server accepts writes: in quarantine, and while it is diverged.
    pub fn withholds_grants(&self, mono: Instant) -> bool {
        self.quarantine_left(mono) > 0 || self.divergence.is_any()
    }

    /// The clock of leases.
    pub fn clock(&self) -> &LeaseClock {
        &self.clock
    }

    /// The time on the clock of leases.
    pub fn lease(&self, mono: Instant) -> LeaseInstant {
        self.clock.at(mono)
    }

    /// The server is paused at `mono`, or is not. The clock also stands still until the first write of a primary.
    pub fn observe(&mut self, mono: Instant, paused: bool) {
        let is_refused = matches!(self.service, Service::Refused { .. });
        self.clock.observe(mono, paused || is_refused);
    }

    /// This server begins to serve as a primary at `mono`, with a quarantine of `quarantine_ms`.
    pub fn begin_service(&mut self, mono: Instant, quarantine_ms: Millis) {
        self.service = Service::Unasked { quarantine_ms };
        self.since = mono;
        self.begin_quarantine(mono, quarantine_ms);
    }

    /// On a primary: no grants from `mono` on for at least this time. A longer one that runs is not shortened.
    pub fn begin_quarantine(&mut self, mono: Instant, ms: Millis) {
        if ms > 0 && self.is_primary() {
            self.quarantine = self.quarantine.max(Some(mono + ms));
            self.since = mono;
        }
    }

    /// How long it has been so at `mono` that there is a quarantine, or none, in milliseconds. One that begins again
    /// counts from then.
    pub fn quarantine_age(&self, mono: Instant) -> Millis {
        let is_running = self.quarantine_left(mono) > 0;
        let since = self.quarantine.filter(|_| !is_running).unwrap_or(self.since);
        // Rounded down: a request that is older must not pass for a younger one.
        mono.0.saturating_sub(since.0) / 1_000
    }

    /// How long the quarantine lasts from `mono` on, in milliseconds; 0 if there is none.
    pub fn quarantine_left(&self, mono: Instant) -> Millis {
        match self.service {
            Service::Refused { quarantine_ms } => quarantine_ms,
            _ => self.quarantine.map_or(0, |until| until - mono),
        }
    }

    /// The end of a quarantine, until [`Regime::end_quarantine`] has processed it.
    pub fn quarantine_end(&self) -> Option<Instant> {
        // While writes are refused, it is not known.
        let is_known = !matches!(self.service, Service::Refused { .. });
        self.quarantine.filter(|_| is_known)
    }

    /// Whether a quarantine has ended, once.
    pub fn end_quarantine(&mut self, mono: Instant) -> bool {
        if matches!(self.service, Service::Refused { .. }) {
            return false;
        }
        let ended = self.quarantine.take_if(|until| *until <= mono);
        self.since = ended.unwrap_or(self.since);
        ended.is_some()
    }

    /// This server follows from now on; `false` if it did already.
    pub fn demote(&mut self) -> bool {
        let was_primary = self.is_primary();
        if was_primary {
            self.role = Role::Replica;
            self.quarantine = None;
            self.service = Service::Begun;
        }
        was_primary
    }

    /// This server decides from now on; `false` if it did already. The caller begins an epoch.
    pub fn promote(&mut self) -> bool {
        let was_replica = !self.is_primary();
        self.role = Role::Primary;
        was_replica
    }

    /// A new epoch: the entries below `bound` belong to older ones.
    pub fn begin_epoch(&mut self, mono: Instant, bound: KeyId) {
        self.epoch = self.epoch.wrapping_add(1);
        self.epoch_began = self.clock.at(mono);
        self.cursor = bound;
    }

    /// Number of promotions.
    pub fn epoch(&self) -> u32 {
        self.epoch
    }

    /// The start of this epoch, on the lease clock.
    pub fn epoch_began(&self) -> LeaseInstant {
        self.epoch_began
    }

    /// Whether some entries may still belong to an older epoch.
    pub fn has_old_entries(&self) -> bool {
        self.cursor > KeyId::FIRST
    }

    /// The next entry that may belong to an older epoch; each of them once.
    pub fn next_old_entry(&mut self) -> Option<KeyId> {
        self.cursor = KeyId::new(self.cursor.number().checked_sub(1)?);
        Some(self.cursor)
    }
}
