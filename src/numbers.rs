//! Maps from numbers that no client chooses: ids that the module assigns, and addresses.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

/// A map from such numbers. No client can choose colliding ones, so its hash can be cheap.
pub type NumberMap<K, V> = HashMap<K, V, BuildHasherDefault<Numbers>>;

/// Multiplies by an odd constant and folds the upper half of the product into the lower one. The map uses the highest
/// and the lowest bits, and addresses share their lowest bits.
#[derive(Debug, Default, Clone, Copy)]
pub struct Numbers(u64);

impl Hasher for Numbers {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.write_u64(u64::from(byte));
        }
    }

    #[inline]
    fn write_u64(&mut self, number: u64) {
        let product = (self.0 ^ number).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.0 = product ^ (product >> 32);
    }

    #[inline]
    fn write_usize(&mut self, number: usize) {
        self.write_u64(number as u64);
    }
}
