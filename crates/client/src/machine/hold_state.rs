//! What the client knows of one hold: until when it is certain, and how it ended.
//!
//! A pure state machine. Time is an argument, and nothing here sends, waits or locks. The promise behind every
//! transition: while [`HoldState::lost`] and [`HoldState::has_ended`] deny it, no other client can have the hold by
//! expiry or by the loss of a connection. Each answered request says that the hold lasts at least for its lease, or for
//! its binding if that is shorter, from when it was sent, and nothing takes that back. So requests and replies may be
//! delayed, lost, doubled or reordered. `crates/models` checks that for all interleavings up to a bound.

use std::time::Duration;

use crate::base::clock::{Moment, certain, lease_for};
use crate::base::lost::Lost;

/// How long a hold lasts, and what keeps it alive.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct LeaseTerms {
    /// The lease that each renewal requests.
    pub(crate) lease: Duration,
    /// The watchdog renews it.
    pub(crate) watched: bool,
    /// The server ends the hold this long after the loss of the connection that it is bound to.
    pub(crate) bind: Option<Duration>,
    /// `max_hold`: the hold is lost then, however often it was renewed.
    pub(crate) ends_by: Option<Moment>,
}

/// A request for a lease that was sent: an acquire or a renewal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Asked {
    /// When that copy was sent which was answered; of an acquire that a message answers, the first.
    pub(crate) sent: Moment,
    pub(crate) lease: Duration,
}

impl LeaseTerms {
    /// How long the answer to a request for that lease lets the hold last at least.
    pub(crate) fn promised(self, lease: Duration) -> Duration {
        self.bind.map_or(lease, |bind| bind.min(lease))
    }

    /// Until when that makes the hold certain.
    pub(crate) fn certain_until(self, asked: Asked) -> Moment {
        self.capped(asked.sent.after(certain(self.promised(asked.lease))))
    }

    /// Not later than `max_hold` lets the hold last.
    fn capped(self, moment: Moment) -> Moment {
        self.ends_by.map_or(moment, |ends_by| ends_by.min(moment))
    }
}

/// What the server said of a renewal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RenewalReply {
    Accepted,
    /// It accepted, and too few replicas have it in time: after a failover, another server may not know it.
    Unconfirmed,
    /// A final error, after which the hold may stand.
    Refused,
    /// An error that passes.
    Passing,
    /// No reply.
    Unknown,
}

impl RenewalReply {
    /// Its word in metrics, which stays as it is: dashboards count on it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Accepted => "accepted",
            Self::Unconfirmed => "unconfirmed",
            Self::Refused | Self::Passing => "refused",
            Self::Unknown => "unanswered",
        }
    }
}

/// What a transition changed that others track. The deadline only grows: timers find that out when they fire.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub(crate) enum Change {
    Nothing,
    /// The hold is lost now.
    Lost(Lost),
    /// The hold is being released: it needs no renewals and no timer.
    Ended,
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

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Phase {
    Active,
    Lost(Lost),
    /// Being released, or released.
    Ended,
}

/// The server is not asked for one hold more often than that because of messages.
const HINTS: Duration = Duration::from_millis(100);
/// Before a renewal that was not answered is sent again.
const SHORTEST_PAUSE: Duration = Duration::from_millis(10);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// See the module's documentation.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct HoldState {
    pub(super) terms: LeaseTerms,
    pub(super) phase: Phase,
    /// The hold is certain until then.
    pub(super) deadline: Moment,
    /// The end of its lease, ignoring its binding.
    pub(super) lease_ends: Moment,
    /// The last request for a lease that was answered.
    pub(super) answered: Asked,
    /// When the last request for a lease was sent.
    pub(super) asked: Moment,
    /// When to ask again.
    pub(super) renew_at: Moment,
    /// A message may be about its end: when it came, and how it ended if that is so.
    pub(super) hint: Option<(Moment, Lost)>,
    pub(super) release_begun: bool,
}

impl HoldState {
    /// A hold that this request was granted.
    pub(crate) fn new(terms: LeaseTerms, granted: Asked) -> Self {
        Self {
            terms,
            phase: Phase::Active,
            deadline: terms.certain_until(granted),
            lease_ends: terms.capped(granted.sent.after(certain(granted.lease))),
            answered: granted,
            asked: granted.sent,
            renew_at: granted.sent.after(terms.promised(granted.lease) / 3),
            hint: None,
            release_begun: false,
        }
    }

    pub(crate) fn terms(&self) -> LeaseTerms {
        self.terms
    }

    /// The hold is certain until then.
    pub(crate) fn deadline(&self) -> Moment {
        self.deadline
    }

    /// Lost, or being released.
    pub(crate) fn has_ended(&self) -> bool {
        self.phase != Phase::Active
    }

    /// How it was lost, if it was. An expired hold counts once [`HoldState::expire`] has seen it.
    pub(crate) fn lost(&self) -> Option<Lost> {
        match self.phase {
            Phase::Lost(how) => Some(how),
            Phase::Active | Phase::Ended => None,
        }
    }

    /// How long the hold is certain from `now` if nothing renews it.
    pub(crate) fn valid_for(&self, now: Moment) -> Duration {
        if self.has_ended() { Duration::ZERO } else { self.deadline.since(now) }
    }

    /// How long the last answer made it certain: the watchdog asks again after a third of that.
    pub(crate) fn span(&self) -> Duration {
        self.terms.promised(self.answered.lease)
    }

    /// The watchdog renews it from time to time: a bound hold with a lease of its own until only its lease counts.
    fn is_renewed(&self) -> bool {
        let rest = self.lease_ends.since(self.answered.sent);
        let lasts = self.terms.ends_by.is_some_and(|ends_by| ends_by <= self.deadline);
        !lasts && (self.terms.watched || self.terms.bind.is_some_and(|bind| bind < rest))
    }

    /// The time in which the watchdog renews it; `MAX`: it does not.
    pub(crate) fn renewed_within(&self) -> Duration {
        if self.is_renewed() { self.terms.promised(self.terms.lease) } else { Duration::MAX }
    }

    /// When to ask for it next; None: never.
    pub(crate) fn renew_by(&self) -> Option<Moment> {
        let asks = self.is_renewed() || self.hint.is_some();
        (asks && !self.has_ended()).then_some(self.renew_at)
    }

    /// Whether it is asked for, or soon will be: holds that were granted at different times are soon renewed together.
    pub(crate) fn is_due(&self, now: Moment) -> bool {
        self.renew_by().is_some_and(|by| by <= now.after(self.span() / 30))
    }

    /// A message may be about its end: the server is asked, but not too often.
    pub(crate) fn hint(&mut self, now: Moment, how: Lost) {
        let soon = self.asked.after(HINTS).max(now);
        self.renew_at = if self.is_renewed() { self.renew_at.min(soon) } else { soon };
        self.hint = Some((now, how));
    }

    /// It is asked for now: messages may have been missed. `how`: it may have ended so.
    pub(crate) fn ask(&mut self, now: Moment, how: Option<Lost>) -> Change {
        match how {
            Some(how) => self.hint(now, how),
            None if self.is_renewed() => self.renew_at = self.asked.after(HINTS).max(now),
            None => {}
        }
        Change::Nothing
    }

    /// How it was lost if the server says now that it does not have it.
    pub(crate) fn hinted(&self) -> Option<Lost> {
        self.hint.map(|(_, how)| how)
    }

    /// Lost by its deadline, whether or not a timer has noticed.
    pub(crate) fn expire(&mut self, now: Moment) -> Change {
        if now < self.deadline {
            return Change::Nothing;
        }
        let is_max_hold = self.terms.ends_by.is_some_and(|ends_by| ends_by <= self.deadline);
        self.lose(if is_max_hold { Lost::MaxHold } else { Lost::Expired })
    }

    /// The hold is lost. The first reason stays.
    pub(crate) fn lose(&mut self, how: Lost) -> Change {
        if self.has_ended() {
            return Change::Nothing;
        }
        self.phase = Phase::Lost(how);
        Change::Lost(how)
    }

    /// Ends it for its release.
    pub(crate) fn end(&mut self) -> Change {
        if self.has_ended() {
            return Change::Nothing;
        }
        self.phase = Phase::Ended;
        Change::Ended
    }

    /// True for the first call: only that one sends the release. A lost hold is released too: the server's clock may
    /// differ from ours, and of several locks perhaps only one is gone.
    pub(crate) fn begin_release(&mut self) -> bool {
        !std::mem::replace(&mut self.release_begun, true)
    }

    /// Its release has begun.
    pub(crate) fn is_released(&self) -> bool {
        self.release_begun
    }

    /// What that answer to its release means. A loss that was told stays one, and a lease that ended after the work
    /// covered it.
    pub(crate) fn released(&self, answer: Verdict) -> Verdict {
        match (self.lost(), answer) {
            (Some(how), _) => Verdict::Lost(how),
            (None, Verdict::Lost(Lost::Expired)) => Verdict::Released,
            (None, answer) => answer,
        }
    }

    /// Sets the lease of later renewals.
    pub(crate) fn set_lease(&mut self, lease: Duration) {
        self.terms.lease = lease;
    }

    /// The lease to request at `now` so that the hold lasts for as long as it should: of one that nothing else renews,
    /// the rest of its lease.
    pub(crate) fn lease(&self, now: Moment) -> Duration {
        if self.terms.watched {
            self.capped_lease(now, self.terms.lease)
        } else {
            self.lease_ends.since(now).max(Duration::from_millis(1))
        }
    }

    /// The lease to request instead of `lease`, so that the server's hold outlasts `max_hold` by no more than the
    /// margin for clocks.
    pub(crate) fn capped_lease(&self, now: Moment, lease: Duration) -> Duration {
        let rest = self.terms.ends_by.map(|ends_by| ends_by.since(now));
        rest.map_or(lease, |rest| lease_for(rest).min(lease))
    }

    /// A renewal is about to be sent. If no reply comes, another one is sent after a pause.
    pub(crate) fn begin_renewal(&mut self, now: Moment) -> Change {
        self.asked = now;
        let pause = (self.span() / 15).min(self.deadline.since(now) / 3).min(LONGEST_PAUSE);
        self.renew_at = now.after(pause.max(SHORTEST_PAUSE));
        Change::Nothing
    }

    /// The reply to a renewal. A hold that expired in the meantime stays lost, because other tasks may have seen that.
    pub(crate) fn end_renewal(&mut self, now: Moment, asked: Asked, reply: RenewalReply) -> Change {
        let change = self.expire(now);
        match reply {
            _ if self.has_ended() => {}
            RenewalReply::Accepted => {
                self.answered = asked;
                self.deadline = self.deadline.max(self.terms.certain_until(asked));
                let lease_ends = self.terms.capped(asked.sent.after(certain(asked.lease)));
                self.lease_ends = self.lease_ends.max(lease_ends);
                self.renew_at = asked.sent.after(self.span() / 3);
                // One that came since is not answered yet.
                self.hint = self.hint.filter(|(at, _)| *at > asked.sent);
                if self.hint.is_some() {
                    self.renew_at = self.asked.after(HINTS).max(now);
                }
            }
            RenewalReply::Refused => self.renew_at = asked.sent.after(self.span() / 3),
            RenewalReply::Passing | RenewalReply::Unconfirmed | RenewalReply::Unknown => {}
        }
        change
    }
}
