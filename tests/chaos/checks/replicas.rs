//! A replica has the data of its primary.

use std::time::{Duration, Instant};

use dlock_testing::{Reply as _, Server, redis::Value};

use super::words;
use crate::{crowd::Crowd, key::Key, oracle::Violation, world::World};

/// Maximum time for the stream to settle.
const PATIENCE: Duration = Duration::from_secs(15);

/// DEBUG DIGEST of both is equal once the stream has been applied, and the replica knows level and tokens.
pub fn are_equal(world: &World, crowd: &mut Crowd) -> Result<(), Violation> {
    let (primary, replica) = (&world.servers[world.primary], &world.servers[1 - world.primary]);
    let start = Instant::now();
    loop {
        let offset = offset(primary, "master_repl_offset");
        if offset == self::offset(replica, "slave_repl_offset") {
            let (ours, theirs) = (primary.digest(), replica.digest());
            let behind = behind(primary, replica);
            if ours == theirs && behind.is_none() {
                return Ok(());
            }
            let is_still =
                self::offset(primary, "master_repl_offset") == offset && primary.digest() == ours;
            if is_still && start.elapsed() > PATIENCE / 5 {
                let found = behind.map(Violation::new);
                return Err(found.unwrap_or_else(|| difference(primary, replica, crowd)));
            }
        }
        if start.elapsed() > PATIENCE {
            let text = "the replica does not follow";
            return Err(Violation::new(format!(
                "{text}\n{}\n{}",
                primary.log_tail(),
                replica.log_tail()
            )));
        }
        crowd.pump_for(Duration::from_millis(10))?;
    }
}

/// Whether a replica misses the largest token, which is beside the keys.
fn behind(primary: &Server, replica: &Server) -> Option<String> {
    let tokens = [primary, replica].map(|server| server.info_number("dlock", "last_token"));
    (tokens[0] > tokens[1]).then(|| format!("the replica misses a token {tokens:?} of its primary"))
}

fn offset(server: &Server, field: &str) -> Option<String> {
    server.info("replication").remove(field)
}

/// Keys that still differ after a while.
fn difference(primary: &Server, replica: &Server, crowd: &Crowd) -> Violation {
    let mut clients = [primary.client(), replica.client()];
    for key in &crowd.scene.keys {
        let question = [words(&["DEBUG", "DIGEST-VALUE", &key.name()])];
        let mut differs = || {
            let digests =
                clients.each_mut().map(|client| super::ask(client, key.db, &question).remove(0));
            digests[0] != digests[1]
        };
        if differs() && {
            std::thread::sleep(Duration::from_millis(300));
            differs()
        } {
            let shown = clients.each_mut().map(|client| shown(client, *key));
            let text = format!(
                "primary and replica differ\n      primary: {}\n      replica: {}",
                shown[0], shown[1]
            );
            return Violation::of(*key, text);
        }
    }
    let lists = clients.each_mut().map(|client| {
        let dbs = [0, 1].map(|db| super::ask(client, db, &[words(&["KEYS", "*"])]).remove(0));
        let mut keys: Vec<String> =
            dbs.iter().flat_map(Value::items).map(|key| key.text()).collect();
        keys.sort_unstable();
        keys
    });
    Violation::new(format!("primary and replica differ, but in no lock: {lists:?}"))
}

fn shown(client: &mut dlock_testing::Client, key: Key) -> String {
    let dump = super::ask(client, key.db, &[words(&["DUMP", &key.name()])]).remove(0);
    let dump = if let Value::BulkString(bytes) = dump {
        bytes.escape_ascii().to_string()
    } else {
        dump.show()
    };
    format!("{}\n      {dump}", super::info_of(client, key))
}
