//! Hash tables that grow and shrink by one bucket at a time, so that no operation moves a whole table (linear hashing:
//! W. Litwin, "Linear hashing: a new tool for file and table addressing", 1980).
//!
//! A table holds only ids. The entries are elsewhere, in a slab, and each has a field that chains it to the next. An
//! insertion moves the entries of one bucket, about one. Now and then the list of buckets doubles, four bytes each.

use crate::base::slab::SlabId;
use alloc::vec::Vec;

/// The entries of a table: storage and chaining.
pub trait Chain {
    /// The id of an entry.
    type Id: SlabId;
    /// Hash of the entry under `id`.
    fn hash(&self, id: Self::Id) -> u64;
    /// The next entry of its bucket, or [`SlabId::NONE`].
    fn next(&self, id: Self::Id) -> Self::Id;
    /// Changes the next entry of its bucket.
    fn set_next(&mut self, id: Self::Id, next: Self::Id);
}

/// See the module documentation.
#[derive(Debug)]
pub struct Buckets<I> {
    /// The first entry of each bucket, or [`SlabId::NONE`].
    heads: Vec<I>,
    len: usize,
}

impl<I> Default for Buckets<I> {
    fn default() -> Self {
        Self { heads: Vec::new(), len: 0 }
    }
}

impl<I: SlabId> Buckets<I> {
    /// Number of entries.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The entry with this hash that satisfies `is_it`; `next` gives the next entry of a bucket.
    pub fn find(&self, hash: u64, is_it: impl Fn(I) -> bool, next: impl Fn(I) -> I) -> Option<I> {
        if self.len == 0 {
            return None;
        }
        let mut id = self.heads[self.bucket_of(hash)];
        while id != I::NONE && !is_it(id) {
            id = next(id);
        }
        (id != I::NONE).then_some(id)
    }

    /// Adds an entry, which must be in the slab already. Moves the entries of at most one bucket.
    pub fn insert(&mut self, entries: &mut impl Chain<Id = I>, hash: u64, id: I) {
        if self.heads.len() <= self.len {
            self.grow(entries);
        }
        let bucket = self.bucket_of(hash);
        entries.set_next(id, core::mem::replace(&mut self.heads[bucket], id));
        self.len += 1;
    }

    /// Removes an entry, before it leaves the slab; `false` if it was not in the table. Moves the entries of at most
    /// two buckets.
    pub fn remove(&mut self, entries: &mut impl Chain<Id = I>, hash: u64, id: I) -> bool {
        if self.len == 0 {
            return false;
        }
        let bucket = self.bucket_of(hash);
        let (mut before, mut at) = (I::NONE, self.heads[bucket]);
        while at != id {
            if at == I::NONE {
                return false;
            }
            (before, at) = (at, entries.next(at));
        }
        let next = entries.next(id);
        if before == I::NONE {
            self.heads[bucket] = next;
        } else {
            entries.set_next(before, next);
        }
        self.len -= 1;
        if self.len == 0 {
            // Keep no memory for later entries beyond what churn needs.
            self.heads.truncate(1);
            self.heads.shrink_to(16);
        }
        for _ in 0..2 {
            if self.heads.len() > 2 * self.len + 16 {
                self.shrink(entries);
            }
        }
        true
    }

    fn bucket_of(&self, hash: u64) -> usize {
        bucket(hash, self.heads.len())
    }

    /// Adds a bucket: it takes its part of the chain of another.
    fn grow(&mut self, entries: &mut impl Chain<Id = I>) {
        let new = self.heads.len();
        self.heads.push(I::NONE);
        if new == 0 {
            return;
        }
        let mut id = core::mem::replace(&mut self.heads[sibling(new)], I::NONE);
        while id != I::NONE {
            let next = entries.next(id);
            let bucket = self.bucket_of(entries.hash(id));
            entries.set_next(id, core::mem::replace(&mut self.heads[bucket], id));
            id = next;
        }
    }

    /// Removes a bucket: its chain goes back to the bucket it came from.
    fn shrink(&mut self, entries: &mut impl Chain<Id = I>) {
        let Some(chain) = self.heads.pop() else { return };
        if chain != I::NONE {
            let mut last = chain;
            while entries.next(last) != I::NONE {
                last = entries.next(last);
            }
            let old = sibling(self.heads.len());
            entries.set_next(last, core::mem::replace(&mut self.heads[old], chain));
        }
        if self.heads.len() * 4 < self.heads.capacity() {
            self.heads.shrink_to(self.heads.len() * 2);
        }
    }
}

/// The bucket of a hash among `buckets` buckets, at least one.
fn bucket(hash: u64, buckets: usize) -> usize {
    let mask = buckets.next_power_of_two() - 1;
    // The low bits are as random as all others.
    #[allow(clippy::cast_possible_truncation)]
    let at = hash as usize & mask;
    if at < buckets { at } else { at & (mask >> 1) }
}

/// The bucket that shares its entries with the one after the first `buckets`.
fn sibling(buckets: usize) -> usize {
    buckets & ((buckets + 1).next_power_of_two() - 1) >> 1
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::cell::Cell;

    /// Entries with their hashes, and the number of moves and steps.
    #[derive(Default)]
    struct Entries {
        all: Vec<(u64, u32)>,
        touched: Cell<usize>,
    }

    impl Chain for Entries {
        type Id = u32;

        fn hash(&self, id: u32) -> u64 {
            self.all[id as usize].0
        }

        fn next(&self, id: u32) -> u32 {
            self.touched.set(self.touched.get() + 1);
            self.all[id as usize].1
        }

        fn set_next(&mut self, id: u32, next: u32) {
            self.all[id as usize].1 = next;
        }
    }

    fn hash_of(n: u32) -> u64 {
        let n = u64::from(n).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        (n ^ n >> 29).wrapping_mul(0xBF58_476D_1CE4_E5B9)
    }

    fn is_found(table: &Buckets<u32>, entries: &Entries, id: u32) -> bool {
        let next = |id: u32| entries.all[id as usize].1;
        table.find(hash_of(id), |found| found == id, next) == Some(id)
    }

    #[test]
    fn no_insertion_or_removal_touches_more_than_a_few_entries() {
        const COUNT: u32 = 200_000;
        let (mut table, mut entries) = (Buckets::default(), Entries::default());
        let mut worst = 0;
        for id in 0..COUNT {
            entries.all.push((hash_of(id), u32::NONE));
            entries.touched.set(0);
            table.insert(&mut entries, hash_of(id), id);
            worst = worst.max(entries.touched.get());
        }
        assert!((0..COUNT).all(|id| is_found(&table, &entries, id)));
        for id in 0..COUNT {
            entries.touched.set(0);
            assert!(table.remove(&mut entries, hash_of(id), id));
            worst = worst.max(entries.touched.get());
            assert!(!is_found(&table, &entries, id));
            let last = COUNT - 1;
            assert!(id == last || is_found(&table, &entries, last));
        }
        assert!(worst <= 64, "{worst} entries were touched at once");
        assert!(table.is_empty() && table.heads.capacity() <= 16);
    }

    #[test]
    fn what_is_not_there_is_neither_found_nor_removed() {
        let (mut table, mut entries) = (Buckets::default(), Entries::default());
        assert!(!is_found(&table, &entries, 0));
        assert!(!table.remove(&mut entries, 7, 0));
        entries.all.push((hash_of(0), u32::NONE));
        table.insert(&mut entries, hash_of(0), 0);
        assert!(!table.remove(&mut entries, hash_of(1), 1));
        assert!(is_found(&table, &entries, 0));
        assert_eq!(table.len(), 1);
    }
}
