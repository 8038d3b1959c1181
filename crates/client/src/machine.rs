//! What a client decides: which requests go to which server when, and what replies, messages and time mean for its
//! calls and holds. It has no I/O: the shell passes in what happens, and does what [`Effects`] say.

pub(crate) mod acquire;
pub(crate) mod calls;
pub(crate) mod hold_state;
mod holds;
mod patience;
pub(crate) mod request;
pub(crate) mod servers;
pub(crate) mod slot;
pub(crate) mod slots;
pub(crate) mod tracked;

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, HashSet, VecDeque};
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use dlock_wire::message::{Event, Message};
use redis::{Cmd, Value};

use self::acquire::Heard;
use self::calls::{AskCall, Call, Grant, Next, Outcome, Place, Replies, Sending};
use self::hold_state::{Asked, RenewalReply};
use self::holds::Holds;
use self::servers::{Entry, Flight, Renewing, Servers, To};
use self::slot::Slot;
use self::slots::ClusterSlots;
use self::tracked::TrackedHold;
use crate::base::clock::Moment;
use crate::base::error::Error;
use crate::base::hash::Map;
use crate::base::lost::Lost;
use crate::base::random::Name;
use crate::base::replicas::{Acknowledged, Replicas};
use crate::base::settings::Settings;
use crate::telemetry;

/// All waits and holds are checked at most that often.
const CHECKS: Duration = Duration::from_secs(1);
/// A connection on which something waits is asked after that time without a reply whether it is still there.
const HEARTBEAT: Duration = Duration::from_secs(3);
/// How many holds are renewed together.
const ROUND: usize = 1_000;
/// How often one request follows a server to another one.
const REDIRECTIONS: u8 = 5;

/// Whether the client is open.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Phase {
    Open,
    /// Nothing is taken; holds are released.
    Closing,
    /// Nothing more is sent.
    Closed,
    /// The runtime has ended: nothing is sent.
    Abandoned,
}

/// What the shell has to do.
#[derive(Default)]
pub(crate) struct Effects {
    /// In this order.
    pub(crate) actions: VecDeque<Action>,
    /// The slots of the cluster are to be learnt.
    pub(crate) learns: bool,
    /// [`Machine::wake_at`] is earlier than before.
    pub(crate) wakes: bool,
    /// The phase has changed, or the last release in the background has ended.
    pub(crate) ends: bool,
    pub(crate) wakers: Vec<Waker>,
}

/// One thing to do, mostly about a server.
pub(crate) enum Action {
    /// There is something to send to it.
    Send(usize),
    /// It is to be connected to.
    Open(usize),
    /// It is not to be connected to any more.
    Close(usize),
    /// Its connection is of no use: no reply came, or a wrong one.
    Break(usize),
    /// It is a replica.
    ReadOnly(usize),
    Block(Blocked),
    /// Nobody waits for what this call blocks any more: its number, and that of its copy.
    Unblock(u64, u32),
}

/// Commands for a connection of their own, which they may block.
pub(crate) struct Blocked {
    pub(crate) server: usize,
    pub(crate) flight: Flight,
    pub(crate) commands: Vec<Cmd>,
}

/// A call under way.
struct Running {
    call: Box<dyn Call>,
    /// The number of what it sent last: other replies do not count.
    copy: u32,
    /// The server whose connection of its own it blocks.
    blocks: Option<usize>,
    /// When the first of its timers rings, perhaps too early.
    timer: Moment,
    waker: Option<Waker>,
    outcome: Option<Outcome>,
    /// Nobody waits for it.
    is_detached: bool,
    reqid: Option<Name>,
    redirections: u8,
}

/// See the module.
pub(crate) struct Machine {
    settings: Arc<Settings>,
    db: u32,
    phase: Phase,
    calls: Map<u64, Running>,
    begun: u64,
    by_request: Map<Name, u64>,
    holds: Holds,
    pub(crate) servers: Servers,
    timers: BinaryHeap<Reverse<(Moment, u64)>>,
    wake_at: Moment,
    /// When all waits and holds are to be checked, and when they were.
    check_at: Moment,
    checked: Moment,
    is_flushed: bool,
    /// Slots that another server has now: the places of waits there are lost.
    moved: HashSet<Slot>,
    /// Releases that nobody waits for, and what else delays the end of the client.
    cleanups: usize,
    has_failed: bool,
    pub(crate) effects: Effects,
}

impl Machine {
    pub(crate) fn new(settings: Arc<Settings>, db: u32, servers: Servers) -> Self {
        Self {
            settings,
            db,
            phase: Phase::Open,
            calls: Map::default(),
            begun: 0,
            by_request: Map::default(),
            holds: Holds::default(),
            servers,
            timers: BinaryHeap::new(),
            wake_at: Moment::NEVER,
            check_at: Moment::NEVER,
            checked: Moment::from_nanos(0),
            is_flushed: false,
            moved: HashSet::new(),
            cleanups: 0,
            has_failed: false,
            effects: Effects::default(),
        }
    }

    // Calls.

    /// Begins a call, and returns its number. `takes`: it may take something.
    pub(crate) fn begin(
        &mut self,
        call: Box<dyn Call>,
        takes: bool,
        now: Moment,
    ) -> Result<u64, Error> {
        if let Some(error) = if takes { self.no_admission() } else { self.refusal() } {
            return Err(error);
        }
        Ok(self.run(call, false, now))
    }

    fn run(&mut self, mut call: Box<dyn Call>, is_detached: bool, now: Moment) -> u64 {
        self.forget_timers();
        self.begun += 1;
        let id = self.begun;
        let (next, reqid) = (call.start(now), call.reqid());
        if let Some(reqid) = reqid {
            self.by_request.insert(reqid, id);
        }
        // The end of the client waits for releases, whether or not somebody else does.
        self.cleanups += usize::from(call.releases());
        let running = Running {
            call,
            copy: 0,
            blocks: None,
            timer: Moment::NEVER,
            waker: None,
            outcome: None,
            is_detached,
            reqid,
            redirections: 0,
        };
        self.calls.insert(id, running);
        self.advance(id, next, now);
        id
    }

    /// The outcome of that call, once, and the waker that it does not need any more.
    pub(crate) fn poll(
        &mut self,
        id: u64,
        context: &Context<'_>,
    ) -> (Poll<Outcome>, Option<Waker>) {
        let Some(running) = self.calls.get_mut(&id) else { return (Poll::Pending, None) };
        if let Some(outcome) = running.outcome.take() {
            let ended = self.calls.remove(&id);
            return (Poll::Ready(outcome), ended.and_then(|ended| ended.waker));
        }
        (Poll::Pending, running.waker.replace(context.waker().clone()))
    }

    /// Nobody waits for that call any more.
    pub(crate) fn leave(&mut self, id: u64, now: Moment) {
        let Some(running) = self.calls.get_mut(&id) else { return };
        if let Some(outcome) = running.outcome.take() {
            self.calls.remove(&id);
            if let Outcome::Held(hold) = outcome {
                self.release_later(&hold, now);
            }
        } else if running.call.releases() {
            running.is_detached = true;
        } else {
            running.call.leave(now);
            self.end(id, now);
        }
    }

    /// Takes a call out.
    fn end(&mut self, id: u64, now: Moment) {
        self.unblock(id);
        let Some(mut running) = self.calls.remove(&id) else { return };
        self.forget(running.reqid, id);
        if let Some(ask) = running.call.given_up() {
            self.run(ask, true, now);
        }
    }

    /// Messages do not reach that call any more.
    fn forget(&mut self, reqid: Option<Name>, id: u64) {
        if let Some(reqid) = reqid
            && self.by_request.get(&reqid) == Some(&id)
        {
            self.by_request.remove(&reqid);
        }
    }

    /// It waits for no connection of its own any more.
    fn unblock(&mut self, id: u64) {
        let Some(running) = self.calls.get_mut(&id) else { return };
        if let Some(server) = running.blocks.take() {
            self.servers.unblock(server);
            self.effects.actions.push_back(Action::Unblock(id, running.copy));
        }
    }

    fn advance(&mut self, id: u64, mut next: Next, now: Moment) {
        loop {
            next = match next {
                Next::Rest => break,
                Next::Send(sending) => match self.send(id, sending, now) {
                    Some(next) => next,
                    None => break,
                },
                Next::Done(outcome) => return self.done(id, outcome, now),
            };
        }
        let Some(running) = self.calls.get_mut(&id) else { return };
        let wake_at = running.call.wake_at();
        if wake_at < running.timer {
            running.timer = wake_at;
            self.timers.push(Reverse((wake_at, id)));
        }
        let (given_up, reqid) = (running.call.given_up(), running.call.reqid());
        if reqid != running.reqid {
            let before = std::mem::replace(&mut running.reqid, reqid);
            before.map(|before| self.by_request.remove(&before));
            reqid.map(|reqid| self.by_request.insert(reqid, id));
        }
        if let Some(ask) = given_up {
            self.run(ask, true, now);
        }
        self.wake_by(wake_at);
    }

    /// Most timers are of calls that have ended: they are not kept until they would have rung.
    fn forget_timers(&mut self) {
        if self.timers.len() > 2 * self.calls.len() + 100 {
            let calls = &self.calls;
            self.timers.retain(|Reverse((at, id))| {
                calls.get(id).is_some_and(|running| running.timer == *at)
            });
        }
    }

    fn done(&mut self, id: u64, outcome: Outcome, now: Moment) {
        let outcome = match outcome {
            Outcome::Granted(grant) => Outcome::Held(self.hold(*grant, now)),
            outcome => outcome,
        };
        self.unblock(id);
        let Some(running) = self.calls.get_mut(&id) else { return };
        let (given_up, releases) = (running.call.given_up(), running.call.releases());
        if running.is_detached {
            self.calls.remove(&id);
            if let Outcome::Answered(replies) = &outcome {
                self.note_failure(replies);
            }
        } else {
            running.outcome = Some(outcome);
            self.effects.wakers.extend(running.waker.take());
            let reqid = running.reqid.take();
            self.forget(reqid, id);
        }
        if releases {
            self.cleaned();
        }
        if let Some(ask) = given_up {
            self.run(ask, true, now);
        }
    }

    /// A release in the background that no server answered.
    fn note_failure(&mut self, replies: &Replies) {
        let mut errors = replies.values.iter().filter_map(|reply| reply.as_ref().err());
        if let Some(error) = errors.find(|error| error.passes() || error.is_unanswered()) {
            telemetry::release_failed(error.key().unwrap_or_default(), error);
            self.has_failed = true;
        }
    }

    /// Sends what a call has to say. Some: it may not, and does that next.
    fn send(&mut self, id: u64, sending: Sending, now: Moment) -> Option<Next> {
        self.unblock(id);
        let running = self.calls.get_mut(&id)?;
        running.copy += 1;
        running.redirections = 0;
        let (copy, place) = (running.copy, running.call.place());
        let Sending { commands, confirm, block } = sending;
        let entry = Entry { to: To::Call(id, copy), place, commands, confirm, asking: false };
        let Some(block) = block else {
            self.push(entry);
            return None;
        };
        let server = self.servers.of(place);
        self.effects.learns |= server.is_none();
        let within = block.saturating_add(self.settings.response_timeout);
        let is_sent = match server {
            Some(server) => self.block(entry, server, within, now).is_none(),
            None => false,
        };
        if !is_sent {
            return self.calls.get_mut(&id).map(|running| running.call.may_not_block(now));
        }
        None
    }

    /// Sends an entry over a connection of its own. Some: none is left.
    fn block(
        &mut self,
        entry: Entry,
        server: usize,
        within: Duration,
        now: Moment,
    ) -> Option<Entry> {
        let To::Call(id, _) = entry.to else { return Some(entry) };
        let Some(running) = self.calls.get_mut(&id) else { return Some(entry) };
        if !self.servers.may_block(server) {
            return Some(entry);
        }
        running.blocks = Some(server);
        running.call.written(now);
        let (flight, commands) = Flight::of(entry, self.servers.is_cluster(), Some(within), now);
        self.effects.actions.push_back(Action::Block(Blocked { server, flight, commands }));
        None
    }

    fn push(&mut self, entry: Entry) {
        match self.servers.push(entry) {
            Some(server) => self.effects.actions.push_back(Action::Send(server)),
            None => self.effects.learns = true,
        }
        // What waits for a server is mostly of calls that have ended, when that is gone for long.
        let calls = &self.calls;
        self.servers.prune(2 * calls.len() + 100, |to| match to {
            To::Call(id, copy) => calls.get(id).is_some_and(|running| running.copy == *copy),
            To::Renewals(_) | To::Nobody => true,
        });
    }

    // Servers.

    /// What is to be sent next over the shared connection to that server.
    pub(crate) fn next(&mut self, server: usize, now: Moment) -> Option<(Flight, Vec<Cmd>)> {
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
        self.wake_by(self.overdue_at(server));
        next
    }

    fn overdue_at(&self, server: usize) -> Moment {
        let limit = self.settings.response_timeout.min(self.holds.shortest() / 3);
        self.servers.all.get(server).map_or(Moment::NEVER, |server| server.overdue_at(limit))
    }

    /// A connection to that server stands.
    pub(crate) fn connected(&mut self, server: usize, now: Moment) {
        if let Some(server) = self.servers.all.get_mut(server) {
            (server.is_up, server.error, server.progress) = (true, None, now);
        }
        self.effects.actions.push_back(Action::Send(server));
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
        self.effects.learns |= self.servers.is_cluster();
        for flight in flights {
            self.unanswered(flight.entry.to, flight.count, error, now);
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

    fn unanswered(&mut self, to: To, count: usize, error: &Error, now: Moment) {
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
        let Flight { mut entry, count, sent, alone } = flight;
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
            self.effects.actions.push_back(Action::Send(number));
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
                    self.effects.actions.push_back(Action::Break(number));
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
                    self.effects.actions.push_back(Action::Send(to));
                    return true;
                }
                // Without a connection, the reply says where its next copy goes.
                Some(within) => match self.block(entry, to, within, now) {
                    None => return true,
                    Some(back) => entry = back,
                },
            }
        }
        if let To::Renewals(holds) = &entry.to {
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

    fn fits(&self, to: &To, mut values: &[Value]) -> bool {
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
    fn redirected(&mut self, values: &[Value], by: usize, place: Place) -> Option<(usize, bool)> {
        let (to, is_ask) = values.iter().find_map(redirect)?;
        if !self.servers.is_cluster() {
            return None;
        }
        let (to, is_new) = self.servers.at(&to, by);
        self.effects.actions.extend(is_new.then_some(Action::Open(to)));
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
    fn follow(&mut self, holds: &[Renewing], mut values: &[Value], by: usize) {
        for Renewing { hold, asked, commands } in holds {
            let (own, others) = values.split_at((*commands).min(values.len()));
            values = others;
            let [value] = own else { continue };
            let Some((to, true)) = redirect(value) else { continue };
            let (to, is_new) = self.servers.at(&to, by);
            self.effects.actions.extend(is_new.then_some(Action::Open(to)));
            let commands = hold.hold_ref.renewals(asked.lease, hold.terms().bind);
            let renewing = Renewing { hold: hold.clone(), asked: *asked, commands: 1 };
            let (to_holds, place) = (To::Renewals(vec![renewing]), Place::Server(to));
            let confirm = Replicas::of(&self.settings);
            self.servers
                .push_to(to, Entry { to: to_holds, place, commands, confirm, asking: true });
            self.effects.actions.push_back(Action::Send(to));
        }
    }

    /// The replies of that server, and what its errors say of it.
    fn read(&mut self, values: Vec<Value>, server: usize) -> Vec<Result<Value, Error>> {
        let is_cluster = self.servers.is_cluster();
        for value in &values {
            match code(value) {
                Some("READONLY") => {
                    self.effects.actions.push_back(Action::ReadOnly(server));
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

    fn may_follow(&mut self, to: &To) -> bool {
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

    fn reply(&mut self, id: u64, copy: u32, replies: Replies, now: Moment) {
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
        self.effects.actions.extend(new.into_iter().map(Action::Open));
        self.effects.actions.extend(gone.into_iter().map(Action::Close));
        let dirty = self.servers.route_again();
        self.effects.actions.extend(dirty.into_iter().map(Action::Send));
    }

    // Time.

    /// When [`Machine::tick`] is due.
    pub(crate) fn wake_at(&self) -> Moment {
        self.wake_at
    }

    fn wake_by(&mut self, at: Moment) {
        if at < self.wake_at {
            self.wake_at = at;
            self.effects.wakes = true;
        }
    }

    pub(crate) fn tick(&mut self, now: Moment) {
        while let Some(Reverse((at, id))) =
            self.timers.peek().copied().filter(|timer| timer.0.0 <= now)
        {
            self.timers.pop();
            let Some(running) = self.calls.get_mut(&id).filter(|running| running.timer == at)
            else {
                continue;
            };
            running.timer = Moment::NEVER;
            if running.outcome.is_some() {
                continue;
            }
            if running.call.wake_at() > now {
                // It has been set later since.
                self.advance(id, Next::Rest, now);
                continue;
            }
            self.unblock(id);
            let Some(running) = self.calls.get_mut(&id) else { continue };
            // What comes for it from now on comes too late.
            running.copy += 1;
            let server = self.servers.of(running.call.place());
            let server = server.and_then(|server| self.servers.all.get(server));
            let failure =
                server.filter(|server| !server.is_up).and_then(|server| server.error.as_ref());
            let next = running.call.tick(now, failure);
            self.advance(id, next, now);
        }
        for number in 0..self.servers.all.len() {
            self.watch(number, now);
        }
        if self.check_at <= now {
            self.check_at = Moment::NEVER;
            self.check(now);
        }
        let moved = std::mem::take(&mut self.moved);
        if !moved.is_empty() {
            self.ask_again(
                now,
                None,
                |place| matches!(place, Place::Slot(slot) if moved.contains(&slot)),
            );
        }
        self.renew(now);
        self.wake_at = Moment::NEVER;
        let timer = self.timers.peek().map_or(Moment::NEVER, |timer| timer.0.0);
        let servers = (0..self.servers.all.len()).map(|server| self.watch_at(server)).min();
        for at in [timer, self.check_at, self.holds.look_at].into_iter().chain(servers) {
            self.wake_by(at);
        }
    }

    fn watch_at(&self, number: usize) -> Moment {
        let Some(server) = self.servers.all.get(number).filter(|server| server.is_up) else {
            return Moment::NEVER;
        };
        let quiet = server.flying == 0;
        if quiet { server.progress.after(HEARTBEAT) } else { self.overdue_at(number) }
    }

    /// A connection that does not answer is given up. One on which something waits is asked from time to time.
    fn watch(&mut self, number: usize, now: Moment) {
        if self.watch_at(number) > now {
            return;
        }
        let waits = self.waits();
        let Some(server) = self.servers.all.get_mut(number) else { return };
        if server.flying == 0 {
            server.progress = now;
            if waits {
                let (to, place) = (To::Nobody, Place::Server(number));
                let commands = vec![redis::cmd("PING")];
                self.push(Entry { to, place, commands, confirm: None, asking: false });
            }
        } else if server.overdue == Some(server.progress) {
            server.overdue = None;
            self.effects.actions.push_back(Action::Break(number));
        } else {
            server.overdue = Some(server.progress);
        }
    }

    /// Whether a call waits for a message, or on a connection of its own.
    pub(crate) fn waits(&self) -> bool {
        self.calls.values().any(|running| running.outcome.is_none() && running.call.waits())
    }

    /// As [`Machine::check_now`], but not too often: anybody may have sent the message.
    fn check(&mut self, now: Moment) {
        let at = self.checked.after(CHECKS);
        if now < at {
            self.check_at = self.check_at.min(at);
            self.wake_by(at);
        } else {
            self.check_now(now);
        }
    }

    /// Each wait asks again, and each hold is renewed, now or soon: messages may have been missed.
    fn check_now(&mut self, now: Moment) {
        self.checked = now;
        let how = std::mem::take(&mut self.is_flushed).then_some(Lost::Flushed);
        self.holds.hint_all(now, how);
        self.wake_by(now);
        self.ask_again(now, how, |_| true);
    }

    /// The waits at these places ask again: their places may be lost.
    fn ask_again(&mut self, now: Moment, how: Option<Lost>, is_meant: impl Fn(Place) -> bool) {
        let waiting: Vec<_> = self.by_request.values().copied().collect();
        for id in waiting {
            if self.calls.get(&id).is_some_and(|running| is_meant(running.call.place())) {
                self.hear(id, Heard::Other(how), &[], now);
            }
        }
    }

    // Messages.

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

    fn hear(&mut self, id: u64, heard: Heard, of: &[u8], now: Moment) {
        let Some(running) = self.calls.get_mut(&id) else { return };
        let next = running.call.heard(now, heard, of);
        self.advance(id, next, now);
    }

    // Holds.

    fn hold(&mut self, grant: Grant, now: Moment) -> Arc<TrackedHold> {
        let Grant { hold, reqid, terms, granted, hint } = grant;
        let hold = TrackedHold::new(hold, terms, granted, reqid);
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
        let key = hold.hold_ref.key();
        let (place, limit) = (Place::Slot(Slot::for_key(key)), self.settings.retry_for);
        Some(AskCall::new(place, requests, limit, limit, now).releasing(key))
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
    fn renew(&mut self, now: Moment) {
        let mut rounds: HashMap<usize, Vec<Renewing>> = HashMap::new();
        for hold in self.holds.due(now) {
            let slot = Slot::for_key(hold.hold_ref.key());
            let server = self.servers.of(Place::Slot(slot));
            let is_up = server
                .and_then(|server| self.servers.all.get(server))
                .is_some_and(|server| server.is_up);
            let Some(server) = server.filter(|_| is_up) else { continue };
            telemetry::renewing(&hold.report, &hold.hold_ref, || hold.late_renewal());
            let asked = Asked { sent: now, lease: hold.look(|state| state.lease(now)) };
            let commands = hold.hold_ref.keys().len();
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
    fn settle(
        &mut self,
        holds: Vec<Renewing>,
        values: Vec<Result<Value, Error>>,
        confirmed: Option<&Result<Acknowledged, Error>>,
    ) {
        let mut values = values.into_iter();
        for Renewing { hold, asked, commands } in holds {
            let replies = values.by_ref().take(commands).collect();
            let confirmed = confirmed.map(|found| {
                found.clone().and_then(|found| {
                    Replicas::of(&self.settings)
                        .map_or_else(|| Err(Error::spent()), |replicas| replicas.enough(found))
                })
            });
            let is_confirmed =
                confirmed.is_none_or(|found| found.is_ok_and(|found| found.covers(asked.sent)));
            let redirected = renewed(&hold, asked, replies, is_confirmed);
            self.effects.learns |= redirected && self.servers.is_cluster();
        }
        self.wake_by(self.holds.look_at);
    }

    // The end.

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

    fn end_phase(&mut self, phase: Phase) -> bool {
        let advances = self.phase < phase;
        if advances {
            self.phase = phase;
            self.effects.ends = true;
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
        self.effects.ends |= self.is_clean();
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
    fn refuse(&mut self, id: u64, error: &Error, now: Moment) {
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

    fn end_calls(&mut self, error: &Error, now: Moment) {
        let calls: Vec<_> = self.calls.keys().copied().collect();
        for id in calls {
            self.refuse(id, error, now);
        }
        self.effects.actions.extend((0..self.servers.all.len()).map(Action::Close));
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

/// What the server said about one hold. True: another server may have it.
fn renewed(
    hold: &TrackedHold,
    asked: Asked,
    replies: Vec<Result<Value, Error>>,
    is_confirmed: bool,
) -> bool {
    let errors: Vec<_> = replies
        .into_iter()
        .zip(hold.hold_ref.keys())
        .filter_map(|(reply, key)| Some((reply.err()?, key)))
        .collect();
    let gone = errors.iter().filter(|(error, _)| error.is_gone());
    let gone: Vec<_> = gone.map(|(error, key)| (error.gone(), key.clone())).collect();
    if let Some((how, _)) = gone.first() {
        let how = *how;
        hold.lose_keys(how, gone.into_iter().map(|(_, key)| key).collect());
        return false;
    }
    let passes = errors.iter().any(|(error, _)| error.passes());
    hold.renewed(
        asked,
        match (errors.is_empty(), is_confirmed) {
            (true, true) => RenewalReply::Accepted,
            (true, false) => RenewalReply::Unconfirmed,
            (false, _) if passes => RenewalReply::Passing,
            (false, _) => RenewalReply::Refused,
        },
    );
    passes
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
