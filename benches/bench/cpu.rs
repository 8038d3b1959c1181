//! The server's cost of one lock and unlock: processor time, not the client's wait.

use crate::{
    lua_lock,
    names::{key, owner},
    pair::{Contender, PAIRS, PIPELINES, load, measure},
    recipe,
    report::{self, Table},
    stats::Sample,
    support::{Server, other_module},
    wire::Batch,
};

const ROUNDS: usize = 21;

/// Repetitions of all pipelines in a round.
const REPEATS: usize = 10;

pub const LEASE: &str = "30000";

fn pairs(server: &Server, pair: impl Fn(&mut Batch, &str, &str)) -> Contender {
    Contender::pipelined(server, REPEATS, |batch, n| pair(batch, &key(n), &owner(n)))
}

fn dlock(server: &Server) -> Contender {
    pairs(server, |batch, key, owner| {
        batch.push(&["DLOCK.ACQUIRE", key, owner, "PX", LEASE], b":1");
        batch.push(&["DLOCK.RELEASE", key, owner], b":0");
    })
}

/// The same calls into the server without decisions: `benches/floor`.
fn floor(server: &Server) -> Contender {
    pairs(server, |batch, key, owner| {
        batch.push(&["FLOOR.ACQUIRE", key, owner, "PX", LEASE], b":1");
        batch.push(&["FLOOR.RELEASE", key, owner], b":0");
    })
}

fn built_ins(server: &Server) -> Contender {
    pairs(server, |batch, key, owner| {
        batch.push(&["SET", key, owner, "NX", "PX", LEASE], b"+OK");
        batch.push(&["DEL", key], b":1");
    })
}

/// The recipe that dlock replaces.
fn recipe(server: &Server) -> Contender {
    let unlock = load(server, recipe::COMPARE_AND_DELETE);
    pairs(server, |batch, key, owner| {
        batch.push(&["SET", key, owner, "NX", "PX", LEASE], b"+OK");
        batch.push(&["EVALSHA", &unlock, "1", key, owner], b":1");
    })
}

fn pings(server: &Server) -> Contender {
    pairs(server, |batch, _, _| {
        batch.push(&["PING"], b"+PONG");
        batch.push(&["PING"], b"+PONG");
    })
}

fn lua(server: &Server) -> Contender {
    let (lock, unlock) = (load(server, lua_lock::LOCK), load(server, lua_lock::UNLOCK));
    pairs(server, |batch, key, owner| {
        batch.push(&["EVALSHA", &lock, "1", key, LEASE, owner], b"$-1");
        let channel = format!("lock_channel:{{{key}}}");
        batch.push(&["EVALSHA", &unlock, "2", key, &channel, "0", LEASE, owner], b":1");
    })
}

pub fn run() -> Table {
    let with = Server::with(&[]).release().start();
    let bare = Server::with(&[]).without_module().start();
    let module = other_module("dlock-floor").display().to_string();
    let with_floor = Server::with(&["loadmodule", &module]).without_module().start();
    let with_aof = Server::with(&["appendonly", "yes"]).release().start();
    let bare_aof = Server::with(&["appendonly", "yes"]).without_module().start();
    let mut all = [
        dlock(&with),
        floor(&with_floor),
        built_ins(&bare),
        built_ins(&with),
        recipe(&bare),
        lua(&bare),
        pings(&bare),
        dlock(&with_aof),
        built_ins(&bare_aof),
        recipe(&bare_aof),
        lua(&bare_aof),
    ];
    measure(&mut all, ROUNDS);
    with.left_over_check();
    let costs = all.map(|contender| contender.costs);
    let [
        dlock,
        floor,
        set_bare,
        set_with,
        recipe,
        lua,
        pings,
        dlock_aof,
        set_aof,
        recipe_aof,
        lua_aof,
    ] = &costs;

    let mut table = Table::new(
        "Server CPU for one lock and unlock, pipelined",
        format!(
            "User and system time of the server process, per pair; {} rounds of {} pairs, in turns; one connection \
             over TCP, {} commands in flight; keys of 20 bytes, owners of 36, lease {LEASE} ms. Compare-and-delete is \
             a script that deletes the key if its value is the owner; the Lua lock is two scripts over a hash with \
             PEXPIRE and PUBLISH; all by EVALSHA. The floor is a module that makes the same calls into the server as \
             dlock's pair, and decides nothing (benches/floor).",
            ROUNDS,
            REPEATS * PIPELINES * PAIRS,
            2 * PAIRS,
        ),
        ["CPU per pair", "times the cost of dlock's pair"],
    );
    let show = |costs: &[f64]| Sample::new(costs.to_vec()).show("µs");
    let mut compare = |what: &str, costs: &[f64], dlock: &[f64], aim: Option<fn(f64) -> String>| {
        let ratio = Sample::ratios(costs, dlock);
        let aim = aim.map_or_else(String::new, |aim| aim(ratio.median()));
        table.row(what, show(costs), report::ratio(&ratio), aim);
    };
    let built_ins: fn(f64) -> String = |ratio| report::at_most(1.0 / ratio, 1.0, "× this");
    let by_hand: fn(f64) -> String = |ratio| report::at_most(1.0 / ratio, 0.75, "× this");
    let scripts: fn(f64) -> String = |ratio| report::at_least(ratio, 5.0, "");
    compare("DLOCK.ACQUIRE + DLOCK.RELEASE", dlock, dlock, None);
    compare("floor: the same calls into the server, nothing decided", floor, dlock, None);
    compare("SET NX PX + DEL, server without dlock", set_bare, dlock, Some(built_ins));
    compare("SET NX PX + DEL, same server as dlock", set_with, dlock, Some(built_ins));
    compare("SET NX PX + compare-and-delete, server without dlock", recipe, dlock, Some(by_hand));
    compare("two-script Lua lock, server without dlock", lua, dlock, Some(scripts));
    compare("PING + PING, server without dlock", pings, dlock, None);
    compare("appendonly yes: DLOCK.ACQUIRE + DLOCK.RELEASE", dlock_aof, dlock_aof, None);
    compare("appendonly yes: SET NX PX + DEL", set_aof, dlock_aof, None);
    compare("appendonly yes: SET NX PX + compare-and-delete", recipe_aof, dlock_aof, Some(by_hand));
    compare("appendonly yes: two-script Lua lock", lua_aof, dlock_aof, None);
    table
}
