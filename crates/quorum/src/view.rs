//! What is known of one quorum lock, for its guard.

use std::time::Duration;

use dlock_client::internal::{Moment, error, lost_by_the_end, of_keys, release_unknown};
use dlock_client::{Error, ErrorKind, Lost};

use crate::attempt::Standing;
use crate::tally::{Outcome, Tally};

/// What the guard sees.
#[derive(Clone, Debug)]
pub(crate) struct View {
    pub(crate) standing: Standing,
    /// The lock is certain until then.
    pub(crate) until: Moment,
    /// What the servers said of its release.
    pub(crate) tally: Tally,
    /// `max_hold`: the lock is lost then.
    pub(crate) ends_by: Moment,
    /// It was given up then.
    pub(crate) overdue: bool,
    /// It was given up because one of the clients closes.
    pub(crate) closed: bool,
    /// It is over, and nothing more will be answered.
    pub(crate) settled: bool,
    /// The first thing that a server said is wrong.
    pub(crate) error: Option<Error>,
}

impl View {
    pub(crate) fn lost(&self) -> Option<Lost> {
        match self.standing {
            Standing::Held { .. } if self.until > Moment::now() => None,
            Standing::Held { .. } if self.until == self.ends_by => Some(Lost::MaxHold),
            Standing::Released if self.overdue => Some(Lost::MaxHold),
            Standing::Held { .. } | Standing::Expired => Some(Lost::Expired),
            Standing::Refused => Some(Lost::Refused),
            Standing::Released if self.closed => Some(Lost::Closed),
            Standing::Pending | Standing::Failed { .. } | Standing::Released => None,
        }
    }

    pub(crate) fn valid_for(&self) -> Duration {
        match self.standing {
            Standing::Held { .. } => self.until.since(Moment::now()),
            _ => Duration::ZERO,
        }
    }

    /// What its release found. `lost`: how it was lost before that.
    pub(crate) fn released(
        &self,
        lost: Option<Lost>,
        majority: usize,
        keys: Vec<Vec<u8>>,
    ) -> Result<(), Error> {
        match (lost, self.tally.outcome(majority)) {
            (Some(reason), _) => Err(of_keys(lost_by_the_end(reason), keys)),
            (None, Outcome::Released) => Ok(()),
            (None, Outcome::Lost) => Err(of_keys(lost_by_the_end(Lost::Refused), keys)),
            (None, Outcome::Unknown) => Err(of_keys(release_unknown(), keys)),
            (None, Outcome::Silent) => {
                let text = format!("only {} servers released it in time", self.tally.released);
                Err(no_quorum(self.tally.released, majority, text))
            }
        }
    }
}

/// The error of a lock that too few servers have.
pub(crate) fn no_quorum(granted: usize, wanted: usize, text: String) -> Error {
    let number = |number| u32::try_from(number).unwrap_or(u32::MAX);
    error(ErrorKind::NoQuorum { granted: number(granted), wanted: number(wanted) }, text)
}
