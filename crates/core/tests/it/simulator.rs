//! Random histories: the machine and the second model must agree after every step.
//!
//! A history that fails prints its seed; `DLOCK_SEED=<seed> cargo test -p dlock-core simulator`
//! replays it and prints every step. `DLOCK_RUNS=<n>` sets how many are tried.

use crate::model::{Answer, Counters, Info, KEYS, Model, Out, Row, Settings};
use crate::support::{MS, Seen, World};
use dlock_core::effects::Outcome;
use dlock_core::machine::{self, Caller, Gate};
use dlock_core::store::Key;
use dlock_wire::request::{Acquire, Release, Renew, Request};
use std::panic::AssertUnwindSafe;
use std::sync::atomic::{AtomicU64, Ordering};

/// All times are multiples of this many milliseconds, which is a whole number of ticks of the
/// machine's timing wheels: what is due is due for both at the same moment.
const UNIT_MS: u64 = 64;

const OWNERS: [&str; 6] = ["A", "B", "C", "D", "E", "F"];
const CONNECTIONS: usize = 5;
const STEPS: usize = 40;
const IDS: [&str; 12] = ["1", "2", "3", "4", "5", "6", "7", "8", "9", "10", "11", "12"];

#[test]
fn the_machine_and_the_model_agree() {
    if let Ok(seed) = std::env::var("DLOCK_SEED") {
        let seed = seed.parse().expect("DLOCK_SEED is a number");
        return Simulation::new(seed, true).run();
    }
    let runs = match std::env::var("DLOCK_RUNS") {
        Ok(runs) => runs.parse().expect("DLOCK_RUNS is a number"),
        Err(_) => 100_000,
    };
    let next = AtomicU64::new(1);
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed > runs {
                        return;
                    }
                    let run = AssertUnwindSafe(|| Simulation::new(seed, false).run());
                    if let Err(panic) = std::panic::catch_unwind(run) {
                        next.store(runs, Ordering::Relaxed);
                        eprintln!("\nDLOCK_SEED={seed} replays this history\n");
                        std::panic::resume_unwind(panic);
                    }
                }
            });
        }
    });
}

/// xorshift64*: small, and the same everywhere.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 11) % bound
    }

    fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }

    fn index(&mut self, len: usize) -> usize {
        usize::try_from(self.below(len as u64)).expect("an index")
    }

    fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.index(from.len())]
    }

    /// One of some numbers of units, in milliseconds, or nothing.
    fn maybe_ms(&mut self, one_in: u64, units: &[u64]) -> Option<u64> {
        self.one_in(one_in).then(|| self.pick(units) * UNIT_MS)
    }
}

struct Simulation {
    random: Random,
    traced: bool,
    world: World,
    model: Model,
    now_ms: u64,
    paused: bool,
    shut: bool,
    /// Ids of the connections that live.
    connections: Vec<u64>,
    /// The model is told which keys the machine wrote in a step.
    last_id: u64,
}

impl Simulation {
    fn new(seed: u64, traced: bool) -> Self {
        let mut random = Random(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1);
        let settings = Settings {
            default_lease: 30 * UNIT_MS,
            grace: random.pick(&[1, 4, 20]) * UNIT_MS,
            per_key: random.pick(&[2, 3, 100]),
            in_all: random.pick(&[4, 100, 100]),
            quarantine: random.pick(&[0, 0, 3]) * UNIT_MS,
            lock_delay: random.pick(&[0, 0, 2]) * UNIT_MS,
            deadlock_detection: random.one_in(2),
        };
        let now_ms = 1_000 * UNIT_MS;
        let world = World::new(
            machine::Settings {
                default_lease_ms: settings.default_lease,
                fair_grace_ms: settings.grace,
                max_waiters_per_key: settings.per_key,
                max_waiters: settings.in_all,
                restart_quarantine_ms: settings.quarantine,
                lock_delay_ms: settings.lock_delay,
                cluster: false,
                // Circles have tests of their own; here owners may wait for each other.
                deadlock_detection: settings.deadlock_detection,
            },
            now_ms * MS,
        );
        Self {
            random,
            traced,
            world,
            model: Model::new(settings, now_ms),
            now_ms,
            paused: false,
            shut: false,
            connections: (1..=CONNECTIONS as u64).collect(),
            last_id: CONNECTIONS as u64,
        }
    }

    fn run(mut self) {
        for _ in 0..STEPS {
            self.pass_time();
            self.act();
            self.compare_views();
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

    // ---- time ----

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
        // Sometimes the alarm is late.
        if !self.random.one_in(4) {
            self.tick();
        }
        if self.random.one_in(2) {
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
            assert!(!self.world.machine.wants_to_write(now), "after a tick nothing is left to do");
        }
    }

    // ---- steps ----

    fn act(&mut self) {
        if self.shut && !self.random.one_in(4) {
            return self.act_shut();
        }
        if self.shut {
            self.open();
        }
        match self.random.below(100) {
            0..80 => self.act_call(),
            80..86 => self.act_gone(),
            86..89 => self.act_undelivered(),
            89..92 => self.act_unlink(),
            92..94 => self.act_rename(),
            94..96 => {
                self.shut = true;
                self.paused = self.random.one_in(2);
                self.say(|| format!("shut, paused: {}", self.paused));
                self.world.pause(self.paused);
                self.model.pause(self.paused);
            }
            96..98 => {
                let by_us = self.random.pick(&[3_600_000_000, 1_000, 86_400_000_000]);
                self.say(|| format!("the wall clock is set by {by_us} us"));
                self.world.wall_us = if self.random.one_in(2) {
                    self.world.wall_us + by_us
                } else {
                    self.world.wall_us - by_us
                };
            }
            _ => self.act_fail_over(),
        }
    }

    fn open(&mut self) {
        self.shut = false;
        self.paused = false;
        self.say(|| "open".to_owned());
        self.world.pause(false);
        self.model.pause(false);
        self.world.machine.set_gate(Gate::Open);
        self.model.shut(false);
        if self.random.one_in(2) {
            self.tick();
        }
    }

    fn act_shut(&mut self) {
        self.tick();
        if self.random.one_in(3) {
            self.act_unblock();
        }
    }

    fn act_call(&mut self) {
        if self.random.one_in(20) {
            return self.act_unblock();
        }
        let busy = |client: &u64| {
            self.world.blocked.values().any(|other| other == client)
                || self.world.sent.iter().any(|(_, other)| other == client)
        };
        let idle: Vec<u64> =
            self.connections.iter().copied().filter(|client| !busy(client)).collect();
        if idle.is_empty() {
            return self.act_gone();
        }
        let random = &mut self.random;
        let (client, may_block) = match random.below(20) {
            0 => (0, false),
            1 => (random.pick(&idle), false),
            _ => (random.pick(&idle), true),
        };
        let k = random.index(KEYS.len());
        let key = KEYS[k].as_bytes();
        let owner = random.pick(&OWNERS).as_bytes();
        let current = self.model.token(k);
        let token = match random.below(8) {
            0 => Some(7),
            1..4 => current,
            _ => None,
        };
        let lease_ms = random.maybe_ms(2, &[1, 2, 3, 8, 40]);
        let bind_ms = random.maybe_ms(5, &[0, 1, 3, 50]);
        let reqid = random.one_in(3).then(|| random.pick(&IDS).as_bytes());
        let request = match random.below(20) {
            0..11 => Request::Acquire(Acquire {
                key,
                owner,
                lease_ms,
                block_ms: random.maybe_ms(2, &[0, 1, 2, 5]),
                queue_ms: random.maybe_ms(3, &[1, 2, 4]),
                notify: random.one_in(8).then_some(b"channel"),
                reqid,
                no_reentry: random.one_in(8),
                bind_ms,
                label: random.one_in(8).then(|| random.pick(&[&b"x"[..], b""])),
            }),
            11..15 => Request::Release(Release { key, owner, all: random.one_in(4), token, reqid }),
            15..17 => Request::Renew(Renew { key, owner, lease_ms, token, bind_ms }),
            17 => {
                let base = match random.below(3) {
                    0 => 1,
                    1 => current.unwrap_or(1),
                    _ => self.world.now().wall_us + 30 * 86_400 * 1_000_000,
                };
                Request::Fence { key, owner, token: base + random.below(3) }
            }
            18 => Request::Break { key },
            _ => Request::Cancel { key, owner },
        };
        self.call(client, may_block, &request);
    }

    fn act_unblock(&mut self) {
        let blocked: Vec<u64> = self.world.blocked.values().copied().collect();
        let client = match blocked.len() {
            0 => 77,
            len => blocked[self.random.index(len)],
        };
        let error = self.random.one_in(2);
        self.call(88, true, &Request::Unblock { client, error });
    }

    fn call(&mut self, client: u64, may_block: bool, request: &Request<'_>) {
        self.say(|| format!("c{client} (may block: {may_block}) {}", shown(request)));
        let caller = Caller { client, db: 0, may_block };
        self.compare(
            |world| world.call(caller, request),
            |model, touched| model.call(client, may_block, request, touched),
        );
    }

    fn act_gone(&mut self) {
        let at = self.random.index(CONNECTIONS);
        self.last_id += 1;
        let client = std::mem::replace(&mut self.connections[at], self.last_id);
        self.say(|| format!("c{client} is gone, c{} is new", self.last_id));
        self.compare(|world| world.gone(client), |model, touched| model.gone(client, touched));
    }

    fn act_undelivered(&mut self) {
        if let Some(&(_, client)) = self.world.sent.first() {
            self.say(|| format!("undelivered to c{client}"));
            self.compare(
                |world| world.undelivered(client),
                |model, touched| model.undelivered(client, touched),
            );
        }
    }

    fn act_unlink(&mut self) {
        let k = self.random.index(KEYS.len());
        if self.model.is_there(k) {
            let over = self.random.one_in(3);
            self.say(|| format!("{} {}", if over { "SET" } else { "DEL" }, KEYS[k]));
            let key = Key { db: 0, name: KEYS[k].as_bytes() };
            self.compare(
                |world| world.unlink(key, over),
                |model, touched| model.unlink(k, over, touched),
            );
        }
    }

    fn act_rename(&mut self) {
        let from = self.random.index(KEYS.len());
        let to = (from + 1 + self.random.index(KEYS.len() - 1)) % KEYS.len();
        if self.model.is_there(from) {
            self.say(|| format!("RENAME {} {}", KEYS[from], KEYS[to]));
            let [a, b] = [from, to].map(|k| Key { db: 0, name: KEYS[k].as_bytes() });
            self.compare(
                |world| world.rename(a, b),
                |model, touched| model.rename(from, to, touched),
            );
        }
    }

    fn act_fail_over(&mut self) {
        self.say(|| "failover".to_owned());
        self.compare(World::fail_over, |model, _| model.fail_over());
    }

    // ---- comparing ----

    fn compare(
        &mut self,
        act: impl FnOnce(&mut World) -> Seen,
        predict: impl Fn(&mut Model, &[usize]) -> Out,
    ) {
        let seen = act(&mut self.world);
        self.model.wall_us = self.world.now().wall_us;
        let touched: Vec<usize> = seen.recorded.iter().map(|(_, key)| number_of(key)).collect();
        let woken = seen.wakes.iter().filter_map(|(client, _)| self.model.blocked_at(*client));
        self.model.woken = woken.filter(|k| !touched.contains(k)).collect();
        let mut got = Out {
            reply: seen.reply.as_ref().map(answer),
            wakes: seen.wakes.iter().map(|(client, outcome)| (*client, answer(outcome))).collect(),
            messages: seen.messages.iter().map(|(to, text)| (lossy(to), lossy(text))).collect(),
            events: seen.events.iter().map(|(event, _, key)| (*event, number_of(key))).collect(),
            counters: counters(seen.counted),
        };
        sort_wakes(&mut got);
        if self.traced {
            println!("        → {got:?}, writes {touched:?}");
        }
        let before = (!self.model.woken.is_empty()).then(|| self.model.clone());
        let mut expected = predict(&mut self.model, &touched);
        sort_wakes(&mut expected);
        if got != expected
            && let Some(mut model) = before
        {
            model.woken_last = true;
            expected = predict(&mut model, &touched);
            sort_wakes(&mut expected);
            model.woken_last = false;
            self.model = model;
        }
        assert_eq!(got, expected, "the machine (left) and the model (right) disagree");
    }

    fn compare_views(&mut self) {
        let now = self.world.now();
        let (machine, keys) = (&self.world.machine, &mut self.world.keys);
        let owner = self.random.pick(&OWNERS);
        for (k, name) in KEYS.into_iter().enumerate() {
            let key = Key { db: 0, name: name.as_bytes() };
            let Ok(info) = machine.lock_info(keys, now, key) else {
                assert!(self.model.is_foreign(k), "WRONGTYPE for a lock");
                continue;
            };
            assert!(!self.model.is_foreign(k), "no WRONGTYPE for another type");
            let info = info.map(|info| Info {
                owner: lossy(&info.owner),
                token: info.token,
                holds: info.holds,
                lease_ms: info.lease_ms,
                ttl_ms: info.ttl_ms,
                held_ms: info.held_ms,
                label: lossy(&info.label),
                bound_client: info.bound_client,
                waiters: info.waiters,
            });
            assert_eq!(info, self.model.info(k), "INFO {name}");
            let rows = machine.waiters(keys, now, key, usize::MAX).expect("a lock");
            let rows: Vec<Row> = rows
                .into_iter()
                .map(|row| {
                    let (owner, label) = (lossy(&row.owner), lossy(&row.label));
                    (owner, row.client, row.waiting_ms, row.remaining_ms, label)
                })
                .collect();
            assert_eq!(rows, self.model.rows(k), "WAITERS {name}");
            let position = machine.position(keys, now, key, owner.as_bytes()).expect("a lock");
            assert_eq!(position, self.model.position(k, owner), "POSITION {name} {owner}");
            if let Some(info) = info {
                let current = machine.is_current(keys, now, key, info.token.max(1));
                assert_eq!(current, Ok(info.token > 0), "CHECK {name} {}", info.token);
            }
        }
    }
}

/// The counters in the order in which a [`World`] tells them.
fn counters(grown: [u64; 9]) -> Counters {
    let [grants_at_once, grants_after_waiting, timeouts, expiries, releases, rest @ ..] = grown;
    let [broken, disconnected, replaced, unclaimed] = rest;
    Counters {
        grants_at_once,
        grants_after_waiting,
        timeouts,
        expiries,
        releases,
        broken,
        disconnected,
        replaced,
        unclaimed,
    }
}

/// Calls that end without a grant at the same moment do so in any order.
fn sort_wakes(out: &mut Out) {
    out.wakes.sort_by_key(|(client, answer)| match answer {
        Answer::Token(_) => u64::MAX,
        _ => *client,
    });
}

fn answer(outcome: &Outcome) -> Answer {
    match outcome {
        Outcome::Token(token) => Answer::Token(*token),
        Outcome::Count(count) => Answer::Count(*count),
        Outcome::Null => Answer::Null,
        Outcome::Fault(fault) => Answer::Error(fault.code.as_str()),
    }
}

fn shown(request: &Request<'_>) -> String {
    let mut args = Vec::new();
    request.write(&mut args);
    let args: Vec<String> = args.iter().map(|arg| lossy(arg)).collect();
    let verb = format!("{request:?}");
    let verb = verb.split(['(', ' ']).next().unwrap_or_default();
    format!("{} {}", verb.to_uppercase(), args.join(" "))
}

fn key_number(name: &str) -> usize {
    number_of(name.as_bytes())
}

fn number_of(name: &[u8]) -> usize {
    KEYS.iter().position(|key| key.as_bytes() == name).expect("a known key")
}

fn lossy(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}
