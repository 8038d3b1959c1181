//! The rows of WAITERS.

use super::{connection, millis};
use crate::base::time::Now;
use crate::tables::Tables;
use crate::tables::queues::waiter::{WaitState, Waiter};
use crate::value::fair::QueueEntry;
use dlock_wire::reply::WaiterInfo;

/// The row of a waiter.
pub(super) fn row(tables: &Tables, waiter: &Waiter, now: Now) -> WaiterInfo {
    let call = tables.waits.leader(waiter);
    WaiterInfo {
        owner: waiter.owner.to_vec(),
        client: connection(waiter.client),
        waiting: millis(now.mono.0.saturating_sub(waiter.since.0) / 1_000),
        remaining: match call.wait_state {
            // A timed-out call still counted here has QUEUE, and is a queue entry like others.
            WaitState::Blocked { until } => {
                until.filter(|&until| until > now.mono).map(|until| millis(until - now.mono))
            }
            WaitState::Connected | WaitState::GroupMember => None,
            WaitState::Disconnected { until } => {
                Some(millis(until - tables.regime.lease(now.mono)))
            }
        },
        label: call.ask.label.to_vec(),
    }
}

/// A queue entry without a waiter on this server.
pub(super) fn saved_row(place: &QueueEntry, now: Now) -> WaiterInfo {
    WaiterInfo {
        owner: place.owner.to_vec(),
        client: None,
        waiting: millis(now.mono.0.saturating_sub(place.since.0) / 1_000),
        remaining: None,
        label: place.ask.label.to_vec(),
    }
}
