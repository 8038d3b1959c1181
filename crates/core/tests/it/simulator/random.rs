//! Random numbers from a seed.

use super::UNIT_MS;

/// xorshift64*: small, and the same everywhere.
pub(super) struct Random(pub(super) u64);

impl Random {
    pub(super) fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 11) % bound
    }

    pub(super) fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }

    pub(super) fn index(&mut self, len: usize) -> usize {
        usize::try_from(self.below(len as u64)).expect("an index")
    }

    pub(super) fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.index(from.len())]
    }

    /// One of some numbers of units, in milliseconds, or nothing.
    pub(super) fn maybe_ms(&mut self, one_in: u64, units: &[u64]) -> Option<u64> {
        self.one_in(one_in).then(|| self.pick(units) * UNIT_MS)
    }
}
