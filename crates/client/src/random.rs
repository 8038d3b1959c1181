//! Randomness for names that no other process can guess, and for pauses that differ.
//!
//! The keys of the standard library's hash maps come from the operating system. A process without the key cannot
//! predict hashes under it. That is enough for names, and needs no crate.

use std::hash::{BuildHasher as _, RandomState};
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};

static KEYS: LazyLock<[RandomState; 2]> = LazyLock::new(Default::default);
static CALLS: AtomicU64 = AtomicU64::new(0);

/// 128 random bits.
fn bits() -> [u64; 2] {
    // A forked process has the same keys.
    let input = (CALLS.fetch_add(1, Ordering::Relaxed), std::process::id());
    [KEYS[0].hash_one(input), KEYS[1].hash_one(input)]
}

/// A unique name: 32 hexadecimal digits.
pub(crate) fn name() -> String {
    let [high, low] = bits();
    format!("{high:016x}{low:016x}")
}

/// From 0 to 1.
pub(crate) fn fraction() -> f64 {
    let [_, bits] = bits();
    let bytes = bits.to_le_bytes();
    f64::from(u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]])) / f64::from(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn names_differ_and_have_32_digits() {
        let names: HashSet<_> = (0..10_000).map(|_| name()).collect();
        assert_eq!(names.len(), 10_000);
        let is_name =
            |name: &String| name.len() == 32 && name.bytes().all(|byte| byte.is_ascii_hexdigit());
        assert!(names.iter().all(is_name));
    }

    #[test]
    fn fractions_fill_their_range() {
        let fractions: Vec<_> = (0..1_000).map(|_| fraction()).collect();
        for tenth in 0..10 {
            let from = f64::from(tenth) / 10.0;
            let inside = |fraction: &&f64| (from..=from + 0.1).contains(*fraction);
            assert!(fractions.iter().filter(inside).count() > 50, "{from}");
        }
    }
}
