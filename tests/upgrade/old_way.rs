//! What came of an upgrade from a module before the first level: such a module refuses records that it cannot read, and
//! only its log says so.

use std::fmt;

use dlock_testing::{
    Binary, Profile, Reply as _, Server, module_of_commit, module_path, redis::Value,
};

use crate::{
    caller::{Caller, call},
    group::{DataFolder, Group},
};

/// A module before the first level. It knows no finished requests, which records of later modules list.
const EARLIER: &str = "b7257aa";

/// Locks of the scene. The first ones change hands on the new primary; the last ones are new there.
const LOCKS: u64 = 92;
const CHANGED: u64 = 12;
const NEW: u64 = 6;

/// What came of it.
#[derive(Debug)]
pub struct Outcome {
    /// Keys that differ, after the first replica was upgraded.
    pub upgraded_replica: usize,
    /// Keys that differ while the former primary still has the earlier module.
    pub earlier_replica: usize,
    /// Keys that differ after its restart.
    pub restarted: usize,
    /// Its INFO field `records_refused`.
    pub refused: i64,
    /// Held locks that it granted to strangers after it became the primary again.
    pub strangers: usize,
    /// Held locks that strangers asked for.
    pub held: usize,
}

impl fmt::Display for Outcome {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            out,
            "of {LOCKS} locks {} differed after the upgrade of the replica, {} while the former primary was an earlier \
             replica, {} after its restart; it refused {} records, and granted {} of {} held locks to strangers",
            self.upgraded_replica,
            self.earlier_replica,
            self.restarted,
            self.refused,
            self.strangers,
            self.held
        )
    }
}

/// The upgrade of a pair from the earlier module, and a failover back to the former primary.
pub fn upgrade(server: &str, former: DataFolder) -> Outcome {
    let (earlier, new) = (module_of_commit(EARLIER), module_path(Profile::Dev));
    let mut group = Group::plain_pair(&Binary::named(server), &earlier);
    let mut caller = Caller::new(&group.addresses());
    for n in 0..LOCKS - NEW {
        granted(&mut caller, n, "holder");
    }
    group.restart_replica_with(1, new, DataFolder::Emptied);
    let upgraded_replica = different(&group, 0);
    group.fail_over();
    for n in 0..CHANGED {
        let release = format!("{} REQID r", request("RELEASE", n, "holder"));
        assert_eq!(ask(&mut caller, n, &release), Value::Int(0));
        if n % 2 == 0 {
            granted(&mut caller, n, "next");
        }
    }
    for n in LOCKS - NEW..LOCKS {
        granted(&mut caller, n, "new");
    }
    let earlier_replica = different(&group, 1);
    group.restart_replica_with(0, new, former);
    let restarted = different(&group, 1);
    let refused = group.servers[0].info("dlock").remove("records_refused");
    group.fail_over();
    let held: Vec<u64> = (0..LOCKS).filter(|n| *n >= CHANGED || n % 2 == 0).collect();
    let is_granted = |n: &&u64| {
        let reply = ask(&mut caller, **n, &request("ACQUIRE", **n, "stranger"));
        matches!(reply, Value::Int(_))
    };
    Outcome {
        upgraded_replica,
        earlier_replica,
        restarted,
        refused: refused.map_or(0, |count| count.parse().expect("a count")),
        strangers: held.iter().filter(is_granted).count(),
        held: held.len(),
    }
}

/// A call about lock `n`, without options.
fn request(verb: &str, n: u64, owner: &str) -> String {
    let (family, mode) = match n % 3 {
        0 => ("DLOCK", ""),
        1 => ("DFAIR", ""),
        _ => ("DRW", " WRITE"),
    };
    match verb {
        "INFO" => format!("{family}.INFO old:{n}"),
        _ => format!("{family}.{verb} old:{n} {owner}{mode}"),
    }
}

fn ask(caller: &mut Caller, n: u64, words: &str) -> Value {
    let answer = caller.call(&format!("old:{n}"), &call(words));
    answer.unwrap_or_else(|| panic!("no answer to {words}")).value
}

fn granted(caller: &mut Caller, n: u64, owner: &str) {
    let acquire = format!("{} PX 3600000 NOTIFY about REQID a", request("ACQUIRE", n, owner));
    let reply = ask(caller, n, &acquire);
    assert!(matches!(reply, Value::Int(_)), "{acquire}: {}", reply.show());
}

/// The locks whose holder or token differs between a primary and the other server.
fn different(group: &Group, primary: usize) -> usize {
    let (primary, replica) = (&group.servers[primary], &group.servers[1 - primary]);
    primary.wait_replica_synced(replica);
    let holder = |server: &Server, n| {
        let info = server.ask(&request("INFO", n, ""));
        let hold = if n % 3 == 2 && !info.is_null() { info.field("writer") } else { info };
        (!hold.is_null()).then(|| (hold.field("owner").text(), hold.field("token").int()))
    };
    (0..LOCKS).filter(|&n| holder(primary, n) != holder(replica, n)).count()
}
