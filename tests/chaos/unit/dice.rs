//! The random numbers.

use crate::dice::Dice;

#[test]
fn a_seed_repeats_its_numbers_and_weights_are_kept() {
    let roll = |seed| {
        let mut dice = Dice::part(seed, 3);
        (0..50).map(|_| dice.below(1_000)).collect::<Vec<_>>()
    };
    assert_eq!(roll(7), roll(7));
    assert_ne!(roll(7), roll(8));
    let mut dice = Dice::part(1, 0);
    let mut hits = [0; 3];
    for _ in 0..10_000 {
        hits[dice.weighted([1, 0, 3].into_iter())] += 1;
    }
    assert_eq!(hits[1], 0);
    assert!((2_200..2_800).contains(&hits[0]), "{hits:?}");
}
