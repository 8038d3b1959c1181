//! Uncontended pairs of acquire and release: each primitive against its usual recipe.

use std::time::SystemTime;

use crate::{
    cpu::LEASE,
    names::{key, owner},
    pair::{Contender, PAIRS, PIPELINES, both_at_least, load, measure, per_second, ratios},
    recipe,
    report::{self, Table},
    stats::Sample,
    support::Server,
    wire::{Batch, Wire},
};

const ROUNDS: usize = 15;

/// Repetitions of all pipelines in a round.
const REPEATS: usize = 4;

/// Pairs in one round when each command waits for the previous reply.
const ONE_BY_ONE: usize = 2_000;

/// The client clock that recipes trust, in milliseconds.
pub fn now_ms() -> u128 {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).expect("after 1970");
    now.as_millis()
}

/// Long after any round, in the format of the recipes' clients.
fn lease_end() -> String {
    (now_ms() + 3_600_000).to_string()
}

fn fair(server: &Server) -> Contender {
    Contender::pipelined(server, REPEATS, |batch, n| {
        batch.push(&["DFAIR.ACQUIRE", &key(n), &owner(n), "PX", LEASE], b":1");
        batch.push(&["DFAIR.RELEASE", &key(n), &owner(n)], b":0");
    })
}

fn fair_recipe(server: &Server) -> Contender {
    let scripts = FairScripts::load(server);
    Contender::pipelined(server, REPEATS, |batch, n| {
        scripts.lock(batch, &key(n), &owner(n), b"$-1");
        scripts.unlock(batch, &key(n), &owner(n));
    })
}

/// The recipe for the fair lock, loaded into the server.
pub struct FairScripts {
    lock: String,
    unlock: String,
}

impl FairScripts {
    pub fn load(server: &Server) -> FairScripts {
        FairScripts {
            lock: load(server, recipe::FAIR_LOCK),
            unlock: load(server, recipe::FAIR_UNLOCK),
        }
    }

    /// As clients call it: five minutes for each waiter.
    pub fn lock(&self, batch: &mut Batch, key: &str, owner: &str, answer: &'static [u8]) {
        let (list, set) = (format!("fair_queue:{{{key}}}"), format!("fair_timeout:{{{key}}}"));
        let (lease, now) = ("3600000", now_ms().to_string());
        let call = ["EVALSHA", &self.lock, "3", key, &list, &set, lease, owner, &now, "300000"];
        batch.push(&call, answer);
    }

    pub fn unlock(&self, batch: &mut Batch, key: &str, owner: &str) {
        let (list, set) = (format!("fair_queue:{{{key}}}"), format!("fair_timeout:{{{key}}}"));
        let (channel, now) = (format!("fair_channel:{{{key}}}"), now_ms().to_string());
        let call =
            ["EVALSHA", &self.unlock, "4", key, &list, &set, &channel, "0", "3600000", owner, &now];
        batch.push(&call, b":1");
    }
}

/// Permits of every semaphore; a pipeline takes them all before it releases them.
const PERMITS: &str = "100";

/// The key of a semaphore: the recipe's key remains when all permits are released.
fn semaphore_key(n: usize) -> String {
    key(1_000_000 + n)
}

fn semaphore(server: &Server) -> Contender {
    let take = |n: usize| {
        let mut batch = Batch::default();
        for n in n * PAIRS..(n + 1) * PAIRS {
            let call = [
                "DSEM.ACQUIRE",
                &semaphore_key(n / PAIRS),
                &owner(n),
                "LIMIT",
                PERMITS,
                "PX",
                LEASE,
            ];
            batch.push(&call, b"$36");
            batch.push_line(b"");
        }
        batch
    };
    let takes: Vec<Batch> = (0..PIPELINES).map(take).collect();
    let mut wire = Wire::connect(server);
    let mut give = Batch::default();
    Contender::new(server, REPEATS * PIPELINES * PAIRS, move || {
        for _ in 0..REPEATS {
            for (n, batch) in takes.iter().enumerate() {
                give.clear();
                let key = semaphore_key(n);
                // The server creates the ids: the releases are written when they are known.
                wire.run_with(batch, |line| {
                    if line.first() != Some(&b'$') {
                        give.push(&[b"DSEM.RELEASE", key.as_bytes(), line], b":");
                    }
                });
                wire.run(&give);
            }
        }
    })
}

fn semaphore_recipe(server: &Server) -> Contender {
    let (take, give) = (load(server, recipe::PERMIT_TAKE), load(server, recipe::PERMIT_GIVE));
    let names = |n: usize| {
        let key = semaphore_key(n / PAIRS);
        (format!("{{{key}}}:timeout"), format!("semaphore_channel:{{{key}}}"), key)
    };
    let pipelines = |n: usize| {
        let (mut takes, mut gives) = (Batch::default(), Batch::default());
        let (end, now) = (lease_end(), now_ms().to_string());
        for n in n * PAIRS..(n + 1) * PAIRS {
            let (set, channel, key) = names(n);
            let permit = owner(n);
            let call = ["EVALSHA", &take, "3", &key, &set, &channel, "1", &permit, &end, &now];
            takes.push(&call, b"$36");
            takes.push_line(b"");
            gives.push(&["EVALSHA", &give, "3", &key, &set, &channel, &permit, &now], b":1");
        }
        (takes, gives)
    };
    let pipelines: Vec<_> = (0..PIPELINES).map(pipelines).collect();
    let mut wire = Wire::connect(server);
    for n in 0..PIPELINES {
        wire.run(&Batch::of(&["SET", &semaphore_key(n), PERMITS], b"+OK"));
    }
    Contender::new(server, REPEATS * PIPELINES * PAIRS, move || {
        for _ in 0..REPEATS {
            for (takes, gives) in &pipelines {
                wire.run(takes);
                wire.run(gives);
            }
        }
    })
}

fn rw(server: &Server, mode: &'static str) -> Contender {
    Contender::pipelined(server, REPEATS, |batch, n| {
        batch.push(&["DRW.ACQUIRE", &key(n), &owner(n), mode, "PX", LEASE], b":1");
        batch.push(&["DRW.RELEASE", &key(n), &owner(n), mode], b":0");
    })
}

fn read_recipe(server: &Server) -> Contender {
    let (lock, unlock) = (load(server, recipe::READ_LOCK), load(server, recipe::READ_UNLOCK));
    Contender::pipelined(server, REPEATS, |batch, n| {
        let (key, owner) = (key(n), owner(n));
        let leases = format!("{{{key}}}:{owner}:lease");
        let (channel, writer) = (format!("rw_channel:{{{key}}}"), format!("{owner}:write"));
        batch.push(&["EVALSHA", &lock, "2", &key, &leases, LEASE, &owner, &writer], b"$-1");
        batch.push(&["EVALSHA", &unlock, "3", &key, &channel, &leases, "0", &owner], b":1");
    })
}

fn write_recipe(server: &Server) -> Contender {
    let (lock, unlock) = (load(server, recipe::WRITE_LOCK), load(server, recipe::WRITE_UNLOCK));
    Contender::pipelined(server, REPEATS, |batch, n| {
        let (key, owner) = (key(n), owner(n));
        let (channel, writer) = (format!("rw_channel:{{{key}}}"), format!("{owner}:write"));
        batch.push(&["EVALSHA", &lock, "1", &key, LEASE, &writer], b"$-1");
        batch.push(&["EVALSHA", &unlock, "2", &key, &channel, "0", LEASE, &writer], b":1");
    })
}

fn latch(server: &Server) -> Contender {
    Contender::pipelined(server, REPEATS, |batch, n| {
        batch.push(&["DLATCH.INIT", &key(n), "1"], b":1");
        batch.push(&["DLATCH.COUNTDOWN", &key(n)], b":0");
    })
}

fn latch_recipe(server: &Server) -> Contender {
    let (set, down) = (load(server, recipe::LATCH_SET), load(server, recipe::LATCH_DOWN));
    Contender::pipelined(server, REPEATS, |batch, n| {
        let (key, channel) = (key(n), format!("latch_channel:{{{}}}", key(n)));
        batch.push(&["EVALSHA", &set, "2", &key, &channel, "1", "1"], b":1");
        batch.push(&["EVALSHA", &down, "2", &key, &channel, "0"], b":0");
    })
}

/// One command after the other, each after the previous reply: most of the time is the system's, not the server's.
fn one_by_one(server: &Server, pair: impl Fn(&mut Batch, &mut Batch, usize)) -> Contender {
    let pair = |n: usize| {
        let (mut take, mut give) = (Batch::default(), Batch::default());
        pair(&mut take, &mut give, n);
        (take, give)
    };
    let pairs: Vec<(Batch, Batch)> = (0..ONE_BY_ONE).map(pair).collect();
    let mut wire = Wire::connect(server);
    Contender::new(server, ONE_BY_ONE, move || {
        for (take, give) in &pairs {
            wire.run(take);
            wire.run(give);
        }
    })
}

fn fair_one_by_one(server: &Server) -> Contender {
    one_by_one(server, |take, give, n| {
        take.push(&["DFAIR.ACQUIRE", &key(n), &owner(n), "PX", LEASE], b":1");
        give.push(&["DFAIR.RELEASE", &key(n), &owner(n)], b":0");
    })
}

fn fair_recipe_one_by_one(server: &Server) -> Contender {
    let scripts = FairScripts::load(server);
    one_by_one(server, |take, give, n| {
        scripts.lock(take, &key(n), &owner(n), b"$-1");
        scripts.unlock(give, &key(n), &owner(n));
    })
}

/// A comparison: its name, dlock, the recipe, and the goal for the ratio.
type Duel = (&'static str, Contender, Contender, Option<f64>);

pub fn run() -> Table {
    let with = Server::with(&[]).release().start();
    let bare = Server::with(&[]).without_module().start();
    let duels: Vec<Duel> = vec![
        ("fair lock", fair(&with), fair_recipe(&bare), Some(3.0)),
        ("semaphore with leases", semaphore(&with), semaphore_recipe(&bare), Some(3.0)),
        ("read lock", rw(&with, "READ"), read_recipe(&bare), None),
        ("write lock", rw(&with, "WRITE"), write_recipe(&bare), None),
        ("latch, set and opened", latch(&with), latch_recipe(&bare), None),
        ("fair lock, one by one", fair_one_by_one(&with), fair_recipe_one_by_one(&bare), None),
    ];
    let mut table = Table::new(
        "Uncontended acquire and release, against the usual recipe",
        format!(
            "User and system time of the server process per pair, and pairs per second; {ROUNDS} rounds of {} pairs, \
             in turns; one connection over TCP, {} commands in flight (\"one by one\": one, {ONE_BY_ONE} pairs). \
             Ratios: how many times the server CPU of dlock the recipe takes, and how many times as many pairs dlock \
             makes in the same time. The recipes are scripts by EVALSHA, on a server without dlock: a hash with a list \
             and a sorted set for the fair lock, a counter with a sorted set for the semaphore ({PERMITS} permits \
             each, all of which are taken before they are released), a hash with the mode and a key for each read \
             lease, a counter with a channel for the latch.",
            REPEATS * PIPELINES * PAIRS,
            2 * PAIRS,
        ),
        ["CPU per pair · pairs", "CPU · pairs per second"],
    );
    let (names, aims): (Vec<_>, Vec<_>) =
        duels.iter().map(|(name, _, _, aim)| (*name, *aim)).unzip();
    let mut all: Vec<Contender> =
        duels.into_iter().flat_map(|(_, ours, recipe, _)| [ours, recipe]).collect();
    measure(&mut all, ROUNDS);
    with.left_over_check();
    for ((name, aim), duel) in names.into_iter().zip(aims).zip(all.chunks_exact(2)) {
        let both = ratios(&duel[1], &duel[0]);
        for (n, (who, contender)) in ["dlock", "recipe"].into_iter().zip(duel).enumerate() {
            let (ratio, aim) = if n == 0 {
                (String::new(), String::new())
            } else {
                let ratio = format!("{} · {}", report::ratio(&both.0), report::ratio(&both.1));
                (ratio, aim.map_or_else(String::new, |aim| both_at_least(&both, aim)))
            };
            let cost = Sample::new(contender.costs.clone()).show("µs");
            let value = format!("{cost} · {}", per_second(&contender.times));
            table.row(&format!("{name}: {who}"), value, ratio, aim);
        }
    }
    table
}
