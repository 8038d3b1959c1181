//! ACQUIRE of a free lock, of a lock that the owner holds, and with a wait.

use super::holder::answer_for;
use super::{Answer, Binding, Hold, How, KEYS, Model, Place, text};
use dlock_wire::request::{Acquire, Channel, Mode};

/// Largest number of requests with an id that count in a hold.
const OPEN_MAX: usize = 64;

impl Model {
    pub(super) fn acquire(
        &mut self,
        k: usize,
        client: u64,
        may_block: bool,
        (call, mode): (&Acquire<'_>, Mode),
    ) -> Option<Answer> {
        let owner = text(call.owner);
        if self.hold_of(k, &owner, mode).is_some() {
            return Some(self.acquire_again(k, client, (call, mode)));
        }
        let blocks = call.block_ms.is_some() && may_block;
        let waits = blocks || call.queue_ms.is_some();
        let place = self.queues[k].iter().position(|place| place.owner == owner);
        let is_full = self.readers[k].len() >= self.settings.holds;
        let keeps = place.is_some_and(|at| waits && self.queues[k][at].mode == mode);
        if mode == Mode::Read && is_full && !keeps {
            return Some(Answer::Error("LIMIT"));
        }
        let goes_first = self.goes_first(k, &owner, mode);
        let is_open = self.admits(k, &owner, mode)
            && !self.in_quarantine()
            && (goes_first || self.queues[k].iter().all(|place| self.is_skipped(k, place)));
        if is_open && (goes_first || !(waits && place.is_some())) {
            if let Some(at) = place.filter(|_| waits) {
                self.give_up_place(k, at, call.reqid);
            }
            self.leave_with(k, &owner, (call, mode));
            let token = self.next_token();
            let mut hold = self.new_hold(owner, token, self.lease_of(call.lease_ms));
            hold.counts = vec![call.reqid.map(<[u8]>::to_vec)];
            hold.label = text(call.label.unwrap_or_default());
            be_told(&mut hold, call);
            hold.tie = call.bind_ms.map(|ms| Binding { ms, client, cut: false });
            self.put(k, mode, hold);
            self.out.counters.grants_at_once += 1;
            self.event("acquire", k);
            return Some(Answer::Token(token));
        }
        if !waits {
            let refused = self.in_quarantine() && !self.is_held_against(k, &owner, mode);
            return Some(if refused { Answer::Error("QUARANTINE") } else { Answer::Null });
        }
        if self.reads(k, &owner) && mode == Mode::Write && self.is_being_upgraded(k, &owner) {
            return Some(Answer::Error("DEADLOCK"));
        }
        if place.is_none() && (self.queues[k].len() >= self.settings.per_key || !self.make_room()) {
            return Some(Answer::Error("LIMIT"));
        }
        let new = Place {
            client,
            how: match call.block_ms.filter(|_| blocks) {
                Some(ms) => How::Blocked { until: (ms > 0).then_some(self.now + ms) },
                None => How::Queued,
            },
            calling: true,
            since: self.now,
            lease: self.lease_of(call.lease_ms),
            queue: call.queue_ms,
            channel: channel_of(call),
            request: call.reqid.map(<[u8]>::to_vec),
            bind: call.bind_ms,
            label: text(call.label.unwrap_or_default()),
            ..Place::of(&owner, mode)
        };
        self.join_queue(k, new, goes_first);
        self.hand_off(k);
        for place in self.queues.iter_mut().flatten() {
            place.calling = false;
        }
        if let Some(answer) = self.answer.take() {
            return Some(answer);
        }
        self.event("wait", k);
        if blocks { None } else { Some(Answer::Null) }
    }

    fn join_queue(&mut self, k: usize, mut new: Place, goes_first: bool) {
        let old = self.queues[k].iter().position(|place| place.owner == new.owner);
        let keeps = |&at: &usize| self.queues[k][at].mode == new.mode && (at == 0 || !goes_first);
        let kept = old.filter(keeps);
        new.since = kept.map_or(self.now, |at| self.queues[k][at].since);
        new.number = match kept {
            Some(at) => self.queues[k][at].number,
            None if goes_first => {
                self.numbers.1 -= 1;
                self.numbers.1
            }
            None => {
                self.numbers.0 += 1;
                self.numbers.0
            }
        };
        if let Some(at) = old {
            self.give_up_place(k, at, new.request.as_deref());
        }
        let end = if goes_first { 0 } else { self.queues[k].len() };
        self.queues[k].insert(kept.unwrap_or(end), new);
    }

    /// A later call of the owner takes over the queue entry of an earlier one.
    fn give_up_place(&mut self, k: usize, at: usize, by: Option<&[u8]>) {
        let old = self.queues[k].remove(at);
        if let How::Blocked { .. } = old.how {
            if by.is_some() && old.request.as_deref() == by {
                self.out.wakes.push((old.client, Answer::Null));
            } else {
                self.out.wakes.push((old.client, Answer::Error("REPLACED")));
                self.out.counters.replaced += 1;
            }
        } else if let (Some(channel), Some(id)) = (old.channel, old.request)
            && Some(&id[..]) != by
        {
            let (owner, long, id_long) = (&old.owner, old.owner.len(), id.len());
            let id = text(&id);
            let text = format!("replaced 0 0 {long} {owner} {id_long} {id} {}", KEYS[k]);
            self.out.messages.push((channel, text));
        }
    }

    /// A request that was granted does not wait any more.
    fn leave_with(&mut self, k: usize, owner: &str, (call, mode): (&Acquire<'_>, Mode)) {
        let is_it = |place: &Place| {
            place.owner == owner && place.mode == mode && place.request.as_deref() == call.reqid
        };
        if let Some(at) = self.queues[k].iter().position(is_it).filter(|_| call.reqid.is_some()) {
            self.give_up_place(k, at, call.reqid);
        }
    }

    /// Whether another reader waits to write.
    fn is_being_upgraded(&self, k: usize, owner: &str) -> bool {
        self.queues[k].iter().any(|place| {
            place.owner != owner
                && place.mode == Mode::Write
                && self.reads(k, &place.owner)
                && !self.has_run_out(place)
                && !self.is_deserted(k, place)
        })
    }

    fn acquire_again(
        &mut self,
        k: usize,
        client: u64,
        (call, mode): (&Acquire<'_>, Mode),
    ) -> Answer {
        let lease = self.lease_of(call.lease_ms);
        let now = self.lease_now;
        let hold = self.hold_of(k, &text(call.owner), mode).expect("it was there");
        let id = call.reqid.map(<[u8]>::to_vec);
        let is_copy = id.is_some() && hold.counts.contains(&id);
        let takes_over = id.is_none() && hold.unclaimed.is_some() && hold.counts == [None];
        let enters = !is_copy && !takes_over;
        if enters {
            if call.no_reentry {
                return Answer::Error("REENTRY");
            }
            if id.is_some() && hold.counts.iter().flatten().count() == OPEN_MAX {
                return Answer::Error("LIMIT");
            }
            hold.counts.push(id);
            self.leave_with(k, &text(call.owner), (call, mode));
        }
        let hold = self.hold_of(k, &text(call.owner), mode).expect("it was there");
        if let Some(label) = call.label.filter(|_| !is_copy) {
            hold.label = text(label);
        }
        answer_for(hold, now, lease, (call.bind_ms, client));
        let (token, serial) = (hold.token, hold.serial);
        if enters {
            self.out.counters.grants_at_once += 1;
            self.event("acquire", k);
        }
        self.answered(serial, call.reqid.filter(|_| is_copy));
        Answer::Token(token)
    }
}

pub(super) fn is_saved(place: &Place) -> bool {
    matches!(place.how, How::Saved)
}

fn be_told(hold: &mut Hold, call: &Acquire<'_>) {
    if let Some(channel) = channel_of(call) {
        hold.channel = Some(channel);
        hold.told_of = call.reqid.map(text).unwrap_or_default();
    }
}

fn channel_of(call: &Acquire<'_>) -> Option<String> {
    match (call.notify, call.queue_ms) {
        (Some(Channel::Plain(name)), _) => Some(text(name)),
        (Some(Channel::Sharded(name)), _) => Some(format!("sharded {}", text(name))),
        (None, Some(_)) => Some(format!("dlock:notify:{}", text(call.owner))),
        (None, None) => None,
    }
}
