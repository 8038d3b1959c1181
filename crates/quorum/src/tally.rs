//! What the servers of a lock said of its release.

/// Counts the servers of which the lock was made, by what they said of its RELEASE.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tally {
    /// Servers that may have been part of the lock, and were sent a RELEASE.
    pub(crate) parts: usize,
    /// The hold stood.
    pub(crate) released: usize,
    /// It was gone before.
    pub(crate) gone: usize,
    /// One or the other: an earlier copy of the RELEASE got no answer.
    pub(crate) unknown: usize,
}

/// What that says of the lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// The holds of a majority stood.
    Released,
    /// Those of a majority did not.
    Lost,
    /// Those of a majority may have stood, and those that answered do not know.
    Unknown,
    /// Too few have answered.
    Silent,
}

impl Tally {
    /// `majority` of all servers, also of those that are not part of the lock.
    pub(crate) fn outcome(self, majority: usize) -> Outcome {
        if self.released >= majority {
            Outcome::Released
        } else if self.parts > 0 && self.parts.saturating_sub(self.gone) < majority {
            Outcome::Lost
        } else if self.released + self.unknown >= majority {
            Outcome::Unknown
        } else {
            Outcome::Silent
        }
    }

    /// More answers change nothing.
    pub(crate) fn is_decided(self, majority: usize) -> bool {
        let answered = self.released + self.gone + self.unknown;
        let settled = matches!(self.outcome(majority), Outcome::Released | Outcome::Lost);
        settled || (self.parts > 0 && answered == self.parts)
    }
}

#[cfg(test)]
mod tests {
    use super::{Outcome, Tally};

    fn outcome(parts: usize, released: usize, gone: usize, unknown: usize) -> (Outcome, bool) {
        let tally = Tally { parts, released, gone, unknown };
        (tally.outcome(2), tally.is_decided(2))
    }

    #[test]
    fn a_majority_of_three_servers_decides() {
        assert_eq!(outcome(0, 0, 0, 0), (Outcome::Silent, false));
        assert_eq!(outcome(3, 1, 1, 0), (Outcome::Silent, false));
        assert_eq!(outcome(3, 2, 0, 0), (Outcome::Released, true));
        assert_eq!(outcome(3, 2, 1, 0), (Outcome::Released, true));
        assert_eq!(outcome(3, 0, 2, 0), (Outcome::Lost, true));
        assert_eq!(outcome(3, 1, 2, 0), (Outcome::Lost, true));
        assert_eq!(outcome(3, 1, 0, 1), (Outcome::Unknown, false));
        assert_eq!(outcome(3, 1, 1, 1), (Outcome::Unknown, true));
        assert_eq!(outcome(3, 0, 1, 2), (Outcome::Unknown, true));
        // The third server was never part of it.
        assert_eq!(outcome(2, 1, 1, 0), (Outcome::Lost, true));
        assert_eq!(outcome(2, 1, 0, 0), (Outcome::Silent, false));
    }
}
