//! Limits and names that the server, its clients and the reference page share.
//!
//! Lengths are in bytes, times in milliseconds unless the name says otherwise.

use alloc::vec::Vec;

/// Longest owner; the shortest is 1 byte.
pub const OWNER_MAX: usize = 256;
/// Longest request id (`REQID`); the shortest is 1 byte.
pub const REQID_MAX: usize = 64;
/// Longest `LABEL`; it may be empty.
pub const LABEL_MAX: usize = 256;
/// Longest `NOTIFY` channel; the shortest is 1 byte.
pub const CHANNEL_MAX: usize = 256;

/// Smallest fencing token.
pub const TOKEN_MIN: u64 = 1;
/// Largest fencing token: 2^53 - 1, the largest integer that a double holds exactly (Lua, JavaScript).
pub const TOKEN_MAX: u64 = (1 << 53) - 1;

/// One day.
pub const DAY_MS: u64 = 24 * 60 * 60 * 1000;
/// Shortest lease.
pub const LEASE_MIN_MS: u64 = 1;
/// Longest lease: 365 days.
pub const LEASE_MAX_MS: u64 = 365 * DAY_MS;
/// Longest lease as `EX` counts it, in seconds.
pub const LEASE_MAX_S: u64 = LEASE_MAX_MS / 1000;
/// Longest `BLOCK`: 365 days. `BLOCK 0` waits forever.
pub const BLOCK_MAX_MS: u64 = LEASE_MAX_MS;
/// Shortest `QUEUE`.
pub const QUEUE_MIN_MS: u64 = 1;
/// Longest `QUEUE`: one day.
pub const QUEUE_MAX_MS: u64 = DAY_MS;
/// Smallest `dlock.claim-ms`. For that time, or QUEUE if that is less, a grant to a QUEUE waiter is guaranteed.
pub const CLAIM_MIN_MS: u64 = 10_000;
/// Longest `BIND`: 365 days. `BIND 0` ends the hold with its connection.
pub const BIND_MAX_MS: u64 = LEASE_MAX_MS;

/// Largest `COUNT` of `WAITERS`: the maximum of a signed 64-bit integer. The smallest is 1.
pub const COUNT_MAX: u64 = i64::MAX.unsigned_abs();
/// Largest client id. The smallest is 1.
pub const CLIENT_ID_MAX: u64 = i64::MAX.unsigned_abs();

/// Most permits of a semaphore, and the widest `COUNT`: 2^31 - 1. The smallest is 1.
pub const PERMITS_MAX: u32 = (1 << 31) - 1;
/// Largest count of a latch, and the largest step of `COUNTDOWN`: 2^31 - 1. The smallest is 1.
pub const LATCH_MAX: u32 = (1 << 31) - 1;
/// Most keys of one call (`numkeys`). The smallest number is 1.
pub const KEYS_MAX: u32 = 262_144;

/// Channel of the messages about whole databases (`flushed db`).
pub const FLUSH_CHANNEL: &str = "dlock:notify";
/// The prefix that [`default_channel`] adds to the owner.
pub const CHANNEL_PREFIX: &str = "dlock:notify:";

/// Keyspace event: a hold or a permit was granted.
pub const EVENT_ACQUIRE: &str = "dlock.acquire";
/// Keyspace event: a hold was released.
pub const EVENT_RELEASE: &str = "dlock.release";
/// Keyspace event: a lease expired.
pub const EVENT_EXPIRE: &str = "dlock.expire";
/// Keyspace event: an operator broke a hold.
pub const EVENT_BREAK: &str = "dlock.break";
/// Keyspace event: a waiter joined the queue.
pub const EVENT_WAIT: &str = "dlock.wait";

/// The channel for an `owner` that named none: `dlock:notify:<owner>`.
pub fn default_channel(owner: &[u8]) -> Vec<u8> {
    [CHANNEL_PREFIX.as_bytes(), owner].concat()
}
