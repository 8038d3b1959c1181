//! The length of the longest queue, without a walk over all queues.

use alloc::vec::Vec;

/// The number of queues of each length: the first number counts those with one waiter.
///
/// A length changes by one, and the longest queue with it: each change costs O(1).
#[derive(Debug, Default)]
pub(super) struct Lengths(Vec<u32>);

impl Lengths {
    /// The length of the longest queue.
    pub(super) fn longest(&self) -> usize {
        self.0.len()
    }

    /// A queue of this length gets one more waiter.
    pub(super) fn grow(&mut self, len: usize) {
        if let Some(count) = len.checked_sub(1).and_then(|at| self.0.get_mut(at)) {
            *count -= 1;
        }
        match self.0.get_mut(len) {
            Some(count) => *count += 1,
            None => self.0.push(1),
        }
    }

    /// A queue of this length, at least 1, loses a waiter.
    pub(super) fn shrink(&mut self, len: usize) {
        let Some(at) = len.checked_sub(1) else { return };
        if let Some(count) = self.0.get_mut(at) {
            *count -= 1;
        }
        if let Some(count) = at.checked_sub(1).and_then(|at| self.0.get_mut(at)) {
            *count += 1;
        }
        while self.0.last() == Some(&0) {
            self.0.pop();
        }
        if self.0.len() * 4 < self.0.capacity() {
            self.0.shrink_to(self.0.len() * 2);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Lengths;

    #[test]
    fn the_longest_queue_is_known_as_places_come_and_go() {
        let mut lengths = Lengths::default();
        let mut queues = [0_usize; 3];
        let mut random = 7_u32;
        for _ in 0..10_000 {
            random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let queue = &mut queues[random as usize / 7 % 3];
            if random >> 31 == 0 {
                lengths.grow(*queue);
                *queue += 1;
            } else if *queue > 0 {
                lengths.shrink(*queue);
                *queue -= 1;
            }
            assert_eq!(Some(lengths.longest()), queues.iter().copied().max());
        }
    }
}
