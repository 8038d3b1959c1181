//! The verbs of a holder and the parts of a hold.

use super::{Answer, Binding, Hold, Model, Place, TOKEN_LEAD_US, Use, Verb, text};
use dlock_wire::request::{Mode, Release, Renew};

impl Model {
    pub(super) fn release(
        &mut self,
        k: usize,
        client: u64,
        (call, mode): (&Release<'_>, Mode),
    ) -> Answer {
        let now = self.lease_now;
        let Some(hold) = self.hold_of(k, &text(call.owner), mode) else {
            return Answer::Error("NOTHELD");
        };
        if call.token.is_some_and(|token| token != hold.token) {
            return Answer::Error("NOTHELD");
        }
        let (serial, mut count) = (hold.serial, u64::from(hold.count));
        let mut known = hold.requests.iter().filter(|(known, _)| call.reqid == Some(known));
        if let Some((_, used)) = known.next() {
            let Use::Released(answer) = *used else { panic!("refused before") };
            count = answer;
            follow(hold, client);
            if hold.unclaimed.take().is_some() {
                let lease = hold.lease;
                set_end(hold, now + lease);
            }
        } else if call.all || count == 1 {
            self.end(k, serial, "release");
            self.spend(k, Verb::Release(call, mode), Use::Released(0));
            self.hand_off(k);
            return Answer::Count(0);
        } else {
            hold.count -= 1;
            count -= 1;
            remember(hold, call.reqid, Use::Released(count));
            self.out.counters.releases += 1;
            self.event("release", k);
        }
        self.answered(serial, None);
        Answer::Count(count)
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
        if let Some(ms) = call.bind_ms {
            hold.tie = Some(Binding { ms, client, cut: false, at_most: None });
        } else if hold.unclaimed.is_some() {
            follow(hold, client);
        }
        hold.unclaimed = None;
        hold.lease = call.lease_ms.unwrap_or(hold.lease);
        let lease = hold.lease;
        set_end(hold, now + lease);
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
        remember(&mut hold, place.request.as_deref(), Use::Acquired);
        hold.label.clone_from(&place.label);
        hold.channel.clone_from(&place.channel);
        if place.channel.is_some() {
            hold.told_of = place.request.as_deref().map(text).unwrap_or_default();
        }
        let client = place.client;
        hold.tie = place.bind.map(|ms| Binding { ms, client, cut: false, at_most: None });
        hold
    }

    pub(super) fn new_hold(&mut self, owner: String, token: u64, lease: u64) -> Hold {
        self.serials += 1;
        Hold {
            serial: self.serials,
            owner,
            token,
            count: 1,
            ends: self.lease_now + lease,
            lease,
            since: self.now,
            label: String::new(),
            channel: None,
            told_of: String::new(),
            requests: Vec::new(),
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

pub(super) fn remember(hold: &mut Hold, id: Option<&[u8]>, used: Use) {
    if let Some(id) = id {
        hold.requests.push((id.to_vec(), used));
        if hold.requests.len() > 8 {
            hold.requests.remove(0);
        }
    }
}

/// Moves the binding to the connection that claims or repeats.
pub(super) fn follow(hold: &mut Hold, client: u64) {
    if let Some(tie) = hold.tie.as_mut().filter(|_| client != 0) {
        *tie = Binding { ms: tie.ms, client, cut: false, at_most: None };
    }
}

/// Sets a new end of the lease; an orphan that was not bound again has its limit.
pub(super) fn set_end(hold: &mut Hold, ends: u64) {
    hold.ends = ends;
    if let Some(tie) = &mut hold.tie {
        tie.cut = tie.at_most.is_some_and(|at_most| at_most < ends);
        hold.ends = tie.at_most.map_or(ends, |at_most| at_most.min(ends));
    }
}
