//! Random numbers, reproducible from a seed.

use std::time::Duration;

/// A stream of random numbers (splitmix64): the same for the same seed on every machine. Any seed will do.
#[derive(Clone, Debug)]
pub struct Dice(u64);

impl Dice {
    /// The stream of `seed`.
    pub fn new(seed: u64) -> Dice {
        Dice(seed)
    }

    /// A separate stream for part `n` of a run.
    pub fn part(seed: u64, n: u64) -> Dice {
        let mut dice = Dice(seed ^ n.wrapping_mul(0xd134_2543_de82_ef95));
        dice.next();
        dice
    }

    /// The stream of `DLOCK_SEED`, else of `default`; prints the seed, so that a failure can be repeated.
    pub fn seeded(default: u64) -> Dice {
        let given = std::env::var("DLOCK_SEED").ok();
        let seed = given.and_then(|seed| seed.parse().ok()).unwrap_or(default);
        println!("DLOCK_SEED={seed}");
        Dice(seed)
    }

    /// Any number.
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below `bound`.
    pub fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound.max(1)
    }

    /// An index of a list of this length.
    pub fn index(&mut self, len: usize) -> usize {
        usize::try_from(self.below(len as u64)).expect("below a length")
    }

    /// True once in `n` times.
    pub fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }

    /// One of several values.
    pub fn pick<T: Copy>(&mut self, values: &[T]) -> T {
        values[self.index(values.len())]
    }

    /// At most `most` milliseconds.
    pub fn millis(&mut self, most: u64) -> Duration {
        Duration::from_millis(self.below(most + 1))
    }

    /// The index of a weight, in proportion to the weights.
    pub fn weighted(&mut self, weights: impl Iterator<Item = u32> + Clone) -> usize {
        let total: u32 = weights.clone().sum();
        let mut left = self.below(u64::from(total));
        for (n, weight) in weights.enumerate() {
            match left.checked_sub(u64::from(weight)) {
                Some(rest) => left = rest,
                None => return n,
            }
        }
        0
    }
}

#[cfg(test)]
mod tests {
    use super::Dice;

    #[test]
    fn a_seed_repeats_its_numbers_and_weights_are_kept() {
        let roll = |seed| {
            let mut dice = Dice::part(seed, 3);
            (0..50).map(|_| dice.below(1_000)).collect::<Vec<_>>()
        };
        assert_eq!(roll(7), roll(7));
        assert_ne!(roll(7), roll(8));
        let mut dice = Dice::new(1);
        let mut hits = [0; 3];
        for _ in 0..10_000 {
            hits[dice.weighted([1, 0, 3].into_iter())] += 1;
        }
        assert_eq!(hits[1], 0);
        assert!((2_200..2_800).contains(&hits[0]), "{hits:?}");
    }
}
