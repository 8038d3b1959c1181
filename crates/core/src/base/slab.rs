//! A slab that grows and shrinks by chunks. Ids are small integers, growth never copies entries, and memory use follows
//! the number of entries instead of doubling. Empty chunks are freed one by one: after a million removals in a row no
//! large block is left to free at once.

use alloc::boxed::Box;
use alloc::vec::Vec;

/// Entries per chunk: small, so that a server with few locks uses little memory.
const CHUNK: usize = 128;

/// The id of an entry in a slab, and of its node in a [`Wheel`](crate::base::wheel::Wheel) or in
/// [`Buckets`](crate::base::buckets::Buckets): a small integer with a type, so that the id of one kind of entry cannot
/// be passed for the id of another.
pub trait SlabId: Copy + Ord {
    /// No entry.
    const NONE: Self;

    /// The smallest id.
    const FIRST: Self;

    /// The id with this number.
    fn new(number: u32) -> Self;

    /// Its number.
    fn number(self) -> u32;

    /// The id after this one.
    #[must_use]
    fn following(self) -> Self {
        Self::new(self.number() + 1)
    }

    /// The ids from this one on and below `bound`.
    fn up_to(self, bound: Self) -> impl Iterator<Item = Self> {
        (self.number()..bound.number()).map(Self::new)
    }
}

#[cfg(test)]
impl SlabId for u32 {
    const NONE: Self = Self::MAX;
    const FIRST: Self = 0;

    fn new(number: u32) -> Self {
        number
    }

    fn number(self) -> u32 {
        self
    }
}

#[derive(Debug)]
struct Chunk<T> {
    slots: Box<[Option<T>]>,
    used: usize,
}

/// See the module documentation.
#[derive(Debug)]
pub struct Slab<I, T> {
    /// `None`: the chunk is empty and its memory is freed.
    chunks: Vec<Option<Chunk<T>>>,
    /// The chunk that emptied last. It is kept, so that a single entry that comes and goes does not allocate and free a
    /// chunk each time.
    spare: usize,
    free: Vec<I>,
    /// Ids from here on have never been used.
    fresh: I,
    len: usize,
}

impl<I: SlabId, T> Default for Slab<I, T> {
    fn default() -> Self {
        Self { chunks: Vec::new(), spare: 0, free: Vec::new(), fresh: I::FIRST, len: 0 }
    }
}

impl<I: SlabId, T> Slab<I, T> {
    /// Puts `value` under a free id.
    pub fn insert(&mut self, value: T) -> I {
        let id = self.free.pop().unwrap_or_else(|| {
            let id = self.fresh;
            self.fresh = id.following();
            id
        });
        let index = chunk_of(id);
        if index == self.chunks.len() {
            self.chunks.push(None);
        }
        let chunk = self.chunks[index]
            .get_or_insert_with(|| Chunk { slots: (0..CHUNK).map(|_| None).collect(), used: 0 });
        chunk.slots[index_of(id)] = Some(value);
        chunk.used += 1;
        self.len += 1;
        id
    }

    /// Removes the entry; its id may be used again.
    pub fn remove(&mut self, id: I) -> Option<T> {
        let index = chunk_of(id);
        let chunk = self.chunks.get_mut(index)?.as_mut()?;
        let value = chunk.slots[index_of(id)].take()?;
        chunk.used -= 1;
        if chunk.used == 0 && self.spare != index {
            let spare = core::mem::replace(&mut self.spare, index);
            if let Some(chunk) = self.chunks.get_mut(spare) {
                chunk.take_if(|chunk| chunk.used == 0);
            }
        }
        self.len -= 1;
        if self.len == 0 {
            // Empty: free the memory of a burst, but keep what churn needs.
            self.chunks.truncate(1);
            self.free.clear();
            self.free.shrink_to(CHUNK);
            self.fresh = I::FIRST;
        } else {
            self.free.push(id);
        }
        Some(value)
    }

    /// The entry under `id`.
    pub fn get(&self, id: I) -> Option<&T> {
        self.chunks.get(chunk_of(id))?.as_ref()?.slots[index_of(id)].as_ref()
    }

    /// The entry under `id`, mutable.
    pub fn get_mut(&mut self, id: I) -> Option<&mut T> {
        self.chunks.get_mut(chunk_of(id))?.as_mut()?.slots[index_of(id)].as_mut()
    }

    /// Number of entries.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// One above the largest id in use since the slab was last empty: the bound for a walk by id.
    pub fn bound(&self) -> I {
        self.fresh
    }

    /// All entries; each chunk is freed after its last entry.
    pub fn into_values(self) -> impl Iterator<Item = T> {
        self.chunks.into_iter().flatten().flat_map(|chunk| chunk.slots.into_vec()).flatten()
    }

    /// All entries with their ids.
    pub fn iter(&self) -> impl Iterator<Item = (I, &T)> {
        I::FIRST.up_to(self.fresh).filter_map(|id| self.get(id).map(|value| (id, value)))
    }
}

/// The chunk of an entry.
fn chunk_of(id: impl SlabId) -> usize {
    id.number() as usize / CHUNK
}

/// The index of an entry in its chunk.
fn index_of(id: impl SlabId) -> usize {
    id.number() as usize % CHUNK
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_reused_and_an_empty_slab_starts_over() {
        let mut slab = Slab::default();
        let ids: Vec<u32> = (0..3000u32).map(|n| slab.insert(n)).collect();
        assert_eq!(slab.len(), 3000);
        assert_eq!(slab.remove(ids[7]), Some(7));
        assert_eq!(slab.remove(ids[7]), None);
        assert_eq!(slab.insert(70), ids[7]);
        assert_eq!(slab.iter().count(), 3000);
        for (gone, id) in ids.into_iter().enumerate() {
            assert!(slab.remove(id).is_some());
            assert!(slab.chunks.iter().flatten().count() <= (3000 - gone).div_ceil(CHUNK) + 2);
        }
        assert_eq!(slab.bound(), 0);
        assert!(slab.chunks.iter().flatten().count() <= 1);
        assert!(slab.get(5).is_none());
    }
}
