//! What a call knows of its server, and the pauses between its attempts.

use std::time::Duration;

use crate::base::clock::Moment;

/// What is sent when a time is over, or nearly, may take this much longer.
pub(crate) const LAST: Duration = Duration::from_millis(60);
const FIRST_PAUSE: Duration = Duration::from_millis(20);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// How a request was answered, as far as the next attempt is concerned.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Seen {
    /// A value, or a final error.
    Answer,
    /// An error that passes.
    Passing,
    /// No reply. The connection still stands: the server may only be slow.
    Late,
    /// No reply, and the connection is lost.
    Lost,
}

/// How long a call goes on without an answer.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Patience {
    /// For how long no server may have answered.
    limit: Duration,
    /// An error that passes is an answer, too.
    may_pass: bool,
    /// When the first request was sent that was not answered.
    since: Option<Moment>,
    attempts: u32,
    /// A server answered this call, and no connection has failed since.
    pub(crate) is_answered: bool,
}

impl Patience {
    pub(crate) fn new(limit: Duration, may_pass: bool, now: Moment) -> Self {
        Self { limit, may_pass, since: Some(now), attempts: 0, is_answered: false }
    }

    /// How much longer a request may go without a reply.
    pub(crate) fn left(&self, now: Moment) -> Duration {
        self.since.unwrap_or(now).after(self.limit).since(now).max(LAST)
    }

    /// Notes a reply, or that none came.
    pub(crate) fn saw(&mut self, seen: Seen) {
        match seen {
            Seen::Answer => {
                (self.is_answered, self.since, self.attempts) = (true, None, 0);
            }
            Seen::Passing => self.is_answered = true,
            Seen::Late => {}
            Seen::Lost => self.is_answered = false,
        }
    }

    /// How long to pause after a request that was sent then and did not help; None: no server has answered for too
    /// long. `jitter`: from 0 to 1, so that clients that lost the same server come back at different times.
    pub(crate) fn pause(
        &mut self,
        now: Moment,
        seen: Seen,
        sent: Moment,
        jitter: f64,
    ) -> Option<Duration> {
        self.attempts += 1;
        let passes = self.may_pass && seen == Seen::Passing;
        self.since = if passes { None } else { self.since.or(Some(sent)) };
        let left = self.since.map_or(Duration::MAX, |since| since.after(self.limit).since(now));
        let pause = FIRST_PAUSE * (1 << self.attempts.min(6));
        let pause = pause.min(LONGEST_PAUSE).mul_f64(0.5 + jitter / 2.0).min(left);
        (!left.is_zero()).then_some(pause)
    }
}
