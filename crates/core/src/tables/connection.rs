//! What the machine knows of connections: the waiters and bindings that end with each of them.

use crate::base::hash::HashKeys;
use crate::base::ids::{ALONE, HoldId, HoldRef, KeyId, WaiterId, WaiterSlot};
use crate::base::time::LeaseInstant;
use crate::value::debris::Debris;
use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::vec::Vec;
use core::iter::once;
use core::ops::RangeInclusive;
use hashbrown::{HashMap, HashSet, hash_set};

/// A connection that has a waiter or a bound hold.
#[derive(Debug, Default)]
pub struct Connection {
    /// Its waiters, by slot.
    pub waiters: BTreeSet<WaiterSlot>,
    /// The id of its blocked call, if any. Not a slot: a slot serves another waiter later.
    pub parked: Option<WaiterId>,
    /// The holds bound to it, by key.
    pub bindings: BTreeSet<HoldRef>,
    /// It let a grant expire unclaimed and sent nothing since: its waiters are skipped.
    pub unresponsive: bool,
    /// Time at which it closed; what it had is being processed.
    pub gone_at: Option<LeaseInstant>,
}

impl Connection {
    fn is_idle(&self) -> bool {
        self.waiters.is_empty() && self.bindings.is_empty()
    }

    fn first_in(&self, home: u32) -> Option<HoldRef> {
        self.bindings.range(of_home(home)).next().copied()
    }
}

/// The bindings to holds of keys in a home.
fn of_home(home: u32) -> RangeInclusive<HoldRef> {
    let at = |key, id| HoldRef { home, key, id };
    at(KeyId::new(0), ALONE)..=at(KeyId::NONE, HoldId::MAX)
}

/// The bindings to holds of a key, by its home and entry.
fn of_key((home, key): (u32, KeyId)) -> RangeInclusive<HoldRef> {
    let at = |id| HoldRef { home, key, id };
    at(ALONE)..=at(HoldId::MAX)
}

/// Bindings to holds of a flushed database, until they are removed.
#[derive(Debug)]
struct Void {
    home: u32,
    /// The connection whose bindings are being removed, and the others.
    client: u64,
    rest: hash_set::IntoIter<u64>,
}

/// Something that a closed connection has left behind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LeftBehind {
    /// A waiter.
    Waiter {
        /// Its waiter slot.
        slot: WaiterSlot,
        /// Time at which the connection closed.
        at: LeaseInstant,
    },
    /// A hold bound to it.
    Binding {
        /// The hold.
        hold: HoldRef,
        /// Time at which the connection closed.
        at: LeaseInstant,
    },
}

/// All connections with a waiter or a binding, by client id.
#[derive(Debug)]
pub struct Connections {
    known: HashMap<u64, Connection, HashKeys>,
    unresponsive: usize,
    /// Closed connections that still have something.
    departed: VecDeque<u64>,
    /// The connections with bindings in each home.
    bound_in: BTreeMap<u32, HashSet<u64, HashKeys>>,
    void: Vec<Void>,
}

impl Connections {
    /// An empty index.
    pub fn new(keys: HashKeys) -> Self {
        Self {
            known: HashMap::with_hasher(keys),
            unresponsive: 0,
            departed: VecDeque::new(),
            bound_in: BTreeMap::new(),
            void: Vec::new(),
        }
    }

    /// The state of `client`.
    pub fn get(&self, client: u64) -> Option<&Connection> {
        self.known.get(&client)
    }

    /// Number of known connections.
    pub fn len(&self) -> usize {
        self.known.len()
    }

    /// Whether none is.
    pub fn is_empty(&self) -> bool {
        self.known.is_empty()
    }

    /// Notes that `client` closed.
    pub fn depart(&mut self, client: u64, at: LeaseInstant) {
        if let Some(connection) = self.known.get_mut(&client)
            && connection.gone_at.is_none()
        {
            connection.gone_at = Some(at);
            self.unresponsive -= usize::from(core::mem::take(&mut connection.unresponsive));
            self.departed.push_back(client);
        }
    }

    /// Time at which `client` closed, if it did and still has something.
    pub fn gone_at(&self, client: u64) -> Option<LeaseInstant> {
        if self.departed.is_empty() {
            return None;
        }
        self.known.get(&client)?.gone_at
    }

    /// Whether any closed connection still has something.
    pub fn has_departed(&self) -> bool {
        !self.departed.is_empty()
    }

    /// Number of closed connections that still have something.
    pub fn departed(&self) -> usize {
        self.departed.len()
    }

    /// The holds of a key that are bound to closed connections, and the times at which these closed.
    pub fn departed_bindings(
        &self,
        entry: (u32, KeyId),
    ) -> impl Iterator<Item = (HoldId, LeaseInstant)> {
        self.departed.iter().filter_map(|client| self.known.get(client)).flat_map(
            move |connection| {
                let bindings = connection.bindings.range(of_key(entry));
                bindings.filter_map(|hold| Some((hold.id, connection.gone_at?)))
            },
        )
    }

    /// One thing that a closed connection still has. Forgets connections that have nothing left.
    pub fn next_left_behind(&mut self) -> Option<LeftBehind> {
        while let Some(&client) = self.departed.front() {
            if let Some(connection) = self.known.get_mut(&client)
                && let Some(at) = connection.gone_at
            {
                if let Some(slot) = connection.waiters.pop_first() {
                    return Some(LeftBehind::Waiter { slot, at });
                }
                if let Some(&hold) = connection.bindings.first() {
                    self.unbind(client, hold);
                    return Some(LeftBehind::Binding { hold, at });
                }
                self.known.remove(&client);
            }
            self.departed.pop_front();
        }
        None
    }

    /// Takes all of them away.
    #[must_use]
    pub fn take_all(&mut self) -> Self {
        let fresh = Self::new(*self.known.hasher());
        core::mem::replace(self, fresh)
    }

    /// All that was known, to be freed piece by piece.
    pub(crate) fn into_debris(self, debris: &mut Debris) {
        debris.add(self.known.into_values().flat_map(|connection| {
            let bindings = connection.bindings.into_iter().map(drop);
            connection.waiters.into_iter().map(drop).chain(bindings).chain(once(()))
        }));
        debris.add(self.bound_in.into_values().flatten());
    }

    /// Notes a waiter of `client`, and whether it is the blocked call of this connection.
    pub fn add_waiter(&mut self, client: u64, waiter: WaiterId, is_parked: bool) {
        let connection = self.known.entry(client).or_default();
        connection.waiters.insert(waiter.slot());
        if is_parked {
            connection.parked = Some(waiter);
        }
    }

    /// The blocked call of `client`, unless the connection is closed.
    pub fn blocked_call(&self, client: u64) -> Option<WaiterId> {
        let connection = self.known.get(&client)?;
        connection.parked.filter(|_| connection.gone_at.is_none())
    }

    /// The call of `waiter` on `client` is no longer blocked; the waiter stays.
    pub fn unpark(&mut self, client: u64, waiter: WaiterSlot) {
        if let Some(connection) = self.known.get_mut(&client)
            && connection.parked.is_some_and(|call| call.slot() == waiter)
        {
            connection.parked = None;
        }
    }

    /// A waiter of `client` is removed.
    pub fn remove_waiter(&mut self, client: u64, waiter: WaiterSlot) {
        self.unpark(client, waiter);
        self.update(client, |connection| {
            connection.waiters.remove(&waiter);
        });
    }

    /// Notes a hold bound to `client`.
    pub fn bind(&mut self, client: u64, hold: HoldRef) {
        let home = hold.home;
        let connection = self.known.entry(client).or_default();
        let is_first = connection.first_in(home).is_none();
        connection.bindings.insert(hold);
        if is_first {
            let keys = *self.known.hasher();
            let bound = self.bound_in.entry(home).or_insert_with(|| HashSet::with_hasher(keys));
            bound.insert(client);
        }
    }

    /// The hold is no longer bound to `client`.
    pub fn unbind(&mut self, client: u64, hold: HoldRef) {
        let home = hold.home;
        let mut is_last = false;
        self.update(client, |connection| {
            is_last = connection.bindings.remove(&hold) && connection.first_in(home).is_none();
        });
        if is_last && let Some(bound) = self.bound_in.get_mut(&home) {
            bound.remove(&client);
        }
    }

    /// The holds of all keys in this home are gone. O(1): [`Connections::free_some`] removes the bindings.
    pub(crate) fn unbind_home(&mut self, home: u32) {
        let bound = self.bound_in.remove(&home).map(HashSet::into_iter);
        self.void
            .extend(bound.and_then(|mut rest| Some(Void { home, client: rest.next()?, rest })));
    }

    /// Whether bindings to holds of flushed databases are left.
    pub(crate) fn has_void(&self) -> bool {
        !self.void.is_empty()
    }

    /// Removes up to `most` of them; `false` if there are none.
    pub(crate) fn free_some(&mut self, most: usize) -> bool {
        for _ in 0..most {
            let Some(void) = self.void.last_mut() else { return false };
            let (client, home) = (void.client, void.home);
            match self.known.get(&client).and_then(|connection| connection.first_in(home)) {
                Some(hold) => self.unbind(client, hold),
                None => match void.rest.next() {
                    Some(client) => void.client = client,
                    None => drop(self.void.pop()),
                },
            }
        }
        true
    }

    /// The connection let a grant expire. Returns whether it was responsive before.
    pub fn mark_unresponsive(&mut self, client: u64) -> bool {
        match self.known.get_mut(&client) {
            Some(connection) if !connection.unresponsive => {
                connection.unresponsive = true;
                self.unresponsive += 1;
                true
            }
            _ => false,
        }
    }

    /// The connection is active. Returns whether its waiters were skipped before.
    pub fn mark_active(&mut self, client: u64) -> bool {
        if self.unresponsive == 0 {
            return false;
        }
        match self.known.get_mut(&client) {
            Some(connection) if connection.unresponsive => {
                connection.unresponsive = false;
                self.unresponsive -= 1;
                true
            }
            _ => false,
        }
    }

    /// Whether the waiters of any connection are skipped.
    pub fn any_unresponsive(&self) -> bool {
        self.unresponsive > 0
    }

    /// Whether the waiters of `client` are skipped.
    pub fn is_unresponsive(&self, client: u64) -> bool {
        self.unresponsive > 0
            && self.known.get(&client).is_some_and(|connection| connection.unresponsive)
    }

    /// All connections, in no particular order.
    pub fn iter(&self) -> impl Iterator<Item = (u64, &Connection)> {
        self.known.iter().map(|(&client, connection)| (client, connection))
    }

    fn update(&mut self, client: u64, change: impl FnOnce(&mut Connection)) {
        if let Some(connection) = self.known.get_mut(&client) {
            change(connection);
            if connection.is_idle() && connection.gone_at.is_none() {
                self.unresponsive -= usize::from(connection.unresponsive);
                self.known.remove(&client);
            }
        }
    }
}
