//! What an acquire does next: the pseudocode of docs/protocol.md, without I/O.
//!
//! Time, replies and messages are arguments; what is to be sent is the result. `crates/models` explores it.

use std::time::Duration;

use super::hold_state::{Asked, LeaseTerms};
use super::patience::{LAST, Patience, Seen};
use crate::base::clock::{Moment, certain};
use crate::base::lost::Lost;

/// Messages other than that of the grant have a wait ask again at most that often.
const HINTS: Duration = Duration::from_millis(100);
/// How long a call that blocks waits for a connection, before it asks without one.
pub(crate) const POLL: Duration = Duration::from_secs(1);
/// Before a grant that is to be confirmed asks again for a connection: others are freed soon.
const CONNECTION: Duration = Duration::from_millis(10);

/// How long an acquire lasts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Limit {
    /// It does not wait for the lock: until then it waits for an answer.
    Try(Moment),
    /// It waits for the lock until then.
    At(Moment),
    Never,
}

impl Limit {
    pub(crate) fn end(self) -> Moment {
        match self {
            Self::Try(end) | Self::At(end) => end,
            Self::Never => Moment::NEVER,
        }
    }
}

/// What one acquire asks for, as far as it decides what is sent when.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Rules {
    pub(crate) limit: Limit,
    /// Of the hold.
    pub(crate) terms: LeaseTerms,
    /// The lease that the copies ask for.
    pub(crate) lease: Duration,
    pub(crate) queue: Duration,
    /// The longest time that one call blocks a connection. None: it waits for messages.
    pub(crate) block: Option<Duration>,
    /// The first copy does not block.
    pub(crate) asks_first: bool,
    /// Replicas have to confirm the grant: they are asked behind a renewal, on a connection of its own.
    pub(crate) confirms: bool,
}

/// How a copy of the request waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Copy {
    Now,
    Queue,
    /// On a connection of its own.
    Block(Duration),
}

/// What the reply to a copy says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Answer {
    Granted,
    Null,
    Spent,
    Passing,
    Final,
    /// None came. `is_late`: the connection still stands.
    None {
        is_late: bool,
    },
}

/// What a message says of the request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Heard {
    Granted,
    Replaced,
    /// The next copy asks. Perhaps a hold of the request has ended so.
    Other(Option<Lost>),
}

/// What is to be done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub(crate) enum Step {
    /// Nothing until [`Acquire::wake_at`].
    Rest,
    Send(Copy),
    /// Renew the grant at hand: it does not count before.
    Renew,
    /// It is held. The hold is certain by this request.
    Held(Asked),
    Over(End),
}

/// How an acquire ends without a hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum End {
    /// The time is over, and a server was there.
    NotGranted,
    /// The time is over, and no server was there.
    Unavailable,
    Replaced,
    /// The last reply says why.
    Refused,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Phase {
    /// A copy is on its way. `is_last`: it was sent when the time was over.
    Asking {
        is_last: bool,
        copy: Copy,
    },
    /// In the queue of the server.
    Waiting,
    /// Until the next copy.
    Pausing,
    /// The renewal that makes a grant count is on its way, at most until then.
    Renewing(Moment),
    Over,
}

/// See the module.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
#[expect(clippy::struct_excessive_bools, reason = "each is a fact of its own")]
pub(crate) struct Acquire {
    rules: Rules,
    phase: Phase,
    patience: Patience,
    wake_at: Moment,
    /// When the first copy was sent.
    first: Option<Moment>,
    /// When the last one was.
    sent: Moment,
    /// The server may have something of the request.
    pub(crate) is_pending: bool,
    /// A copy had no reply, and may arrive later.
    is_doubtful: bool,
    /// The last message since the last copy.
    heard: Option<Heard>,
    /// No connection was left for the last copy that was to block.
    polls: bool,
    /// The request has ended: it goes on with another id.
    pub(crate) begins_anew: bool,
}

impl Acquire {
    pub(crate) fn new(rules: Rules, retry_for: Duration, now: Moment) -> Self {
        Self {
            rules,
            phase: Phase::Pausing,
            patience: Patience::new(retry_for, true, now),
            wake_at: now,
            first: None,
            sent: now,
            is_pending: false,
            is_doubtful: false,
            heard: None,
            polls: false,
            begins_anew: false,
        }
    }

    /// When [`Acquire::tick`] is due.
    pub(crate) fn wake_at(&self) -> Moment {
        self.wake_at
    }

    /// Whether it waits for a message, or on a connection of its own.
    pub(crate) fn waits(&self) -> bool {
        matches!(self.phase, Phase::Waiting | Phase::Asking { copy: Copy::Block(_), .. })
    }

    /// Whether nothing of it is on its way.
    pub(crate) fn rests(&self) -> bool {
        matches!(self.phase, Phase::Waiting | Phase::Pausing)
    }

    /// A message that came, and that no copy has asked about since.
    pub(crate) fn heard_end(&self) -> Option<Lost> {
        match self.heard {
            Some(Heard::Other(how)) => how,
            _ => None,
        }
    }

    /// What is sent has its reply by then, or the call ends without.
    fn last(&self) -> Moment {
        self.rules.limit.end().after(LAST)
    }

    pub(crate) fn send(&mut self, now: Moment) -> Step {
        let left = match self.rules.limit {
            Limit::Try(_) => Duration::ZERO,
            Limit::At(end) => end.since(now),
            Limit::Never => Duration::MAX,
        };
        let is_polled = std::mem::take(&mut self.polls);
        let copy = match self.rules.block {
            _ if left.is_zero() => Copy::Now,
            None => Copy::Queue,
            Some(_) if is_polled || (self.rules.asks_first && self.first.is_none()) => Copy::Now,
            Some(longest) => Copy::Block(longest.min(left)),
        };
        // The server answers a call that blocks when its time is over.
        let block = if let Copy::Block(time) = copy { time + POLL } else { Duration::ZERO };
        self.wake_at = now.after((block + self.patience.left(now)).max(LAST)).min(self.last());
        let is_last = left.is_zero() && !matches!(self.rules.limit, Limit::Try(_));
        self.phase = Phase::Asking { is_last, copy };
        self.heard = None;
        Step::Send(copy)
    }

    /// No connection is left for what was to block: a copy asks without one, after a pause, and a renewal waits for
    /// one.
    pub(crate) fn may_not_block(&mut self, now: Moment) -> Step {
        match self.phase {
            Phase::Renewing(end) => {
                self.polls = true;
                self.wake_at = now.after(CONNECTION).min(end);
                Step::Rest
            }
            // It has a place: messages tell it as much.
            _ if !self.rules.asks_first => {
                self.rules.block = None;
                self.send(now)
            }
            _ => {
                self.polls = true;
                self.phase = Phase::Pausing;
                self.wake_at = now.after(POLL).min(self.rules.limit.end());
                Step::Rest
            }
        }
    }

    /// The copy, or the renewal, leaves this client now.
    pub(crate) fn written(&mut self, now: Moment) {
        if matches!(self.phase, Phase::Asking { .. }) {
            self.sent = now;
            self.first.get_or_insert(now);
        }
        self.is_pending = true;
    }

    /// A reply to the copy that was sent last, or that none came.
    pub(crate) fn replied(&mut self, now: Moment, answer: Answer, jitter: f64) -> Step {
        let Phase::Asking { is_last, .. } = self.phase else { return Step::Rest };
        let seen = match answer {
            Answer::None { is_late: true } => Seen::Late,
            Answer::None { is_late: false } => Seen::Lost,
            Answer::Passing | Answer::Spent => Seen::Passing,
            // Whether it counts is still to be seen.
            Answer::Granted if self.rules.confirms => Seen::Passing,
            Answer::Granted | Answer::Null | Answer::Final => Seen::Answer,
        };
        self.patience.saw(seen);
        self.is_doubtful |= matches!(answer, Answer::None { .. }) && self.is_pending;
        // Of several locks, one whose request is spent may still have some.
        let ends = answer == Answer::Spent;
        let is_try = matches!(self.rules.limit, Limit::Try(_));
        self.is_pending &= !is_try || ends || answer == Answer::Granted || self.is_doubtful;
        match answer {
            Answer::Granted => {
                let asked = Asked { sent: self.sent, lease: self.rules.lease };
                self.granted(now, asked)
            }
            Answer::Null if is_try || is_last => self.over(End::NotGranted),
            Answer::Null if self.rules.block.is_some() => self.send(now),
            Answer::Null => {
                self.phase = Phase::Waiting;
                self.wake_at = now.after(self.rules.queue / 2).min(self.rules.limit.end());
                self.heard.map_or(Step::Rest, |heard| self.heard(now, heard))
            }
            Answer::Final => self.over(End::Refused),
            Answer::Spent | Answer::Passing | Answer::None { .. } => {
                self.failed(now, seen, ends, jitter)
            }
        }
    }

    /// The reply to the renewal of the grant: when that was sent, if it counts; None: it does not.
    pub(crate) fn renewed(
        &mut self,
        now: Moment,
        renewed: Result<Asked, Seen>,
        jitter: f64,
    ) -> Step {
        if !matches!(self.phase, Phase::Renewing(_)) {
            return Step::Rest;
        }
        match renewed {
            Ok(asked) if now < self.rules.terms.certain_until(asked) => {
                self.patience.saw(Seen::Answer);
                self.phase = Phase::Over;
                Step::Held(asked)
            }
            other => {
                let seen = other.err().unwrap_or(Seen::Passing);
                self.patience.saw(seen);
                self.failed(now, seen, true, jitter)
            }
        }
    }

    /// A message about the request.
    pub(crate) fn heard(&mut self, now: Moment, heard: Heard) -> Step {
        self.heard = Some(heard);
        match (self.phase, heard) {
            (Phase::Waiting, Heard::Granted) => {
                self.heard = None;
                // It may answer any copy.
                let sent = self.first.unwrap_or(self.sent);
                let asked = Asked { sent, lease: self.rules.lease };
                self.granted(now, asked)
            }
            (Phase::Waiting, Heard::Replaced) => self.over(End::Replaced),
            (Phase::Waiting, Heard::Other(_)) => {
                self.phase = Phase::Pausing;
                self.wake_at = self.wake_at.min(self.sent.after(HINTS).max(now));
                Step::Rest
            }
            _ => Step::Rest,
        }
    }

    /// The time has come. `is_up`: the connection to the server stands.
    pub(crate) fn tick(&mut self, now: Moment, is_up: bool, jitter: f64) -> Step {
        if now < self.wake_at {
            return Step::Rest;
        }
        let seen = if is_up { Seen::Late } else { Seen::Lost };
        match self.phase {
            Phase::Asking { .. } => self.replied(now, Answer::None { is_late: is_up }, jitter),
            Phase::Renewing(end) if std::mem::take(&mut self.polls) && now < end => {
                self.wake_at = end;
                Step::Renew
            }
            Phase::Renewing(_) => self.renewed(now, Err(seen), jitter),
            Phase::Waiting | Phase::Pausing => self.send(now),
            Phase::Over => Step::Rest,
        }
    }

    /// A grant that this request made, which is renewed before it counts if less than half of its time is left, or
    /// replicas have to confirm it.
    fn granted(&mut self, now: Moment, asked: Asked) -> Step {
        let span = certain(self.rules.terms.promised(asked.lease));
        if self.rules.confirms || asked.sent.after(span).since(now) < span / 2 {
            self.wake_at = now.after(self.patience.left(now)).min(self.last());
            self.phase = Phase::Renewing(self.wake_at);
            return Step::Renew;
        }
        self.phase = Phase::Over;
        Step::Held(asked)
    }

    /// Another attempt, unless the time is over. `ends`: the request has ended, or is ended for what it got.
    fn failed(&mut self, now: Moment, seen: Seen, ends: bool, jitter: f64) -> Step {
        let rest = self.rules.limit.end().since(now);
        let is_answered_try = matches!(self.rules.limit, Limit::Try(_)) && seen == Seen::Passing;
        let pause = self.patience.pause(now, seen, self.sent, jitter);
        if rest.is_zero() || is_answered_try {
            let is_answered = self.patience.is_answered;
            return self.over(if is_answered { End::NotGranted } else { End::Unavailable });
        }
        let Some(pause) = pause else { return self.over(End::Unavailable) };
        if ends {
            self.begins_anew = true;
            (self.first, self.is_pending, self.is_doubtful) = (None, false, false);
        }
        self.phase = Phase::Pausing;
        self.wake_at = now.after(pause.min(rest));
        Step::Rest
    }

    fn over(&mut self, end: End) -> Step {
        self.phase = Phase::Over;
        Step::Over(end)
    }
}
