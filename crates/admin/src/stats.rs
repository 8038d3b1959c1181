//! `INFO`, as far as dlock is concerned.

use std::collections::BTreeMap;

use crate::latency::{self, Latency};

/// [`Stats`], with numbers that are lines of INFO.
macro_rules! stats {
    ($($(#[$doc:meta])* $field:ident = $line:literal,)*) => {
        /// What one server tells about itself and its locks: `INFO`, section `dlock` and a little of the others.
        /// Counters start at 0 with the process of the server; a counter that it does not have reads 0.
        #[derive(Debug, Clone, PartialEq, Eq, Default)]
        #[non_exhaustive]
        pub struct Stats {
            /// Where the server is, as the client reaches it, for example `127.0.0.1:6379`.
            pub address: String,
            /// Name and version, for example `Redis 7.0.15` or `Valkey 9.1.2`.
            pub version: String,
            /// `master` or `slave`.
            pub role: String,
            /// Version of the dlock module, for example `1.0.0`.
            pub dlock_version: String,
            /// How long waits and holds last, each family that the server shows. Since its start.
            pub latency: Vec<Latency>,
            $($(#[$doc])* pub $field: u64,)*
        }

        impl Stats {
            /// Reads the text of INFO.
            pub(crate) fn parse(address: String, text: &str) -> Self {
                let fields: BTreeMap<&str, &str> = text
                    .lines()
                    .filter_map(|line| line.split_once(':'))
                    .map(|(name, value)| (name, value.trim()))
                    .collect();
                let get = |name: &str| fields.get(name).copied().unwrap_or_default();
                let version = match get("valkey_version") {
                    "" => format!("Redis {}", get("redis_version")),
                    version => format!("Valkey {version}"),
                };
                Self {
                    address,
                    version,
                    role: get("role").to_owned(),
                    dlock_version: get("dlock_version").to_owned(),
                    latency: latency::read(get),
                    $($field: get($line).parse().unwrap_or(0),)*
                }
            }
        }
    };
}

stats! {
    /// Seconds since its start.
    uptime_s = "uptime_in_seconds",
    /// Connections.
    connected_clients = "connected_clients",
    /// Bytes that it has allocated.
    used_memory = "used_memory",

    /// Holds of locks in force; each reader counts.
    held_locks = "dlock_held_locks",
    /// Permits out with a lease.
    leased_permits = "dlock_leased_permits",
    /// Keys of dlock.
    keys = "dlock_keys_entered",
    /// The largest fencing token given or learnt.
    last_token = "dlock_last_token",
    /// Milliseconds left of the quarantine; 0 without one.
    quarantine_left_ms = "dlock_quarantine_left_ms",
    /// Calls with BLOCK that wait.
    waiters_blocked = "dlock_waiters_blocked",
    /// QUEUE places without a blocked call.
    waiters_queued = "dlock_waiters_queued",
    /// Places on the key that has most.
    longest_queue = "dlock_longest_queue",
    /// How late the latest of all alarms ran, in microseconds.
    alarm_late_worst_us = "dlock_alarm_late_worst_us",

    /// ACQUIREs that were granted in the call.
    grants_at_once = "dlock_grants_at_once",
    /// Grants to waiters.
    grants_after_waiting = "dlock_grants_after_waiting",
    /// Waits that ran out.
    timeouts = "dlock_timeouts",
    /// Holds that ended because their lease did.
    expiries = "dlock_expiries",
    /// RELEASEs.
    releases = "dlock_releases",
    /// Holds that were broken.
    broken = "dlock_broken",
    /// Holds that ended because their connection did.
    disconnected = "dlock_disconnected",
    /// Calls that got `DEADLOCK`.
    deadlocks_refused = "dlock_deadlocks_refused",
    /// Blocked calls that a later call of the same owner took over.
    replaced = "dlock_replaced",
    /// QUEUE grants that were not claimed in time.
    unclaimed = "dlock_unclaimed",
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
        let stats = Stats::parse("127.0.0.1:6379".to_owned(), TEXT);
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
        assert_eq!(Stats::parse("here".to_owned(), text).version, "Valkey 9.1.2");
    }
}
