//! Every key exists once.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::{Duration, Instant},
};

use dlock_testing::{Client, Reply as _, redis::Value};

use super::words;
use crate::{crowd::Crowd, oracle::Violation, world::World};

/// KEYS, DBSIZE, EXISTS and the counts of slots agree on each node.
pub fn have_no_twins(world: &World, crowd: &mut Crowd) -> Result<(), Violation> {
    for node in world.primaries() {
        let start = Instant::now();
        // Leases end meanwhile: the numbers must agree at one moment.
        while let Some(text) = disagreement(world, node) {
            if start.elapsed() > Duration::from_secs(3) {
                return Err(Violation::new(format!("node {node}: {text}")));
            }
            crowd.pump_for(Duration::from_millis(20))?;
        }
    }
    Ok(())
}

fn disagreement(world: &World, node: usize) -> Option<String> {
    let mut client = world.servers[node].client();
    let replies = client.pipeline(&[
        words(&["MULTI"]),
        words(&["KEYS", "*"]),
        words(&["DBSIZE"]),
        words(&["EXEC"]),
    ]);
    let replies = replies[3].items();
    let keys: Vec<String> = replies[0].items().iter().map(Value::text).collect();
    let size = replies[1].int();
    if usize::try_from(size) != Ok(keys.len()) {
        return Some(format!("KEYS lists {} keys, DBSIZE says {size}: {keys:?}", keys.len()));
    }
    let mut times: BTreeMap<&str, u32> = BTreeMap::new();
    for key in &keys {
        *times.entry(key).or_default() += 1;
    }
    if let Some((key, n)) = times.iter().find(|(_, n)| **n > 1) {
        return Some(format!("KEYS lists {key} {n} times"));
    }
    let questions: Vec<_> = keys
        .iter()
        .flat_map(|key| [words(&["EXISTS", key]), words(&["CLUSTER", "KEYSLOT", key])])
        .collect();
    if questions.is_empty() {
        return None;
    }
    let replies = client.pipeline(&questions);
    let mut slots: BTreeMap<i64, usize> = BTreeMap::new();
    for (key, pair) in keys.iter().zip(replies.chunks_exact(2)) {
        *slots.entry(pair[1].int()).or_default() += 1;
        if pair[0] != Value::Int(1) {
            return Some(format!("KEYS lists {key}, EXISTS says {}", pair[0].show()));
        }
    }
    for (slot, n) in slots {
        let counted = client.cmd(&["CLUSTER", "COUNTKEYSINSLOT", &slot.to_string()]).int();
        if usize::try_from(counted) != Ok(n) {
            return Some(format!(
                "KEYS lists {n} keys of slot {slot}, COUNTKEYSINSLOT says {counted}: {keys:?}"
            ));
        }
    }
    None
}

/// Saved data can be loaded, and are unchanged.
pub fn survive_a_reload(world: &World, crowd: &mut Crowd) -> Result<(), Violation> {
    for node in world.primaries() {
        let mut client = world.servers[node].client();
        // The reload ends blocked calls, and bindings as after a restart.
        crowd.oracle.world_disturbed();
        let ending = with_a_ttl(&mut client);
        let replies = client.pipeline(&[
            words(&["MULTI"]),
            words(&["KEYS", "*"]),
            words(&["DEBUG", "RELOAD"]),
            words(&["KEYS", "*"]),
            words(&["EXEC"]),
        ]);
        let Value::Array(replies) = &replies[4] else {
            return Err(Violation::new(format!(
                "DEBUG RELOAD in a transaction: {}",
                replies[4].show()
            )));
        };
        if let Value::ServerError(_) = replies[1] {
            return Err(Violation::new(format!(
                "DEBUG RELOAD on node {node}: {}",
                replies[1].show()
            )));
        }
        let sorted = |reply: &Value| {
            let mut keys: Vec<String> = reply.items().iter().map(Value::text).collect();
            keys.sort_unstable();
            keys
        };
        let (before, after) = (sorted(&replies[0]), sorted(&replies[2]));
        let is_new = after.iter().any(|key| !before.contains(key));
        let is_lost = |key: &String| !after.contains(key) && !ending.contains(key);
        if is_new || before.iter().any(is_lost) {
            return Err(Violation::new(format!(
                "DEBUG RELOAD on node {node} changed the keys from {before:?} to {after:?}"
            )));
        }
    }
    Ok(())
}

/// Keys of database 0 with a TTL: the server may remove them at any time, even during a load.
fn with_a_ttl(client: &mut Client) -> BTreeSet<String> {
    let keys = client.pipeline(&[words(&["KEYS", "*"])]);
    let keys: Vec<String> = keys[0].items().iter().map(Value::text).collect();
    let asked: Vec<Vec<String>> = keys.iter().map(|key| words(&["PTTL", key])).collect();
    let times = client.pipeline(&asked);
    keys.into_iter().zip(times).filter(|(_, time)| time.int() != -1).map(|(key, _)| key).collect()
}
