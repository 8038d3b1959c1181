//! A histogram of times, with a relative error of 1.6 %.
//!
//! The buckets are log-linear, as in `HdrHistogram` (Gil Tene, <https://hdrhistogram.org>): each power of two has 32
//! buckets of the same width. Recording is O(1), allocates nothing and cannot fail. Besides, the histogram counts the
//! buckets that INFO shows: their bounds are decimal.

use alloc::borrow::ToOwned;
use alloc::boxed::Box;
use alloc::string::{String, ToString};
use alloc::vec;
use alloc::vec::Vec;

/// Upper bounds of the buckets that INFO shows, in microseconds; the last bucket has none.
const BOUNDS_US: [u64; 21] = [
    100,
    250,
    500,
    1_000,
    2_500,
    5_000,
    10_000,
    25_000,
    50_000,
    100_000,
    250_000,
    500_000,
    1_000_000,
    2_500_000,
    5_000_000,
    10_000_000,
    30_000_000,
    60_000_000,
    300_000_000,
    900_000_000,
    3_600_000_000,
];

/// Buckets per power of two, as a power of two.
const FINE_BITS: u32 = 5;

/// Buckets per power of two.
const FINE: u64 = 1 << FINE_BITS;

/// Number of fine buckets: times up to 2^36 microseconds (19 hours). Longer ones are in the last one.
const BUCKETS: usize = 1024;

/// Times of one kind: see the module documentation.
#[derive(Debug)]
pub struct Histogram {
    count: u64,
    sum_us: u64,
    max_us: u64,
    /// Number of times up to each bound and above the one before; the last is for times above all bounds.
    coarse: [u64; BOUNDS_US.len() + 1],
    fine: Box<[u64]>,
}

impl Default for Histogram {
    fn default() -> Self {
        Self {
            count: 0,
            sum_us: 0,
            max_us: 0,
            coarse: [0; BOUNDS_US.len() + 1],
            fine: vec![0; BUCKETS].into_boxed_slice(),
        }
    }
}

impl Histogram {
    /// Counts one time.
    #[inline]
    pub(crate) fn record(&mut self, us: u64) {
        self.count += 1;
        self.sum_us = self.sum_us.saturating_add(us);
        self.max_us = self.max_us.max(us);
        if let Some(bucket) = self.coarse.get_mut(BOUNDS_US.partition_point(|bound| *bound < us)) {
            *bucket += 1;
        }
        if let Some(bucket) = self.fine.get_mut(bucket_of(us)) {
            *bucket += 1;
        }
    }

    /// Number of times.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Their sum, in microseconds; at most `u64::MAX`.
    pub fn sum_us(&self) -> u64 {
        self.sum_us
    }

    /// The longest, in microseconds.
    pub fn max_us(&self) -> u64 {
        self.max_us
    }

    /// The times, in microseconds, that are not exceeded by these shares of all times (in thousandths, rising). They
    /// differ from the exact ones by at most 1.6 %. 0 while there are none. O(number of buckets).
    pub fn percentiles<const N: usize>(&self, thousandths: [u64; N]) -> [u64; N] {
        let mut found = [0; N];
        if self.count == 0 {
            return found;
        }
        let mut buckets = self.fine.iter().enumerate();
        let (mut passed, mut last) = (0, 0);
        for (found, share) in found.iter_mut().zip(thousandths) {
            let share = u128::from(self.count) * u128::from(share);
            let rank = u64::try_from(share.div_ceil(1_000)).unwrap_or(u64::MAX).max(1);
            while passed < rank
                && let Some((bucket, count)) = buckets.next()
            {
                passed += count;
                last = bucket;
            }
            *found = middle_of(last).min(self.max_us);
        }
        found
    }

    /// The number of times up to each of [`BOUNDS_US`], and of all times.
    pub(super) fn cumulative(&self) -> impl Iterator<Item = u64> {
        self.coarse.iter().scan(0, |sum, count| {
            *sum += count;
            Some(*sum)
        })
    }

    /// The figures that INFO shows, with their names.
    pub(super) fn figures(&self) -> Vec<(String, u64)> {
        let [half, most, nearly_all] = self.percentiles([500, 990, 999]);
        let figures = [
            ("count", self.count),
            ("sum", self.sum_us),
            ("p50", half),
            ("p99", most),
            ("p99.9", nearly_all),
            ("max", self.max_us),
        ];
        figures.into_iter().map(|(name, number)| (name.to_owned(), number)).collect()
    }

    /// The buckets that INFO shows, with their bounds.
    pub(super) fn buckets(&self) -> Vec<(String, u64)> {
        let bounds = BOUNDS_US.iter().map(u64::to_string).chain(["inf".to_owned()]);
        bounds.zip(self.cumulative()).collect()
    }
}

/// The fine bucket of a time.
#[inline]
fn bucket_of(us: u64) -> usize {
    // Times below FINE have a bucket each; so do those below 2 * FINE.
    let shift = (u64::BITS - us.leading_zeros()).saturating_sub(FINE_BITS + 1);
    let bucket = u64::from(shift) * FINE + (us >> shift);
    usize::try_from(bucket).unwrap_or(BUCKETS).min(BUCKETS - 1)
}

/// The time in the middle of a fine bucket; that of the last bucket is larger than all times in it may be.
fn middle_of(bucket: usize) -> u64 {
    if bucket + 1 >= BUCKETS {
        return u64::MAX;
    }
    let bucket = bucket as u64;
    let shift = (bucket / FINE).saturating_sub(1);
    let first = (bucket - shift * FINE) << shift;
    first + (1_u64 << shift) / 2
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_are_contiguous_and_their_middle_is_near_all_times_in_them() {
        let mut last = 0;
        for us in (0..5_000).chain((0..57_000).map(|step| 5_000 + step * 1_199_999)) {
            let bucket = bucket_of(us);
            assert!(bucket >= last && bucket < BUCKETS, "{us}");
            assert!(us >= 5_000 || bucket <= last + 1, "{us}");
            last = bucket;
            if bucket + 1 < BUCKETS {
                let error = middle_of(bucket).abs_diff(us);
                assert!(error * 1_000 <= us * 16, "{us} is counted as {}", middle_of(bucket));
            }
        }
        assert_eq!(bucket_of((1 << 36) - 1), BUCKETS - 1);
        assert_eq!(bucket_of(u64::MAX), BUCKETS - 1);
    }

    #[test]
    fn percentiles_are_those_of_the_sorted_times() {
        let mut state = 7_u64;
        for round in 1..60_u32 {
            let mut times: Vec<u64> = (0..round * 7)
                .map(|_| {
                    state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                    (state >> 33) % (1 << (round % 33 + 1))
                })
                .collect();
            let mut histogram = Histogram::default();
            for time in &times {
                histogram.record(*time);
            }
            times.sort_unstable();
            let shares = [1, 500, 990, 999, 1_000];
            for (share, found) in shares.into_iter().zip(histogram.percentiles(shares)) {
                let rank = (times.len() as u64 * share).div_ceil(1_000).max(1);
                let exact = times[usize::try_from(rank).expect("few") - 1];
                let error = found.abs_diff(exact);
                assert!(
                    error * 1_000 <= exact * 16,
                    "{share} of {}: {exact}, {found}",
                    times.len()
                );
            }
            assert_eq!(histogram.max_us(), times[times.len() - 1]);
            assert_eq!(histogram.sum_us(), times.iter().sum::<u64>());
        }
    }

    #[test]
    fn buckets_of_info_are_exact_and_include_their_bound() {
        let mut histogram = Histogram::default();
        assert_eq!(histogram.percentiles([500, 999]), [0, 0]);
        for us in [0, 100, 101, 250, 3_600_000_000, 3_600_000_001, u64::MAX] {
            histogram.record(us);
        }
        let counts: Vec<u64> = histogram.cumulative().collect();
        assert_eq!(counts.len(), BOUNDS_US.len() + 1);
        assert_eq!((counts[0], counts[1], counts[2]), (2, 4, 4));
        assert_eq!((counts[20], counts[21]), (5, 7));
        assert_eq!((histogram.sum_us(), histogram.max_us()), (u64::MAX, u64::MAX));
        assert_eq!(histogram.percentiles([1_000]), [u64::MAX]);
    }
}
