//! Finds a repeated key.

use alloc::vec::Vec;

/// Up to this number, keys are compared pair by pair, without an allocation.
const FEW: usize = 16;

/// The first key from the left that repeats an earlier one; None if all are different.
///
/// Larger sets are sorted, so the cost is at most O(n log n) comparisons for any choice of keys.
pub(crate) fn first_repeated<'a>(keys: &[&'a [u8]]) -> Option<&'a [u8]> {
    if keys.len() <= FEW {
        let mut places = 1..keys.len();
        return places.find(|&at| keys[..at].contains(&keys[at])).map(|at| keys[at]);
    }
    // Keys of one application often share a prefix, so a hash distinguishes them faster than their bytes.
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
