//! All metrics, and the fields of `INFO dlock` that they come from. `docs/monitoring.md` shows the same table.

use super::encode::{Family, Kind};

/// A number in INFO, without `dlock_` before its name, and the metric that shows it.
#[derive(Debug)]
pub struct Field {
    /// Its name in INFO.
    pub info: &'static str,
    /// The metric.
    pub family: &'static str,
    /// A label of the metric and its value, where several fields share a metric.
    pub label: Option<(&'static str, &'static str)>,
    /// The unit in INFO.
    pub unit: Unit,
}

/// The unit of a field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unit {
    /// A number of things.
    One,
    /// Microseconds.
    Micros,
    /// Milliseconds.
    Millis,
}

const fn gauge(name: &'static str, help: &'static str) -> Family {
    Family { name, kind: Kind::Gauge, unit: "", help }
}

const fn counter(name: &'static str, help: &'static str) -> Family {
    Family { name, kind: Kind::Counter, unit: "", help }
}

const fn time(name: &'static str, help: &'static str) -> Family {
    Family { name, kind: Kind::Gauge, unit: "seconds", help }
}

const fn histogram(name: &'static str, help: &'static str) -> Family {
    Family { name, kind: Kind::Histogram, unit: "seconds", help }
}

const fn info(name: &'static str, help: &'static str) -> Family {
    Family { name, kind: Kind::Info, unit: "", help }
}

/// All metrics, in the order of the output.
pub static FAMILIES: [Family; 40] = [
    gauge("dlock_up", "1 if the server answered this scrape, 0 if it did not."),
    info("dlock_build", "The version of the dlock module."),
    info("dlock_server", "Software, version and role (primary or replica) of the server."),
    gauge("dlock_held_locks", "Holds of locks in force; each reader counts."),
    gauge("dlock_leased_permits", "Permits of semaphores out with a lease."),
    gauge("dlock_keys", "Keys of dlock."),
    gauge("dlock_armed_deadlines", "Pending ends of leases, of waits and of lost waiters."),
    gauge("dlock_requests_remembered", "Remembered ids of finished requests."),
    gauge("dlock_last_token", "The largest fencing token issued or received."),
    time("dlock_quarantine_left_seconds", "The remaining quarantine, without grants."),
    time("dlock_quarantine_age_seconds", "How long there has been that quarantine, or none."),
    time(
        "dlock_quarantine_length_seconds",
        "How long a quarantine lasts: dlock.restart-quarantine-ms.",
    ),
    gauge("dlock_record_level", "The record level in force."),
    gauge(
        "dlock_records_refused",
        "Records that the server could not read: above 0 it is diverged.",
    ),
    gauge("dlock_records_damaged", "Those of them that are damaged, not of a later level."),
    gauge("dlock_record_level_needed", "The largest level that a refused record needs; 0: none."),
    gauge("dlock_waiters", "Waiters, by mode: blocked in a call, or queued without one."),
    gauge("dlock_longest_queue", "Waiters on the key with the longest queue."),
    gauge("dlock_parked_clients", "Blocked connections."),
    gauge("dlock_connections_watched", "Connections with a waiter or a bound hold."),
    gauge("dlock_grants_in_flight", "Grants that may not have reached their client yet."),
    gauge("dlock_notices_pending", "1 if an event waits for the module, for example in a pause."),
    gauge(
        "dlock_deadlock_unchecked",
        "Waits whose search for a cycle was cut and not made up for.",
    ),
    time("dlock_deadlock_lag_seconds", "The age of the oldest of these waits."),
    time("dlock_alarm_late_last_seconds", "How late the event loop ran the last alarm."),
    time(
        "dlock_alarm_late_worst_seconds",
        "The largest delay of an alarm since the server started.",
    ),
    counter("dlock_grants", "Grants: in the call (waited=no), or to a waiter (waited=yes)."),
    counter("dlock_wait_timeouts", "Waits that ended without a grant because their time elapsed."),
    counter("dlock_releases", "Releases, also those that leave a hold of a re-entrant lock."),
    counter("dlock_holds_lost", "Holds that ended without a release, by reason."),
    counter("dlock_calls_replaced", "Blocked calls replaced by a later call of their owner."),
    counter("dlock_deadlocks_refused", "Calls refused because they would close a cycle."),
    counter("dlock_deadlock_searches_cut", "Searches for cycles that ended without a result."),
    counter(
        "dlock_refusals",
        "Calls refused because their hold or their request was over, by code.",
    ),
    counter("dlock_panics_caught", "Internal errors of the module."),
    histogram("dlock_wait_seconds", "Time from a request to its grant, of those that waited."),
    histogram("dlock_hold_seconds", "Time from a grant to the end of its hold."),
    gauge("dlock_key_waiters", "Waiters on the keys with the longest queues."),
    gauge("dlock_key_waiters_complete", "1 if all keys were inspected, 0 if time was too short."),
    time("dlock_scrape_duration_seconds", "How long it took to ask the servers."),
];

const fn field(info: &'static str, family: &'static str) -> Field {
    Field { info, family, label: None, unit: Unit::One }
}

const fn labelled(
    info: &'static str,
    family: &'static str,
    label: &'static str,
    value: &'static str,
) -> Field {
    Field { info, family, label: Some((label, value)), unit: Unit::One }
}

const fn in_unit(info: &'static str, family: &'static str, unit: Unit) -> Field {
    Field { info, family, label: None, unit }
}

/// The numbers of INFO that are shown.
pub static FIELDS: [Field; 40] = [
    field("held_locks", "dlock_held_locks"),
    field("leased_permits", "dlock_leased_permits"),
    field("keys_entered", "dlock_keys"),
    field("armed_deadlines", "dlock_armed_deadlines"),
    field("requests_remembered", "dlock_requests_remembered"),
    field("last_token", "dlock_last_token"),
    in_unit("quarantine_left_ms", "dlock_quarantine_left_seconds", Unit::Millis),
    in_unit("quarantine_age_ms", "dlock_quarantine_age_seconds", Unit::Millis),
    in_unit("quarantine_length_ms", "dlock_quarantine_length_seconds", Unit::Millis),
    field("record_level", "dlock_record_level"),
    field("records_refused", "dlock_records_refused"),
    field("records_damaged", "dlock_records_damaged"),
    field("record_level_needed", "dlock_record_level_needed"),
    labelled("waiters_blocked", "dlock_waiters", "mode", "blocked"),
    labelled("waiters_queued", "dlock_waiters", "mode", "queued"),
    field("longest_queue", "dlock_longest_queue"),
    field("parked_clients", "dlock_parked_clients"),
    field("connections_watched", "dlock_connections_watched"),
    field("grants_in_flight", "dlock_grants_in_flight"),
    field("notices_pending", "dlock_notices_pending"),
    field("deadlock_unchecked", "dlock_deadlock_unchecked"),
    in_unit("deadlock_lag_ms", "dlock_deadlock_lag_seconds", Unit::Millis),
    in_unit("alarm_late_last_us", "dlock_alarm_late_last_seconds", Unit::Micros),
    in_unit("alarm_late_worst_us", "dlock_alarm_late_worst_seconds", Unit::Micros),
    labelled("grants_at_once", "dlock_grants", "waited", "no"),
    labelled("grants_after_waiting", "dlock_grants", "waited", "yes"),
    field("timeouts", "dlock_wait_timeouts"),
    field("releases", "dlock_releases"),
    labelled("expiries", "dlock_holds_lost", "reason", "expired"),
    labelled("disconnected", "dlock_holds_lost", "reason", "disconnected"),
    labelled("broken", "dlock_holds_lost", "reason", "broken"),
    labelled("unclaimed", "dlock_holds_lost", "reason", "unclaimed"),
    labelled("evicted", "dlock_holds_lost", "reason", "evicted"),
    field("replaced", "dlock_calls_replaced"),
    field("deadlocks_refused", "dlock_deadlocks_refused"),
    field("deadlock_searches_cut", "dlock_deadlock_searches_cut"),
    labelled("refused_notheld", "dlock_refusals", "code", "NOTHELD"),
    labelled("refused_spent", "dlock_refusals", "code", "SPENT"),
    labelled("refused_stale", "dlock_refusals", "code", "STALE"),
    field("panics_caught", "dlock_panics_caught"),
];
