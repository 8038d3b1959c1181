//! What an operator can set, and the defaults.

use crate::base::time::Millis;
use crate::record::Level;
use crate::value::spent::Limits;

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

impl Settings {
    /// The settings of a server without configuration.
    pub const DEFAULT: Self = Self {
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
    };

    /// Keys of one call for several locks that are held. An operator who lowers the limit of acquiring calls does not
    /// stop the release of what was acquired before, unless that limit was above the default.
    pub(crate) fn keys_per_held_call(&self) -> usize {
        self.max_keys_per_call.max(Self::DEFAULT.max_keys_per_call)
    }
}

impl Default for Settings {
    fn default() -> Self {
        Self::DEFAULT
    }
}

impl Settings {
    /// How long and how many requests are remembered.
    pub fn request_limits(&self) -> Limits {
        let settings = &self;
        Limits { keep_ms: settings.request_memory_ms, most: settings.request_memory_max }
    }
}
