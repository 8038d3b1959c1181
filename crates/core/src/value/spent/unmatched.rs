//! Ids of RELEASE calls that found nothing to end. Any client can make as many as it likes, so they have a small
//! memory of their own, and do not push out the ids of requests.

use super::{Limits, Print, Use};
use crate::base::shares::{Shares, User};
use crate::base::time::LeaseInstant;
use alloc::collections::BTreeMap;

/// The part of [`Limits::most`] that may be remembered besides.
const PART: usize = 16;

#[derive(Debug)]
pub(super) struct Entry {
    pub print: Print,
    pub at: LeaseInstant,
    pub what: Use,
    user: User,
}

/// Entries in the order in which they were noted. If there are too many, the oldest of the user that has the most goes.
#[derive(Debug, Default)]
pub(super) struct Unmatched {
    /// By number, oldest first.
    entries: BTreeMap<u64, Entry>,
    by_print: BTreeMap<Print, u64>,
    shares: Shares<u64>,
}

impl Unmatched {
    /// Whether a use belongs here. Replicas and readers of files decide as the server that noted it.
    pub fn takes(what: Use) -> bool {
        what == Use::Unknown
    }

    pub fn len(&self) -> usize {
        self.entries.len()
    }

    pub fn get(&self, print: Print) -> Option<&Entry> {
        self.entries.get(self.by_print.get(&print)?)
    }

    /// Oldest first.
    pub fn entries(&self) -> impl Iterator<Item = &Entry> {
        self.entries.values()
    }

    /// Notes a call of `user`, which must not be known.
    pub fn put(&mut self, print: Print, what: Use, at: LeaseInstant, user: User, limits: Limits) {
        let number = self.entries.last_key_value().map_or(0, |(last, _)| last + 1);
        self.entries.insert(number, Entry { print, at, what, user });
        self.by_print.insert(print, number);
        self.shares.insert(user, number);
        if self.exceeds(limits)
            && let Some(number) = self.shares.first_of_largest()
        {
            self.remove(number);
        }
    }

    pub fn forget(&mut self, print: Print) {
        if let Some(&number) = self.by_print.get(&print) {
            self.remove(number);
        }
    }

    /// Drops the oldest entry if it is overdue, or one that is too many. Returns whether there was one.
    pub fn drop_one(&mut self, now: LeaseInstant, limits: Limits) -> bool {
        let is_overdue = self.next_end(limits).is_some_and(|end| end <= now);
        let oldest = self.entries.first_key_value().map(|(&number, _)| number);
        let one = oldest.filter(|_| is_overdue);
        let one = one.or_else(|| self.shares.first_of_largest().filter(|_| self.exceeds(limits)));
        one.map(|number| self.remove(number)).is_some()
    }

    /// Time at which the oldest entry is overdue.
    pub fn next_end(&self, limits: Limits) -> Option<LeaseInstant> {
        let (_, oldest) = self.entries.first_key_value()?;
        Some(oldest.at + limits.keep_ms)
    }

    fn exceeds(&self, limits: Limits) -> bool {
        self.entries.len() > limits.most.div_ceil(PART)
    }

    fn remove(&mut self, number: u64) {
        if let Some(entry) = self.entries.remove(&number) {
            self.by_print.remove(&entry.print);
            self.shares.remove(entry.user, number);
        }
    }
}
