//! Requests that are over: a memory knows them for a while.

use super::state::{Family, Hold, Spent, Use};
use super::{Answer, Model, Verb, text};
use dlock_wire::request::Mode;

impl Model {
    /// The answer to a copy of a request that is over.
    pub(super) fn recall(&mut self, k: usize, verb: Verb<'_>) -> Option<Answer> {
        let (owner, id, mode) = name(verb)?;
        let memory = self.spent_as(k, (self.families[k], mode), &owner, &id);
        let hold = self.hold_of(k, &owner, mode);
        let counts = hold.is_some_and(|hold| hold.counts.contains(&Some(id)));
        answer_again(verb, memory.filter(|_| !counts)?)
    }

    /// The same at a key of another type, where only the memory knows anything.
    pub(super) fn recall_alone(&self, k: usize, family: Family, verb: Verb<'_>) -> Option<Answer> {
        let (owner, id, mode) = name(verb)?;
        answer_again(verb, self.spent_as(k, (family, mode), &owner, &id)?)
    }

    /// Whether a call names a request that is over.
    pub(super) fn is_spent(&self, k: usize, verb: Verb<'_>) -> bool {
        let Some((owner, id, mode)) = name(verb) else { return false };
        self.spent_as(k, (self.families[k], mode), &owner, &id).is_some()
    }

    fn spent_as(&self, k: usize, of: (Family, Mode), owner: &str, id: &[u8]) -> Option<Use> {
        let found = self.spent.iter().find(|spent| {
            (spent.k, (spent.family, spent.mode)) == (k, of)
                && spent.owner == owner
                && spent.id == id
                && spent.at + self.settings.request_memory > self.lease_now
        });
        found.map(|spent| spent.used)
    }

    /// The request of a call is over.
    pub(super) fn spend(&mut self, k: usize, verb: Verb<'_>, used: Use) {
        let Some((owner, id, mode)) = name(verb) else { return };
        self.note_spent(k, mode, (&owner, &id), used);
    }

    /// The requests of a hold that has ended are lost.
    pub(super) fn spend_hold(&mut self, k: usize, mode: Mode, hold: &Hold, how: &'static str) {
        for id in hold.counts.iter().flatten() {
            self.note_spent(k, mode, (&hold.owner, id), Use::Lost(how));
        }
    }

    pub(super) fn note_spent(
        &mut self,
        k: usize,
        mode: Mode,
        (owner, id): (&str, &[u8]),
        used: Use,
    ) {
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

/// The owner, the id and the mode that name the request of a call.
fn name(verb: Verb<'_>) -> Option<(String, Vec<u8>, Mode)> {
    let (owner, id, mode) = match verb {
        Verb::Acquire(call, mode) => (call.owner, call.reqid, mode),
        Verb::Release(call, mode) => (call.owner, call.reqid, mode),
        _ => return None,
    };
    Some((text(owner), id?.to_vec(), mode))
}

/// The answer to a call whose request is over.
fn answer_again(verb: Verb<'_>, used: Use) -> Option<Answer> {
    Some(match (verb, used) {
        (Verb::Acquire(..), _) => Answer::Error("SPENT"),
        (Verb::Release(..), Use::Released(answer)) => Answer::Count(answer),
        (Verb::Release(..), Use::Waited) => Answer::Null,
        (Verb::Release(..), Use::Lost(how)) => Answer::Lost(how),
        (Verb::Release(..), Use::Unknown) => Answer::Error("UNKNOWN"),
        _ => return None,
    })
}
