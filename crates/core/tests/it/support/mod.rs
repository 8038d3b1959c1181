//! A machine under test: keys in a map, a clock that only the test moves, and a replica that replays every record.

mod keys;
mod late;
mod migrate;
mod server;

use crate::simulator::ledger::{Ledger, Terms};
use dlock_core::base::time::{Instant, Now};
use dlock_core::base::{hash::HashKeys, ids::WaiterId, key::Key};
use dlock_core::events::{diverged::Source, tick::Progress};
use dlock_core::invariants::broken_invariant;
use dlock_core::machine::{Fact, Machine, ServerEvent};
use dlock_core::ports::effects::{Effects, Event, Outcome};
use dlock_core::ports::lost::Lost;
use dlock_core::ports::turn::{Caller, Turn};
use dlock_core::tables::regime::Gate;
use dlock_core::tables::settings::Settings;
use dlock_wire::permit::PermitId;
use dlock_wire::reply::ErrorCode;
use dlock_wire::request::{Op, Request, SemOp};
pub use keys::{Digest, Keys};
use keys::{Id, slot_of};
use server::halves;
pub use server::{AfterEvents, Saved, counts, drain_some};
use std::collections::BTreeMap;

/// Microseconds in a millisecond.
pub const MS: u64 = 1_000;

/// The wall clock when the monotonic clock of a [`World`] shows 0, in microseconds since 1970.
pub const WALL_US: u64 = 1_700_000_000_000_000;

/// A keyspace event: its name, the database and the key.
pub type SeenEvent = (&'static str, u32, Vec<u8>);

/// The complete output of one step.
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
    /// The growth of the counters, in their order.
    pub counted: [u64; 9],
}

impl Seen {
    /// Adds the output of a further part of the same step.
    fn add(&mut self, more: Seen) {
        self.wakes.extend(more.wakes);
        self.messages.extend(more.messages);
        self.events.extend(more.events);
        self.recorded.extend(more.recorded);
        for (count, more) in self.counted.iter_mut().zip(more.counted) {
            *count += more;
        }
    }
}

/// See the module documentation.
#[derive(Debug)]
pub struct World {
    /// The machine of the primary.
    pub machine: Machine,
    /// Its keys.
    pub keys: Keys,
    replica: Machine,
    replica_keys: Keys,
    now_us: u64,
    /// Whether the server would accept a client's write.
    pub gate: Gate,
    /// What the machine does after events that the server reports late.
    pub after_events: AfterEvents,
    /// Commands reach keys of one slot only, as in a cluster; the tick that follows does the rest.
    pub is_cluster: bool,
    /// The wall clock, in microseconds, when the monotonic clock shows 0.
    pub wall_us: u64,
    paused: bool,
    /// The replica's tick is behind: work that commands leave to it meets the next records, or a promotion.
    pub is_replica_slow: bool,
    fx: Effects,
    permits: u128,
    /// SWAPDB (`None`), and flushes of these databases, whose notices the machine of the replica has not processed.
    unheard_databases: Vec<Option<Vec<u32>>>,
    /// RENAME calls of which the machine of the replica has not learnt yet: the names, and what was unlinked.
    unheard_renames: Vec<(Id, Id, Lost)>,
    /// Calls that are blocked now, with their connections.
    pub blocked: BTreeMap<WaiterId, u64>,
    /// Grants that were sent and have not arrived.
    pub sent: Vec<(WaiterId, u64)>,
    /// The connection whose command is carried out.
    caller: Option<u64>,
    /// What clients were promised.
    pub ledger: Ledger,
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
            gate: Gate::Open,
            after_events: drain_some,
            is_cluster: false,
            wall_us: WALL_US,
            paused: false,
            is_replica_slow: false,
            fx: Effects::default(),
            permits: 0,
            unheard_databases: Vec::new(),
            unheard_renames: Vec::new(),
            blocked: BTreeMap::new(),
            sent: Vec::new(),
            caller: None,
            ledger: Ledger::default(),
        };
        world.machine.learn(Fact::Paused(false, Instant(now_us)));
        world.replica.learn(Fact::Paused(false, Instant(now_us)));
        world
    }

    /// The time of the clocks.
    pub fn now(&self) -> Now {
        Now { mono: Instant(self.now_us), wall_us: self.wall_us + self.now_us }
    }

    /// Moves the clock.
    pub fn at(&mut self, now_us: u64) {
        assert!(now_us >= self.now_us, "time does not run backwards");
        self.now_us = now_us;
        self.machine.learn(Fact::Paused(self.paused, Instant(now_us)));
        self.stop_with_primary();
    }

    /// The server is paused from now on, or runs again.
    pub fn pause(&mut self, paused: bool) {
        self.paused = paused;
        self.at(self.now_us);
    }

    /// Changes the settings of both servers.
    pub fn set(&mut self, change: impl Fn(&mut Settings)) {
        self.machine.configure(&change);
        self.replica.configure(&change);
    }

    /// Runs one step and checks everything after it.
    pub fn step(&mut self, run: impl FnOnce(&mut Machine, &mut Turn<'_>)) -> Seen {
        self.step_of(Caller::NONE, run)
    }

    /// The same for a command of `caller`.
    pub fn step_of(
        &mut self,
        caller: Caller,
        run: impl FnOnce(&mut Machine, &mut Turn<'_>),
    ) -> Seen {
        self.step_with(|machine, keys, now, fx| run(machine, &mut Turn { keys, now, caller, fx }))
    }

    fn step_with(&mut self, run: impl FnOnce(&mut Machine, &mut Keys, Now, &mut Effects)) -> Seen {
        let now = self.now();
        self.start_ledger();
        let mut fx = std::mem::take(&mut self.fx);
        fx.clear();
        let before = counts(&self.machine);
        let was_diverged = self.machine.tables().regime.divergence.is_any();
        self.machine.learn(Fact::Gate(self.gate, now.mono));
        run(&mut self.machine, &mut self.keys, now, &mut fx);
        self.machine.learn(Fact::GateForgotten);
        self.stop_with_primary();
        (self.keys.slot, self.keys.is_shut) = (None, false);
        for record in &fx.records {
            let key = Key { db: record.db, name: fx.record_key(record) };
            let (keys, payload) = (&mut self.replica_keys, fx.record_payload(record));
            let replayed = self.replica.replay(keys, now, key, payload, Source::Primary);
            assert_eq!(replayed, Ok(()), "a replica can replay every record");
        }
        let (reply, parked) = halves(fx.answer.take());
        let mut seen = Seen {
            reply,
            parked,
            messages: fx
                .messages
                .drain(..)
                .map(|sent| {
                    let sharded = if sent.is_sharded { &b"sharded "[..] } else { b"" };
                    ([sharded, &sent.channel].concat(), sent.text)
                })
                .collect(),
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
        if let Some((waiter, client)) = seen.parked.zip(self.caller) {
            // It may be woken in the same step: the server blocks it first.
            self.blocked.insert(waiter, client);
        }
        if was_diverged && self.machine.tables().regime.divergence.is_any() {
            assert!(!fx.wakes.iter().any(|wake| wake.outcome.is_grant()), "it grants to no waiter");
            assert_eq!(seen.counted[0], 0, "a diverged server grants nothing");
            let mut events = fx.notes.iter();
            assert!(events.all(|note| note.event != Event::Acquire), "nor do owners re-enter");
        }
        for wake in fx.wakes.drain(..) {
            let client = self.blocked.remove(&wake.waiter);
            let client = client.expect("only a blocked call is woken, and once");
            self.ledger.woken(client, &wake.outcome);
            if wake.outcome.is_grant() {
                self.sent.push((wake.waiter, client));
            }
            seen.wakes.push((client, wake.outcome));
        }
        for (_, text) in &seen.messages {
            self.ledger.told(text);
        }
        let has_heard = self.unheard_databases.is_empty() && self.unheard_renames.is_empty();
        if !fx.records.is_empty() && has_heard {
            self.check_replica();
        }
        self.fx = fx;
        self.check();
        seen
    }

    /// One operation of `caller`, and nothing that the tick would do after it.
    pub fn ask(&mut self, caller: Caller, op: Op<'_>) -> Seen {
        let permit = match op {
            Op::Sem(SemOp::Acquire(_)) => self.new_permit(),
            _ => PermitId::default(),
        };
        self.start_ledger();
        self.ledger.calls(caller, &op);
        let seen = self.step_of(caller, |machine, turn| machine.execute(turn, &op, permit));
        self.ledger.called(caller, &op, seen.reply.as_ref());
        self.check_ledger();
        seen
    }

    fn start_ledger(&mut self) {
        let settings = &self.machine.tables().settings;
        let terms = Terms {
            default_lease: settings.default_lease_ms,
            claim: settings.claim_ms,
            grace: settings.fair_grace_ms,
        };
        self.ledger.at(self.now_us / MS, terms);
    }

    /// Fails if a promise is broken.
    pub fn check_ledger(&mut self) {
        self.start_ledger();
        let (now, tables) = (self.now(), self.machine.tables());
        if tables.regime.is_primary() {
            self.ledger.check(tables, &mut self.keys, now);
        }
    }

    /// One command of `caller`.
    pub fn call(&mut self, caller: Caller, op: Op<'_>) -> Seen {
        if !matches!(op, Op::Unblock(_) | Op::EndAbsent(_)) {
            // The server accepts this write, or the call would not have got here.
            self.gate = Gate::Open;
        }
        self.keys.slot = self.is_cluster.then(|| slot_of(&key_of(op)));
        self.caller = Some(caller.client);
        let mut seen = self.ask(caller, op);
        assert!(
            seen.reply.is_some() != seen.parked.is_some(),
            "a caller is answered or parked: {seen:?}"
        );
        if let Some(waiter) = seen.parked {
            assert!(caller.may_block, "only who may block is parked");
            let waits = self.machine.tables().waits.by_id(waiter).is_some();
            assert_eq!(waits, self.blocked.contains_key(&waiter), "a parked caller waits");
        }
        if let Some(Outcome::Fault(fault)) = &seen.reply {
            assert!(!fault.text.is_empty(), "an error says what was wrong");
            assert_eq!(ErrorCode::from_text(fault.code.as_str()), Some(fault.code));
        }
        self.finish_in_tick(&mut seen);
        seen
    }

    /// In a cluster, the next tick does what a command left because it is about other slots.
    fn finish_in_tick(&mut self, seen: &mut Seen) {
        if self.is_cluster {
            let more = self.tick(self.gate);
            seen.add(more);
        }
    }

    /// A permit id that no call had before: 1, 2, 3, ….
    fn new_permit(&mut self) -> PermitId {
        self.permits += 1;
        self.permits.to_be_bytes()
    }

    /// Does all pending work, in small pieces. Asks the server whether it takes writes only when there is a reason, as
    /// the module does.
    pub fn tick(&mut self, gate: Gate) -> Seen {
        self.gate = gate;
        let seen = self.step_with(|machine, keys, now, fx| {
            keys.is_shut = gate == Gate::Shut;
            let turn = &mut Turn::without_caller(keys, now, fx);
            let mut known = Gate::Unknown;
            for _ in 0..100_000 {
                if machine.tick(turn, known, 2) == Progress::More {
                    continue;
                }
                if known != Gate::Unknown || !machine.tables().wants_to_write(turn.now) {
                    return;
                }
                assert!(
                    turn.fx.records.is_empty(),
                    "nothing is written before the server was asked"
                );
                known = gate;
            }
            panic!("what is due comes to an end");
        });
        assert!(
            gate != Gate::Open || self.machine.tables().has_served_all(),
            "the tick serves all waiters"
        );
        self.tick_replica();
        self.check_ledger();
        seen
    }

    /// The grant in flight to `client` cannot be sent, though the connection lives.
    pub fn undelivered(&mut self, client: u64) -> Seen {
        let waiter = self.take_sent(client);
        self.ledger.undelivered(client);
        let mut seen = self.step(|machine, turn| {
            machine.event(turn, ServerEvent::Undelivered(waiter));
        });
        self.finish_in_tick(&mut seen);
        seen
    }

    /// The grant in flight to `client` has arrived.
    pub fn delivered(&mut self, client: u64) {
        let waiter = self.take_sent(client);
        self.ledger.delivered(client);
        self.machine.learn(Fact::Delivered(waiter));
    }

    /// All grants in flight have arrived.
    pub fn all_delivered(&mut self) {
        for (waiter, client) in std::mem::take(&mut self.sent) {
            self.ledger.delivered(client);
            self.machine.learn(Fact::Delivered(waiter));
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

    fn check_replica(&mut self) {
        let now = self.now();
        let broken = broken_invariant(self.replica.tables(), &mut self.replica_keys, now);
        assert_eq!(broken, None, "an invariant of the replica is broken");
    }

    /// Checks the invariants after every step.
    fn check(&mut self) {
        let now = self.now();
        let broken = broken_invariant(self.machine.tables(), &mut self.keys, now);
        assert_eq!(broken, None, "an invariant of the primary is broken");
        // The replica has them while it stands here for the primary.
        let is_owed = |waiter: &WaiterId| {
            [&self.machine, &self.replica]
                .iter()
                .any(|machine| machine.tables().owes_answer(*waiter))
        };
        assert!(self.blocked.keys().all(is_owed), "a blocked call is answered some time");
        let (here, there) = (self.keys.digest(), self.replica_keys.digest());
        assert!(here.eq(there), "the replica has what the primary has: {:?}", self.both());
        let mut states = self.keys.digest().filter_map(|(_, digest)| digest);
        assert!(!states.any(|state| state == Digest::Free), "a free lock has no key");
        self.check_known_requests();
        let ttl = (self.keys.with_ttl.len(), self.replica_keys.with_ttl.len());
        assert_eq!(ttl.0, ttl.1, "times to live go on the replica as on the primary");
    }

    fn both(&self) -> [Vec<String>; 2] {
        [&self.keys, &self.replica_keys]
            .map(|keys| keys.digest().map(|(key, digest)| format!("{key:?} {digest:?}")).collect())
    }

    /// Does the work that a replica leaves to its tick.
    fn tick_replica(&mut self) {
        let (now, fx) = (self.now(), &mut Effects::default());
        let turn = &mut Turn::without_caller(&mut self.replica_keys, now, fx);
        self.replica.tick(turn, Gate::Shut, 1_000);
    }

    /// Closes all connections and ends everything: nothing may be left.
    pub fn finish(mut self) {
        self.tick_replica();
        self.pause(false);
        self.gate = Gate::Open;
        self.is_cluster = false;
        let known: Vec<u64> =
            self.machine.tables().connections.iter().map(|(client, _)| client).collect();
        for client in known {
            self.gone(client);
        }
        self.all_delivered();
        for _ in 0..20 {
            self.at(self.now_us + 400 * 24 * 3_600_000 * MS);
            self.tick(Gate::Open);
        }
        for name in self.keys.kept_until_deleted() {
            self.unlink(Key { db: name.0, name: &name.1 }, false);
        }
        self.at(self.now_us + 3_600_000 * MS);
        self.tick(Gate::Open);
        self.on_replica(|_, _| ());
        for machine in [&self.machine, &self.replica] {
            let waits = &machine.tables().waits;
            assert_eq!(waits.len(), 0, "no waiter is left");
            assert_eq!(waits.queues().count(), 0, "no queue is left");
            assert_eq!(waits.timeouts.armed() + waits.graces.armed(), 0, "no alarm is left");
            assert_eq!(machine.tables().leases.armed(), 0, "no lease is left");
            assert_eq!(machine.tables().leases.len(), 0, "no entry is left");
            assert_eq!(machine.tables().leases.held(), 0, "nobody holds anything");
            assert_eq!(machine.tables().connections.len(), 0, "no connection is known");
            assert_eq!(machine.tables().in_flight(), 0, "no grant is on its way");
            assert_eq!(machine.tables().removed_values(), 0, "no removed value is left");
        }
        let alarm = self.machine.next_alarm(self.now(), Gate::Open);
        assert_eq!(alarm, None, "no alarm is asked for");
        let ours = self.keys.digest().filter(|(_, digest)| digest.is_some()).count();
        assert_eq!(ours, 0, "no key is left");
    }
}

/// The first key that a request names; empty if it names none.
fn key_of(op: Op<'_>) -> Vec<u8> {
    let mut args = Vec::new();
    Request::Op(op).write(&mut args);
    let first = match op {
        Op::Unblock(_) | Op::EndAbsent(_) => return Vec::new(),
        Op::Multi(_) => 1,
        _ => 0,
    };
    args.get(first).cloned().unwrap_or_default()
}

fn replica_of(settings: &Settings) -> Machine {
    let mut replica = Machine::new(HashKeys(3, 4), settings.clone());
    replica.learn(Fact::Demoted);
    replica
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
