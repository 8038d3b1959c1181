//! What servers say, and whether they can be reached.

use std::sync::Arc;
use std::time::Duration;

use redis::{Cmd, Value};

use super::calls::Replies;
use super::hold_state::RenewalReply;
use super::servers::{Entry, Flight, Renewing, Server, To};
use super::slot::Place;
use super::slots::ClusterSlots;
use super::{Action, Machine, REDIRECTIONS, Running};
use crate::base::clock::Moment;
use crate::base::error::Error;
use crate::base::replicas::Replicas;
use crate::telemetry;

impl Machine {
    /// What is to be sent next over the shared connection to that server.
    pub(crate) fn next(&mut self, server: usize, now: Moment) -> Option<(Flight, Arc<[Cmd]>)> {
        let calls = &mut self.calls;
        let next = self.servers.next(server, now, |to| match to {
            To::Call(id, copy) => match calls.get_mut(id).filter(|running| running.copy == *copy) {
                Some(running) if running.outcome.is_none() => {
                    running.call.written(now);
                    true
                }
                _ => false,
            },
            To::Renewals(holds) => {
                for renewing in holds {
                    renewing.asked.sent = now;
                }
                true
            }
            To::Nobody => true,
        });
        if next.is_some() {
            self.wake_by(self.overdue_at(server));
        }
        next
    }

    /// How long a reply may take.
    pub(super) fn response_limit(&self) -> Duration {
        self.settings.response_timeout.min(self.holds.shortest() / 3)
    }

    /// When a connection is given up unless a reply comes.
    pub(super) fn overdue_at(&self, server: usize) -> Moment {
        let server = self.servers.all.get(server).filter(|server| server.flying > 0);
        let at = |server: &Server| {
            server.overdue.unwrap_or_else(|| server.progress.after(self.response_limit()))
        };
        server.map_or(Moment::NEVER, at)
    }

    /// A connection to that server stands.
    pub(crate) fn connected(&mut self, server: usize, now: Moment) {
        if let Some(server) = self.servers.all.get_mut(server) {
            (server.is_up, server.error) = (true, None);
            (server.progress, server.overdue) = (now, None);
        }
        self.actions.push_back(Action::Send(server));
        self.effects.changes = true;
        self.check_now(now);
    }

    /// There is none: it is lost, or could not be made.
    pub(crate) fn disconnected(
        &mut self,
        number: usize,
        error: &Error,
        flights: Vec<Flight>,
        now: Moment,
    ) {
        let Some(server) = self.servers.all.get_mut(number) else { return };
        server.error = Some(error.clone());
        let was_up = std::mem::replace(&mut server.is_up, false);
        server.flying = 0;
        self.effects.changes = true;
        self.effects.learns |= self.servers.is_cluster();
        for flight in flights {
            self.unanswered(flight.entry.to, flight.entry.commands.len(), error, now);
        }
        if error.ends_opening() {
            for entry in self.servers.take_outbox(number) {
                self.unanswered(entry.to, entry.commands.len(), error, now);
            }
        }
        if was_up {
            // The connections of their own may be dead, too, without knowing.
            let blocks = |(_, running): &(&u64, &Running)| running.blocks == Some(number);
            let blocked = self.calls.iter().filter(blocks);
            let blocked: Vec<_> = blocked.map(|(id, running)| (*id, running.copy)).collect();
            for (id, copy) in blocked {
                self.unblock(id);
                self.unanswered(To::Call(id, copy), 1, error, now);
            }
        }
    }

    pub(super) fn unanswered(&mut self, to: To, count: usize, error: &Error, now: Moment) {
        match to {
            To::Call(id, copy) => {
                let values = (0..count.max(1)).map(|_| Err(error.clone())).collect();
                self.reply(id, copy, Replies { values, confirmed: None, sent: now }, now);
            }
            To::Renewals(holds) => {
                for Renewing { hold, asked, .. } in holds {
                    hold.renewed(asked, RenewalReply::Unknown);
                }
            }
            To::Nobody => {}
        }
    }

    /// The replies to what was sent to that server. False: they are not, and no other reply of that connection counts.
    pub(crate) fn replied(
        &mut self,
        number: usize,
        flight: Flight,
        values: Result<Vec<Value>, Error>,
        now: Moment,
    ) -> bool {
        let Flight { mut entry, sent, alone } = flight;
        let count = entry.commands.len();
        if alone.is_some() {
            if let To::Call(id, copy) = entry.to
                && let Some(running) = self.calls.get_mut(&id).filter(|call| call.copy == copy)
                && running.blocks.take().is_some()
            {
                self.servers.unblock(number);
            }
        } else if let Some(server) = self.servers.all.get_mut(number) {
            server.flying = server.flying.saturating_sub(1);
            (server.progress, server.overdue) = (now, None);
            self.actions.push_back(Action::Send(number));
        }
        let mut confirms = Vec::new();
        let values = values.and_then(|mut values| {
            confirms = values.split_off(count.min(values.len()));
            let wrong = || Error::unavailable("a reply of another request");
            if self.fits(&entry.to, &values) { Ok(values) } else { Err(wrong()) }
        });
        let values = match values {
            Ok(values) => values,
            Err(error) => {
                if alone.is_none() {
                    self.actions.push_back(Action::Break(number));
                }
                self.unanswered(entry.to, count, &error, now);
                return false;
            }
        };
        // Of several requests, those that have their replies are not sent again.
        if let Some((to, is_ask)) = self.redirected(&values, number, entry.place)
            && count == 1
            && self.may_follow(&entry.to)
        {
            entry.asking = is_ask;
            match alone {
                None => {
                    self.servers.push_to(to, entry);
                    self.actions.push_back(Action::Send(to));
                    return true;
                }
                // Without a connection, the reply says where its next copy goes.
                Some(within) => match self.block(entry, to, within, now) {
                    None => return true,
                    Some(back) => entry = back,
                },
            }
        }
        // Once: two servers that name each other are not followed.
        if let To::Renewals(holds) = &entry.to
            && !entry.asking
            && self.servers.is_cluster()
        {
            self.follow(holds, &values, number);
        }
        let confirmed = entry.confirm.map(|replicas| replicas.read(confirms));
        let values = self.read(values, number);
        match entry.to {
            To::Call(id, copy) => self.reply(id, copy, Replies { values, confirmed, sent }, now),
            To::Renewals(holds) => self.settle(holds, values, confirmed.as_ref()),
            To::Nobody => {}
        }
        true
    }

    pub(super) fn fits(&self, to: &To, mut values: &[Value]) -> bool {
        match to {
            To::Call(id, copy) => {
                let running = self.calls.get(id).filter(|running| running.copy == *copy);
                running.is_none_or(|running| running.call.fits(values))
            }
            To::Renewals(holds) => holds.iter().all(|renewing| {
                let (own, others) = values.split_at(renewing.commands.min(values.len()));
                values = others;
                renewing.hold.hold_ref.are_renewed(own)
            }),
            To::Nobody => true,
        }
    }

    /// The other server that has what these replies are about, and whether for this time only.
    pub(super) fn redirected(
        &mut self,
        values: &[Value],
        by: usize,
        place: Place,
    ) -> Option<(usize, bool)> {
        let (to, is_ask) = values.iter().find_map(redirect)?;
        if !self.servers.is_cluster() {
            return None;
        }
        let (to, is_new) = self.servers.at(&to, by);
        self.actions.extend(is_new.then_some(Action::Open(to)));
        if let (Place::Slot(slot), false) = (place, is_ask) {
            if self.servers.moved(slot, to) {
                self.moved.insert(slot);
                self.wake_by(Moment::from_nanos(0));
            }
            self.effects.learns = true;
        }
        Some((to, is_ask))
    }

    /// Renewals of single locks whose slot is on its way to another server go there, too.
    pub(super) fn follow(&mut self, holds: &[Renewing], mut values: &[Value], by: usize) {
        for Renewing { hold, asked, commands } in holds {
            let (own, others) = values.split_at((*commands).min(values.len()));
            values = others;
            let [value] = own else { continue };
            let Some((to, true)) = redirect(value) else { continue };
            let (to, is_new) = self.servers.at(&to, by);
            self.actions.extend(is_new.then_some(Action::Open(to)));
            let commands = hold.hold_ref.renewals(asked.lease, hold.terms().bind).into();
            let renewing = Renewing { hold: hold.clone(), asked: *asked, commands: 1 };
            let (to_holds, place) = (To::Renewals(vec![renewing]), Place::Server(to));
            let confirm = Replicas::of(&self.settings);
            self.servers
                .push_to(to, Entry { to: to_holds, place, commands, confirm, asking: true });
            self.actions.push_back(Action::Send(to));
        }
    }

    /// The replies of that server, and what its errors say of it.
    pub(super) fn read(&mut self, values: Vec<Value>, server: usize) -> Vec<Result<Value, Error>> {
        let is_cluster = self.servers.is_cluster();
        for value in &values {
            match code(value) {
                Some("READONLY") => {
                    self.actions.push_back(Action::ReadOnly(server));
                    self.effects.learns |= is_cluster;
                }
                Some("CLUSTERDOWN" | "MASTERDOWN") => self.effects.learns |= is_cluster,
                _ => {}
            }
        }
        let name = self.servers.all.get(server).map_or("", |server| server.name.as_str());
        let read = |value: Value| match value.extract_error() {
            Err(error) if !is_cluster && matches!(error.code(), Some("MOVED" | "ASK")) => {
                Err(Error::from_redis(error).of_a_cluster())
            }
            value => value.map_err(|error| Error::from_redis(error).at(name)),
        };
        values.into_iter().map(read).collect()
    }

    pub(super) fn may_follow(&mut self, to: &To) -> bool {
        match to {
            To::Call(id, copy) => {
                let running = self.calls.get_mut(id).filter(|running| running.copy == *copy);
                let Some(running) = running else { return false };
                running.redirections += 1;
                running.redirections <= REDIRECTIONS
            }
            // The next round goes there.
            To::Renewals(_) | To::Nobody => false,
        }
    }

    pub(super) fn reply(&mut self, id: u64, copy: u32, replies: Replies, now: Moment) {
        let running = self.calls.get_mut(&id).filter(|running| running.copy == copy);
        let Some(running) = running.filter(|running| running.outcome.is_none()) else { return };
        // A second reply to it does not count.
        running.copy += 1;
        let next = running.call.replied(now, replies);
        self.advance(id, next, now);
    }

    /// Which server has which slots, as server `by` said.
    pub(crate) fn learn(&mut self, slots: &ClusterSlots, by: usize) {
        let (moved, new, gone) = self.servers.learn(slots, by);
        let by = self.servers.all.get(by).map_or("", |server| server.name.as_str());
        telemetry::slots_moved(by, moved.len());
        self.moved.extend(moved);
        self.wake_by(Moment::from_nanos(0));
        self.actions.extend(new.into_iter().map(Action::Open));
        self.actions.extend(gone.into_iter().map(Action::Close));
        let dirty = self.servers.route_again();
        self.actions.extend(dirty.into_iter().map(Action::Send));
    }
}

fn code(value: &Value) -> Option<&str> {
    if let Value::ServerError(error) = value { Some(error.code()) } else { None }
}

/// Where a reply sends its request, and whether for this time only.
fn redirect(value: &Value) -> Option<(crate::base::command::NodeAddress, bool)> {
    let Value::ServerError(error) = value else { return None };
    let is_ask = error.code() == "ASK";
    let error = redis::RedisError::from(error.clone());
    Some((crate::base::command::redirect(&error)?, is_ask))
}
