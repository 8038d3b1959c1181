//! The end of holds.

use crate::base::ids::{ALONE, HoldId};
use crate::base::kind::Kind;
use crate::base::time::Millis;
use crate::ports::answers::BROKEN;
use crate::ports::effects::Event;
use crate::ports::subject::subject;
use crate::step::Step;
use crate::tables::Tables;
use crate::value::lock::Lock;
use crate::value::resource::{Body, Ending, Resource};
use crate::value::spent::{LOST_LATCH, Loss, Use, spent_of};
use alloc::vec::Vec;
use dlock_wire::message::Event as Message;
use dlock_wire::reply::{ErrorCode, HoldEnd};
use dlock_wire::request::Mode;

/// Why a hold ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    Released,
    /// Released by its owner, who says that the work under it is done.
    Done,
    /// The grant could not be delivered. No request is over.
    Returned,
    Expired,
    Unclaimed,
    Disconnected,
    Broken,
}

impl End {
    /// How the requests of a hold that ended so are lost; `None`: the next copy of each of them counts as the first.
    fn loss(self) -> Option<Loss> {
        match self {
            Self::Released | Self::Done => Some(Loss::Released),
            Self::Expired | Self::Unclaimed => Some(Loss::Expired),
            Self::Disconnected => Some(Loss::Disconnected),
            Self::Broken => Some(Loss::Broken),
            Self::Returned => None,
        }
    }
}

impl From<End> for HoldEnd {
    fn from(end: End) -> Self {
        match end {
            End::Released => Self::Released,
            End::Done => Self::Done,
            End::Returned => Self::Returned,
            End::Expired => Self::Expired,
            End::Unclaimed => Self::Unclaimed,
            End::Disconnected => Self::Disconnected,
            End::Broken => Self::Broken,
        }
    }
}

impl Step<'_> {
    /// Ends the holds of a key that have expired, and hands off.
    pub(crate) fn end_expired(&mut self, resource: &mut Resource) {
        if self.is_away {
            return;
        }
        if !self.tables.regime.may_end() {
            return;
        }
        let mut ended = 0;
        while let Some((_, ending)) = resource.next_end().filter(|(at, _)| *at <= self.lease)
            && ended < self.ends_at_most
        {
            ended += 1;
            match ending {
                Ending::Delay => {
                    if let Some(lock) = resource.lock_mut() {
                        *lock = Lock::Free;
                    }
                    self.dirty = true;
                }
                Ending::Hold(id) => self.end_expired_hold(resource, id),
                Ending::Latch => self.expire_latch(resource),
            }
        }
        if ended > 0 {
            self.hand_off(resource);
        }
    }

    fn end_expired_hold(&mut self, resource: &mut Resource, id: HoldId) {
        let end = match resource.hold(id) {
            Some(hold) if hold.is_shortened() => End::Disconnected,
            Some(hold) if hold.unclaimed().is_some() => End::Unclaimed,
            _ => End::Expired,
        };
        self.end_hold(resource, id, end);
    }

    /// Ends one expired hold. If many holds have expired or lost their connection, a step ends only some of them. It
    /// never leaves out the holds that its call names: a call never works on an expired hold.
    pub(crate) fn end_if_expired(
        &mut self,
        resource: &mut Resource,
        about: impl Fn(&Resource) -> Vec<HoldId>,
    ) {
        let is_left = self.tables.connections.has_departed()
            || resource.next_end().is_some_and(|(at, _)| at <= self.lease);
        if !is_left || !self.tables.regime.may_end() {
            return;
        }
        let mut ended = false;
        for id in about(resource) {
            self.shorten_if_gone(resource, id);
            if resource.hold(id).is_some_and(|hold| hold.deadline <= self.lease) {
                self.end_expired_hold(resource, id);
                ended = true;
            }
        }
        if ended {
            self.hand_off(resource);
        }
        if self.granted {
            // Noted as a record of its own: the verb may end this hold again, and its token must not be lost.
            self.note_state(resource);
        }
    }

    /// Ends the hold under `id`. The caller hands off.
    pub(crate) fn end_hold(&mut self, resource: &mut Resource, id: HoldId, end: End) {
        let Some(hold) = resource.take_hold(id) else { return };
        self.observe_end(resource.kind(), id, &hold, end);
        self.tables
            .connections
            .unbind_hold(self.tables.leases.hold_ref(resource.key_id, id), &hold);
        self.dirty = true;
        if matches!(resource.kind(), Kind::Lock | Kind::Fair) {
            self.tables.tell_observers(self.key, hold.token, end.into(), self.fx);
        }
        if let Some(loss) = end.loss() {
            for (name, what) in spent_of(resource.kind(), id, &hold, loss) {
                self.note_spent(name, what);
            }
        }
        if let Body::Rw(rw) = &resource.body
            && let Some(queue) = self.tables.waits.queue_of(self.key)
            && rw.find(&hold.owner, Mode::Read).is_none()
        {
            self.tables.waits.stopped_reading(queue, &hold.owner);
        }
        let (counter, event, message) = match end {
            End::Released | End::Done | End::Returned => {
                (&mut self.tables.counters.releases, Event::Release, None)
            }
            End::Expired => {
                (&mut self.tables.counters.expiries, Event::Expire, Some(Message::Expired))
            }
            End::Unclaimed => {
                (&mut self.tables.counters.unclaimed, Event::Expire, Some(Message::Expired))
            }
            End::Disconnected => {
                (&mut self.tables.counters.disconnected, Event::Expire, Some(Message::Disconnected))
            }
            End::Broken => (&mut self.tables.counters.broken, Event::Break, Some(Message::Broken)),
        };
        *counter += 1;
        self.fx.note(self.key, event);
        if let Some(message) = message
            && let Some(subject) = subject(id, &hold)
        {
            self.fx.message(message, self.key, subject);
        }
        if end == End::Unclaimed
            && let Some(unclaimed) = hold.unclaimed()
        {
            self.tables.skip_waiters_of(unclaimed.client);
        }
        if resource.kind() == Kind::Lock {
            self.tables.waits.no_longer_grantable(self.key, &hold.owner);
        }
        let delay_ms = self.tables.settings.lock_delay_ms;
        let delays = matches!(end, End::Expired | End::Unclaimed | End::Disconnected | End::Broken);
        if delays && id == ALONE && delay_ms > 0 {
            self.close(resource, delay_ms);
        }
        self.former = Some(hold.owner);
    }

    /// The lock, which has just become free, stays closed for this time.
    pub(crate) fn close(&mut self, resource: &mut Resource, delay_ms: Millis) {
        if let Some(lock) = resource.lock_mut() {
            *lock = Lock::Closed { until: self.lease + delay_ms, delay_ms };
        }
    }
}

impl Tables {
    /// A connection let a grant expire: its waiters are skipped. Where several waiters can be served at once, that may
    /// let in those behind. A lock for one holder stays as it is.
    fn skip_waiters_of(&mut self, client: u64) {
        if !self.connections.mark_unresponsive(client) {
            return;
        }
        self.mark_queues_dirty(client, true);
    }
}

impl Step<'_> {
    /// The time of a latch ended before it was open.
    pub(crate) fn expire_latch(&mut self, resource: &mut Resource) {
        let Body::Latch(latch) = &mut resource.body else { return };
        **latch = crate::value::latch::Latch::default();
        self.note_spent(LOST_LATCH, Use::Lost(Loss::Expired));
        self.dirty = true;
        self.fx.note(self.key, Event::Expire);
        self.tables.counters.expiries += 1;
        if let Some(queue) = self.tables.waits.queue_of(self.key) {
            self.tables.reject_queue(queue, ErrorCode::Broken, BROKEN, self.fx);
        }
    }
}
