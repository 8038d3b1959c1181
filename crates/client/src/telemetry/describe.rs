//! The descriptions of all metrics.

use metrics::Unit;

/// Tells the recorder of the process what each metric of this crate means, for exporters that show that. Call it once,
/// after the recorder is installed.
///
/// | metric | type | labels |
/// |---|---|---|
/// | `dlock_client_acquires_total` | counter | `kind`, `outcome` |
/// | `dlock_client_wait_seconds` | histogram | `kind`, `outcome` |
/// | `dlock_client_holds` | gauge | `kind` |
/// | `dlock_client_hold_seconds` | histogram | `kind` |
/// | `dlock_client_losses_total` | counter | `kind`, `reason` |
/// | `dlock_client_renewals_total` | counter | `outcome`: `accepted`, `refused`, `unanswered` |
/// | `dlock_client_late_renewals_total` | counter | |
/// | `dlock_client_failed_releases_total` | counter | |
/// | `dlock_client_reconnects_total` | counter | `server` |
///
/// `kind` is `lock`, `fair`, `read`, `write`, `semaphore`, `multi`, `any` (acquires) or `quorum`. The outcome of an
/// acquire is `granted`, `not_granted`, `cancelled` (its future was dropped) or the kind of its error in snake case.
pub fn describe_metrics() {
    metrics::describe_counter!("dlock_client_acquires_total", "Acquires that have ended");
    metrics::describe_histogram!(
        "dlock_client_wait_seconds",
        Unit::Seconds,
        "Time from the call of an acquire to its outcome"
    );
    metrics::describe_gauge!("dlock_client_holds", "Holds that are neither released nor lost");
    metrics::describe_histogram!(
        "dlock_client_hold_seconds",
        Unit::Seconds,
        "Time from the grant of a hold to its release or loss"
    );
    metrics::describe_counter!(
        "dlock_client_losses_total",
        "Holds that were lost before their release"
    );
    metrics::describe_counter!(
        "dlock_client_renewals_total",
        "Renewals sent, by the server's reply"
    );
    metrics::describe_counter!(
        "dlock_client_late_renewals_total",
        "Renewals that were sent when less than half of the lease was left"
    );
    metrics::describe_counter!(
        "dlock_client_failed_releases_total",
        "Releases in the background that failed: the hold lasts until its lease ends"
    );
    metrics::describe_counter!(
        "dlock_client_reconnects_total",
        "Shared connections that came up again after they were lost"
    );
}
