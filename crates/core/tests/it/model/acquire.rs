//! ACQUIRE, of a free lock, of one's own and with a wait.

use super::holder::{follow, remember, set_end};
use super::{Answer, How, Lock, Model, Place, Tie, text};
use dlock_wire::request::Acquire;

impl Model {
    pub(super) fn acquire(
        &mut self,
        k: usize,
        client: u64,
        may_block: bool,
        call: &Acquire<'_>,
    ) -> Option<Answer> {
        let owner = text(call.owner);
        if self.hold_of(k, &owner).is_some() {
            return Some(self.acquire_again(k, client, call));
        }
        let blocks = call.block_ms.is_some() && may_block;
        let waits = blocks || call.queue_ms.is_some();
        let place = self.queues[k].iter().position(|place| place.owner == owner);
        let is_open = matches!(self.locks[k], Lock::Free)
            && !self.in_quarantine()
            && self.queues[k].iter().all(|place| self.is_passed_over(place));
        if is_open && !(waits && place.is_some()) {
            let token = self.next_token();
            let mut hold = self.new_hold(owner, token, self.lease_of(call.lease_ms));
            remember(&mut hold, call.reqid);
            hold.label = text(call.label.unwrap_or_default());
            hold.channel = channel_of(call);
            hold.tie = call.bind_ms.map(|ms| Tie { ms, client, cut: false, at_most: None });
            self.locks[k] = Lock::Held(hold);
            self.out.counters.grants_at_once += 1;
            self.event("acquire", k);
            return Some(Answer::Token(token));
        }
        if !waits {
            let refused = self.in_quarantine() && !matches!(self.locks[k], Lock::Held(_));
            return Some(if refused { Answer::Error("QUARANTINE") } else { Answer::Null });
        }
        let in_all: usize = self.queues.iter().map(Vec::len).sum();
        if place.is_none()
            && (self.queues[k].len() >= self.settings.per_key || in_all >= self.settings.in_all)
        {
            return Some(Answer::Error("LIMIT"));
        }
        let until = call.block_ms.filter(|&ms| ms > 0).map(|ms| self.now + ms);
        let mut new = Place {
            owner: owner.clone(),
            client,
            how: if blocks { How::Blocked { until } } else { How::Queued },
            since: self.now,
            lease: self.lease_of(call.lease_ms),
            queue: call.queue_ms,
            channel: channel_of(call),
            request: call.reqid.map(<[u8]>::to_vec),
            bind: call.bind_ms,
            label: text(call.label.unwrap_or_default()),
        };
        match place {
            Some(at) => {
                let old = &mut self.queues[k][at];
                if let How::Blocked { .. } = old.how {
                    self.out.wakes.push((old.client, Answer::Error("REPLACED")));
                    self.out.counters.replaced += 1;
                }
                new.since = old.since;
                *old = new;
            }
            None => self.queues[k].push(new),
        }
        // The others that wait are passed over, or it is not free: at most the caller is served.
        let admitted = matches!(self.locks[k], Lock::Free) && !self.in_quarantine();
        let first = self.queues[k].iter().position(|place| !self.is_passed_over(place));
        if let Some(at) = first.filter(|_| admitted) {
            let place = self.queues[k].remove(at);
            assert_eq!(place.owner, owner, "whoever else is first has been served before");
            let token = self.next_token();
            let hold = self.hold_for(&place, token);
            self.locks[k] = Lock::Held(hold);
            self.out.counters.grants_at_once += 1;
            self.event("acquire", k);
            return Some(Answer::Token(token));
        }
        self.event("wait", k);
        if blocks { None } else { Some(Answer::Null) }
    }

    fn acquire_again(&mut self, k: usize, client: u64, call: &Acquire<'_>) -> Answer {
        let lease = self.lease_of(call.lease_ms);
        let now = self.lease_now;
        let Lock::Held(hold) = &mut self.locks[k] else { unreachable!() };
        let seen = call.reqid.is_some_and(|id| hold.requests.iter().any(|known| known == id));
        let claims = hold.unclaimed.is_some();
        if !seen && !claims && call.no_reentry {
            return Answer::Error("REENTRY");
        }
        if !seen {
            remember(hold, call.reqid);
            if let Some(label) = call.label {
                hold.label = text(label);
            }
            if let Some(channel) = channel_of(call) {
                hold.channel = Some(channel);
            }
        }
        match call.bind_ms {
            Some(ms) => hold.tie = Some(Tie { ms, client, cut: false, at_most: None }),
            None if claims || seen => follow(hold, client),
            None => {}
        }
        if claims {
            hold.unclaimed = None;
            hold.lease = lease;
            set_end(hold, now + lease);
        } else if !seen {
            hold.count += 1;
            if now + lease > hold.ends {
                hold.lease = lease;
                set_end(hold, now + lease);
            }
        }
        let (token, serial) = (hold.token, hold.serial);
        if !seen && !claims {
            self.out.counters.grants_at_once += 1;
            self.event("acquire", k);
        }
        self.answered(serial, call.reqid.filter(|_| seen && !claims));
        Answer::Token(token)
    }
}

fn channel_of(call: &Acquire<'_>) -> Option<String> {
    match (call.notify, call.queue_ms) {
        (Some(channel), _) => Some(text(channel)),
        (None, Some(_)) => Some(format!("dlock:notify:{}", text(call.owner))),
        (None, None) => None,
    }
}
