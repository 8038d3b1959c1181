//! The servers of a run.

use std::path::PathBuf;

use dlock_testing::{Nodes, Reply as _, Server, redis::Value};

use super::{generate::Features, key::Key};

/// Number of hash tags.
pub const TAGS: u8 = 6;

/// Kinds of worlds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// One server, with an AOF.
    Single,
    /// A primary and a replica.
    Replicated,
    /// Two nodes that exchange slots.
    Cluster,
}

impl Kind {
    /// All kinds.
    pub const ALL: [Kind; 3] = [Kind::Single, Kind::Replicated, Kind::Cluster];

    /// Its name in WORLD.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Single => "single",
            Kind::Replicated => "replicated",
            Kind::Cluster => "cluster",
        }
    }

    /// Number of its databases.
    pub fn dbs(self) -> u8 {
        if self == Kind::Cluster { 1 } else { 2 }
    }
}

/// The settings that a burst starts with.
const SETTINGS: [(&str, &str); 10] = [
    ("dlock.default-lease-ms", "30000"),
    ("dlock.fair-grace-ms", "300"),
    ("dlock.lock-delay-ms", "0"),
    ("dlock.deadlock-detection", "yes"),
    ("dlock.max-waiters-per-key", "100000"),
    ("dlock.max-waiters", "1000000"),
    ("min-replicas-to-write", "0"),
    ("min-replicas-max-lag", "10"),
    ("notify-keyspace-events", "AKEd"),
    ("busy-reply-threshold", "5000"),
];

/// Short graces, so that they end within a burst, also after a restart. No command is served during a load: otherwise
/// a plain server could nest DEBUG RELOAD, and write it to its AOF, which then cannot be loaded.
const STARTS_WITH: [&str; 4] =
    ["dlock.fair-grace-ms", "300", "loading-process-events-interval-bytes", "2147483647"];

/// The servers.
#[derive(Debug)]
pub struct World {
    /// Which.
    pub kind: Kind,
    /// The servers; in a replicated world, either may be the primary.
    pub servers: Vec<Server>,
    /// The primary of a replicated world; 0 elsewhere.
    pub primary: usize,
    /// The node of each tag.
    pub homes: Vec<usize>,
    /// Number of restarts, failovers and slot moves.
    pub faults: u64,
    /// Minimum memory of each empty server.
    pub memory: Vec<Option<i64>>,
    /// A single server writes an AOF, synced before each reply.
    pub has_aof: bool,
}

impl World {
    /// Starts the servers; a single one with an AOF, or with RDB files only.
    pub fn start(kind: Kind, has_aof: bool) -> World {
        let servers = match kind {
            Kind::Single => {
                let settings = ["appendonly", "yes", "appendfsync", "always"];
                vec![Server::with(if has_aof { &settings } else { &[] }).and(&STARTS_WITH).start()]
            }
            Kind::Replicated => {
                let primary = Server::with(&STARTS_WITH).start();
                let replica = Server::with(&STARTS_WITH).replica_of(&primary).start();
                vec![primary, replica]
            }
            Kind::Cluster => Nodes::with(2, &STARTS_WITH).into_servers(),
        };
        let mut world = World {
            kind,
            servers,
            primary: 0,
            homes: Vec::new(),
            faults: 0,
            has_aof,
            memory: Vec::new(),
        };
        world.memory = vec![None; world.servers.len()];
        world.homes = (0..TAGS).map(|tag| world.home(tag)).collect();
        world.reset();
        world
    }

    /// The node that serves a tag, according to the first node.
    fn home(&self, tag: u8) -> usize {
        if self.kind != Kind::Cluster {
            return self.primary;
        }
        let slot = i64::from(self.servers[0].slot(&format!("{{t{tag}}}")));
        let ranges = self.servers[0].cmd(&["CLUSTER", "SLOTS"]).items();
        let serves =
            |range: &Value| (range.items()[0].int()..=range.items()[1].int()).contains(&slot);
        let port = ranges
            .iter()
            .find(|range| serves(range))
            .map(|range| range.items()[2].items()[1].int());
        self.servers.iter().position(|server| Some(i64::from(server.port())) == port).unwrap_or(0)
    }

    /// The node that a key is at.
    pub fn node_of(&self, key: Key) -> usize {
        if self.kind == Kind::Cluster { self.homes[usize::from(key.tag)] } else { self.primary }
    }

    /// The nodes that take writes.
    pub fn primaries(&self) -> Vec<usize> {
        match self.kind {
            Kind::Cluster => (0..self.servers.len()).collect(),
            _ => vec![self.primary],
        }
    }

    /// The tags that a node serves.
    pub fn tags_of(&self, node: usize) -> Vec<u8> {
        let of_node =
            |tag: &u8| self.kind != Kind::Cluster || self.homes[usize::from(*tag)] == node;
        let tags: Vec<u8> = (0..TAGS).filter(of_node).collect();
        // A node without tags gets calls, too: it redirects them.
        if tags.is_empty() { (0..TAGS).collect() } else { tags }
    }

    /// The unix sockets.
    pub fn sockets(&self) -> Vec<PathBuf> {
        self.servers.iter().map(|server| server.dir().join("s")).collect()
    }

    /// Ends pauses, and restores settings that a burst may have changed.
    pub fn reset(&self) {
        for server in &self.servers {
            server.cmd(&["CLIENT", "UNPAUSE"]);
            for (name, value) in SETTINGS {
                server.cmd(&["CONFIG", "SET", name, value]).ok();
            }
        }
    }

    /// Features of the server.
    pub fn features(&self) -> Features {
        let server = &self.servers[0];
        // Unused names; none of the calls changes anything.
        let knows = |words: &[&str]| match server.cmd(words) {
            reply @ Value::ServerError(_) => {
                let text = reply.error();
                text == "ERR no such semaphore" || text.starts_with("ERR no such semaphore:")
            }
            _ => true,
        };
        let tag = format!("{{t{}}}", self.homes.iter().position(|&home| home == 0).unwrap_or(0));
        let key = format!("{tag}features");
        Features {
            lock_await: knows(&["DLOCK.AWAIT", &key]),
            resize_by: knows(&["DSEM.RESIZE", &key, "BY", "1"]),
            client_unblock: client_unblock_is_safe(),
        }
    }
}

/// Redis up to 8.0 and Valkey 8.0 panic when CLIENT UNBLOCK meets a client that a pause holds.
fn client_unblock_is_safe() -> bool {
    let kind = dlock_testing::Kind::of_binary();
    kind.client_unblock_is_safe() && kind.at_least((8, 2), (9, 0))
}
