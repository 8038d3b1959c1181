//! The holders that keep an owner from a key.

use crate::base::ids::{ALONE, QueueId};
use crate::base::key::Key;
use crate::base::kind::Kind;
use crate::base::time::Now;
use crate::deadlock::budget::Budget;
use crate::ports::store::Lookup;
use crate::ports::turn::Turn;
use crate::tables::Tables;
use crate::tables::queues::WaitQueues;
use crate::value::resource::{Body, Resource};
use crate::value::wait_request::Demand;
use alloc::vec::Vec;
use dlock_wire::request::Mode;

/// What a call or a waiter asks for.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Target<'a> {
    pub(crate) kind: Kind,
    pub(crate) key: Key<'a>,
    pub(crate) demand: Demand,
}

impl Target<'_> {
    /// Whether it is for a hold that others can share.
    pub(super) fn reads(self) -> bool {
        self.demand == Demand::Rw(Mode::Read)
    }
}

/// The holders of a key, as a waiter sees them.
#[derive(Default)]
pub(super) struct Holders {
    /// The waiter's owner holds it already.
    pub(super) has_it: bool,
    /// The waiter goes in front of all others, through a hold in the other mode.
    pub(super) goes_first: bool,
    /// Holds keep the key from the waiter.
    pub(super) is_held: bool,
    /// The owners of the holds that may lead to the caller.
    pub(super) owners: Vec<Vec<u8>>,
}

impl Holders {
    /// The holders that keep the caller from a key that its call names, read from the key itself.
    pub(super) fn of_key(
        tables: &Tables,
        turn: &mut Turn<'_>,
        caller: &[u8],
        target: Target<'_>,
        budget: &mut Budget,
    ) -> Self {
        let Target { kind, key, demand } = target;
        let Lookup::Here(resource) = turn.keys.get(key) else { return Self::default() };
        if resource.kind() != kind {
            return Self::default();
        }
        let lease = tables.regime.lease(turn.now.mono);
        let seen = resource.holds().take_while(|_| budget.spend(1));
        let others = seen.filter(|(id, hold)| {
            let conflicts = *id == ALONE || demand == Demand::Rw(Mode::Write);
            conflicts && *hold.owner != *caller && tables.hold_ends(resource, hold, lease) > lease
        });
        let others = others.map(|(_, hold)| &hold.owner);
        let mut is_held = false;
        let others = others.inspect(|_| is_held = true);
        // An owner that waits for nothing leads nowhere.
        let leading = others.filter(|owner| tables.waits.waits_anywhere(owner));
        let owners = leading.map(|owner| owner.to_vec()).collect();
        Self {
            has_it: has_it(tables, resource, turn.now, caller, demand),
            goes_first: goes_first(tables, resource, turn.now, caller, demand),
            is_held,
            owners,
        }
    }

    /// The holders that keep `owner` from the key of `queue`, read from the queue. Without `readers`, its readers are
    /// left out, except for the caller: the search has reached them already.
    pub(super) fn of_queue(
        waits: &WaitQueues,
        queue: QueueId,
        owner: &[u8],
        demand: Demand,
        caller: &[u8],
        readers: Option<&mut Budget>,
    ) -> Self {
        let (is_sole, is_reader) =
            (waits.is_sole_holder(queue, owner), waits.is_reader(queue, owner));
        let is_exclusive = demand != Demand::Rw(Mode::Read);
        let (is_taken, sole) = waits.sole_holder(queue);
        let mut found = Self {
            has_it: if is_exclusive { is_sole } else { is_reader },
            goes_first: if is_exclusive { is_reader } else { is_sole },
            is_held: is_taken && !is_sole,
            owners: Vec::new(),
        };
        if found.is_held {
            found.owners.extend(sole.map(<[u8]>::to_vec));
        }
        let waits_for_caller = waits.is_sole_holder(queue, caller)
            || (demand == Demand::Rw(Mode::Write) && waits.is_reader(queue, caller));
        if waits_for_caller && *owner != *caller {
            found.owners.push(caller.to_vec());
        }
        if let Some(budget) = readers {
            let (count, readers) = waits.readers_of(queue);
            found.is_held |= count > usize::from(is_reader);
            if budget.spend(count) {
                let readers = readers.filter(|reader| **reader != *owner);
                found.owners.extend(readers.map(<[u8]>::to_vec));
            }
        }
        found
    }
}

/// Whether `owner` already has a hold in force that satisfies its demand.
pub(super) fn has_it(
    tables: &Tables,
    resource: &Resource,
    now: Now,
    owner: &[u8],
    demand: Demand,
) -> bool {
    let lease = tables.regime.lease(now.mono);
    let id = match (&resource.body, demand) {
        (Body::Rw(rw), Demand::Rw(mode)) => rw.find(owner, mode),
        _ => Some(ALONE),
    };
    let hold = id.and_then(|id| resource.hold(id)).filter(|hold| *hold.owner == *owner);
    hold.is_some_and(|hold| tables.hold_ends(resource, hold, lease) > lease)
}

/// Whether `owner` goes in front of the waiters, through a hold in force in the other mode.
pub(super) fn goes_first(
    tables: &Tables,
    resource: &Resource,
    now: Now,
    owner: &[u8],
    demand: Demand,
) -> bool {
    let other = match demand {
        Demand::Rw(Mode::Read) => Mode::Write,
        Demand::Rw(Mode::Write) => Mode::Read,
        _ => return false,
    };
    has_it(tables, resource, now, owner, Demand::Rw(other))
}
