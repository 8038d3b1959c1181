//! Owners that would wait for each other.

use super::{KEYS, Lock, Model, Place};

impl Model {
    /// Whether `owner`, by waiting for `k`, would come to wait for itself.
    pub(super) fn closes_a_circle(&self, k: usize, owner: &str) -> bool {
        let would_wait = match self.holder(k) {
            Some(holder) => holder != owner,
            None => self.ahead_of(k, owner).any(|place| !self.is_passed_over(place)),
        };
        // Who keeps a place closes nothing that was not closed before.
        if !would_wait || self.queues[k].iter().any(|place| place.owner == owner) {
            return false;
        }
        let mut reached = self.in_the_way(k, owner);
        let mut at = 0;
        while at < reached.len() {
            for other in self.in_any_way(reached[at]) {
                if other == owner {
                    return true;
                }
                if !reached.contains(&other) {
                    reached.push(other);
                }
            }
            at += 1;
        }
        false
    }

    /// For whom `owner` waits at `k`, from its place or from the end of the queue.
    fn in_the_way(&self, k: usize, owner: &str) -> Vec<&str> {
        let ahead = self.ahead_of(k, owner).map(|place| place.owner.as_str());
        self.holder(k).into_iter().chain(ahead).collect()
    }

    /// For whom `owner` waits wherever it has a place.
    fn in_any_way(&self, owner: &str) -> Vec<&str> {
        let waits = |k: &usize| {
            self.queues[*k].iter().any(|place| place.owner == owner && !self.is_over(place))
        };
        (0..KEYS.len()).filter(waits).flat_map(|k| self.in_the_way(k, owner)).collect()
    }

    fn ahead_of(&self, k: usize, owner: &str) -> impl Iterator<Item = &Place> {
        let ahead = self.queues[k].iter().take_while(move |place| place.owner != owner);
        ahead.filter(|place| !self.is_over(place))
    }

    fn holder(&self, k: usize) -> Option<&str> {
        match &self.locks[k] {
            Lock::Held(hold) if hold.ends > self.lease_now => Some(&hold.owner),
            _ => None,
        }
    }
}
