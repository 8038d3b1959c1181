//! The entries of the memory, in the order in which they were noted.

use super::{Print, Use};
use crate::base::buckets::Chain;
use crate::base::ids::slab_id;
use crate::base::slab::SlabId;
use crate::base::time::LeaseInstant;
use alloc::collections::VecDeque;
use alloc::vec::Vec;

/// Entries in a chunk.
const CHUNK: usize = 256;

slab_id! {
    /// The number of a remembered request in the order in which they were noted. Numbers wrap at 2^32.
    RequestNumber
}

#[derive(Debug)]
pub(super) struct Entry {
    pub(super) print: Print,
    /// Time at which it was noted.
    pub(super) at: LeaseInstant,
    /// The next entry of its bucket, older or newer, or [`RequestNumber::NONE`].
    pub(super) next: RequestNumber,
    /// `None`: it was forgotten, and only keeps its slot until the older ones are gone.
    pub(super) what: Option<Use>,
}

/// The entries in the order in which they were noted.
#[derive(Debug, Default)]
pub(super) struct Log {
    /// Oldest first. All but the last are full.
    pub(super) chunks: VecDeque<Vec<Entry>>,
    /// Number of the first entry of the first chunk. Numbers wrap at 2^32.
    pub(super) base: u32,
    /// Number of entries at the beginning of the first chunk that are dropped already.
    pub(super) dropped: usize,
}

impl Log {
    /// Entries in the chunks, forgotten ones included.
    pub(super) fn slots(&self) -> usize {
        let last = self.chunks.back().map_or(0, Vec::len);
        self.chunks.len().saturating_sub(1) * CHUNK + last - self.dropped
    }

    pub(super) fn oldest(&self) -> Option<&Entry> {
        self.chunks.front()?.get(self.dropped)
    }

    pub(super) fn next_number(&self) -> RequestNumber {
        // As many as fit into memory; the numbers wrap on purpose.
        #[allow(clippy::cast_possible_truncation)]
        let offset = (self.slots() + self.dropped) as u32;
        RequestNumber::new(self.base.wrapping_add(offset))
    }

    /// The chunk of an entry, and its index there. `None` for [`RequestNumber::NONE`].
    pub(super) fn locate(&self, number: RequestNumber) -> Option<(usize, usize)> {
        let offset = number.number().wrapping_sub(self.base) as usize;
        (number != RequestNumber::NONE).then_some((offset / CHUNK, offset % CHUNK))
    }

    pub(super) fn get(&self, number: RequestNumber) -> Option<&Entry> {
        let (chunk, at) = self.locate(number)?;
        self.chunks.get(chunk)?.get(at)
    }

    pub(super) fn get_mut(&mut self, number: RequestNumber) -> Option<&mut Entry> {
        let (chunk, at) = self.locate(number)?;
        self.chunks.get_mut(chunk)?.get_mut(at)
    }

    pub(super) fn append(&mut self, entry: Entry) {
        match self.chunks.back_mut() {
            Some(chunk) if chunk.len() < CHUNK => chunk.push(entry),
            _ => {
                let mut chunk = Vec::with_capacity(CHUNK);
                chunk.push(entry);
                self.chunks.push_back(chunk);
            }
        }
    }

    pub(super) fn drop_first(&mut self) {
        self.dropped += 1;
        if self.dropped == CHUNK {
            self.chunks.pop_front();
            #[allow(clippy::cast_possible_truncation)]
            let passed = CHUNK as u32;
            self.base = self.base.wrapping_add(passed);
            self.dropped = 0;
        } else if self.slots() == 0 {
            // Idle: keep no memory for later entries.
            *self = Self::default();
        }
    }
}

impl Chain for Log {
    type Id = RequestNumber;

    fn hash(&self, number: RequestNumber) -> u64 {
        // The low bits are as random as all others.
        self.get(number).map_or(0, |entry| entry.print[0])
    }

    fn next(&self, number: RequestNumber) -> RequestNumber {
        self.get(number).map_or(RequestNumber::NONE, |entry| entry.next)
    }

    fn set_next(&mut self, number: RequestNumber, next: RequestNumber) {
        if let Some(entry) = self.get_mut(number) {
            entry.next = next;
        }
    }
}
