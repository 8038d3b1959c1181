//! What the client knows of one hold: until when it is certain, and how it ended.
//!
//! A pure state machine. Time is an argument, and nothing here sends, waits or locks. The promise behind every
//! transition: while [`HoldState::lost`] and [`HoldState::has_ended`] deny it, no other client can have the hold by
//! expiry or by the loss of a connection that this client knows of. Requests and replies may be delayed, lost or
//! reordered. `crates/models` checks that for all interleavings up to a bound.

pub(super) mod release;

use std::time::Duration;

pub(crate) use self::release::{ReleaseReply, Verdict};
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
    /// Granted by a message, and not yet claimed by a renewal.
    pub(crate) unclaimed: bool,
    /// `max_hold`: the hold is lost then, however often it was renewed.
    pub(crate) ends_by: Option<Moment>,
    /// No other task acts for the owner.
    pub(crate) own_name: bool,
}

/// A renewal on its way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct InflightRenewal {
    /// 1 for the first renewal of the hold.
    pub(super) number: u64,
    pub(super) sent: Moment,
    pub(super) lease: Duration,
    /// The shared connection that it is sent over; 0: unknown.
    pub(super) over: u64,
    /// [`HoldState::disconnects`] when it was sent.
    pub(super) disconnects: u64,
}

impl LeaseTerms {
    /// The time of a binding for which its connection is probed. A hold that ends with its connection is not certain
    /// for any time after a probe.
    pub(crate) fn probed(self) -> Option<Duration> {
        self.bind.filter(|bind| !bind.is_zero())
    }
}

impl InflightRenewal {
    /// It was sent over that shared connection.
    pub(crate) fn is_over(self, generation: u64) -> bool {
        self.over == generation
    }

    pub(crate) fn lease(self) -> Duration {
        self.lease
    }

    pub(crate) fn sent(self) -> Moment {
        self.sent
    }

    /// The hold is certain until then if the server accepts this renewal.
    pub(crate) fn until(self) -> Moment {
        self.sent.after(certain(self.lease))
    }
}

/// What the server said of a renewal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RenewalReply {
    /// It accepted the only copy.
    Accepted,
    /// It accepted one of several copies. Another copy may arrive later.
    AcceptedCopy,
    /// It accepted the only copy, and too few replicas have it in time: after a failover, another server may not know
    /// it.
    Unconfirmed,
    /// It refused. No copy arrives later.
    Refused,
    /// No reply: a copy may arrive at any later time.
    Unknown,
}

impl RenewalReply {
    pub(crate) fn is_accepted(self) -> bool {
        matches!(self, Self::Accepted | Self::AcceptedCopy)
    }

    /// Its word in metrics, which stays as it is: dashboards count on it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Accepted | Self::AcceptedCopy => "accepted",
            Self::Unconfirmed => "unconfirmed",
            Self::Refused => "refused",
            Self::Unknown => "unanswered",
        }
    }
}

/// Renewals that may still arrive at the server, over connections that this side has given up. One that arrives after a
/// later renewal sets the end of the lease to its own, and binds the hold to a connection that is closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Stray {
    /// The shortest of their leases.
    pub(super) lease: Duration,
    /// When the youngest was sent.
    pub(super) sent: Moment,
}

/// For this long a copy may be on its way. The server remembers requests for as long (`dlock.request-memory-ms`).
const STRAY_FOR: Duration = Duration::from_secs(60);

/// Renewals of one hold that are tracked one by one. Older ones count as if their replies had been lost.
const INFLIGHT_MAX: usize = 8;

/// What a transition changed that others track.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub(crate) enum Change {
    /// Nothing. The deadline may be later than before: timers find that out when they fire.
    Nothing,
    /// The deadline is earlier than before: timers must be set again.
    Earlier,
    /// The hold is lost now.
    Lost(Lost),
    /// The hold is being released: it needs no renewals and no timer.
    Ended,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Phase {
    Active,
    Lost(Lost),
    /// Being released, or released.
    Ended,
}

/// When to renew a hold that lasts for less than the others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RenewAt {
    /// From then on together with another one.
    pub(crate) from: Moment,
    pub(crate) by: Moment,
    /// After that it is time for the next renewal.
    pub(crate) within: Duration,
}

/// See the module's documentation. A bound hold is certain for its binding after its connection was last known alive:
/// methods that depend on that get the moment as `alive`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct HoldState {
    pub(super) terms: LeaseTerms,
    pub(super) phase: Phase,
    /// The hold is certain until then, as far as its lease and lost connections tell.
    pub(super) deadline: Moment,
    /// The end of the lease, ignoring any shortening after a disconnect.
    pub(super) lease_ends: Moment,
    /// Its connection was lost, and no renewal has bound it to another one since.
    pub(super) unbound: bool,
    /// Lost connections that the hold was, or may have been, bound to.
    pub(super) disconnects: u64,
    /// Renewals sent.
    pub(super) renewals: u64,
    /// When the last of them was sent, or the hold was granted.
    pub(super) renewed: Moment,
    /// Renewals without a reply, oldest first.
    pub(super) inflight: Vec<InflightRenewal>,
    pub(super) stray: Option<Stray>,
    pub(super) release_begun: bool,
}

impl HoldState {
    /// A hold of this moment that is certain until `deadline`.
    pub(crate) fn new(terms: LeaseTerms, now: Moment, deadline: Moment) -> Self {
        let deadline = terms.ends_by.map_or(deadline, |ends_by| ends_by.min(deadline));
        Self {
            terms,
            phase: Phase::Active,
            deadline,
            lease_ends: deadline,
            unbound: false,
            disconnects: 0,
            renewals: 0,
            renewed: now,
            inflight: Vec::new(),
            stray: None,
            release_begun: false,
        }
    }

    pub(crate) fn terms(&self) -> LeaseTerms {
        self.terms
    }

    /// The hold is certain until then.
    pub(crate) fn deadline(&self, alive: Moment) -> Moment {
        match self.terms.probed() {
            Some(bind) if !self.unbound => self.deadline.min(alive.after(certain(bind))),
            _ => self.deadline,
        }
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
    pub(crate) fn valid_for(&self, now: Moment, alive: Moment) -> Duration {
        if self.has_ended() { Duration::ZERO } else { self.deadline(alive).since(now) }
    }

    /// How long from `now` its lease is to last: as it was before it lost its connection, if the watchdog binds it
    /// again.
    pub(crate) fn wanted_for(&self, now: Moment) -> Duration {
        let until = if self.unbound { self.lease_ends } else { self.deadline };
        if self.has_ended() { Duration::ZERO } else { until.since(now) }
    }

    /// When the watchdog is to renew it next, or to bind it again; None: never, or with all holds, because it lasts for
    /// `usual`. A hold that a stray renewal may unbind is certain for less than its lease.
    pub(crate) fn renew_at(&self, usual: Duration) -> Option<RenewAt> {
        let lease = self.terms.watched.then_some(self.terms.lease);
        let bind = self.terms.probed().filter(|_| self.unbound);
        let lasts = lease.into_iter().chain(bind).min()?;
        let renew_at = RenewAt {
            from: self.renewed.after(lasts / 4),
            by: self.renewed.after(lasts / 3),
            within: lasts / 3,
        };
        (lasts < usual && !self.has_ended()).then_some(renew_at)
    }

    /// The watchdog has to bind it to the current connection.
    pub(crate) fn is_unbound(&self) -> bool {
        self.unbound && !self.has_ended()
    }

    /// Lost by its deadline, whether or not a timer has noticed.
    pub(crate) fn expire(&mut self, now: Moment, alive: Moment) -> Change {
        if now < self.deadline(alive) {
            return Change::Nothing;
        }
        let deadline = self.deadline(alive);
        let is_max_hold = self.terms.ends_by.is_some_and(|ends_by| ends_by <= deadline);
        self.lose(if is_max_hold { Lost::MaxHold } else { Lost::Expired })
    }

    /// Not later than `max_hold` lets the hold last.
    pub(super) fn capped(&self, moment: Moment) -> Moment {
        self.terms.ends_by.map_or(moment, |ends_by| ends_by.min(moment))
    }

    /// The lease to request instead of `lease`, so that the server's hold outlasts `max_hold` by no more than the
    /// margin for clocks.
    pub(crate) fn capped_lease(&self, now: Moment, lease: Duration) -> Duration {
        let rest = self.terms.ends_by.map(|ends_by| ends_by.since(now));
        rest.map_or(lease, |rest| lease_for(rest).min(lease))
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

    /// Sets the lease of later renewals.
    pub(crate) fn set_lease(&mut self, lease: Duration) {
        self.terms.lease = lease;
    }

    /// The hold is bound, and a lost connection shortens it to this time.
    pub(crate) fn bind_within(&mut self, bind: Duration) -> Change {
        self.terms.bind = Some(bind);
        if self.has_ended() { Change::Nothing } else { Change::Earlier }
    }

    /// The lease of a renewal that only binds the hold to a connection: the rest of its lease, at least 1 ms.
    pub(crate) fn rest_of_lease(&self, now: Moment) -> Duration {
        self.lease_ends.since(now).max(Duration::from_millis(1))
    }

    /// A renewal is about to be sent over connection `over` (0: unknown). The hold may now end when that lease does:
    /// the server may receive the request at any time, and its reply may be lost.
    pub(crate) fn begin_renewal(
        &mut self,
        now: Moment,
        lease: Duration,
        over: u64,
    ) -> (InflightRenewal, Change) {
        self.renewals += 1;
        self.renewed = now;
        let number = self.renewals;
        let renewal =
            InflightRenewal { number, sent: now, lease, over, disconnects: self.disconnects };
        if self.inflight.len() == INFLIGHT_MAX {
            let oldest = self.inflight.remove(0);
            self.add_stray(oldest.lease, oldest.sent);
        }
        self.inflight.push(renewal);
        (renewal, self.not_after(renewal.until()))
    }

    /// The reply to that renewal; `connection` is the shared connection that is up (0: none), and was alive at `alive`.
    /// A hold that expired in the meantime stays lost, because other tasks may have seen that.
    pub(crate) fn end_renewal(
        &mut self,
        now: Moment,
        renewal: InflightRenewal,
        reply: RenewalReply,
        connection: u64,
        alive: Moment,
    ) -> Change {
        self.inflight.retain(|other| other.number != renewal.number);
        if matches!(reply, RenewalReply::AcceptedCopy | RenewalReply::Unknown) {
            self.add_stray(renewal.lease, renewal.sent);
        }
        if !reply.is_accepted() {
            return Change::Nothing;
        }
        if let lost @ Change::Lost(_) = self.expire(now, alive) {
            return lost;
        }
        if self.has_ended() {
            return Change::Nothing;
        }
        self.terms.unclaimed = false;
        // Replies may arrive in another order than the renewals were sent in. Only the last renewal sent tells the end.
        if renewal.number != self.renewals {
            return self.not_after(renewal.until());
        }
        self.lease_ends = self.capped(renewal.until());
        let lease = self.certain_lease(now, renewal);
        let until = self.capped(InflightRenewal { lease, ..renewal }.until());
        // A lost connection may have shortened the lease after the server received this renewal.
        let is_bound = renewal.disconnects == self.disconnects && renewal.over == connection;
        if self.terms.bind.is_some() && !is_bound {
            return self.not_after(until);
        }
        // A late copy of an earlier renewal would bind it to a closed connection: bind it again until that is over.
        self.unbound = self.terms.bind.is_some() && lease < renewal.lease;
        let before = std::mem::replace(&mut self.deadline, until);
        if until < before { Change::Earlier } else { Change::Nothing }
    }

    /// How much of the lease of an accepted renewal is certain: an earlier renewal may arrive at the server after it.
    pub(super) fn certain_lease(&self, now: Moment, renewal: InflightRenewal) -> Duration {
        let may_arrive = |sent| now.since(sent) < STRAY_FOR;
        // The server receives the requests of one connection in order.
        let is_overtaken = |other: &&InflightRenewal| {
            may_arrive(other.sent) && (other.over == 0 || other.over != renewal.over)
        };
        let overtaken = self.inflight.iter().filter(is_overtaken).map(|other| other.lease);
        let stray = self.stray.filter(|stray| may_arrive(stray.sent));
        let shortest = overtaken.chain(stray.map(|stray| stray.lease)).min();
        shortest.map_or(renewal.lease, |shortest| {
            let shortest = self.terms.bind.map_or(shortest, |bind| bind.min(shortest));
            shortest.min(renewal.lease)
        })
    }

    /// A renewal for this lease, of this hold or of another one that shares the server's hold, may still arrive at the
    /// server.
    pub(crate) fn add_stray(&mut self, lease: Duration, sent: Moment) {
        self.stray = Some(self.stray.map_or(Stray { lease, sent }, |stray| Stray {
            lease: stray.lease.min(lease),
            sent: stray.sent.max(sent),
        }));
    }

    /// A connection was lost that was alive at `alive`, and the hold may have been bound to it.
    pub(crate) fn disconnected(&mut self, alive: Moment) -> Change {
        let Some(bind) = self.terms.bind else { return Change::Nothing };
        self.disconnects += 1;
        self.unbound = true;
        self.not_after(alive.after(certain(bind)))
    }

    /// The server may end the hold at `moment`.
    pub(crate) fn not_after(&mut self, moment: Moment) -> Change {
        if moment >= self.deadline {
            return Change::Nothing;
        }
        self.deadline = moment;
        if self.has_ended() { Change::Nothing } else { Change::Earlier }
    }
}
