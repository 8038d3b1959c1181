//! The verbs of a holder and the parts of a hold.

use super::{Answer, Binding, Hold, Lock, Model, Place, TOKEN_LEAD_US, Use, Verb, text};
use dlock_wire::request::{Mode, Release, Renew};

impl Model {
    /// RELEASE: what the named request has ends, and nothing else; without an id, one count or all.
    pub(super) fn release(&mut self, k: usize, (call, mode): (&Release<'_>, Mode)) -> Answer {
        let owner = text(call.owner);
        let Some(id) = call.reqid else { return self.release_unnamed(k, &owner, (call, mode)) };
        let hold = self.hold_of(k, &owner, mode);
        if let Some(hold) = hold.filter(|hold| hold.counts.contains(&Some(id.to_vec()))) {
            let at = hold.counts.iter().position(|count| count.as_deref() == Some(id));
            let is_it = call.token.is_none_or(|token| token == hold.token);
            let left = hold.counts.len() as u64 - 1;
            let used = if is_it { Use::Released(left) } else { Use::Unknown };
            // A hold with another token ends without DELAY.
            let call = &Release { delay_ms: call.delay_ms.filter(|_| is_it), ..*call };
            self.take_count(k, (call, mode), at.expect("it counts"));
            // It may also wait, if its hold came here with another key.
            let waits = self.place_of(k, &owner, mode);
            let waits = waits.filter(|&at| self.queues[k][at].request.as_deref() == Some(id));
            if let Some(at) = waits {
                self.leave(k, at);
            }
            self.spend(k, Verb::Release(call, mode), used);
            if left == 0 || waits.is_some() {
                self.hand_off(k);
            }
            return if is_it { Answer::Count(left) } else { Answer::Error("UNKNOWN") };
        }
        let waits = self.place_of(k, &owner, mode);
        if let Some(at) = waits.filter(|&at| self.queues[k][at].request.as_deref() == Some(id)) {
            return self.give_up(k, at);
        }
        self.spend(k, Verb::Release(call, mode), Use::Unknown);
        Answer::Error("UNKNOWN")
    }

    fn release_unnamed(
        &mut self,
        k: usize,
        owner: &str,
        (call, mode): (&Release<'_>, Mode),
    ) -> Answer {
        let hold = self.hold_of(k, owner, mode);
        let is_it = |hold: &&mut Hold| call.token.is_none_or(|token| token == hold.token);
        let Some(hold) = hold.filter(is_it) else {
            let waits = self.place_of(k, owner, mode).filter(|_| call.token.is_none());
            return waits.map_or(Answer::Error("NOTHELD"), |at| self.give_up(k, at));
        };
        // One without an id, else the youngest.
        let unnamed = hold.counts.iter().position(Option::is_none);
        let (serial, last) = (hold.serial, hold.counts.len() - 1);
        let left = if call.all { 0 } else { last };
        if call.all {
            if let Some(at) = self.place_of(k, owner, mode) {
                self.leave(k, at);
            }
            self.end(k, serial, "release");
            self.stay_closed(k, (call, mode));
        } else {
            self.take_count(k, (call, mode), unnamed.unwrap_or(last));
        }
        // As long as it holds, nobody comes in by this; a quarantine that ended is the matter of the tick.
        if left == 0 {
            self.hand_off(k);
        }
        Answer::Count(left as u64)
    }

    /// One count less of a hold, that at `at`. The caller notes what became of the request that it names, and hands
    /// off.
    fn take_count(&mut self, k: usize, (call, mode): (&Release<'_>, Mode), at: usize) {
        let hold = self.hold_of(k, &text(call.owner), mode).expect("it was there");
        let serial = hold.serial;
        if hold.counts.len() == 1 {
            if call.reqid.is_some() {
                // Its answer is noted by the caller.
                hold.counts.clear();
            }
            self.end(k, serial, "release");
            self.stay_closed(k, (call, mode));
            return;
        }
        let id = hold.counts.remove(at);
        hold.unclaimed = None;
        if let Some(id) = id.filter(|_| call.reqid.is_none()) {
            self.note_spent(k, mode, (&text(call.owner), &id), Use::Lost("released"));
        }
        self.out.counters.releases += 1;
        self.event("release", k);
        self.answered(serial, None);
    }

    /// DELAY: the lock that became free with this call stays closed.
    fn stay_closed(&mut self, k: usize, (call, mode): (&Release<'_>, Mode)) {
        if let Some(delay) = call.delay_ms.filter(|_| mode == Mode::Write) {
            self.locks[k] = Lock::Closed { until: self.lease_now + delay, delay };
        }
    }

    pub(super) fn renew(
        &mut self,
        k: usize,
        client: u64,
        (call, mode): (&Renew<'_>, Mode),
    ) -> Answer {
        let now = self.lease_now;
        let Some(hold) = self.hold_of(k, &text(call.owner), mode) else {
            return Answer::Error("NOTHELD");
        };
        if call.token.is_some_and(|token| token != hold.token) {
            return Answer::Error("NOTHELD");
        }
        let lease = call.lease_ms.unwrap_or(hold.lease);
        answer_for(hold, now, lease, (call.bind_ms, client));
        let (token, serial) = (hold.token, hold.serial);
        self.answered(serial, None);
        Answer::Token(token)
    }

    pub(super) fn fence(&mut self, k: usize, owner: &str, token: u64) -> Answer {
        let most = self.last_token.max(self.wall_us + TOKEN_LEAD_US);
        let Some(hold) = self.hold_of(k, owner, Mode::Write) else {
            return Answer::Error("NOTHELD");
        };
        if token > most {
            return Answer::Error("ERR");
        }
        hold.token = hold.token.max(token);
        let (token, serial) = (hold.token, hold.serial);
        self.last_token = self.last_token.max(token);
        self.answered(serial, None);
        Answer::Token(token)
    }

    /// BREAK, of all holds or those of one owner.
    pub(super) fn break_holds(&mut self, k: usize, owner: Option<&[u8]>) -> Answer {
        let owner = owner.map(text);
        let meant = self.holds(k).filter(|hold| owner.as_ref().is_none_or(|o| *o == hold.owner));
        let serials: Vec<u64> = meant.map(|hold| hold.serial).collect();
        for &serial in &serials {
            self.end(k, serial, "break");
        }
        if !serials.is_empty() {
            self.hand_off(k);
        }
        Answer::Count(serials.len() as u64)
    }

    pub(super) fn hold_for(&mut self, place: &Place, token: u64) -> Hold {
        let mut hold = self.new_hold(place.owner.clone(), token, place.lease);
        hold.counts = vec![place.request.clone()];
        hold.label.clone_from(&place.label);
        hold.channel.clone_from(&place.channel);
        if place.channel.is_some() {
            hold.told_of = place.request.as_deref().map(text).unwrap_or_default();
        }
        let client = place.client;
        hold.tie = place.bind.map(|ms| Binding { ms, client, cut: false });
        hold
    }

    pub(super) fn new_hold(&mut self, owner: String, token: u64, lease: u64) -> Hold {
        self.serials += 1;
        Hold {
            serial: self.serials,
            owner,
            token,
            counts: vec![None],
            ends: self.lease_now + lease,
            lease,
            since: self.now,
            label: String::new(),
            channel: None,
            told_of: String::new(),
            tie: None,
            unclaimed: None,
        }
    }

    pub(super) fn next_token(&mut self) -> u64 {
        self.last_token = self.wall_us.max(self.last_token + 1);
        self.last_token
    }

    pub(super) fn lease_of(&self, asked: Option<u64>) -> u64 {
        asked.unwrap_or(self.settings.default_lease)
    }

    /// The owner got an answer for a hold; `repeat` is the id of the request if it was a repeat.
    pub(super) fn answered(&mut self, serial: u64, repeat: Option<&[u8]>) {
        for sent in self.sent.iter_mut().filter(|sent| sent.serial == serial) {
            sent.known = true;
            sent.repeated |= repeat.is_some() && sent.request.as_deref() == repeat;
        }
    }
}

/// An answered request: the hold lasts at least its lease from now. It is bound as long as each of them has BIND.
pub(super) fn answer_for(
    hold: &mut Hold,
    now: u64,
    lease: u64,
    (bind, client): (Option<u64>, u64),
) {
    hold.unclaimed = None;
    hold.tie = match (hold.tie.take(), bind) {
        (Some(tie), Some(ms)) => Some(Binding { ms: ms.max(tie.ms), client, cut: false }),
        _ => None,
    };
    promise(hold, now, lease);
}

/// The hold lasts at least `lease` from now, and also after a promotion.
pub(super) fn promise(hold: &mut Hold, now: u64, lease: u64) {
    let is_longer = now + lease > hold.ends;
    hold.lease = if is_longer { lease } else { hold.lease.max(lease) };
    hold.ends = hold.ends.max(now + lease);
}
