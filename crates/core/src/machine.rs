//! The machine: all volatile state of the lock server.
//!
//! Here is what it consists of. What it does is in the rooms around: operations of clients (`ops`, entered by
//! [`Machine::execute`]), events without a call (`events`), and the step in which both run on a key ([`crate::turn`]).

use crate::key::Key;
use crate::kind::Kind;
use crate::portions::WIDE_AT_ONCE;
use crate::regime::Regime;

use crate::connection::Connections;
use crate::deadlock::LateSearch;
use crate::lease::Leases;
use crate::observe::Latency;
use crate::observe::event_log::EventLog;
use crate::pending::Pending;
use crate::pending::in_flight::InFlight;
use crate::queues::WaitQueues;
use crate::queues::waiter::{HashKeys, WaiterId};
use crate::recent_ends::RecentEnds;
use crate::record::Level;
use crate::regime::{Gate, Role};
use crate::spent::SpentRequests;
use crate::time::{Instant, LeaseInstant, Millis};
use crate::token::Tokens;
use dlock_wire::reply::HoldEnd;
use hashbrown::HashMap;

/// What an operator can set.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// Lease of an ACQUIRE without PX or EX, in milliseconds.
    pub default_lease_ms: Millis,
    /// How long a queue entry outlives its connection, in milliseconds.
    pub fair_grace_ms: Millis,
    /// Waiters on one key, blocked or queued.
    pub max_waiters_per_key: usize,
    /// Waiters on all keys together.
    pub max_waiters: usize,
    /// Readers, or leases of permits, of one key. Waiters that are granted when others release may exceed it.
    pub max_holds_per_key: usize,
    /// Keys of one call that acquires several.
    pub max_keys_per_call: usize,
    /// Refuse a call that would close a cycle of waiting owners.
    pub deadlock_detection: bool,
    /// How long after one search over all waits the next one begins at the latest, in milliseconds; 0: never.
    pub deadlock_recheck_ms: Millis,
    /// How long new grants wait after a start or promotion, in milliseconds.
    pub restart_quarantine_ms: Millis,
    /// How long a lock stays closed after a hold ended without action of its holder, in milliseconds.
    pub lock_delay_ms: Millis,
    /// Longest time in which a QUEUE grant can be claimed, in milliseconds.
    pub claim_ms: Millis,
    /// How far a token of FENCE or RESTORE may be above the wall clock, in milliseconds.
    pub max_token_lead_ms: Millis,
    /// How long a request that is over is remembered, in milliseconds.
    pub request_memory_ms: Millis,
    /// Largest number of remembered requests.
    pub request_memory_max: usize,
    /// Largest number of log entries; 0: nothing is logged.
    pub log_max_len: usize,
    /// Waits longer than this are logged, in milliseconds; 0: none.
    pub log_wait_ms: Millis,
    /// Holds released after more than this are logged, in milliseconds; 0: none.
    pub log_hold_ms: Millis,
    /// The level that this server writes as a primary, unless its data has a larger one.
    pub record_level: Level,
    /// The server is part of a cluster: a key that is gone may have moved to another node.
    pub cluster: bool,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            default_lease_ms: 30_000,
            fair_grace_ms: 5_000,
            max_waiters_per_key: 10_000,
            max_waiters: 1_000_000,
            max_holds_per_key: 10_000,
            max_keys_per_call: 4_096,
            deadlock_detection: true,
            deadlock_recheck_ms: 1_000,
            restart_quarantine_ms: 0,
            lock_delay_ms: 0,
            claim_ms: 30_000,
            max_token_lead_ms: 60_000,
            request_memory_ms: 60_000,
            request_memory_max: 1_000_000,
            log_max_len: 128,
            log_wait_ms: 10_000,
            log_hold_ms: 0,
            record_level: Level::FIRST,
            cluster: false,
        }
    }
}

/// Events since the start, for INFO.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[allow(missing_docs)] // the names are the INFO fields
pub struct Counters {
    pub grants_at_once: u64,
    pub grants_after_waiting: u64,
    pub timeouts: u64,
    pub expiries: u64,
    pub releases: u64,
    pub broken: u64,
    pub disconnected: u64,
    pub deadlocks_refused: u64,
    pub deadlock_searches_cut: u64,
    pub replaced: u64,
    pub unclaimed: u64,
}

/// See the module documentation.
#[derive(Debug)]
pub struct Machine {
    /// What an operator can set; the shell keeps it up to date with [`Machine::configure`].
    pub settings: Settings,
    pub(crate) counters: Counters,
    pub(crate) regime: Regime,
    /// The level of the data: that of the records that this server writes.
    pub(crate) level: Level,
    pub(crate) tokens: Tokens,
    pub(crate) leases: Leases,
    pub(crate) waits: WaitQueues,
    /// Waiters inspected by searches for cycles.
    pub(crate) searched: u64,
    /// The search for cycles from the tick.
    pub(crate) late: LateSearch,
    /// Requests whose places ended because they were part of a cycle.
    pub(crate) refused: SpentRequests,
    pub(crate) connections: Connections,
    /// Grants in flight to a parked caller: not known to be delivered yet.
    pub(crate) in_flight: HashMap<WaiterId, InFlight, HashKeys>,
    /// Requests that were carried out and are over.
    pub(crate) spent: SpentRequests,
    /// Largest number of waiters that one step serves, and of expired holds that it ends.
    pub(crate) wide_at_once: usize,
    /// Number of pieces of work that ticks have begun: it tells which kind is next.
    pub(crate) pieces: usize,
    /// Work left to later turns.
    pub(crate) pending: Pending,
    /// How the last holds of locks ended.
    pub(crate) recent_ends: RecentEnds,
    /// The key index at which the next ANYACQUIRE starts.
    pub(crate) any_start: usize,
    /// Notable events, for operators.
    pub(crate) log: EventLog,
    /// How long waits and holds last, for operators.
    pub(crate) latency: Latency,
}

/// Why a hold ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    Released,
    /// Released by its owner, who says that the work under it is done.
    Done,
    /// The owner returned an unclaimed grant (CANCEL), or the grant could not be delivered.
    Returned,
    Expired,
    Unclaimed,
    Disconnected,
    Broken,
}

impl From<End> for HoldEnd {
    fn from(end: End) -> Self {
        match end {
            End::Released => Self::Released,
            End::Done => Self::Done,
            End::Returned => Self::Returned,
            End::Expired => Self::Expired,
            End::Unclaimed => Self::Unclaimed,
            End::Disconnected => Self::Disconnected,
            End::Broken => Self::Broken,
        }
    }
}

impl Machine {
    /// A machine that just started. `keys` should be random, so that clients cannot choose keys and owners that
    /// collide.
    pub fn new(keys: HashKeys, settings: Settings) -> Self {
        Self {
            settings,
            counters: Counters::default(),
            regime: Regime::default(),
            level: Level::FIRST,
            tokens: Tokens::default(),
            leases: Leases::default(),
            waits: WaitQueues::new(keys),
            searched: 0,
            late: LateSearch::default(),
            refused: SpentRequests::new(keys),
            connections: Connections::new(keys),
            in_flight: HashMap::with_hasher(keys),
            spent: SpentRequests::new(keys),
            wide_at_once: WIDE_AT_ONCE,
            pieces: 0,
            pending: Pending::default(),
            recent_ends: RecentEnds::default(),
            any_start: 0,
            log: EventLog::default(),
            latency: Latency::default(),
        }
    }

    /// Events since the start.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// The fencing tokens.
    pub fn tokens(&self) -> &Tokens {
        &self.tokens
    }

    /// The queues.
    pub fn waits(&self) -> &WaitQueues {
        &self.waits
    }

    /// The lease index.
    pub fn leases(&self) -> &Leases {
        &self.leases
    }

    /// The known state of connections.
    pub fn connections(&self) -> &Connections {
        &self.connections
    }

    /// Whether this server decides or follows.
    pub fn role(&self) -> Role {
        self.regime.role()
    }

    /// Number of grants sent to a parked caller that are not known to have arrived.
    pub fn in_flight(&self) -> usize {
        self.in_flight.len()
    }

    /// The time on the lease clock.
    pub fn lease_time(&self, mono: Instant) -> LeaseInstant {
        self.regime.lease(mono)
    }

    /// Tells the machine whether the server would accept a client's write at `mono`, for the next operation. The shell
    /// forgets it before it lends the machine, so that no operation uses the answer given to another one.
    pub fn set_gate(&mut self, gate: Gate, mono: Instant) {
        self.regime.set_gate(gate, mono);
    }

    /// Sets [`Gate::Unknown`].
    pub fn forget_gate(&mut self) {
        self.regime.forget_gate();
    }

    /// Limits the waiters served, holds ended and keys checked in one step to this number, at least two. For tests of
    /// work that is done in portions.
    pub fn set_portion(&mut self, most: usize) {
        self.wide_at_once = most.max(2);
    }

    /// Tells the machine whether the server is paused at `mono` (`CLIENT PAUSE`, `FAILOVER`).
    pub fn observe(&mut self, mono: Instant, paused: bool) {
        self.regime.observe(mono, paused);
    }

    /// This server begins to serve as a primary at `mono`: its process started, or it was promoted. If the server then
    /// refuses writes, leases and the quarantine of `restart_quarantine_ms` begin with the first write that it accepts.
    pub fn begin_service(&mut self, mono: Instant) {
        self.regime.begin_service(mono, self.settings.restart_quarantine_ms);
    }

    /// A replica of this primary is online at `mono`: a quarantine begins. The replica may come from another primary,
    /// where it has confirmed grants that this server does not know.
    pub fn replica_attached(&mut self, mono: Instant) {
        self.regime.extend_quarantine(mono, self.settings.restart_quarantine_ms);
    }

    /// How long the quarantine lasts from `mono` on, in milliseconds; 0 when there is none.
    pub fn quarantine_left(&self, mono: Instant) -> Millis {
        self.regime.quarantine_left(mono)
    }

    /// Learns a token that came with data.
    pub fn learn_token(&mut self, token: u64) {
        self.tokens.learn(token);
    }

    /// The largest token that FENCE or RESTORE may bring at this wall clock, in microseconds. It is the last token, or
    /// `max_token_lead_ms` above the clock.
    pub fn token_ceiling(&self, wall_us: u64) -> u64 {
        self.tokens.ceiling(wall_us, self.settings.max_token_lead_ms)
    }

    /// Whether waiters of another family wait for the key, which is missing.
    pub(crate) fn is_awaited_as_another(&self, kind: Kind, key: Key<'_>) -> bool {
        let Some(id) = self.waits.queue_of(key) else { return false };
        self.waits.queue(id).is_some_and(|queue| queue.kind != kind && queue.len > 0)
    }
}
