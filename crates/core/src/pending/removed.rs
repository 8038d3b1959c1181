//! Holds that ended together, with the messages that are not sent and the requests that are not noted.

use crate::bytes::Name;
use crate::key::Key;
use crate::kind::Kind;
use crate::spent::{Print, Prints, RequestKey, Use, spent_of};
use crate::state::holds::Holds;
use crate::subject::Subjects;

/// The holds of a value that was deleted: the messages that are not sent.
#[derive(Debug)]
pub(crate) struct Deleted {
    pub db: u32,
    pub name: Name,
    pub subjects: Subjects,
}

/// Readers of a key that an operator broke together. No value has them any more.
#[derive(Debug)]
pub(crate) struct Broken {
    pub db: u32,
    pub name: Name,
    pub readers: Holds,
}

impl Broken {
    pub fn key(&self) -> Key<'_> {
        Key { db: self.db, name: &self.name }
    }

    /// What a request did to one of them.
    pub fn find(&self, name: RequestKey<'_>) -> Option<Use> {
        let (id, hold) = self.readers.by_request(name.owner, name.id)?;
        let mut known = spent_of(Kind::Rw, id, hold, false);
        known.find_map(|(known, what)| (known == name).then_some(what))
    }

    /// Their requests, by fingerprint.
    pub fn requests(&self, prints: Prints) -> impl Iterator<Item = (Print, Use)> {
        self.readers
            .iter()
            .flat_map(move |(id, hold)| prints.of_hold(self.key(), Kind::Rw, id, hold))
    }
}
