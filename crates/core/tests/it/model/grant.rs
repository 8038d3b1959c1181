//! What is due ends, and the first that waits is next.

use super::{Answer, How, Lock, Model, Sent};

impl Model {
    /// Brings keys up to date: those that the machine touched, in its order, and others.
    pub(super) fn settle(&mut self, touched: &[usize], others: &[usize]) {
        if self.shut {
            assert!(touched.is_empty(), "behind a shut gate nothing is written");
            return;
        }
        self.see_to_woken(false);
        for k in in_order(touched) {
            self.end_what_is_due(k);
            self.hand_on(k);
        }
        self.see_to_woken(true);
        for k in in_order(others) {
            self.end_what_is_due(k);
            self.hand_on(k);
        }
    }

    /// Keys that were looked at, to no other end than that somebody's wait was over.
    pub(super) fn see_to_woken(&mut self, last: bool) {
        if self.woken_last == last {
            for k in std::mem::take(&mut self.woken) {
                self.hand_on(k);
            }
        }
    }

    pub(super) fn end_what_is_due(&mut self, k: usize) {
        if self.shut {
            return;
        }
        match &self.locks[k] {
            Lock::Closed { until, .. } if *until <= self.lease_now => {
                self.locks[k] = Lock::Free;
                self.hand_on(k);
            }
            Lock::Held(hold) if hold.ends <= self.lease_now => {
                let was_cut = hold.tie.as_ref().is_some_and(|tie| tie.cut);
                let why = match hold.unclaimed {
                    Some(_) => "lapse",
                    None if was_cut => "disconnect",
                    None => "expire",
                };
                self.end(k, why);
                self.hand_on(k);
            }
            _ => {}
        }
    }

    pub(super) fn end(&mut self, k: usize, why: &str) {
        let Lock::Held(hold) = std::mem::replace(&mut self.locks[k], Lock::Free) else {
            unreachable!()
        };
        let counters = &mut self.out.counters;
        let (counter, event, message) = match why {
            "release" | "return" => (&mut counters.releases, "release", None),
            "expire" => (&mut counters.expiries, "expire", Some("expired")),
            "lapse" => (&mut counters.unclaimed, "expire", Some("expired")),
            "disconnect" => (&mut counters.disconnected, "expire", Some("disconnected")),
            "break" => (&mut counters.broken, "break", Some("broken")),
            _ => unreachable!(),
        };
        *counter += 1;
        self.event(event, k);
        if let Some(message) = message {
            self.say(message, k, hold.channel, hold.token, &hold.owner);
        }
        let place = hold.unclaimed.filter(|_| why == "lapse").map_or(0, |(client, _)| client);
        if place != 0 && !self.hung.contains(&place) {
            self.hung.push(place);
        }
        let delay = self.settings.lock_delay;
        let closes = matches!(why, "expire" | "disconnect" | "break") && hold.unclaimed.is_none();
        if closes && delay > 0 {
            self.locks[k] = Lock::Closed { until: self.lease_now + delay, delay };
        }
    }

    pub(super) fn hand_on(&mut self, k: usize) {
        if self.shut || self.in_quarantine() {
            return;
        }
        if let Lock::Foreign = self.locks[k] {
            for place in std::mem::take(&mut self.queues[k]) {
                if let How::Blocked { .. } = place.how {
                    self.out.wakes.push((place.client, Answer::Error("WRONGTYPE")));
                }
            }
            return;
        }
        while let Lock::Free = self.locks[k] {
            let first = self.queues[k].iter().position(|place| !self.is_passed_over(place));
            let Some(at) = first else { return };
            if self.is_over(&self.queues[k][at]) {
                match self.queues[k][at].how {
                    How::Blocked { .. } => self.time_out(k, at),
                    _ => drop(self.queues[k].remove(at)),
                }
                continue;
            }
            let place = self.queues[k].remove(at);
            let token = self.next_token();
            let mut hold = self.hold_for(&place, token);
            self.out.counters.grants_after_waiting += 1;
            if let How::Blocked { .. } = place.how {
                self.out.wakes.push((place.client, Answer::Token(token)));
                self.sent.push(Sent {
                    client: place.client,
                    serial: hold.serial,
                    request: place.request,
                    queue: place.queue,
                    known: false,
                    repeated: false,
                });
            } else {
                let queue = place.queue.expect("only QUEUE places are not blocked");
                hold.unclaimed = Some((place.client, queue));
                hold.ends = match place.how {
                    How::Absent { until } => until,
                    _ => self.lease_now + queue,
                };
                self.say("granted", k, place.channel, token, &place.owner);
            }
            self.locks[k] = Lock::Held(hold);
            self.event("acquire", k);
        }
    }
}

/// Each key once, in the order of its first mention.
pub(super) fn in_order(keys: &[usize]) -> Vec<usize> {
    let mut order = Vec::new();
    for &k in keys {
        if !order.contains(&k) {
            order.push(k);
        }
    }
    order
}
