//! Connections that close, and grants that arrive or do not.

use super::grant::in_order;
use super::{How, KEYS, Model, Out, Place, Sent};
use dlock_wire::request::Mode;

impl Model {
    pub fn gone(&mut self, client: u64, touched: &[usize]) -> Out {
        self.stop_observing(client);
        let mut concerned = Vec::new();
        for k in 0..KEYS.len() {
            if self.queues[k].iter().any(|place| place.client == client) {
                concerned.push(k);
                self.lose_connection(k, client);
            }
        }
        self.hung.retain(|&other| other != client);
        concerned.retain(|&k| !self.queues[k].is_empty() && !self.in_quarantine());
        let sent = self.sent.iter().position(|sent| sent.client == client);
        let sent = sent.map(|at| self.sent.remove(at));
        let sent = sent.filter(|sent| !sent.repeated);
        let taken_back = sent.as_ref().and_then(|sent| self.where_is(sent.serial));
        let is_tied = |k: &usize| !self.bound_to(*k, client).is_empty();
        let tied: Vec<usize> = (0..KEYS.len()).filter(is_tied).collect();
        let mut order = touched.to_vec();
        order.extend(taken_back);
        order.extend(&tied);
        order.extend(&concerned);
        for k in in_order(&order) {
            if let Some(sent) = sent.as_ref().filter(|_| taken_back == Some(k)) {
                self.take_back(k, sent);
            }
            self.end_expired(k);
            for serial in self.bound_to(k, client) {
                self.cut(k, serial);
            }
            let for_itself = taken_back == Some(k) || tied.contains(&k);
            if concerned.contains(&k) || !for_itself {
                self.hand_off(k);
            }
        }
        let out = self.done();
        self.and_tick(out, touched)
    }

    fn lose_connection(&mut self, k: usize, client: u64) {
        let queue = std::mem::take(&mut self.queues[k]);
        for mut place in queue {
            if place.client == client {
                let Some(ms) = self.outlives_by(k, &place) else { continue };
                place.client = 0;
                place.how = How::Absent { until: self.lease_now + ms };
            }
            self.queues[k].push(place);
        }
    }

    fn bound_to(&self, k: usize, client: u64) -> Vec<u64> {
        let tied =
            self.holds(k).filter(|hold| hold.tie.as_ref().is_some_and(|tie| tie.client == client));
        tied.map(|hold| hold.serial).collect()
    }

    fn cut(&mut self, k: usize, serial: u64) {
        let now = self.lease_now;
        // It may have ended with a grant that was rolled back.
        let Some(hold) = self.holds_mut(k).find(|hold| hold.serial == serial) else { return };
        let Some(tie) = &mut hold.tie else { return };
        tie.client = 0;
        if now + tie.ms < hold.ends {
            hold.ends = now + tie.ms;
            tie.cut = true;
        }
        if hold.ends <= now {
            self.end(k, serial, "disconnect");
            self.hand_off(k);
        }
    }

    /// The holds whose grants are on their way: key, owner, mode and the request.
    pub fn in_flight(&self) -> Vec<(usize, String, Mode, Option<Vec<u8>>)> {
        let place = |sent: &Sent| {
            let k = self.where_is(sent.serial)?;
            let hold = self.holds(k).find(|hold| hold.serial == sent.serial)?;
            let mode = if self.reads(k, &hold.owner) { Mode::Read } else { Mode::Write };
            Some((k, hold.owner.clone(), mode, sent.request.clone()))
        };
        self.sent.iter().filter_map(place).collect()
    }

    pub fn delivered(&mut self, client: u64) {
        self.sent.retain(|sent| sent.client != client);
    }

    pub fn undelivered(&mut self, client: u64, touched: &[usize]) -> Out {
        let at = self.sent.iter().position(|sent| sent.client == client).expect("sent");
        let sent = self.sent.remove(at);
        if let Some(k) = self.where_is(sent.serial).filter(|_| !sent.repeated) {
            self.take_back(k, &sent);
            self.end_expired(k);
        } else {
            // The machine may open the key where it was.
            self.settle(touched, &[]);
        }
        let out = self.done();
        self.and_tick(out, touched)
    }

    fn take_back(&mut self, k: usize, sent: &Sent) {
        let now = self.lease_now;
        let hold = self.holds_mut(k).find(|hold| hold.serial == sent.serial);
        let Some(hold) = hold.filter(|_| !sent.repeated) else { return };
        // Its RELEASE may have come first.
        let Some(at) = hold.counts.iter().position(|id| *id == sent.request) else { return };
        if hold.counts.len() > 1 {
            // The next copy counts.
            hold.counts.remove(at);
        } else if sent.known {
            // The hold is known to its owner by another answer.
        } else if let Some(kept) = sent.kept {
            hold.unclaimed = Some(0);
            hold.ends = now + kept;
            hold.lease = hold.lease.max(kept);
            if let Some(tie) = &mut hold.tie {
                tie.client = 0;
                tie.cut = false;
            }
            let hold = hold.clone();
            self.say("offered", k, &hold);
        } else {
            self.end(k, sent.serial, "return");
            if let Some((_, place)) = sent.place.as_ref().filter(|(at, _)| *at == k) {
                self.put_back(k, place.clone());
            }
            self.hand_off(k);
        }
    }

    /// A waiter whose grant could not be delivered returns to its position, without a connection.
    fn put_back(&mut self, k: usize, mut place: Place) {
        if self.queues[k].iter().any(|other| other.owner == place.owner)
            || self.queues[k].len() >= self.settings.per_key
            || !self.make_room()
        {
            return;
        }
        place.client = 0;
        place.how = How::Absent { until: self.lease_now + place.queue.expect("it was kept") };
        if place.number < 0 {
            self.numbers.1 -= 1;
            place.number = self.numbers.1;
        }
        let behind = self.queues[k].iter().position(|other| other.number > place.number);
        let at = behind.unwrap_or(self.queues[k].len());
        self.queues[k].insert(at, place);
    }
}
