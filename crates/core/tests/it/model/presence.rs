//! Connections that go, and grants that arrive or do not.

use super::grant::in_order;
use super::{How, KEYS, Lock, Model, Out, Sent};

impl Model {
    pub fn gone(&mut self, client: u64, touched: &[usize]) -> Out {
        let mut concerned = Vec::new();
        for k in 0..KEYS.len() {
            if self.queues[k].iter().any(|place| place.client == client) {
                concerned.push(k);
                let now = self.lease_now;
                for place in self.queues[k].iter_mut().filter(|place| place.client == client) {
                    place.client = 0;
                    place.how = How::Absent { until: now + place.queue.unwrap_or(0) };
                }
                self.queues[k].retain(|place| place.client != 0 || place.queue.is_some());
            }
        }
        self.hung.retain(|&other| other != client);
        concerned.retain(|&k| !self.queues[k].is_empty() && !self.in_quarantine());
        let sent = self.sent.iter().position(|sent| sent.client == client);
        let sent = sent.map(|at| self.sent.remove(at));
        let sent = sent.filter(|sent| !sent.repeated);
        let taken_back = sent.as_ref().and_then(|sent| self.where_is(sent.serial));
        let tied: Vec<usize> =
            (0..KEYS.len()).filter(|&k| self.tied_to(k) == Some(client)).collect();
        let mut order = touched.to_vec();
        order.extend(taken_back);
        order.extend(&tied);
        order.extend(&concerned);
        self.see_to_woken(false);
        for k in in_order(&order) {
            self.end_what_is_due(k);
            if let Some(sent) = sent.as_ref().filter(|_| taken_back == Some(k)) {
                self.take_back(k, sent);
            }
            self.cut(k, client);
            self.hand_on(k);
        }
        self.see_to_woken(true);
        self.done()
    }

    fn tied_to(&self, k: usize) -> Option<u64> {
        match &self.locks[k] {
            Lock::Held(hold) => hold.tie.as_ref().map(|tie| tie.client),
            _ => None,
        }
    }

    fn cut(&mut self, k: usize, client: u64) {
        let now = self.lease_now;
        let Lock::Held(hold) = &mut self.locks[k] else { return };
        let Some(tie) = hold.tie.as_mut().filter(|tie| tie.client == client) else { return };
        tie.client = 0;
        if now + tie.ms < hold.ends {
            hold.ends = now + tie.ms;
            tie.cut = true;
        }
        if hold.ends <= now {
            self.end(k, "disconnect");
        }
    }

    pub fn delivered(&mut self, client: u64) {
        self.sent.retain(|sent| sent.client != client);
    }

    pub fn undelivered(&mut self, client: u64, touched: &[usize]) -> Out {
        let at = self.sent.iter().position(|sent| sent.client == client).expect("sent");
        let sent = self.sent.remove(at);
        if let Some(k) = self.where_is(sent.serial).filter(|_| !sent.repeated) {
            self.end_what_is_due(k);
            self.take_back(k, &sent);
            self.hand_on(k);
        } else {
            // The machine may look at the key where it was.
            self.settle(touched, &[]);
        }
        self.done()
    }

    fn take_back(&mut self, k: usize, sent: &Sent) {
        let now = self.lease_now;
        let Lock::Held(hold) = &mut self.locks[k] else { return };
        if hold.serial != sent.serial || sent.repeated {
            return;
        }
        if sent.known {
            if hold.count > 1 {
                hold.count -= 1;
            }
        } else if let Some(queue) = sent.queue {
            hold.unclaimed = Some((0, queue));
            hold.ends = now + queue;
            if let Some(tie) = &mut hold.tie {
                tie.client = 0;
                tie.cut = false;
            }
            let (channel, token, owner) = (hold.channel.clone(), hold.token, hold.owner.clone());
            self.say("granted", k, channel, token, &owner);
        } else {
            self.end(k, "return");
        }
    }

    fn where_is(&self, serial: u64) -> Option<usize> {
        self.locks.iter().position(|lock| matches!(lock, Lock::Held(hold) if hold.serial == serial))
    }
}
