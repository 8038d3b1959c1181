//! Random histories: the machine and the second model must agree after every step.
//!
//! A history that fails prints its seed; `DLOCK_SEED=<seed> cargo test -p dlock-core simulator` replays it and prints
//! every step. `DLOCK_RUNS=<n>` sets the number of histories. `DLOCK_FIRST=<seed>` sets the first of their seeds, which
//! is 1 by default. After a million that pass, `DLOCK_FIRST=1000001 DLOCK_RUNS=1000000` tries the next million.

mod compare;
mod late;
pub mod ledger;
mod migrate;
mod steps;

use crate::model::{Family, KEYS, Model, Settings};
use crate::support::{MS, World};
use compare::key_number;
use dlock_core::base::key::Key;
use dlock_core::tables::regime::Gate;
use dlock_core::tables::settings;
use dlock_testing::Dice;
use dlock_wire::request::{Op, Request};
use dlock_wire::table::COMMANDS;
use std::panic::AssertUnwindSafe;
use std::sync::atomic::{AtomicU64, Ordering};
use steps::{Asked, Sent};

/// All times are multiples of this number of milliseconds, which is a whole number of ticks of the machine's timing
/// wheels: machine and model see the same end at the same moment.
const UNIT_MS: u64 = 64;

const OWNERS: [&str; 6] = ["A", "B", "C", "D", "E", "F"];
const CONNECTIONS: usize = 5;
const STEPS: usize = 40;

/// Portion of large work in one step, in histories with portions.
const PORTION: usize = 2;

const IDS: [&str; 12] = ["1", "2", "3", "4", "5", "6", "7", "8", "9", "10", "11", "12"];

#[test]
fn the_machine_and_the_model_agree() {
    if let Some(seed) = number_in("DLOCK_SEED") {
        return Simulation::new(seed, true).run();
    }
    let first = number_in("DLOCK_FIRST").unwrap_or(1);
    let end = first + number_in("DLOCK_RUNS").unwrap_or(20_000);
    let next = AtomicU64::new(first);
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= end {
                        return;
                    }
                    let run = AssertUnwindSafe(|| Simulation::new(seed, false).run());
                    if let Err(panic) = std::panic::catch_unwind(run) {
                        next.store(end, Ordering::Relaxed);
                        eprintln!("\nDLOCK_SEED={seed} replays this history\n");
                        std::panic::resume_unwind(panic);
                    }
                }
            });
        }
    });
}

/// The number in an environment variable, if it is set.
pub(crate) fn number_in(variable: &str) -> Option<u64> {
    let value = std::env::var(variable).ok()?;
    Some(value.parse().unwrap_or_else(|_| panic!("{variable} is no number: {value}")))
}

/// Gives `run` the operation that these words are.
fn with_op<R>(words: &str, run: impl FnOnce(Op<'_>) -> R) -> R {
    let mut words = words.split(' ');
    let name = words.next().expect("a command");
    let args: Vec<&[u8]> = words.map(str::as_bytes).collect();
    let command = COMMANDS.iter().find(|command| command.name == name).expect("a command");
    match dlock_wire::parse(command.id, &args) {
        Ok(Request::Op(op)) => run(op),
        other => panic!("no operation: {name} {other:?}"),
    }
}

#[allow(clippy::struct_excessive_bools)] // facts that do not exclude each other
struct Simulation {
    random: Dice,
    traced: bool,
    world: World,
    model: Model,
    now_ms: u64,
    paused: bool,
    shut: bool,
    /// The family asked for at each key, most of the time.
    families: [Family; KEYS.len()],
    /// Large work is done in portions.
    has_portions: bool,
    /// Numbers of keys and of owners that calls name.
    keys: usize,
    owners: usize,
    /// Answers to blocked calls are long on their way.
    is_sent_late: bool,
    /// One in this number of calls has QUEUE.
    queue_one_in: u64,
    /// The last requests with an id, of which late copies may come.
    sent: Vec<Sent>,
    /// The last ACQUIREs with an id.
    asked: Vec<Asked>,
    last_request: u64,
    /// Ids of the connections that live.
    connections: Vec<u64>,
    last_id: u64,
}

impl Simulation {
    fn new(seed: u64, traced: bool) -> Self {
        let mut random = Dice::new(seed);
        let settings = Settings {
            default_lease: 30 * UNIT_MS,
            grace: random.pick(&[1, 4, 20]) * UNIT_MS,
            per_key: random.pick(&[2, 3, 100]),
            in_all: random.pick(&[4, 100, 100]),
            holds: random.pick(&[1, 2, 100, 100]),
            quarantine: random.pick(&[0, 0, 3]) * UNIT_MS,
            lock_delay: random.pick(&[0, 0, 2]) * UNIT_MS,
            claim: random.pick(&[1, 3, 100]) * UNIT_MS,
            request_memory: random.pick(&[0, 4, 100, 1_000_000]) * UNIT_MS,
            deadlock_detection: random.one_in(2),
        };
        let any = [Family::Lock, Family::Fair, Family::Rw];
        let families = match random.below(5) {
            0 => [Family::Lock; KEYS.len()],
            1 => [Family::Fair; KEYS.len()],
            2 => [Family::Rw; KEYS.len()],
            _ => KEYS.map(|_| random.pick(&any)),
        };
        let now_ms = 1_000 * UNIT_MS;
        let mut world = World::new(
            settings::Settings {
                default_lease_ms: settings.default_lease,
                fair_grace_ms: settings.grace,
                max_waiters_per_key: settings.per_key,
                max_waiters: settings.in_all,
                max_holds_per_key: settings.holds,
                max_keys_per_call: 4_096,
                restart_quarantine_ms: settings.quarantine,
                lock_delay_ms: settings.lock_delay,
                claim_ms: settings.claim,
                max_token_lead_ms: 60_000,
                request_memory_ms: settings.request_memory,
                request_memory_max: 1_000_000,
                // Nothing depends on the log: it only has to bear every history.
                log_max_len: 8,
                log_wait_ms: UNIT_MS,
                log_hold_ms: UNIT_MS,
                record_level: dlock_core::record::Level::FIRST,
                cluster: false,
                // Cycles have tests of their own; here owners may wait for each other.
                deadlock_detection: settings.deadlock_detection,
                deadlock_recheck_ms: 0,
            },
            now_ms * MS,
        );
        let queue_one_in = random.pick(&[1, 3, 3]);
        let is_cluster = random.one_in(3);
        let mut model = Model::new(settings, now_ms);
        world.is_cluster = is_cluster;
        model.is_cluster = is_cluster;
        let has_portions = is_cluster && random.one_in(2);
        let mut simulation = Self {
            random,
            traced,
            world,
            model,
            now_ms,
            paused: false,
            shut: false,
            families,
            has_portions,
            keys: KEYS.len(),
            owners: OWNERS.len(),
            is_sent_late: false,
            queue_one_in,
            sent: Vec::new(),
            asked: Vec::new(),
            last_request: 0,
            connections: (1..=CONNECTIONS as u64).collect(),
            last_id: CONNECTIONS as u64,
        };
        if has_portions || simulation.random.one_in(3) {
            // With portions: the order in which one tick does portions of several keys is undefined.
            simulation.keys = 1;
            simulation.owners = simulation.random.pick(&[2, 3, 6]);
        }
        simulation.is_sent_late = simulation.random.one_in(3);
        simulation.set_portions();
        simulation
    }

    /// Large work in portions: the tick after each command does the rest.
    fn set_portions(&mut self) {
        if self.has_portions {
            self.world.set_portion(PORTION);
            self.model.portion = PORTION;
        }
    }

    fn run(mut self) {
        for _ in 0..STEPS {
            self.pass_time();
            self.act();
            self.compare_views();
            if !self.world.sent.is_empty() && !self.shut && self.random.one_in(4) {
                // Few grants go to blocked calls, and fewer meet other requests of their owner on their way.
                self.act_beside();
                self.act_undelivered();
                self.compare_views();
            }
        }
        self.say(|| "the end".to_owned());
        for _ in 0..2 {
            for key in KEYS {
                if self.model.is_foreign(key_number(key)) {
                    self.world.unlink(Key { db: 0, name: key.as_bytes() }, false);
                }
            }
        }
        self.world.finish();
    }

    fn say(&self, what: impl FnOnce() -> String) {
        if self.traced {
            println!("{:>6}  {}", self.now_ms / UNIT_MS, what());
        }
    }

    fn pass_time(&mut self) {
        let units = match self.random.below(20) {
            0..12 => 0,
            12..17 => 1 + self.random.below(3),
            17..19 => self.random.below(60),
            _ => 20_000,
        };
        self.now_ms += units * UNIT_MS;
        self.world.at(self.now_ms * MS);
        self.model.at(self.now_ms);
        // Sometimes the alarm is late. Not in a cluster: a command leaves its work to the tick, and the order of the
        // keys in which one tick does two kinds of work is undefined.
        if self.world.is_cluster || !self.random.one_in(4) {
            self.tick();
        }
        if self.random.one_in(if self.is_sent_late { 12 } else { 2 }) {
            for (_, client) in self.world.sent.clone() {
                self.say(|| format!("delivered to c{client}"));
                self.world.delivered(client);
                self.model.delivered(client);
            }
        }
    }

    fn tick(&mut self) {
        let open = !self.shut;
        self.say(|| format!("tick{}", if open { "" } else { " shut" }));
        let gate = if open { Gate::Open } else { Gate::Shut };
        self.compare(|world| world.tick(gate), |model, touched| model.tick(open, touched));
        if open {
            let now = self.world.now();
            assert!(
                !self.world.machine.tables().wants_to_write(now),
                "after a tick nothing is left to do"
            );
            for (k, name) in KEYS.into_iter().enumerate().filter(|_| self.model.is_up_to_date()) {
                let there = self.world.has_key(Key { db: 0, name: name.as_bytes() });
                assert_eq!(there, self.model.needs_a_key(k), "whether {name} is there");
            }
        }
    }
}
