//! Grants that were sent to a parked caller and are not known to have arrived.

use crate::bytes::Name;
use crate::ids::HoldId;
use crate::key::Key;
use crate::kind::Kind;
use crate::queues::waiter::{HashKeys, WaiterId};
use crate::state::fair::QueueEntry;
use crate::time::Millis;
use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use hashbrown::HashMap;

/// Grants sent to a parked caller that are not known to have arrived.
#[derive(Debug)]
pub struct GrantsInFlight {
    pub(crate) grants: HashMap<WaiterId, InFlight, HashKeys>,
}

impl GrantsInFlight {
    pub(crate) fn new(keys: HashKeys) -> Self {
        Self { grants: HashMap::with_hasher(keys) }
    }

    /// Number of answers on their way.
    pub fn len(&self) -> usize {
        self.grants.len()
    }

    /// Whether none is on its way.
    pub fn is_empty(&self) -> bool {
        self.grants.is_empty()
    }
}

/// The grants that one answer carries to a parked caller.
#[derive(Debug)]
pub(crate) struct InFlight {
    /// The connection of the caller.
    pub client: u64,
    pub request: Option<Box<[u8]>>,
    /// The owner has cancelled the request since: if the answer cannot be delivered, nothing is kept.
    pub is_cancelled: bool,
    /// What is kept if the answer cannot be delivered.
    pub stays: Stays,
    /// One part for each key.
    pub parts: Vec<Part>,
}

/// What is left of a grant that could not be delivered.
#[derive(Debug)]
pub(crate) enum Stays {
    /// Nothing.
    Nothing,
    /// The grant, for this time in milliseconds: the owner of a fair lock may claim it.
    Grant(Millis),
    /// The queue entry, for the time of QUEUE.
    Entry(Box<Kept>),
}

/// A queue entry that its grant has removed from the queue.
#[derive(Debug)]
pub(crate) struct Kept {
    pub db: u32,
    pub name: Name,
    pub entry: Arc<QueueEntry>,
    pub queue_ms: Millis,
    pub seq: u64,
}

/// The grant of one key.
#[derive(Debug)]
pub(crate) struct Part {
    pub kind: Kind,
    pub db: u32,
    pub name: Name,
    pub given: Given,
    /// A resent call has been answered with this grant.
    pub is_known: bool,
}

/// What a grant did to the hold that it names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Taken {
    /// The hold began.
    New,
    /// The owner held it already, and holds it once more.
    Entered,
    /// The owner held it already, and holds it as often as before: it claimed the hold, or repeated a request.
    Known,
}

#[derive(Debug, Clone, Copy)]
pub(crate) enum Given {
    /// A hold, by its fencing token (0 for permits).
    Hold {
        id: HoldId,
        token: u64,
        /// What the grant did to it.
        how: Taken,
    },
    /// This number of permits without an owner.
    Taken(u32),
}

impl InFlight {
    pub(crate) fn into_parts(self) -> Vec<Part> {
        self.parts
    }
}

impl Part {
    pub fn new(kind: Kind, key: Key<'_>, given: Given) -> Self {
        Self { kind, db: key.db, name: Name::from(key.name), given, is_known: false }
    }

    pub fn is_at(&self, key: Key<'_>) -> bool {
        self.db == key.db && *self.name == *key.name
    }

    pub fn is_of(&self, key: Key<'_>, id: HoldId, token: u64) -> bool {
        let same =
            |given| matches!(given, Given::Hold { id: i, token: t, .. } if i == id && t == token);
        same(self.given) && self.is_at(key)
    }
}
