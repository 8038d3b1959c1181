//! When all holds end, every queue drains, and nothing is left.

use std::{
    collections::HashMap,
    time::{Duration, Instant},
};

use dlock_testing::{Client, Reply as _, Server, redis::Value};

use super::{ask, info_of, is_held, number, words};
use crate::{
    crowd::Crowd,
    key::{Family, Key},
    oracle::Violation,
    world::World,
};

/// Maximum time to drain queues; the longest grace of a place is half a second.
const PATIENCE: Duration = Duration::from_secs(15);

/// Ends all holds repeatedly until no calls are in progress.
pub fn everything(world: &World, crowd: &mut Crowd) -> Result<(), Violation> {
    crowd.oracle.world_disturbed();
    let start = Instant::now();
    let mut clients: HashMap<usize, Client> = HashMap::new();
    loop {
        let mut found = false;
        for node in world.primaries() {
            let client = clients.entry(node).or_insert_with(|| world.servers[node].client());
            for db in 0..world.kind.dbs() {
                let here = |key: &&Key| key.db == db && world.node_of(**key) == node;
                let keys: Vec<Key> = crowd.scene.keys.iter().filter(here).copied().collect();
                found |= end_holds(client, db, &keys);
            }
        }
        crowd.oracle.world_disturbed();
        crowd.pump_for(Duration::from_millis(5))?;
        let Some(actor) = crowd.actors.iter().find(|actor| !actor.pipe.pending.is_empty()) else {
            // Places without a call are granted, too, and such a grant may last long.
            if found && start.elapsed() <= PATIENCE {
                continue;
            }
            crowd.oracle.settled(Instant::now());
            return Ok(());
        };
        if start.elapsed() > PATIENCE {
            let call = &actor.pipe.pending[0].call;
            let key = call.waits.as_ref().map(|waits| waits.keys[0]);
            let shown =
                key.map(|key| info_of(&mut world.servers[world.node_of(key)].client(), key));
            let text = format!(
                "a queue does not drain: {} (connection {}, sent {:?} ago)\n      {}",
                call.show(),
                actor.pipe.client_id,
                actor.pipe.pending[0].sent.elapsed(),
                shown.unwrap_or_default()
            );
            return Err(Violation { key, text });
        }
    }
}

/// Returns whether there was something to end, or a waiter.
fn end_holds(client: &mut Client, db: u8, keys: &[Key]) -> bool {
    let verb = |key: &Key| if key.family == Family::Latch { "INFO" } else { "WAITERS" };
    let questions: Vec<_> = keys
        .iter()
        .flat_map(|key| {
            let name = key.name();
            [
                words(&[&key.family.command("INFO"), &name]),
                words(&[&key.family.command(verb(key)), &name]),
            ]
        })
        .collect();
    let replies = ask(client, db, &questions);
    let (mut ends, mut waits) = (Vec::new(), false);
    for (key, pair) in keys.iter().zip(replies.chunks_exact(2)) {
        let name = key.name();
        if let Value::ServerError(_) = pair[0] {
            // The key has a value of another type.
            ends.push(words(&["DEL", &name]));
            continue;
        }
        let has_waiters = matches!(&pair[1], Value::Array(waiters) if !waiters.is_empty());
        waits |= has_waiters;
        match key.family {
            Family::Lock | Family::Fair | Family::Rw if is_held(key.family, &pair[0]) => {
                ends.push(words(&[&key.family.command("BREAK"), &name]));
            }
            Family::Sem => end_permits(client, *key, &pair[0], has_waiters, &mut ends),
            Family::Latch if pair[0] != Value::Nil => {
                ends.push(words(&["DLATCH.COUNTDOWN", &name, "1000000"]));
            }
            _ => {}
        }
    }
    ask(client, db, &ends);
    waits || !ends.is_empty()
}

fn end_permits(
    client: &mut Client,
    key: Key,
    info: &Value,
    waits: bool,
    ends: &mut Vec<Vec<String>>,
) {
    let name = key.name();
    if waits {
        ends.push(words(&["DSEM.INIT", &name, "1000"]));
        ends.push(words(&["DSEM.RESIZE", &name, "1000"]));
    }
    if number(info, "leased").is_some_and(|n| n > 0) {
        let permits = ask(client, key.db, &[words(&["DSEM.PERMITS", &name])]).remove(0);
        let Value::Array(permits) = permits else { return };
        for permit in permits {
            ends.push(words(&["DSEM.BREAK", &name, &permit.field("id").text()]));
        }
    }
    let taken = number(info, "taken").unwrap_or(0);
    if taken > 0 {
        ends.push(words(&["DSEM.GIVE", &name, &taken.to_string()]));
    }
}

/// Counters of INFO dlock that are 0 without holders and waiters.
const COUNTS: [&str; 10] = [
    "held_locks",
    "keys_entered",
    "leased_permits",
    "waiters_blocked",
    "waiters_queued",
    "armed_deadlines",
    "parked_clients",
    "connections_watched",
    "grants_in_flight",
    "notices_pending",
];

/// Allowed growth of memory compared with other groups: request ids are remembered for a minute.
const MEMORY: i64 = 64 << 20;

/// Each call has got its reply; after a flush and without connections nothing is left on any server.
pub fn nothing_is_left(world: &mut World, crowd: &mut Crowd) -> Result<(), Violation> {
    crowd.echo()?;
    for node in world.primaries() {
        world.servers[node].cmd(&["FLUSHALL"]).ok();
    }
    crowd.oracle.cleared();
    crowd.close();
    for n in 0..world.servers.len() {
        let start = Instant::now();
        loop {
            let left = left_on(&world.servers[n]);
            if left.is_empty() {
                break;
            }
            if start.elapsed() > Duration::from_secs(10) {
                let text = format!("left over on server {n}: {}", left.join(", "));
                return Err(Violation::new(text));
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        let used = world.servers[n].info_number("memory", "used_memory");
        let least = world.memory[n].get_or_insert(used);
        *least = used.min(*least);
        if used > *least + MEMORY {
            let text =
                format!("server {n} uses {used} bytes with nothing in it, and {least} before");
            return Err(Violation::new(text));
        }
    }
    Ok(())
}

fn left_on(server: &Server) -> Vec<String> {
    let info = server.info("dlock");
    let count = |field: &&str| info.get(*field).filter(|value| *value != "0");
    let mut left: Vec<String> = COUNTS
        .iter()
        .filter_map(|field| count(field).map(|value| format!("{field} {value}")))
        .collect();
    for (name, n) in [("blocked_clients", server.blocked_clients()), ("keys", server.keys())] {
        left.extend((n != 0).then(|| format!("{name} {n}")));
    }
    left
}
