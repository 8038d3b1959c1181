//! Deadlock detection: would a call that is about to wait close a cycle of owners that wait for each other?
//!
//! Most calls need no search. Either no owner waits for the caller, or every owner the call would wait for has a lower
//! rank in the order of waiters (see [`crate::waits`]). The search covers the waits outside this order, and only the
//! search can find a cycle.
//!
//! The search reads the graph from the queues, which know the holders of their keys
//! ([`crate::queues::Waits::note_holders`]). It reads only the keys that the call names: in a cluster a command may
//! touch no others. So an expired lease counts until the machine has ended it. An owner waits for the holders that keep
//! it from the key, and for every owner in front of it in the queue. The search goes depth first from the caller and
//! looks for the caller (Knuth, TAOCP 7.4.1; any cycle that a call closes contains it). An owner in a single queue adds
//! nothing to what that queue already shows, so long queues of such waiters cost nothing. An owner with a lower rank
//! than all that can be waiting for the caller leads nowhere.

mod search;

use crate::key::Key;
use crate::kind::Kind;
use crate::machine::Machine;
use crate::queues::waiter::{Waiter, Want};
use crate::queues::{Aims, Budget};
use crate::slab::NIL;
use crate::store::Slot;
use crate::time::Now;
use crate::turn::Turn;
use alloc::string::String;
use search::Search;

/// What the order of waiters says about a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Order {
    /// The call closes no cycle.
    Admits,
    /// Owners below a rank do not lead to the caller.
    Helps,
    /// Nothing.
    IsUnknown,
}

/// How a call for one key would wait.
struct Wait<'a> {
    goes_first: bool,
    /// The waiter that the owner already has.
    place: Option<(u32, &'a Waiter)>,
    /// The call keeps this waiter.
    stays: bool,
    /// The owner waits there already.
    is_old: bool,
}

impl Machine {
    /// The text of the cycle that `owner` would close by waiting for `key`. `None` if there is none, or if the budget
    /// ends first.
    pub(crate) fn circle(
        &mut self,
        turn: &mut Turn<'_>,
        (kind, key): (Kind, Key<'_>),
        (owner, want): (&[u8], Want),
    ) -> Option<String> {
        self.waits.forget_promise();
        if self.waits.is_of_no_concern(owner) {
            return None;
        }
        let mut aims = Aims::default();
        let goes_first = match turn.keys.get(key) {
            Slot::Here(resource) if resource.kind() == kind => {
                if self.has_it(resource, turn.now, owner, want) {
                    return None;
                }
                self.waits.aim_at(&mut aims, key, Some(resource));
                self.goes_first(resource, turn.now, owner, want)
            }
            Slot::Missing if !self.is_awaited_as_another(kind, key) => {
                self.waits.aim_at(&mut aims, key, None);
                false
            }
            // A call for a key of another type does not wait.
            Slot::Here(_) | Slot::Missing | Slot::Foreign | Slot::Elsewhere | Slot::OutOfReach => {
                return None;
            }
        };
        let how = self.would_wait(turn.now, key, (owner, want), goes_first);
        if how.stays && how.is_old {
            // This call closes no new cycle.
            return None;
        }
        let is_usual = !goes_first && !how.stays;
        let mut budget = Budget::of_call(1);
        let order = self.ask_order(owner, is_usual.then_some(&aims), &mut budget);
        if order == Order::Admits {
            return None;
        }
        let how = self.would_wait(turn.now, key, (owner, want), goes_first);
        let mut search = self.search(owner, order, budget);
        let text = self.search_one(turn, &mut search, kind, key, want, &how);
        self.conclude(&search, text)
    }

    /// The same for a call that joins the queues of several locks.
    pub(crate) fn circle_of_all<'k>(
        &mut self,
        turn: &mut Turn<'_>,
        keys: impl Iterator<Item = Key<'k>> + Clone,
        owner: &[u8],
    ) -> Option<String> {
        self.waits.forget_promise();
        if self.waits.is_of_no_concern(owner) {
            return None;
        }
        let mut aims = Aims::default();
        for key in keys.clone() {
            match turn.keys.get(key) {
                // The owner does not wait for a key that it holds.
                Slot::Here(resource)
                    if resource.lock().hold().is_some_and(|hold| *hold.owner == *owner) => {}
                Slot::Here(resource) => self.waits.aim_at(&mut aims, key, Some(resource)),
                Slot::Missing | Slot::Foreign | Slot::Elsewhere | Slot::OutOfReach => {
                    self.waits.aim_at(&mut aims, key, None);
                }
            }
        }
        let mut budget = Budget::of_call(keys.clone().count());
        let order = self.ask_order(owner, Some(&aims), &mut budget);
        if order == Order::Admits {
            return None;
        }
        let mut search = self.search(owner, order, budget);
        let text = self.search_all(turn, &mut search, keys);
        self.conclude(&search, text)
    }

    /// Number of waiters that all searches have inspected since the start.
    pub fn searched(&self) -> u64 {
        self.searched + self.waits.looked_at()
    }

    /// Whether the order of waiters shows that there is no cycle. Without `aims` it cannot: owners will wait for the
    /// caller that do not wait for it now.
    fn ask_order(&mut self, owner: &[u8], aims: Option<&Aims>, budget: &mut Budget) -> Order {
        // The search handles what these phases leave; only it can find a cycle.
        budget.phase(4, |part| self.waits.settle_doubts(part));
        match aims {
            Some(aims) if budget.phase(4, |part| self.waits.admits(owner, aims, part)) => {
                Order::Admits
            }
            Some(_) => Order::Helps,
            None => Order::IsUnknown,
        }
    }

    /// How a call with BLOCK or QUEUE would wait for `key`.
    fn would_wait(
        &self,
        now: Now,
        key: Key<'_>,
        (owner, want): (&[u8], Want),
        goes_first: bool,
    ) -> Wait<'_> {
        let slot = self.waits().place_at(key, owner);
        let place = slot.and_then(|slot| Some((slot, self.waits().get(slot)?)));
        let stays = place.is_some_and(|(_, place)| {
            let stands_well = !goes_first || place.prev == NIL;
            stands_well && crate::ops::wait::keeps_place(place.ask.want, want)
        });
        let is_old = place.is_some_and(|(_, place)| !self.is_out_of_this(place, now));
        Wait { goes_first, place, stays, is_old }
    }

    /// The result of a search. While a flush is being drained, queues list holders that hold nothing any more: then a
    /// cycle proves nothing, and the call waits.
    fn conclude(&mut self, search: &Search<'_>, text: Option<String>) -> Option<String> {
        self.searched += search.looked_at as u64;
        let proves_nothing = text.is_some() && self.is_flushing();
        // Entries that are not waiters yet wait unseen.
        let is_cut = search.is_cut() || self.waits.backlog() > 0;
        self.counters.deadlock_searches_cut += u64::from(is_cut || proves_nothing);
        text.filter(|_| !proves_nothing)
    }
}
