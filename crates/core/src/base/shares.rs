//! What the ACL users have of something limited, and which of them has the most.

use alloc::collections::{BTreeMap, BTreeSet};
use core::hash::Hasher;
use siphasher::sip::SipHasher13;

/// An ACL user, by a hash of the name. Users with the same hash share what they have.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct User(u32);

impl User {
    /// Unknown: a record of the primary, a loaded file, or work of the tick.
    pub const UNKNOWN: Self = Self(0);

    /// The user of this name; [`User::UNKNOWN`] for an empty one.
    #[allow(clippy::cast_possible_truncation)] // half of a hash is one, too
    pub fn named(name: &[u8]) -> Self {
        if name.is_empty() {
            return Self::UNKNOWN;
        }
        let mut hasher = SipHasher13::new();
        hasher.write(name);
        Self(hasher.finish() as u32)
    }
}

/// Items of users, each user's in order. All operations are O(log n).
#[derive(Debug)]
pub(crate) struct Shares<T> {
    of_user: BTreeMap<User, BTreeSet<T>>,
    /// The users by the number of their items.
    by_count: BTreeSet<(usize, User)>,
}

impl<T> Default for Shares<T> {
    fn default() -> Self {
        Self { of_user: BTreeMap::new(), by_count: BTreeSet::new() }
    }
}

impl<T: Ord + Copy> Shares<T> {
    pub fn insert(&mut self, user: User, item: T) {
        let items = self.of_user.entry(user).or_default();
        let before = items.len();
        items.insert(item);
        let now = items.len();
        self.recount(user, before, now);
    }

    pub fn remove(&mut self, user: User, item: T) {
        let Some(items) = self.of_user.get_mut(&user) else { return };
        let before = items.len();
        items.remove(&item);
        let now = items.len();
        if now == 0 {
            self.of_user.remove(&user);
        }
        self.recount(user, before, now);
    }

    fn recount(&mut self, user: User, before: usize, now: usize) {
        self.by_count.remove(&(before, user));
        if now > 0 {
            self.by_count.insert((now, user));
        }
    }

    /// The first item of the user that has the most.
    pub fn first_of_largest(&self) -> Option<T> {
        let (_, user) = self.by_count.last()?;
        self.of(*user).next()
    }

    /// The items of a user.
    pub fn of(&self, user: User) -> impl Iterator<Item = T> {
        self.of_user.get(&user).into_iter().flatten().copied()
    }

    pub fn is_empty(&self) -> bool {
        self.by_count.is_empty()
    }

    /// Number of items. O(users).
    pub fn len(&self) -> usize {
        self.of_user.values().map(BTreeSet::len).sum()
    }

    /// All items, to be freed.
    pub fn into_items(self) -> impl Iterator<Item = T> {
        self.of_user.into_values().flatten()
    }
}
