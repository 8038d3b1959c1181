//! Grants that were sent to a parked caller and are not known to have arrived.

use crate::base::bytes::Name;
use crate::base::hash::HashKeys;
use crate::base::ids::{HoldId, WaiterId};
use crate::base::key::{Key, Swap};
use crate::base::kind::Kind;
use crate::base::time::Millis;
use crate::value::fair::QueueEntry;
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
}

/// The grants that one answer carries to a parked caller.
#[derive(Debug)]
pub(crate) struct InFlight {
    /// The connection of the caller.
    pub client: u64,
    pub request: Option<Box<[u8]>>,
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
    /// A RENEW of its hold has been answered since.
    pub is_renewed: bool,
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

impl Part {
    pub fn new(kind: Kind, key: Key<'_>, given: Given) -> Self {
        Self {
            kind,
            db: key.db,
            name: Name::from(key.name),
            given,
            is_known: false,
            is_renewed: false,
        }
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

impl GrantsInFlight {
    /// The answer to a parked caller cannot come back undelivered any more.
    pub(crate) fn delivered(&mut self, waiter: WaiterId) {
        self.grants.remove(&waiter);
    }

    /// A copy of a request was answered with the same hold (id and token), or the permits of the same TAKE: the grant
    /// that it repeats needs no rollback any more.
    pub(crate) fn answered_again(
        &mut self,
        key: Key<'_>,
        hold: Option<(HoldId, u64)>,
        request: Option<&[u8]>,
    ) {
        let repeated = |grant: &&mut InFlight| grant.request.as_deref() == request;
        let is_it = |part: &&mut Part| match hold {
            Some((id, token)) => part.is_of(key, id, token),
            None => part.is_at(key),
        };
        for grant in self.grants.values_mut().filter(repeated) {
            grant.parts.iter_mut().filter(is_it).for_each(|part| part.is_known = true);
        }
    }

    /// A RENEW was answered for this hold: it must not end with a grant that entered it.
    pub(crate) fn renewed(&mut self, key: Key<'_>, id: HoldId, token: u64) {
        for part in self.grants.values_mut().flat_map(|grant| &mut grant.parts) {
            part.is_renewed |= part.is_of(key, id, token);
        }
    }

    /// A value was loaded under `key`. While it was elsewhere, requests for its holds may have been answered there:
    /// their grants need no rollback any more.
    pub(crate) fn loaded(&mut self, key: Key<'_>) {
        let parts = self.grants.values_mut().flat_map(|grant| &mut grant.parts);
        for part in parts.filter(|part| part.is_at(key)) {
            part.is_known |= matches!(part.given, Given::Hold { .. });
        }
    }

    /// A semaphore is gone. Permits of a TAKE in flight must not be returned to a new semaphore under the same name.
    pub(crate) fn forget_taken(&mut self, mut is_gone: impl FnMut(Key<'_>) -> bool) {
        for part in self.grants.values_mut().flat_map(|grant| &mut grant.parts) {
            let key = Key { db: part.db, name: &part.name };
            if let Given::Taken(_) = part.given
                && is_gone(key)
            {
                // Its request is still rolled back if the answer does not arrive.
                part.given = Given::Taken(0);
            }
        }
    }

    /// A value moved to another key: grants in flight to its holders belong there.
    pub(crate) fn readdress(&mut self, from: Key<'_>, to: Key<'_>) {
        for part in self.grants.values_mut().flat_map(|grant| &mut grant.parts) {
            if part.is_at(from) {
                part.db = to.db;
                part.name = Name::from(to.name);
            }
        }
    }

    /// Two databases were swapped, and the holds with them.
    pub(crate) fn swap(&mut self, swap: Swap) {
        for part in self.grants.values_mut().flat_map(|grant| &mut grant.parts) {
            part.db = swap.target_of(part.db);
        }
    }

    /// The grants in flight to `client`, oldest first.
    pub(crate) fn on_the_way_to(&self, client: u64) -> Vec<WaiterId> {
        let found = self.grants.iter().filter(|(_, grant)| grant.client == client);
        let mut found: Vec<WaiterId> = found.map(|(&waiter, _)| waiter).collect();
        found.sort_unstable();
        found
    }

    /// Whether a hold is in flight to `client`: if that connection is gone, the grant is rolled back.
    pub(crate) fn is_on_the_way(&self, key: Key<'_>, id: HoldId, token: u64, client: u64) -> bool {
        let grants = self.grants.values().filter(|grant| grant.client == client);
        let mut parts = grants.flat_map(|grant| &grant.parts);
        parts.any(|part| !part.is_known && part.is_of(key, id, token))
    }
}
