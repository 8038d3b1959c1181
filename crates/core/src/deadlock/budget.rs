//! Bounds the work of the deadlock check of one call. A call that exceeds the bound waits without a complete check.

/// Budget of a call for one key: up to four milliseconds where nothing is in the processor's caches, else much
/// less. A crowd of 500 owners, each in two queues, needs more than half of it.
const FOR_A_CALL: usize = 8_192;

/// Additional budget for each further key that the call names.
const FOR_A_KEY: usize = 4;

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

    /// The budget of a call for `keys` keys.
    pub(super) fn of_call(keys: usize) -> Self {
        Self::new(FOR_A_CALL + keys.saturating_sub(1) * FOR_A_KEY)
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
