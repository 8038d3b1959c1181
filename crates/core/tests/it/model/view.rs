//! The replies of reading commands, and the queries of the simulator.

use super::acquire::is_saved;
use super::{Family, Hold, How, Lock, Model, Place};
use dlock_wire::reply::{HolderInfo, Info, Kind, LockInfo, RwInfo, RwMode, WaiterInfo};
use std::time::Duration;

impl Model {
    /// INFO of a key as one of `family`.
    pub fn info(&self, k: usize, family: Family) -> Option<Info> {
        let in_force = |hold: &&Hold| hold.ends > self.lease_now;
        let writer = self.writer(k).filter(in_force).map(|hold| self.shown(hold));
        let readers: Vec<HolderInfo> =
            self.readers[k].iter().filter(in_force).map(|hold| self.shown(hold)).collect();
        let closed_for = Duration::from_millis(match self.locks[k] {
            Lock::Closed { until, .. } => until.saturating_sub(self.lease_now),
            _ => 0,
        });
        let waiters = self.waiting(k).count() as u64;
        if writer.is_none() && readers.is_empty() && closed_for.is_zero() && waiters == 0 {
            return None;
        }
        let kind = match family {
            Family::Lock => Kind::Lock,
            Family::Fair => Kind::Fair,
            Family::Rw => {
                let mode = match (&writer, readers.is_empty()) {
                    (Some(_), _) => RwMode::Write,
                    (None, false) => RwMode::Read,
                    (None, true) => RwMode::Free,
                };
                return Some(Info::ReadWrite(RwInfo { mode, writer, readers, waiters }));
            }
        };
        let observers = if writer.is_some() { self.observing(k) } else { 0 };
        let free = LockInfo::free(kind);
        Some(Info::Lock(LockInfo { holder: writer, closed_for, waiters, observers, ..free }))
    }

    fn shown(&self, hold: &Hold) -> HolderInfo {
        HolderInfo {
            owner: hold.owner.clone().into(),
            token: hold.token,
            holds: hold.counts.len() as u64,
            lease: Duration::from_millis(hold.lease),
            left: Duration::from_millis(hold.ends - self.lease_now),
            held: Duration::from_millis(self.now - hold.since),
            label: hold.label.clone().into(),
            bound_client: hold.tie.as_ref().and_then(|tie| connection(tie.client)),
        }
    }

    fn waiting(&self, k: usize) -> impl Iterator<Item = &Place> {
        self.queues[k].iter().filter(|place| !self.has_run_out(place))
    }

    pub fn rows(&self, k: usize) -> Vec<WaiterInfo> {
        let left = |place: &Place| match place.how {
            How::Blocked { until } => {
                until.filter(|&until| until > self.now).map(|until| until - self.now)
            }
            How::Queued | How::Saved => None,
            How::Absent { until } => Some(until - self.lease_now),
        };
        self.waiting(k)
            .map(|place| WaiterInfo {
                owner: place.owner.clone().into(),
                client: connection(place.client),
                waiting: Duration::from_millis(self.now - place.since),
                remaining: left(place).map(Duration::from_millis),
                label: place.label.clone().into(),
            })
            .collect()
    }

    pub fn position(&self, k: usize, owner: &str) -> Option<usize> {
        if let Some(at) = self.waiting(k).position(|place| place.owner == owner) {
            return Some(at + 1);
        }
        let mut holds = self.holds(k);
        holds.any(|hold| hold.owner == owner && hold.ends > self.lease_now).then_some(0)
    }

    /// The family of the key or of its waiters; `None` for another type, or nothing.
    pub fn family(&self, k: usize) -> Option<Family> {
        (self.is_something(k) && !self.is_foreign(k)).then(|| self.families[k])
    }

    pub(super) fn is_something(&self, k: usize) -> bool {
        self.there[k] || self.needs_a_key(k) || !self.queues[k].is_empty()
    }

    pub fn is_foreign(&self, k: usize) -> bool {
        matches!(self.locks[k], Lock::WrongType)
    }

    /// Whether anything requires a key.
    pub fn needs_a_key(&self, k: usize) -> bool {
        let waits = self.families[k] == Family::Fair && !self.queues[k].is_empty();
        !matches!(self.locks[k], Lock::Free) || !self.readers[k].is_empty() || waits
    }

    /// Whether all work has been done: the server takes writes and grants.
    pub fn is_up_to_date(&self) -> bool {
        !self.shut && !self.in_quarantine()
    }

    /// Whether queue entries came with a key that no operation has opened since.
    pub fn has_unseen_places(&self) -> bool {
        self.queues.iter().flatten().any(is_saved)
    }

    /// The tokens of all holds.
    pub fn tokens(&self, k: usize) -> Vec<u64> {
        self.holds(k).map(|hold| hold.token).collect()
    }
}

fn connection(client: u64) -> Option<u64> {
    (client != 0).then_some(client)
}
