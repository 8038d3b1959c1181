//! A machine whose time does not advance, and its visible state: holders and waiters.

use crate::support::{Keys, WALL_US};
use dlock_core::base::hash::HashKeys;
use dlock_core::base::ids::ALONE;
use dlock_core::base::key::Key;
use dlock_core::base::kind::Kind;
use dlock_core::base::slab::SlabId;
use dlock_core::base::time::{Instant, Now};
use dlock_core::events::tick::Progress;
use dlock_core::machine::{Fact, Machine, ServerEvent};
use dlock_core::ports::effects::{Answer, Effects, Outcome};
use dlock_core::ports::store::{Lookup, Store};
use dlock_core::ports::turn::{Caller, Turn};
use dlock_core::tables::queues::waiter::Waiter;
use dlock_core::tables::regime::Gate;
use dlock_core::tables::settings::Settings;
use dlock_core::value::wait_request::Demand;
use dlock_wire::reply::ErrorCode;
use dlock_wire::request::{
    Acquire, LockFamily, LockOp, MAcquire, Mode, MultiOp, Op, Release, RwAcquire, RwOp, RwRelease,
    SemAcquire, SemOp, SemRelease,
};

pub(super) const NOW: Now = Now { mono: Instant(1_000_000), wall_us: WALL_US };

/// A key: its family, and its number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct At(pub(super) Kind, pub(super) usize);

impl At {
    pub(super) fn name(self) -> Vec<u8> {
        format!("{:?}{}", self.0, self.1).into_bytes()
    }
}

/// The call of an owner.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Ask {
    /// A lock, fair or not.
    One(At),
    Rw(At, Mode),
    /// Locks that are not fair.
    All(Vec<At>),
    Any(Vec<At>),
    Permit(At),
}

/// The result of a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Came {
    Granted,
    WaitQueues,
    /// The text.
    Deadlock(String),
}

/// A waiter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) owner: usize,
    /// `None` for a lock.
    pub(super) mode: Option<Mode>,
    /// The call for several keys to which it belongs, and whether that takes any of them.
    pub(super) call: Option<(u32, bool)>,
}

/// The state of a key: its holders and its waiters.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct State {
    pub(super) at: At,
    pub(super) holders: Vec<(usize, Option<Mode>)>,
    pub(super) queue: Vec<Place>,
}

pub(super) struct Scene {
    pub(super) machine: Machine,
    pub(super) keys: Keys,
    pub(super) all: Vec<At>,
    /// Advances only while the tick searches.
    now: Now,
    fx: Effects,
    /// Each call has a connection of its own.
    calls: u64,
}

impl Scene {
    pub(super) fn new(all: Vec<At>) -> Self {
        Self {
            machine: open_machine(),
            keys: Keys::default(),
            all,
            now: NOW,
            fx: Effects::default(),
            calls: 0,
        }
    }

    /// The owner asks, and waits if it has to: in a blocked call, or as a queue entry.
    pub(super) fn ask(&mut self, owner: usize, ask: &Ask, blocks: bool) -> Came {
        let owner = owner_name(owner);
        let caller = self.caller();
        let (block_ms, queue_ms) = if blocks { (Some(0), None) } else { (None, Some(60_000)) };
        self.fx.clear();
        match ask {
            Ask::One(at) => {
                let name = at.name();
                let call = Acquire { block_ms, queue_ms, ..Acquire::new(&name, &owner) };
                self.execute(caller, lock(*at, LockOp::Acquire(call)));
            }
            Ask::Rw(at, mode) => {
                let name = at.name();
                let acquire = Acquire { block_ms, queue_ms, ..Acquire::new(&name, &owner) };
                self.execute(caller, Op::Rw(RwOp::Acquire(RwAcquire { acquire, mode: *mode })));
            }
            Ask::All(several) | Ask::Any(several) => {
                let names: Vec<Vec<u8>> = several.iter().map(|at| at.name()).collect();
                let names: Vec<&[u8]> = names.iter().map(Vec::as_slice).collect();
                let call = MAcquire { block_ms: Some(0), ..MAcquire::new(&names, &owner) };
                match ask {
                    Ask::All(_) => self.execute(caller, Op::Multi(MultiOp::Acquire(call))),
                    _ => self.execute(caller, Op::Multi(MultiOp::AnyAcquire(call))),
                }
            }
            Ask::Permit(at) => {
                let name = at.name();
                let acquire = Acquire { block_ms, queue_ms, ..Acquire::new(&name, &owner) };
                let call = SemAcquire { acquire, count: 1, limit: Some(1) };
                self.execute(caller, Op::Sem(SemOp::Acquire(call)));
            }
        }
        match self.fx.answer.take() {
            Some(Answer::Parked(_) | Answer::Now(Outcome::Null)) => Came::WaitQueues,
            Some(Answer::Now(Outcome::Fault(fault))) if fault.code == ErrorCode::Deadlock => {
                assert!(self.fx.is_quiet(), "nobody else is disturbed: {:?}", self.fx);
                Came::Deadlock(fault.text)
            }
            Some(Answer::Now(outcome)) if outcome.is_grant() => Came::Granted,
            other => panic!("{other:?}"),
        }
    }

    /// The owner releases all its holds of a key.
    pub(super) fn release(&mut self, at: At, (owner, mode): (usize, Option<Mode>)) {
        let (name, owner) = (at.name(), owner_name(owner));
        let caller = self.caller();
        self.fx.clear();
        let release = Release { all: true, ..Release::new(&name, &owner) };
        match mode {
            None => self.execute(caller, lock(at, LockOp::Release(release))),
            Some(mode) => self.execute(caller, Op::Rw(RwOp::Release(RwRelease { release, mode }))),
        }
        assert_eq!(self.fx.answer, Some(Outcome::Count(0).into()));
        self.settle();
    }

    pub(super) fn is_waiting(&self, at: At, owner: usize) -> bool {
        let key = Key { db: 0, name: &at.name() };
        self.machine.tables().waits.waiter_at(key, &owner_name(owner)).is_some()
    }

    /// The owner leaves the queue of the key.
    pub(super) fn give_up(&mut self, at: At, owner: usize) {
        let (name, owner) = (at.name(), owner_name(owner));
        let caller = self.caller();
        self.fx.clear();
        let waits = &self.machine.tables().waits;
        let slot = waits.waiter_at(Key { db: 0, name: &name }, &owner).expect("it waits");
        let demand = waits.get(slot).map(|waiter| waiter.ask.demand);
        let release = Release::new(&name, &owner);
        let op = match demand.expect("it waits") {
            Demand::Rw(mode) => Op::Rw(RwOp::Release(RwRelease { release, mode })),
            Demand::Permits { .. } => {
                let call = SemRelease { all: true, ..SemRelease::new(&name, &owner) };
                Op::Sem(SemOp::Release(call))
            }
            _ => lock(at, LockOp::Release(release)),
        };
        self.execute(caller, op);
        self.settle();
    }

    /// RENAME: the holders move with the key, the waiters stay.
    pub(super) fn rename(&mut self, from: At, to: At) {
        let (from, to) = (from.name(), to.name());
        let [from, to] = [&from, &to].map(|name| Key { db: 0, name });
        self.fx.clear();
        self.keys.prints = Some(self.machine.tables().spent.prints());
        let [there, gone] = self.keys.rename(from, to);
        let turn = &mut Turn::without_caller(&mut self.keys, self.now, &mut self.fx);
        let machine = &mut self.machine;
        machine.event(turn, ServerEvent::Moved(to));
        machine.event(turn, ServerEvent::Unlinked(to, there));
        machine.event(turn, ServerEvent::Unlinked(from, gone));
        machine.event(turn, ServerEvent::Drained);
        self.settle();
    }

    /// Does the deferred work.
    pub(super) fn settle(&mut self) {
        let turn = &mut Turn::without_caller(&mut self.keys, self.now, &mut self.fx);
        let _ = self.machine.tick(turn, Gate::Open, usize::MAX);
    }

    fn execute(&mut self, caller: Caller, op: Op<'_>) {
        let turn = &mut Turn { keys: &mut self.keys, now: self.now, caller, fx: &mut self.fx };
        self.machine.execute(turn, &op, u128::from(caller.client).to_be_bytes());
    }

    fn caller(&mut self) -> Caller {
        self.calls += 1;
        Caller { client: self.calls, db: 0, may_block: true }
    }

    /// Lets the tick search until nothing is left to search, one piece of work after the other. Before each refusal,
    /// `seen` gets the state. Returns the refusals: the text, and whether a blocked call got it.
    pub(super) fn search_late(&mut self, mut seen: impl FnMut(&[State])) -> Vec<(String, bool)> {
        self.machine.configure(|settings| settings.deadlock_recheck_ms = 1_000);
        let mut all = Vec::new();
        loop {
            let before = self.look();
            let (refused, progress) = self.tick_once(Gate::Open);
            for _ in &refused {
                seen(&before);
            }
            all.extend(refused);
            if progress == Progress::Done && !self.go_on_if_soon() {
                return all;
            }
        }
    }

    /// One piece of the search.
    pub(super) fn search_a_piece(&mut self) {
        while self.tick_once(Gate::Open).1 == Progress::More {}
        self.go_on_if_soon();
    }

    /// The tick searches while the server accepts no writes.
    pub(super) fn search_shut(&mut self) {
        for _ in 0..100 {
            assert_eq!(self.tick_once(Gate::Shut).0, []);
            self.pass(10);
        }
    }

    fn tick_once(&mut self, gate: Gate) -> (Vec<(String, bool)>, Progress) {
        self.fx.clear();
        let turn = &mut Turn::without_caller(&mut self.keys, self.now, &mut self.fx);
        let progress = self.machine.tick(turn, gate, 1);
        self.machine.learn(Fact::Gate(Gate::Open, self.now.mono));
        // The answer names the key of the refused wait alone, and the log names all.
        let newest = self.machine.tables().log.newest().next();
        let links = newest.map(|entry| String::from_utf8_lossy(&entry.text).into_owned());
        let text = format!("this call would wait forever: {}", links.unwrap_or_default());
        let blocked = self.fx.wakes.iter().filter_map(|wake| match &wake.outcome {
            Outcome::Fault(fault) if fault.code == ErrorCode::Deadlock => {
                Some((text.clone(), true))
            }
            _ => None,
        });
        let messages = self.fx.messages.iter().map(|message| &message.text);
        let told = messages.filter(|text| text.starts_with(b"deadlock "));
        let told = told.map(|text| (String::from_utf8_lossy(text).into_owned(), false));
        (blocked.chain(told).collect(), progress)
    }

    /// Lets time pass until the tick has work, if that is soon.
    fn go_on_if_soon(&mut self) -> bool {
        let next = self.machine.next_alarm(self.now, Gate::Open);
        let next = next.filter(|at| *at < self.now.mono + 5_000);
        self.now.mono = next.unwrap_or(self.now.mono).max(self.now.mono);
        next.is_some()
    }

    pub(super) fn time(&self) -> Instant {
        self.now.mono
    }

    pub(super) fn pass(&mut self, ms: u64) {
        self.now.mono = self.now.mono + ms;
    }

    /// The state of all keys.
    pub(super) fn look(&mut self) -> Vec<State> {
        let Self { machine, keys, all, .. } = self;
        let state = |at: &At| {
            let name = at.name();
            let key = Key { db: 0, name: &name };
            let mut state = State { at: *at, holders: Vec::new(), queue: Vec::new() };
            if let Lookup::Here(resource) = keys.get(key)
                && at.0 != Kind::Semaphore
            {
                let mode = |id| match (at.0, id) {
                    (Kind::Rw, ALONE) => Some(Mode::Write),
                    (Kind::Rw, _) => Some(Mode::Read),
                    _ => None,
                };
                let holds = resource.holds();
                state.holders = holds.map(|(id, hold)| (number(&hold.owner), mode(id))).collect();
            }
            if let Some(queue) = machine.tables().waits.queue_of(key) {
                let waiters = machine.tables().waits.walk(queue).map(|(_, waiter)| waiter);
                let place = |waiter: &Waiter| Place {
                    owner: number(&waiter.owner),
                    mode: match waiter.ask.demand {
                        Demand::Rw(mode) => Some(mode),
                        _ => None,
                    },
                    call: machine
                        .tables()
                        .waits
                        .group(waiter.group)
                        .map(|group| (waiter.group.number(), group.takes_any)),
                };
                state.queue = waiters.map(place).collect();
            }
            state
        };
        all.iter().map(state).collect()
    }
}

/// A machine of a server that accepts writes.
fn open_machine() -> Machine {
    // The search from the tick has tests of its own.
    let settings = Settings {
        deadlock_recheck_ms: 0,
        max_waiters_per_key: 100_000,
        max_holds_per_key: 100_000,
        max_keys_per_call: 100_000,
        ..Settings::default()
    };
    let mut machine = Machine::new(HashKeys(1, 2), settings);
    machine.learn(Fact::Gate(Gate::Open, Instant(0)));
    machine
}

pub(super) fn owner_name(owner: usize) -> Vec<u8> {
    format!("o{owner}").into_bytes()
}

fn number(owner: &[u8]) -> usize {
    std::str::from_utf8(&owner[1..]).expect("text").parse().expect("a number")
}

/// An operation on a lock for one holder.
fn lock(at: At, op: LockOp<'_>) -> Op<'_> {
    Op::Lock(if at.0 == Kind::Fair { LockFamily::Fair } else { LockFamily::Lock }, op)
}
