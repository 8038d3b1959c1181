//! The durable state of a semaphore.

use crate::holds::Holds;
use alloc::boxed::Box;
use alloc::collections::VecDeque;

/// How many request ids of calls without a permit are remembered.
pub const ANSWERS_KEPT: usize = 64;

/// Permits that are out, and how many there may be.
#[derive(Debug, Default)]
pub struct Semaphore {
    /// How many permits there are, 1 to 2^31 - 1; 0 while it is not made.
    pub capacity: u32,
    /// Made by LIMIT: it goes when its last permit is back and nobody waits.
    pub is_passing: bool,
    /// Permits that TAKE and DRAIN took and GIVE has not given back.
    pub taken: u32,
    /// Permits with an owner and a lease, by id; the `count` of each hold is how many it is.
    pub permits: Holds,
    /// The sum of their counts.
    pub leased: u64,
    /// What TAKE, GIVE, DRAIN and RESIZE answered to the last request ids, oldest first.
    pub answers: VecDeque<(Box<[u8]>, u32)>,
    /// How many of them came since the last record.
    pub answers_new: usize,
}

impl Semaphore {
    /// How many permits can be had; negative while more are out than there are.
    pub fn available(&self) -> i64 {
        // Counts are below 2^31 each, and as many as fit into memory: the sum is far below 2^63.
        i64::from(self.capacity) - i64::from(self.taken) - self.leased.cast_signed()
    }

    /// Whether `n` permits can be had, if need be by making it with `limit`.
    pub fn has(&self, n: u32, limit: Option<u32>) -> bool {
        match self.capacity {
            0 => limit.is_some_and(|limit| n <= limit),
            _ => self.available() >= i64::from(n),
        }
    }

    /// Whether no permit is out.
    pub fn is_unused(&self) -> bool {
        self.taken == 0 && self.permits.is_empty()
    }

    /// What request `id` was answered, if it was carried out already.
    pub fn answered(&self, id: Option<&[u8]>) -> Option<u32> {
        let id = id?;
        self.answers.iter().find(|(known, _)| **known == *id).map(|&(_, answer)| answer)
    }

    /// Notes that request `id` was carried out.
    pub fn remember(&mut self, id: Option<&[u8]>, answer: u32) {
        let Some(id) = id else { return };
        if self.answers.len() == ANSWERS_KEPT {
            self.answers.pop_front();
        }
        self.answers.push_back((id.into(), answer));
        self.answers_new = (self.answers_new + 1).min(ANSWERS_KEPT);
    }

    /// Bytes on the heap, itself included.
    pub fn heap_size(&self) -> usize {
        let answers = self.answers.capacity() * size_of::<(Box<[u8]>, u32)>();
        let ids: usize = self.answers.iter().map(|(id, _)| id.len()).sum();
        size_of::<Self>() + self.permits.heap_size() + answers + ids
    }
}
