//! The measured figures, each with its source in docs/performance.md, docs/operations.md or docs/sizing.md.
//! Redis 7.0.15 with jemalloc, keys of 20 bytes, owners of 36 bytes. Sizes are in bytes, times in microseconds of
//! server CPU.

/// A held lock with its key. Performance, "Memory of a held lock": 265 to 277 at 100,000 to 1,000,000 locks.
pub const HELD: u64 = 277;
/// A QUEUE waiter. Performance, "Memory of a place in a queue": 422 at a lock each; 310 at one lock.
pub const QUEUED: u64 = 422;
/// The same in DFAIR. Performance, "Memory of a place in a queue": 934 at a lock each; 537 at one lock.
pub const FAIR: u64 = 934;
/// A blocked call with its connection, in its first seconds. Performance, "Memory of a place in a queue"; operations,
/// "Memory and limits": about half later.
pub const BLOCKED: u64 = 74_144;
/// A connection that has just sent a command. Measured for the page on sizing.
pub const CONNECTION: u64 = 38_114;
/// A remembered request id. Operations, "Memory and limits".
pub const REQUEST_ID: u64 = 48;
/// Of a pair with REQIDs, on replicas and in the append-only file: 157 bytes for the grant and 214 for the release, by
/// the format of records.
pub const RECORDS: u64 = 371;

/// An uncontended pair, one request at a time. Performance, "The pair against SET NX PX + compare-and-delete".
pub const PAIR_US: f64 = 16.0;
/// A hand-off with the next request, Rust client. Performance, "How to wait: the two ways of the client".
pub const HAND_OFF_US: f64 = 48.0;
/// A RENEW, one at a time. Measured for the page on sizing.
pub const RENEW_US: f64 = 10.0;
/// More for each pair with an append-only file. Performance, "Server CPU for one lock and unlock, pipelined".
pub const AOF_US: f64 = 1.0;

/// Renewals in the time of a lease: the Rust client and `dlock run`.
pub const RENEWALS: f64 = 3.0;
/// For how many seconds ids are remembered: `dlock.request-memory-ms`.
pub const REMEMBERED_S: u64 = 60;
/// How many ids are remembered: `dlock.request-memory-max`.
pub const REMEMBERED: u64 = 1_000_000;

/// Connections for operators and reconnects, to add to `maxclients`.
pub const SPARE: u64 = 32;
/// The default of `maxclients`.
pub const MAX_CLIENTS: u64 = 10_000;
/// The default of `dlock.max-waiters`, and the number of holds and waiters up to which no step of the server is long.
pub const MAX_WAITERS: u64 = 1_000_000;
/// The busiest share of a core at which requests do not queue up in the server: a rule of thumb.
pub const BUSY: f64 = 0.5;
