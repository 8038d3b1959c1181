//! What readers see, and what the simulator asks for.

use super::{How, Info, Lock, Model, Place, Row};

impl Model {
    pub fn info(&self, k: usize) -> Option<Info> {
        let waiters = self.queues[k].iter().filter(|place| !self.is_over(place)).count();
        let mut info = Info { waiters, ..Info::default() };
        match &self.locks[k] {
            Lock::Held(hold) if hold.ends > self.lease_now => {
                info.owner.clone_from(&hold.owner);
                info.token = hold.token;
                info.holds = hold.count;
                info.lease_ms = hold.lease;
                info.ttl_ms = hold.ends - self.lease_now;
                info.held_ms = self.now - hold.since;
                info.label.clone_from(&hold.label);
                info.bound_client = hold.tie.as_ref().map_or(0, |tie| tie.client);
                return Some(info);
            }
            Lock::Closed { until, .. } => info.ttl_ms = until.saturating_sub(self.lease_now),
            _ => {}
        }
        (info.waiters > 0 || info.ttl_ms > 0).then_some(info)
    }

    pub fn rows(&self, k: usize) -> Vec<Row> {
        let waiting = self.queues[k].iter().filter(|place| !self.is_over(place));
        let left = |place: &Place| match place.how {
            How::Blocked { until } => until.map(|until| until - self.now),
            How::Queued => None,
            How::Absent { until } => Some(until - self.lease_now),
        };
        waiting
            .map(|place| {
                let waiting = self.now - place.since;
                (place.owner.clone(), place.client, waiting, left(place), place.label.clone())
            })
            .collect()
    }

    pub fn position(&self, k: usize, owner: &str) -> Option<usize> {
        let mut waiting = self.queues[k].iter().filter(|place| !self.is_over(place));
        match waiting.position(|place| place.owner == owner) {
            Some(at) => Some(at + 1),
            None => self.info(k).filter(|info| info.owner == owner).map(|_| 0),
        }
    }

    pub fn is_foreign(&self, k: usize) -> bool {
        matches!(self.locks[k], Lock::Foreign)
    }

    pub fn is_there(&self, k: usize) -> bool {
        !matches!(self.locks[k], Lock::Free)
    }

    /// The key that a blocked call waits for.
    pub fn blocked_at(&self, client: u64) -> Option<usize> {
        let is_its =
            |place: &Place| place.client == client && matches!(place.how, How::Blocked { .. });
        self.queues.iter().position(|queue| queue.iter().any(is_its))
    }

    /// The token of the hold, if there is one.
    pub fn token(&self, k: usize) -> Option<u64> {
        match &self.locks[k] {
            Lock::Held(hold) => Some(hold.token),
            _ => None,
        }
    }
}
