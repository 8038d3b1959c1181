//! Bounds the work of the deadlock check of one call. A call that exceeds the bound waits without a complete check.

/// Budget of a call for one key, over all phases: a millisecond or two.
const FOR_A_CALL: usize = 16_384;

/// Additional budget for each key that the call names.
const FOR_A_KEY: usize = 4;

/// The budget that is left. Each waiter, hold or owner inspected costs one.
#[derive(Debug)]
pub struct Budget {
    left: usize,
    is_cut: bool,
}

impl Budget {
    /// A budget of `looks`.
    pub fn new(looks: usize) -> Self {
        Self { left: looks, is_cut: false }
    }

    /// The budget of a call for `keys` keys.
    pub fn of_call(keys: usize) -> Self {
        Self::new(FOR_A_CALL + keys.saturating_sub(1) * FOR_A_KEY)
    }

    /// The budget left.
    pub fn left(&self) -> usize {
        self.left
    }

    /// Spends `looks`; `false` if less than that is left.
    pub fn spend(&mut self, looks: usize) -> bool {
        self.is_cut |= self.left < looks;
        self.left = self.left.saturating_sub(looks);
        !self.is_cut
    }

    /// Whether more was asked for than was left.
    pub fn is_cut(&self) -> bool {
        self.is_cut
    }

    /// Runs a phase that may spend at most 1/`parts` of what is left. If the phase exceeds its share, the next phase
    /// still runs.
    pub fn phase<R>(&mut self, parts: usize, phase: impl FnOnce(&mut Budget) -> R) -> R {
        let most = self.left / parts;
        let mut part = Budget::new(most);
        let result = phase(&mut part);
        self.left -= most - part.left;
        result
    }
}
