//! A slab that grows and shrinks by chunks. Ids are small integers, growth never copies entries, and memory use follows
//! the number of entries instead of doubling. Empty chunks are freed one by one: after a million removals in a row no
//! large block is left to free at once.

use alloc::boxed::Box;
use alloc::vec::Vec;

/// Entries per chunk: small, so that a server with few locks uses little memory.
const CHUNK: usize = 128;

/// Means "no entry" wherever ids are linked.
pub const NIL: u32 = u32::MAX;

#[derive(Debug)]
struct Chunk<T> {
    slots: Box<[Option<T>]>,
    used: usize,
}

/// See the module documentation.
#[derive(Debug)]
pub struct Slab<T> {
    /// `None`: the chunk is empty and its memory is freed.
    chunks: Vec<Option<Chunk<T>>>,
    /// The chunk that emptied last. It is kept, so that a single entry that comes and goes does not allocate and free a
    /// chunk each time.
    spare: usize,
    free: Vec<u32>,
    /// Ids from here on have never been used.
    fresh: u32,
    len: usize,
}

impl<T> Default for Slab<T> {
    fn default() -> Self {
        Self { chunks: Vec::new(), spare: 0, free: Vec::new(), fresh: 0, len: 0 }
    }
}

impl<T> Slab<T> {
    /// Puts `value` under a free id.
    pub fn insert(&mut self, value: T) -> u32 {
        let id = self.free.pop().unwrap_or_else(|| {
            let id = self.fresh;
            self.fresh += 1;
            id
        });
        let index = id as usize / CHUNK;
        if index == self.chunks.len() {
            self.chunks.push(None);
        }
        let chunk = self.chunks[index]
            .get_or_insert_with(|| Chunk { slots: (0..CHUNK).map(|_| None).collect(), used: 0 });
        chunk.slots[id as usize % CHUNK] = Some(value);
        chunk.used += 1;
        self.len += 1;
        id
    }

    /// Removes the entry; its id may be used again.
    pub fn remove(&mut self, id: u32) -> Option<T> {
        let index = id as usize / CHUNK;
        let chunk = self.chunks.get_mut(index)?.as_mut()?;
        let value = chunk.slots[id as usize % CHUNK].take()?;
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
            self.fresh = 0;
        } else {
            self.free.push(id);
        }
        Some(value)
    }

    /// The entry under `id`.
    pub fn get(&self, id: u32) -> Option<&T> {
        self.chunks.get(id as usize / CHUNK)?.as_ref()?.slots[id as usize % CHUNK].as_ref()
    }

    /// The entry under `id`, mutable.
    pub fn get_mut(&mut self, id: u32) -> Option<&mut T> {
        self.chunks.get_mut(id as usize / CHUNK)?.as_mut()?.slots[id as usize % CHUNK].as_mut()
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
    pub fn bound(&self) -> u32 {
        self.fresh
    }

    /// All entries; each chunk is freed after its last entry.
    pub fn into_values(self) -> impl Iterator<Item = T> {
        self.chunks.into_iter().flatten().flat_map(|chunk| chunk.slots.into_vec()).flatten()
    }

    /// All entries with their ids.
    pub fn iter(&self) -> impl Iterator<Item = (u32, &T)> {
        (0..self.fresh).filter_map(|id| self.get(id).map(|value| (id, value)))
    }
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
