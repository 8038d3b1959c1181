//! Faults of servers and connections during a burst.

pub mod cluster;
mod replicated;
mod single;

use dlock_testing::{Dice, Reply as _, Server, redis::Value};

use super::{
    crowd::Crowd,
    oracle::Violation,
    world::{Kind, World},
};

/// Closes a connection, at the client or at the server.
pub fn cut(world: &World, crowd: &mut Crowd, dice: &mut Dice) -> Result<(), Violation> {
    let n = dice.index(crowd.actors.len());
    if dice.one_in(2) {
        return crowd.cut(n);
    }
    crowd.cuts += 1;
    let (node, id) = (crowd.actors[n].node, crowd.actors[n].pipe.client_id);
    crowd.oracle.doomed(crowd.actors[n].conn);
    // It may be closed already. A read detects the end.
    let _ = world.servers[node].cmd(&["CLIENT", "KILL", "ID", &id.to_string()]);
    Ok(())
}

/// A fault of this world.
pub fn strike(world: &mut World, crowd: &mut Crowd, dice: &mut Dice) -> Result<(), Violation> {
    world.faults += 1;
    crowd.oracle.stands_still();
    match world.kind {
        Kind::Single => single::strike(world, crowd, dice),
        Kind::Replicated => replicated::strike(world, crowd, dice),
        Kind::Cluster => cluster::strike(world, crowd, dice),
    }
}

/// Marks the bindings of all connections as ending, as if all were closed.
fn all_doomed(crowd: &mut Crowd) {
    let conns: Vec<_> = crowd.actors.iter().map(|actor| actor.conn).collect();
    crowd.oracle.all_doomed(conns.into_iter());
}

/// Commands that connections may not use while a fault pauses a server.
const PAUSING: [&str; 2] = ["client|pause", "client|unpause"];

/// No writes from here on, until [`unpause`]. Connections may not end the pause, nor extend it to all commands: of
/// two pauses, the longer time and the wider kind apply.
fn pause_writes(server: &Server) {
    let mut forbid = vec!["ACL".to_owned(), "SETUSER".to_owned(), "default".to_owned()];
    forbid.extend(PAUSING.map(|command| format!("-{command}")));
    let words = |words: &[&str]| words.iter().map(|&word| word.to_owned()).collect::<Vec<_>>();
    let calls = [
        words(&["MULTI"]),
        words(&["CLIENT", "PAUSE", "60000", "WRITE"]),
        forbid,
        words(&["EXEC"]),
    ];
    let replies = server.client().pipeline(&calls);
    assert!(matches!(replies.last(), Some(Value::Array(_))), "no pause: {replies:?}");
}

/// Ends a pause.
fn unpause(server: &Server) {
    let [pause, end] = PAUSING.map(|command| format!("+{command}"));
    server.cmd(&["ACL", "SETUSER", "default", &pause, &end]).ok();
    server.cmd(&["CLIENT", "UNPAUSE"]).ok();
}

/// Kills a server or shuts it down, and starts it again.
fn restart(
    world: &mut World,
    crowd: &mut Crowd,
    node: usize,
    words: Option<&[&str]>,
) -> Result<(), Violation> {
    all_doomed(crowd);
    let server = &mut world.servers[node];
    unpause(server);
    match words {
        Some(words) => server.shutdown(words),
        None => server.kill9(),
    }
    server.start_again();
    crowd.pump()
}
