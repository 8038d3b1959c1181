//! What a client decides: which requests go to which server when, and what replies, messages and time mean for its
//! calls and holds. It has no I/O: the shell passes in what happens, and does what the [`Action`]s and [`Effects`] say.

pub(crate) mod acquire;
pub(crate) mod calls;
mod end;
pub(crate) mod hold_state;
mod holds;
mod patience;
mod renewals;
mod replies;
pub(crate) mod request;
pub(crate) mod servers;
pub(crate) mod slot;
pub(crate) mod slots;
mod tick;
pub(crate) mod tracked;

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashSet, VecDeque};
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use redis::Cmd;

use self::calls::{Call, Next, Outcome, Replies, Sending};
use self::holds::Holds;
use self::servers::{Entry, Flight, Servers, To};
use self::slot::Slot;
use crate::base::clock::Moment;
use crate::base::error::Error;
use crate::base::hash::Map;
use crate::base::random::Name;
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

/// Whom the shell has to wake, without the lock.
#[derive(Default)]
pub(crate) struct Effects {
    /// The slots of the cluster are to be learnt.
    pub(crate) learns: bool,
    /// [`Machine::wake_at`] is earlier than before.
    pub(crate) wakes: bool,
    /// The phase, a connection, or whether a release is under way.
    pub(crate) changes: bool,
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
    pub(crate) commands: Arc<[Cmd]>,
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
    /// The last copy that was given more time.
    excused: Option<u32>,
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
    /// Releases under way, and what else delays the end of the client.
    cleanups: usize,
    has_failed: bool,
    /// What the shell has to do, in this order.
    pub(crate) actions: VecDeque<Action>,
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
            actions: VecDeque::new(),
            effects: Effects::default(),
        }
    }

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
        // The end of the client waits for releases, whether or not a caller does.
        self.cleanups += usize::from(call.releases());
        let running = Running {
            call,
            copy: 0,
            blocks: None,
            timer: Moment::NEVER,
            excused: None,
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
            self.actions.push_back(Action::Unblock(id, running.copy));
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
        let (flight, commands) = Flight::of(entry, Some(within), now);
        self.actions.push_back(Action::Block(Blocked { server, flight, commands }));
        None
    }

    fn push(&mut self, entry: Entry) {
        match self.servers.push(entry) {
            Some(server) => self.actions.push_back(Action::Send(server)),
            None => self.effects.learns = true,
        }
        // What waits for a server is mostly of calls that have ended, when that is gone for long.
        let calls = &self.calls;
        self.servers.prune(2 * calls.len() + 100, |to| match to {
            To::Call(id, copy) => calls.get(id).is_some_and(|running| running.copy == *copy),
            To::Renewals(_) | To::Nobody => true,
        });
    }
}
