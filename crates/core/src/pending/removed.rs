//! Holds that are gone, most of them with their value, and what is not done for them yet.

use crate::bytes::Name;
use crate::effects::Subject;
use crate::ids::{HoldId, KeyId};
use crate::key::Key;
use crate::kind::Kind;
use crate::spent::{Print, Prints, RequestKey, Use, spent_of};
use crate::state::hold::{Hold, NO_CLIENT};
use crate::subject::subject;
use alloc::vec::{IntoIter, Vec};
use core::borrow::Borrow;

/// The holds of a key that are gone.
#[derive(Debug)]
pub(crate) struct Removed {
    pub db: u32,
    pub name: Name,
    /// The home and the entry of their key.
    pub entry: (u32, KeyId),
    pub remains: Remains,
    /// The message that tells the end of the holds.
    pub fate: Fate,
    /// Number of keyspace events that are not sent.
    pub events: usize,
}

/// What has to be noted and told about holds that are gone. It is smaller than the holds were, whatever they knew: the
/// server evicts keys until its memory falls.
#[derive(Debug)]
pub(crate) struct Remains {
    prints: Prints,
    /// Their requests, sorted.
    pub requests: IntoIter<(Print, Use)>,
    /// The connections to which they were bound.
    pub bindings: IntoIter<(u64, HoldId)>,
    /// For those that send messages.
    pub messages: IntoIter<Subject>,
}

/// Why holds are gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fate {
    /// Their key was deleted.
    Deleted,
    /// An operator broke them.
    Broken,
}

impl Removed {
    /// Whether nothing is left to do.
    pub fn is_done(&self) -> bool {
        self.events == 0 && self.remains.is_empty()
    }
}

impl Remains {
    /// What is left of `holds` of `key`, and of `more` requests. One walk: holds are scattered in memory.
    pub fn of<H: Borrow<Hold>>(
        key: Key<'_>,
        kind: Kind,
        prints: Prints,
        holds: impl Iterator<Item = (HoldId, H)>,
        more: Option<(RequestKey<'_>, Use)>,
    ) -> Self {
        let mut requests: Vec<_> =
            more.into_iter().map(|(name, what)| (prints.of(key, name), what)).collect();
        let (mut bindings, mut messages) = (Vec::new(), Vec::new());
        for (id, hold) in holds {
            let hold = hold.borrow();
            let known = spent_of(kind, id, hold, false);
            requests.extend(known.map(|(name, what)| (prints.of(key, name), what)));
            if hold.bound_to() != NO_CLIENT {
                bindings.push((hold.bound_to(), id));
            }
            messages.extend(subject(id, hold));
        }
        requests.sort_unstable_by_key(|(print, _)| *print);
        Self {
            prints,
            requests: requests.into_iter(),
            bindings: bindings.into_iter(),
            messages: messages.into_iter(),
        }
    }

    fn is_empty(&self) -> bool {
        self.requests.len() + self.bindings.len() + self.messages.len() == 0
    }

    /// What a request did.
    pub fn find(&self, print: Print) -> Option<Use> {
        let rest = self.requests.as_slice();
        let at = rest.binary_search_by_key(&print, |(print, _)| *print).ok()?;
        rest.get(at).map(|(_, what)| *what)
    }

    /// The memory of requests may be another one since: then it has its own.
    pub fn forget_unless(&mut self, prints: Prints) {
        if self.prints != prints {
            self.forget_requests();
        }
    }

    /// The memory has other ones.
    pub fn forget_requests(&mut self) {
        self.requests = Vec::new().into_iter();
    }
}
