//! Holds that ended together, with the messages that are not sent and the requests that are not noted.

use crate::base::bytes::Name;
use crate::base::key::Key;
use crate::base::kind::Kind;
use crate::ports::subject::Subjects;
use crate::tables::pending::Pending;
use crate::tables::settings::Settings;
use crate::value::holds::Holds;
use crate::value::spent::{Loss, Print, Prints, RequestKey, Use, spent_of};

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
        let mut known = spent_of(Kind::Rw, id, hold, Loss::Broken);
        known.find_map(|(known, what)| (known == name).then_some(what))
    }

    /// Their requests, by fingerprint.
    pub fn requests(&self, prints: Prints) -> impl Iterator<Item = (Print, Use)> {
        self.readers.iter().flat_map(move |(id, hold)| {
            prints.of_hold(self.key(), Kind::Rw, id, hold, Loss::Broken)
        })
    }
}

impl Pending {
    pub(crate) fn note_broken(&mut self, key: Key<'_>, readers: Holds) {
        let (db, name) = (key.db, key.name.into());
        self.broken.push_back(Broken { db, name, readers });
    }

    /// Whether something is left to do for holds that are gone.
    pub(crate) fn has_removed(&self) -> bool {
        !(self.deleted.is_empty() && self.broken.is_empty())
    }
}

impl Settings {
    /// Whether requests are remembered at all.
    pub(crate) fn remembers_requests(&self) -> bool {
        let limits = self.request_limits();
        limits.keep_ms > 0 && limits.most > 0
    }
}
