//! Calls that wait for the end of a hold (AWAIT).

use crate::base::ids::QueueId;
use crate::base::key::Key;
use crate::ports::effects::{Effects, Outcome};
use crate::tables::Tables;
use dlock_wire::reply::HoldEnd;

impl Tables {
    /// The hold of a lock has ended.
    pub(crate) fn tell_observers(
        &mut self,
        key: Key<'_>,
        token: u64,
        how: HoldEnd,
        fx: &mut Effects,
    ) {
        self.recent_ends.note(token, how);
        if let Some(observers) = self.waits.observers_of(key) {
            if self.waits.observed(observers) == Some(token) {
                self.answer_all(observers, &Outcome::Ended(how), fx);
            } else {
                self.end_observed(observers, fx);
            }
        }
    }

    /// The hold that these observe is not there any more.
    pub(crate) fn end_observed(&mut self, observers: QueueId, fx: &mut Effects) {
        let token = self.waits.observed(observers);
        let how = token.and_then(|token| self.recent_ends.of(token));
        self.answer_all(observers, &Outcome::Ended(how.unwrap_or(HoldEnd::Deleted)), fx);
    }
}
