//! All volatile state of the lock server, and its bookkeeping.

pub mod connection;
pub mod event_log;
pub mod histogram;
pub(crate) mod in_force;
pub(crate) mod late_search;
pub mod latency;
pub mod lease;
pub(crate) mod left_over;
pub(crate) mod pending;
pub mod portions;
pub mod queues;
pub(crate) mod recent_ends;
pub mod regime;
pub mod settings;

use crate::base::hash::HashKeys;
use crate::base::key::Key;
use crate::base::kind::Kind;
use crate::base::time::Instant;
use crate::base::token::Tokens;
use crate::ports::effects::{Answer, Outcome};
use crate::record::Level;
use crate::tables::connection::Connections;
use crate::tables::event_log::EventLog;
use crate::tables::late_search::LateSearch;
use crate::tables::latency::Latency;
use crate::tables::lease::Leases;
use crate::tables::pending::Pending;
use crate::tables::pending::in_flight::GrantsInFlight;
use crate::tables::portions::WIDE_AT_ONCE;
use crate::tables::queues::WaitQueues;
use crate::tables::recent_ends::RecentEnds;
use crate::tables::regime::Regime;
use crate::tables::settings::Settings;
use crate::value::spent::SpentRequests;
use dlock_wire::reply::ErrorCode;

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
    pub evicted: u64,
    pub refused_notheld: u64,
    pub refused_spent: u64,
    pub refused_stale: u64,
}

impl Counters {
    /// Counts an answer that tells a client that its hold or its request is over.
    pub(crate) fn count_refusal(&mut self, answer: &Answer) {
        let Answer::Now(Outcome::Fault(fault)) = answer else { return };
        match fault.code {
            ErrorCode::NotHeld => self.refused_notheld += 1,
            ErrorCode::Spent => self.refused_spent += 1,
            _ => {}
        }
    }
}

/// See the module documentation.
#[derive(Debug)]
pub struct Tables {
    /// What an operator can set; the shell keeps it up to date.
    pub settings: Settings,
    /// Events since the start.
    pub counters: Counters,
    /// Who may grant, and the clock of leases.
    pub regime: Regime,
    /// The level of the data: that of the records that this server writes.
    pub level: Level,
    /// The fencing tokens.
    pub tokens: Tokens,
    /// The lease index.
    pub leases: Leases,
    /// The queues.
    pub waits: WaitQueues,
    /// Number of waiters, holds and owners that all searches for cycles have inspected since the start.
    pub searched: u64,
    /// The search for cycles from the tick.
    pub(crate) late: LateSearch,
    /// Requests whose places ended because they were part of a cycle.
    pub(crate) refused: SpentRequests,
    /// The known state of connections.
    pub connections: Connections,
    /// Grants in flight to a parked caller: not known to be delivered yet.
    pub in_flight: GrantsInFlight,
    /// Requests that were carried out and are over.
    pub spent: SpentRequests,
    /// Largest number of waiters that one step serves, and of expired holds that it ends.
    pub(crate) wide_at_once: usize,
    /// Number of the kind of work that the tick asks first.
    pub(crate) next_kind: usize,
    /// Work left to later turns.
    pub(crate) pending: Pending,
    /// How the last holds of locks ended.
    pub(crate) recent_ends: RecentEnds,
    /// The key index at which the next ANYACQUIRE starts.
    pub(crate) any_start: usize,
    /// Notable events, for operators.
    pub log: EventLog,
    /// How long waits and holds last, for operators.
    pub latency: Latency,
}

impl Tables {
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
            in_flight: GrantsInFlight::new(keys),
            spent: SpentRequests::new(keys),
            wide_at_once: WIDE_AT_ONCE,
            next_kind: 0,
            pending: Pending::default(),
            recent_ends: RecentEnds::default(),
            any_start: 0,
            log: EventLog::default(),
            latency: Latency::default(),
        }
    }

    /// This server begins to serve as a primary at `mono`: its process started, or it was promoted. If the server then
    /// refuses writes, leases and the quarantine of `restart_quarantine_ms` begin with the first write that it accepts.
    pub(crate) fn begin_service(&mut self, mono: Instant) {
        self.regime.begin_service(mono, self.settings.restart_quarantine_ms);
    }

    /// A replica of this primary is online at `mono`: a quarantine begins. The replica may come from another primary,
    /// where it has confirmed grants that this server does not know.
    pub(crate) fn replica_attached(&mut self, mono: Instant) {
        self.regime.begin_quarantine(mono, self.settings.restart_quarantine_ms);
    }

    /// The largest token that FENCE or RESTORE may bring at this wall clock, in microseconds. It is the last token, or
    /// `max_token_lead_ms` above the clock.
    pub fn token_ceiling(&self, wall_us: u64) -> u64 {
        self.tokens.ceiling(wall_us, self.settings.max_token_lead_ms)
    }

    /// Number of grants sent to a parked caller that are not known to have arrived.
    pub fn in_flight(&self) -> usize {
        self.in_flight.len()
    }
}

impl WaitQueues {
    /// Whether waiters of another family wait for the key, which is missing.
    pub(crate) fn is_awaited_as_another(&self, kind: Kind, key: Key<'_>) -> bool {
        let Some(id) = self.queue_of(key) else { return false };
        self.queue(id).is_some_and(|queue| queue.kind != kind && queue.len > 0)
    }
}
