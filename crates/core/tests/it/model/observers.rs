//! AWAIT: observers of a hold. After each step, each observer of a hold that has left its key is answered.

use super::{Answer, Family, Hold, Lock, Model, text_key};
use dlock_wire::request::AwaitEnd;

/// A blocked AWAIT.
#[derive(Debug, Clone)]
pub(super) struct Observer {
    pub k: usize,
    pub client: u64,
    family: Family,
    /// The hold. If another key with a hold of the same token, which FENCE makes, is moved here, that one counts.
    serial: u64,
    token: u64,
    until: Option<u64>,
}

impl Model {
    /// The answer to AWAIT; `None`: it waits.
    pub(super) fn await_end(
        &mut self,
        (client, may_block): (u64, bool),
        family: Family,
        call: &AwaitEnd<'_>,
    ) -> Option<Answer> {
        let k = text_key(call.key);
        if self.is_something(k)
            && (self.families[k] != family || matches!(self.locks[k], Lock::WrongType))
        {
            return Some(Answer::Error("WRONGTYPE"));
        }
        let in_force = self.writer(k).filter(|hold| hold.ends > self.lease_now);
        let Some(hold) = in_force.filter(|h| call.token.is_none_or(|token| token == h.token))
        else {
            return Some(Answer::Count(1));
        };
        let (serial, token) = (hold.serial, hold.token);
        let Some(ms) = call.block_ms.filter(|_| may_block) else { return Some(Answer::Null) };
        let here = self.observers.iter().filter(|observer| observer.k == k).count();
        if here >= self.settings.per_key || !self.make_room() {
            return Some(Answer::Error("LIMIT"));
        }
        let until = (ms > 0).then_some(self.now + ms);
        self.observers.push(Observer { k, client, family, serial, token, until });
        None
    }

    /// Answers observers at the end of a step.
    pub(super) fn answer_observers(&mut self) {
        for observer in std::mem::take(&mut self.observers) {
            let Observer { client, until, .. } = observer;
            if until.is_some_and(|until| until <= self.now) && self.found_over.contains(&client) {
                self.out.wakes.push((client, Answer::Null));
                self.out.counters.timeouts += 1;
            } else if let Some(hold) = self.observed(&observer) {
                let (serial, token) = (hold.serial, hold.token);
                self.observers.push(Observer { serial, token, ..observer });
            } else {
                self.out.wakes.push((client, Answer::Count(1)));
            }
        }
    }

    /// Number of observers that count towards the limit of all waiters: not those whose hold has ended in this step.
    pub(super) fn counted_observers(&self) -> usize {
        self.observers.iter().filter(|observer| self.observed(observer).is_some()).count()
    }

    /// The hold that it waits for, if it is there.
    fn observed(&self, observer: &Observer) -> Option<&Hold> {
        let &Observer { k, family, serial, token, .. } = observer;
        let follower =
            || self.writer(k).filter(|hold| hold.token == token && self.families[k] == family);
        self.holds(k).find(|hold| hold.serial == serial).or_else(follower)
    }

    /// Number of observers that INFO shows.
    pub(super) fn observing(&self, k: usize) -> u64 {
        let is_left = |until: Option<u64>| until.is_none_or(|until| until > self.now);
        let here = self.observers.iter().filter(|observer| observer.k == k);
        here.filter(|observer| is_left(observer.until)).count() as u64
    }

    /// The blocked AWAIT of a connection, if it has one, is over.
    pub(super) fn stop_observing(&mut self, client: u64) -> bool {
        let before = self.observers.len();
        self.observers.retain(|observer| observer.client != client);
        before != self.observers.len()
    }
}
