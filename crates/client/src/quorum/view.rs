//! What is known of one quorum lock, for its guard.

use std::time::Duration;

use super::attempt::Standing;
use super::tally::{Outcome, Tally};
use crate::base::clock::Moment;
use crate::base::error::{Error, ErrorKind};
use crate::base::lost::{Lost, Released};

/// What the guard sees.
#[derive(Clone, Debug)]
pub(super) struct View {
    pub(super) standing: Standing,
    /// The lock is certain until then.
    pub(super) until: Moment,
    /// What the servers said of its release.
    pub(super) tally: Tally,
    /// `max_hold`: the lock is lost then.
    pub(super) ends_by: Moment,
    /// It was given up then.
    pub(super) overdue: bool,
    /// It was given up because one of the clients closes.
    pub(super) closed: bool,
    /// It is over, and nothing more will be answered.
    pub(super) settled: bool,
    /// The first thing that a server said is wrong.
    pub(super) error: Option<Error>,
}

impl View {
    pub(super) fn lost(&self) -> Option<Lost> {
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

    pub(super) fn valid_for(&self) -> Duration {
        match self.standing {
            Standing::Held { .. } => self.until.since(Moment::now()),
            _ => Duration::ZERO,
        }
    }

    /// What its release found. `lost`: how it was lost before that.
    pub(super) fn released(
        &self,
        lost: Option<Lost>,
        majority: usize,
        keys: Vec<Vec<u8>>,
    ) -> Result<Released, Error> {
        match (lost, self.tally.outcome(majority)) {
            (Some(reason), _) => Ok(Released::Gone { reason, keys }),
            (None, Outcome::Released) => Ok(Released::Remaining(0)),
            (None, Outcome::Lost) => Ok(Released::Gone { reason: Lost::Refused, keys }),
            (None, Outcome::Unknown) => Err(Error::release_unknown().of_keys(keys)),
            (None, Outcome::Silent) => {
                let text = format!("only {} servers released it in time", self.tally.released);
                Err(no_quorum(self.tally.released, majority, text))
            }
        }
    }
}

/// The error of a lock that too few servers have.
pub(super) fn no_quorum(granted: usize, wanted: usize, text: String) -> Error {
    let number = |number| u32::try_from(number).unwrap_or(u32::MAX);
    Error::new(ErrorKind::NoQuorum { granted: number(granted), wanted: number(wanted) }, text)
}
