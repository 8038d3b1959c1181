//! Requests that were carried out: their hold knows them while it lasts, and a memory for a while afterwards.

use super::state::{Family, Hold, Spent, Use};
use super::{Answer, Model, Verb, text};
use dlock_wire::request::Mode;

impl Model {
    /// The answer to a copy of a request that is over.
    pub(super) fn recall(&mut self, k: usize, verb: Verb<'_>) -> Option<Answer> {
        let (owner, id, modes) = self.names(k, verb)?;
        for mode in modes {
            let (known, is_claimed) = match self.hold_of(k, &owner, mode) {
                Some(hold) => (
                    hold.requests.iter().find(|(known, _)| *known == id).cloned(),
                    hold.unclaimed.is_none(),
                ),
                None => (None, true),
            };
            let in_hold = known.is_some();
            let used = known.map(|(_, used)| used).or_else(|| self.spent_as(k, mode, &owner, &id));
            let answer = match (verb, used) {
                (_, None) => None,
                (Verb::Cancel(..), Some(Use::Acquired)) => {
                    if is_claimed {
                        self.cancel_what_was_sent(k, &owner, Some(&id));
                    }
                    (!in_hold || is_claimed).then_some(Answer::Count(0))
                }
                (Verb::Acquire(..), Some(Use::Acquired | Use::Cancelled(_))) => {
                    (!in_hold).then_some(Answer::Error("SPENT"))
                }
                (Verb::Release(..), Some(Use::Released(answer))) => {
                    (!in_hold).then_some(Answer::Count(answer))
                }
                (Verb::Release(..), Some(Use::PassedOver)) => Some(Answer::Error("SPENT")),
                (Verb::Cancel(..), Some(Use::Cancelled(answer))) => Some(Answer::Count(answer)),
                _ => Some(Answer::Error("ERR")),
            };
            if answer.is_some() {
                return answer;
            }
        }
        None
    }

    /// Whether a call names a request that is over.
    pub(super) fn is_spent(&self, k: usize, verb: Verb<'_>) -> bool {
        let Some((owner, id, modes)) = self.names(k, verb) else { return false };
        modes.into_iter().any(|mode| self.spent_as(k, mode, &owner, &id).is_some())
    }

    fn names(&self, k: usize, verb: Verb<'_>) -> Option<(String, Vec<u8>, Vec<Mode>)> {
        let is_rw = self.families[k] == Family::Rw;
        let both = if is_rw { vec![Mode::Read, Mode::Write] } else { vec![Mode::Write] };
        let (owner, id, modes) = match verb {
            Verb::Acquire(call, mode) => (call.owner, call.reqid, vec![mode]),
            Verb::Release(call, mode) => (call.owner, call.reqid, vec![mode]),
            Verb::Cancel(owner, id) => (owner, id, both),
            _ => return None,
        };
        Some((text(owner), id?.to_vec(), modes))
    }

    fn spent_as(&self, k: usize, mode: Mode, owner: &str, id: &[u8]) -> Option<Use> {
        let found = self.spent.iter().find(|spent| {
            (spent.k, spent.family, spent.mode) == (k, self.families[k], mode)
                && spent.owner == owner
                && spent.id == id
                && spent.at + self.settings.request_memory > self.lease_now
        });
        found.map(|spent| spent.used)
    }

    /// A call has done something that no hold knows.
    pub(super) fn spend(&mut self, k: usize, verb: Verb<'_>, used: Use) {
        let Some((owner, id, modes)) = self.names(k, verb) else { return };
        for mode in modes {
            self.note_spent(k, mode, (&owner, &id), used);
        }
    }

    /// The requests of a hold that is over; none if its owner never heard of it.
    pub(super) fn spend_hold(&mut self, k: usize, mode: Mode, hold: &Hold, by_owner: bool) {
        if by_owner || hold.unclaimed.is_none() {
            for (id, used) in &hold.requests {
                self.note_spent(k, mode, (&hold.owner, id), *used);
            }
        }
    }

    fn note_spent(&mut self, k: usize, mode: Mode, (owner, id): (&str, &[u8]), used: Use) {
        let family = self.families[k];
        self.spent.retain(|spent| {
            (spent.k, spent.family, spent.mode) != (k, family, mode)
                || spent.owner != owner
                || spent.id != id
        });
        let (owner, id) = (owner.to_owned(), id.to_vec());
        self.spent.push(Spent { k, family, mode, owner, id, used, at: self.lease_now });
    }

    /// Number of remembered requests.
    pub fn remembered(&self) -> usize {
        let keep = self.settings.request_memory;
        self.spent.iter().filter(|spent| spent.at + keep > self.lease_now).count()
    }
}
