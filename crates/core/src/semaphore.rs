//! The durable state of a semaphore.

use crate::holds::Holds;

/// Permits that are out, and how many there may be.
#[derive(Debug, Default)]
pub struct Semaphore {
    /// How many permits there are, 1 to 2^31 - 1; 0 while it is not made.
    pub capacity: u32,
    /// Made by LIMIT: it is removed when its last permit is back and there are no waiters.
    pub is_passing: bool,
    /// Permits that TAKE and DRAIN took and GIVE has not given back.
    pub taken: u32,
    /// Permits with an owner and a lease, by id; the `count` of each hold is how many it is.
    pub permits: Holds,
    /// The sum of their counts.
    pub leased: u64,
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

    /// Bytes on the heap, itself included.
    pub fn heap_size(&self) -> usize {
        size_of::<Self>() + self.permits.heap_size()
    }
}
