//! Faults of a cluster: slots move, nodes restart, the cluster is down.

use std::time::{Duration, Instant};

use dlock_testing::{Dice, Reply as _, redis::Value};

use crate::{
    crowd::Crowd,
    oracle::Violation,
    world::{TAGS, World},
};

/// Maximum time for nodes to agree.
const PATIENCE: Duration = Duration::from_secs(15);

/// Runs one of the faults.
pub fn strike(world: &mut World, crowd: &mut Crowd, dice: &mut Dice) -> Result<(), Violation> {
    match dice.below(6) {
        0 => restart_a_node(world, crowd, dice),
        1 => be_down(world, crowd, dice),
        _ => move_a_slot(world, crowd, dice),
    }
}

/// Lets connections continue for a moment.
fn go_on(crowd: &mut Crowd, dice: &mut Dice) -> Result<(), Violation> {
    let end = Instant::now() + Duration::from_millis(dice.below(25));
    while Instant::now() < end {
        crowd.feed(dice);
        crowd.pump()?;
    }
    Ok(())
}

/// A slot moves with its keys, key by key, while connections use them.
fn move_a_slot(world: &mut World, crowd: &mut Crowd, dice: &mut Dice) -> Result<(), Violation> {
    let tag = u8::try_from(dice.below(u64::from(TAGS))).unwrap_or(0);
    let from = world.homes[usize::from(tag)];
    let to = 1 - from;
    let slot = world.servers[from].slot(&format!("{{t{tag}}}"));
    // A binding does not move with its hold.
    super::all_doomed(crowd);
    // Nor does the memory of requests.
    crowd.oracle.requests_forgotten(Instant::now() + 2 * PATIENCE);
    world.servers[from].begin_slot_move(slot, &world.servers[to]);
    go_on(crowd, dice)?;
    let start = Instant::now();
    loop {
        super::all_doomed(crowd);
        let refused = migrate_some(world, slot, (from, to));
        go_on(crowd, dice)?;
        match refused {
            Ok(0) => break,
            Ok(_) => {}
            // A burst may refuse writes for a while.
            Err(text) if start.elapsed() > PATIENCE => {
                return Err(Violation::new(format!("MIGRATE: {text}")));
            }
            Err(_) => world.reset(),
        }
    }
    world.servers[from].end_slot_move(slot, &world.servers[to]);
    super::all_doomed(crowd);
    crowd.oracle.requests_forgotten(Instant::now());
    world.homes[usize::from(tag)] = to;
    for actor in &mut crowd.actors {
        actor.seat.tags = world.tags_of(actor.node);
    }
    Ok(())
}

/// Moves a few keys; returns the number found.
fn migrate_some(world: &World, slot: u16, (from, to): (usize, usize)) -> Result<usize, String> {
    let (source, target) = (&world.servers[from], &world.servers[to]);
    let keys = source.cmd(&["CLUSTER", "GETKEYSINSLOT", &slot.to_string(), "4"]).items();
    let port = target.port().to_string();
    for key in &keys {
        let key = key.bytes();
        let call: [&[u8]; 7] =
            [b"MIGRATE", b"127.0.0.1", port.as_bytes(), &key, b"0", b"5000", b"REPLACE"];
        let reply = source.cmd(&call);
        if let Value::ServerError(_) = reply {
            return Err(reply.error());
        }
    }
    Ok(keys.len())
}

/// Restarts a node with its data.
fn restart_a_node(world: &mut World, crowd: &mut Crowd, dice: &mut Dice) -> Result<(), Violation> {
    let node = dice.index(world.servers.len());
    super::restart(world, crowd, node, Some(&["SAVE"]))?;
    wait_ok(world, crowd)
}

pub fn wait_ok(world: &World, crowd: &mut Crowd) -> Result<(), Violation> {
    let start = Instant::now();
    let is_ok = |world: &World| {
        world
            .servers
            .iter()
            .all(|server| server.cmd(&["CLUSTER", "INFO"]).text().contains("cluster_state:ok"))
    };
    while !is_ok(world) {
        if start.elapsed() > PATIENCE {
            return Err(Violation::new("the cluster does not become whole again".to_owned()));
        }
        crowd.pump_for(Duration::from_millis(5))?;
    }
    Ok(())
}

/// A slot without keys has no node for some time: the cluster refuses writes.
fn be_down(world: &mut World, crowd: &mut Crowd, dice: &mut Dice) -> Result<(), Violation> {
    let node = &world.servers[0];
    node.cmd(&["CLIENT", "UNPAUSE"]).ok();
    node.cmd(&["CLUSTER", "DELSLOTS", "7"]);
    let end = Instant::now() + Duration::from_millis(dice.below(400));
    while Instant::now() < end {
        crowd.feed(dice);
        crowd.pump()?;
    }
    world.servers[0].cmd(&["CLUSTER", "ADDSLOTS", "7"]);
    wait_ok(world, crowd)
}
