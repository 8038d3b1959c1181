//! Invariants that hold when no calls are in progress but blocked ones.

mod drain;
mod keys;
mod replicas;
mod wakeups;

use std::time::{Duration, Instant};

use dlock_testing::{Client, Reply as _, redis::Value};

use super::{
    crowd::Crowd,
    faults,
    key::{Family, Key},
    oracle::{Hold, Violation},
    world::{Kind, World},
};

/// Marks of a crash in a log, and of a record that was refused, also before the last full synchronization.
const CRASH_MARKS: [&str; 6] = [
    "BUG REPORT START",
    "ASSERTION FAILED",
    "crashed by signal",
    "panicked",
    "internal error",
    "diverged",
];

/// After each burst.
pub fn after_burst(world: &mut World, crowd: &mut Crowd) -> Result<(), Violation> {
    world.reset();
    crowd.calm_down()?;
    // Calls of the burst may have paused the server, or changed its settings.
    world.reset();
    if world.kind == Kind::Cluster {
        // Nodes that stood still for longer than their timeout, on a busy machine, refuse all calls for a moment.
        faults::cluster::wait_ok(world, crowd)?;
    }
    crowd.oracle.settled(Instant::now());
    certain_holds_are_there(world, crowd)?;
    wakeups::none_is_lost(world, crowd)?;
    match world.kind {
        Kind::Single => {}
        Kind::Replicated => replicas::are_equal(world, crowd)?,
        Kind::Cluster => keys::have_no_twins(world, crowd)?,
    }
    alive(world)
}

/// After a group of bursts: ends all holds, and checks that nothing is left.
pub fn after_group(world: &mut World, crowd: &mut Crowd) -> Result<(), Violation> {
    if world.kind == Kind::Cluster {
        keys::survive_a_reload(world, crowd)?;
    }
    drain::everything(world, crowd)?;
    drain::nothing_is_left(world, crowd)?;
    alive(world)
}

/// The servers run, caught no panic, and could read all records.
fn alive(world: &World) -> Result<(), Violation> {
    for (n, server) in world.servers.iter().enumerate() {
        for field in ["panics_caught", "records_refused"] {
            let count = server.info_number("dlock", field);
            if count > 0 {
                return Err(Violation::new(format!("server {n}: {field} is {count}")));
            }
        }
        let log = server.log();
        if let Some(line) =
            log.lines().find(|line| CRASH_MARKS.iter().any(|mark| line.contains(mark)))
        {
            return Err(Violation::new(format!("the log of server {n} says: {line}")));
        }
    }
    Ok(())
}

/// Sends questions about keys of one database to a server, in one pipeline.
fn ask(client: &mut Client, db: u8, questions: &[Vec<String>]) -> Vec<Value> {
    if questions.is_empty() {
        return Vec::new();
    }
    let mut all = vec![vec!["SELECT".to_owned(), db.to_string()]];
    all.extend(questions.iter().cloned());
    let mut replies = client.pipeline(&all);
    replies.remove(0);
    replies
}

fn words(words: &[&str]) -> Vec<String> {
    words.iter().map(|&word| word.to_owned()).collect()
}

/// Every certain hold exists on the server.
fn certain_holds_are_there(world: &World, crowd: &Crowd) -> Result<(), Violation> {
    let spare = Duration::from_millis(500);
    let now = Instant::now();
    let holds = crowd.oracle.certain(now, spare);
    for node in world.primaries() {
        let mut client = world.servers[node].client();
        for db in 0..world.kind.dbs() {
            let here: Vec<&(Key, Hold)> = holds
                .iter()
                .filter(|(key, _)| key.db == db && world.node_of(*key) == node)
                .collect();
            let questions: Vec<_> = here
                .iter()
                .map(|(key, hold)| {
                    words(&[&key.family.command("CHECK"), &key.name(), &hold.token.to_string()])
                })
                .collect();
            let replies = ask(&mut client, db, &questions);
            for ((key, hold), reply) in here.iter().zip(replies) {
                if reply != Value::Int(1) && Instant::now() < hold.until {
                    let info = info_of(&mut client, *key);
                    let text = format!(
                        "{} ({:?}) was told token {}, nothing has ended that hold, \
                         its lease runs for {} ms more at least, but CHECK says {}; \
                         INFO: {info}",
                        hold.owner,
                        hold.mode,
                        hold.token,
                        (hold.until - Instant::now()).as_millis(),
                        reply.show()
                    );
                    return Err(Violation::of(*key, text));
                }
            }
            certain_permits_are_there(world, crowd, &mut client, (node, db))?;
        }
    }
    Ok(())
}

fn certain_permits_are_there(
    world: &World,
    crowd: &Crowd,
    client: &mut Client,
    (node, db): (usize, u8),
) -> Result<(), Violation> {
    let permits = crowd.oracle.certain_permits(Instant::now(), Duration::from_millis(500));
    for (key, permit) in permits {
        if key.db != db || world.node_of(key) != node {
            continue;
        }
        let listed = ask(client, db, &[words(&["DSEM.PERMITS", &key.name()])]).remove(0);
        let shown = listed.show();
        if !shown.contains(&permit.id) && Instant::now() < permit.until {
            let text = format!("permit {} is certain, but PERMITS says {shown}", permit.id);
            return Err(Violation::of(key, text));
        }
    }
    Ok(())
}

/// INFO and WAITERS of a key, for people.
pub fn info_of(client: &mut Client, key: Key) -> String {
    let command = |verb| key.family.command(verb);
    let name = key.name();
    let questions = [
        words(&["TYPE", &name]),
        words(&[&command("INFO"), &name]),
        words(&[&command("WAITERS"), &name, "COUNT", "10"]),
    ];
    ask(client, key.db, &questions).iter().map(Value::show).collect::<Vec<_>>().join("\n      ")
}

/// A number in a reply that is a map.
fn number(map: &Value, field: &str) -> Option<i64> {
    match map {
        Value::Array(_) | Value::Map(_) => {
            map.pairs().into_iter().find(|(name, _)| name == field).map(|pair| pair.1.int())
        }
        _ => None,
    }
}

/// Whether a lock of this family has a holder, according to INFO.
fn is_held(family: Family, info: &Value) -> bool {
    match family {
        Family::Lock | Family::Fair => number(info, "holds").is_some_and(|holds| holds > 0),
        Family::Rw => matches!(info, Value::Array(_)) && info.field("mode").text() != "free",
        Family::Sem | Family::Latch => false,
    }
}
