//! A free lock has no waiter that could be granted.

use std::{
    collections::HashMap,
    time::{Duration, Instant},
};

use dlock_testing::{Client, Reply as _, redis::Value};

use super::{ask, info_of, is_held, number, words};
use crate::{
    call::{Call, Waits},
    crowd::{Actor, Crowd},
    key::{Family, Key},
    oracle::Violation,
    world::World,
};

/// Maximum time of a free key with a waiter: lock delays, graces and unclaimed grants of a burst end sooner.
const PATIENCE: Duration = Duration::from_secs(2);

/// No connected waiter waits for a key that it could be granted.
pub fn none_is_lost(world: &World, crowd: &mut Crowd) -> Result<(), Violation> {
    let mut clients: HashMap<usize, Client> = HashMap::new();
    let mut since: HashMap<Key, Instant> = HashMap::new();
    loop {
        let mut suspects = HashMap::new();
        for node in world.primaries() {
            let client = clients.entry(node).or_insert_with(|| world.servers[node].client());
            for db in 0..world.kind.dbs() {
                suspects.extend(suspects_of(world, crowd, client, (node, db)));
            }
        }
        since.retain(|key, _| suspects.contains_key(key));
        for (key, text) in &suspects {
            if since.entry(*key).or_insert_with(Instant::now).elapsed() > PATIENCE {
                let client = clients.entry(world.node_of(*key));
                let client = client.or_insert_with(|| world.servers[world.node_of(*key)].client());
                let shown = info_of(client, *key);
                return Err(Violation::of(*key, format!("a lost wake-up: {text}\n      {shown}")));
            }
        }
        if suspects.is_empty() {
            return Ok(());
        }
        crowd.pump_for(Duration::from_millis(50))?;
    }
}

/// Free keys with a grantable waiter, and the reason.
fn suspects_of(
    world: &World,
    crowd: &Crowd,
    client: &mut Client,
    (node, db): (usize, u8),
) -> Vec<(Key, String)> {
    let here = |key: &&Key| key.db == db && world.node_of(**key) == node;
    let keys: Vec<Key> = crowd.scene.keys.iter().filter(here).copied().collect();
    let questions: Vec<_> = keys
        .iter()
        .flat_map(|key| {
            let name = key.name();
            [
                words(&[&key.family.command("INFO"), &name]),
                words(&[&key.family.command("WAITERS"), &name, "COUNT", "20"]),
            ]
        })
        .collect();
    let replies = ask(client, db, &questions);
    let blocked = blocked_calls(crowd, node);
    let pairs = keys.iter().zip(replies.chunks_exact(2));
    pairs
        .filter_map(|(&key, pair)| judge(key, &pair[0], &pair[1], &blocked).map(|text| (key, text)))
        .collect()
}

/// The blocked calls of a node, by the id of their connection.
fn blocked_calls(crowd: &Crowd, node: usize) -> HashMap<i64, &Call> {
    let blocked = |actor: &Actor| actor.node == node && actor.seat.waits;
    let call = |actor: &'_ Actor| i64::try_from(actor.pipe.client_id).unwrap_or(0);
    crowd
        .actors
        .iter()
        .filter(|actor| blocked(actor))
        .filter_map(|actor| Some((call(actor), &*actor.pipe.pending.front()?.call)))
        .collect()
}

/// Why this key should not have this queue, if so.
fn judge(key: Key, info: &Value, waiters: &Value, blocked: &HashMap<i64, &Call>) -> Option<String> {
    let Value::Array(waiters) = waiters else { return None };
    let is_exclusive = matches!(key.family, Family::Lock | Family::Fair);
    for waiter in waiters {
        let call = blocked.get(&waiter.field("client-id").int());
        let waits = call.and_then(|call| call.waits.clone().or_else(|| take(key, call)));
        let is_latch = key.family == Family::Latch;
        let fits = |waits: &Waits| {
            waits.keys.contains(&key) && waits.owner == waiter.field("owner").text()
        };
        match (call, waits.filter(fits)) {
            (Some(call), _) if is_latch => {
                let is_open = *info == Value::Nil;
                return is_open.then(|| {
                    format!("the latch is open, but this call waits for it: {}", call.show())
                });
            }
            // It waits for other keys, too, and reserves this one meanwhile.
            (_, Some(waits)) if waits.all => return None,
            (Some(call), Some(waits)) => {
                let text =
                    || format!("the key could admit this call that waits for it: {}", call.show());
                return admits(key, info, &waits).then(text);
            }
            // A waiter without a blocked call: the server may skip it and serve the waiters behind it. Its request is
            // unknown.
            _ if is_exclusive => {}
            _ => return None,
        }
    }
    None
}

fn admits(key: Key, info: &Value, waits: &Waits) -> bool {
    match key.family {
        Family::Sem => number(info, "available")
            .is_some_and(|n| n >= i64::try_from(waits.count).unwrap_or(i64::MAX)),
        Family::Rw if waits.reads => {
            matches!(info, Value::Array(_)) && info.field("writer") == Value::Nil
        }
        family => matches!(info, Value::Array(_)) && !is_held(family, info),
    }
}

/// The wait of a TAKE.
fn take(key: Key, call: &Call) -> Option<Waits> {
    let words = call.frames.first()?;
    if words.first()? != b"DSEM.TAKE" || *words.get(1)? != key.name().into_bytes() {
        return None;
    }
    let count = String::from_utf8_lossy(words.get(2)?).parse().ok()?;
    Some(Waits { keys: vec![key], owner: String::new(), all: false, count, reads: false })
}
