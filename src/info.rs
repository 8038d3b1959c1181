//! `INFO dlock`.

use std::ffi::CStr;

use crate::ffi::{self, InfoWriter};
use crate::{inbox, parking, shell};

/// The version of the module.
const VERSION: &CStr =
    match CStr::from_bytes_with_nul(concat!(env!("CARGO_PKG_VERSION"), "\0").as_bytes()) {
        Ok(version) => version,
        Err(_) => c"",
    };

/// Writes the sections. In a crash report as few as possible: the heap may be damaged.
pub fn write(to: &mut InfoWriter, crash: bool) {
    if crash {
        if to.section(c"crash") {
            to.number(c"panics", ffi::panics());
        }
        return;
    }
    // Counted here, because they are not part of the machine.
    let parked = parking::count() as u64;
    let noted = u64::from(!inbox::is_empty() || inbox::has_loaded());
    let _ = shell::with(|shell| {
        let machine = &shell.machine;
        let (blocked, queued) = machine.tables().waits.blocked_and_queued();
        if to.section(c"keys") {
            to.text(c"version", VERSION);
            let is_tried = ffi::host().is_some_and(|host| host.is_tried);
            to.text(c"server_tried", if is_tried { c"yes" } else { c"no" });
            to.number(c"held_locks", machine.tables().leases.held() as u64);
            to.number(c"leased_permits", machine.tables().leases.permits());
            to.number(c"keys_entered", machine.tables().leases.len() as u64);
            let waits = &machine.tables().waits;
            let armed =
                machine.tables().leases.armed() + waits.timeouts.armed() + waits.graces.armed();
            to.number(c"armed_deadlines", armed as u64);
            to.number(c"last_token", machine.tables().tokens.last());
            to.number(c"requests_remembered", machine.tables().spent.len() as u64);
            let (regime, mono) = (&machine.tables().regime, shell::now().mono);
            to.number(c"quarantine_left_ms", regime.quarantine_left(mono));
            to.number(c"quarantine_age_ms", regime.quarantine_age(mono));
            let length = machine.tables().settings.restart_quarantine_ms;
            to.number(c"quarantine_length_ms", length);
            to.number(c"record_level", machine.tables().level.number().into());
            let refused = machine.tables().regime.divergence.total();
            to.number(c"records_refused", refused.total());
            to.number(c"records_damaged", refused.damaged);
            to.number(c"record_level_needed", refused.level.into());
        }
        if to.section(c"waits") {
            to.number(c"waiters_blocked", blocked as u64);
            to.number(c"waiters_queued", queued as u64);
            to.number(c"longest_queue", machine.tables().waits.longest() as u64);
            to.number(c"parked_clients", parked);
            to.number(c"connections_watched", machine.tables().connections.len() as u64);
            to.number(c"grants_in_flight", machine.tables().in_flight() as u64);
            to.number(c"notices_pending", noted);
            let (unchecked, lag_ms) = machine.tables().deadlocks_unchecked(shell::now().mono);
            to.number(c"deadlock_unchecked", unchecked);
            to.number(c"deadlock_lag_ms", lag_ms);
            to.number(c"alarm_late_last_us", shell.lateness.last_us);
            to.number(c"alarm_late_worst_us", shell.lateness.worst_us);
        }
        if to.section(c"outcomes") {
            let counters = &machine.tables().counters;
            to.number(c"grants_at_once", counters.grants_at_once);
            to.number(c"grants_after_waiting", counters.grants_after_waiting);
            to.number(c"timeouts", counters.timeouts);
            to.number(c"expiries", counters.expiries);
            to.number(c"releases", counters.releases);
            to.number(c"broken", counters.broken);
            to.number(c"disconnected", counters.disconnected);
            to.number(c"deadlocks_refused", counters.deadlocks_refused);
            to.number(c"deadlock_searches_cut", counters.deadlock_searches_cut);
            to.number(c"replaced", counters.replaced);
            to.number(c"unclaimed", counters.unclaimed);
            to.number(c"evicted", counters.evicted);
            to.number(c"refused_notheld", counters.refused_notheld);
            to.number(c"refused_spent", counters.refused_spent);
            to.number(c"refused_stale", counters.refused_stale);
            to.number(c"panics_caught", ffi::panics());
        }
        if to.section(c"latency") {
            for (name, numbers) in machine.tables().latency.lines() {
                to.numbers(&name, &numbers);
            }
        }
    });
}
