//! Finds a key that was given twice.

use alloc::vec::Vec;

/// So many keys are compared pair by pair, without memory of their own.
const FEW: usize = 16;

/// The first key from the left that was there before; None if all are different.
///
/// Many keys are sorted, so no choice of keys makes this cost more than O(n log n) comparisons.
pub(crate) fn first_repeated<'a>(keys: &[&'a [u8]]) -> Option<&'a [u8]> {
    if keys.len() <= FEW {
        let mut places = 1..keys.len();
        return places.find(|&at| keys[..at].contains(&keys[at])).map(|at| keys[at]);
    }
    // Keys of one application begin alike, so a hash tells them apart sooner than their bytes do.
    let mut sorted: Vec<(u64, usize)> =
        keys.iter().enumerate().map(|(at, key)| (hash(key), at)).collect();
    sorted.sort_unstable_by(|&(left_hash, left), &(right_hash, right)| {
        left_hash
            .cmp(&right_hash)
            .then_with(|| keys[left].cmp(keys[right]))
            .then_with(|| left.cmp(&right))
    });
    let repeats = sorted.windows(2).filter_map(|pair| match *pair {
        [(left_hash, left), (right_hash, right)]
            if left_hash == right_hash && keys[left] == keys[right] =>
        {
            Some(right)
        }
        _ => None,
    });
    repeats.min().map(|at| keys[at])
}

/// FNV-1a.
fn hash(key: &[u8]) -> u64 {
    key.iter().fold(0xcbf2_9ce4_8422_2325, |hash, &byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

#[cfg(test)]
mod tests {
    use alloc::string::String;
    use alloc::vec::Vec;

    use super::*;

    #[test]
    fn many_keys_are_judged_as_few_are() {
        for len in [0, 1, 2, FEW, FEW + 1, 40, 300] {
            for (first, second) in [(0, 1), (0, len / 2), (len / 3, len / 2), (1, len)] {
                let names: Vec<_> = (0..len)
                    .map(|at| if at + 1 == second { first } else { at })
                    .map(|name| alloc::format!("orders:{name}"))
                    .collect();
                let keys: Vec<_> = names.iter().map(String::as_bytes).collect();
                let naive = (0..len).find(|&at| keys[..at].contains(&keys[at]));
                assert_eq!(first_repeated(&keys), naive.map(|at| keys[at]), "{keys:?}");
            }
        }
    }

    #[test]
    fn the_first_repeat_is_the_one_that_is_told() {
        let mut names: Vec<_> = (0..100).map(|name| alloc::format!("{name}")).collect();
        names.extend(["70".into(), "20".into(), "70".into()]);
        let keys: Vec<_> = names.iter().map(String::as_bytes).collect();
        assert_eq!(first_repeated(&keys), Some(&b"70"[..]));
    }
}
