//! Holds from their grant to their release, and the messages about them and about waits.

use std::collections::HashMap;
use std::sync::Arc;

use dlock_wire::message::{Event, Message};
use redis::Value;

use super::acquire::Heard;
use super::calls::{AskCall, Grant};
use super::hold_state::Asked;
use super::servers::{Entry, Renewing, To};
use super::slot::Place;
use super::tracked::TrackedHold;
use super::{Machine, ROUND};
use crate::base::clock::Moment;
use crate::base::error::Error;
use crate::base::lost::Lost;
use crate::base::random::Name;
use crate::base::replicas::{Quarantine, Replicas};
use crate::telemetry;

impl Machine {
    /// The server published that text on one of the client's channels.
    pub(crate) fn message(&mut self, text: &[u8], now: Moment) {
        match Message::parse(text) {
            Some(Message::Hold { event, db, id, reqid, .. }) if db == self.db => {
                let how = ended(event);
                if let Some(call) = Name::parse(reqid).and_then(|reqid| self.by_request.get(&reqid))
                {
                    let heard = match event {
                        Event::Granted => Heard::Granted,
                        Event::Replaced => Heard::Replaced,
                        _ => Heard::Other(how),
                    };
                    self.hear(*call, heard, id, now);
                }
                if let Some(how) = how {
                    self.holds.hint(now, id, how);
                    self.wake_by(self.holds.look_at);
                }
            }
            Some(Message::Flushed { db }) if db == self.db => {
                self.is_flushed = true;
                self.check(now);
            }
            // Of another database, or of a later version of the server.
            _ => {}
        }
    }

    pub(super) fn hear(&mut self, id: u64, heard: Heard, of: &[u8], now: Moment) {
        let Some(running) = self.calls.get_mut(&id) else { return };
        let next = running.call.heard(now, heard, of);
        self.advance(id, next, now);
    }

    pub(super) fn hold(&mut self, grant: Grant, now: Moment) -> Arc<TrackedHold> {
        let Grant { hold, reqid, place, terms, granted, hint } = grant;
        let hold = TrackedHold::new(hold, terms, granted, reqid, place);
        if let Some(how) = hint {
            hold.change(|state| state.ask(now, Some(how)));
        }
        self.holds.add(hold.clone());
        self.wake_by(self.holds.look_at);
        hold
    }

    /// The hold is to be looked at: its state has changed.
    pub(crate) fn look_at(&mut self, at: Moment) {
        self.holds.look_at = self.holds.look_at.min(at);
        self.wake_by(at);
    }

    /// A call that releases a hold, for the first who asks. It goes on when nobody waits for it.
    pub(crate) fn release(&mut self, hold: &TrackedHold, now: Moment) -> Option<AskCall> {
        if !hold.begin_release() {
            return None;
        }
        self.holds.remove(hold);
        let requests = hold.hold_ref.releases(hold.reqid.as_bytes(), hold.is_done());
        let limit = self.settings.retry_for;
        Some(
            AskCall::new(hold.place, requests, limit, limit, now)
                .releasing(hold.hold_ref.keys.clone()),
        )
    }

    /// Releases it in the background, if no release has begun.
    pub(crate) fn release_later(&mut self, hold: &TrackedHold, now: Moment) {
        if let Some(ask) = self.release(hold, now)
            && self.refusal().is_none()
        {
            self.run(Box::new(ask), true, now);
        }
    }

    /// Renews what is due, in one batch for each server, or more.
    pub(super) fn renew(&mut self, now: Moment) {
        let mut rounds: HashMap<usize, Vec<Renewing>> = HashMap::new();
        for hold in self.holds.due(now) {
            let server = self.servers.of(hold.place);
            let is_up = server
                .and_then(|server| self.servers.all.get(server))
                .is_some_and(|server| server.is_up);
            let Some(server) = server.filter(|_| is_up) else { continue };
            telemetry::renewing(&hold.report, &hold.hold_ref, || hold.late_renewal());
            let asked = Asked { sent: now, lease: hold.look(|state| state.lease(now)) };
            let commands = hold.hold_ref.keys.iter().len();
            let round = rounds.entry(server).or_default();
            round.push(Renewing { hold, asked, commands });
        }
        for (server, round) in rounds {
            let place = Place::Server(server);
            let mut round = round.into_iter();
            loop {
                let some: Vec<_> = round.by_ref().take(ROUND).collect();
                if some.is_empty() {
                    break;
                }
                let commands = some.iter().flat_map(|Renewing { hold, asked, .. }| {
                    hold.hold_ref.renewals(asked.lease, hold.terms().bind)
                });
                let commands = commands.collect();
                let confirm = Replicas::of(&self.settings);
                self.push(Entry {
                    to: To::Renewals(some),
                    place,
                    commands,
                    confirm,
                    asking: false,
                });
            }
        }
    }

    /// The replies to a round of renewals.
    pub(super) fn settle(
        &mut self,
        holds: Vec<Renewing>,
        values: Vec<Result<Value, Error>>,
        confirmed: Option<&Result<Quarantine, Error>>,
    ) {
        let (mut values, replicas) = (values.into_iter(), Replicas::of(&self.settings));
        for Renewing { hold, asked, commands } in holds {
            let replies = values.by_ref().take(commands).collect();
            let confirmed = Replicas::confirm(replicas, confirmed.cloned(), asked.sent);
            let settled = hold.settle(asked, replies, confirmed);
            // Another server may have it.
            let passes = settled.is_err_and(|error| error.passes());
            self.effects.learns |= passes && self.servers.is_cluster();
        }
        self.wake_by(self.holds.look_at);
    }
}

/// How a hold ended, if a message says that one has.
fn ended(event: Event) -> Option<Lost> {
    match event {
        Event::Broken => Some(Lost::Broken),
        Event::Deleted => Some(Lost::Deleted),
        Event::Disconnected => Some(Lost::Disconnected),
        Event::Expired => Some(Lost::Expired),
        Event::Granted | Event::Offered | Event::Replaced | Event::Deadlock => None,
    }
}
