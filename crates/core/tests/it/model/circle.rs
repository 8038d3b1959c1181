//! Owners that would wait for each other: an owner waits for the holders that keep it from a key, and for all owners in
//! front of it in the queue.

use super::acquire::is_saved;
use super::{How, Model, Place};
use dlock_wire::request::Mode;

/// The waiting owner, the owner it waits for, and the key.
type Arrow = (String, String, usize);

impl Model {
    /// Whether `owner`, by waiting for `k`, would close a new cycle. A queue entry that it gives up does not make the
    /// cycle old: an owner that goes to the end, or to the front, starts a new wait.
    pub(super) fn closes_a_circle(&self, k: usize, owner: &str, mode: Mode) -> bool {
        if !self.would_wait(k, owner, mode) {
            return false;
        }
        let mut before = self.clone();
        if let Some(at) = self.queues[k].iter().position(|place| place.owner == owner)
            && !self.keeps(k, at, mode)
        {
            before.queues[k].remove(at);
        }
        let before = before.arrows();
        let mut after = self.clone();
        after.wait_as(k, owner, mode);
        let after = after.arrows();
        let is_new =
            |arrow: &&Arrow| (arrow.0 == owner || arrow.1 == owner) && !before.contains(arrow);
        after.iter().filter(is_new).any(|(from, to, _)| leads_to(&after, to, from))
    }

    fn would_wait(&self, k: usize, owner: &str, mode: Mode) -> bool {
        let has = |wanted: Mode| self.holders(k).any(|held| held == (owner, wanted));
        let goes_first = has(if mode == Mode::Read { Mode::Write } else { Mode::Read });
        // A reader enters together with the waiting readers.
        let somebody_first = self.queues[k].iter().any(|place| {
            place.owner != owner
                && (mode == Mode::Write || place.mode == Mode::Write)
                && self.counts(k, place)
                && !self.is_skipped(k, place)
        });
        let is_held = self.in_the_way(k, owner, mode).next().is_some();
        !has(mode) && (is_held || (somebody_first && !goes_first))
    }

    /// Adds the owner as it would wait; nothing else changes.
    fn wait_as(&mut self, k: usize, owner: &str, mode: Mode) {
        let goes_first = self.holders(k).any(|(name, held)| name == owner && held != mode);
        let old = self.queues[k].iter().position(|place| place.owner == owner);
        let kept = old.filter(|&at| self.keeps(k, at, mode));
        let mut place = match old {
            Some(at) => self.queues[k].remove(at),
            None => Place::of(owner, mode),
        };
        let end = if goes_first { 0 } else { self.queues[k].len() };
        let at = kept.unwrap_or(end);
        place.mode = mode;
        place.how = How::Queued;
        self.queues[k].insert(at, place);
    }

    /// Whether the waiter at `at` keeps its position if its owner asks again, in `mode`.
    fn keeps(&self, k: usize, at: usize, mode: Mode) -> bool {
        let place = &self.queues[k][at];
        let mut holders = self.holders(k);
        let goes_first = holders.any(|(name, held)| name == place.owner && held != mode);
        !is_saved(place) && place.mode == mode && (at == 0 || !goes_first)
    }

    fn arrows(&self) -> Vec<Arrow> {
        let mut found = Vec::new();
        for (k, queue) in self.queues.iter().enumerate() {
            for (at, place) in queue.iter().enumerate().filter(|(_, place)| self.counts(k, place)) {
                let ahead = queue[..at].iter().filter(|place| self.counts(k, place));
                let ahead = ahead.map(|place| &*place.owner);
                let others = self.in_the_way(k, &place.owner, place.mode).chain(ahead);
                found.extend(others.map(|other| (place.owner.clone(), other.to_owned(), k)));
            }
        }
        found
    }

    fn counts(&self, k: usize, place: &Place) -> bool {
        !self.has_run_out(place) && !is_saved(place) && !self.is_deserted(k, place)
    }

    /// The owners whose holds keep `owner` from having the key.
    fn in_the_way(&self, k: usize, owner: &str, mode: Mode) -> impl Iterator<Item = &str> {
        let others = self.holders(k).filter(move |&(name, held)| {
            name != owner && (mode == Mode::Write || held == Mode::Write)
        });
        others.map(|(name, _)| name)
    }

    /// Holds in force.
    fn holders(&self, k: usize) -> impl Iterator<Item = (&str, Mode)> {
        let writer = self.writer(k).map(|hold| (hold, Mode::Write));
        let readers = self.readers[k].iter().map(|hold| (hold, Mode::Read));
        let all = writer.into_iter().chain(readers);
        all.filter(|(hold, _)| hold.ends > self.lease_now).map(|(hold, mode)| (&*hold.owner, mode))
    }
}

/// Whether a path along the arrows leads from `from` to `to`.
fn leads_to(arrows: &[Arrow], from: &str, to: &str) -> bool {
    let mut reached = vec![from];
    let mut next = 0;
    while let Some(&here) = reached.get(next) {
        if here == to {
            return true;
        }
        for (_, there, _) in arrows.iter().filter(|arrow| arrow.0 == here) {
            if !reached.contains(&&**there) {
                reached.push(there);
            }
        }
        next += 1;
    }
    false
}
