//! The search through those who wait, from the caller back to the caller.

use super::{Order, Wait};
use crate::holds::ALONE;
use crate::machine::Machine;
use crate::queue::{Waiter, Want};
use crate::resource::{Body, Kind, Resource};
use crate::store::{Key, Slot, Store};
use crate::time::Now;
use crate::waits::Budget;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::string::String;
use alloc::vec::Vec;
use dlock_wire::reply::quote;
use dlock_wire::request::Mode;

/// Links of a circle that its text names.
const LINKS_SHOWN: usize = 20;

/// An owner that the search has reached.
struct Reached {
    owner: Vec<u8>,
    /// Whom it was reached from, as an index; `None` for the caller.
    from: Option<usize>,
    /// The key for which `from` waits for this owner.
    key: (u32, Vec<u8>),
}

/// What is known of a key that somebody waits for.
#[derive(Default)]
struct Holders {
    /// The one who waits has it already.
    has_it: bool,
    /// The one who waits stands in front of all others, by a hold of the other mode.
    goes_first: bool,
    /// Holds keep the one who waits from having it.
    is_held: bool,
    /// The owners of those that may lead somewhere.
    owners: Vec<Vec<u8>>,
}

/// One search.
pub(super) struct Search<'a> {
    caller: &'a [u8],
    /// Places of the caller that this call gives up, and those of its calls for several.
    leaving: BTreeSet<u32>,
    leaving_groups: BTreeSet<u32>,
    /// The one that counts only from this call on: it was one of a call for any key.
    revived: Option<u32>,
    /// The queue in front of which it will stand, if it does (an upgrade).
    heads: Option<u32>,
    reached: Vec<Reached>,
    known: BTreeSet<Vec<u8>>,
    /// Reached, and not looked at yet.
    open: Vec<usize>,
    /// Queues of keys whose readers have all been reached.
    read: BTreeSet<u32>,
    /// Queues whose places before this one have all been reached; apart, as readers see them.
    passed: BTreeMap<(u32, bool), u64>,
    pub(super) looked_at: usize,
    budget: Budget,
    /// The caller would have to wait.
    waits: bool,
    /// Nobody below this level leads to the caller.
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

    pub(super) fn search_one<S: Store>(
        &self,
        store: &mut S,
        now: Now,
        search: &mut Search<'_>,
        (kind, key, want): (Kind, Key<'_>, Want),
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
        let holders = self.holders_of_key(store, now, search, (kind, key, want));
        if let Some(text) = self.look(now, search, (0, kind, key, want), stays, &holders) {
            return Some(text);
        }
        // Those behind this place wait for the caller only from now on, so it matters where else the
        // caller waits. (Of a new place nobody is behind: then it does not.)
        if search.waits
            && (search.revived.is_some() || search.heads.is_some())
            && let Some(text) = self.look_from_places_of(now, search, 0)
        {
            return Some(text);
        }
        self.search_on(now, search)
    }

    pub(super) fn search_all<'k, S: Store>(
        &self,
        store: &mut S,
        now: Now,
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
            let holders = self.holders_of_key(store, now, search, (Kind::Lock, key, Want::Lock));
            if let Some(text) = self.look(now, search, place, None, &holders) {
                return Some(text);
            }
            if search.is_cut() {
                return None;
            }
        }
        self.search_on(now, search)
    }

    /// The call that has a place in `slot` will be over: all its places go.
    fn note_leaving(&self, search: &mut Search<'_>, slot: u32) {
        match self.waits().get(slot) {
            Some(place) if place.is_grouped() => search.leaving_groups.insert(place.group),
            _ => search.leaving.insert(slot),
        };
    }

    /// Goes on from the owners that the caller waits for.
    fn search_on(&self, now: Now, search: &mut Search<'_>) -> Option<String> {
        while let Some(index) = search.open.pop().filter(|_| !search.is_cut()) {
            if let Some(text) = self.look_from_places_of(now, search, index) {
                return Some(text);
            }
        }
        None
    }

    /// Reaches everybody for whom the owner at `index` waits anywhere.
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
                // It has ended with its key.
                continue;
            }
            let place = (index, queue.kind, queue.key(), waiter.ask.want);
            let holders = self.holders_of_queue(search, waiter.queue, (&waiting, waiter.ask.want));
            if let Some(text) = self.look(now, search, place, Some(waiter), &holders) {
                return Some(text);
            }
        }
        None
    }

    /// Whether nobody waits forever because of this place: its wait or call is over, its connection is gone
    /// and it is passed over, it takes any of several keys, or it is for permits.
    pub(super) fn is_out_of_this(&self, waiter: &Waiter, now: Now) -> bool {
        let group = self.waits().group(waiter.group);
        !waiter.ask.want.can_lock_up()
            || self.waits().is_gone(waiter)
            || group.is_some_and(|group| group.takes_any)
            || self.waits().is_deserted(waiter)
            || self.waits().is_over(waiter, now.mono, self.lease_time(now.mono))
    }

    /// Reaches everybody for whom the owner at `index` waits at `key`, from its `place` there or
    /// from where it would stand.
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
        // A call for several does not wait for a key that its owner has. One place alone does: the
        // hold came by RENAME, and the place is served only after those in front of it.
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

    /// Notes that the owner at `from` waits for `owner`; the circle if that is the caller.
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

    /// Whether the caller would have to stand behind somebody who counts: to read, behind somebody
    /// who waits to write.
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

    /// Whether `owner` has a hold in force of what it wants.
    pub(super) fn has_it(&self, resource: &Resource, now: Now, owner: &[u8], want: Want) -> bool {
        let lease = self.lease_time(now.mono);
        let id = match (&resource.body, want) {
            (Body::Rw(rw), Want::Rw(mode)) => rw.find(owner, mode),
            _ => Some(ALONE),
        };
        let hold = id.and_then(|id| resource.hold(id)).filter(|hold| *hold.owner == *owner);
        hold.is_some_and(|hold| self.hold_ends(resource, hold, lease) > lease)
    }

    /// Whether `owner` stands in front of the waiters, by a hold in force of the other mode.
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

    /// Who keeps the caller from having a key that its call names: as the key itself says.
    fn holders_of_key<S: Store>(
        &self,
        store: &mut S,
        now: Now,
        search: &mut Search<'_>,
        (kind, key, want): (Kind, Key<'_>, Want),
    ) -> Holders {
        let Slot::Here(resource) = store.get(key) else { return Holders::default() };
        if resource.kind() != kind {
            return Holders::default();
        }
        let (caller, lease) = (search.caller, self.lease_time(now.mono));
        let seen = resource.holds().take_while(|_| search.spend(1));
        let others = seen.filter(|(id, hold)| {
            let conflicts = *id == ALONE || want == Want::Rw(Mode::Write);
            conflicts && *hold.owner != *caller && self.hold_ends(resource, hold, lease) > lease
        });
        let others = others.map(|(_, hold)| &hold.owner);
        let mut is_held = false;
        let others = others.inspect(|_| is_held = true);
        // Who waits for nothing leads nowhere.
        let leading = others.filter(|owner| self.waits().places_of_owner(owner).next().is_some());
        let owners = leading.map(|owner| owner.to_vec()).collect();
        Holders {
            has_it: self.has_it(resource, now, caller, want),
            goes_first: self.goes_first(resource, now, caller, want),
            is_held,
            owners,
        }
    }

    /// Who keeps `owner` from having the key of `queue`: as the queue knows it.
    fn holders_of_queue(
        &self,
        search: &mut Search<'_>,
        queue: u32,
        (owner, want): (&[u8], Want),
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
        // One look at the readers of a key reaches all of them, for whoever waits to write.
        if want == Want::Rw(Mode::Write) && search.read.insert(queue) {
            let (count, readers) = waits.readers_of(queue);
            found.is_held |= count > usize::from(is_reader);
            let most = search.spend_up_to(count);
            let readers = readers.take(most).filter(|reader| **reader != *owner);
            found.owners.extend(readers.map(<[u8]>::to_vec));
        }
        found
    }

    /// Those in front of `place` (without one, of the whole queue) that may lead somewhere.
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
        // The caller itself may stand in front of the one we look at.
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
        // Who is in front of somebody in front has been reached already. The caller sees the queue
        // in its own way: it may go first, or give places up.
        if let Some(place) = place.filter(|_| index > 0) {
            let is_read = kind == Kind::Rw && want == Want::Rw(Mode::Read);
            let passed = search.passed.entry((queue, is_read)).or_default();
            if place.seq <= *passed {
                return Vec::new();
            }
            *passed = place.seq;
        }
        // Whichever is shorter: the queue, or the list of those who stand in several.
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
            // A writer in front waits for the readers, for whom a reader does not wait itself. One
            // of them stands for all.
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
    /// Uses looks up; `false`: there are none left, and the call waits.
    fn spend(&mut self, looks: usize) -> bool {
        let is_seen = self.budget.spend(looks);
        self.looked_at += if is_seen { looks } else { 0 };
        is_seen
    }

    /// Uses up to so many looks up. How many there were.
    fn spend_up_to(&mut self, looks: usize) -> usize {
        let most = looks.min(self.budget.left());
        // What goes beyond cuts the search.
        self.budget.spend(looks);
        self.looked_at += most;
        most
    }

    /// Whether the search had to end before it had seen all.
    pub(super) fn is_cut(&self) -> bool {
        self.budget.is_cut()
    }

    /// Whether a place of the caller is given up by this call.
    fn is_leaving(&self, slot: u32, waiter: &Waiter) -> bool {
        self.revived != Some(slot)
            && (self.leaving.contains(&slot) || self.leaving_groups.contains(&waiter.group))
    }

    /// The same, whatever its level.
    fn reach(&mut self, from: usize, key: Key<'_>, owner: &[u8]) -> Option<String> {
        if owner == self.caller {
            // A caller that waits for itself re-enters, or keeps its place.
            return (from > 0).then(|| self.text(from, key));
        }
        if self.known.insert(owner.to_vec()) {
            self.open.push(self.reached.len());
            let key = (key.db, key.name.to_vec());
            self.reached.push(Reached { owner: owner.into(), from: Some(from), key });
        }
        None
    }

    /// The circle that ends with the owner at `last` waiting for the caller at `key`.
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
