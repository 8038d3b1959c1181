//! A large removed value whose holds end in portions.

use crate::bytes::Name;
use crate::effects::{Effects, Event};
use crate::ids::{HoldId, KeyId};
use crate::key::Key;
use crate::spent::{RequestKey, Scope, Use, spent_of};
use crate::state::hold::Hold;
use crate::state::resource::{Body, Resource};
use crate::subject::subject;
use alloc::boxed::Box;
use dlock_wire::message::Event as Message;

/// A value removed from its key, some of whose holds are not ended yet.
#[derive(Debug)]
pub(crate) struct Removed {
    pub db: u32,
    pub name: Name,
    pub key_id: KeyId,
    pub value: Box<Resource>,
    /// The last hold that was ended.
    pub last: Option<HoldId>,
    /// The message that tells the end of its holds.
    pub fate: Fate,
    /// Its requests belong to the data set that the server serves now.
    pub remembers: bool,
}

/// Why holds are gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fate {
    /// Their key was deleted.
    Deleted,
    /// An operator broke them.
    Broken {
        /// The connection of the operator; [`NO_CLIENT`](crate::state::hold::NO_CLIENT) in a script.
        client: u64,
    },
    /// A primary ended them, and it sends the messages.
    Replayed,
}

impl Removed {
    pub fn key(&self) -> Key<'_> {
        Key { db: self.db, name: &self.name }
    }

    /// The holds that are not ended yet, in the order of their ids.
    pub fn rest(&self) -> impl Iterator<Item = (HoldId, &Hold)> {
        self.value.others().into_iter().flat_map(|holds| holds.after(self.last))
    }

    /// What a request did to a hold that is not ended yet.
    pub fn find(&self, key: Key<'_>, name: RequestKey<'_>) -> Option<Use> {
        if !self.remembers || key != self.key() || name.owner.is_empty() {
            return None;
        }
        let (id, hold) = match (&self.value.body, name.scope) {
            (Body::Semaphore(semaphore), Scope::Semaphore) => {
                semaphore.permits.by_request(name.owner, name.id)?
            }
            (Body::Rw(rw), Scope::Read) => rw.readers.by_request(name.owner, name.id)?,
            _ => return None,
        };
        if self.last.is_some_and(|last| id <= last) {
            return None;
        }
        let mut requests = spent_of(self.value.kind(), id, hold, false);
        requests.find(|(known, _)| *known == name).map(|(_, what)| what)
    }
}

impl Fate {
    pub fn tell(self, key: Key<'_>, id: HoldId, hold: &Hold, fx: &mut Effects) {
        let message = match self {
            Self::Deleted => Message::Deleted,
            Self::Broken { .. } => {
                fx.note(key, Event::Break);
                Message::Broken
            }
            Self::Replayed => return,
        };
        if let Some(subject) = subject(id, hold) {
            fx.message(message, key, subject);
        }
    }
}
