//! A machine under test: keys in a map, a clock that only the test moves, and a replica that
//! replays every record.

use dlock_core::effects::{Effects, Event, Outcome};
use dlock_core::hold::Notify;
use dlock_core::machine::{Caller, Gate, Lost, Machine, Progress, Settings};
use dlock_core::queue::{HashKeys, WaiterId};
use dlock_core::resource::{Lock, Resource};
use dlock_core::store::{Key, Slot, Store};
use dlock_core::time::{Instant, Now};
use dlock_wire::reply::ErrorCode;
use dlock_wire::request::Request;
use std::collections::BTreeMap;

/// Microseconds in a millisecond.
pub const MS: u64 = 1_000;

/// The wall clock when the monotonic clock of a [`World`] shows 0, in microseconds since 1970.
pub const WALL_US: u64 = 1_700_000_000_000_000;

/// Database and name of a key.
pub type Id = (u32, Vec<u8>);

/// Keys in a sorted list (there are few); `None` stands for a value of another type.
#[derive(Debug, Default)]
pub struct Keys {
    values: Vec<(Id, Option<Resource>)>,
    /// Keys that have a time to live which somebody set.
    pub with_ttl: Vec<Id>,
}

impl Store for Keys {
    fn get(&mut self, key: Key<'_>) -> Slot<'_> {
        match self.find(key).map(|at| &mut self.values[at].1) {
            Err(_) => Slot::Missing,
            Ok(None) => Slot::Foreign,
            Ok(Some(resource)) => Slot::Here(resource),
        }
    }

    fn put(&mut self, key: Key<'_>, resource: Resource) {
        assert!(self.find(key).is_err(), "a new value is put only where there is none");
        self.insert(key, Some(resource));
    }

    fn remove(&mut self, key: Key<'_>) {
        assert!(self.clear(key), "only what is there is removed");
    }

    fn is_empty(&mut self, db: u32) -> bool {
        self.values.iter().all(|((other, _), _)| *other != db)
    }

    fn persist(&mut self, key: Key<'_>) {
        assert!(self.find(key).is_ok(), "only what is there is persisted");
        self.with_ttl.retain(|id| !is(id, key));
    }
}

impl Keys {
    fn find(&self, key: Key<'_>) -> Result<usize, usize> {
        let wanted = (key.db, key.name);
        self.values.binary_search_by(|((db, name), _)| (*db, name.as_slice()).cmp(&wanted))
    }

    fn insert(&mut self, key: Key<'_>, value: Option<Resource>) {
        let id = own(key);
        match self.find(key) {
            Ok(at) => self.values[at].1 = value,
            Err(at) => self.values.insert(at, (id, value)),
        }
    }

    /// Takes away what is there; whether it was one of ours.
    fn clear(&mut self, key: Key<'_>) -> bool {
        self.take(key).is_some_and(|value| value.is_some())
    }

    #[allow(clippy::option_option)] // nothing there, or a value of another type
    fn take(&mut self, key: Key<'_>) -> Option<Option<Resource>> {
        self.with_ttl.retain(|id| !is(id, key));
        self.find(key).ok().map(|at| self.values.remove(at).1)
    }

    fn lost(&self, key: Key<'_>) -> Option<Lost> {
        let at = self.find(key).ok()?;
        self.values[at].1.as_ref().map(Lost::of)
    }

    fn swap(&mut self, a: u32, b: u32) {
        for ((db, _), _) in &mut self.values {
            *db = match *db {
                db if db == a => b,
                db if db == b => a,
                db => db,
            };
        }
        self.values.sort_by(|(one, _), (other, _)| one.cmp(other));
    }

    /// What must be the same on a replica, key by key.
    pub fn digest(&self) -> impl Iterator<Item = (&Id, Option<Digest<'_>>)> {
        self.values.iter().map(|(key, value)| (key, value.as_ref().map(Digest::of)))
    }
}

fn own(key: Key<'_>) -> Id {
    (key.db, key.name.to_vec())
}

fn is(id: &Id, key: Key<'_>) -> bool {
    id.0 == key.db && id.1 == key.name
}

/// A resource without its remaining times.
#[derive(Debug, PartialEq, Eq)]
pub enum Digest<'a> {
    /// Closed by lock-delay for so many milliseconds.
    Closed(u64),
    /// Held.
    Held {
        owner: &'a [u8],
        token: u64,
        count: u32,
        lease_ms: u64,
        requests: &'a [u8],
        label: &'a [u8],
        notify: Option<&'a Notify>,
        tie_ms: Option<u64>,
        unclaimed_ms: Option<u64>,
    },
    /// A key that should not be there.
    Free,
}

impl<'a> Digest<'a> {
    /// That of `resource`.
    pub fn of(resource: &'a Resource) -> Self {
        match resource.lock() {
            Lock::Free => Self::Free,
            Lock::Closed { delay_ms, .. } => Self::Closed(*delay_ms),
            Lock::Held(hold) => Self::Held {
                owner: &hold.owner,
                token: hold.token,
                count: hold.count,
                lease_ms: hold.lease_ms,
                requests: hold.requests(),
                label: hold.label(),
                notify: hold.extras.as_ref().map(|extras| &extras.notify),
                tie_ms: hold.tie().map(|tie| tie.ms),
                unclaimed_ms: hold.unclaimed().map(|unclaimed| unclaimed.queue_ms),
            },
        }
    }
}

/// A keyspace event: its name, the database and the key.
pub type SeenEvent = (&'static str, u32, Vec<u8>);

/// Everything that came out of one step.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Seen {
    /// The answer to the caller.
    pub reply: Option<Outcome>,
    /// The caller is blocked.
    pub parked: Option<WaiterId>,
    /// Answers to blocked callers, by connection.
    pub wakes: Vec<(u64, Outcome)>,
    /// Channel and text.
    pub messages: Vec<(Vec<u8>, Vec<u8>)>,
    /// Keyspace events.
    pub events: Vec<SeenEvent>,
    /// Keys with a record, in order.
    pub recorded: Vec<(u32, Vec<u8>)>,
    /// By how much the counters grew, in their order.
    pub counted: [u64; 9],
}

/// See the module.
#[derive(Debug)]
pub struct World {
    /// The machine that decides.
    pub machine: Machine,
    /// Its keys.
    pub keys: Keys,
    replica: Machine,
    replica_keys: Keys,
    now_us: u64,
    /// The wall clock, in microseconds, when the monotonic clock shows 0.
    pub wall_us: u64,
    paused: bool,
    fx: Effects,
    /// Calls that are blocked now, and whose they are.
    pub blocked: BTreeMap<WaiterId, u64>,
    /// Grants that were sent and have not arrived.
    pub sent: Vec<(WaiterId, u64)>,
}

impl World {
    /// Nothing held, the clock at `now_us`.
    pub fn new(settings: Settings, now_us: u64) -> Self {
        let replica = replica_of(&settings);
        let mut world = Self {
            machine: Machine::new(HashKeys(1, 2), settings),
            keys: Keys::default(),
            replica,
            replica_keys: Keys::default(),
            now_us,
            wall_us: WALL_US,
            paused: false,
            fx: Effects::default(),
            blocked: BTreeMap::new(),
            sent: Vec::new(),
        };
        world.machine.observe(Instant(now_us), false);
        world.replica.observe(Instant(now_us), false);
        world
    }

    /// What the clocks show.
    pub fn now(&self) -> Now {
        Now { mono: Instant(self.now_us), wall_us: self.wall_us + self.now_us }
    }

    /// Moves the clock.
    pub fn at(&mut self, now_us: u64) {
        assert!(now_us >= self.now_us, "time does not run backwards");
        self.now_us = now_us;
        self.machine.observe(Instant(now_us), self.paused);
        self.replica.observe(Instant(now_us), self.paused);
    }

    /// The server is paused from now on, or runs again.
    pub fn pause(&mut self, paused: bool) {
        self.paused = paused;
        self.at(self.now_us);
    }

    /// Changes the settings of both servers.
    pub fn set(&mut self, change: impl Fn(&mut Settings)) {
        change(&mut self.machine.settings);
        change(&mut self.replica.settings);
    }

    /// Runs one step and looks at everything after it.
    pub fn step(&mut self, run: impl FnOnce(&mut Machine, &mut Keys, Now, &mut Effects)) -> Seen {
        let now = self.now();
        let mut fx = std::mem::take(&mut self.fx);
        fx.clear();
        let before = counts(&self.machine);
        run(&mut self.machine, &mut self.keys, now, &mut fx);
        for record in &fx.records {
            let key = Key { db: record.db, name: fx.record_key(record) };
            let replayed =
                self.replica.replay(&mut self.replica_keys, now, key, fx.record_payload(record));
            assert_eq!(replayed, Ok(()), "a replica can replay every record");
        }
        let mut seen = Seen {
            reply: fx.reply.take(),
            parked: fx.parked.take(),
            messages: fx.messages.drain(..).map(|sent| (sent.channel, sent.text)).collect(),
            ..Seen::default()
        };
        for (at, count) in counts(&self.machine).into_iter().enumerate() {
            seen.counted[at] = count - before[at];
        }
        for note in &fx.notes {
            seen.events.push((event_name(note.event), note.db, fx.note_key(note).to_vec()));
        }
        for record in &fx.records {
            seen.recorded.push((record.db, fx.record_key(record).to_vec()));
        }
        for wake in fx.wakes.drain(..) {
            let client = self.blocked.remove(&wake.waiter);
            let client = client.expect("only a blocked call is woken, and once");
            if let Outcome::Token(_) = wake.outcome {
                self.sent.push((wake.waiter, client));
            }
            seen.wakes.push((client, wake.outcome));
        }
        if !fx.records.is_empty() {
            self.check_replica();
        }
        self.fx = fx;
        self.check();
        seen
    }

    /// One command of `caller`.
    pub fn call(&mut self, caller: Caller, request: &Request<'_>) -> Seen {
        if !matches!(request, Request::Unblock { .. }) {
            // The server takes this write, or it would not have got here.
            self.machine.set_gate(Gate::Open);
        }
        let seen = self.step(|machine, keys, now, fx| match *request {
            Request::Acquire(ref call) => machine.acquire(keys, now, caller, call, fx),
            Request::Release(ref call) => machine.release(keys, now, caller, call, fx),
            Request::Renew(ref call) => machine.renew(keys, now, caller, call, fx),
            Request::Fence { key, owner, token } => {
                machine.fence(keys, now, caller, (key, owner, token), fx);
            }
            Request::Break { key } => machine.break_lock(keys, now, caller, key, fx),
            Request::Cancel { key, owner } => machine.cancel(keys, now, caller, (key, owner), fx),
            Request::Unblock { client, error } => {
                machine.unblock(keys, now, (client, error), fx);
            }
            _ => panic!("not a call that writes: {request:?}"),
        });
        assert!(
            seen.reply.is_some() != seen.parked.is_some(),
            "a caller is answered or parked: {seen:?}"
        );
        if let Some(waiter) = seen.parked {
            assert!(caller.may_block, "only who may block is parked");
            assert!(self.machine.waits().by_id(waiter).is_some(), "a parked caller waits");
            self.blocked.insert(waiter, caller.client);
        }
        if let Some(Outcome::Fault(fault)) = &seen.reply {
            assert!(!fault.text.is_empty(), "an error says what was wrong");
            assert_eq!(ErrorCode::from_text(fault.code.as_str()), Some(fault.code));
        }
        seen
    }

    /// Does all that is due, in small pieces.
    pub fn tick(&mut self, gate: Gate) -> Seen {
        self.step(|machine, keys, now, fx| {
            let mut rounds = 0;
            while machine.tick(keys, now, gate, 2, fx) == Progress::More {
                rounds += 1;
                assert!(rounds < 100_000, "what is due comes to an end");
            }
        })
    }

    /// A connection is gone; what had been sent to it and had not arrived is undelivered.
    pub fn gone(&mut self, client: u64) -> Seen {
        self.blocked.retain(|_, other| *other != client);
        let (lost, kept) = self.sent.iter().copied().partition(|&(_, other)| other == client);
        self.sent = kept;
        let lost: Vec<(WaiterId, u64)> = lost;
        self.step(|machine, keys, now, fx| {
            // In the order in which a server tells of them.
            machine.client_gone(keys, now, client, fx);
            for (waiter, _) in lost {
                machine.undelivered(keys, now, waiter, fx);
            }
        })
    }

    /// The grant on its way to `client` cannot be sent, though the connection lives.
    pub fn undelivered(&mut self, client: u64) -> Seen {
        let waiter = self.take_sent(client);
        self.step(|machine, keys, now, fx| machine.undelivered(keys, now, waiter, fx))
    }

    /// The grant on its way to `client` has arrived.
    pub fn delivered(&mut self, client: u64) {
        let waiter = self.take_sent(client);
        self.machine.delivered(waiter);
    }

    /// All grants on their way have arrived.
    pub fn all_delivered(&mut self) {
        for (waiter, _) in std::mem::take(&mut self.sent) {
            self.machine.delivered(waiter);
        }
    }

    fn take_sent(&mut self, client: u64) -> WaiterId {
        let at = self.sent.iter().position(|&(_, other)| other == client);
        self.sent.remove(at.expect("a grant is on its way")).0
    }

    /// The blocked call of `client`.
    pub fn blocked_on(&self, client: u64) -> Option<WaiterId> {
        self.blocked.iter().find(|&(_, &other)| other == client).map(|(&waiter, _)| waiter)
    }

    /// Gives `key` a time to live.
    pub fn expire_later(&mut self, key: Key<'_>) {
        self.keys.with_ttl.push(own(key));
        self.replica_keys.with_ttl.push(own(key));
    }

    /// DEL, UNLINK, EXPIRE running out, eviction; with `over`, SET of another type over it.
    pub fn unlink(&mut self, key: Key<'_>, over: bool) -> Seen {
        let lost = [self.keys.lost(key), self.replica_keys.lost(key)];
        for keys in [&mut self.keys, &mut self.replica_keys] {
            keys.take(key);
            if over {
                keys.insert(key, None);
            }
        }
        let [here, there] = lost;
        self.on_replica(|machine, keys, now, fx| {
            machine.unlinked(keys, now, key, there.as_ref(), fx);
        });
        self.step(|machine, keys, now, fx| machine.unlinked(keys, now, key, here.as_ref(), fx))
    }

    /// RENAME, or MOVE when the databases differ.
    pub fn rename(&mut self, from: Key<'_>, to: Key<'_>) -> Seen {
        let mut lost = Vec::new();
        for keys in [&mut self.keys, &mut self.replica_keys] {
            lost.push((keys.lost(from), keys.lost(to)));
            if let Some(value) = keys.take(from) {
                keys.take(to);
                keys.insert(to, value);
            }
        }
        let told = |lost: (Option<Lost>, Option<Lost>)| {
            move |machine: &mut Machine, keys: &mut Keys, now: Now, fx: &mut Effects| {
                machine.moved(keys, to);
                machine.unlinked(keys, now, to, lost.1.as_ref(), fx);
                machine.unlinked(keys, now, from, lost.0.as_ref(), fx);
            }
        };
        let there = lost.pop().expect("two servers");
        let here = lost.pop().expect("two servers");
        self.on_replica(told(there));
        self.step(told(here))
    }

    /// SWAPDB.
    pub fn swap_databases(&mut self, a: u32, b: u32) -> Seen {
        self.keys.swap(a, b);
        self.replica_keys.swap(a, b);
        self.on_replica(|machine, keys, now, fx| machine.swapped(keys, now, (a, b), fx));
        self.step(|machine, keys, now, fx| machine.swapped(keys, now, (a, b), fx))
    }

    /// FLUSHDB, or FLUSHALL (`None`).
    pub fn flush(&mut self, db: Option<u32>) -> Seen {
        for keys in [&mut self.keys, &mut self.replica_keys] {
            keys.values.retain(|((number, _), _)| db.is_some_and(|db| db != *number));
        }
        self.on_replica(|machine, keys, now, fx| machine.flushed(keys, now, db, true, fx));
        self.step(|machine, keys, now, fx| machine.flushed(keys, now, db, true, fx))
    }

    /// The replica takes over, and the old primary follows it.
    pub fn fail_over(&mut self) -> Seen {
        let seen = self.step(|machine, _, _, fx| machine.demote(fx));
        self.exchange();
        self.sent.clear();
        let promoted = self.step(|machine, _, now, _| machine.promote(now));
        assert_eq!(promoted, Seen::default(), "a promotion alone does nothing outside");
        seen
    }

    /// Looks at the replica as if it were the primary, and back.
    pub fn exchange(&mut self) {
        std::mem::swap(&mut self.machine, &mut self.replica);
        std::mem::swap(&mut self.keys, &mut self.replica_keys);
    }

    /// The process is restarted: what was saved is loaded, nothing else is left.
    pub fn restart(&mut self) {
        let now = self.now();
        let lease = self.machine.lease_time(now.mono);
        let settings = self.machine.settings.clone();
        let values = std::mem::take(&mut self.keys.values);
        let mut fresh = World::new(settings, self.now_us);
        fresh.wall_us = self.wall_us;
        for (key, value) in values {
            let load = |value: &Resource| {
                let mut payload = Vec::new();
                dlock_core::record::encode(value, now.mono, lease, &mut payload);
                dlock_core::record::decode(&payload, now.mono).expect("what was saved loads")
            };
            let key = Key { db: key.0, name: &key.1 };
            for keys in [&mut fresh.keys, &mut fresh.replica_keys] {
                keys.insert(key, value.as_ref().map(load));
            }
            fresh.on_replica(|machine, keys, now, fx| machine.adopt(keys, now, key, fx));
            fresh.step(|machine, keys, now, fx| machine.adopt(keys, now, key, fx));
        }
        fresh.machine.loaded(now);
        fresh.machine.begin_quarantine(now.mono);
        *self = fresh;
    }

    fn check_replica(&mut self) {
        let now = self.now();
        let broken = self.replica.broken_invariant(&mut self.replica_keys, now);
        assert_eq!(broken, None, "an invariant of the replica is broken");
    }

    fn on_replica(&mut self, run: impl FnOnce(&mut Machine, &mut Keys, Now, &mut Effects)) {
        let now = self.now();
        let mut fx = Effects::default();
        run(&mut self.replica, &mut self.replica_keys, now, &mut fx);
        assert!(fx.is_quiet(), "a replica does nothing by itself: {fx:?}");
        self.check_replica();
    }

    /// What must hold after every step.
    fn check(&mut self) {
        let now = self.now();
        let broken = self.machine.broken_invariant(&mut self.keys, now);
        assert_eq!(broken, None, "an invariant of the primary is broken");
        let (here, there) = (self.keys.digest(), self.replica_keys.digest());
        assert!(here.eq(there), "the replica has what the primary has: {:?}", self.both());
        let mut states = self.keys.digest().filter_map(|(_, digest)| digest);
        assert!(!states.any(|state| state == Digest::Free), "a free lock has no key");
        let ttl = (self.keys.with_ttl.len(), self.replica_keys.with_ttl.len());
        assert_eq!(ttl.0, ttl.1, "times to live go on the replica as on the primary");
    }

    fn both(&self) -> [Vec<String>; 2] {
        [&self.keys, &self.replica_keys]
            .map(|keys| keys.digest().map(|(key, digest)| format!("{key:?} {digest:?}")).collect())
    }

    /// Lets everybody go and everything end: nothing may be left.
    pub fn finish(mut self) {
        self.pause(false);
        let known: Vec<u64> = self.machine.connections().iter().map(|(client, _)| client).collect();
        for client in known {
            self.gone(client);
        }
        self.all_delivered();
        for _ in 0..20 {
            self.at(self.now_us + 400 * 24 * 3_600_000 * MS);
            self.tick(Gate::Open);
        }
        for machine in [&self.machine, &self.replica] {
            let waits = machine.waits();
            assert_eq!(waits.len(), 0, "no waiter is left");
            assert_eq!(waits.queues().count(), 0, "no queue is left");
            assert_eq!(waits.timeouts.armed() + waits.graces.armed(), 0, "no alarm is left");
            assert_eq!(machine.leases().armed(), 0, "no lease is left");
            assert_eq!(machine.leases().len(), 0, "no entry is left");
            assert_eq!(machine.leases().held(), 0, "nobody holds anything");
            assert_eq!(machine.connections().len(), 0, "no connection is known");
            assert_eq!(machine.in_flight(), 0, "no grant is on its way");
        }
        let alarm = self.machine.next_alarm(self.now());
        assert_eq!(alarm, None, "no alarm is asked for");
        let ours = self.keys.digest().filter(|(_, digest)| digest.is_some()).count();
        assert_eq!(ours, 0, "no key is left");
    }
}

fn replica_of(settings: &Settings) -> Machine {
    let mut replica = Machine::new(HashKeys(3, 4), settings.clone());
    let mut fx = Effects::default();
    replica.demote(&mut fx);
    assert!(fx.is_quiet());
    replica
}

fn counts(machine: &Machine) -> [u64; 9] {
    let counters = machine.counters();
    [
        counters.grants_at_once,
        counters.grants_after_waiting,
        counters.timeouts,
        counters.expiries,
        counters.releases,
        counters.broken,
        counters.disconnected,
        counters.replaced,
        counters.unclaimed,
    ]
}

fn event_name(event: Event) -> &'static str {
    match event {
        Event::Acquire => "acquire",
        Event::Release => "release",
        Event::Expire => "expire",
        Event::Break => "break",
        Event::Wait => "wait",
    }
}
