//! The state of the fake server: the machine, its keys, and the connections.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::time::{Duration, SystemTime};

use dlock_core::base::hash::HashKeys;
use dlock_core::base::ids::WaiterId;
use dlock_core::base::key::Key;
use dlock_core::base::time::Now;
use dlock_core::events::tick::Progress;
use dlock_core::machine::{Fact, Machine, ServerEvent};
use dlock_core::ports::effects::{Answer, Effects, Outcome};
use dlock_core::ports::lost::Lost;
use dlock_core::ports::turn::{Caller, Turn};
use dlock_core::tables::regime::Gate;
use dlock_core::tables::settings::Settings;
use dlock_core::value::hold::NO_CLIENT;
use tokio::sync::mpsc::UnboundedSender;
use tokio::time::Instant;

use crate::keys::Keys;
use crate::resp::Resp;

/// Pieces of work of one tick.
const AT_ONCE: usize = 1_024;
/// Before work is looked at again that a tick has left.
const SECOND_LOOK: Duration = Duration::from_millis(1);

pub(crate) struct State {
    pub(crate) machine: Machine,
    pub(crate) keys: Keys,
    pub(crate) connections: BTreeMap<u64, Connection>,
    /// The blocked calls, with their connections.
    pub(crate) parked: HashMap<WaiterId, u64>,
    /// Grants for calls that are not blocked any more.
    pub(crate) undelivered: VecDeque<WaiterId>,
    pub(crate) is_unavailable: bool,
    pub(crate) is_frozen: bool,
    /// How many replicas acknowledge a grant.
    pub(crate) replicas: u32,
    /// The number of the latest connection.
    latest: u64,
    began: Began,
    /// The next work without a command.
    alarm: Option<Instant>,
    /// Reused by each step.
    effects: Effects,
}

/// When the server started.
#[derive(Clone, Copy)]
struct Began {
    at: Instant,
    wall_us: u64,
}

/// One connection of a client.
pub(crate) struct Connection {
    /// What it still has to get. The connection closes when this is dropped.
    to_client: UnboundedSender<Vec<u8>>,
    pub(crate) db: u32,
    /// A call blocks it: it executes no other until that is answered.
    pub(crate) is_blocked: bool,
    pub(crate) channels: BTreeSet<Channel>,
}

/// A channel, and whether it is one of sharded pub/sub.
pub(crate) type Channel = (bool, Vec<u8>);

impl Connection {
    pub(crate) fn send(&self, bytes: Resp) {
        // An error: its task has ended, and reports so.
        let _ = self.to_client.send(bytes.0);
    }
}

impl State {
    pub(crate) fn new() -> Self {
        let wall = SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default();
        Self {
            machine: machine(),
            keys: Keys::default(),
            connections: BTreeMap::new(),
            parked: HashMap::new(),
            undelivered: VecDeque::new(),
            is_unavailable: false,
            is_frozen: false,
            replicas: 0,
            latest: 0,
            began: Began { at: Instant::now(), wall_us: micros(wall) },
            alarm: None,
            effects: Effects::default(),
        }
    }

    /// A new connection; None: the server is unavailable.
    pub(crate) fn connect(&mut self, to_client: UnboundedSender<Vec<u8>>) -> Option<u64> {
        if self.is_unavailable {
            return None;
        }
        self.latest += 1;
        let connection =
            Connection { to_client, db: 0, is_blocked: false, channels: BTreeSet::new() };
        self.connections.insert(self.latest, connection);
        Some(self.latest)
    }

    /// A connection is closed, from either side.
    pub(crate) fn disconnect(&mut self, id: u64) {
        if self.connections.remove(&id).is_none() {
            return;
        }
        self.parked.retain(|_, client| *client != id);
        self.step(|machine, turn| {
            machine.event(turn, ServerEvent::ClientGone(id));
            machine.event(turn, ServerEvent::Drained);
        });
    }

    pub(crate) fn kill_connections(&mut self) {
        for id in self.connections.keys().copied().collect::<Vec<_>>() {
            self.disconnect(id);
        }
    }

    /// Loses the keys and all that the machine knows but the last token, which a real one takes from the wall clock.
    pub(crate) fn restart(&mut self) {
        self.kill_connections();
        let token = self.machine.tables().tokens.last();
        self.machine = machine();
        self.machine.learn(Fact::Token(token));
        self.keys = Keys::default();
        self.undelivered.clear();
    }

    /// The caller of a command over that connection; [`NO_CLIENT`]: of one over none.
    pub(crate) fn caller(&self, id: u64) -> Caller {
        match self.connections.get(&id) {
            Some(connection) => Caller { client: id, db: connection.db, may_block: true },
            None => Caller { client: NO_CLIENT, db: 0, may_block: false },
        }
    }

    /// Removes a key.
    pub(crate) fn delete(&mut self, db: u32, name: &[u8]) -> bool {
        let key = Key { db, name };
        let Some(value) = self.keys.take(key) else { return false };
        let lost = Lost::of(&value, key, self.machine.tables().spent.prints());
        self.step(|machine, turn| {
            machine.event(turn, ServerEvent::Unlinked(key, Some(lost)));
            machine.event(turn, ServerEvent::Drained);
        });
        true
    }

    /// Does all that is due by now, unless the server is frozen.
    pub(crate) fn catch_up(&mut self) {
        if self.is_frozen {
            self.alarm = None;
            return;
        }
        let mut progress = Progress::More;
        while progress == Progress::More {
            while let Some(waiter) = self.undelivered.pop_front() {
                self.step(|machine, turn| {
                    machine.event(turn, ServerEvent::Undelivered(waiter));
                });
            }
            self.step(|machine, turn| progress = machine.tick(turn, Gate::Open, AT_ONCE));
        }
        let next = self.machine.next_alarm(self.now(), Gate::Open);
        let next = next.and_then(|at| self.began.at.checked_add(Duration::from_micros(at.0)));
        let now = Instant::now();
        self.alarm = match next {
            // What is due is done: a second look may wait.
            Some(at) if at <= now => self.alarm.filter(|at| *at > now).or(Some(now + SECOND_LOOK)),
            later => later,
        };
    }

    /// When [`State::catch_up`] has something to do.
    pub(crate) fn alarm(&self) -> Option<Instant> {
        self.alarm
    }

    /// Runs the machine outside of commands.
    pub(crate) fn step(&mut self, run: impl FnOnce(&mut Machine, &mut Turn<'_>)) {
        self.step_of(Caller::NONE, run);
    }

    /// Runs the machine and carries out the effects. Returns the answer; None: the caller is blocked, or there is none.
    pub(crate) fn step_of(
        &mut self,
        caller: Caller,
        run: impl FnOnce(&mut Machine, &mut Turn<'_>),
    ) -> Option<Outcome> {
        let now = self.now();
        let mut fx = std::mem::take(&mut self.effects);
        fx.clear();
        self.machine.learn(Fact::Paused(false, now.mono));
        self.machine.learn(Fact::Gate(Gate::Open, now.mono));
        run(&mut self.machine, &mut Turn { keys: &mut self.keys, now, caller, fx: &mut fx });
        self.perform(caller.client, &mut fx);
        let reply = match fx.answer.take() {
            Some(Answer::Now(outcome)) => Some(outcome),
            Some(Answer::Parked(_)) | None => None,
        };
        self.effects = fx;
        reply
    }

    pub(crate) fn now(&self) -> Now {
        let elapsed = micros(Instant::now().saturating_duration_since(self.began.at));
        Now {
            mono: dlock_core::base::time::Instant(elapsed),
            wall_us: self.began.wall_us.saturating_add(elapsed),
        }
    }
}

fn machine() -> Machine {
    // The keys of its hash tables are fixed, so that tests do the same each time.
    Machine::new(HashKeys(1, 2), Settings::default())
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}
