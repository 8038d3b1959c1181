//! What a release tells of the hold.

use super::HoldState;
use crate::base::clock::Moment;
use crate::base::error::{Error, ErrorKind};
use crate::base::lost::Lost;

/// What a server says that has released nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Refusal {
    NotHeld,
    /// An earlier copy found nothing.
    Spent,
    /// The key has another type: it was overwritten.
    WrongType,
}

/// What the server said of a release.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ReleaseReply {
    /// The hold was in force when the first copy came.
    Released,
    /// It was not, for this reason.
    Gone(Lost),
    /// Nothing is held now, and the server may have forgotten the first copy, or not have had the hold.
    Forgotten,
}

/// What a release found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// The hold was in force until then.
    Released,
    Lost(Lost),
    /// One or the other.
    Unknown,
}

impl ReleaseReply {
    /// A refusal after that many copies without an answer. `is_first_server`: the first copy went over the connection
    /// that was up when the release began. If not, it may have waited for a server that never had the hold, or lost it
    /// after the work.
    pub(crate) fn refused(refusal: Refusal, unanswered: u32, is_first_server: bool) -> Self {
        // Of several copies, a later one may have found nothing, after the server had forgotten the first.
        match (refusal, unanswered) {
            (Refusal::NotHeld, 0) | (Refusal::Spent, 1) if is_first_server => {
                Self::Gone(Lost::Refused)
            }
            (Refusal::WrongType, 0) if is_first_server => Self::Gone(Lost::Deleted),
            _ => Self::Forgotten,
        }
    }

    /// As [`ReleaseReply::refused`]. `up`: the connection that was up when the release began; 0: none. None: the error
    /// says nothing of the hold.
    pub(crate) fn of(error: &Error, up: u64) -> Option<Self> {
        let refusal = match error.kind() {
            ErrorKind::NotHeld => Refusal::NotHeld,
            ErrorKind::Spent => Refusal::Spent,
            ErrorKind::WrongType => Refusal::WrongType,
            _ => return None,
        };
        Some(Self::refused(refusal, error.unanswered(), error.is_first_over(up)))
    }
}

impl HoldState {
    /// What a release found, by a reply that came at `now`. A loss that is known already is one with any reply that
    /// reports no hold.
    pub(crate) fn released(&self, now: Moment, alive: Moment, reply: ReleaseReply) -> Verdict {
        match (reply, self.lost()) {
            (ReleaseReply::Released, _) => Verdict::Released,
            (_, Some(how)) => Verdict::Lost(how),
            (ReleaseReply::Gone(how), None) if now < self.deadline(alive) => Verdict::Lost(how),
            // The hold may have ended while the release was on its way, after the work.
            (ReleaseReply::Gone(_) | ReleaseReply::Forgotten, None) => Verdict::Unknown,
        }
    }
}
