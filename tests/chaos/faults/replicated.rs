//! Faults of a primary and a replica: broken links, failovers, and an isolated old primary.

use std::time::Duration;

use dlock_testing::{Dice, Reply as _, Server};

use crate::{crowd::Crowd, oracle::Violation, world::World};

/// Maximum time for a replica to follow or take over.
const PATIENCE: Duration = Duration::from_secs(10);

/// Runs one of the faults.
pub fn strike(world: &mut World, crowd: &mut Crowd, dice: &mut Dice) -> Result<(), Violation> {
    match dice.below(8) {
        0 => {
            world.servers[world.primary].cmd(&["CLIENT", "KILL", "TYPE", "replica"]).ok();
            Ok(())
        }
        1 => {
            full_sync(world);
            Ok(())
        }
        2 => {
            restart_replica(world);
            Ok(())
        }
        3 => fail_over(world, crowd),
        4..=6 => leave_behind(world, crowd, dice),
        _ => lose_the_primary(world, crowd),
    }
}

/// Forces a full synchronization of the replica.
fn full_sync(world: &World) {
    let primary = &world.servers[world.primary];
    primary.cmd(&["DEBUG", "CHANGE-REPL-ID"]).ok();
    primary.cmd(&["CLIENT", "KILL", "TYPE", "replica"]).ok();
}

fn restart_replica(world: &mut World) {
    let address = address(&world.servers[world.primary]);
    let replica = &mut world.servers[1 - world.primary];
    replica.kill9();
    replica.start_again();
    follow(replica, &address);
}

fn address(server: &Server) -> [String; 2] {
    ["127.0.0.1".to_owned(), server.port().to_string()]
}

fn follow(replica: &Server, [host, port]: &[String; 2]) {
    replica.cmd(&["REPLICAOF", host, port]).ok();
}

fn field(server: &Server, name: &str) -> String {
    server.info("replication").remove(name).unwrap_or_default()
}

/// Waits until the condition holds, and reads replies meanwhile.
fn wait(crowd: &mut Crowd, what: &str, mut is_so: impl FnMut() -> bool) -> Result<(), Violation> {
    let start = std::time::Instant::now();
    while !is_so() {
        if start.elapsed() > PATIENCE {
            return Err(Violation::new(format!("after {PATIENCE:?} still not: {what}")));
        }
        crowd.pump_for(Duration::from_millis(2))?;
    }
    Ok(())
}

/// A failover without data loss.
fn fail_over(world: &mut World, crowd: &mut Crowd) -> Result<(), Violation> {
    settle(world, crowd)?;
    super::all_doomed(crowd);
    let (old, new) = (world.primary, 1 - world.primary);
    let [host, port] = address(&world.servers[new]);
    world.servers[old].cmd(&["FAILOVER", "TO", &host, &port, "TIMEOUT", "5000"]).ok();
    wait(crowd, "the end of FAILOVER", || {
        field(&world.servers[old], "master_failover_state") == "no-failover"
    })?;
    if field(&world.servers[new], "role") != "master" {
        // It took too long, and was aborted.
        return Ok(());
    }
    world.primary = new;
    crowd.move_all(new)
}

/// Waits until the link is up and writes are accepted.
fn settle(world: &World, crowd: &mut Crowd) -> Result<(), Violation> {
    let (primary, replica) = (&world.servers[world.primary], &world.servers[1 - world.primary]);
    primary.cmd(&["CLIENT", "UNPAUSE"]).ok();
    wait(crowd, "the link to be up", || field(replica, "master_link_status") == "up")
}

/// The replica takes over without the knowledge of the old primary, which refuses writes from then on: it must grant
/// nothing.
fn leave_behind(world: &mut World, crowd: &mut Crowd, dice: &mut Dice) -> Result<(), Violation> {
    settle(world, crowd)?;
    let (old, new) = (world.primary, 1 - world.primary);
    let (primary, replica) = (&world.servers[old], &world.servers[new]);
    // Nothing is granted from here on until the replica is in sync and the primary refuses writes.
    super::pause_writes(primary);
    wait(crowd, "the replica to have all", || {
        field(primary, "master_repl_offset") == field(replica, "slave_repl_offset")
    })?;
    super::all_doomed(crowd);
    primary.cmd(&["CONFIG", "SET", "min-replicas-to-write", "1"]).ok();
    // A connection's call that waits for the end of the pause must not let the old primary accept writes again.
    primary.cmd(&["ACL", "SETUSER", "default", "-config"]).ok();
    replica.cmd(&["REPLICAOF", "NO", "ONE"]).ok();
    wait(crowd, "the primary to be alone", || field(primary, "connected_slaves") == "0")?;
    // Some of the connections use the new primary, the others do not know it.
    for n in 0..crowd.actors.len() {
        if !crowd.actors[n].seat.waits && dice.below(3) > 0 {
            crowd.move_to(n, new)?;
        }
    }
    crowd.scene.weather.refusals = false;
    crowd.scene.weather.pauses = false;
    super::unpause(&world.servers[old]);
    let end = std::time::Instant::now() + Duration::from_millis(500 + dice.below(1_000));
    while std::time::Instant::now() < end {
        crowd.feed(dice);
        crowd.pump()?;
    }
    super::all_doomed(crowd);
    world.primary = new;
    crowd.move_all(new)?;
    let old = &world.servers[old];
    old.cmd(&["ACL", "SETUSER", "default", "+config"]).ok();
    old.cmd(&["CONFIG", "SET", "min-replicas-to-write", "0"]).ok();
    follow(old, &address(&world.servers[new]));
    Ok(())
}

/// A failover that may lose the last acknowledged calls.
fn lose_the_primary(world: &mut World, crowd: &mut Crowd) -> Result<(), Violation> {
    settle(world, crowd)?;
    super::all_doomed(crowd);
    crowd.oracle.world_disturbed();
    let (old, new) = (world.primary, 1 - world.primary);
    world.servers[old].kill9();
    world.servers[new].cmd(&["REPLICAOF", "NO", "ONE"]).ok();
    world.servers[old].start_again();
    follow(&world.servers[old], &address(&world.servers[new]));
    world.primary = new;
    crowd.move_all(new)?;
    crowd.oracle.world_disturbed();
    Ok(())
}
