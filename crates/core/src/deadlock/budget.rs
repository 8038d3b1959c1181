//! Bounds the work of the deadlock check of one call. A call that exceeds the bound waits without a complete check.

/// Budget of a call, for one key or several: below half a millisecond where nothing is in the processor's caches, else
/// much less. The search from the tick finds what this misses.
const FOR_A_CALL: usize = 1_000;

/// A number of looks. Each waiter, hold or owner inspected costs one.
#[derive(Debug)]
pub(super) struct Budget {
    most: usize,
    left: usize,
    is_exceeded: bool,
}

impl Budget {
    pub(super) fn new(most: usize) -> Self {
        Self { most, left: most, is_exceeded: false }
    }

    /// The budget of a call.
    pub(super) fn of_call() -> Self {
        Self::new(FOR_A_CALL)
    }

    /// Spends `looks`. `false` if less than that is left: then the check ends, and nothing more can be spent.
    pub(super) fn spend(&mut self, looks: usize) -> bool {
        self.is_exceeded |= self.left < looks;
        self.left = self.left.saturating_sub(looks);
        !self.is_exceeded
    }

    /// Whether more was asked for than was left.
    pub(super) fn is_exceeded(&self) -> bool {
        self.is_exceeded
    }

    /// Looks that are left.
    pub(super) fn left(&self) -> usize {
        self.left
    }

    /// Looks spent so far.
    pub(super) fn spent(&self) -> usize {
        self.most - self.left
    }

    /// Runs a phase that may spend at most `most` of what is left. If the phase exceeds its share, the next phase still
    /// runs.
    pub(super) fn phase<R>(&mut self, most: usize, phase: impl FnOnce(&mut Budget) -> R) -> R {
        let mut part = Budget::new(most.min(self.left));
        let result = phase(&mut part);
        self.left -= part.spent();
        result
    }
}
