//! The search through the waiters, from the caller back to the caller.

use super::{Order, Wait};
use crate::ids::ALONE;
use crate::key::Key;
use crate::kind::Kind;
use crate::machine::Machine;
use crate::queues::Budget;
use crate::queues::waiter::{Waiter, Want};
use crate::state::resource::{Body, Resource};
use crate::store::Slot;
use crate::time::Now;
use crate::turn::Turn;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::string::String;
use alloc::vec::Vec;
use dlock_wire::reply::quote;
use dlock_wire::request::Mode;

/// Number of links of a cycle that its text names.
const LINKS_SHOWN: usize = 20;

/// An owner reached by the search.
struct Reached {
    owner: Vec<u8>,
    /// Index of the owner from which the search reached it; `None` for the caller.
    from: Option<usize>,
    /// The key for which `from` waits for this owner.
    key: (u32, Vec<u8>),
}

/// The holders of a key, as a waiter sees them.
#[derive(Default)]
struct Holders {
    /// The waiter's owner holds it already.
    has_it: bool,
    /// The waiter goes in front of all others, through a hold in the other mode.
    goes_first: bool,
    /// Holds keep the key from the waiter.
    is_held: bool,
    /// The owners of the holds that may lead to the caller.
    owners: Vec<Vec<u8>>,
}

/// One search.
pub(super) struct Search<'a> {
    caller: &'a [u8],
    /// Waiters of the caller that this call removes, and those of its calls for several keys.
    leaving: BTreeSet<u32>,
    leaving_groups: BTreeSet<u32>,
    /// The waiter that counts only from this call on: it was a waiter for any of several keys.
    revived: Option<u32>,
    /// The queue whose front it joins, if it does (an upgrade).
    heads: Option<u32>,
    reached: Vec<Reached>,
    known: BTreeSet<Vec<u8>>,
    /// Reached, and not inspected yet.
    open: Vec<usize>,
    /// Queues of keys whose readers have all been reached.
    read: BTreeSet<u32>,
    /// Queues with the sequence number up to which all waiters have been reached; separate for readers.
    passed: BTreeMap<(u32, bool), u64>,
    pub(super) looked_at: usize,
    budget: Budget,
    /// The caller would have to wait.
    waits: bool,
    /// No owner below this rank leads to the caller.
    floor: Option<i64>,
}

impl Machine {
    pub(super) fn search<'a>(
        &self,
        owner: &'a [u8],
        order: Order,
        mut budget: Budget,
    ) -> Search<'a> {
        let floor = match order {
            Order::Helps => budget.phase(4, |part| self.waits().least_level(owner, part)),
            Order::Admits | Order::IsUnknown => None,
        };
        let caller = Reached { owner: owner.into(), from: None, key: (0, Vec::new()) };
        Search {
            caller: owner,
            leaving: BTreeSet::new(),
            leaving_groups: BTreeSet::new(),
            revived: None,
            heads: None,
            reached: Vec::from([caller]),
            known: BTreeSet::new(),
            open: Vec::new(),
            read: BTreeSet::new(),
            passed: BTreeMap::new(),
            looked_at: 0,
            budget,
            waits: false,
            floor,
        }
    }

    pub(super) fn search_one(
        &self,
        turn: &mut Turn<'_>,
        search: &mut Search<'_>,
        kind: Kind,
        key: Key<'_>,
        want: Want,
        how: &Wait<'_>,
    ) -> Option<String> {
        if let Some((slot, _)) = how.place {
            self.note_leaving(search, slot);
            if how.stays {
                search.revived = Some(slot);
            }
        }
        if how.goes_first {
            search.heads = self.waits().queue_of(key);
        }
        let stays = how.place.filter(|_| how.stays).map(|(_, place)| place);
        let holders = self.holders_of_key(turn, search, kind, key, want);
        if let Some(text) = self.look(turn.now, search, (0, kind, key, want), stays, &holders) {
            return Some(text);
        }
        // The waiters behind this one start to wait for the caller only now, so the caller's other waits matter. (A new
        // waiter has none behind it: then they do not matter.)
        if search.waits
            && (search.revived.is_some() || search.heads.is_some())
            && let Some(text) = self.look_from_places_of(turn.now, search, 0)
        {
            return Some(text);
        }
        self.search_on(turn.now, search)
    }

    pub(super) fn search_all<'k>(
        &self,
        turn: &mut Turn<'_>,
        search: &mut Search<'_>,
        keys: impl Iterator<Item = Key<'k>> + Clone,
    ) -> Option<String> {
        for key in keys.clone() {
            if let Some(slot) = self.waits().place_at(key, search.caller) {
                self.note_leaving(search, slot);
            }
        }
        for key in keys {
            let place = (0, Kind::Lock, key, Want::Lock);
            let holders = self.holders_of_key(turn, search, Kind::Lock, key, Want::Lock);
            if let Some(text) = self.look(turn.now, search, place, None, &holders) {
                return Some(text);
            }
            if search.is_cut() {
                return None;
            }
        }
        self.search_on(turn.now, search)
    }

    /// The call with a waiter in `slot` will be over: all its waiters are removed.
    fn note_leaving(&self, search: &mut Search<'_>, slot: u32) {
        match self.waits().get(slot) {
            Some(place) if place.is_grouped() => search.leaving_groups.insert(place.group),
            _ => search.leaving.insert(slot),
        };
    }

    /// Continues from the owners for which the caller waits.
    fn search_on(&self, now: Now, search: &mut Search<'_>) -> Option<String> {
        while let Some(index) = search.open.pop().filter(|_| !search.is_cut()) {
            if let Some(text) = self.look_from_places_of(now, search, index) {
                return Some(text);
            }
        }
        None
    }

    /// Reaches all owners for which the owner at `index` waits anywhere.
    fn look_from_places_of(
        &self,
        now: Now,
        search: &mut Search<'_>,
        index: usize,
    ) -> Option<String> {
        let waiting = search.reached.get(index)?.owner.clone();
        for (slot, waiter) in self.waits().places_of_owner(&waiting) {
            if !search.spend(1) {
                return None;
            }
            if self.is_out_of_this(waiter, now) || search.is_leaving(slot, waiter) {
                continue;
            }
            let Some(queue) = self.waits().queue(waiter.queue) else { continue };
            if !queue.is_live() {
                // The queue has ended with its key.
                continue;
            }
            let place = (index, queue.kind, queue.key(), waiter.ask.want);
            let holders = self.holders_of_queue(search, waiter.queue, &waiting, waiter.ask.want);
            if let Some(text) = self.look(now, search, place, Some(waiter), &holders) {
                return Some(text);
            }
        }
        None
    }

    /// Whether this waiter can close no cycle. Its wait or call is over, it is skipped because its connection is
    /// closed, it takes any of several keys, or it is for permits.
    pub(super) fn is_out_of_this(&self, waiter: &Waiter, now: Now) -> bool {
        let group = self.waits().group(waiter.group);
        !waiter.ask.want.can_lock_up()
            || self.waits().is_gone(waiter)
            || group.is_some_and(|group| group.takes_any)
            || self.waits().is_deserted(waiter)
            || self.waits().is_over(waiter, now.mono, self.lease_time(now.mono))
    }

    /// Reaches all owners for which the owner at `index` waits at `key`, from its waiter `place` there or from its
    /// position as a new one.
    fn look(
        &self,
        now: Now,
        search: &mut Search<'_>,
        (index, kind, key, want): (usize, Kind, Key<'_>, Want),
        place: Option<&Waiter>,
        holders: &Holders,
    ) -> Option<String> {
        if !search.spend(1) {
            return None;
        }
        // A call for several keys does not wait for a key that its owner holds. A single waiter does: the hold came by
        // RENAME, and the waiters in front are served first.
        if holders.has_it && place.is_none_or(Waiter::is_grouped) {
            return None;
        }
        for holder in &holders.owners {
            if let Some(text) = self.reach(search, index, key, holder) {
                return Some(text);
            }
        }
        if index == 0 {
            search.waits |= holders.is_held;
            if holders.goes_first
                || (!holders.is_held && !self.is_anybody_first(now, search, key, want))
            {
                return None;
            }
            search.waits = true;
        }
        for owner in self.in_front(now, search, (index, kind, key, want), place) {
            if let Some(text) = self.reach(search, index, key, &owner) {
                return Some(text);
            }
        }
        None
    }

    /// Notes that the owner at `from` waits for `owner`. Returns the cycle if that is the caller.
    fn reach(
        &self,
        search: &mut Search<'_>,
        from: usize,
        key: Key<'_>,
        owner: &[u8],
    ) -> Option<String> {
        if !search.spend(1) {
            return None;
        }
        let leads_nowhere = search.floor.is_some_and(|floor| self.waits().is_below(owner, floor));
        if *owner != *search.caller && leads_nowhere {
            return None;
        }
        search.reach(from, key, owner)
    }

    /// Whether the caller would have to wait behind a waiter that counts: to read, behind a waiting writer.
    fn is_anybody_first(
        &self,
        now: Now,
        search: &mut Search<'_>,
        key: Key<'_>,
        want: Want,
    ) -> bool {
        let Some(queue) = self.waits().queue_of(key) else { return false };
        let lease = self.lease_time(now.mono);
        let mut others = self.waits().walk(queue).map(|(_, waiter)| waiter);
        others.any(|waiter| {
            if !search.spend(1) {
                return true;
            }
            let reads_too = want == Want::Rw(Mode::Read) && waiter.ask.want == want;
            *waiter.owner != *search.caller
                && !reads_too
                && !self.is_passed_over(waiter)
                && !self.waits().is_over(waiter, now.mono, lease)
        })
    }

    /// Whether `owner` already has a hold in force that satisfies its demand.
    pub(super) fn has_it(&self, resource: &Resource, now: Now, owner: &[u8], want: Want) -> bool {
        let lease = self.lease_time(now.mono);
        let id = match (&resource.body, want) {
            (Body::Rw(rw), Want::Rw(mode)) => rw.find(owner, mode),
            _ => Some(ALONE),
        };
        let hold = id.and_then(|id| resource.hold(id)).filter(|hold| *hold.owner == *owner);
        hold.is_some_and(|hold| self.hold_ends(resource, hold, lease) > lease)
    }

    /// Whether `owner` goes in front of the waiters, through a hold in force in the other mode.
    pub(super) fn goes_first(
        &self,
        resource: &Resource,
        now: Now,
        owner: &[u8],
        want: Want,
    ) -> bool {
        let other = match want {
            Want::Rw(Mode::Read) => Mode::Write,
            Want::Rw(Mode::Write) => Mode::Read,
            _ => return false,
        };
        self.has_it(resource, now, owner, Want::Rw(other))
    }

    /// The holders that keep the caller from a key that its call names, read from the key itself.
    fn holders_of_key(
        &self,
        turn: &mut Turn<'_>,
        search: &mut Search<'_>,
        kind: Kind,
        key: Key<'_>,
        want: Want,
    ) -> Holders {
        let Slot::Here(resource) = turn.keys.get(key) else { return Holders::default() };
        if resource.kind() != kind {
            return Holders::default();
        }
        let (caller, lease) = (search.caller, self.lease_time(turn.now.mono));
        let seen = resource.holds().take_while(|_| search.spend(1));
        let others = seen.filter(|(id, hold)| {
            let conflicts = *id == ALONE || want == Want::Rw(Mode::Write);
            conflicts && *hold.owner != *caller && self.hold_ends(resource, hold, lease) > lease
        });
        let others = others.map(|(_, hold)| &hold.owner);
        let mut is_held = false;
        let others = others.inspect(|_| is_held = true);
        // An owner that waits for nothing leads nowhere.
        let leading = others.filter(|owner| self.waits().places_of_owner(owner).next().is_some());
        let owners = leading.map(|owner| owner.to_vec()).collect();
        Holders {
            has_it: self.has_it(resource, turn.now, caller, want),
            goes_first: self.goes_first(resource, turn.now, caller, want),
            is_held,
            owners,
        }
    }

    /// The holders that keep `owner` from the key of `queue`, read from the queue.
    fn holders_of_queue(
        &self,
        search: &mut Search<'_>,
        queue: u32,
        owner: &[u8],
        want: Want,
    ) -> Holders {
        let waits = self.waits();
        let (is_sole, is_reader) =
            (waits.is_sole_holder(queue, owner), waits.is_reader(queue, owner));
        let is_exclusive = want != Want::Rw(Mode::Read);
        let (is_taken, sole) = waits.sole_holder(queue);
        let mut found = Holders {
            has_it: if is_exclusive { is_sole } else { is_reader },
            goes_first: if is_exclusive { is_reader } else { is_sole },
            is_held: is_taken && !is_sole,
            owners: Vec::new(),
        };
        if found.is_held {
            found.owners.extend(sole.map(<[u8]>::to_vec));
        }
        let waits_for_caller = waits.is_sole_holder(queue, search.caller)
            || (want == Want::Rw(Mode::Write) && waits.is_reader(queue, search.caller));
        if waits_for_caller && *owner != *search.caller {
            found.owners.push(search.caller.to_vec());
        }
        // One pass over the readers of a key reaches all of them, for every waiting writer.
        if want == Want::Rw(Mode::Write) && search.read.insert(queue) {
            let (count, readers) = waits.readers_of(queue);
            found.is_held |= count > usize::from(is_reader);
            let most = search.spend_up_to(count);
            let readers = readers.take(most).filter(|reader| **reader != *owner);
            found.owners.extend(readers.map(<[u8]>::to_vec));
        }
        found
    }

    /// The waiters in front of `place` that may lead to the caller; without `place`, those of the whole queue.
    fn in_front(
        &self,
        now: Now,
        search: &mut Search<'_>,
        (index, kind, key, want): (usize, Kind, Key<'_>, Want),
        place: Option<&Waiter>,
    ) -> Vec<Vec<u8>> {
        let waits = self.waits();
        let Some(queue) = waits.queue_of(key) else { return Vec::new() };
        let is_ahead = |waiter: &Waiter| {
            place.is_none_or(|place| waiter.seq < place.seq) && !self.is_out_of_this(waiter, now)
        };
        // The caller itself may be in front of the inspected waiter.
        let caller = search.caller;
        let own = waits
            .place_of(queue, caller)
            .filter(|&slot| waits.get(slot).is_some_and(|waiter| !search.is_leaving(slot, waiter)));
        let is_behind = |slot: u32| {
            let own = waits.get(slot);
            own.is_some_and(is_ahead)
                || search.revived == Some(slot)
                    && own.zip(place).is_none_or(|(own, place)| own.seq < place.seq)
        };
        if index > 0 && (own.is_some_and(is_behind) || search.heads == Some(queue)) {
            return [caller.to_vec()].into();
        }
        let is_ahead = |waiter: &Waiter| *waiter.owner != *caller && is_ahead(waiter);
        // Waiters in front of a reached waiter have been reached already. The caller sees the queue in its own way: it
        // may go first, or give up waiters.
        if let Some(place) = place.filter(|_| index > 0) {
            let is_read = kind == Kind::Rw && want == Want::Rw(Mode::Read);
            let passed = search.passed.entry((queue, is_read)).or_default();
            if place.seq <= *passed {
                return Vec::new();
            }
            *passed = place.seq;
        }
        // Walk over the shorter list: the queue, or the owners that wait in several queues.
        let len = waits.queue(queue).map_or(0, |queue| queue.len);
        let most = search.spend_up_to(len.min(waits.plural_count()));
        let mut found: Vec<Vec<u8>> = if len < waits.plural_count() {
            let queue = waits.walk(queue).map(|(_, waiter)| waiter).take(most);
            let plural = queue.filter(|waiter| waits.is_plural(waiter) && is_ahead(waiter));
            plural.map(|waiter| waiter.owner.to_vec()).collect()
        } else {
            let place =
                |owner: &&[u8]| waits.place_of(queue, owner).and_then(|slot| waits.get(slot));
            let plural = waits.plural_owners().take(most);
            plural.filter(|owner| place(owner).is_some_and(is_ahead)).map(<[u8]>::to_vec).collect()
        };
        if kind == Kind::Rw && want == Want::Rw(Mode::Read) {
            // A writer in front waits for the readers; a reader does not wait for them itself. One writer represents
            // all.
            let walk = waits.walk(queue).map(|(_, waiter)| waiter);
            let writer = walk
                .take_while(|_| search.spend(1))
                .find(|waiter| waiter.ask.want == Want::Rw(Mode::Write) && is_ahead(waiter));
            found.extend(writer.map(|writer| writer.owner.to_vec()));
        }
        found
    }
}

impl Search<'_> {
    /// Spends budget; `false` if none is left: then the call waits.
    fn spend(&mut self, looks: usize) -> bool {
        let is_seen = self.budget.spend(looks);
        self.looked_at += if is_seen { looks } else { 0 };
        is_seen
    }

    /// Spends up to `looks` of the budget. Returns how much.
    fn spend_up_to(&mut self, looks: usize) -> usize {
        let most = looks.min(self.budget.left());
        // A demand beyond the budget ends the search.
        self.budget.spend(looks);
        self.looked_at += most;
        most
    }

    /// Whether the search had to end before it had seen all.
    pub(super) fn is_cut(&self) -> bool {
        self.budget.is_cut()
    }

    /// Whether this call removes a waiter of the caller.
    fn is_leaving(&self, slot: u32, waiter: &Waiter) -> bool {
        self.revived != Some(slot)
            && (self.leaving.contains(&slot) || self.leaving_groups.contains(&waiter.group))
    }

    /// The same at any rank.
    fn reach(&mut self, from: usize, key: Key<'_>, owner: &[u8]) -> Option<String> {
        if owner == self.caller {
            // A caller that waits for itself re-enters, or keeps its waiter.
            return (from > 0).then(|| self.text(from, key));
        }
        if self.known.insert(owner.to_vec()) {
            self.open.push(self.reached.len());
            let key = (key.db, key.name.to_vec());
            self.reached.push(Reached { owner: owner.into(), from: Some(from), key });
        }
        None
    }

    /// The text of the cycle in which the owner at `last` waits for the caller at `key`.
    fn text(&self, last: usize, key: Key<'_>) -> String {
        let mut links = Vec::from([alloc::format!(
            "{} waits for {}",
            self.reached.get(last).map(|reached| quote(&reached.owner)).unwrap_or_default(),
            quote(key.name)
        )]);
        let mut at = last;
        while let Some(Reached { from: Some(from), key: (_, name), .. }) = self.reached.get(at) {
            let owner = self.reached.get(*from).map(|reached| quote(&reached.owner));
            links.push(alloc::format!("{} waits for {}", owner.unwrap_or_default(), quote(name)));
            at = *from;
        }
        links.reverse();
        let more = links.len().saturating_sub(LINKS_SHOWN);
        links.truncate(LINKS_SHOWN);
        let links = links.join(", ");
        let rest = if more > 0 { alloc::format!(" and {more} more") } else { String::new() };
        alloc::format!("this call would wait forever: {links}{rest}")
    }
}
