//! How much one call may look at before it is let wait unseen.

/// Looks that a call for one key has, over all phases: a millisecond or two.
const FOR_A_CALL: usize = 16_384;

/// Looks that a call has more for each key that it names.
const FOR_A_KEY: usize = 4;

/// Looks that are left. Each place, hold or owner that is looked at costs one.
#[derive(Debug)]
pub struct Budget {
    left: usize,
    is_cut: bool,
}

impl Budget {
    /// So many looks.
    pub fn new(looks: usize) -> Self {
        Self { left: looks, is_cut: false }
    }

    /// What a call for so many keys has.
    pub fn of_call(keys: usize) -> Self {
        Self::new(FOR_A_CALL + keys.saturating_sub(1) * FOR_A_KEY)
    }

    /// How many are left.
    pub fn left(&self) -> usize {
        self.left
    }

    /// Uses looks up; `false` if there are not so many.
    pub fn spend(&mut self, looks: usize) -> bool {
        self.is_cut |= self.left < looks;
        self.left = self.left.saturating_sub(looks);
        !self.is_cut
    }

    /// Whether more was wanted than there was.
    pub fn is_cut(&self) -> bool {
        self.is_cut
    }

    /// Does a phase that may use up one part in so many of what is left. Being cut there is no end: the next phase goes on.
    pub fn phase<R>(&mut self, parts: usize, phase: impl FnOnce(&mut Budget) -> R) -> R {
        let most = self.left / parts;
        let mut part = Budget::new(most);
        let result = phase(&mut part);
        self.left -= most - part.left;
        result
    }
}
