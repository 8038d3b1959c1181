//! Ends expired holds, and grants to waiters.

use super::holder::promise;
use super::{Answer, Family, How, Lock, Model, Sent};

impl Model {
    /// Updates keys: those that the machine wrote, in its order, and others.
    pub(super) fn settle(&mut self, touched: &[usize], others: &[usize]) {
        if self.shut {
            assert!(touched.is_empty(), "behind a shut gate nothing is written");
            return;
        }
        // A key may be looked at again: what ended at one key can let waiters of another come first.
        for &k in touched.iter().chain(others) {
            self.end_expired(k);
            self.hand_off(k);
        }
    }

    pub(super) fn end_expired(&mut self, k: usize) {
        if self.shut {
            return;
        }
        let mut has_ended = false;
        if let Lock::Closed { until, .. } = &self.locks[k]
            && *until <= self.lease_now
        {
            self.locks[k] = Lock::Free;
            has_ended = true;
        }
        loop {
            // The earliest end comes first; of equal ends, the writer, then the oldest reader.
            let due = self.holds(k).filter(|hold| hold.ends <= self.lease_now);
            let Some(hold) = due.min_by_key(|hold| hold.ends) else { break };
            let was_cut = hold.tie.as_ref().is_some_and(|tie| tie.cut);
            let why = match hold.unclaimed {
                _ if was_cut => "disconnect",
                Some(_) => "lapse",
                None => "expire",
            };
            self.end(k, hold.serial, why);
            has_ended = true;
        }
        if has_ended {
            self.hand_off(k);
        }
    }

    /// The end of a hold. The caller hands off.
    pub(super) fn end(&mut self, k: usize, serial: u64, why: &str) {
        let (mode, hold) = self.take(k, serial);
        let how = match why {
            "release" => Some("released"),
            "expire" | "lapse" => Some("expired"),
            "disconnect" => Some("disconnected"),
            "break" => Some("broken"),
            // The next copy counts as the first.
            _ => None,
        };
        if let Some(how) = how {
            self.spend_hold(k, mode, &hold, how);
        }
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
            self.say(message, k, &hold);
        }
        let place = hold.unclaimed.filter(|_| why == "lapse").unwrap_or(0);
        if place != 0 && !self.hung.contains(&place) {
            self.hung.push(place);
        }
        let delay = self.settings.lock_delay;
        let closes = matches!(why, "expire" | "lapse" | "disconnect" | "break");
        if closes && delay > 0 && mode == dlock_wire::request::Mode::Write {
            self.locks[k] = Lock::Closed { until: self.lease_now + delay, delay };
        }
    }

    pub(super) fn hand_off(&mut self, k: usize) {
        if self.shut || self.in_quarantine() {
            return;
        }
        for _ in 0..self.looks {
            // One holder keeps all waiters out: nothing to check.
            if self.families[k] != Family::Rw && !matches!(self.locks[k], Lock::Free) {
                return;
            }
            let first = self.queues[k].iter().position(|place| !self.is_skipped(k, place));
            let Some(at) = first else { return };
            let place = &self.queues[k][at];
            if self.is_over(place) {
                match place.how {
                    How::Blocked { .. } if self.found_over.contains(&place.client) => {
                        self.time_out(k, at);
                    }
                    // No operation has opened the key since.
                    How::Blocked { .. } => return,
                    _ => drop(self.queues[k].remove(at)),
                }
                continue;
            }
            if !self.admits(k, &place.owner, place.mode) {
                return;
            }
            self.grant(k, at);
        }
    }

    /// Grants to the waiter at `at`.
    fn grant(&mut self, k: usize, at: usize) {
        let place = self.queues[k].remove(at);
        let token = self.next_token();
        let mut hold = self.hold_for(&place, token);
        let kept = self.outlives_by(k, &place);
        let is_fair = self.families[k] == Family::Fair;
        if place.calling {
            self.answer = Some(Answer::Token(token));
            self.out.counters.grants_at_once += 1;
        } else if let How::Blocked { .. } = place.how {
            self.out.counters.grants_after_waiting += 1;
            self.out.wakes.push((place.client, Answer::Token(token)));
            self.sent.push(Sent {
                client: place.client,
                serial: hold.serial,
                request: place.request.clone(),
                kept: kept.filter(|_| is_fair).map(|kept| kept.min(self.settings.claim)),
                place: kept.filter(|_| !is_fair).map(|_| (k, place.clone())),
                known: false,
                repeated: false,
            });
        } else {
            self.out.counters.grants_after_waiting += 1;
            let kept = kept.expect("others have no place without a call");
            let kept = kept.min(self.settings.claim);
            hold.unclaimed = Some(place.client);
            if let How::Absent { until } = place.how {
                // Nobody was told: it is kept until its owner asks again.
                hold.ends = until.min(self.lease_now + kept);
                hold.lease = hold.lease.max(kept);
                self.say("offered", k, &hold);
            } else {
                promise(&mut hold, self.lease_now, kept);
                self.say("granted", k, &hold);
            }
        }
        self.put(k, place.mode, hold);
        self.event("acquire", k);
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
