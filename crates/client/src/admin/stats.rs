//! `INFO`, as far as dlock is concerned.

use std::collections::BTreeMap;

/// What one server tells about itself and its locks: `INFO`, section `dlock` and a little of the others. Counters
/// start at 0 with the process of the server; a counter that it does not have reads 0.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Stats {
    /// Where the server is, as the client reaches it, for example `127.0.0.1:6379`.
    pub address: String,
    /// Name and version, for example `Redis 7.0.15` or `Valkey 9.1.2`.
    pub version: String,
    /// `master` or `slave`.
    pub role: String,
    /// Seconds since its start.
    pub uptime_s: u64,
    /// Connections.
    pub connected_clients: u64,
    /// Bytes that it has allocated.
    pub used_memory: u64,

    /// Holds of locks in force; each reader counts.
    pub held_locks: u64,
    /// Permits out with a lease.
    pub leased_permits: u64,
    /// Keys of dlock.
    pub keys: u64,
    /// The largest fencing token given or learnt.
    pub last_token: u64,
    /// Milliseconds left of the quarantine; 0 without one.
    pub quarantine_left_ms: u64,
    /// Calls with BLOCK that wait.
    pub waiters_blocked: u64,
    /// QUEUE places without a blocked call.
    pub waiters_queued: u64,
    /// Places on the key that has most.
    pub longest_queue: u64,
    /// How late the latest of all alarms ran, in microseconds.
    pub alarm_late_worst_us: u64,

    /// ACQUIREs that were granted in the call.
    pub grants_at_once: u64,
    /// Grants to waiters.
    pub grants_after_waiting: u64,
    /// Waits that ran out.
    pub timeouts: u64,
    /// Holds that ended because their lease did.
    pub expiries: u64,
    /// RELEASEs.
    pub releases: u64,
    /// Holds that were broken.
    pub broken: u64,
    /// Holds that ended because their connection did.
    pub disconnected: u64,
    /// Calls that got `DEADLOCK`.
    pub deadlocks_refused: u64,
    /// Blocked calls that a later call of the same owner took over.
    pub replaced: u64,
    /// QUEUE grants that were not claimed in time.
    pub unclaimed: u64,
}

impl Stats {
    /// Reads the text of INFO.
    pub(super) fn parse(address: &str, text: &str) -> Self {
        let fields: BTreeMap<&str, &str> = text
            .lines()
            .filter_map(|line| line.split_once(':'))
            .map(|(name, value)| (name, value.trim()))
            .collect();
        let get = |name: &str| fields.get(name).copied().unwrap_or_default();
        let number = |name: &str| get(name).parse().unwrap_or(0);
        let own = |name: &str| number(&format!("dlock_{name}"));
        let version = match get("valkey_version") {
            "" => format!("Redis {}", get("redis_version")),
            version => format!("Valkey {version}"),
        };
        Self {
            address: address.to_owned(),
            version,
            role: get("role").to_owned(),
            uptime_s: number("uptime_in_seconds"),
            connected_clients: number("connected_clients"),
            used_memory: number("used_memory"),
            held_locks: own("held_locks"),
            leased_permits: own("leased_permits"),
            keys: own("keys_entered"),
            last_token: own("last_token"),
            quarantine_left_ms: own("quarantine_left_ms"),
            waiters_blocked: own("waiters_blocked"),
            waiters_queued: own("waiters_queued"),
            longest_queue: own("longest_queue"),
            alarm_late_worst_us: own("alarm_late_worst_us"),
            grants_at_once: own("grants_at_once"),
            grants_after_waiting: own("grants_after_waiting"),
            timeouts: own("timeouts"),
            expiries: own("expiries"),
            releases: own("releases"),
            broken: own("broken"),
            disconnected: own("disconnected"),
            deadlocks_refused: own("deadlocks_refused"),
            replaced: own("replaced"),
            unclaimed: own("unclaimed"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "# Server\r\nredis_version:7.0.15\r\nuptime_in_seconds:61\r\n\r\n# Clients\r\n\
        connected_clients:4\r\n# Memory\r\nused_memory:1048576\r\n# Replication\r\nrole:master\r\n\r\n\
        # dlock_keys\r\ndlock_held_locks:2\r\ndlock_keys_entered:3\r\n\r\n# dlock_waits\r\n\
        dlock_waiters_blocked:5\r\n\r\n# dlock_outcomes\r\ndlock_grants_at_once:7\r\n";

    #[test]
    fn the_text_of_a_server_is_read() {
        let stats = Stats::parse("127.0.0.1:6379", TEXT);
        assert_eq!(stats.version, "Redis 7.0.15");
        assert_eq!(
            (stats.uptime_s, stats.connected_clients, stats.role.as_str()),
            (61, 4, "master")
        );
        assert_eq!((stats.held_locks, stats.keys, stats.waiters_blocked), (2, 3, 5));
        assert_eq!((stats.grants_at_once, stats.expiries), (7, 0));
    }

    #[test]
    fn a_valkey_is_one() {
        let text = "redis_version:7.2.4\r\nserver_name:valkey\r\nvalkey_version:9.1.2\r\n";
        assert_eq!(Stats::parse("here", text).version, "Valkey 9.1.2");
    }
}
