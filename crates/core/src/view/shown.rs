//! What reading commands show of a queue, also while its saved entries are adopted.

use super::{connection, millis};
use crate::ids::QueueId;
use crate::machine::Machine;
use crate::queues::waiter::{WaitState, Waiter};
use crate::state::fair::{Fair, QueueEntry};
use crate::time::{LeaseInstant, Now};
use dlock_wire::reply::WaiterInfo;

/// A waiter, or a saved entry that is not a waiter yet.
pub(super) enum Shown<'a> {
    /// A waiter.
    Waiter(&'a Waiter),
    /// An entry, and the end of its grace.
    Entry(&'a QueueEntry, LeaseInstant),
}

impl Shown<'_> {
    /// Its owner.
    pub(super) fn owner(&self) -> &[u8] {
        match self {
            Self::Waiter(waiter) => &waiter.owner,
            Self::Entry(entry, _) => &entry.owner,
        }
    }
}

impl Machine {
    /// The waiters of a queue and the entries of its backlog, in order of service, without those whose wait is over.
    pub(super) fn shown<'a>(
        &'a self,
        queue: Option<QueueId>,
        fair: Option<&'a Fair>,
        now: Now,
    ) -> impl Iterator<Item = Shown<'a>> {
        let (waits, mono, lease) = (self.waits(), now.mono, self.lease_time(now.mono));
        let waiters = queue.into_iter().flat_map(|queue| waits.walk(queue));
        let waiters = waiters.map(|(_, waiter)| waiter);
        let mut waiters = waiters.filter(move |w| !waits.is_over(w, mono, lease)).peekable();
        let backlog = fair.and_then(|fair| Some((fair.backlog.as_deref()?, fair)));
        let entries = backlog.into_iter().flat_map(|(backlog, fair)| {
            let until = |entry: &QueueEntry| self.grace_of(backlog, entry);
            backlog.entries(fair).map(move |(seq, entry)| (seq, &**entry, until(entry)))
        });
        let mut entries = entries.filter(move |&(_, _, until)| until > lease).peekable();
        core::iter::from_fn(move || {
            let first = entries.peek().map(|&(seq, _, _)| seq);
            let is_entry = first.is_some_and(|seq| waiters.peek().is_none_or(|w| seq < w.seq));
            if is_entry {
                return entries.next().map(|(_, entry, until)| Shown::Entry(entry, until));
            }
            waiters.next().map(Shown::Waiter)
        })
    }

    /// The row of a waiter.
    pub(super) fn row(&self, waiter: &Waiter, now: Now) -> WaiterInfo {
        let call = self.waits().leader(waiter);
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
                    Some(millis(until - self.lease_time(now.mono)))
                }
            },
            label: call.ask.label.to_vec(),
        }
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
