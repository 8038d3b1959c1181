//! INFO of the fake server.

use std::fmt::{Display, Write as _};

use crate::state::State;

/// The sections with these names; all, if there are none.
pub(crate) fn text(state: &State, sections: &[&[u8]]) -> String {
    let mut text = String::new();
    let mut section = |name: &str, prefix: &str, fields: &[(&str, &dyn Display)]| {
        let is_it = |asked: &&[u8]| asked.eq_ignore_ascii_case(name.as_bytes());
        if sections.is_empty() || sections.iter().any(is_it) {
            for (field, value) in fields {
                // Writing to memory does not fail.
                let _ = write!(text, "{prefix}{field}:{value}\r\n");
            }
        }
    };
    let uptime = state.now().mono.0 / 1_000_000;
    section("server", "", &[("redis_version", &"fake"), ("uptime_in_seconds", &uptime)]);
    let (connected, blocked) = (state.connections.len(), state.parked.len());
    section("clients", "", &[("connected_clients", &connected), ("blocked_clients", &blocked)]);
    section("replication", "", &[("role", &"master"), ("connected_slaves", &state.replicas)]);
    for (db, keys) in state.keys.databases() {
        section("keyspace", "", &[(&format!("db{db}"), &format!("keys={keys},expires=0"))]);
    }
    let tables = state.machine.tables();
    let waits = &tables.waits;
    let (waiters_blocked, waiters_queued) = waits.blocked_and_queued();
    let armed = tables.leases.armed() + waits.timeouts.armed() + waits.graces.armed();
    let counters = &tables.counters;
    let fields: [(&str, &dyn Display); 28] = [
        ("version", &env!("CARGO_PKG_VERSION")),
        ("held_locks", &tables.leases.held()),
        ("leased_permits", &tables.leases.permits()),
        ("keys_entered", &tables.leases.len()),
        ("armed_deadlines", &armed),
        ("last_token", &tables.tokens.last()),
        ("requests_remembered", &tables.spent.len()),
        ("waiters_blocked", &waiters_blocked),
        ("waiters_queued", &waiters_queued),
        ("longest_queue", &waits.longest()),
        ("parked_clients", &blocked),
        ("connections_watched", &tables.connections.len()),
        ("grants_in_flight", &tables.in_flight()),
        // The fake tells the machine at once.
        ("notices_pending", &0),
        ("grants_at_once", &counters.grants_at_once),
        ("grants_after_waiting", &counters.grants_after_waiting),
        ("timeouts", &counters.timeouts),
        ("expiries", &counters.expiries),
        ("releases", &counters.releases),
        ("broken", &counters.broken),
        ("disconnected", &counters.disconnected),
        ("deadlocks_refused", &counters.deadlocks_refused),
        ("deadlock_searches_cut", &counters.deadlock_searches_cut),
        ("replaced", &counters.replaced),
        ("unclaimed", &counters.unclaimed),
        ("refused_notheld", &counters.refused_notheld),
        ("refused_spent", &counters.refused_spent),
        ("refused_stale", &counters.refused_stale),
    ];
    section("dlock", "dlock_", &fields);
    let (regime, mono) = (&tables.regime, state.now().mono);
    let (left, age) = (regime.quarantine_left(mono), regime.quarantine_age(mono));
    section("dlock_keys", "dlock_", &[("quarantine_left_ms", &left), ("quarantine_age_ms", &age)]);
    let is_asked = |asked: &&[u8]| [&b"dlock"[..], b"dlock_latency"].contains(asked);
    if sections.is_empty() || sections.iter().any(is_asked) {
        for (name, numbers) in tables.latency.lines() {
            let numbers: Vec<_> =
                numbers.iter().map(|(name, number)| format!("{name}={number}")).collect();
            // Writing to memory does not fail.
            let _ = write!(text, "dlock_{name}:{}\r\n", numbers.join(","));
        }
    }
    text
}
