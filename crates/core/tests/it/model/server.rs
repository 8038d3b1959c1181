//! Changes without a call: time, keys, roles, restarts.

use super::acquire::is_saved;
use super::{Answer, Family, Hold, How, KEYS, Lock, Model, Out, Service};
use dlock_wire::request::Mode;

impl Model {
    pub fn tick(&mut self, open: bool, touched: &[usize]) -> Out {
        self.shut(!open);
        for k in 0..KEYS.len() {
            self.drop_overdue(k);
        }
        if open {
            for k in 0..KEYS.len() {
                self.adopt(k);
            }
            for queue in &mut self.queues {
                let now = self.lease_now;
                queue.retain(|place| !matches!(place.how, How::Absent { until } if until <= now));
            }
            self.settle(touched, &[0, 1, 2]);
        }
        self.done()
    }

    pub fn flush(&mut self, touched: &[usize]) -> Out {
        if (0..KEYS.len()).any(|k| self.there[k] && !self.is_foreign(k)) {
            self.out.messages.push(("dlock:notify".to_owned(), "flushed 0".to_owned()));
        }
        for k in 0..KEYS.len() {
            if self.families[k] != Family::Fair {
                self.queues[k].retain(|place| !matches!(place.how, How::Absent { .. }));
            }
            self.delete(k);
        }
        self.look_at_queues(touched, &[0, 1, 2]);
        self.done()
    }

    pub fn unlink(&mut self, k: usize, over: bool, touched: &[usize]) -> Out {
        self.say_deleted(k);
        self.delete(k);
        if over {
            self.locks[k] = Lock::WrongType;
            self.send_away(k);
        }
        self.look_at_queues(touched, &[k]);
        let out = self.done();
        self.and_tick(out, touched)
    }

    pub fn rename(&mut self, from: usize, to: usize, touched: &[usize]) -> Out {
        self.say_deleted(to);
        self.delete(to);
        self.locks[to] = std::mem::replace(&mut self.locks[from], Lock::Free);
        self.readers[to] = std::mem::take(&mut self.readers[from]);
        self.saved[to] = std::mem::take(&mut self.saved[from]);
        let is_foreign = matches!(self.locks[to], Lock::WrongType);
        if is_foreign || self.families[to] != self.families[from] {
            self.send_away(to);
            self.families[to] = self.families[from];
        }
        self.look_at_queues(touched, &[to, from]);
        self.done()
    }

    fn say_deleted(&mut self, k: usize) {
        let holds: Vec<Hold> = self.holds(k).cloned().collect();
        for hold in &holds {
            self.say("deleted", k, hold);
            let reads = self.readers[k].iter().any(|reader| reader.serial == hold.serial);
            let mode = if reads { Mode::Read } else { Mode::Write };
            self.spend_hold(k, mode, hold, "deleted");
        }
    }

    /// The value of a key is gone for good.
    fn delete(&mut self, k: usize) {
        if self.there[k] && self.families[k] == Family::Fair {
            self.queues[k].retain(|place| matches!(place.how, How::Blocked { .. }));
        }
        self.locks[k] = Lock::Free;
        self.readers[k].clear();
        self.saved[k].clear();
    }

    /// The key has another type now: no owner can wait for it.
    fn send_away(&mut self, k: usize) {
        for place in std::mem::take(&mut self.queues[k]) {
            if let How::Blocked { .. } = place.how {
                self.out.wakes.push((place.client, Answer::Error("WRONGTYPE")));
            }
        }
    }

    pub fn fail_over(&mut self) -> Out {
        for place in self.queues.iter().flatten() {
            if let How::Blocked { .. } = place.how {
                self.out.wakes.push((place.client, Answer::Error("MOVING")));
            }
        }
        for observer in std::mem::take(&mut self.observers) {
            self.out.wakes.push((observer.client, Answer::Error("MOVING")));
        }
        self.start_over();
        for k in 0..KEYS.len() {
            self.give_full_leases(k);
        }
        self.done()
    }

    /// The process is restarted, from an AOF or (`rdb`) from a snapshot.
    pub fn restart(&mut self, rdb: bool, touched: &[usize]) -> Out {
        self.observers.clear();
        self.start_over();
        self.spent.clear();
        if !rdb {
            let all = (0..KEYS.len()).flat_map(|k| self.holds(k));
            self.last_token = all.map(|hold| hold.token).max().unwrap_or(0);
        }
        let mut keys = touched.to_vec();
        for k in 0..KEYS.len() {
            if rdb {
                self.give_longer_leases(k);
                self.adopt(k);
                keys.push(k);
            } else {
                self.give_full_leases(k);
            }
        }
        if rdb {
            self.settle(&keys, &[]);
            if self.there.contains(&true) {
                // The keys of a snapshot are adopted, which takes writes.
                self.service = Service::Begun;
            }
        }
        self.done()
    }

    /// Only the saved queue entries of fair locks are left of all waiters.
    fn start_over(&mut self) {
        for k in 0..KEYS.len() {
            let is_fair = self.families[k] == Family::Fair && self.there[k];
            self.queues[k] = if is_fair { self.saved[k].clone() } else { Vec::new() };
            for place in &mut self.queues[k] {
                place.client = 0;
                place.how = How::Saved;
            }
        }
        self.hung.clear();
        self.sent.clear();
        self.shut = false;
        self.service = Service::Starting;
        self.quarantine_until = self.now + self.settings.quarantine;
    }

    /// It is unknown how much of the leases has elapsed.
    fn give_full_leases(&mut self, k: usize) {
        let (now, grace) = (self.lease_now, self.settings.grace);
        if let Lock::Closed { until, delay } = &mut self.locks[k] {
            *until = now + *delay;
        }
        for hold in self.holds_mut(k) {
            hold.ends = now + hold.lease;
            orphan(hold, now, grace);
        }
    }

    /// The snapshot lacks later renewals and lock-delays.
    fn give_longer_leases(&mut self, k: usize) {
        let (now, grace) = (self.lease_now, self.settings.grace);
        if let Lock::Closed { until, delay } = &mut self.locks[k] {
            *until = (*until).max(now + *delay);
        }
        for hold in self.holds_mut(k) {
            hold.ends = hold.ends.max(now + hold.lease);
            orphan(hold, now, grace);
        }
    }

    /// The server opens a key that came with queue entries: now their graces start.
    pub(super) fn adopt(&mut self, k: usize) {
        let from = self.lease_now + self.quarantine_until.saturating_sub(self.now);
        let graces = self.queues[k].iter().map(|place| self.outlives_by(k, place));
        let graces: Vec<Option<u64>> = graces.collect();
        for (place, grace) in self.queues[k].iter_mut().zip(graces) {
            if is_saved(place) {
                place.how = How::Absent { until: from + grace.expect("a fair lock") };
            }
        }
    }
}

/// The connections of a hold are gone, through no fault of its holder.
fn orphan(hold: &mut Hold, now: u64, grace: u64) {
    hold.unclaimed = hold.unclaimed.map(|_| 0);
    if let Some(tie) = &mut hold.tie {
        let at_most = now + tie.ms.max(grace);
        tie.client = 0;
        tie.cut = at_most < hold.ends;
        hold.ends = hold.ends.min(at_most);
    }
}
