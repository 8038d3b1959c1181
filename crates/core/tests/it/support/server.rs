//! Server operations on a [`World`]: keys deleted and moved, roles, restarts.

use super::keys::{Id, own, slot_of};
use super::{Seen, World};
use dlock_core::base::ids::WaiterId;
use dlock_core::base::key::{Key, Swap};
use dlock_core::base::time::{Instant, LeaseInstant, Now};
use dlock_core::events::diverged::{NO_KEY, Source};
use dlock_core::events::tick::Progress;
use dlock_core::machine::{Fact, Machine, ServerEvent};
use dlock_core::ports::effects::{Answer, Effects, Outcome};
use dlock_core::ports::store::{Lookup, Store};
use dlock_core::ports::{lost::Lost, turn::Turn};
use dlock_core::record::{self, Clocks, Level};
use dlock_core::tables::regime::Gate;
use dlock_core::value::resource::Resource;

/// [`drain_some`], or nothing: then the tick does all the work.
pub type AfterEvents = fn(&mut Machine, &mut Turn<'_>);

/// The events that the server reported are processed.
pub fn drain_some(machine: &mut Machine, turn: &mut Turn<'_>) {
    machine.event(turn, ServerEvent::Drained);
}

/// What a machine has counted.
pub fn counts(machine: &Machine) -> [u64; 9] {
    let counters = &machine.tables().counters;
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

impl World {
    /// A call is no longer blocked, though its connection lives.
    pub fn abandoned(&mut self, waiter: WaiterId) -> Seen {
        self.blocked.remove(&waiter);
        let after_events = self.after_events;
        self.step(|machine, turn| {
            machine.event(turn, ServerEvent::Withdrawn(waiter));
            after_events(machine, turn);
        })
    }

    /// A connection closes; what was in flight to it is undelivered.
    pub fn gone(&mut self, client: u64) -> Seen {
        let calls: Vec<WaiterId> = self
            .blocked
            .extract_if(.., |_, other| *other == client)
            .map(|(call, _)| call)
            .collect();
        self.start_ledger();
        self.ledger.gone(client);
        let (lost, kept) = self.sent.iter().copied().partition(|&(_, other)| other == client);
        self.sent = kept;
        let lost: Vec<(WaiterId, u64)> = lost;
        // In a cluster, a command of any slot may learn of it first.
        let slot =
            self.is_cluster.then(|| slot_of(if client.is_multiple_of(3) { b"k" } else { b"m" }));
        let mut seen = self.step_with(|machine, keys, now, fx| {
            // In the order in which a server reports them.
            keys.slot = slot;
            let turn = &mut Turn::without_caller(keys, now, fx);
            let is_done = machine.event(turn, ServerEvent::ClientGone(client));
            for call in calls {
                machine.event(turn, ServerEvent::HungUp(call));
            }
            machine.event(turn, ServerEvent::Drained);
            keys.slot = None;
            let turn = &mut Turn::without_caller(keys, now, fx);
            if !is_done {
                machine.event(turn, ServerEvent::ClientGone(client));
                machine.event(turn, ServerEvent::Drained);
            }
            for (waiter, _) in lost {
                machine.event(turn, ServerEvent::Undelivered(waiter));
            }
        });
        self.finish_in_tick(&mut seen);
        self.check_ledger();
        seen
    }

    /// Limits the large work in one step of primary and replica, until a restart.
    pub fn set_portion(&mut self, most: usize) {
        self.machine.learn(Fact::Portion(most));
        self.replica.learn(Fact::Portion(most));
    }

    /// Before keys are removed: the machines say how they make fingerprints.
    pub fn share_prints(&mut self) {
        self.keys.prints = Some(self.machine.tables().spent.prints());
        self.replica_keys.prints = Some(self.replica.tables().spent.prints());
    }

    /// The replica does one piece of the work left to its tick.
    pub fn piece_of_replica(&mut self) {
        let (now, mut fx) = (self.now(), Effects::default());
        let turn = &mut Turn::without_caller(&mut self.replica_keys, now, &mut fx);
        self.replica.tick(turn, Gate::Unknown, 1);
        assert!(fx.is_quiet(), "a replica does nothing by itself: {fx:?}");
        self.check_replica();
    }

    /// Whether `key` exists.
    pub fn has_key(&mut self, key: Key<'_>) -> bool {
        !matches!(self.keys.get(key), Lookup::Missing)
    }

    /// Gives `key` a time to live.
    pub fn expire_later(&mut self, key: Key<'_>) {
        self.keys.with_ttl.push(own(key));
        self.replica_keys.with_ttl.push(own(key));
    }

    /// DEL, UNLINK, an elapsed EXPIRE, eviction; with `over`, SET of another type over it.
    pub fn unlink(&mut self, key: Key<'_>, over: bool) -> Seen {
        self.ledger.removed(key);
        self.share_prints();
        let [here, there] = [&mut self.keys, &mut self.replica_keys].map(|keys| {
            let lost = keys.free(key);
            if over {
                keys.insert(key, None);
            }
            lost
        });
        self.on_replica(|machine, turn| {
            machine.event(turn, ServerEvent::Unlinked(key, there));
        });
        self.keys.slot = self.is_cluster.then(|| slot_of(key.name));
        let after_events = self.after_events;
        let mut seen = self.step(|machine, turn| {
            machine.event(turn, ServerEvent::Unlinked(key, here));
            after_events(machine, turn);
        });
        self.finish_in_tick(&mut seen);
        seen
    }

    /// RENAME, or MOVE when the databases differ.
    pub fn rename(&mut self, from: Key<'_>, to: Key<'_>) -> Seen {
        self.ledger.moved(from, to);
        self.share_prints();
        let mut lost = Vec::new();
        for keys in [&mut self.keys, &mut self.replica_keys] {
            lost.push(keys.rename(from, to));
        }
        let after_events = self.after_events;
        let told = |[there, gone]: [Option<Lost>; 2]| {
            move |machine: &mut Machine, turn: &mut Turn<'_>| {
                // The shell adopts a moved value for the waiters of its key.
                let is_awaited = machine.tables().waits.queue_of(to).is_some();
                machine.event(turn, ServerEvent::Moved(to));
                if is_awaited || there.is_some() {
                    machine.event(turn, ServerEvent::Unlinked(to, there));
                }
                machine.event(turn, ServerEvent::Unlinked(from, gone));
                after_events(machine, turn);
            }
        };
        let there = lost.pop().expect("two servers");
        let here = lost.pop().expect("two servers");
        self.on_replica(told(there));
        self.step(told(here))
    }

    /// SWAPDB.
    pub fn swap_databases(&mut self, a: u32, b: u32) -> Seen {
        self.ledger.swapped(a, b);
        self.keys.swap(a, b);
        self.replica_keys.swap(a, b);
        let swapped = |machine: &mut Machine, turn: &mut Turn<'_>| {
            machine.learn(Fact::Swapped(Swap { a, b }));
            machine.event(turn, ServerEvent::Swapped);
        };
        self.on_replica(swapped);
        self.step(swapped)
    }

    /// MULTI, SWAPDB `a b`, MOVE of the key to `a`, SWAPDB `a b`, EXEC. The machines learn of each step when the value
    /// is in `b` already, and the moved value is followed first.
    pub fn move_between_swaps(&mut self, key: Key<'_>, (a, b): (u32, u32)) -> Seen {
        self.share_prints();
        let to = Key { db: b, ..key };
        self.ledger.moved(key, to);
        let mut lost = Vec::new();
        for keys in [&mut self.keys, &mut self.replica_keys] {
            keys.swap(a, b);
            lost.push(keys.rename(key, Key { db: a, ..key }));
            keys.swap(a, b);
        }
        let after_events = self.after_events;
        let told = |[_, gone]: [Option<Lost>; 2]| {
            move |machine: &mut Machine, turn: &mut Turn<'_>| {
                machine.learn(Fact::Swapped(Swap { a, b }));
                machine.learn(Fact::Swapped(Swap { a, b }));
                machine.event(turn, ServerEvent::Moved(to));
                machine.event(turn, ServerEvent::Swapped);
                machine.event(turn, ServerEvent::Unlinked(key, gone));
                machine.event(turn, ServerEvent::Moved(to));
                machine.event(turn, ServerEvent::Swapped);
                // The server tells the new key once more, as it does for each key that a command brought.
                machine.event(turn, ServerEvent::Moved(to));
                after_events(machine, turn);
            }
        };
        let there = lost.pop().expect("two servers");
        let here = lost.pop().expect("two servers");
        self.on_replica(told(there));
        self.step(told(here))
    }

    /// FLUSHDB, or FLUSHALL (`None`).
    pub fn flush(&mut self, db: Option<u32>) -> Seen {
        self.ledger.flushed(db);
        for keys in [&mut self.keys, &mut self.replica_keys] {
            keys.values.retain(|((number, _), _)| db.is_some_and(|db| db != *number));
        }
        self.on_replica(|machine, turn| {
            let databases = machine.keys_flushed(db);
            machine.event(turn, ServerEvent::Flushed { databases: &databases, announce: true });
        });
        let mut seen = self.step(|machine, turn| {
            let databases = machine.keys_flushed(db);
            machine.event(turn, ServerEvent::Flushed { databases: &databases, announce: true });
            if db.is_none()
                && !machine.learn(Fact::Forgiven(machine.tables().regime.divergence.total()))
            {
                machine.tables().regime.tell_mark(turn.fx);
            }
        });
        if db.is_none() {
            let missing = self.replica.tables().regime.divergence.total();
            self.replica.learn(Fact::Forgiven(missing));
        }
        self.finish_in_tick(&mut seen);
        seen
    }

    /// The servers get a record of a later level, or only the replica.
    pub fn cannot_read(&mut self, only_the_replica: bool) {
        let (now, payload) = (self.now(), [3, 0, 0]);
        let key = Key { db: 0, name: b"unread" };
        let both =
            [(&mut self.machine, &mut self.keys), (&mut self.replica, &mut self.replica_keys)];
        for (machine, keys) in both.into_iter().skip(usize::from(only_the_replica)) {
            let replayed = machine.replay(keys, now, key, &payload, Source::Primary);
            assert_eq!(replayed, Err(record::DecodeError::LaterLevel(3)));
        }
    }

    /// The replica takes over, and the old primary follows it.
    pub fn fail_over(&mut self) -> Seen {
        let seen = self.step(|machine, turn| {
            machine.learn(Fact::Demoted);
            while machine.tick(turn, Gate::Unknown, 64) == Progress::More {}
        });
        self.exchange();
        self.sent.clear();
        self.start_ledger();
        self.ledger.all_gone();
        let promoted = self.step(|machine, turn| {
            machine.learn(Fact::Promoted(turn.now));
        });
        assert_eq!(promoted, Seen::default(), "a promotion alone does nothing outside");
        self.check_ledger();
        seen
    }

    /// Swaps primary and replica for inspection.
    pub fn exchange(&mut self) {
        std::mem::swap(&mut self.machine, &mut self.replica);
        std::mem::swap(&mut self.keys, &mut self.replica_keys);
    }

    /// Restarts the process: saved data is there again, nothing else is left.
    pub fn restart(&mut self, saved: Saved) -> Seen {
        let mut seen = self.restart_unindexed(saved);
        if let Saved::Rdb = saved {
            let keys: Vec<Id> = self.keys.values.iter().map(|(id, _)| id.clone()).collect();
            for (db, name) in &keys {
                seen.add(self.adopt(Key { db: *db, name }));
            }
        }
        self.check_ledger();
        seen
    }

    /// The memories of both are compared, so their clocks stand still together: also before the first write of a new
    /// primary.
    pub(super) fn stop_with_primary(&mut self) {
        let lease = |us: u64| self.machine.tables().regime.lease(Instant(us));
        let stands_still = lease(self.now_us) == lease(self.now_us + 1_000);
        self.replica.learn(Fact::Paused(stands_still, Instant(self.now_us)));
    }

    /// The same at a moment at which the machine knows no loaded key yet.
    pub fn restart_unindexed(&mut self, saved: Saved) -> Seen {
        let now = self.now();
        let lease = self.machine.tables().regime.lease(now.mono);
        let settings = self.machine.tables().settings.clone();
        let values = std::mem::take(&mut self.keys.values);
        let mut fresh = World::new(settings, self.now_us);
        fresh.wall_us = self.wall_us;
        fresh.is_cluster = self.is_cluster;
        fresh.permits = self.permits;
        self.start_ledger();
        fresh.ledger = std::mem::take(&mut self.ledger);
        fresh.ledger.all_gone();
        // The order of the shell: a quarantine begins with the process, and again when it serves.
        fresh.machine.learn(Fact::InService(now.mono));
        for ((db, name), value) in &values {
            let key = Key { db: *db, name };
            let Some(value) = value else {
                fresh.keys.insert(key, None);
                fresh.replica_keys.insert(key, None);
                continue;
            };
            let payload = encoded(value, now, lease, self.machine.tables().level);
            for (machine, keys) in [
                (&mut fresh.machine, &mut fresh.keys),
                (&mut fresh.replica, &mut fresh.replica_keys),
            ] {
                match saved {
                    Saved::Aof => {
                        let replayed = machine.replay(keys, now, key, &payload, Source::File);
                        assert_eq!(replayed, Ok(()), "what was saved can be replayed");
                    }
                    Saved::Rdb => {
                        let value = Resource { from_snapshot: true, ..decoded(&payload, now) };
                        keys.insert(key, Some(value));
                    }
                }
            }
        }
        self.save_beside(saved, &mut fresh);
        fresh.machine.learn(Fact::Loaded(now));
        fresh.machine.learn(Fact::InService(now.mono));
        if let Saved::Rdb = saved {
            // A snapshot has the last token before the keys.
            let last = self.machine.tables().tokens.last();
            fresh.machine.learn(Fact::Token(last));
            fresh.replica.learn(Fact::Token(last));
        }
        *self = fresh;
        Seen::default()
    }

    /// What a restarted process learns besides its keys, and a replica that synchronizes with it.
    fn save_beside(&self, saved: Saved, fresh: &mut World) {
        let (now, key) = (self.now(), NO_KEY);
        let both = [
            (&mut fresh.machine, &mut fresh.keys, Source::File),
            (&mut fresh.replica, &mut fresh.replica_keys, Source::File),
        ];
        for (machine, keys, source) in both {
            if let Saved::Aof = saved {
                let payloads = self.machine.tables().records_beside(now.wall_us);
                // As a file that was never rewritten: tokens are known from its keys alone.
                let is_floor = |payload: &&Vec<u8>| payload.starts_with(&[1, 8]);
                for payload in payloads.iter().filter(|payload| !is_floor(payload)) {
                    let replayed = machine.replay(keys, now, key, payload, source);
                    assert_eq!(replayed, Ok(()), "what was saved can be replayed");
                }
                continue;
            }
            let mut strings: Vec<Vec<u8>> = Vec::new();
            self.machine
                .tables()
                .save_beside(now, self.keys.unheard(), |string| strings.push(string.to_vec()));
            let Some((head, more)) = strings.split_first() else { continue };
            let (lease, limits) = (
                machine.tables().regime.lease(now.mono),
                machine.tables().settings.request_limits(),
            );
            let input = record::BesideInput::open(head, lease, limits);
            let mut input = input.expect("what was saved");
            for string in more {
                input.read(string).expect("what was saved");
            }
            machine.learn(Fact::FileStanding(input.finish().expect("what was saved").standing));
        }
    }

    fn adopt(&mut self, key: Key<'_>) -> Seen {
        self.on_replica(|machine, turn| {
            machine.event(turn, ServerEvent::Adopted(key));
        });
        self.step(|machine, turn| {
            machine.event(turn, ServerEvent::Adopted(key));
        })
    }

    pub(super) fn on_replica(&mut self, run: impl FnOnce(&mut Machine, &mut Turn<'_>)) {
        let now = self.now();
        let mut fx = Effects::default();
        let machine = &mut self.replica;
        let turn = &mut Turn::without_caller(&mut self.replica_keys, now, &mut fx);
        run(machine, turn);
        while !self.is_replica_slow && machine.tick(turn, Gate::Unknown, 64) == Progress::More {}
        assert!(fx.is_quiet(), "a replica does nothing by itself: {fx:?}");
        self.check_replica();
    }
}

/// The source of the saved data of a restarted process.
#[derive(Debug, Clone, Copy)]
pub enum Saved {
    /// In a file of records, which contain the lease and not how much of it has elapsed.
    Aof,
    /// In a snapshot, which contains the time left, and no later renewals.
    Rdb,
}

pub(super) fn encoded(resource: &Resource, now: Now, lease: LeaseInstant, level: Level) -> Vec<u8> {
    let (mut payload, now) = (Vec::new(), Clocks { mono: now.mono, lease });
    record::encode(resource, now, level, &mut payload);
    payload
}

pub(super) fn decoded(payload: &[u8], now: Now) -> Resource {
    record::decode(payload, now.mono).expect("what was saved loads")
}

/// What a caller got, or the waiter as which it is parked.
pub(super) fn halves(answer: Option<Answer>) -> (Option<Outcome>, Option<WaiterId>) {
    match answer {
        Some(Answer::Now(outcome)) => (Some(outcome), None),
        Some(Answer::Parked(waiter)) => (None, Some(waiter)),
        None => (None, None),
    }
}
