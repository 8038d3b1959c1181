//! What the client reports to the subscriber (`tracing`) and to the recorder (`metrics`) of the process: each with its
//! feature, and with neither of them nothing.
//!
//! Spans and events name keys and owners. Metrics do not: there may be any number of them. Names in spans follow
//! OpenTelemetry's semantic conventions for database client calls (1.30) where those have a name.

// Without one of the features, what it would report is not used.
#![cfg_attr(
    not(all(feature = "tracing", feature = "metrics")),
    allow(clippy::unused_self, dead_code, unused_imports, unused_variables)
)]

mod acquire;
#[cfg(feature = "metrics")]
pub(crate) mod describe;
mod hold;
mod names;

use std::time::Duration;

pub(crate) use self::acquire::acquiring;
pub(crate) use self::hold::HoldReport;
use self::names::{error_name, quoted};
use crate::base::clock::millis;
use crate::base::error::Error;
use crate::base::hold_ref::HoldRef;

/// Why a connection ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ConnectionEnd {
    /// A request over it failed or was not answered, or the other end closed it.
    Broken,
    /// The Sentinels name another primary.
    Replaced,
}

/// The shared connection to a server is up.
pub(crate) fn connected(server: &str, address: impl Fn() -> String, is_first: bool) {
    #[cfg(feature = "tracing")]
    if is_first {
        tracing::debug!(server, server.address = address(), "connected");
    } else {
        tracing::info!(server, server.address = address(), "connected again");
    }
    #[cfg(feature = "metrics")]
    if !is_first {
        metrics::counter!("dlock_client_reconnects_total", "server" => server.to_owned())
            .increment(1);
    }
}

/// The shared connection to a server has ended, and the client has not ended it.
pub(crate) fn disconnected(server: &str, end: ConnectionEnd) {
    #[cfg(feature = "tracing")]
    match end {
        ConnectionEnd::Broken => tracing::warn!(server, "the connection is lost"),
        ConnectionEnd::Replaced => {
            tracing::info!(server, "failover: the Sentinels name another primary");
        }
    }
}

/// An attempt to connect failed. Only the first in a row is a warning.
pub(crate) fn not_connected(server: &str, error: &Error, is_first: bool) {
    #[cfg(feature = "tracing")]
    if is_first {
        tracing::warn!(server, %error, "error.type" = error_name(error.kind()), "cannot connect");
    } else {
        tracing::debug!(server, %error, "error.type" = error_name(error.kind()), "cannot connect");
    }
}

/// Slots of a cluster have moved to another server, by a failover or by resharding, as `server` said.
pub(crate) fn slots_moved(server: &str, slots: usize) {
    #[cfg(feature = "tracing")]
    if slots > 0 {
        tracing::info!(server, slots, "slots have moved to another server");
    }
}

/// The watchdog is about to renew a hold, perhaps late: `late` has what is left of the lease, and the lease.
pub(crate) fn renewing(
    report: &HoldReport,
    hold: &HoldRef,
    late: impl FnOnce() -> Option<(Duration, Duration)>,
) {
    let Some((left, lease)) = late() else { return };
    #[cfg(feature = "tracing")]
    report.span().in_scope(|| {
        tracing::warn!(
            dlock.key = quoted(hold.key()),
            dlock.token = hold.token(),
            left_ms = millis(left),
            lease_ms = millis(lease),
            "late renewal"
        );
    });
    #[cfg(feature = "metrics")]
    metrics::counter!("dlock_client_late_renewals_total").increment(1);
}

/// A renewal has ended with that outcome.
pub(crate) fn renewed(outcome: &'static str) {
    #[cfg(feature = "metrics")]
    metrics::counter!("dlock_client_renewals_total", "outcome" => outcome).increment(1);
}

/// A release in the background failed: the hold lasts until its lease ends.
pub(crate) fn release_failed(key: &[u8], error: &Error) {
    #[cfg(feature = "tracing")]
    tracing::warn!(
        dlock.key = quoted(key),
        %error,
        "error.type" = error_name(error.kind()),
        "a release in the background failed: the hold lasts until its lease ends"
    );
    #[cfg(feature = "metrics")]
    metrics::counter!("dlock_client_failed_releases_total").increment(1);
}
