//! Waiting: leaving the queue, waits that are over, waiters that are skipped.

use super::acquire::is_saved;
use super::{Answer, Family, How, KEYS, Model, Out, Place, Use};
use dlock_wire::request::Mode;

impl Model {
    /// Whether one more may wait in all, after the oldest place that is skipped for good has given way.
    pub(super) fn make_room(&mut self) -> bool {
        let in_all = |model: &Self| {
            model.queues.iter().flatten().filter(|place| !is_saved(place)).count()
                + model.counted_observers()
        };
        if in_all(self) < self.settings.in_all {
            return true;
        }
        let places = (0..KEYS.len()).flat_map(|k| self.queues[k].iter().map(move |one| (k, one)));
        let absent = places.filter(|(k, place)| self.is_deserted(*k, place));
        let oldest = absent.map(|(k, place)| (place.number, k)).min();
        if let Some((number, k)) = oldest {
            self.queues[k].retain(|place| place.number != number);
        }
        in_all(self) < self.settings.in_all
    }

    /// The place or blocked call of an owner; of a read-write lock, in this mode.
    pub(super) fn place_of(&self, k: usize, owner: &str, mode: Mode) -> Option<usize> {
        self.queues[k].iter().position(|place| place.owner == owner && place.mode == mode)
    }

    /// RELEASE ends a wait.
    pub(super) fn give_up(&mut self, k: usize, at: usize) -> Answer {
        self.leave(k, at);
        self.hand_off(k);
        Answer::Null
    }

    pub(super) fn leave(&mut self, k: usize, at: usize) {
        let place = self.queues[k].remove(at);
        if let How::Blocked { .. } = place.how {
            self.out.wakes.push((place.client, Answer::Null));
        }
        if let Some(id) = &place.request {
            self.note_spent(k, place.mode, (&place.owner, id), Use::Waited);
        }
    }

    pub(super) fn unblock(&mut self, client: u64, error: bool, touched: &[usize]) -> Answer {
        for k in 0..KEYS.len() {
            let found = self.queues[k].iter().position(|place| {
                place.client == client && matches!(place.how, How::Blocked { .. })
            });
            if let Some(at) = found {
                let answer = if error { Answer::Error("STOPPED") } else { Answer::Null };
                self.out.wakes.push((client, answer));
                self.stop_waiting(k, at);
                self.look_at_queues(touched, &[k]);
                return Answer::Count(1);
            }
        }
        if self.stop_observing(client) {
            let answer = if error { Answer::Error("STOPPED") } else { Answer::Null };
            self.out.wakes.push((client, answer));
            self.settle(touched, &[]); // queues that were left while writes were refused
            return Answer::Count(1);
        }
        Answer::Count(0)
    }

    /// The server has ended a blocked call itself and answered it.
    pub fn abandoned(&mut self, client: u64, touched: &[usize]) -> Out {
        let is_its =
            |place: &Place| place.client == client && matches!(place.how, How::Blocked { .. });
        if self.stop_observing(client) {
            self.settle(touched, &[]);
        }
        for k in 0..KEYS.len() {
            if let Some(at) = self.queues[k].iter().position(is_its) {
                self.stop_waiting(k, at);
                self.look_at_queues(touched, &[k]);
            }
        }
        self.done()
    }

    /// A connection that let a grant expire is active again.
    pub(super) fn rouse(&mut self, client: u64, k: usize, touched: &[usize]) -> bool {
        if !self.hung.contains(&client) {
            return false;
        }
        if self.is_cluster {
            self.hung.retain(|&other| other != client);
            return true;
        }
        // If the last written key is the key of the call, the call wrote it.
        let before = match touched.split_last() {
            Some((&last, before)) if last == k => before,
            _ => touched,
        };
        // A grant that expired before this call, and was found by it, must not mark the connection unresponsive.
        while self.hung.contains(&client) {
            self.hung.retain(|&other| other != client);
            self.look_at_queues(before, &self.places_of(client));
        }
        true
    }

    /// The keys at which a connection has waiters.
    pub(super) fn places_of(&self, client: u64) -> Vec<usize> {
        let is_its = |place: &Place| place.client == client;
        (0..KEYS.len()).filter(|&k| self.queues[k].iter().any(is_its)).collect()
    }

    /// Hands off in those of `keys` that have a queue.
    pub(super) fn look_at_queues(&mut self, touched: &[usize], keys: &[usize]) {
        let keys = keys.iter().copied();
        let keys: Vec<usize> =
            keys.filter(|&k| !self.queues[k].is_empty() && !self.in_quarantine()).collect();
        self.settle(touched, &keys);
    }

    pub(super) fn drop_overdue(&mut self, k: usize) {
        let over = |model: &Self| {
            model.queues[k]
                .iter()
                .position(|place| matches!(place.how, How::Blocked { .. }) && model.is_over(place))
        };
        while let Some(at) = over(self) {
            self.time_out(k, at);
        }
    }

    pub(super) fn time_out(&mut self, k: usize, at: usize) {
        self.out.wakes.push((self.queues[k][at].client, Answer::Null));
        self.out.counters.timeouts += 1;
        self.stop_waiting(k, at);
    }

    fn stop_waiting(&mut self, k: usize, at: usize) {
        if self.queues[k][at].queue.is_some() {
            self.queues[k][at].how = How::Queued;
        } else {
            self.queues[k].remove(at);
        }
    }

    pub(super) fn is_over(&self, place: &Place) -> bool {
        match place.how {
            How::Blocked { until } => until.is_some_and(|until| until <= self.now),
            How::Queued | How::Saved => false,
            How::Absent { until } => until <= self.lease_now,
        }
    }

    /// Whether the wait has timed out and the waiter ends with it: with QUEUE the entry of a blocked call stays.
    pub(super) fn has_run_out(&self, place: &Place) -> bool {
        let stays = matches!(place.how, How::Blocked { .. }) && place.queue.is_some();
        self.is_over(place) && !stays
    }

    pub(super) fn is_skipped(&self, k: usize, place: &Place) -> bool {
        let is_unresponsive = matches!(place.how, How::Queued) && self.hung.contains(&place.client);
        is_unresponsive || self.is_deserted(k, place)
    }

    /// Whether its connection is closed and the queue skips it.
    pub(super) fn is_deserted(&self, k: usize, place: &Place) -> bool {
        matches!(place.how, How::Absent { .. }) && self.families[k] != Family::Fair
    }
}
