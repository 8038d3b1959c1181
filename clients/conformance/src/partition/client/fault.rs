//! The faults of a client: one after the other, each from the reply of the chosen request on.

use std::{
    sync::{
        MutexGuard,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use dlock_testing::{Cut, Fault, Server, Trigger, Way};

use super::{Client, Process, State};
use crate::partition::At;

/// Requests of a walk: the last `k`.
const REQUESTS: usize = 30;

/// What happens when the reply of the chosen request is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// The chosen request alone.
    Lose(Fault),
    /// The replies of this connection are late.
    Stall,
    /// They are late, and then requests vanish for longer than a lease.
    StallThenHole,
    CutAll,
    /// Requests vanish.
    Hole,
    /// Replies vanish.
    Mute,
    DropMessages,
    StopServer,
    KillServer,
    StopClient,
    KillClient,
}

pub(super) const KINDS: [Kind; 13] = [
    Kind::Lose(Fault::LoseReply),
    Kind::Lose(Fault::LoseRequest),
    Kind::Lose(Fault::HalfOpen),
    Kind::Stall,
    Kind::StallThenHole,
    Kind::CutAll,
    Kind::Hole,
    Kind::Mute,
    Kind::DropMessages,
    Kind::StopServer,
    Kind::KillServer,
    Kind::StopClient,
    Kind::KillClient,
];

/// The fault of a client.
pub(super) enum Turn<'a> {
    /// It begins with a request.
    Armed(Trigger, At),
    /// It lasts until then; of a server others cannot have.
    Struck(At, Option<MutexGuard<'a, Server>>),
}

impl<'a> Client<'a> {
    /// Begins, goes on with or ends a fault.
    pub(super) fn strike(&mut self, turn: Option<Turn<'a>>, goes_on: bool) -> Option<Turn<'a>> {
        let (proxy, now) = (self.proxy(), self.session.now());
        match turn {
            None if !goes_on => None,
            None => {
                self.kind = KINDS[self.turns % KINDS.len()];
                let chosen = self.turns / KINDS.len() % REQUESTS;
                let fault =
                    if let Kind::Lose(fault) = self.kind { fault } else { Fault::StallReply };
                let seen = AtomicUsize::new(0);
                let is_chosen = move |_: &[Vec<u8>]| seen.fetch_add(1, Ordering::SeqCst) == chosen;
                drop(proxy.seen());
                Some(Turn::Armed(proxy.on(1, fault, is_chosen), now))
            }
            Some(Turn::Armed(trigger, _)) if trigger.fired() > 0 => Some(self.begin()),
            // The request has no reply (a SUBSCRIBE), or there are too few.
            Some(Turn::Armed(_, since)) if now > since + Duration::from_secs(3) => {
                proxy.heal();
                self.turns += 1;
                None
            }
            Some(Turn::Struck(until, _)) if now >= until && self.kind == Kind::StallThenHole => {
                proxy.heal();
                proxy.stall(Way::ToServer);
                self.kind = Kind::Hole;
                Some(Turn::Struck(now + Duration::from_millis(self.lease * 3 / 2), None))
            }
            Some(Turn::Struck(until, server)) if now >= until => {
                self.end(server);
                self.turns += 1;
                let turns = self.session.tally.turns.fetch_add(1, Ordering::SeqCst) + 1;
                if turns.is_multiple_of(1_000) {
                    println!("{turns} turns");
                }
                None
            }
            other => other,
        }
    }

    fn begin(&mut self) -> Turn<'a> {
        let (proxy, session) = (self.proxy(), self.session);
        let mut server = session.server.try_lock().ok();
        let most = if self.dice.one_in(4) { self.lease * 3 / 2 } else { 400 };
        let mut lasts = self.dice.millis(most);
        match (self.kind, &mut server) {
            (Kind::Lose(_), _) => lasts = Duration::ZERO,
            (Kind::Stall | Kind::StallThenHole, _) => {}
            (Kind::CutAll, _) => proxy.cut(Cut::Fin),
            (Kind::Hole, _) => proxy.stall(Way::ToServer),
            // If others have the server.
            (Kind::Mute, _) | (Kind::StopServer | Kind::KillServer, None) => {
                proxy.stall(Way::ToClient);
            }
            (Kind::DropMessages, _) => {
                proxy.heal();
                proxy.swallow_messages();
            }
            (Kind::StopServer, Some(server)) => server.freeze(),
            (Kind::KillServer, Some(server)) => server.kill9(),
            (Kind::StopClient, _) => drop(self.process.as_mut().map(|one| one.child.freeze())),
            (Kind::KillClient, _) => {
                self.process = None;
                for task in &mut self.tasks {
                    if matches!(task.state, State::Held | State::Releasing) {
                        task.settle(session, task.yes);
                    }
                    task.turn(State::Idle, session.now(), Duration::ZERO);
                }
            }
        }
        session.note(format!("{} * {:?} for {lasts:?}", self.n, self.kind));
        if !matches!(self.kind, Kind::StopServer | Kind::KillServer) {
            server = None;
        }
        Turn::Struck(session.now() + lasts, server)
    }

    fn end(&mut self, server: Option<MutexGuard<'a, Server>>) {
        match (self.kind, server) {
            (Kind::StopServer, Some(server)) => server.thaw(),
            (Kind::KillServer, Some(mut server)) => server.start_again(),
            (Kind::StopClient, _) => drop(self.process.as_mut().map(|one| one.child.thaw())),
            _ => {}
        }
        // What is late arrives, or never does.
        if self.dice.one_in(2) && !matches!(self.kind, Kind::DropMessages) {
            self.proxy().cut(Cut::Reset);
        }
        self.proxy().heal();
        self.session.note(format!("{} * healed", self.n));
        if self.process.is_none() {
            self.process = Process::start(self.session);
            self.open();
        }
    }
}
