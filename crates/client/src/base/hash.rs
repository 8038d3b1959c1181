//! Maps by numbers and names that this client draws itself: no one else can choose them to collide.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

/// As [`HashMap`], with a hash of a few instructions.
pub(crate) type Map<K, V> = HashMap<K, V, BuildHasherDefault<Mixed>>;

/// The multiplication of the hash of Firefox and rustc.
#[derive(Default)]
pub(crate) struct Mixed(u64);

impl Hasher for Mixed {
    fn write(&mut self, bytes: &[u8]) {
        for chunk in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            self.write_u64(u64::from_le_bytes(word));
        }
    }

    fn write_u64(&mut self, word: u64) {
        self.0 = (self.0.rotate_left(5) ^ word).wrapping_mul(0x517c_c1b7_2722_0a95);
    }

    fn write_usize(&mut self, word: usize) {
        self.write_u64(word as u64);
    }

    fn finish(&self) -> u64 {
        // The lowest bits choose the place in a table, and the highest are the best mixed.
        self.0.rotate_left(20)
    }
}
