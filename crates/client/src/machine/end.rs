//! The end of the client: closed, or with its runtime.

use super::calls::{Outcome, Replies};
use super::{Action, Machine, Phase};
use crate::base::clock::Moment;
use crate::base::error::Error;
use crate::base::lost::Lost;

impl Machine {
    /// Why nothing can be sent any more, if that is so.
    pub(crate) fn refusal(&self) -> Option<Error> {
        match self.phase {
            Phase::Open | Phase::Closing => None,
            Phase::Closed => Some(Error::closed()),
            Phase::Abandoned => Some(Error::abandoned()),
        }
    }

    /// Why nothing can be taken any more, if that is so.
    pub(crate) fn no_admission(&self) -> Option<Error> {
        match self.phase {
            Phase::Open => None,
            Phase::Closing | Phase::Closed => Some(Error::closed()),
            Phase::Abandoned => Some(Error::abandoned()),
        }
    }

    pub(super) fn end_phase(&mut self, phase: Phase) -> bool {
        let advances = self.phase < phase;
        if advances {
            self.phase = phase;
            self.effects.changes = true;
        }
        advances
    }

    /// Whether no release is under way.
    pub(crate) fn is_clean(&self) -> bool {
        self.cleanups == 0
    }

    /// Something delays the end of the client, until [`Machine::cleaned`].
    pub(crate) fn begin_cleanup(&mut self) {
        self.cleanups += 1;
    }

    pub(crate) fn cleaned(&mut self) {
        self.cleanups = self.cleanups.saturating_sub(1);
        // Only a client that closes waits for that.
        self.effects.changes |= self.phase != Phase::Open && self.is_clean();
    }

    /// Ends what may take something, and releases every hold. True for the first to say so.
    pub(crate) fn close(&mut self, now: Moment) -> bool {
        if !self.end_phase(Phase::Closing) {
            return false;
        }
        let taking = self.calls.iter().filter(|(_, running)| !running.is_detached);
        let taking: Vec<_> = taking.map(|(id, _)| *id).collect();
        for id in taking {
            self.refuse(id, &Error::closed(), now);
        }
        let holds: Vec<_> = self.holds.all().cloned().collect();
        for hold in holds {
            hold.lose(Lost::Closed);
            self.release_later(&hold, now);
        }
        true
    }

    /// A call gets that error, unless it goes on without anybody.
    pub(super) fn refuse(&mut self, id: u64, error: &Error, now: Moment) {
        self.unblock(id);
        let Some(running) = self.calls.get_mut(&id).filter(|running| running.outcome.is_none())
        else {
            return;
        };
        let is_taking = running.reqid.is_some() || running.call.waits();
        if self.phase == Phase::Closing && !is_taking {
            return;
        }
        let outcome = if running.reqid.is_some() {
            Outcome::NotHeld(Some(error.clone()))
        } else {
            let values = vec![Err(error.clone())];
            Outcome::Answered(Replies { values, confirmed: None, sent: now })
        };
        if self.phase == Phase::Closing {
            running.call.leave(now);
        }
        running.copy += 1;
        self.done(id, outcome, now);
    }

    /// Nothing is sent from now on.
    pub(crate) fn shut(&mut self, now: Moment) {
        self.has_failed |= !self.is_clean();
        if self.end_phase(Phase::Closed) {
            self.end_calls(&Error::closed(), now);
        }
    }

    /// The runtime of the client is ending: every hold is lost.
    pub(crate) fn abandon(&mut self, now: Moment) {
        if self.phase < Phase::Closed && self.end_phase(Phase::Abandoned) {
            self.holds.all().for_each(|hold| hold.lose(Lost::Abandoned));
            self.end_calls(&Error::abandoned(), now);
        }
    }

    pub(super) fn end_calls(&mut self, error: &Error, now: Moment) {
        let calls: Vec<_> = self.calls.keys().copied().collect();
        for id in calls {
            self.refuse(id, error, now);
        }
        self.actions.extend((0..self.servers.all.len()).map(Action::Close));
    }

    /// Whether the client was closed, not abandoned, and whether all was released.
    pub(crate) fn closed(&self) -> Result<(), Error> {
        match self.phase {
            Phase::Abandoned => Err(Error::abandoned()),
            _ if self.has_failed => Err(Error::unavailable(
                "closed before the server confirmed every release: the rest ends with its lease",
            )),
            _ => Ok(()),
        }
    }
}
