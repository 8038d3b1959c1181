//! The end of holds.

use crate::effects::Event;
use crate::ids::{ALONE, HoldId};
use crate::kind::Kind;
use crate::machine::{End, Machine};
use crate::state::lock::Lock;
use crate::state::resource::{Body, Ending, Resource};
use crate::subject::subject;
use crate::turn::Step;
use alloc::vec::Vec;
use dlock_wire::message::Event as Message;
use dlock_wire::request::Mode;

impl Machine {
    /// Ends the holds of a key that have expired, and hands off.
    pub(crate) fn end_expired(&mut self, step: &mut Step<'_>, resource: &mut Resource) {
        if !self.regime.may_end() {
            return;
        }
        let mut ended = 0;
        while let Some((_, ending)) = resource.next_end().filter(|(at, _)| *at <= step.lease)
            && ended < step.ends_at_most
        {
            ended += 1;
            match ending {
                Ending::Delay => {
                    if let Some(lock) = resource.lock_mut() {
                        *lock = Lock::Free;
                    }
                    step.dirty = true;
                }
                Ending::Hold(id) => self.end_expired_hold(step, resource, id),
                Ending::Latch => self.expire_latch(step, resource),
            }
        }
        if ended > 0 {
            self.hand_off(step, resource);
        }
    }

    fn end_expired_hold(&mut self, step: &mut Step<'_>, resource: &mut Resource, id: HoldId) {
        let end = match resource.hold(id) {
            Some(hold) if hold.unclaimed().is_some() => End::Unclaimed,
            Some(hold) if hold.is_shortened() => End::Disconnected,
            _ => End::Expired,
        };
        self.end_hold(step, resource, id, end);
    }

    /// Ends one expired hold. A step ends only some of very many holds that have expired or lost their connection. It
    /// never leaves out the holds that its call names: a call never works on an expired hold.
    pub(crate) fn end_if_expired(
        &mut self,
        step: &mut Step<'_>,
        resource: &mut Resource,
        about: impl Fn(&Resource) -> Vec<HoldId>,
    ) {
        let is_left = self.connections.has_departed()
            || resource.next_end().is_some_and(|(at, _)| at <= step.lease);
        if !is_left || !self.regime.may_end() {
            return;
        }
        let mut ended = false;
        for id in about(resource) {
            self.shorten_if_gone(step, resource, id);
            if resource.hold(id).is_some_and(|hold| hold.deadline <= step.lease) {
                self.end_expired_hold(step, resource, id);
                ended = true;
            }
        }
        if ended {
            self.hand_off(step, resource);
        }
        if step.granted {
            // Noted as a record of its own: the verb may end this hold again, and its token must not be lost.
            self.note_state(step, resource);
        }
    }

    /// Ends the hold under `id`. The caller hands off.
    pub(crate) fn end_hold(
        &mut self,
        step: &mut Step<'_>,
        resource: &mut Resource,
        id: HoldId,
        end: End,
    ) {
        let Some(hold) = resource.take_hold(id) else { return };
        self.observe_end(step, resource.kind(), id, &hold, end);
        self.unbind(self.leases.hold_ref(resource.key_id, id), &hold);
        step.dirty = true;
        if matches!(resource.kind(), Kind::Lock | Kind::Fair) {
            self.tell_observers(step.key, hold.token, end.into(), step.fx);
        }
        if end != End::Returned {
            self.spend_hold(step, resource.kind(), id, &hold, end);
        }
        if let Body::Rw(rw) = &resource.body
            && let Some(queue) = self.waits.queue_of(step.key)
            && rw.find(&hold.owner, Mode::Read).is_none()
        {
            self.waits.stopped_reading(queue, &hold.owner);
        }
        let (counter, event, message) = match end {
            End::Released | End::Done | End::Returned => {
                (&mut self.counters.releases, Event::Release, None)
            }
            End::Expired => (&mut self.counters.expiries, Event::Expire, Some(Message::Expired)),
            End::Unclaimed => (&mut self.counters.unclaimed, Event::Expire, Some(Message::Expired)),
            End::Disconnected => {
                (&mut self.counters.disconnected, Event::Expire, Some(Message::Disconnected))
            }
            End::Broken => (&mut self.counters.broken, Event::Break, Some(Message::Broken)),
        };
        *counter += 1;
        step.fx.note(step.key, event);
        if let Some((message, subject)) = message.zip(subject(id, &hold)) {
            step.fx.message(message, step.key, subject);
        }
        if end == End::Unclaimed
            && let Some(unclaimed) = hold.unclaimed()
        {
            self.skip_waiters_of(unclaimed.client);
        }
        if resource.kind() == Kind::Lock {
            self.no_longer_grantable(step.key, &hold.owner);
        }
        let delay_ms = self.settings.lock_delay_ms;
        let delays = matches!(end, End::Expired | End::Disconnected | End::Broken);
        if delays && id == ALONE && delay_ms > 0 && hold.unclaimed().is_none() {
            let until = step.lease + delay_ms;
            if let Some(lock) = resource.lock_mut() {
                *lock = Lock::Closed { until, delay_ms };
            }
        }
        step.former = Some(hold.owner);
    }

    /// A connection let a grant expire: its waiters are skipped. Where several waiters can be served at once, that may
    /// let in those behind. A lock for one holder stays as it is.
    fn skip_waiters_of(&mut self, client: u64) {
        if !self.connections.mark_unresponsive(client) {
            return;
        }
        self.mark_queues_dirty(client, true);
    }
}
