//! Several locks in one call.

use std::time::Instant;

use crate::{
    cpu::LEASE,
    lua_lock,
    names::{key, owner},
    pair::{Contender, load, measure, per_second, ratios},
    recipe,
    report::{self, Table},
    stats::Sample,
    support::Server,
    wire::{Batch, Wire},
};

const ROUNDS: usize = 11;

/// Number of locks in one call, and of calls in one round.
const SIZES: [(usize, usize); 3] = [(2, 8_000), (10, 2_000), (100, 200)];

/// Calls in one pipeline.
const IN_FLIGHT: usize = 20;

/// Locks of the one large call, as many as it may name by default.
const MANY: usize = 4_096;

const MANY_ROUNDS: usize = 21;

/// The goal for one call.
const MANY_AIM_MS: f64 = 10.0;

/// The goal for dlock's cost, as a multiple of the cost of MSETNX and DEL.
const AIM: f64 = 3.0;

/// The keys of call number `n`.
fn keys(n: usize, count: usize) -> Vec<String> {
    (n * count..(n + 1) * count).map(key).collect()
}

/// Words of a call with keys in the middle.
fn words<'a>(before: &[&'a str], keys: &'a [String], after: &[&'a str]) -> Vec<&'a str> {
    before
        .iter()
        .copied()
        .chain(keys.iter().map(String::as_str))
        .chain(after.iter().copied())
        .collect()
}

/// The reply with `count` tokens.
fn tokens(batch: &mut Batch, call: &[&str], count: usize) {
    batch.push(call, b"*");
    (0..count).for_each(|_| batch.push_line(b":1"));
}

/// Sends the pairs in pipelines of [`IN_FLIGHT`].
fn contender(
    server: &Server,
    (count, pairs): (usize, usize),
    pair: impl Fn(&mut Batch, &[String], &str),
) -> Contender {
    let pipeline = |first: usize| {
        let mut batch = Batch::default();
        (first..first + IN_FLIGHT).for_each(|n| pair(&mut batch, &keys(n, count), &owner(n)));
        batch
    };
    // Repeats the same two hundred calls.
    let pipelines: Vec<Batch> = (0..200).step_by(IN_FLIGHT).map(pipeline).collect();
    let mut wire = Wire::connect(server);
    Contender::new(server, pairs, move || {
        for n in 0..pairs / IN_FLIGHT {
            wire.run(&pipelines[n % pipelines.len()]);
        }
    })
}

fn dlock(server: &Server, size: (usize, usize)) -> Contender {
    contender(server, size, |batch, keys, owner| {
        let count = keys.len().to_string();
        tokens(batch, &words(&["DLOCK.MACQUIRE", &count], keys, &[owner, "PX", LEASE]), keys.len());
        batch.push(&words(&["DLOCK.MRELEASE", &count], keys, &[owner]), b":");
    })
}

/// Without owner and expiry: not a lock, but the least that a call for several keys costs.
fn built_ins(server: &Server, size: (usize, usize)) -> Contender {
    contender(server, size, |batch, keys, owner| {
        let mut call = vec!["MSETNX"];
        call.extend(keys.iter().flat_map(|key| [key.as_str(), owner]));
        batch.push(&call, b":1");
        batch.push(&words(&["DEL"], keys, &[]), b":");
    })
}

fn one_script(server: &Server, size: (usize, usize)) -> Contender {
    let (lock, unlock) = (load(server, recipe::ALL_LOCK), load(server, recipe::ALL_UNLOCK));
    contender(server, size, |batch, keys, owner| {
        let count = keys.len().to_string();
        batch.push(&words(&["EVALSHA", &lock, &count], keys, &[LEASE, owner]), b":1");
        let after = ["lock_channel:", "0", LEASE, owner];
        batch.push(&words(&["EVALSHA", &unlock, &count], keys, &after), b":");
    })
}

fn one_by_one(server: &Server, size: (usize, usize)) -> Contender {
    let (lock, unlock) = (load(server, lua_lock::LOCK), load(server, lua_lock::UNLOCK));
    contender(server, size, |batch, keys, owner| {
        for key in keys {
            batch.push(&["EVALSHA", &lock, "1", key, LEASE, owner], b"$-1");
        }
        for key in keys {
            let channel = format!("lock_channel:{{{key}}}");
            batch.push(&["EVALSHA", &unlock, "2", key, &channel, "0", LEASE, owner], b":1");
        }
    })
}

pub fn run() -> Table {
    let with = Server::with(&[]).release().start();
    let bare = Server::with(&[]).without_module().start();
    let mut table = Table::new(
        "Several locks at once, all or none",
        format!(
            "Server CPU to take and release these free locks, and pairs per second; {ROUNDS} rounds, in turns; \
             {IN_FLIGHT} pairs in flight. Ratios: how many times the server CPU of dlock it takes, and how many times \
             as many pairs dlock makes in the same time. One script: all locks in one EVALSHA, each a hash, on a \
             server without dlock. Lock by lock: the two-script lock for each, one after the other in a pipeline, as \
             client libraries do it; that is not all or none. The last rows: one call for {MANY} free locks, at the \
             client, {MANY_ROUNDS} rounds."
        ),
        ["CPU per pair · pairs", "CPU · pairs per second"],
    );
    for size in SIZES {
        let mut all = [
            dlock(&with, size),
            built_ins(&bare, size),
            one_script(&bare, size),
            one_by_one(&bare, size),
        ];
        measure(&mut all, ROUNDS);
        let names = [
            "DLOCK.MACQUIRE + DLOCK.MRELEASE",
            "MSETNX + DEL, without owner and expiry",
            "recipe: one script",
            "recipe: lock by lock",
        ];
        for (n, (name, contender)) in names.into_iter().zip(&all).enumerate() {
            let cost = Sample::new(contender.costs.clone()).show("µs");
            let both = ratios(contender, &all[0]);
            let ratio = format!("{} · {}", report::ratio(&both.0), report::ratio(&both.1));
            let ratio = if n == 0 { String::new() } else { ratio };
            let aim = match n {
                1 => report::at_most(1.0 / both.0.median(), AIM, "× this"),
                _ => String::new(),
            };
            let value = format!("{cost} · {}", per_second(&contender.times));
            table.row(&format!("{} locks: {name}", size.0), value, ratio, aim);
        }
    }
    with.left_over_check();
    many(&mut table);
    table
}

/// Milliseconds from sending to the end of the reply.
fn timed(wire: &mut Wire, batch: &Batch) -> f64 {
    let start = Instant::now();
    wire.run(batch);
    start.elapsed().as_secs_f64() * 1e3
}

fn many(table: &mut Table) {
    let with = Server::with(&[]).release().start();
    let bare = Server::with(&[]).without_module().start();
    let (mut ours, mut theirs) = (Wire::connect(&with), Wire::connect(&bare));
    let (all, count, who) = (keys(0, MANY), MANY.to_string(), owner(0));
    let mut take = Batch::default();
    tokens(&mut take, &words(&["DLOCK.MACQUIRE", &count], &all, &[&who, "PX", LEASE]), MANY);
    let give = Batch::of(&words(&["DLOCK.MRELEASE", &count], &all, &[&who]), b":");
    let lock = load(&bare, recipe::ALL_LOCK);
    let script = Batch::of(&words(&["EVALSHA", &lock, &count], &all, &[LEASE, &who]), b":1");
    let mut sets = Batch::default();
    for key in &all {
        sets.push(&["SET", key, &who, "NX", "PX", LEASE], b"+OK");
    }
    let flush = Batch::of(&["FLUSHALL"], b"+OK");
    let mut columns = [const { Vec::new() }; 4];
    for round in 0..=MANY_ROUNDS {
        let mut taken = timed(&mut ours, &take);
        let mut given = timed(&mut ours, &give);
        let mut scripted = timed(&mut theirs, &script);
        theirs.run(&flush);
        let mut set = timed(&mut theirs, &sets);
        theirs.run(&flush);
        if round > 0 {
            let numbers = [&mut taken, &mut given, &mut scripted, &mut set];
            columns.iter_mut().zip(numbers).for_each(|(column, number)| column.push(*number));
        }
    }
    with.left_over_check();
    for (n, name) in [
        "DLOCK.MACQUIRE",
        "DLOCK.MRELEASE",
        "recipe: one script to take",
        "SET NX PX, in a pipeline",
    ]
    .into_iter()
    .enumerate()
    {
        let sample = Sample::new(columns[n].clone());
        let ratio = report::ratio(&Sample::ratios(&columns[n], &columns[0]));
        let aim =
            if n < 2 { report::at_most(sample.median(), MANY_AIM_MS, "ms") } else { String::new() };
        table.row(&format!("{MANY} locks: {name}"), sample.show("ms"), ratio, aim);
    }
}
