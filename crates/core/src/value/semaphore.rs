//! The durable state of a semaphore.

use crate::value::holds::Holds;

/// The permits that are out, and their limit.
#[derive(Debug, Default)]
pub struct Semaphore {
    /// Number of permits, 1 to 2^31 - 1; 0 while the semaphore is not made.
    pub capacity: u32,
    /// Made by LIMIT: it is removed when its last permit is back and there are no waiters.
    pub is_passing: bool,
    /// Number of permits of TAKE and DRAIN that GIVE has not returned.
    pub taken: u32,
    /// Permits with an owner and a lease, by id; the `count` of each hold is its number of permits.
    pub permits: Holds,
    /// The sum of their counts.
    pub leased: u64,
}

impl Semaphore {
    /// Number of free permits; negative while more are out than there are.
    pub fn available(&self) -> i64 {
        // Each count is below 2^31, and memory limits their number: the sum is far below 2^63.
        i64::from(self.capacity) - i64::from(self.taken) - self.leased.cast_signed()
    }

    /// Whether `n` permits are free, or would be if `limit` makes the semaphore.
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

    /// Bytes on the heap, itself included, extrapolated from `samples` permits.
    pub fn heap_size(&self, samples: usize) -> usize {
        size_of::<Self>() + self.permits.heap_size(samples)
    }
}
