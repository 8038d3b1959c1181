//! Grants that were sent to a parked caller and are not known to have arrived.

use crate::base::bytes::Name;
use crate::base::hash::HashKeys;
use crate::base::ids::{HoldId, WaiterId};
use crate::base::key::{Key, Swap};
use crate::base::kind::Kind;
use crate::base::time::Millis;
use crate::value::fair::QueueEntry;
use alloc::boxed::Box;
use alloc::collections::BTreeSet;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::hash::BuildHasher as _;
use core::ops::RangeInclusive;
use hashbrown::HashMap;

/// Grants sent to a parked caller that are not known to have arrived. There can be as many in one turn of the server's
/// loop as it has connections, so each operation finds those of its key, or its client, by an index.
#[derive(Debug)]
pub struct GrantsInFlight {
    grants: HashMap<WaiterId, InFlight, HashKeys>,
    /// By the hash of the name of each key.
    by_name: BTreeSet<(u64, WaiterId)>,
    by_client: BTreeSet<(u64, WaiterId)>,
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

    fn forget_taken(&mut self) {
        if let Given::Taken(taken) = &mut self.given {
            // Its request is still rolled back if the answer does not arrive.
            *taken = 0;
        }
    }

    pub fn is_of(&self, key: Key<'_>, id: HoldId, token: u64) -> bool {
        let same =
            |given| matches!(given, Given::Hold { id: i, token: t, .. } if i == id && t == token);
        same(self.given) && self.is_at(key)
    }
}

impl GrantsInFlight {
    pub(crate) fn new(keys: HashKeys) -> Self {
        let grants = HashMap::with_hasher(keys);
        Self { grants, by_name: BTreeSet::new(), by_client: BTreeSet::new() }
    }

    pub(crate) fn len(&self) -> usize {
        self.grants.len()
    }

    /// The answer to `waiter` carries this grant.
    pub(crate) fn insert(&mut self, waiter: WaiterId, grant: InFlight) {
        for part in &grant.parts {
            self.by_name.insert((self.hash(&part.name), waiter));
        }
        self.by_client.insert((grant.client, waiter));
        self.grants.insert(waiter, grant);
    }

    /// The answer to a parked caller has come back, or cannot come back undelivered any more.
    pub(crate) fn remove(&mut self, waiter: WaiterId) -> Option<InFlight> {
        let grant = self.grants.remove(&waiter)?;
        for part in &grant.parts {
            self.by_name.remove(&(self.hash(&part.name), waiter));
        }
        self.by_client.remove(&(grant.client, waiter));
        Some(grant)
    }

    /// The caller is not to have this grant: nothing of it stays.
    pub(crate) fn withhold(&mut self, waiter: WaiterId) {
        if let Some(grant) = self.grants.get_mut(&waiter) {
            grant.stays = Stays::Nothing;
        }
    }

    /// The connection that the answer to `waiter` goes to, and the keys that it grants, with their family and
    /// database.
    pub fn sent_to(
        &self,
        waiter: WaiterId,
    ) -> Option<(u64, Kind, u32, impl ExactSizeIterator<Item = &[u8]>)> {
        let grant = self.grants.get(&waiter)?;
        let names = grant.parts.iter().map(|part| &*part.name);
        let first = grant.parts.first()?;
        Some((grant.client, first.kind, first.db, names))
    }

    /// Takes all of them away.
    pub(crate) fn take_all(&mut self) -> impl Iterator<Item = InFlight> + use<> {
        let fresh = Self::new(*self.grants.hasher());
        core::mem::replace(self, fresh).grants.into_values()
    }

    fn hash(&self, name: &[u8]) -> u64 {
        self.grants.hasher().hash_one(name)
    }

    /// Calls `change` with the parts for this key, and their requests.
    pub(crate) fn each_at(
        &mut self,
        key: Key<'_>,
        mut change: impl FnMut(&mut Part, Option<&[u8]>),
    ) {
        if self.grants.is_empty() {
            return;
        }
        let hash = self.hash(key.name);
        for &(_, waiter) in self.by_name.range(of(hash)) {
            let Some(grant) = self.grants.get_mut(&waiter) else { continue };
            for part in grant.parts.iter_mut().filter(|part| part.is_at(key)) {
                change(part, grant.request.as_deref());
            }
        }
    }

    /// A copy of a request was answered with the same hold (id and token), or the permits of the same TAKE: the grant
    /// that it repeats needs no rollback any more.
    pub(crate) fn answered_again(
        &mut self,
        key: Key<'_>,
        hold: Option<(HoldId, u64)>,
        request: Option<&[u8]>,
    ) {
        self.each_at(key, |part, repeated| {
            let is_it = hold.is_none_or(|(id, token)| part.is_of(key, id, token));
            part.is_known |= is_it && repeated == request;
        });
    }

    /// A RENEW was answered for this hold: it must not end with a grant that entered it.
    pub(crate) fn renewed(&mut self, key: Key<'_>, id: HoldId, token: u64) {
        self.each_at(key, |part, _| part.is_renewed |= part.is_of(key, id, token));
    }

    /// A value was loaded under `key`. While it was elsewhere, requests for its holds may have been answered there:
    /// their grants need no rollback any more.
    pub(crate) fn loaded(&mut self, key: Key<'_>) {
        self.each_at(key, |part, _| part.is_known |= matches!(part.given, Given::Hold { .. }));
    }

    /// A semaphore is gone. Permits of a TAKE in flight must not be returned to a new semaphore under the same name.
    pub(crate) fn forget_taken(&mut self, gone: Key<'_>) {
        self.each_at(gone, |part, _| part.forget_taken());
    }

    /// The same for all keys of a database; `None`: of all.
    pub(crate) fn forget_taken_in(&mut self, db: Option<u32>) {
        let parts = self.grants.values_mut().flat_map(|grant| &mut grant.parts);
        parts.filter(|part| db.is_none_or(|db| db == part.db)).for_each(Part::forget_taken);
    }

    /// A value moved to another key: grants in flight to its holders belong there.
    pub(crate) fn readdress(&mut self, from: Key<'_>, to: Key<'_>) {
        if self.grants.is_empty() {
            return;
        }
        let found = self.by_name.range(of(self.hash(from.name)));
        let found: Vec<WaiterId> = found.map(|&(_, waiter)| waiter).collect();
        for waiter in found {
            let Some(mut grant) = self.remove(waiter) else { continue };
            for part in grant.parts.iter_mut().filter(|part| part.is_at(from)) {
                part.db = to.db;
                part.name = Name::from(to.name);
            }
            self.insert(waiter, grant);
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
        self.by_client.range(of(client)).map(|&(_, waiter)| waiter).collect()
    }

    /// Whether a hold is in flight to `client`: if that connection is gone, the grant is rolled back.
    pub(crate) fn is_on_the_way(&self, key: Key<'_>, id: HoldId, token: u64, client: u64) -> bool {
        let waiters = self.by_client.range(of(client)).map(|(_, waiter)| waiter);
        let mut parts =
            waiters.filter_map(|waiter| self.grants.get(waiter)).flat_map(|grant| &grant.parts);
        parts.any(|part| !part.is_known && part.is_of(key, id, token))
    }
}

/// The entries of an index with this first part.
fn of(first: u64) -> RangeInclusive<(u64, WaiterId)> {
    (first, WaiterId(0))..=(first, WaiterId(u64::MAX))
}
