//! A machine without a server: keys in a map, and a clock that stands still.

use dlock_core::base::hash::HashKeys;
use dlock_core::base::ids::WaiterId;
use dlock_core::base::key::Key;
use dlock_core::base::time::{Instant, Now};
use dlock_core::machine::{Fact, Machine};
use dlock_core::ports::effects::{Answer, Effects, Outcome};
use dlock_core::ports::store::{Lookup, Reach, Store};
use dlock_core::ports::turn::{Caller, Turn};
use dlock_core::tables::regime::Gate;
use dlock_core::tables::settings::Settings;
use dlock_core::value::resource::Resource;
use dlock_wire::permit::PermitId;
use dlock_wire::reply::ErrorCode;
use dlock_wire::request::{Acquire, LockFamily, LockOp, MAcquire, MRelease, MultiOp, Op, Release};
use std::collections::HashMap;
use std::hint::black_box;

const NOW: Now = Now { mono: Instant(1_000_000), wall_us: 1_700_000_000_000_000 };

/// The result of an acquire.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Came {
    Granted,
    /// Under this id, if the call is blocked.
    WaitQueues(Option<WaiterId>),
    Deadlock,
}

/// How an acquire waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wait {
    Block,
    Queue,
}

/// The cost of one acquire.
#[derive(Debug, Clone, Copy)]
pub struct Cost {
    pub nanos: u64,
    /// Waiters, holds and owners that the deadlock check inspected.
    pub looks: u64,
    /// The check ended at its budget.
    pub is_cut: bool,
}

#[derive(Debug, Default)]
struct Keys(HashMap<Vec<u8>, Resource>);

impl Store for Keys {
    fn reach(&self) -> Reach {
        Reach::Everywhere
    }

    fn reaches(&self, _: Key<'_>) -> bool {
        true
    }

    fn get(&mut self, key: Key<'_>) -> Lookup<'_> {
        self.0.get_mut(key.name).map_or(Lookup::Missing, Lookup::Here)
    }

    fn peek(&mut self, key: Key<'_>) -> Option<&Resource> {
        match self.get(key) {
            Lookup::Here(resource) => Some(resource),
            _ => None,
        }
    }

    fn put(&mut self, key: Key<'_>, resource: Resource) {
        self.0.insert(key.name.to_vec(), resource);
    }

    fn remove(&mut self, key: Key<'_>) {
        self.0.remove(key.name);
    }

    fn persist(&mut self, _: Key<'_>) {}
}

/// See the module documentation. Every owner has a connection of its own.
pub struct World {
    machine: Machine,
    keys: Keys,
    fx: Effects,
    /// Commands are measured.
    pub records: bool,
    /// The costs of acquires.
    pub costs: Vec<Cost>,
    /// Nanoseconds of all commands, releases included.
    pub total: u64,
}

impl World {
    pub fn new(detects: bool) -> Self {
        let most = 10_000_000;
        let settings = Settings {
            deadlock_detection: detects,
            max_waiters: most,
            max_waiters_per_key: most,
            ..Settings::default()
        };
        let mut machine = Machine::new(HashKeys(1, 2), settings);
        machine.learn(Fact::Paused(false, NOW.mono));
        machine.learn(Fact::Gate(Gate::Open, NOW.mono));
        let (keys, fx) = (Keys::default(), Effects::default());
        Self { machine, keys, fx, records: false, costs: Vec::new(), total: 0 }
    }

    /// ACQUIRE for one key, MACQUIRE for several.
    pub fn acquire(&mut self, owner: usize, keys: &[usize], wait: Wait) -> Came {
        let (name, names) = (owner_name(owner), names(keys));
        let names: Vec<&[u8]> = names.iter().map(Vec::as_slice).collect();
        let (block_ms, queue_ms) = match wait {
            Wait::Block => (Some(0), None),
            Wait::Queue => (None, Some(3_600_000)),
        };
        let looks = self.machine.tables().searched;
        let cut = self.machine.tables().counters.deadlock_searches_cut;
        let start = std::time::Instant::now();
        if let &[key] = &names[..] {
            let call = Acquire { block_ms, queue_ms, ..Acquire::new(key, &name) };
            self.execute(owner, Op::Lock(LockFamily::Lock, LockOp::Acquire(call)));
        } else {
            let call = MAcquire { block_ms, ..MAcquire::new(&names, &name) };
            self.execute(owner, Op::Multi(MultiOp::Acquire(call)));
        }
        let nanos = nanos_since(start);
        if self.records {
            self.total += nanos;
            self.costs.push(Cost {
                nanos,
                looks: self.machine.tables().searched - looks,
                is_cut: self.machine.tables().counters.deadlock_searches_cut > cut,
            });
        }
        match &self.fx.answer {
            Some(Answer::Parked(waiter)) => Came::WaitQueues(Some(*waiter)),
            Some(Answer::Now(Outcome::Null)) | None => Came::WaitQueues(None),
            Some(Answer::Now(Outcome::Fault(fault))) => {
                assert_eq!(fault.code, ErrorCode::Deadlock, "{}", fault.text);
                Came::Deadlock
            }
            Some(Answer::Now(_)) => Came::Granted,
        }
    }

    /// RELEASE of one key, MRELEASE of several. Returns the calls that this grants.
    pub fn release(&mut self, owner: usize, keys: &[usize]) -> Vec<WaiterId> {
        let (name, names) = (owner_name(owner), names(keys));
        let names: Vec<&[u8]> = names.iter().map(Vec::as_slice).collect();
        let start = std::time::Instant::now();
        if let &[key] = &names[..] {
            let call = Release::new(key, &name);
            self.execute(owner, Op::Lock(LockFamily::Lock, LockOp::Release(call)));
        } else {
            let call = MRelease { keys: &names, owner: &name, reqid: None };
            self.execute(owner, Op::Multi(MultiOp::Release(call)));
        }
        if self.records {
            self.total += nanos_since(start);
        }
        let woken: Vec<WaiterId> = self.fx.wakes.iter().map(|wake| wake.waiter).collect();
        for &waiter in &woken {
            self.machine.learn(Fact::Delivered(waiter));
        }
        woken
    }

    /// Nanoseconds for an uncontended pair of acquire and release, the mean of `times`.
    pub fn pair(&mut self, keys: &[usize], times: u32) -> u64 {
        let (name, names) = (owner_name(0), names(keys));
        let names: Vec<&[u8]> = names.iter().map(Vec::as_slice).collect();
        let start = std::time::Instant::now();
        for _ in 0..times {
            if let &[key] = &names[..] {
                let call = Acquire { block_ms: Some(0), ..Acquire::new(key, &name) };
                self.execute(0, Op::Lock(LockFamily::Lock, LockOp::Acquire(call)));
                let call = Release::new(key, &name);
                self.execute(0, Op::Lock(LockFamily::Lock, LockOp::Release(call)));
            } else {
                let call = MAcquire { block_ms: Some(0), ..MAcquire::new(&names, &name) };
                self.execute(0, Op::Multi(MultiOp::Acquire(call)));
                let call = MRelease { keys: &names, owner: &name, reqid: None };
                self.execute(0, Op::Multi(MultiOp::Release(call)));
            }
        }
        nanos_since(start) / u64::from(times)
    }

    fn execute(&mut self, owner: usize, op: Op<'_>) {
        self.fx.clear();
        let caller = Caller { client: owner as u64 + 1, db: 0, may_block: true };
        let turn = &mut Turn { keys: &mut self.keys, now: NOW, caller, fx: &mut self.fx };
        self.machine.execute(turn, &op, PermitId::default());
        black_box(&self.fx);
    }
}

pub fn nanos_since(start: std::time::Instant) -> u64 {
    u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX)
}

fn owner_name(owner: usize) -> Vec<u8> {
    format!("worker-{owner:06}").into_bytes()
}

fn names(keys: &[usize]) -> Vec<Vec<u8>> {
    keys.iter().map(|key| format!("account:{key:06}").into_bytes()).collect()
}
