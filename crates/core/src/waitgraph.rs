//! Deadlock detection: does a call that is about to wait close a circle of owners who wait for
//! owners?
//!
//! The graph is not kept; it is read off the queues when a call is about to wait. An owner waits
//! for the holder of a key and for every owner in front of it in the queue. The search goes depth
//! first from the caller and looks for the caller (Knuth, TAOCP 7.4.1; any circle that a call
//! closes goes through it). Who stands in a single queue adds nothing to what is known of that
//! queue already, so long queues of single-minded waiters cost nothing.

use crate::machine::Machine;
use crate::queue::Waiter;
use crate::store::{Key, Slot, Store};
use crate::time::Now;
use alloc::collections::BTreeSet;
use alloc::string::String;
use alloc::vec::Vec;
use dlock_wire::reply::quote;

/// Places that one search looks at before it lets the call wait.
const PLACES_MOST: usize = 100_000;

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

/// One search.
struct Search<'a> {
    caller: &'a [u8],
    reached: Vec<Reached>,
    known: BTreeSet<Vec<u8>>,
    /// Reached, and not looked at yet.
    open: Vec<usize>,
    looked_at: usize,
}

impl Machine {
    /// The circle that `owner` would close by waiting for `key`, in words; `None` if there is none
    /// or if it is too far to see.
    pub fn circle<S: Store>(
        &self,
        store: &mut S,
        now: Now,
        key: Key<'_>,
        owner: &[u8],
    ) -> Option<String> {
        // Where nobody waits, nobody can wait for the caller.
        if self.waits().is_empty() || !self.would_wait(store, now, key, owner) {
            return None;
        }
        let caller = Reached { owner: owner.into(), from: None, key: (key.db, Vec::new()) };
        let mut search = Search {
            caller: owner,
            reached: Vec::from([caller]),
            known: BTreeSet::new(),
            open: Vec::new(),
            looked_at: 0,
        };
        if self.waits().queue_of(key).is_some_and(|q| self.waits().place_of(q, owner).is_some()) {
            // It keeps the place it has: this call closes nothing that was not there before.
            return None;
        }
        if let Some(text) = self.look(store, now, &mut search, 0, key, None) {
            return Some(text);
        }
        // Where else the caller waits does not matter: this call closes no circle through there.
        while let Some(index) = search.open.pop() {
            let waiting = search.reached.get(index)?.owner.clone();
            for (_, waiter) in self.waits().places_of_owner(&waiting) {
                if waiter.presence.is_over(now.mono, self.lease_time(now.mono)) {
                    continue;
                }
                let Some(queue) = self.waits().queue(waiter.queue) else { continue };
                if let Some(text) =
                    self.look(store, now, &mut search, index, queue.key(), Some(waiter))
                {
                    return Some(text);
                }
                if search.looked_at > PLACES_MOST {
                    return None;
                }
            }
        }
        None
    }

    /// Whether `owner` could not be granted `key` at once.
    fn would_wait<S: Store>(&self, store: &mut S, now: Now, key: Key<'_>, owner: &[u8]) -> bool {
        let lease = self.lease_time(now.mono);
        match store.get(key) {
            Slot::Foreign => return false,
            Slot::Missing => {}
            Slot::Here(resource) => {
                if let Some((hold, _)) = self.in_force(resource, lease) {
                    return *hold.owner != *owner;
                }
            }
        }
        let Some(queue) = self.waits().queue_of(key) else { return false };
        let ahead = self.waits().walk(queue).take_while(|(_, waiter)| *waiter.owner != *owner);
        ahead
            .map(|(_, waiter)| waiter)
            .any(|waiter| !self.is_passed_over(waiter) && !waiter.presence.is_over(now.mono, lease))
    }

    /// Reaches everybody for whom the owner at `index` waits at `key`, from its `place` there or
    /// from the end of the queue.
    fn look<S: Store>(
        &self,
        store: &mut S,
        now: Now,
        search: &mut Search<'_>,
        index: usize,
        key: Key<'_>,
        place: Option<&Waiter>,
    ) -> Option<String> {
        search.looked_at += 1;
        let lease = self.lease_time(now.mono);
        let holder = match store.get(key) {
            Slot::Here(resource) => {
                self.in_force(resource, lease).map(|(hold, _)| hold.owner.to_vec())
            }
            Slot::Missing | Slot::Foreign => None,
        };
        if let Some(holder) = holder
            && let Some(text) = search.reach(index, key, &holder)
        {
            return Some(text);
        }
        let queue = self.waits().queue_of(key)?;
        // The caller itself may stand in front of the one we look at.
        let caller_place = self.waits().place_of(queue, search.caller);
        let is_ahead = |waiter: &Waiter| {
            place.is_none_or(|place| waiter.seq < place.seq)
                && !waiter.presence.is_over(now.mono, lease)
        };
        if index > 0
            && let Some(waiter) = caller_place.and_then(|slot| self.waits().get(slot))
            && is_ahead(waiter)
        {
            let caller = search.caller.to_vec();
            return search.reach(index, key, &caller);
        }
        // Whichever is shorter: the queue, or the list of those who stand in several.
        let waits = self.waits();
        let len = waits.queue(queue).map_or(0, |queue| queue.len);
        let found: Vec<Vec<u8>> = if len < waits.plural_count() {
            let queue = waits.walk(queue).map(|(_, waiter)| waiter).take(PLACES_MOST);
            let plural = queue.filter(|waiter| is_ahead(waiter) && waits.is_plural(&waiter.owner));
            plural.map(|waiter| waiter.owner.to_vec()).collect()
        } else {
            let place =
                |owner: &&[u8]| waits.place_of(queue, owner).and_then(|slot| waits.get(slot));
            let plural = waits.plural_owners().take(PLACES_MOST);
            plural.filter(|owner| place(owner).is_some_and(is_ahead)).map(<[u8]>::to_vec).collect()
        };
        search.looked_at += len.min(waits.plural_count());
        for owner in found {
            if let Some(text) = search.reach(index, key, &owner) {
                return Some(text);
            }
        }
        None
    }
}

impl Search<'_> {
    /// Notes that the owner at `from` waits for `owner`; the circle if that is the caller.
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
        alloc::format!("this call would wait for ever: {links}{rest}")
    }
}
