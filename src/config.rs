//! The settings: `CONFIG GET dlock.*`.

use std::sync::atomic::{AtomicI64, AtomicU32, Ordering};

use dlock_core::base::time::Millis;
use dlock_core::record::Level;
use dlock_core::tables::settings::Settings;
use dlock_wire::names::{CLAIM_MIN_MS, DAY_MS, KEYS_MAX, LEASE_MAX_MS, PERMITS_MAX, QUEUE_MAX_MS};

/// Type of a setting.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// An integer.
    Number,
    /// `yes` or `no`.
    Switch,
}

/// One setting. Any thread may read its value; the server changes it on the main thread.
pub struct Setting {
    /// Name, without the prefix `dlock.`.
    pub name: &'static str,
    /// Type of the value.
    pub kind: Kind,
    /// Default value.
    pub default: i64,
    /// Smallest value.
    pub min: i64,
    /// Largest value.
    pub max: i64,
    value: AtomicI64,
}

/// Counts changes, so that a command detects any change with one read.
static CHANGES: AtomicU32 = AtomicU32::new(0);

impl Setting {
    const fn number(name: &'static str, default: i64, min: i64, max: i64) -> Self {
        Self { name, kind: Kind::Number, default, min, max, value: AtomicI64::new(default) }
    }

    const fn ms(name: &'static str, default: Millis, min: Millis, max: Millis) -> Self {
        Self::number(name, default.cast_signed(), min.cast_signed(), max.cast_signed())
    }

    const fn count(name: &'static str, default: usize, min: i64, max: i64) -> Self {
        Self::number(name, default.cast_signed() as i64, min, max)
    }

    const fn switch(name: &'static str, default: bool) -> Self {
        let default = default as i64;
        Self { name, kind: Kind::Switch, default, min: 0, max: 1, value: AtomicI64::new(default) }
    }

    /// The current value.
    pub fn get(&self) -> i64 {
        self.value.load(Ordering::Relaxed)
    }

    /// Changes it; the server has checked the range.
    pub fn set(&self, value: i64) {
        self.value.store(value, Ordering::Relaxed);
        CHANGES.fetch_add(1, Ordering::Relaxed);
    }

    fn in_ms(&self) -> Millis {
        Millis::try_from(self.get()).unwrap_or(0)
    }

    fn level(&self) -> Level {
        u8::try_from(self.get()).ok().and_then(Level::new).unwrap_or_default()
    }

    fn as_count(&self) -> usize {
        usize::try_from(self.get()).unwrap_or(usize::MAX)
    }
}

/// The defaults.
const DEFAULT: Settings = Settings::DEFAULT;

/// Limit: waiter ids cannot number more.
const MOST_WAITERS: i64 = 100_000_000;

/// Limit: permits of one semaphore.
const MOST_HOLDS: i64 = PERMITS_MAX as i64;

/// Limit: more request ids than fit into the memory of most machines.
const MOST_REQUESTS: i64 = 100_000_000;

/// Limit: each entry takes up to about 800 bytes.
const MOST_LOG_ENTRIES: i64 = 10_000;

static DEFAULT_LEASE: Setting =
    Setting::ms("default-lease-ms", DEFAULT.default_lease_ms, 1, LEASE_MAX_MS);
static FAIR_GRACE: Setting = Setting::ms("fair-grace-ms", DEFAULT.fair_grace_ms, 0, QUEUE_MAX_MS);
static WAITERS_PER_KEY: Setting =
    Setting::count("max-waiters-per-key", DEFAULT.max_waiters_per_key, 0, MOST_WAITERS);
static WAITERS: Setting = Setting::count("max-waiters", DEFAULT.max_waiters, 0, MOST_WAITERS);
static HOLDS_PER_KEY: Setting =
    Setting::count("max-holds-per-key", DEFAULT.max_holds_per_key, 1, MOST_HOLDS);
static KEYS_PER_CALL: Setting =
    Setting::count("max-keys-per-call", DEFAULT.max_keys_per_call, 1, KEYS_MAX as i64);
static DEADLOCK_DETECTION: Setting =
    Setting::switch("deadlock-detection", DEFAULT.deadlock_detection);
static DEADLOCK_RECHECK: Setting =
    Setting::ms("deadlock-recheck-ms", DEFAULT.deadlock_recheck_ms, 0, 3_600_000);
static QUARANTINE: Setting =
    Setting::ms("restart-quarantine-ms", DEFAULT.restart_quarantine_ms, 0, LEASE_MAX_MS);
static LOCK_DELAY: Setting = Setting::ms("lock-delay-ms", DEFAULT.lock_delay_ms, 0, LEASE_MAX_MS);
/// Clients rely on the minimum: for that time a grant that a message announced is guaranteed.
static CLAIM: Setting = Setting::ms("claim-ms", DEFAULT.claim_ms, CLAIM_MIN_MS, QUEUE_MAX_MS);
static MAX_TOKEN_LEAD: Setting =
    Setting::ms("max-token-lead-ms", DEFAULT.max_token_lead_ms, 0, LEASE_MAX_MS);
static REQUEST_MEMORY_MS: Setting =
    Setting::ms("request-memory-ms", DEFAULT.request_memory_ms, 0, DAY_MS);
static REQUEST_MEMORY_MAX: Setting =
    Setting::count("request-memory-max", DEFAULT.request_memory_max, 0, MOST_REQUESTS);

static LOG_MAX_LEN: Setting =
    Setting::count("log-max-len", DEFAULT.log_max_len, 0, MOST_LOG_ENTRIES);
static LOG_WAIT_MS: Setting = Setting::ms("log-wait-ms", DEFAULT.log_wait_ms, 0, LEASE_MAX_MS);
/// It goes back only with the setting of a data set that never had a larger one.
static RECORD_LEVEL: Setting = Setting::number(
    "record-level",
    DEFAULT.record_level.number() as i64,
    1,
    Level::LATEST.number() as i64,
);
static LOG_HOLD_MS: Setting = Setting::ms("log-hold-ms", DEFAULT.log_hold_ms, 0, LEASE_MAX_MS);

/// All settings.
pub static SETTINGS: [&Setting; 18] = [
    &DEFAULT_LEASE,
    &FAIR_GRACE,
    &WAITERS_PER_KEY,
    &WAITERS,
    &HOLDS_PER_KEY,
    &KEYS_PER_CALL,
    &DEADLOCK_DETECTION,
    &DEADLOCK_RECHECK,
    &QUARANTINE,
    &LOCK_DELAY,
    &CLAIM,
    &MAX_TOKEN_LEAD,
    &REQUEST_MEMORY_MS,
    &REQUEST_MEMORY_MAX,
    &LOG_MAX_LEN,
    &LOG_WAIT_MS,
    &LOG_HOLD_MS,
    &RECORD_LEVEL,
];

/// Number of changes of settings so far.
pub fn changes() -> u32 {
    CHANGES.load(Ordering::Relaxed)
}

/// The settings in the form of the core.
pub fn current(cluster: bool) -> Settings {
    Settings {
        default_lease_ms: DEFAULT_LEASE.in_ms(),
        fair_grace_ms: FAIR_GRACE.in_ms(),
        max_waiters_per_key: WAITERS_PER_KEY.as_count(),
        max_waiters: WAITERS.as_count(),
        max_holds_per_key: HOLDS_PER_KEY.as_count(),
        max_keys_per_call: KEYS_PER_CALL.as_count(),
        deadlock_detection: DEADLOCK_DETECTION.get() != 0,
        deadlock_recheck_ms: DEADLOCK_RECHECK.in_ms(),
        restart_quarantine_ms: QUARANTINE.in_ms(),
        lock_delay_ms: LOCK_DELAY.in_ms(),
        claim_ms: CLAIM.in_ms(),
        max_token_lead_ms: MAX_TOKEN_LEAD.in_ms(),
        request_memory_ms: REQUEST_MEMORY_MS.in_ms(),
        request_memory_max: REQUEST_MEMORY_MAX.as_count(),
        log_max_len: LOG_MAX_LEN.as_count(),
        log_wait_ms: LOG_WAIT_MS.in_ms(),
        log_hold_ms: LOG_HOLD_MS.in_ms(),
        record_level: RECORD_LEVEL.level(),
        cluster,
    }
}
